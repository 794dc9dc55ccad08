//! [`Room`]: who waits for the permits of one key of a rate, in the order they came.
//!
//! Nobody in it has charged anything. The first charges when he is *due*, the instant from which his charge
//! fits, and goes; then the next is. What a newcomer would have to wait is foreseen by playing this
//! through with the algorithm itself, so that a prediction cannot differ from what then happens.

use std::{collections::BTreeMap, task::Waker};

use super::{
    reading::{NEVER, Reading},
    renew,
};
use crate::{algorithm::Spent, backend::local::Known, clock::Nanos};

#[derive(Debug, Default)]
pub(super) struct Room {
    next: u64,
    waiters: BTreeMap<u64, Waiter>,
    /// When the first may charge.
    due: Nanos,
    /// Whether the first waits for what nobody can foresee, so that he is not due until it has come.
    is_blocked: bool,
    /// By how much those who charged here came later than they were due, summed up. Those behind them
    /// are later by as much, and not by their own fault.
    late: u64,
    foreseen: Foreseen,
}

#[derive(Debug)]
struct Waiter {
    cost: u64,
    waker: Option<Waker>,
    /// When it will be due and the word it will write, as foreseen.
    turn: (Nanos, u64),
}

/// The wakers when somebody has gone, to be woken and dropped with no lock held: either may run anything.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Whom to wake.
    pub(super) next: Option<Waker>,
    /// His own.
    pub(super) own: Option<Waker>,
}

/// What the turns were foreseen from, and how far they still hold.
#[derive(Debug, Default)]
struct Foreseen {
    from: Option<Known>,
    /// What slides as it will be after the turns foreseen, and was before.
    played: Spent,
    /// Turns of places before this one hold.
    until: u64,
}

/// What a newcomer would have to wait, near enough for one who is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// At most, where who is ahead comes now.
    pub(super) wait: Nanos,
    /// At least.
    pub(super) least: Nanos,
}

impl Room {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> u64 {
        self.waiters.len() as u64
    }

    /// How late everybody was who came before; see [`late_since`](Self::late_since).
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// When a charge of `cost` would be made that comes now, behind all who wait, and what it would write;
    /// `None` where it never fits.
    pub(super) fn foresee(
        &mut self,
        reading: &Reading<'_>,
        now: Nanos,
        cost: u64,
    ) -> Option<(Nanos, u64)> {
        let (instant, state) = self.foresee_until(u64::MAX, reading, now);
        let held = if self.is_empty() { reading.known.held } else { 0 };
        reading.play(&mut self.foreseen.played, state, instant, cost, held)
    }

    /// What `foresee` would say, from what was foreseen last: without playing anything through. `None` where that
    /// does not hold any more.
    pub(super) fn estimate(
        &self,
        reading: &Reading<'_>,
        now: Nanos,
        cost: u64,
    ) -> Option<Estimate> {
        let holds = self.foreseen.from == Some(reading.known)
            && self.waiters.range(self.foreseen.until..).next().is_none();
        let (_, first) = self.waiters.first_key_value().filter(|_| holds)?;
        let last = self.waiters.values().rev().find(|waiter| waiter.turn.0 != NEVER)?;
        let (instant, state) = last.turn;
        let (turn, _) = reading.turn(&self.foreseen.played, state, instant, cost, 0)?;
        // Who is late moves all behind him, by as much at most.
        let moved = self.start(now).since(first.turn.0);
        let wait = (turn + moved.into()).since(now);
        let least = if self.is_blocked { wait } else { turn.since(now) };
        Some(Estimate { wait, least })
    }

    /// From when the first may go.
    fn start(&self, now: Nanos) -> Nanos {
        // Nobody knows how long the first waits for a permit in flight; he may go at any time.
        if self.is_empty() || self.due == NEVER { now } else { now.max(self.due) }
    }

    /// When the one at `place` will be due; `None` where he never will.
    pub(super) fn turn_of(
        &mut self,
        place: u64,
        reading: &Reading<'_>,
        now: Nanos,
    ) -> Option<Nanos> {
        self.foresee_until(place + 1, reading, now);
        let turn = self.waiters.get(&place)?.turn.0;
        (turn != NEVER).then_some(turn)
    }

    /// Plays through the turns of all places before `end`; gives the last instant and the word then.
    fn foresee_until(&mut self, end: u64, reading: &Reading<'_>, now: Nanos) -> (Nanos, u64) {
        let (first, start) = (self.waiters.first_key_value(), self.start(now));
        // Who is late, or waits for another limit, moves all that was foreseen.
        let has_moved = first.is_some_and(|(_, first)| first.turn.0 < start);
        let holds = self.foreseen.from == Some(reading.known);
        if !holds || has_moved || reading.known.held > 0 {
            let played = reading.spent();
            self.foreseen = Foreseen { from: Some(reading.known_with(&played)), played, until: 0 };
        }
        let base = self.foreseen.from.map_or(0, |known| known.state.0);
        let until = self.foreseen.until.min(end);
        let known = self.waiters.range(..until).rev().map(|(_, waiter)| waiter.turn);
        let known = known.into_iter().find(|turn| turn.0 != NEVER);
        let mut held = if known.is_none() { reading.known.held } else { 0 };
        let (mut instant, mut state) = known.unwrap_or((start, base));
        for (place, waiter) in self.waiters.range_mut(until..end) {
            // Who never fits any more goes without a charge.
            let played = &mut self.foreseen.played;
            waiter.turn = match reading.play(played, state, instant, waiter.cost, held) {
                Some(turn) => {
                    (instant, state) = turn;
                    held = 0;
                    turn
                }
                None => (NEVER, state),
            };
            self.foreseen.until = place + 1;
        }
        (instant, state)
    }

    /// Takes a place at the end, with the turn that was foreseen.
    pub(super) fn join(&mut self, cost: u64, turn: (Nanos, u64)) -> u64 {
        if self.waiters.is_empty() {
            self.due = turn.0;
        }
        let place = self.next;
        self.next += 1;
        self.waiters.insert(place, Waiter { cost, waker: None, turn });
        self.foreseen.until = self.next;
        place
    }

    /// The place of the first.
    pub(super) fn first(&self) -> Option<u64> {
        self.waiters.first_key_value().map(|(first, _)| *first)
    }

    pub(super) fn is_first(&self, place: u64) -> bool {
        self.first() == Some(place)
    }

    pub(super) fn due(&self) -> Nanos {
        self.due
    }

    /// The first may not charge before this, for what is not this room's matter.
    pub(super) fn postpone(&mut self, until: Nanos) {
        (self.due, self.is_blocked) = (until, false);
    }

    /// The first may not charge until something has come that nobody can foresee.
    pub(super) fn block(&mut self) {
        (self.due, self.is_blocked) = (NEVER, true);
    }

    /// Whom to wake from now on; gives the waker it replaces.
    pub(super) fn set_waker(&mut self, place: u64, waker: &Waker) -> Option<Waker> {
        renew(&mut self.waiters.get_mut(&place)?.waker, waker)
    }

    /// By how much others have been late since the room was `late`.
    pub(super) fn late_since(&self, late: u64) -> u64 {
        self.late - late
    }

    /// By how much the first is late now.
    pub(super) fn overdue(&self, now: Nanos) -> u64 {
        now.since(self.due).get()
    }

    /// The first has charged and goes.
    pub(super) fn depart(&mut self, reading: &Reading<'_>, now: Nanos) -> Gone {
        let Some((_, gone)) = self.waiters.pop_first() else { return Gone::default() };
        self.late = self.late.saturating_add(self.overdue(now));
        let is_foreseen = gone.turn == (now, reading.known.state.0);
        let back = reading.known.state.1;
        if is_foreseen && self.foreseen.from.is_some_and(|from| from.state.1 == back) {
            // As foreseen, so what was foreseen for the others holds.
            self.foreseen.from = Some(reading.known);
            reading.let_go(&mut self.foreseen.played, now);
        }
        Gone { next: self.advance(reading, now), own: gone.waker }
    }

    /// One leaves without having charged.
    pub(super) fn leave(&mut self, place: u64, reading: &Reading<'_>, now: Nanos) -> Gone {
        let was_first = self.is_first(place);
        let Some(gone) = self.waiters.remove(&place) else { return Gone::default() };
        self.foreseen.until = self.foreseen.until.min(place);
        if !was_first {
            return Gone { next: None, own: gone.waker };
        }
        self.late = self.late.saturating_add(self.overdue(now));
        Gone { next: self.advance(reading, now), own: gone.waker }
    }

    /// There is a new first.
    fn advance(&mut self, reading: &Reading<'_>, now: Nanos) -> Option<Waker> {
        let (_, first) = self.waiters.first_key_value()?;
        self.postpone(reading.due(now, first.cost));
        self.wake_first()
    }

    fn wake_first(&mut self) -> Option<Waker> {
        self.waiters.first_entry()?.get_mut().waker.take()
    }

    /// The quota has changed, or the key was reset: all are to look again.
    pub(super) fn renew(&mut self, reading: &Reading<'_>, now: Nanos, woken: &mut Vec<Waker>) {
        let Some((_, first)) = self.waiters.first_key_value() else { return };
        let due = reading.due(now, first.cost);
        if !self.is_blocked {
            // Who was due before this, and still is, stays late: his wait is not to end for that.
            self.due = if due > now { due } else { self.due.min(due) };
        }
        self.foreseen = Foreseen::default();
        woken.extend(self.waiters.values_mut().filter_map(|waiter| waiter.waker.take()));
    }
}
