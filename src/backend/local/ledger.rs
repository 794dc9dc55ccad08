//! [`Ledger`]: the state of one of a limiter's quotas: a cell, or a table with its overflow.

use std::sync::OnceLock;

use super::{
    Denied, Kept,
    cell::Cell,
    generations::Generations,
    holds::Holds,
    overflow::Overflow,
    table::{Charged, Table},
};
use crate::{
    algorithm::Machine,
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};

/// Whose permits: which quota of the limiter, and the key's seeded hash (any value without keys).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) quota: usize,
    pub(crate) hash: u64,
}

/// The state of one of its quotas.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) quotas: Generations,
    /// When the present quota's time no longer fits into words.
    pub(super) expires: AtomicU64,
    /// Set once the limiter may have to hold permits while a remote backend is asked.
    pub(super) holds: OnceLock<Holds>,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    One(Cell),
    Many { table: Table, overflow: Overflow },
}

impl Ledger {
    /// Puts `machine` in force and converts all words; callers are serialised.
    pub(super) fn replace(&self, machine: Machine, now: Nanos) {
        self.quotas.replace(machine);
        // Before the walk: from here on nobody has to wait for its end to move the base.
        self.expires.store(machine.expires().get(), Ordering::Relaxed);
        match &self.state {
            State::One(cell) => cell.convert(&self.quotas, now),
            State::Many { table, overflow } => {
                table.convert(&self.quotas, now);
                overflow.convert(&self.quotas, now);
            }
        }
    }

    #[inline]
    pub(super) fn read(&self, hash: u64, now: Nanos) -> (u64, Machine) {
        match &self.state {
            State::One(cell) => {
                let (state, present) = cell.read(&self.quotas, now);
                (state, present.machine)
            }
            State::Many { table, overflow } => {
                let (state, machine) = table.state(&self.quotas, hash, now);
                if state == 0 {
                    return (overflow.state(&self.quotas, hash, now), machine);
                }
                (state, machine)
            }
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
        match &self.state {
            State::One(cell) => cell.charge(0, &self.quotas, now, cost, held),
            State::Many { table, overflow } => {
                match table.charge(&self.quotas, hash, now, cost, held, Some(overflow)) {
                    Charged::Made(made) => Ok(made),
                    Charged::Denied(denied) => Err(denied),
                    Charged::NoRoom => overflow.charge(&self.quotas, hash, now, cost, held),
                }
            }
        }
    }

    #[inline(never)]
    pub(super) fn charge_held<K: Kept>(
        &self,
        holds: &Holds,
        seat: Seat,
        now: Nanos,
        cost: u64,
    ) -> Result<K, Denied> {
        let place = self.place(seat, now);
        let shard = holds.shard(place);
        let held = shard.get(&place).copied().unwrap_or(0);
        self.charge(seat.hash, now, cost, held)
    }

    /// Permits that others hold of the same key, or of the overflow bucket it shares.
    #[inline]
    pub(super) fn held(&self, seat: Seat, now: Nanos) -> u64 {
        self.holds.get().map_or(0, |holds| self.held_in(holds, seat, now))
    }

    #[inline(never)]
    pub(super) fn held_in(&self, holds: &Holds, seat: Seat, now: Nanos) -> u64 {
        let place = self.place(seat, now);
        holds.shard(place).get(&place).copied().unwrap_or(0)
    }

    /// What holds of this seat are counted by: the key, or the overflow bucket it shares.
    pub(super) fn place(&self, seat: Seat, now: Nanos) -> u64 {
        match &self.state {
            State::One(_) => 0,
            State::Many { table, .. } if table.has_room(&self.quotas, seat.hash, now) => {
                // Below the places of overflow buckets.
                seat.hash >> 2
            }
            State::Many { overflow, .. } => overflow.place(seat.hash),
        }
    }
}
