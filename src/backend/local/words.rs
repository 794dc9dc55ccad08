//! [`Words`]: one quota counted in words: a cell, or a table with its overflow.

use std::sync::Arc;

use super::{
    Denied, Kept, Made, Seat,
    cell::Cell,
    generations::Generations,
    overflow::Overflow,
    table::{Charged, Table},
    warmth::Warmth,
};
use crate::{
    ConfigError, Decision,
    algorithm::{Machine, Step},
    clock::Nanos,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

#[derive(Debug)]
pub(super) struct Words {
    quotas: Generations,
    /// When the present quota's time no longer fits into words; zero where a ramp is to be told of every request.
    expires: AtomicU64,
    warmth: Option<Arc<Warmth>>,
    cells: Cells,
}

#[derive(Debug)]
enum Cells {
    One(Cell),
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
            None => Cells::One(Cell::new()),
            Some(max_keys) => {
                let table = Table::new(max_keys).ok_or_else(|| {
                    let reason = "there is no memory for so many: 32 bytes a key";
                    ConfigError::new("max_keys", max_keys, reason)
                })?;
                Cells::Many { table, overflow: Overflow::new() }
            }
        };
        let words = Self {
            quotas: Generations::new(machine, warmth.clone()),
            expires: AtomicU64::new(0),
            warmth,
            cells,
        };
        words.expire_with(machine);
        Ok(words)
    }

    /// The state of a key, and how to read it.
    #[inline]
    pub(super) fn read(&self, hash: u64, now: Nanos) -> (u64, Machine) {
        match &self.cells {
            Cells::One(cell) => {
                let (state, present) = cell.read(&self.quotas, now);
                (state, present.machine)
            }
            Cells::Many { table, overflow } => {
                let (state, machine) = table.state(&self.quotas, hash, now);
                if state == 0 {
                    return (overflow.state(&self.quotas, hash, now), machine);
                }
                (state, machine)
            }
        }
    }

    /// What a charge would get.
    #[inline]
    pub(super) fn decide(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        let (state, machine) = self.read(hash, now);
        machine.decide(state, now, cost, held)
    }

    /// Whether a charge would be made; its cost is not zero.
    #[inline]
    pub(super) fn fits(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> bool {
        let (state, machine) = self.read(hash, now);
        machine.charge(state, now, cost, held) != Step::Denied
    }

    /// What a charge has left that wrote `word`: the key need not be looked for again.
    #[inline]
    pub(super) fn after(&self, word: u64, now: Nanos, held: u64) -> Decision {
        let present = self.quotas.present(now);
        present.machine.decide(present.state(word, now), now, 0, held)
    }

    pub(super) fn explain(&self, denied: Denied, now: Nanos, cost: u64, held: u64) -> Decision {
        self.quotas.explain(denied, now, cost, held)
    }

    /// What a charge would do; `None` where it is not known. An error where it does not fit.
    #[inline]
    pub(super) fn foresee(&self, hash: u64, now: Nanos, cost: u64) -> Option<Result<Made, ()>> {
        match &self.cells {
            Cells::One(cell) => Some(cell.foresee(&self.quotas, now, cost)),
            Cells::Many { table, .. } => table.foresee(&self.quotas, hash, now, cost),
        }
    }

    /// Makes a charge that was foreseen, unless the word has changed since.
    #[inline]
    pub(super) fn make(&self, charge: &Made) -> bool {
        match &self.cells {
            Cells::One(cell) => cell.make(charge),
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
    ) -> Result<K, Denied> {
        match &self.cells {
            Cells::One(cell) => cell.charge(0, &self.quotas, now, cost, held),
            Cells::Many { table, overflow } => {
                match table.charge(&self.quotas, hash, now, cost, held, Some(overflow)) {
                    Charged::Made(made) => Ok(made),
                    Charged::Denied(denied) => Err(denied),
                    Charged::NoRoom => overflow.charge(&self.quotas, hash, now, cost, held),
                }
            }
        }
    }

    /// Charges what was held at `place`.
    pub(super) fn force(&self, place: u64, hash: u64, now: Nanos, cost: u64) {
        let quotas = &self.quotas;
        match &self.cells {
            Cells::One(cell) => cell.force(quotas, now, cost),
            Cells::Many { table, overflow } => match overflow.bucket(place) {
                None if table.force(quotas, hash, now, cost, Some(overflow)) => {}
                // There is no room, or what there was is taken by now.
                _ => overflow.shared(hash).force(quotas, now, cost),
            },
        }
    }

    /// What holds of a key are counted by: the key, or the overflow bucket it shares.
    pub(super) fn place(&self, hash: u64, now: Nanos) -> u64 {
        match &self.cells {
            Cells::One(_) => 0,
            Cells::Many { table, .. } if table.has_room(&self.quotas, hash, now) => {
                Seat::place_of(hash)
            }
            Cells::Many { overflow, .. } => overflow.place(hash),
        }
    }

    /// Restore or burn; says which it was.
    pub(super) fn undo(&self, made: &Made, now: Nanos) -> bool {
        match &self.cells {
            Cells::One(cell) => cell.undo(&self.quotas, made, now),
            Cells::Many { table, overflow } => match overflow.bucket(made.place) {
                Some(bucket) => bucket.undo(&self.quotas, made, now),
                None => table.undo(&self.quotas, made, now),
            },
        }
    }

    /// Forgets a key; says whether anything was known of it.
    pub(super) fn reset(&self, hash: u64, now: Nanos) -> bool {
        match &self.cells {
            Cells::One(cell) => cell.reset(&self.quotas, now),
            Cells::Many { table, .. } => table.reset(&self.quotas, hash, now),
        }
    }

    /// How many keys hold state.
    pub(super) fn tracked(&self, now: Nanos) -> u64 {
        match &self.cells {
            Cells::One(_) => 0,
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
        let old = self.quotas.present(now).machine;
        // On the ramp from here on: the base that time is counted from is the ramp's time.
        let machine = old.warming().map_or(machine, |warming| machine.on(warming));
        self.replace(machine.rebased(now).succeeding(&old, now), now);
    }

    fn replace(&self, machine: Machine, now: Nanos) {
        self.quotas.replace(machine);
        // Before the walk: from here on nobody has to wait for its end to move the base.
        self.expire_with(machine);
        match &self.cells {
            Cells::One(cell) => cell.convert(&self.quotas, now),
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
        let is_far = || now >= self.quotas.present(now).machine.expires();
        if is_far() {
            let _serial = lock(serial);
            if is_far() {
                self.replace(self.quotas.present(now).machine.rebased(now), now);
            }
        }
    }

    /// A charge was made by one who had to [`meet`](Self::meet).
    pub(super) fn admit(&self, now: Nanos) {
        if let Some(warmth) = &self.warmth {
            warmth.admit(now);
        }
    }
}
