//! [`Cell`]: the word of a limiter without keys, or of an overflow bucket; and [`Refusal`], what it denied.

use super::{
    Denied, Kept, Made,
    generations::{Generations, Present},
};
use crate::{
    clock::Nanos,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// One word of state.
#[derive(Debug)]
#[cfg_attr(not(sluice_loom), derive(bytemuck::Zeroable))]
#[repr(transparent)]
pub(super) struct Cell(AtomicU64);

/// The word that denied one permit last, and until when it does: what is denied again before that need not be worked
/// out.
#[derive(Debug)]
pub(super) struct Refusal {
    word: AtomicU64,
    until: AtomicU64,
    writer: Mutex<()>,
}

impl Refusal {
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0), until: AtomicU64::new(0), writer: Mutex::new(()) }
    }

    /// Whether the cell still has the word that denied, and denies now.
    #[inline(always)]
    pub(super) fn stands(&self, cell: &Cell, now: Nanos) -> bool {
        // Acquire pairs with the release in `note`: the word is that one's or a later one's. A later one's with
        // this end means that the word has changed while we looked, and we looked before it did.
        let until = self.until.load(Ordering::Acquire);
        now.get() < until && self.word.load(Ordering::Relaxed) == cell.0.load(Ordering::Acquire)
    }

    /// Takes note that `word` denies one permit until then. One at a time, so that word and end belong together; and
    /// not if the quota has changed by which that was worked out.
    pub(super) fn note(&self, Denied(word): Denied, until: Nanos, holds: impl FnOnce() -> bool) {
        if let Ok(_only) = self.writer.try_lock()
            && holds()
        {
            self.until.store(0, Ordering::Relaxed);
            self.word.store(word, Ordering::Release);
            self.until.store(until.get(), Ordering::Release);
        }
    }

    /// Another quota is in force, under which the same word may not deny.
    pub(super) fn forget(&self) {
        let _only = lock(&self.writer);
        self.until.store(0, Ordering::Release);
    }
}

impl Cell {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The state now, and the quota it is told in.
    #[inline]
    pub(super) fn read<'a>(&self, quotas: &'a Generations, now: Nanos) -> (u64, Present<'a>) {
        // Acquire pairs with the release of whoever wrote the word: see `Generations::present`.
        let word = self.0.load(Ordering::Acquire);
        let present = quotas.present();
        (present.state(word, now), present)
    }

    /// Charges this cell, which is at `place`. The loop ends: each turn another thread's charge went
    /// through.
    #[inline(always)]
    pub(super) fn charge<K: Kept>(
        &self,
        place: u64,
        quotas: &Generations,
        (now, cost, held): (Nanos, u64, u64),
        plain: bool,
    ) -> Result<K, Denied> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let Some(new) = quotas.charge(word, now, cost, held, plain) else {
                return Err(Denied(word));
            };
            match self.swap(word, new) {
                Ok(()) => return Ok(K::of(Made { place, old: word, new })),
                Err(seen) => word = seen,
            }
        }
    }

    /// What a charge would do; an error where it does not fit.
    #[inline]
    pub(super) fn foresee(
        &self,
        quotas: &Generations,
        now: Nanos,
        cost: u64,
        plain: bool,
    ) -> Result<Made, ()> {
        let old = self.0.load(Ordering::Acquire);
        let new = quotas.charge(old, now, cost, 0, plain).ok_or(())?;
        Ok(Made { place: 0, old, new })
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
            let present = quotas.present();
            let state = present.force(present.state(word, now), now, cost);
            match self.swap(word, present.word(state)) {
                Ok(()) => return,
                Err(seen) => word = seen,
            }
        }
    }

    /// Restore or burn: the old word comes back only if the word is still the one we wrote.
    pub(super) fn undo(&self, quotas: &Generations, made: &Made, now: Nanos) -> bool {
        let present = quotas.present();
        // A word of an older quota would earn at that quota's rate until somebody touches it.
        present.wrote(made.new)
            && self.swap(made.new, present.word(present.state(made.old, now))).is_ok()
    }

    /// Makes the state that of a key never seen; says whether it was not.
    pub(super) fn reset(&self, quotas: &Generations, now: Nanos) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let present = quotas.present();
            let idle = present.idle_word(now);
            let known = present.is_known(present.state(word, now), now);
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
            let present = quotas.present();
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
