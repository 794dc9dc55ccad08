//! [`Counter`]: one limiter in this process, with and without keys.

use std::sync::{
    Arc,
    atomic::{self, Ordering},
};

use super::{
    Denied, Kept, Known, Made,
    ledger::{Ledger, Seat, State},
    records::Records,
    warmth::Warmth,
    words::Words,
};
use crate::{
    Algorithm, ConfigError, Decision, Quota,
    algorithm::{Compiled, Epoch, Spent},
    backend::LimiterSpec,
    clock::Nanos,
    sync::{Mutex, lock},
};

/// One limiter's state.
#[derive(Debug)]
pub(crate) struct Counter {
    /// Of the first quota, which most limiters have alone; not behind a pointer of its own.
    first: Ledger,
    /// Of the others.
    others: Box<[Ledger]>,
    /// How often a key was reset.
    resets: atomic::AtomicU64,
    /// Serialises changes of the quota.
    spec: Mutex<LimiterSpec>,
    /// How often a quota was changed.
    changes: atomic::AtomicU64,
}

/// Permits held for one request.
#[derive(Debug)]
pub(crate) struct Hold {
    seat: Seat,
    cost: u64,
}

impl Counter {
    pub(crate) fn new(spec: &LimiterSpec) -> Result<Self, ConfigError> {
        if spec.keyed && spec.max_keys == 0 {
            return Err(ConfigError::new("max_keys", 0, "must be at least 1"));
        }
        if spec.max_keys > MAX_KEYS {
            return Err(ConfigError::new("max_keys", spec.max_keys, "must be at most 2^32"));
        }
        let all = compile(spec)?;
        // One ramp for all quotas: it is the limiter that warms up.
        let warmth = all.first().and_then(|first| Warmth::of(first, &spec.algorithm));
        let max_keys = spec.keyed.then_some(spec.max_keys);
        let ledgers = all.into_iter().map(|compiled| {
            let warmth = warmth.as_ref().map(Arc::clone);
            Ok(Ledger::new(match compiled {
                Compiled::Word(machine) => State::Words(Words::new(machine, warmth, max_keys)?),
                Compiled::Warming(machine) => {
                    State::Words(Words::new(machine.words(), warmth, max_keys)?)
                }
                Compiled::Sliding(machine) => {
                    State::Records(Records::new(machine, warmth, max_keys))
                }
            }))
        });
        let mut ledgers = ledgers.collect::<Result<Vec<_>, ConfigError>>()?.into_iter();
        let Some(first) = ledgers.next() else {
            return Err(ConfigError::new("quotas", 0, "a limiter has at least one"));
        };
        Ok(Self {
            first,
            others: ledgers.collect(),
            resets: atomic::AtomicU64::new(0),
            spec: Mutex::new(spec.clone()),
            changes: atomic::AtomicU64::new(0),
        })
    }

    /// From now on permits may be held. A charge that another thread is making at this very moment does
    /// not see holds yet; layers call this when they are built, before they serve.
    pub(crate) fn may_hold(&self) {
        for ledger in self.ledgers() {
            ledger.may_hold();
        }
    }

    #[inline]
    fn ledger(&self, quota: usize) -> &Ledger {
        match quota.checked_sub(1) {
            None => &self.first,
            // A charge names one of the limiter's quotas.
            Some(other) => self.others.get(other).unwrap_or(&self.first),
        }
    }

    fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// What is known of a key.
    pub(crate) fn read(&self, seat: Seat, now: Nanos) -> Known {
        self.ledger(seat.quota).read(seat.hash, now)
    }

    /// What a key has spent that slides; nothing where it is counted in words.
    pub(crate) fn spent(&self, seat: Seat, now: Nanos) -> Spent {
        self.ledger(seat.quota).spent(seat.hash, now)
    }

    /// What a charge would get; changes nothing.
    #[inline]
    pub(crate) fn peek(&self, seat: Seat, now: Nanos, cost: u64) -> Decision {
        self.ledger(seat.quota).decide(seat.hash, now, cost)
    }

    /// What a charge has left that wrote `word`: the key need not be looked for again.
    #[inline]
    pub(crate) fn after(&self, seat: Seat, word: u64, now: Nanos) -> Decision {
        self.ledger(seat.quota).after(seat.hash, word, now)
    }

    /// Whether a charge would be made; changes nothing.
    #[inline]
    pub(crate) fn fits(&self, seat: Seat, now: Nanos, cost: u64) -> bool {
        self.ledger(seat.quota).fits(seat.hash, now, cost)
    }

    /// What a charge was told that did not fit.
    #[inline]
    pub(crate) fn explain(&self, seat: Seat, denied: Denied, now: Nanos, cost: u64) -> Decision {
        self.ledger(seat.quota).explain(seat.hash, denied, now, cost)
    }

    /// A request comes that is not charged yet: a ramp that is cold starts with it, if it costs anything.
    #[inline]
    pub(crate) fn meet(&self, seat: Seat, now: Nanos, cost: u64) {
        if cost > 0 {
            self.ledger(seat.quota).meet(&self.spec, now);
        }
    }

    /// What a charge would do; `None` where it is not known, or nothing. An error where it does not fit.
    #[inline]
    pub(crate) fn foresee(&self, seat: Seat, now: Nanos, cost: u64) -> Result<Option<Made>, ()> {
        if cost == 0 {
            return Ok(None);
        }
        self.meet(seat, now, cost);
        self.ledger(seat.quota).foresee(seat.hash, now, cost)
    }

    /// Makes a charge that was foreseen, unless the word has changed since.
    #[inline]
    pub(crate) fn make(&self, quota: usize, charge: &Made) -> bool {
        self.ledger(quota).make(charge)
    }

    /// Charges a cost that is not zero.
    #[inline]
    pub(crate) fn charge<K: Kept>(&self, seat: Seat, now: Nanos, cost: u64) -> Result<K, Denied> {
        self.ledger(seat.quota).charge(&self.spec, seat.hash, now, cost)
    }

    /// Whether it is known that nothing fits now.
    #[inline(always)]
    pub(crate) fn refuses(&self, seat: Seat, now: Nanos) -> bool {
        self.ledger(seat.quota).refuses(now)
    }

    /// Charges a cost that is not zero; says only whether.
    #[inline(always)]
    pub(crate) fn admits(&self, seat: Seat, now: Nanos, cost: u64) -> bool {
        self.ledger(seat.quota).admits(&self.spec, seat.hash, now, cost)
    }

    /// Sets permits aside, or says why not.
    pub(crate) fn hold(&self, seat: Seat, now: Nanos, cost: u64) -> Result<Hold, Decision> {
        self.meet(seat, now, cost);
        self.ledger(seat.quota).hold(seat.hash, now, cost)?;
        Ok(Hold { seat, cost })
    }

    /// Makes a hold a charge.
    pub(crate) fn commit(&self, hold: &Hold, now: Nanos) {
        let Hold { seat, cost } = *hold;
        if cost > 0 {
            self.meet(seat, now, cost);
            self.ledger(seat.quota).commit(seat.hash, now, cost);
        }
    }

    /// Lets a hold go: as if it had never been.
    pub(crate) fn release(&self, hold: &Hold) {
        self.ledger(hold.seat.quota).release(hold.seat.hash, hold.cost);
    }

    /// Takes back what no other charge has built on; says whether it was.
    pub(crate) fn undo(&self, quota: usize, made: &Made, now: Nanos) -> bool {
        self.ledger(quota).undo(made, now)
    }

    /// How often a key was reset. After a reset the same charge may write the same word again, so that
    /// an undo which comes later must not go by the word alone.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    /// Forgets a key; says whether anything was known of it.
    pub(crate) fn reset(&self, seat: Seat, now: Nanos) -> bool {
        // Before the word is written: see `resets`.
        self.resets.fetch_add(1, Ordering::AcqRel);
        self.ledger(seat.quota).reset(seat.hash, now)
    }

    /// The algorithm, with the quota in force.
    pub(crate) fn algorithm(&self) -> Algorithm {
        lock(&self.spec).algorithm
    }

    /// The algorithm, and one of its quotas in force.
    pub(crate) fn quota(&self, quota: usize) -> (Algorithm, Quota) {
        lock(&self.spec).quota(quota)
    }

    /// How often a quota was changed: what was read of a quota before holds as long as this stays.
    pub(crate) fn changes(&self) -> u64 {
        // Acquire pairs with the release in `replace`: who sees the number finds the quota it counts.
        self.changes.load(Ordering::Acquire)
    }

    /// Puts another quota of a tier in force, or of those in none for 0; what is spent stays spent.
    pub(crate) fn set_limit(
        &self,
        tier: usize,
        quota: Quota,
        now: Nanos,
    ) -> Result<(), ConfigError> {
        let mut spec = lock(&self.spec);
        let renewed = spec.renewed(tier, quota, now, None)?;
        self.replace(&mut spec, renewed, now)
    }

    /// Puts the quotas of `renewed` in force.
    pub(crate) fn renew(&self, renewed: &LimiterSpec) -> Result<(), ConfigError> {
        self.replace(&mut lock(&self.spec), renewed.clone(), renewed.now)
    }

    fn replace(
        &self,
        spec: &mut LimiterSpec,
        renewed: LimiterSpec,
        now: Nanos,
    ) -> Result<(), ConfigError> {
        let kind = |spec: &LimiterSpec| std::mem::discriminant(&spec.algorithm);
        if renewed.quotas.len() != spec.quotas.len() || kind(&renewed) != kind(spec) {
            let value = format!("{:?}", renewed.algorithm);
            return Err(ConfigError::new(
                "algorithm",
                value,
                "must stay what it was; build another limiter",
            ));
        }
        if renewed.algorithm.warm_up() != spec.algorithm.warm_up() {
            let value = format!("{:?}", renewed.algorithm.warm_up());
            return Err(ConfigError::new(
                "warm_up",
                value,
                "must stay what it was; build another limiter",
            ));
        }
        // All compile, or nothing changes.
        let quotas = spec.quotas.iter().zip(&renewed.quotas);
        for ((ledger, compiled), (old, new)) in self.ledgers().zip(compile(&renewed)?).zip(quotas) {
            // What stays as it is is left alone: to convert words may round.
            if spec.algorithm.with_quota(*old) == renewed.algorithm.with_quota(*new) {
                continue;
            }
            match (&ledger.state, compiled) {
                (State::Words(words), Compiled::Word(machine)) => words.renew(machine, now),
                (State::Words(words), Compiled::Warming(machine)) => {
                    words.renew(machine.words(), now);
                }
                (State::Records(records), Compiled::Sliding(machine)) => {
                    records.renew(machine, now);
                }
                // The algorithm is what it was, and so is what it counts in.
                _ => {}
            }
        }
        *spec = renewed;
        // Release pairs with the acquire in `changes`. Writers have the lock.
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How many keys hold state; a limiter without keys has none.
    pub(crate) fn tracked(&self, now: Nanos) -> u64 {
        self.ledgers().map(|ledger| ledger.tracked(now)).sum()
    }

    /// Whether keys of this quota have had to share overflow buckets.
    #[inline]
    pub(crate) fn has_overflowed(&self, quota: usize) -> bool {
        self.ledger(quota).has_overflowed()
    }
}

/// The most keys a limiter may keep.
const MAX_KEYS: u64 = 1 << 32;

fn compile(spec: &LimiterSpec) -> Result<Vec<Compiled>, ConfigError> {
    let epoch = Epoch { built: spec.now, utc_at_zero: spec.utc_at_zero };
    spec.quotas
        .iter()
        .map(|quota| Compiled::of(&spec.algorithm.with_quota(*quota), epoch))
        .collect()
}
