//! Waiting for a rate: rooms, first come first served, and the timer they sleep by.
//!
//! A [`Limit`] is a counter with a `room` for each key that somebody waits for. Those who wait have charged
//! nothing; the first sleeps until he is due and charges then. Permits in flight have lines of their own, in
//! `in_flight`: they are handed over, not waited for by the clock.

mod elsewhere;
mod limit;
#[cfg(sluice_loom)]
pub(crate) mod models;
mod place;
mod reading;
mod room;
mod timer;

use std::{collections::HashMap, task::Waker};

use ahash::RandomState;

pub(crate) use self::{
    elsewhere::{Elsewhere, Sleeping},
    limit::{Joined, Limit},
    place::{Ended, Waiting},
    timer::{Stuck, Timer},
};
use crate::sync::{AtomicU64, Ordering};

/// Wakes, with no lock held: a waker may run anything.
pub(crate) fn wake(woken: impl IntoIterator<Item = Waker>) {
    for waker in woken {
        waker.wake();
    }
}

/// Puts `waker` in the place of one that would wake another task; gives the old one, to be dropped with no lock
/// held: that may run anything too.
pub(crate) fn renew(known: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    if known.as_ref().is_some_and(|known| known.will_wake(waker)) {
        return None;
    }
    known.replace(waker.clone())
}

/// Gives back the memory of a map that many keys have left.
pub(crate) fn give_up_room<K, V>(map: &mut HashMap<K, V, RandomState>)
where
    K: Eq + std::hash::Hash,
{
    /// What a map may keep when it is empty.
    const KEPT: usize = 64;
    if map.is_empty() && map.capacity() > KEPT {
        map.shrink_to(KEPT / 2);
    }
}

/// How many may wait: in all, and for one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    pub(crate) whole: u64,
    pub(crate) per_key: u64,
}

impl Depth {
    /// What bounds those who wait is the longest wait, and how many callers there are.
    pub(crate) const UNBOUNDED: Self = Self { whole: u64::MAX, per_key: u64::MAX };

    /// Of a keyed limit one key may hold half of the places, and always one.
    pub(crate) fn new(whole: u64, keyed: bool) -> Self {
        Self { whole, per_key: if keyed { (whole / 2).max(1) } else { whole } }
    }

    /// Takes one of the places, if the key, which has so many, may have one more.
    pub(crate) fn take(self, waiting: &AtomicU64, of_key: u64) -> bool {
        let fits = |waiting: u64| (waiting < self.whole).then_some(waiting + 1);
        // Relaxed: the depth is checked by compare-and-swap on this word alone. As each change of it is an
        // addition to the last, an acquire still sees what all who went before have released.
        of_key < self.per_key
            && waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}
