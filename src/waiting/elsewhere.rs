//! [`Elsewhere`]: who waits for a rule that another backend counts.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use ahash::RandomState;

use super::{Depth, Ended, Timer, give_up_room, renew, wake};
use crate::{
    backend::local::Seat,
    clock::Nanos,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Who waits for one rule that counts elsewhere, in a line for each key. There is nothing to foresee: the first
/// asks again when the backend told him to, those behind when they are the first, and newcomers not before them.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// How many wait, over all keys. Changed under the lock only.
    waiting: AtomicU64,
    /// By quota and hash.
    keys: Mutex<HashMap<(usize, u64), Line, RandomState>>,
}

/// Who waits for one key.
#[derive(Debug, Default)]
struct Line {
    next: u64,
    /// Those in line to ask, with the instant from which each may.
    asking: BTreeMap<u64, (Nanos, Option<Waker>)>,
    /// How many wait for a departure that is reserved, which hold up nobody.
    departing: u64,
}

impl Line {
    fn len(&self) -> u64 {
        self.asking.len() as u64 + self.departing
    }

    /// The first in line may ask: whom to wake.
    fn wake_first(&mut self) -> Option<Waker> {
        self.asking.first_entry()?.get_mut().1.take()
    }
}

/// A place among those who wait. Dropped, it leaves.
pub(crate) struct Sleeping {
    of: Arc<Elsewhere>,
    key: (usize, u64),
    /// The place in the line of those who ask; none for one who waits for a departure.
    place: Option<u64>,
}

impl Elsewhere {
    /// How many wait.
    pub(crate) fn waiting(&self) -> u64 {
        // Relaxed: a number for whoever asks.
        self.waiting.load(Ordering::Relaxed)
    }

    /// When the first asks of those in line for this key; `None` where nobody is.
    #[inline]
    pub(crate) fn first(&self, seat: Seat) -> Option<Nanos> {
        // Relaxed: who joins at this very moment counts as coming later.
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        lock(&self.keys)
            .get(&(seat.quota, seat.hash))?
            .asking
            .first_key_value()
            .map(|(_, (due, _))| *due)
    }

    /// A place in the line of those who ask, not before `due`.
    pub(crate) fn join(self: &Arc<Self>, seat: Seat, due: Nanos, depth: Depth) -> Option<Sleeping> {
        self.enter(seat, depth, |line| {
            let place = line.next;
            line.next += 1;
            line.asking.insert(place, (due, None));
            Some(place)
        })
    }

    /// A place to wait in for a departure.
    pub(crate) fn depart(self: &Arc<Self>, seat: Seat, depth: Depth) -> Option<Sleeping> {
        self.enter(seat, depth, |line| {
            line.departing += 1;
            None
        })
    }

    fn enter(
        self: &Arc<Self>,
        seat: Seat,
        depth: Depth,
        enter: impl FnOnce(&mut Line) -> Option<u64>,
    ) -> Option<Sleeping> {
        let (mut keys, key) = (lock(&self.keys), (seat.quota, seat.hash));
        if !depth.take(&self.waiting, keys.get(&key).map_or(0, Line::len)) {
            return None;
        }
        let place = enter(keys.entry(key).or_default());
        Some(Sleeping { of: Arc::clone(self), key, place })
    }
}

impl Sleeping {
    /// Ready when this is the first in line and may ask.
    pub(crate) fn poll_turn(
        &self,
        until: Nanos,
        timer: &mut Timer,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Ended>> {
        let Some(due) = self.look(cx.waker()) else {
            // At the end of the wait itself it may still come to be the first.
            ready!(timer.poll_until(until + Duration::from_nanos(1), cx))?;
            return Poll::Ready(Err(Ended::TooLong));
        };
        if due.max(timer.now()) > until {
            return Poll::Ready(Err(Ended::TooLong));
        }
        timer.poll_until(due, cx).map_err(Into::into)
    }

    /// When it may ask, if it is the first.
    fn look(&self, waker: &Waker) -> Option<Nanos> {
        let mut keys = lock(&self.of.keys);
        let (line, place) = (keys.get_mut(&self.key)?, self.place?);
        let is_first = line.asking.first_key_value().is_some_and(|(first, _)| *first == place);
        let (due, known) = line.asking.get_mut(&place)?;
        let (due, old) = (*due, renew(known, waker));
        // In this order: dropping a waker may run anything.
        drop(keys);
        drop(old);
        is_first.then_some(due)
    }

    /// It was told to ask again then; it stays where it is.
    pub(crate) fn postpone(&self, due: Nanos) {
        let mut keys = lock(&self.of.keys);
        if let (Some(line), Some(place)) = (keys.get_mut(&self.key), self.place)
            && let Some(asking) = line.asking.get_mut(&place)
        {
            asking.0 = due;
        }
    }

    /// Its departure is reserved: those behind may ask.
    pub(crate) fn depart(&mut self) {
        let mut keys = lock(&self.of.keys);
        let Some((line, place)) = keys.get_mut(&self.key).zip(self.place.take()) else { return };
        let own = line.asking.remove(&place);
        line.departing += 1;
        let next = line.wake_first();
        drop(keys);
        wake(next);
        drop(own);
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let mut keys = lock(&self.of.keys);
        // Relaxed: as in `Depth::take`.
        self.of.waiting.fetch_sub(1, Ordering::Relaxed);
        let Some(line) = keys.get_mut(&self.key) else { return };
        let own = self.place.and_then(|place| line.asking.remove(&place));
        line.departing -= u64::from(self.place.is_none());
        let next = line.wake_first();
        if line.len() == 0 {
            keys.remove(&self.key);
            give_up_room(&mut keys);
        }
        // In this order: dropping a waker may run anything.
        drop(keys);
        wake(next);
        drop(own);
    }
}

impl fmt::Debug for Sleeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeping").field("place", &self.place).finish_non_exhaustive()
    }
}
