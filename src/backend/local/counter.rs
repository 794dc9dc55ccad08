//! [`Counter`]: one limiter in this process, with and without keys.

use std::sync::{
    OnceLock,
    atomic::{self, Ordering},
};

use super::{
    Denied, Kept, Made,
    cell::Cell,
    generations::Generations,
    holds::{self, Holds},
    ledger::{Ledger, Seat, State},
    overflow::Overflow,
    table::Table,
};
use crate::{
    Algorithm, ConfigError, Decision, Quota,
    algorithm::{Epoch, Machine, Step},
    backend::LimiterSpec,
    clock::Nanos,
    sync::{AtomicU64, Mutex, lock},
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
}

/// Permits held for one request.
#[derive(Debug)]
pub(crate) struct Hold {
    seat: Seat,
    place: u64,
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
        let machines = machines(spec)?;
        let no_memory = || {
            let reason = "there is no memory for so many: 32 bytes a key";
            ConfigError::new("max_keys", spec.max_keys, reason)
        };
        let ledgers = machines.into_iter().map(|machine| {
            let state = if spec.keyed {
                let table = Table::new(spec.max_keys).ok_or_else(no_memory)?;
                State::Many { table, overflow: Overflow::new() }
            } else {
                State::One(Cell::new())
            };
            let expires = AtomicU64::new(machine.expires().get());
            let quotas = Generations::new(machine);
            Ok(Ledger { quotas, expires, holds: OnceLock::new(), state })
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
        })
    }

    /// From now on permits may be held. A charge that another thread is making at this very moment does
    /// not see holds yet; layers call this when they are built, before they serve.
    pub(crate) fn may_hold(&self) {
        for ledger in self.ledgers() {
            ledger.holds.get_or_init(Holds::default);
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

    /// What is known of a key: its word, how to read it, and what others hold of it.
    pub(crate) fn read(&self, seat: Seat, now: Nanos) -> (u64, Machine, u64) {
        let ledger = self.ledger(seat.quota);
        let (state, machine) = ledger.read(seat.hash, now);
        (state, machine, ledger.held(seat, now))
    }

    /// What a charge would get; changes nothing.
    #[inline]
    pub(crate) fn peek(&self, seat: Seat, now: Nanos, cost: u64) -> Decision {
        let ledger = self.ledger(seat.quota);
        let (state, machine) = ledger.read(seat.hash, now);
        machine.decide(state, now, cost, ledger.held(seat, now))
    }

    /// What a charge has left that wrote `word`: the key need not be looked for again.
    #[inline]
    pub(crate) fn after(&self, seat: Seat, word: u64, now: Nanos) -> Decision {
        let ledger = self.ledger(seat.quota);
        let present = ledger.quotas.present();
        let state = present.state(word, now);
        present.machine.decide(state, now, 0, ledger.held(seat, now))
    }

    /// Whether a charge would be made; changes nothing.
    #[inline]
    pub(crate) fn fits(&self, seat: Seat, now: Nanos, cost: u64) -> bool {
        let ledger = self.ledger(seat.quota);
        let (state, machine) = ledger.read(seat.hash, now);
        cost == 0 || machine.charge(state, now, cost, ledger.held(seat, now)) != Step::Denied
    }

    /// What a charge was told that did not fit.
    #[inline]
    pub(crate) fn explain(&self, seat: Seat, denied: Denied, now: Nanos, cost: u64) -> Decision {
        let ledger = self.ledger(seat.quota);
        ledger.quotas.explain(denied, now, cost, ledger.held(seat, now))
    }

    /// What a charge would do; `None` where it is not known, or nothing. An error where it does not fit.
    #[inline]
    pub(crate) fn foresee(&self, seat: Seat, now: Nanos, cost: u64) -> Result<Option<Made>, ()> {
        if cost == 0 {
            return Ok(None);
        }
        let ledger = self.ledger(seat.quota);
        self.keep_time(ledger, now);
        // Held permits are guarded by a lock, which is not kept until all rules have been asked.
        if ledger.holds.get().is_none() {
            let foreseen = match &ledger.state {
                State::One(cell) => Some(cell.foresee(&ledger.quotas, now, cost)),
                State::Many { table, .. } => table.foresee(&ledger.quotas, seat.hash, now, cost),
            };
            if let Some(foreseen) = foreseen {
                return foreseen.map(Some);
            }
        }
        if self.fits(seat, now, cost) { Ok(None) } else { Err(()) }
    }

    /// Makes a charge that was foreseen, unless the word has changed since.
    #[inline]
    pub(crate) fn make(&self, quota: usize, charge: &Made) -> bool {
        match &self.ledger(quota).state {
            State::One(cell) => cell.make(charge),
            State::Many { table, .. } => table.make(charge),
        }
    }

    /// Charges a cost that is not zero.
    #[inline]
    pub(crate) fn charge<K: Kept>(&self, seat: Seat, now: Nanos, cost: u64) -> Result<K, Denied> {
        let ledger = self.ledger(seat.quota);
        self.keep_time(ledger, now);
        match ledger.holds.get() {
            None => ledger.charge(seat.hash, now, cost, 0),
            Some(holds) => ledger.charge_held(holds, seat, now, cost),
        }
    }

    /// Sets permits aside, or says why not.
    pub(crate) fn hold(&self, seat: Seat, now: Nanos, cost: u64) -> Result<Hold, Decision> {
        let ledger = self.ledger(seat.quota);
        self.keep_time(ledger, now);
        let place = ledger.place(seat, now);
        let mut shard = ledger.holds.get_or_init(Holds::default).shard(place);
        let held = shard.get(&place).copied().unwrap_or(0);
        let (state, machine) = ledger.read(seat.hash, now);
        let decision = machine.decide(state, now, cost, held);
        if !decision.is_allowed() {
            return Err(decision);
        }
        if cost > 0 {
            shard.insert(place, held + cost);
        }
        Ok(Hold { seat, place, cost })
    }

    /// Makes a hold a charge.
    pub(crate) fn commit(&self, hold: &Hold, now: Nanos) {
        if hold.cost == 0 {
            return;
        }
        let ledger = self.ledger(hold.seat.quota);
        self.keep_time(ledger, now);
        let mut shard = ledger.holds.get_or_init(Holds::default).shard(hold.place);
        match &ledger.state {
            State::One(cell) => cell.force(&ledger.quotas, now, hold.cost),
            State::Many { table, overflow } => match overflow.bucket(hold.place) {
                None if table.force(
                    &ledger.quotas,
                    hold.seat.hash,
                    now,
                    hold.cost,
                    Some(overflow),
                ) => {}
                // There is no room, or what there was is taken by now.
                _ => overflow.shared(hold.seat.hash).force(&ledger.quotas, now, hold.cost),
            },
        }
        holds::give_back(&mut shard, hold.place, hold.cost);
    }

    /// Lets a hold go: as if it had never been.
    pub(crate) fn release(&self, hold: &Hold) {
        if let Some(holds) = self.ledger(hold.seat.quota).holds.get() {
            holds::give_back(&mut holds.shard(hold.place), hold.place, hold.cost);
        }
    }

    /// Restore or burn; says which it was.
    pub(crate) fn undo(&self, quota: usize, made: &Made, now: Nanos) -> bool {
        let ledger = self.ledger(quota);
        match &ledger.state {
            State::One(cell) => cell.undo(&ledger.quotas, made, now),
            State::Many { table, overflow } => match overflow.bucket(made.place) {
                Some(bucket) => bucket.undo(&ledger.quotas, made, now),
                None => table.undo(&ledger.quotas, made, now),
            },
        }
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
        let ledger = self.ledger(seat.quota);
        match &ledger.state {
            State::One(cell) => cell.reset(&ledger.quotas, now),
            State::Many { table, .. } => table.reset(&ledger.quotas, seat.hash, now),
        }
    }

    /// The algorithm, with the quota in force.
    pub(crate) fn algorithm(&self) -> Algorithm {
        lock(&self.spec).algorithm
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
            return Err(ConfigError::new("algorithm", value, "must stay what it was"));
        }
        // All compile, or nothing changes.
        let machines = machines(&renewed)?;
        let quotas = spec.quotas.iter().zip(&renewed.quotas);
        for ((ledger, machine), (old, new)) in self.ledgers().zip(machines).zip(quotas) {
            // What stays as it is is left alone: to convert words may round.
            if spec.algorithm.with_quota(*old) != renewed.algorithm.with_quota(*new) {
                let old = ledger.quotas.present().machine;
                ledger.replace(machine.rebased(now).succeeding(&old, now), now);
            }
        }
        *spec = renewed;
        Ok(())
    }

    /// Moves the base that time is counted from, where `now` is far from it.
    #[inline]
    fn keep_time(&self, ledger: &Ledger, now: Nanos) {
        // Relaxed: who reads an old value moves the base once more or finds it moved.
        if now.get() >= ledger.expires.load(Ordering::Relaxed) {
            self.rebase(ledger, now);
        }
    }

    #[cold]
    fn rebase(&self, ledger: &Ledger, now: Nanos) {
        let _serial = lock(&self.spec);
        if now.get() >= ledger.expires.load(Ordering::Relaxed) {
            ledger.replace(ledger.quotas.present().machine.rebased(now), now);
        }
    }

    /// How many keys hold state; a limiter without keys has none.
    pub(crate) fn tracked(&self, now: Nanos) -> u64 {
        let of = |ledger: &Ledger| match &ledger.state {
            State::One(_) => 0,
            State::Many { table, .. } => table.tracked(&ledger.quotas, now),
        };
        self.ledgers().map(of).sum()
    }

    /// Whether keys of this quota have had to share overflow buckets.
    #[inline]
    pub(crate) fn has_overflowed(&self, quota: usize) -> bool {
        match &self.ledger(quota).state {
            State::One(_) => false,
            State::Many { overflow, .. } => overflow.is_used(),
        }
    }
}

/// The most keys a limiter may keep.
const MAX_KEYS: u64 = 1 << 32;

fn machines(spec: &LimiterSpec) -> Result<Vec<Machine>, ConfigError> {
    let epoch = Epoch { built: spec.now, utc_at_zero: spec.utc_at_zero };
    spec.quotas
        .iter()
        .map(|quota| Machine::compile(&spec.algorithm.with_quota(*quota), epoch))
        .collect()
}
