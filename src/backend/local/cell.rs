//! [`Cell`]: the word of a limiter without keys, or of an overflow bucket.

use super::{
    Denied, Kept, Made,
    generations::{Generations, Present},
};
use crate::{
    algorithm::Step,
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};

/// One word of state.
#[derive(Debug)]
#[cfg_attr(not(sluice_loom), derive(bytemuck::Zeroable))]
#[repr(transparent)]
pub(super) struct Cell(AtomicU64);

impl Cell {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The state now, and the quota it is told in.
    #[inline]
    pub(super) fn read<'a>(&self, quotas: &'a Generations, now: Nanos) -> (u64, Present<'a>) {
        // Acquire pairs with the release of whoever wrote the word: see `Generations::present`.
        let word = self.0.load(Ordering::Acquire);
        let present = quotas.present(now);
        (present.state(word, now), present)
    }

    /// Charges this cell, which is at `place`. The loop ends: each turn another thread's charge went
    /// through.
    #[inline(always)]
    pub(super) fn charge<K: Kept>(
        &self,
        place: u64,
        quotas: &Generations,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Result<K, Denied> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let present = quotas.present(now);
            let state = present.state(word, now);
            let Step::To(next) = present.machine.charge(state, now, cost, held) else {
                return Err(Denied(word));
            };
            let new = present.word(next);
            match self.swap(word, new) {
                Ok(()) => return Ok(K::of(Made { place, old: word, new })),
                Err(seen) => word = seen,
            }
        }
    }

    /// What a charge would do; an error where it does not fit.
    #[inline]
    pub(super) fn foresee(&self, quotas: &Generations, now: Nanos, cost: u64) -> Result<Made, ()> {
        let old = self.0.load(Ordering::Acquire);
        let present = quotas.present(now);
        match present.machine.charge(present.state(old, now), now, cost, 0) {
            Step::To(next) => Ok(Made { place: 0, old, new: present.word(next) }),
            Step::Denied => Err(()),
        }
    }

    /// Makes a charge that was foreseen, unless the word has changed since.
    #[inline]
    pub(super) fn make(&self, charge: &Made) -> bool {
        self.swap(charge.old, charge.new).is_ok()
    }

    /// Charges what was counted before, when it was held.
    pub(super) fn force(&self, quotas: &Generations, now: Nanos, cost: u64) {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let present = quotas.present(now);
            let state = present.machine.force(present.state(word, now), now, cost);
            match self.swap(word, present.word(state)) {
                Ok(()) => return,
                Err(seen) => word = seen,
            }
        }
    }

    /// Restore or burn: the old word comes back only if the word is still the one we wrote.
    pub(super) fn undo(&self, quotas: &Generations, made: &Made, now: Nanos) -> bool {
        let present = quotas.present(now);
        // A word of an older quota would earn at that quota's rate until somebody touches it.
        present.wrote(made.new)
            && self.swap(made.new, present.word(present.state(made.old, now))).is_ok()
    }

    /// Makes the state that of a key never seen; says whether it was not.
    pub(super) fn reset(&self, quotas: &Generations, now: Nanos) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let present = quotas.present(now);
            let idle = present.machine.idle_word(now);
            let known = present.machine.is_known(present.state(word, now), now);
            match self.swap(word, present.word(idle)) {
                Ok(()) => return known,
                Err(seen) => word = seen,
            }
        }
    }

    /// Rewrites a word of an older quota under the present one.
    pub(super) fn convert(&self, quotas: &Generations, now: Nanos) {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let present = quotas.present(now);
            if word == 0 || present.wrote(word) {
                return;
            }
            match self.swap(word, present.word(present.state(word, now))) {
                Ok(()) => return,
                Err(seen) => word = seen,
            }
        }
    }

    #[inline]
    fn swap(&self, old: u64, new: u64) -> Result<(), u64> {
        // Release: whoever reads this word (acquire) also sees the quota it was written under.
        self.0.compare_exchange(old, new, Ordering::Release, Ordering::Acquire).map(|_| ())
    }
}
