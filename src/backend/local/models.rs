//! The counting core as its loom models use it: one quota's words, with and without keys.
//!
//! Exists under `--cfg sluice_loom` only, and is no part of the crate's interface.

use super::{
    Counter, Hold, Made, Seat,
    cell::{Cell, Refusal},
    generations::Generations,
    records::Records,
    table::{Charged, Table},
};
use crate::{
    Algorithm,
    algorithm::{Compiled, Epoch},
    backend::LimiterSpec,
    clock::Nanos,
};

/// What a charge got.
#[derive(Clone, Copy, Debug)]
pub enum Got {
    /// It was made; this undoes it.
    Made(Undo),
    /// It was denied.
    Denied,
    /// There was no room for its key.
    NoRoom,
}

impl Got {
    /// Whether it was made.
    #[must_use]
    pub fn is_made(&self) -> bool {
        matches!(self, Self::Made(_))
    }
}

/// What undoes a charge.
#[derive(Clone, Copy, Debug)]
pub struct Undo(Made);

/// A table of keys under one quota. A key is its hash.
#[derive(Debug)]
pub struct Keys {
    quotas: Generations,
    table: Table,
}

/// What slides, of all together or of keys. A key is its hash.
#[derive(Debug)]
pub struct Sliding(Records);

/// One word under one quota.
#[derive(Debug)]
pub struct Word {
    quotas: Generations,
    cell: Cell,
    refusal: Refusal,
}

/// One limiter, whose permits may be held while another backend is asked.
#[derive(Debug)]
pub struct Holding(Counter);

/// Permits that are held.
#[derive(Debug)]
pub struct Held(Hold);

impl Holding {
    /// A limiter without keys.
    #[must_use]
    pub fn new(algorithm: impl Into<Algorithm>) -> Self {
        let Ok(counter) = Counter::new(&LimiterSpec::new("model", algorithm)) else {
            unreachable!("models have quotas that can be counted")
        };
        counter.may_hold();
        Self(counter)
    }

    /// Charges it; says whether.
    #[must_use]
    pub fn charge(&self, now: u64, cost: u64) -> bool {
        self.0.charge::<()>(SEAT, Nanos::new(now), cost).is_ok()
    }

    /// Sets permits aside.
    #[must_use]
    pub fn hold(&self, now: u64, cost: u64) -> Option<Held> {
        self.0.hold(SEAT, Nanos::new(now), cost).ok().map(Held)
    }

    /// Makes a hold a charge.
    pub fn commit(&self, held: &Held, now: u64) {
        self.0.commit(&held.0, Nanos::new(now));
    }

    /// Lets a hold go.
    pub fn release(&self, held: &Held) {
        self.0.release(&held.0);
    }

    /// What is left.
    #[must_use]
    pub fn remaining(&self, now: u64) -> u64 {
        self.0.peek(SEAT, Nanos::new(now), 0).remaining()
    }
}

/// Where there are no keys.
const SEAT: Seat = Seat { quota: 0, hash: 0 };

impl Keys {
    /// An empty table.
    #[must_use]
    pub fn new(algorithm: impl Into<Algorithm>, max_keys: u64) -> Self {
        let quotas = Generations::of(algorithm);
        let Some(table) = Table::new(max_keys) else { unreachable!("models keep few keys") };
        Self { quotas, table }
    }

    /// Charges a key.
    #[must_use]
    pub fn charge(&self, key: u64, now: u64, cost: u64) -> Got {
        match self.table.charge(&self.quotas, key, (Nanos::new(now), cost, 0), None, true) {
            Charged::Made(made) => Got::Made(Undo(made)),
            Charged::Denied(_) => Got::Denied,
            Charged::NoRoom => Got::NoRoom,
        }
    }

    /// Charges a key that holds permits.
    #[must_use]
    pub fn force(&self, key: u64, now: u64, cost: u64) -> bool {
        self.table.force(&self.quotas, key, Nanos::new(now), cost, None)
    }

    /// Undoes a charge; says whether the permits came back.
    #[must_use]
    pub fn undo(&self, undo: Undo, now: u64) -> bool {
        self.table.undo(&self.quotas, &undo.0, Nanos::new(now))
    }

    /// Forgets a key; says whether anything was known of it.
    #[must_use]
    pub fn reset(&self, key: u64, now: u64) -> bool {
        self.table.reset(&self.quotas, key, Nanos::new(now))
    }

    /// Puts another quota in force.
    pub fn replace(&self, algorithm: impl Into<Algorithm>, now: u64) {
        self.quotas.replace(Generations::machine_of(algorithm));
        self.table.convert(&self.quotas, Nanos::new(now));
    }

    /// What a key has left.
    #[must_use]
    pub fn remaining(&self, key: u64, now: u64) -> u64 {
        let (state, present) = self.table.state(&self.quotas, key, Nanos::new(now));
        present.decide(state, Nanos::new(now), 0, 0).remaining()
    }

    /// How many slots hold keys that are not idle.
    #[must_use]
    pub fn tracked(&self, now: u64) -> u64 {
        self.table.tracked(&self.quotas, Nanos::new(now))
    }
}

impl Word {
    /// A word that nobody has charged.
    #[must_use]
    pub fn new(algorithm: impl Into<Algorithm>) -> Self {
        Self { quotas: Generations::of(algorithm), cell: Cell::new(), refusal: Refusal::new() }
    }

    /// Charges it.
    #[must_use]
    pub fn charge(&self, now: u64, cost: u64) -> Got {
        match self.cell.charge(0, &self.quotas, (Nanos::new(now), cost, 0), true) {
            Ok(made) => Got::Made(Undo(made)),
            Err(_) => Got::Denied,
        }
    }

    /// Charges one permit, by what was denied last if that still stands; says only whether.
    #[must_use]
    pub fn admits(&self, now: u64) -> bool {
        let now = Nanos::new(now);
        if self.refusal.stands(&self.cell, now) {
            return false;
        }
        let charged = self.cell.charge::<()>(0, &self.quotas, (now, 1, 0), true);
        if let Err(denied) = charged
            && let Some(wait) = self.quotas.explain(denied, now, 1, 0).retry_after()
        {
            self.refusal.note(denied, now + wait, || true);
        }
        charged.is_ok()
    }

    /// Undoes a charge; says whether the permits came back.
    #[must_use]
    pub fn undo(&self, undo: Undo, now: u64) -> bool {
        self.cell.undo(&self.quotas, &undo.0, Nanos::new(now))
    }

    /// Forgets what was spent; says whether anything was.
    #[must_use]
    pub fn reset(&self, now: u64) -> bool {
        self.cell.reset(&self.quotas, Nanos::new(now))
    }

    /// Puts another quota in force.
    pub fn replace(&self, algorithm: impl Into<Algorithm>, now: u64) {
        self.quotas.replace(Generations::machine_of(algorithm));
        self.cell.convert(&self.quotas, Nanos::new(now));
    }

    /// What is left.
    #[must_use]
    pub fn remaining(&self, now: u64) -> u64 {
        let (state, present) = self.cell.read(&self.quotas, Nanos::new(now));
        present.decide(state, Nanos::new(now), 0, 0).remaining()
    }
}

impl Sliding {
    /// Of so many keys, or of all together.
    #[must_use]
    pub fn new(algorithm: impl Into<Algorithm>, max_keys: Option<u64>) -> Self {
        match Compiled::of(&algorithm.into(), Epoch::default()) {
            Ok(Compiled::Sliding(machine)) => Self(Records::new(machine, None, max_keys)),
            other => unreachable!("not a quota that slides: {other:?}"),
        }
    }

    /// Charges a key.
    #[must_use]
    pub fn charge(&self, key: u64, now: u64, cost: u64) -> Got {
        match self.0.charge(key, Nanos::new(now), cost, 0) {
            Ok(made) => Got::Made(Undo(made)),
            Err(_) => Got::Denied,
        }
    }

    /// Undoes a charge; says whether the permits came back.
    #[must_use]
    pub fn undo(&self, undo: Undo) -> bool {
        self.0.undo(&undo.0, Nanos::ZERO)
    }

    /// Forgets a key; says whether anything was known of it.
    #[must_use]
    pub fn reset(&self, key: u64, now: u64) -> bool {
        self.0.reset(key, Nanos::new(now))
    }

    /// What a key has left.
    #[must_use]
    pub fn remaining(&self, key: u64, now: u64) -> u64 {
        self.0.decide(key, Nanos::new(now), 0, 0).remaining()
    }

    /// How many keys hold state.
    #[must_use]
    pub fn tracked(&self, now: u64) -> u64 {
        self.0.tracked(Nanos::new(now))
    }
}
