//! [`Limit`]: the counter of one rate in this process, and the rooms of those who wait for it.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use ahash::RandomState;

use super::{
    Depth,
    room::{Gone, NEVER, Reading, Room},
    timer::{Stuck, Timer},
};
use crate::{
    ConfigError, Decision, Quota,
    backend::local::{Counter, Seat},
    clock::{Nanos, Time},
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

/// One rate: what is spent, and who waits. Whoever shares it shares both, so that a newcomer does not
/// overtake whichever way he comes.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) counter: Counter,
    /// How many wait, over all keys. Changed under the lock of a shard only.
    waiting: AtomicU64,
    shards: OnceLock<Box<[Mutex<Shard>]>>,
}

type Shard = HashMap<(usize, u64), Room, RandomState>;

const SHARDS: usize = if cfg!(sluice_loom) { 1 } else { 64 };

/// What came of wanting to wait.
pub(crate) enum Joined {
    /// Nobody waits and the charge fits: there is nothing to wait for.
    Free,
    Waiting(Waiting),
    /// It would take longer than one may wait, or there is no place left. This long, if it ever fits.
    Refused(Option<Duration>),
}

impl Limit {
    pub(crate) fn new(counter: Counter) -> Self {
        Self { counter, waiting: AtomicU64::new(0), shards: OnceLock::new() }
    }

    fn shards(&self) -> &[Mutex<Shard>] {
        self.shards.get_or_init(|| (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect())
    }

    fn shard(&self, seat: Seat) -> MutexGuard<'_, Shard> {
        // The upper bits: the map within uses the lower ones.
        lock(&self.shards()[(seat.hash >> 32) as usize % SHARDS])
    }

    fn reading(&self, seat: Seat, now: Nanos) -> Reading {
        let (state, machine, held) = self.counter.read(seat, now);
        Reading { state, machine, held }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> u64 {
        // Relaxed: a number for whoever asks.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for permits of this key, so that a newcomer must not take one.
    #[inline]
    pub(crate) fn is_waited_for(&self, seat: Seat) -> bool {
        // Acquire pairs with the release in `go`: who sees that nobody waits sees the charges of those who
        // waited. Who sees that somebody does finds the room by the shard's lock, under which it was counted.
        // Who joins at this very moment counts as coming later.
        self.waiting.load(Ordering::Acquire) != 0 && self.has_room_for(seat)
    }

    #[cold]
    #[inline(never)]
    fn has_room_for(&self, seat: Seat) -> bool {
        self.shard(seat).contains_key(&(seat.quota, seat.hash))
    }

    /// What a newcomer's charge would get; changes nothing. What is promised to those who wait counts.
    #[inline]
    pub(crate) fn peek(&self, seat: Seat, now: Nanos, cost: u64) -> Decision {
        let decision = self.counter.peek(seat, now, cost);
        if cost > 0 && self.is_waited_for(seat) {
            return self.peek_behind(seat, now, cost, decision);
        }
        decision
    }

    #[cold]
    fn peek_behind(&self, seat: Seat, now: Nanos, cost: u64, mut decision: Decision) -> Decision {
        if decision.is_never() {
            return decision;
        }
        let mut shard = self.shard(seat);
        if let Some(room) = shard.get_mut(&(seat.quota, seat.hash)) {
            let reading = self.reading(seat, now);
            let wait = room.estimate(&reading, now, cost).map(|estimate| estimate.wait);
            let exact = || room.foresee(&reading, now, cost).map(|(turn, _)| turn.since(now));
            decision.deny(wait.or_else(exact).unwrap_or(NEVER).max(Nanos::new(1)));
        }
        decision
    }

    /// Whether a newcomer's charge would be made; changes nothing.
    #[inline]
    pub(crate) fn fits(&self, seat: Seat, now: Nanos, cost: u64) -> bool {
        cost == 0 || (!self.is_waited_for(seat) && self.counter.fits(seat, now, cost))
    }

    /// Takes a place behind all who wait, if the turn comes within `longest`.
    pub(crate) fn join(
        self: &Arc<Self>,
        seat: Seat,
        cost: u64,
        time: &Time,
        (now, longest): (Nanos, Duration),
        depth: Depth,
    ) -> Joined {
        let mut shard = self.shard(seat);
        let (key, reading) = ((seat.quota, seat.hash), self.reading(seat, now));
        let room = shard.get_mut(&key);
        let (waiting, late) = room.as_ref().map_or((0, 0), |room| (room.len(), room.late()));
        if cost == 0 || (waiting == 0 && self.counter.fits(seat, now, cost)) {
            return Joined::Free;
        }
        let is_full = waiting >= depth.per_key || self.waiting() >= depth.whole;
        // Who is refused anyway need not have it played through to the nanosecond.
        if let Some(room) = &room
            && let Some(estimate) = room.estimate(&reading, now, cost)
            && (is_full || Duration::from(estimate.least) > longest)
        {
            return Joined::Refused(Some(estimate.wait.max(Nanos::new(1)).into()));
        }
        let turn = match room {
            Some(room) => room.foresee(&reading, now, cost),
            None => Room::default().foresee(&reading, now, cost),
        };
        let Some(turn) = turn else { return Joined::Refused(None) };
        let wait: Duration = turn.0.since(now).max(Nanos::new(1)).into();
        let fits = |waiting: u64| (waiting < depth.whole).then_some(waiting + 1);
        // Relaxed: the room is found by the lock, which is held until the place is taken. As each change of this
        // word is an addition to the last, an acquire still sees what all who went before have released.
        if wait > longest
            || waiting >= depth.per_key
            || self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err()
        {
            return Joined::Refused(Some(wait));
        }
        let place = shard.entry(key).or_default().join(cost, turn);
        Joined::Waiting(Waiting {
            limit: Arc::clone(self),
            seat,
            place,
            joined: now,
            until: now + longest,
            late,
            stalled: None,
            timer: Timer::new(time.clone()),
        })
    }

    /// Charges now, or says what a newcomer gets.
    #[inline]
    pub(crate) fn try_acquire(&self, seat: Seat, now: Nanos, cost: u64) -> Decision {
        if cost == 0 || self.is_waited_for(seat) {
            let decision = self.peek(seat, now, cost);
            // Who waited may have gone meanwhile: what fits now is still to be charged.
            if cost == 0 || !decision.is_allowed() {
                return decision;
            }
        }
        match self.counter.charge(seat, now, cost) {
            Ok(word) => self.counter.after(seat, word, now),
            Err(denied) => self.counter.explain(seat, denied, now, cost),
        }
    }

    /// Charges as soon as it is this one's turn, if that comes within `longest`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        seat: Seat,
        cost: u64,
        time: &Time,
        longest: Duration,
    ) -> Result<Decision, Stuck> {
        loop {
            let now = time.now();
            let mut waiting = match self.join(seat, cost, time, (now, longest), Depth::UNBOUNDED) {
                Joined::Waiting(waiting) => waiting,
                Joined::Refused(_) => return Ok(self.peek_refused(seat, now, cost)),
                Joined::Free => {
                    let decision = self.try_acquire(seat, now, cost);
                    // Another thread may have been faster: then there is something to wait for.
                    if decision.is_allowed() || longest.is_zero() {
                        return Ok(decision);
                    }
                    continue;
                }
            };
            loop {
                let now = match poll_fn(|cx| waiting.poll_turn(cx)).await {
                    Ok(now) => now,
                    Err(Ended::Stuck) => return Err(Stuck),
                    Err(Ended::TooLong) => {
                        drop(waiting);
                        return Ok(self.peek_refused(seat, time.now(), cost));
                    }
                };
                let charge = || self.charge_at(seat, now, cost);
                if let Some(word) = waiting.charge(now, charge) {
                    return Ok(self.counter.after(seat, word, now));
                }
            }
        }
    }

    /// What one is told whose wait is over without a turn; a denial, even if the charge would fit just now.
    pub(crate) fn peek_refused(&self, seat: Seat, now: Nanos, cost: u64) -> Decision {
        let mut decision = self.peek(seat, now, cost);
        if decision.is_allowed() {
            decision.deny(Nanos::new(1));
        }
        decision
    }

    /// Makes the charge of the first in the room, or says when it will fit.
    fn charge_at(&self, seat: Seat, now: Nanos, cost: u64) -> Result<u64, Nanos> {
        self.counter.charge(seat, now, cost).map_err(|denied| {
            let decision = self.counter.explain(seat, denied, now, cost);
            decision.retry_after().map_or(NEVER, |wait| now + wait)
        })
    }

    /// Forgets a key; says whether anything was known of it. Who waits for it goes.
    pub(crate) fn reset(&self, seat: Seat, now: Nanos) -> bool {
        let known = self.counter.reset(seat, now);
        // By the lock, whether or not anybody is counted as waiting: who joins before it is found here, who joins
        // after it has read what is left now.
        let mut woken = Vec::new();
        if let Some(room) = self.shard(seat).get_mut(&(seat.quota, seat.hash)) {
            room.renew(&self.reading(seat, now), now, &mut woken);
        }
        wake(woken);
        known
    }

    /// Puts another quota in force; what is spent stays spent, and those who wait are told when they are due.
    pub(crate) fn set_limit(&self, quota: Quota, now: Nanos) -> Result<(), ConfigError> {
        self.counter.set_limit(quota, now)?;
        // As in `reset`: nobody who read the old quota is missed.
        for shard in self.shards() {
            let mut woken = Vec::new();
            for ((quota, hash), room) in lock(shard).iter_mut() {
                let seat = Seat { quota: *quota, hash: *hash };
                room.renew(&self.reading(seat, now), now, &mut woken);
            }
            wake(woken);
        }
        Ok(())
    }
}

/// Wakes, with no lock held: a waker may run anything.
fn wake(woken: impl IntoIterator<Item = Waker>) {
    for waker in woken {
        waker.wake();
    }
}

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
        leave: impl FnOnce(&mut Room, &Reading, u64) -> Gone,
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
            super::give_up_room(&mut shard);
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
