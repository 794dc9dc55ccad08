//! [`Limit`]: the counter of one rate in this process, and the rooms of those who wait for it.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, OnceLock},
    time::Duration,
};

use ahash::RandomState;

use super::{
    Depth,
    place::{Ended, Waiting},
    reading::{NEVER, Reading},
    room::Room,
    timer::Stuck,
    wake,
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
    pub(super) waiting: AtomicU64,
    shards: OnceLock<Box<[Mutex<Shard>]>>,
}

pub(super) type Shard = HashMap<(usize, u64), Room, RandomState>;

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

    pub(super) fn shard(&self, seat: Seat) -> MutexGuard<'_, Shard> {
        // The upper bits: the map within uses the lower ones.
        lock(&self.shards()[(seat.hash >> 32) as usize % SHARDS])
    }

    pub(super) fn reading(&self, seat: Seat, now: Nanos) -> Reading<'_> {
        Reading::new(&self.counter, seat, now)
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
        self.counter.meet(seat, now, cost);
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
        // The room is found by the lock, which is held until the place is taken.
        if wait > longest || !depth.take(&self.waiting, waiting) {
            return Joined::Refused(Some(wait));
        }
        let place = shard.entry(key).or_default().join(cost, turn);
        Joined::Waiting(Waiting::new(self, seat, place, (now, longest), late, time))
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

    /// Charges now; says only whether.
    #[inline(always)]
    pub(crate) fn admits(&self, seat: Seat, now: Nanos, cost: u64) -> bool {
        // Whether or not somebody waits.
        if cost > 0 && self.counter.refuses(seat, now) {
            return false;
        }
        if cost == 0 || self.is_waited_for(seat) {
            return self.try_acquire(seat, now, cost).is_allowed();
        }
        self.counter.admits(seat, now, cost)
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

    /// Puts another quota of a tier in force, or of those in none for 0; what is spent stays spent, and those who
    /// wait are told when they are due.
    pub(crate) fn set_limit(
        &self,
        tier: usize,
        quota: Quota,
        now: Nanos,
    ) -> Result<(), ConfigError> {
        self.counter.set_limit(tier, quota, now)?;
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
