//! [`Overflow`]: shared buckets for keys that find no room.
//!
//! When every slot on a new key's path is live, the key shares the one of a fixed set of buckets that its
//! hash names, with other newcomers. A flood of keys thus gains at most what these buckets hold, and no
//! established key loses anything. A key that finds room later starts with what its bucket has spent, so
//! that nobody gets a second burst by changing over.
//!
//! One bucket and not the fuller of two: two would be fairer between newcomers, and would let each spend
//! twice his quota.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Denied, Kept, cell::Cell, generations::Generations};
use crate::clock::Nanos;

const BUCKETS: usize = if cfg!(sluice_loom) { 2 } else { 1_024 };

/// Places of overflow buckets begin here; slots of a table lie below.
const FIRST_PLACE: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct Overflow {
    buckets: Box<[Cell]>,
    /// Whether any was ever charged.
    used: AtomicBool,
}

impl Overflow {
    pub(super) fn new() -> Self {
        #[cfg(not(sluice_loom))]
        let buckets = bytemuck::zeroed_slice_box(BUCKETS);
        #[cfg(sluice_loom)]
        let buckets = (0..BUCKETS).map(|_| Cell::new()).collect();
        Self { buckets, used: AtomicBool::new(false) }
    }

    /// Whether keys have had to share.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        // Relaxed: who does not see it yet finds the buckets as good as untouched.
        self.used.load(Ordering::Relaxed)
    }

    /// Which bucket a key shares; below their number.
    fn index(&self, hash: u64) -> usize {
        (hash >> 16) as usize % self.buckets.len()
    }

    /// The place a new key is counted at.
    pub(super) fn place(&self, hash: u64) -> u64 {
        FIRST_PLACE + self.index(hash) as u64
    }

    /// The bucket at `place`, if that is one of ours.
    pub(super) fn bucket(&self, place: u64) -> Option<&Cell> {
        self.buckets.get(usize::try_from(place.checked_sub(FIRST_PLACE)?).ok()?)
    }

    /// What the bucket of a key has spent, as a state.
    #[inline]
    pub(super) fn state(&self, quotas: &Generations, hash: u64, now: Nanos) -> u64 {
        if self.is_used() { self.buckets[self.index(hash)].read(quotas, now).0 } else { 0 }
    }

    /// The bucket a new key shares, to be charged.
    pub(super) fn shared(&self, hash: u64) -> &Cell {
        // Read first: a flood of new keys should not write one line from all processors.
        if !self.is_used() {
            self.used.store(true, Ordering::Relaxed);
        }
        &self.buckets[self.index(hash)]
    }

    #[cold]
    #[inline(never)]
    pub(super) fn charge<K: Kept>(
        &self,
        quotas: &Generations,
        hash: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Result<K, Denied> {
        self.shared(hash).charge(self.place(hash), quotas, now, cost, held)
    }

    pub(super) fn convert(&self, quotas: &Generations, now: Nanos) {
        for bucket in &self.buckets {
            bucket.convert(quotas, now);
        }
    }
}
