//! [`Waiting`]: a place in a room.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use super::{
    give_up_room,
    limit::{Limit, Shard},
    reading::{NEVER, Reading},
    room::{Gone, Room},
    timer::{Stuck, Timer},
    wake,
};
use crate::{
    backend::local::Seat,
    clock::{Nanos, Time},
    sync::{MutexGuard, Ordering},
};

/// A place in a room. Dropped, it leaves, and only shortens the others' wait.
pub(crate) struct Waiting {
    limit: Arc<Limit>,
    seat: Seat,
    place: u64,
    joined: Nanos,
    /// The end of the longest wait.
    until: Nanos,
    /// The first that was late at that end, and until when he is waited for.
    stalled: Option<(u64, Nanos)>,
    /// How late the room was when this place was taken.
    late: u64,
    timer: Timer,
}

/// Why a wait ended without a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The turn does not come in time.
    TooLong,
    Stuck,
}

impl From<Stuck> for Ended {
    fn from(_: Stuck) -> Self {
        Self::Stuck
    }
}

const NOWHERE: u64 = u64::MAX;

impl Waiting {
    pub(super) fn new(
        limit: &Arc<Limit>,
        seat: Seat,
        place: u64,
        (now, longest): (Nanos, Duration),
        late: u64,
        time: &Time,
    ) -> Self {
        Self {
            limit: Arc::clone(limit),
            seat,
            place,
            joined: now,
            until: now + longest,
            late,
            stalled: None,
            timer: Timer::new(time.clone()),
        }
    }

    /// Ready when it is this one's turn: the first in the room, and due. The charge is then to be made, by
    /// [`charge`](Self::charge) or with [`depart`](Self::depart) after it.
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<Nanos, Ended>> {
        loop {
            let now = self.timer.now();
            let until = match self.look(now, cx.waker()) {
                Ok(until) => until,
                Err(ended) => return Poll::Ready(Err(ended)),
            };
            if now >= until {
                return Poll::Ready(Ok(now));
            }
            ready!(self.timer.poll_until(until, cx))?;
        }
    }

    /// When to look again; now or before where it is this one's turn.
    fn look(&mut self, now: Nanos, waker: &Waker) -> Result<Nanos, Ended> {
        let limit = Arc::clone(&self.limit);
        let mut shard = limit.shard(self.seat);
        let Some(room) = shard.get_mut(&(self.seat.quota, self.seat.hash)) else {
            return Err(Ended::TooLong);
        };
        // By as much as others were late while this one waited he may be; what he is late himself counts when he
        // charges.
        let late = room.late_since(self.late).min(now.since(self.joined).get());
        let end = self.until + Duration::from_nanos(late);
        let until = if room.is_first(self.place) {
            // Where it never fits any more, even the longest of all waits is over.
            Some(room.due()).filter(|due| *due != NEVER && *due <= end)
        } else if room.overdue(now) > 0 {
            self.outlast(room, now, end)
        } else {
            let turn = room.turn_of(self.place, &limit.reading(self.seat, now), now);
            turn.filter(|turn| *turn <= end).map(|_| end.max(now + Duration::from_nanos(1)))
        };
        let until = until.ok_or(Ended::TooLong)?;
        let old = room.set_waker(self.place, waker);
        // In this order: dropping a waker may run anything.
        drop(shard);
        drop(old);
        Ok(until)
    }

    /// When to look again while the first is late, so that nobody's turn can be told; `None` where he has been so
    /// for too long. One whose timer is late comes soon, and this one's wait is not to end for that; one that is
    /// not polled does not come, and is given as much again as he is late already.
    fn outlast(&mut self, room: &Room, now: Nanos, end: Nanos) -> Option<Nanos> {
        if now < end {
            return Some(end);
        }
        let first = room.first()?;
        let grace = match self.stalled {
            Some((stalled, grace)) if stalled == first => grace,
            _ => now + Duration::from_nanos(room.overdue(now)),
        };
        self.stalled = Some((first, grace));
        (now < grace).then_some(grace)
    }

    /// Makes the charge at the turn, and makes way for the next; where it cannot be made, stays the first and
    /// is due again when `charge` says. The room is locked meanwhile.
    pub(crate) fn charge<T>(
        &mut self,
        now: Nanos,
        charge: impl FnOnce() -> Result<T, Nanos>,
    ) -> Option<T> {
        let limit = Arc::clone(&self.limit);
        let mut shard = limit.shard(self.seat);
        match charge() {
            Ok(done) => {
                self.go(shard, |room, reading, _| room.depart(reading, now), now);
                Some(done)
            }
            Err(until) => {
                if let Some(room) = shard.get_mut(&(self.seat.quota, self.seat.hash)) {
                    room.postpone(until);
                }
                None
            }
        }
    }

    /// The charge is made elsewhere: makes way for the next.
    pub(crate) fn depart(mut self, now: Nanos) {
        let _ = self.charge(now, || Ok(()));
    }

    /// The charge cannot be made, for what is not this room's matter: stays the first, and is due again then.
    pub(crate) fn postpone(&mut self, until: Nanos) {
        let mut shard = self.limit.shard(self.seat);
        if let Some(room) = shard.get_mut(&(self.seat.quota, self.seat.hash)) {
            room.postpone(until);
        }
    }

    /// The charge cannot be made until something has come that nobody can foresee: stays the first.
    pub(crate) fn block(&mut self) {
        let mut shard = self.limit.shard(self.seat);
        if let Some(room) = shard.get_mut(&(self.seat.quota, self.seat.hash)) {
            room.block();
        }
    }

    /// The end of the longest wait.
    pub(crate) fn until(&self) -> Nanos {
        self.until
    }

    fn go(
        &mut self,
        mut shard: MutexGuard<'_, Shard>,
        leave: impl FnOnce(&mut Room, &Reading<'_>, u64) -> Gone,
        now: Nanos,
    ) {
        let place = std::mem::replace(&mut self.place, NOWHERE);
        let key = (self.seat.quota, self.seat.hash);
        let reading = self.limit.reading(self.seat, now);
        let gone = shard.get_mut(&key).map(|room| leave(room, &reading, place));
        let Gone { next, own } = gone.unwrap_or_default();
        // Release pairs with the acquire in `is_waited_for`: newcomers who find nobody see the charge made.
        self.limit.waiting.fetch_sub(1, Ordering::Release);
        if shard.get(&key).is_some_and(Room::is_empty) {
            shard.remove(&key);
            give_up_room(&mut shard);
        }
        drop(shard);
        wake(next);
        drop(own);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.place == NOWHERE {
            return;
        }
        let (limit, now) = (Arc::clone(&self.limit), self.timer.now());
        let shard = limit.shard(self.seat);
        self.go(shard, |room, reading, place| room.leave(place, reading, now), now);
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("place", &self.place).finish_non_exhaustive()
    }
}
