//! [`Local`]: counting in this process, bounded, without a background task.
//!
//! What is where: `words` counts what fits into one word: `generations` holds the quotas that words are read under,
//! `cell` is the one word of a limiter without keys, `table` holds the words of many keys in `lines`, `overflow` those
//! that find no room. `records` counts what slides. `warmth` knows a ramp's start, `holds` counts permits set aside;
//! `ledger` puts them together for one quota, `counter` for one limiter.

mod cell;
mod counter;
mod generations;
mod holds;
mod ledger;
mod lines;
#[cfg(sluice_loom)]
pub(crate) mod models;
mod overflow;
mod records;
mod table;
mod warmth;
mod words;

use std::sync::{Arc, PoisonError, RwLock};

use ahash::RandomState;
use smallvec::SmallVec;

pub(crate) use self::{
    counter::{Counter, Hold},
    ledger::{Known, Seat},
};
use super::{Answer, Backend, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts};
use crate::{BackendError, BackendErrorKind, ConfigError, Decision, clock::Nanos};

/// What a charge did to which word; or to which record, of which the words are all that was ever admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    place: u64,
    old: u64,
    new: u64,
}

/// What a caller keeps of a charge: nothing, the word written, or all. What fits into a register is
/// handed up in one; three words go through memory at each level, and each wait for the last.
pub(crate) trait Kept {
    fn of(made: Made) -> Self;
}

impl Kept for () {
    #[inline]
    fn of(_: Made) {}
}

impl Kept for u64 {
    #[inline]
    fn of(made: Made) -> Self {
        made.new
    }
}

impl Kept for Made {
    #[inline]
    fn of(made: Made) -> Self {
        made
    }
}

/// The word that a charge did not fit into. Why it did not is worked out where it is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denied(u64);

/// The backend in this process, as a value: what layers use without being told.
///
/// Name it to put it behind a backend of your own. State lives as long as the value; clones share it.
///
/// ```
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, backend::Local};
///
/// let layer = RateLimitLayer::builder()
///     .backend(Local::new())
///     .rule(Rule::new("orders", TokenBucket::per_second(500)))
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Local {
    hasher: RandomState,
    counters: Arc<RwLock<Vec<Arc<Counter>>>>,
}

impl Local {
    /// A backend that knows no limiter yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn counter(&self, id: LimiterId) -> Result<Arc<Counter>, BackendError> {
        let counters = self.counters.read().unwrap_or_else(PoisonError::into_inner);
        let counter = usize::try_from(id.0).ok().and_then(|index| counters.get(index));
        counter.cloned().ok_or_else(|| {
            BackendError::new(BackendErrorKind::Protocol, format!("{id:?} was never registered"))
        })
    }

    fn seat(&self, charge: &Charge<'_>) -> Seat {
        Seat { quota: charge.quota, hash: self.hasher.hash_one(charge.key) }
    }

    /// Reads all, then charges all, so that a refusal writes nothing; what another thread takes between
    /// the two is found by the charge.
    fn charge_all(&self, now: Nanos, charges: &[Charge<'_>]) -> Result<Verdicts, BackendError> {
        let mut asked = SmallVec::<[(Arc<Counter>, Seat); 8]>::new();
        for charge in charges {
            asked.push((self.counter(charge.limiter)?, self.seat(charge)));
        }
        let asked = || asked.iter().zip(charges).map(|((counter, seat), c)| (counter, *seat, c));
        asked().for_each(|(counter, seat, charge)| counter.meet(seat, now, charge.cost));
        if !asked().all(|(counter, seat, charge)| counter.fits(seat, now, charge.cost)) {
            let read = |(counter, seat, charge): (&Arc<Counter>, Seat, &Charge<'_>)| {
                let nothing = Receipt::nothing(charge.limiter);
                Verdict::new(counter.peek(seat, now, charge.cost), nothing)
            };
            let verdicts: Verdicts = asked().map(read).collect();
            // All allowed where another thread gave permits back meanwhile: then the charges will tell.
            if !verdicts.all_allowed() {
                return Ok(verdicts);
            }
        }
        let mut denied = false;
        let mut receipts = SmallVec::<[Receipt; 8]>::new();
        let mut verdicts = SmallVec::<[Verdict; 8]>::new();
        for (counter, seat, charge) in asked() {
            let nothing = Receipt::nothing(charge.limiter);
            let (decision, receipt) = if denied {
                (counter.peek(seat, now, charge.cost), nothing)
            } else {
                // Read before the charge, so that a reset between the two counts as one after it.
                let resets = counter.resets();
                match (charge.cost > 0).then(|| counter.charge(seat, now, charge.cost)) {
                    Some(Ok(Made { place, old, new })) => {
                        let words = [resets << 8 | seat.quota as u64 & 0xff, place, old, new];
                        let receipt = Receipt::new(charge.limiter, words);
                        receipts.push(receipt);
                        (counter.peek(seat, now, 0), receipt)
                    }
                    None => (counter.peek(seat, now, 0), nothing),
                    Some(Err(denied)) => (counter.explain(seat, denied, now, charge.cost), nothing),
                }
            };
            denied |= !decision.is_allowed();
            verdicts.push(Verdict::new(decision, receipt));
        }
        if denied {
            self.undo(now, &receipts);
        }
        Ok(verdicts.into_iter().collect())
    }
}

impl Backend for Local {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        if let Some(id) = spec.replaces {
            let counter = self
                .counter(id)
                .map_err(|_| ConfigError::new("limiter", id.0, "was never registered here"))?;
            return counter.renew(spec).map(|()| id);
        }
        let counter = Arc::new(Counter::new(spec)?);
        let mut counters = self.counters.write().unwrap_or_else(PoisonError::into_inner);
        counters.push(counter);
        Ok(LimiterId(counters.len() as u64 - 1))
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        Answer::Ready(self.charge_all(now, charges))
    }

    fn undo(&self, now: Nanos, receipts: &[Receipt]) {
        for receipt in receipts.iter().rev() {
            let [packed, place, old, new] = receipt.words();
            // A receipt of nothing has no word, or nothing that was admitted.
            if new != 0
                && let Ok(counter) = self.counter(receipt.limiter())
                && counter.resets() << 8 == packed & !0xff
            {
                let quota = (packed & 0xff) as usize;
                counter.undo(quota, &Made { place, old, new }, now);
            }
        }
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        let counter = self.counter(charge.limiter);
        Answer::Ready(counter.map(|counter| counter.peek(self.seat(charge), now, charge.cost)))
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        let counter = self.counter(charge.limiter);
        Answer::Ready(counter.map(|counter| counter.reset(self.seat(charge), now)))
    }

    fn tracked_keys(&self, now: Nanos, limiter: LimiterId) -> Option<u64> {
        Some(self.counter(limiter).ok()?.tracked(now))
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.counters).addr()
    }
}
