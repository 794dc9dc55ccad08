//! [`Holds`]: permits set aside while another backend is asked.
//!
//! Where a request also has rules on a remote backend, charging in process before the answer and
//! undoing it after a refusal would let one refused caller starve the honest: by the time of the undo
//! others have charged the same word, and what cannot be restored is burnt. So the permits are *held*
//! meanwhile, counted beside the state, and become a charge at the answer or vanish. A hold counts
//! against everybody who asks, so nothing is admitted twice, and it lasts as long as the answer takes.
//!
//! Holds live in a small map per shard, with entries for requests under way only. Every charge of a
//! limiter that may be held takes the shard's lock for the length of one check; no lock is kept across
//! an await.

use std::collections::HashMap;

use crate::sync::{Mutex, MutexGuard, lock};

const SHARDS: usize = 16;

/// Held permits by place.
#[derive(Debug, Default)]
pub(super) struct Holds {
    shards: [Mutex<HashMap<u64, u64>>; SHARDS],
}

impl Holds {
    pub(super) fn shard(&self, place: u64) -> MutexGuard<'_, HashMap<u64, u64>> {
        lock(&self.shards[(place >> 7 ^ place) as usize % SHARDS])
    }
}

/// Gives back `cost` held permits of `place`.
pub(super) fn give_back(held: &mut HashMap<u64, u64>, place: u64, cost: u64) {
    if let Some(count) = held.get_mut(&place) {
        *count = count.saturating_sub(cost);
        if *count == 0 {
            held.remove(&place);
        }
    }
}
