//! [`Words`]: one quota counted in words: a cell, or a table with its overflow.

use std::sync::{Arc, atomic::AtomicBool};

use super::{
    Denied, Kept, Made, Seat,
    cell::{Cell, Refusal},
    generations::{Generations, Present},
    holds::Places,
    overflow::Overflow,
    table::{Charged, Table},
    warmth::Warmth,
};
use crate::{
    ConfigError, Decision,
    algorithm::{Compiled, Machine, Step},
    clock::Nanos,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

#[derive(Debug)]
pub(super) struct Words {
    quotas: Generations,
    /// When the present quota's time no longer fits into words; zero where a ramp is to be told of every request.
    expires: AtomicU64,
    /// Before when a charge may go the way that is short.
    plain_until: AtomicU64,
    never_plain: AtomicBool,
    warmth: Option<Arc<Warmth>>,
    cells: Cells,
}

#[derive(Debug)]
enum Cells {
    One(Cell, Refusal),
    Many { table: Table, overflow: Overflow },
}

impl Words {
    /// For the keys of so many, or for all together.
    pub(super) fn new(
        machine: Machine,
        warmth: Option<Arc<Warmth>>,
        max_keys: Option<u64>,
    ) -> Result<Self, ConfigError> {
        let cells = match max_keys {
            None => Cells::One(Cell::new(), Refusal::new()),
            Some(max_keys) => {
                let table = Table::new(max_keys).ok_or_else(|| {
                    let reason = "there is no memory for so many: 32 bytes a key; set fewer";
                    ConfigError::new("max_keys", max_keys, reason)
                })?;
                Cells::Many { table, overflow: Overflow::new() }
            }
        };
        let words = Self {
            quotas: Generations::new(machine, warmth.clone()),
            expires: AtomicU64::new(0),
            plain_until: AtomicU64::new(0),
            never_plain: AtomicBool::new(false),
            warmth,
            cells,
        };
        words.expire_with(machine);
        Ok(words)
    }

    /// The state of a key, and how to read it.
    #[inline]
    pub(super) fn read(&self, hash: u64, now: Nanos) -> (u64, Present<'_>) {
        match &self.cells {
            Cells::One(cell, _) => cell.read(&self.quotas, now),
            Cells::Many { table, overflow } => {
                let (state, present) = table.state(&self.quotas, hash, now);
                if state == 0 {
                    return (overflow.state(&self.quotas, hash, now), present);
                }
                (state, present)
            }
        }
    }

    /// What a charge would get.
    #[inline]
    pub(super) fn decide(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        let (state, present) = self.read(hash, now);
        present.decide(state, now, cost, held)
    }

    /// Whether a charge would be made; its cost is not zero.
    #[inline]
    pub(super) fn fits(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> bool {
        let (state, present) = self.read(hash, now);
        present.charge(state, now, cost, held) != Step::Denied
    }

    /// What a charge has left that wrote `word`: the key need not be looked for again.
    #[inline]
    pub(super) fn after(&self, word: u64, now: Nanos, held: u64) -> Decision {
        let present = self.quotas.present();
        present.decide(present.state(word, now), now, 0, held)
    }

    pub(super) fn explain(&self, denied: Denied, now: Nanos, cost: u64, held: u64) -> Decision {
        self.quotas.explain(denied, now, cost, held)
    }

    /// What a charge would do; `None` where it is not known. An error where it does not fit.
    #[inline]
    pub(super) fn foresee(&self, hash: u64, now: Nanos, cost: u64) -> Option<Result<Made, ()>> {
        let plain = self.is_plain(now);
        match &self.cells {
            Cells::One(cell, _) => Some(cell.foresee(&self.quotas, now, cost, plain)),
            Cells::Many { table, .. } => table.foresee(&self.quotas, hash, now, cost, plain),
        }
    }

    /// Makes a charge that was foreseen, unless the word has changed since.
    #[inline]
    pub(super) fn make(&self, charge: &Made) -> bool {
        match &self.cells {
            Cells::One(cell, _) => cell.make(charge),
            Cells::Many { table, .. } => table.make(charge),
        }
    }

    #[inline(always)]
    pub(super) fn charge<K: Kept>(
        &self,
        hash: u64,
        now: Nanos,
        cost: u64,
        held: u64,
        plain: bool,
    ) -> Result<K, Denied> {
        let asked = (now, cost, held);
        match &self.cells {
            Cells::One(cell, _) => cell.charge(0, &self.quotas, asked, plain),
            Cells::Many { table, overflow } => {
                match table.charge(&self.quotas, hash, asked, Some(overflow), plain) {
                    Charged::Made(made) => Ok(made),
                    Charged::Denied(denied) => Err(denied),
                    Charged::NoRoom => overflow.charge(&self.quotas, hash, now, cost, held),
                }
            }
        }
    }

    /// Whether it is known that nothing fits now.
    #[inline(always)]
    pub(super) fn refuses(&self, now: Nanos) -> bool {
        matches!(&self.cells, Cells::One(cell, refusal) if refusal.stands(cell, now))
    }

    /// Takes note of what one permit was denied that nobody held.
    #[cold]
    pub(super) fn note(&self, denied: Denied, now: Nanos) {
        let Cells::One(_, refusal) = &self.cells else { return };
        let epoch = self.quotas.epoch();
        if let Some(wait) = self.explain(denied, now, 1, 0).retry_after() {
            refusal.note(denied, now + wait, || self.quotas.epoch() == epoch);
        }
    }

    /// Charges what was held.
    pub(super) fn force(&self, hash: u64, now: Nanos, cost: u64) {
        let quotas = &self.quotas;
        match &self.cells {
            Cells::One(cell, _) => cell.force(quotas, now, cost),
            Cells::Many { table, overflow } => {
                if !table.force(quotas, hash, now, cost, Some(overflow)) {
                    // There is no room, or what there was is taken by now.
                    overflow.shared(hash).force(quotas, now, cost);
                }
            }
        }
    }

    /// The places that a key may be counted at.
    pub(super) fn places(&self, hash: u64) -> Places {
        match &self.cells {
            Cells::One(..) => Places::ONE,
            Cells::Many { overflow, .. } => {
                Places { own: Seat::place_of(hash), shared: overflow.place(hash) }
            }
        }
    }

    /// Whether it is counted at its own.
    pub(super) fn has_room(&self, hash: u64, now: Nanos) -> bool {
        match &self.cells {
            Cells::One(..) => true,
            Cells::Many { table, .. } => table.has_room(&self.quotas, hash, now),
        }
    }

    /// Restore or burn; says which it was.
    pub(super) fn undo(&self, made: &Made, now: Nanos) -> bool {
        if let Some(warmth) = &self.warmth {
            warmth.take_back(now);
        }
        match &self.cells {
            Cells::One(cell, _) => cell.undo(&self.quotas, made, now),
            Cells::Many { table, overflow } => match overflow.bucket(made.place) {
                Some(bucket) => bucket.undo(&self.quotas, made, now),
                None => table.undo(&self.quotas, made, now),
            },
        }
    }

    /// Forgets a key; says whether anything was known of it.
    pub(super) fn reset(&self, hash: u64, now: Nanos) -> bool {
        match &self.cells {
            Cells::One(cell, _) => cell.reset(&self.quotas, now),
            Cells::Many { table, .. } => table.reset(&self.quotas, hash, now),
        }
    }

    /// How many keys hold state.
    pub(super) fn tracked(&self, now: Nanos) -> u64 {
        match &self.cells {
            Cells::One(..) => 0,
            Cells::Many { table, .. } => table.tracked(&self.quotas, now),
        }
    }

    /// Whether keys have had to share overflow buckets.
    #[inline]
    pub(super) fn has_overflowed(&self) -> bool {
        matches!(&self.cells, Cells::Many { overflow, .. } if overflow.is_used())
    }

    /// Puts `machine` in force; what is spent stays spent. Callers are serialised.
    pub(super) fn renew(&self, machine: Machine, now: Nanos) {
        let machine = match self.quotas.present().compiled(now) {
            // On the ramp that there is: the base that time is counted from is the ramp's time.
            Compiled::Warming(old) => {
                machine.on(old.warming()).rebased(now).succeeding(&old, now).words()
            }
            Compiled::Word(old) => machine.rebased(now).succeeding(&old, now),
            Compiled::Sliding(_) => machine,
        };
        self.replace(machine, now);
    }

    fn replace(&self, machine: Machine, now: Nanos) {
        self.quotas.replace(machine);
        // Before the walk: from here on nobody has to wait for its end to move the base.
        self.expire_with(machine);
        match &self.cells {
            Cells::One(cell, refusal) => {
                refusal.forget();
                cell.convert(&self.quotas, now);
            }
            Cells::Many { table, overflow } => {
                table.convert(&self.quotas, now);
                overflow.convert(&self.quotas, now);
            }
        }
    }

    fn expire_with(&self, machine: Machine) {
        let is_told = self.warmth.as_ref().is_some_and(|warmth| warmth.goes_cold());
        let expires = if is_told { 0 } else { machine.expires().get() };
        self.expires.store(expires, Ordering::Relaxed);
        let plain = if self.warmth.is_some() { 0 } else { machine.plain_until().get() };
        // All in one order: if `never_plain` was read before it was set, its zero is written after this.
        self.plain_until.store(plain, Ordering::SeqCst);
        if self.never_plain.load(Ordering::SeqCst) {
            self.plain_until.store(0, Ordering::SeqCst);
        }
    }

    /// From here on permits may be held, so that no charge goes the way that is short. Who is on it at this moment
    /// comes before.
    pub(super) fn never_plain(&self) {
        self.never_plain.store(true, Ordering::SeqCst);
        self.plain_until.store(0, Ordering::SeqCst);
    }

    /// Whether a charge may go the way that is short. Who reads an old value goes by a quota that is no longer in
    /// force, which the word's tag tells.
    #[inline]
    pub(super) fn is_plain(&self, now: Nanos) -> bool {
        now.get() < self.plain_until.load(Ordering::Relaxed)
    }

    /// Whether [`meet`](Self::meet) has anything to do.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        // Relaxed: who reads an old value finds the base moved, or moves it once more.
        now.get() >= self.expires.load(Ordering::Relaxed)
    }

    /// A request comes: starts the ramp anew where it is cold, and moves the base that time is counted from where
    /// `now` is far from it. `serial` serialises changes of the quota.
    #[cold]
    pub(super) fn meet<T>(&self, now: Nanos, serial: &Mutex<T>) {
        if let Some(warmth) = &self.warmth {
            warmth.meet(now);
        }
        if self.rebased(now).is_some() {
            let _serial = lock(serial);
            if let Some(machine) = self.rebased(now) {
                self.replace(machine, now);
            }
        }
    }

    /// The quota in force with another base, where `now` is far from the one it has.
    fn rebased(&self, now: Nanos) -> Option<Machine> {
        match self.quotas.present().compiled(now) {
            Compiled::Word(machine) => (now >= machine.expires()).then(|| machine.rebased(now)),
            Compiled::Warming(machine) => machine.is_due(now).then(|| machine.rebased(now).words()),
            Compiled::Sliding(_) => None,
        }
    }

    /// A charge was made by one who had to [`meet`](Self::meet).
    pub(super) fn admit(&self, now: Nanos) {
        if let Some(warmth) = &self.warmth {
            warmth.admit(now);
        }
    }
}
