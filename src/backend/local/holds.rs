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
///
/// What is held of a key counts in two places: the key's own, and that of the overflow bucket it shares while there is
/// no room for it. Room may come or go while permits are held, and whichever place a charge goes by then, it finds
/// them.
#[derive(Debug, Default)]
pub(super) struct Holds {
    shards: [Mutex<HashMap<u64, u64>>; SHARDS],
}

/// The places that a key may be counted at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) own: u64,
    pub(super) shared: u64,
}

impl Places {
    /// Where there are no keys.
    pub(super) const ONE: Self = Self { own: 0, shared: 0 };
}

impl Holds {
    /// What is held of a key, and of those it may share with.
    pub(super) fn shard(&self, places: Places) -> MutexGuard<'_, HashMap<u64, u64>> {
        // By the overflow bucket, so that all keys which share one are behind one lock.
        lock(&self.shards[places.shared as usize % SHARDS])
    }
}

/// Sets `cost` permits aside.
pub(super) fn set_aside(held: &mut HashMap<u64, u64>, places: Places, cost: u64) {
    *held.entry(places.own).or_default() += cost;
    if places.shared != places.own {
        *held.entry(places.shared).or_default() += cost;
    }
}

/// Gives back `cost` held permits.
pub(super) fn give_back(held: &mut HashMap<u64, u64>, places: Places, cost: u64) {
    take(held, places.own, cost);
    if places.shared != places.own {
        take(held, places.shared, cost);
    }
}

fn take(held: &mut HashMap<u64, u64>, place: u64, cost: u64) {
    if let Some(count) = held.get_mut(&place) {
        *count = count.saturating_sub(cost);
        if *count == 0 {
            held.remove(&place);
        }
    }
}
