//! [`Machine`] and [`Spent`]: at most so many in any stretch of time as long as the window.
//!
//! [`SlidingLog`](super::SlidingLog) and [`SlidingWindow`](super::SlidingWindow) are one algorithm. What is admitted
//! gets a *stamp* and counts until the window has passed since. In a log the stamp is the instant; in a window of
//! cells it is the end of the cell that the instant lies in, so that there are few stamps, and whoever shares one
//! counts a little longer.
//!
//! Sums are kept instead of costs: an entry holds how many permits had been admitted by its stamp since the key
//! was first seen. What counts is one subtraction; what will count at a later instant is one search.

use std::collections::VecDeque;

use super::{Epoch, WarmUp, Warming, check_no_burst, wait_until};
use crate::{ConfigError, Decision, Quota, clock::Nanos, decision::Level};

/// A quota compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(super) limit: u64,
    /// In nanoseconds.
    pub(super) window: u64,
    /// The length of a cell; zero where there are none.
    pub(super) cell: u64,
    pub(crate) warming: Option<Warming>,
}

/// Some permits that were admitted together.
#[derive(Clone, Copy, Debug)]
struct Entry {
    stamp: u64,
    /// All that were admitted up to here.
    sum: u64,
}

/// What a key has been admitted, and what of it counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    /// By stamp, oldest first. Their sums only grow.
    entries: VecDeque<Entry>,
    /// When the cell began that the last stamp is the end of, if it is one of the quota in force.
    opened: u64,
    /// When something was admitted last.
    latest: Nanos,
    /// All that was ever admitted.
    admitted: u64,
    /// How much of that counts no more.
    expired: u64,
    /// How much was taken back: with `admitted`, tells one state from another.
    returned: u64,
}

/// No instant.
const NEVER: u64 = u64::MAX;

impl Machine {
    /// For a window of so many cells, or a log.
    pub(super) fn compile(
        quota: Quota,
        cells: u64,
        warm_up: Option<WarmUp>,
        epoch: Epoch,
    ) -> Result<Self, ConfigError> {
        let (limit, window) = check_no_burst(quota)?;
        if limit > window {
            let reason = "must be at most one per nanosecond (10^9 a second)";
            return Err(ConfigError::new("permits", limit, reason));
        }
        // None for a log.
        let cell = if cells == 0 { 0 } else { window.div_ceil(cells) };
        let refill = u128::from(window) + u128::from(cell);
        let warming = warm_up.map_or(Ok(None), |warm_up| warm_up.compile(refill, epoch))?;
        Ok(Self { limit, window, cell, warming })
    }

    /// The same on a ramp.
    pub(crate) fn on(self, warming: Warming) -> Self {
        Self { warming: Some(warming), ..self }
    }

    /// The same in place of `old`: a ramp goes on.
    pub(crate) fn succeeding(self, old: &Self) -> Self {
        Self { warming: old.warming, ..self }
    }

    #[inline]
    fn limit_at(&self, now: Nanos) -> u64 {
        match &self.warming {
            None => self.limit,
            Some(warming) => warming.scaled(self.limit, now),
        }
    }

    /// The first instant from `now` at which the limit is at least `needed`, which is at most the limit.
    fn reaches(&self, needed: u64, now: Nanos) -> Nanos {
        self.warming.map_or(now, |warming| warming.reaches(self.limit, needed, now))
    }

    #[inline]
    fn stamp(&self, now: Nanos) -> u64 {
        let now = now.get();
        if self.cell == 0 { now } else { (now - now % self.cell).saturating_add(self.cell) }
    }

    /// Whether what has this stamp counts no more. By its age: at the end of a clock's time there is no end to it.
    #[inline]
    fn is_over(&self, stamp: u64, now: Nanos) -> bool {
        now.get().checked_sub(stamp).is_some_and(|age| age >= self.window)
    }

    /// The first instant at which what has this stamp counts no more.
    #[inline]
    fn end(&self, stamp: u64) -> u64 {
        stamp.saturating_add(self.window)
    }
}

impl Spent {
    /// Continues where an earlier record of the same key ended, so that no two of its charges are alike.
    pub(crate) fn after(admitted: u64) -> Self {
        Self { admitted, expired: admitted, ..Self::default() }
    }

    /// All that was ever admitted.
    pub(crate) fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Tells one state from another: what was admitted, and what of it taken back.
    pub(crate) fn mark(&self) -> (u64, u64) {
        (self.admitted, self.returned)
    }

    /// Permits that count at `now`.
    fn count(&self, machine: &Machine, now: Nanos) -> u64 {
        let over = self.entries.iter().take_while(|entry| machine.is_over(entry.stamp, now));
        self.admitted - over.last().map_or(self.expired, |entry| entry.sum)
    }

    /// Whether a key that is so is as good as one never seen, from now on.
    pub(crate) fn is_idle(&self, machine: &Machine, now: Nanos) -> bool {
        self.idle_at(machine) <= now
    }

    /// From when on it is.
    pub(crate) fn idle_at(&self, machine: &Machine) -> Nanos {
        self.entries.back().map_or(Nanos::ZERO, |last| Nanos::new(machine.end(last.stamp)))
    }

    /// Lets go of what counts no more.
    #[inline]
    pub(crate) fn expire(&mut self, machine: &Machine, now: Nanos) {
        while let Some(first) = self.entries.front()
            && machine.is_over(first.stamp, now)
        {
            self.expired = first.sum;
            self.entries.pop_front();
        }
    }

    /// Charges `cost`, at least 1, with `held` permits set aside by others; gives all that was admitted then, or
    /// `None` where it does not fit.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        machine: &Machine,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Option<u64> {
        let needed = self.count(machine, now).saturating_add(held).saturating_add(cost);
        if needed > machine.limit_at(now) {
            return None;
        }
        self.expire(machine, now);
        Some(self.admit(machine, now, cost))
    }

    /// Charges `cost` whether it fits or not, since what was held was counted when it was set aside; gives all that
    /// was admitted then.
    pub(crate) fn force(&mut self, machine: &Machine, now: Nanos, cost: u64) -> u64 {
        self.expire(machine, now);
        self.admit(machine, now, cost)
    }

    #[inline]
    fn admit(&mut self, machine: &Machine, now: Nanos, cost: u64) -> u64 {
        self.admitted = self.admitted.saturating_add(cost);
        self.latest = self.latest.max(now);
        match self.entries.back_mut() {
            // Spares the division where it is the same cell.
            Some(last) if self.opened <= now.get() && now.get() < last.stamp => {
                last.sum = self.admitted;
            }
            _ => self.stamp(machine, now),
        }
        self.admitted
    }

    /// Puts a stamp on what was admitted last. A clock that went back counts as if it had stayed.
    fn stamp(&mut self, machine: &Machine, now: Nanos) {
        let (stamp, sum) = (machine.stamp(now), self.admitted);
        match self.entries.back_mut() {
            Some(last) if stamp <= last.stamp => last.sum = sum,
            _ => {
                self.opened = stamp - machine.cell;
                self.entries.push_back(Entry { stamp, sum });
            }
        }
    }

    /// Another quota is in force, whose cells are others.
    pub(crate) fn renew(&mut self, old: &Machine, now: Nanos) {
        self.expire(old, now);
        self.opened = NEVER;
    }

    /// Takes back the charge that made what was admitted `new` of `old`, if it is the last; else it stays spent.
    pub(crate) fn undo(&mut self, old: u64, new: u64) -> bool {
        if new != self.admitted || old < self.expired {
            return false;
        }
        self.admitted = old;
        self.returned += new - old;
        let Some(last) = self.entries.pop_back() else { return true };
        if self.entries.back().map_or(self.expired, |before| before.sum) < old {
            self.entries.push_back(Entry { sum: old, ..last });
        } else {
            self.opened = NEVER;
        }
        true
    }

    /// Forgets all; says whether anything counted.
    pub(crate) fn reset(&mut self, machine: &Machine, now: Nanos) -> bool {
        let known = self.count(machine, now) > 0;
        self.entries.clear();
        self.returned += self.admitted - self.expired;
        self.expired = self.admitted;
        known
    }

    /// The first instant from `from` at which a charge fits that comes after `admitted` permits; `None` where it
    /// never will. Where holds are in the way, of which nobody knows when they end, as if there were none.
    fn fits_from(
        &self,
        machine: &Machine,
        admitted: u64,
        from: Nanos,
        cost: u64,
        held: u64,
    ) -> Option<Nanos> {
        let taken = held.checked_add(cost).filter(|taken| *taken <= machine.limit);
        let taken = taken.or_else(|| (cost <= machine.limit).then_some(cost))?;
        let asked = admitted.saturating_add(taken);
        // What must have expired where the limit is whole.
        let least = asked.saturating_sub(machine.limit);
        let skipped = self.entries.partition_point(|entry| entry.sum < least);
        // What was played through after these permits is not there yet.
        let there = self.entries.partition_point(|entry| entry.sum <= admitted);
        let end = |i: usize| Nanos::new(machine.end(self.entries[i].stamp)).max(from);
        let grown = |expired| machine.reaches(asked.saturating_sub(expired), from);
        let at_once = (self.expired >= least).then(|| grown(self.expired));
        // The more has expired, the less the limit must have grown: the first whose end comes after that.
        let (mut low, mut high) =
            (skipped, if machine.warming.is_some() { there } else { skipped });
        while low < high {
            let middle = low + (high - low) / 2;
            if end(middle) >= grown(self.entries[middle].sum) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let before = (skipped < low).then(|| grown(self.entries[low - 1].sum));
        let after = (low < there).then(|| end(low));
        [at_once, before, after].into_iter().flatten().min()
    }

    /// What a charge of `cost` would get.
    pub(crate) fn decide(&self, machine: &Machine, now: Nanos, cost: u64, held: u64) -> Decision {
        let limit = machine.limit_at(now);
        let spent = self.count(machine, now).saturating_add(held);
        let left = limit.saturating_sub(spent);
        // A clock that went back reads as if it had stayed: no wait is longer than a window and a cell.
        let present = now.max(self.latest);
        let until = |instant: Nanos| wait_until(instant.get().into(), present);
        let whole = match &machine.warming {
            Some(warming) if limit < machine.limit => warming.end().since(now),
            _ => Nanos::ZERO,
        };
        let expires = self.idle_at(machine);
        let reset_after = if expires > now { until(expires) } else { Nanos::ZERO }.max(whole);
        let level = Level { capacity: machine.limit, left, unit: 1, reset_after };
        if cost == 0 || cost <= left {
            return level.allowed();
        }
        match self.fits_from(machine, self.admitted, now, cost, held) {
            Some(instant) => level.denied(until(instant)),
            None => level.never(),
        }
    }

    /// Plays through a charge that nobody has made yet, after `admitted` permits: when it will fit, and what will
    /// have been admitted then. Nothing of what expires meanwhile is let go of, so that a turn before this one can be
    /// played anew.
    pub(crate) fn play(
        &mut self,
        machine: &Machine,
        admitted: u64,
        from: Nanos,
        cost: u64,
        held: u64,
    ) -> Option<(Nanos, u64)> {
        let turn = self.turn(machine, admitted, from, cost, held)?;
        while self.entries.back().is_some_and(|last| last.sum > admitted) {
            self.entries.pop_back();
        }
        // An entry of its own even where it shares its stamp, to be taken off again alone.
        let last = self.entries.back().map_or(0, |last| last.stamp);
        self.entries.push_back(Entry { stamp: machine.stamp(turn.0).max(last), sum: turn.1 });
        self.admitted = turn.1;
        Some(turn)
    }

    /// The same, to know the turn alone.
    pub(crate) fn turn(
        &self,
        machine: &Machine,
        admitted: u64,
        from: Nanos,
        cost: u64,
        held: u64,
    ) -> Option<(Nanos, u64)> {
        let instant = self.fits_from(machine, admitted, from, cost, held)?;
        Some((instant, admitted.saturating_add(cost)))
    }
}
