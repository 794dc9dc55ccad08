//! [`Records`]: what slides, of all together or of many keys.
//!
//! A record is more than a word, so it is kept under a lock that is held for one check: one lock where all count
//! together, those of [`Many`] where keys do.

mod many;

use std::sync::Arc;

use self::many::Many;
use super::{Denied, Kept, Made, holds::Places, warmth::Warmth};
use crate::{
    Decision,
    algorithm::{Spent, sliding::Machine},
    clock::Nanos,
    sync::{Mutex, lock},
};

#[derive(Debug)]
pub(super) struct Records {
    warmth: Option<Arc<Warmth>>,
    kept: Keeping,
}

#[derive(Debug)]
enum Keeping {
    One(Mutex<(Machine, Spent)>),
    Many(Many),
}

impl Records {
    /// For the keys of so many, or for all together.
    pub(super) fn new(
        machine: Machine,
        warmth: Option<Arc<Warmth>>,
        max_keys: Option<u64>,
    ) -> Self {
        let kept = match max_keys {
            None => Keeping::One(Mutex::new((machine, Spent::default()))),
            Some(max_keys) => Keeping::Many(Many::new(machine, max_keys)),
        };
        Self { warmth, kept }
    }

    /// On the ramp as it is now.
    #[inline]
    fn present(&self, machine: &Machine, now: Nanos) -> Machine {
        match &self.warmth {
            None => *machine,
            Some(warmth) => machine.on(warmth.warming(now)),
        }
    }

    /// Asks what is known of a key.
    #[inline]
    pub(super) fn ask<T>(
        &self,
        hash: u64,
        now: Nanos,
        ask: impl FnOnce(&Machine, &Spent) -> T,
    ) -> T {
        match &self.kept {
            Keeping::One(one) => {
                let one = lock(one);
                ask(&self.present(&one.0, now), &one.1)
            }
            Keeping::Many(many) => {
                many.ask(hash, |machine, spent| ask(&self.present(machine, now), spent))
            }
        }
    }

    /// Changes what is known of a key, unless it would not: its place, and all that was admitted then.
    #[inline]
    fn change(
        &self,
        hash: u64,
        now: Nanos,
        change: impl Fn(&Machine, &mut Spent) -> Option<u64>,
    ) -> Option<(u64, u64)> {
        match &self.kept {
            Keeping::One(one) => {
                let (machine, spent) = &mut *lock(one);
                change(&self.present(machine, now), spent).map(|new| (0, new))
            }
            Keeping::Many(many) => {
                many.change(hash, now, |machine, spent| change(&self.present(machine, now), spent))
            }
        }
    }

    /// What a charge would get.
    pub(super) fn decide(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        self.ask(hash, now, |machine, spent| spent.decide(machine, now, cost, held))
    }

    /// What was told to a charge that did not fit; a denial, even if it would fit just now.
    pub(super) fn explain(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        let mut decision = self.decide(hash, now, cost, held);
        if decision.is_allowed() {
            decision.deny(Nanos::new(1));
        }
        decision
    }

    /// Charges a cost that is not zero.
    #[inline]
    pub(super) fn charge<K: Kept>(
        &self,
        hash: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Result<K, Denied> {
        self.meet(now);
        let charge = |machine: &Machine, spent: &mut Spent| spent.charge(machine, now, cost, held);
        let (place, new) = self.change(hash, now, charge).ok_or(Denied(0))?;
        self.admit(now);
        Ok(K::of(Made { place, old: new - cost, new }))
    }

    /// Charges what was held.
    pub(super) fn force(&self, hash: u64, now: Nanos, cost: u64) {
        self.change(hash, now, |machine, spent| Some(spent.force(machine, now, cost)));
        self.admit(now);
    }

    /// A request comes: starts the ramp anew where it is cold.
    #[inline]
    pub(super) fn meet(&self, now: Nanos) {
        if let Some(warmth) = &self.warmth {
            warmth.meet(now);
        }
    }

    #[inline]
    fn admit(&self, now: Nanos) {
        if let Some(warmth) = &self.warmth {
            warmth.admit(now);
        }
    }

    /// The places that a key may be counted at.
    pub(super) fn places(&self, hash: u64) -> Places {
        match &self.kept {
            Keeping::One(_) => Places::ONE,
            Keeping::Many(_) => Many::places(hash),
        }
    }

    /// Whether it is counted at its own.
    pub(super) fn has_room(&self, hash: u64, now: Nanos) -> bool {
        match &self.kept {
            Keeping::One(_) => true,
            Keeping::Many(many) => many.has_room_for(hash, now),
        }
    }

    /// Takes a charge back, if it is the last and still counts; says whether it was.
    pub(super) fn undo(&self, made: &Made, now: Nanos) -> bool {
        if let Some(warmth) = &self.warmth {
            warmth.take_back(now);
        }
        match &self.kept {
            Keeping::One(one) => lock(one).1.undo(made.old, made.new),
            Keeping::Many(many) => many.undo(made),
        }
    }

    /// Forgets a key; says whether anything was known of it.
    pub(super) fn reset(&self, hash: u64, now: Nanos) -> bool {
        match &self.kept {
            Keeping::One(one) => {
                let (machine, spent) = &mut *lock(one);
                spent.reset(machine, now)
            }
            Keeping::Many(many) => many.reset(hash, now),
        }
    }

    /// Puts `machine` in force; what still counts does so for as long as it says.
    pub(super) fn renew(&self, machine: Machine, now: Nanos) {
        match &self.kept {
            Keeping::One(one) => {
                let (old, spent) = &mut *lock(one);
                spent.renew(old, now);
                *old = machine.succeeding(old);
            }
            Keeping::Many(many) => many.renew(machine, now),
        }
    }

    /// How many keys hold state.
    pub(super) fn tracked(&self, now: Nanos) -> u64 {
        match &self.kept {
            Keeping::One(_) => 0,
            Keeping::Many(many) => many.tracked(now),
        }
    }

    /// Whether keys have had to share overflow records.
    #[inline]
    pub(super) fn has_overflowed(&self) -> bool {
        matches!(&self.kept, Keeping::Many(many) if many.has_overflowed())
    }
}
