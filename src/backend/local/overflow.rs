//! [`Overflow`]: shared buckets for keys that find no room.
//!
//! When every slot on a new key's path is live, the key shares one of a fixed set of buckets with other
//! newcomers: of the two its hash names, the fuller in tokens. A flood of keys thus gains at most what
//! these buckets hold, and no established key loses anything.

use super::{Denied, Kept, cell::Cell, generations::Generations};
use crate::clock::Nanos;

const BUCKETS: usize = if cfg!(sluice_loom) { 2 } else { 1_024 };

/// Places of overflow buckets begin here; slots of a table lie below.
const FIRST_PLACE: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct Overflow(Box<[Cell]>);

impl Overflow {
    pub(super) fn new() -> Self {
        #[cfg(not(sluice_loom))]
        return Self(bytemuck::zeroed_slice_box(BUCKETS));
        #[cfg(sluice_loom)]
        Self((0..BUCKETS).map(|_| Cell::new()).collect())
    }

    /// The place a new key is counted at now.
    pub(super) fn place(&self, quotas: &Generations, hash: u64, now: Nanos) -> u64 {
        FIRST_PLACE + self.choose(quotas, hash, now) as u64
    }

    fn choose(&self, quotas: &Generations, hash: u64, now: Nanos) -> usize {
        let remaining = |bucket: usize| {
            let (state, present) = self.0[bucket].read(quotas, now);
            present.machine.report(state, now).remaining()
        };
        // Below the number of buckets.
        let a = hash as usize % self.0.len();
        let b = (hash >> 32) as usize % self.0.len();
        if remaining(b) > remaining(a) { b } else { a }
    }

    /// The bucket at `place`, if that is one of ours.
    pub(super) fn bucket(&self, place: u64) -> Option<&Cell> {
        self.0.get(usize::try_from(place.checked_sub(FIRST_PLACE)?).ok()?)
    }

    /// The bucket a new key shares now.
    pub(super) fn shared(&self, quotas: &Generations, hash: u64, now: Nanos) -> &Cell {
        &self.0[self.choose(quotas, hash, now)]
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
        let bucket = self.choose(quotas, hash, now);
        self.0[bucket].charge(FIRST_PLACE + bucket as u64, quotas, now, cost, held)
    }

    pub(super) fn convert(&self, quotas: &Generations, now: Nanos) {
        for bucket in &self.0 {
            bucket.convert(quotas, now);
        }
    }
}
