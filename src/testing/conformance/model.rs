//! [`Model`]: what each algorithm says, worked out from its definition and all that was admitted.
//!
//! It shares nothing with the machines of `src/algorithm/`, and takes the slow way everywhere: whatever is asked, it
//! plays the whole history through.

use crate::{Algorithm, Calendar};

/// One algorithm with its quota; times in nanoseconds of the limiter's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    kind: Kind,
    permits: u128,
    pub(super) period: u64,
    pub(super) limit: u64,
    /// UTC at the clock's zero.
    utc: u64,
    tick: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Bucket,
    /// A window that begins with a request.
    Opened,
    Aligned,
    Calendar(Calendar),
    /// What is admitted counts from the end of its cell on; a log has cells of no length.
    Sliding {
        cell: u64,
    },
}

/// All that one key was admitted, oldest first: when, and how many permits.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Vec<(u64, u64)>);

/// What a charge must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Allowed,
    /// With the wait, in whole ticks.
    Denied(u64),
    Never,
}

pub(super) const DAY: u64 = 86_400_000_000_000;

impl Model {
    pub(super) fn new(algorithm: &Algorithm, utc: u64, tick: u64) -> Self {
        let quota = algorithm.quota();
        let period = u64::try_from(quota.period().as_nanos()).unwrap_or(u64::MAX);
        let (kind, limit) = match algorithm {
            Algorithm::TokenBucket(_) => (Kind::Bucket, quota.max_burst()),
            Algorithm::LeakyBucket(_) => (Kind::Bucket, 1),
            Algorithm::FixedWindow(window) => {
                let kind = match window.calendar_unit() {
                    Some(calendar) => Kind::Calendar(calendar),
                    None if window.is_aligned() => Kind::Aligned,
                    None => Kind::Opened,
                };
                (kind, quota.permits())
            }
            Algorithm::SlidingWindow(_) => {
                (Kind::Sliding { cell: period.div_ceil(10) }, quota.permits())
            }
            Algorithm::SlidingLog(_) => (Kind::Sliding { cell: 0 }, quota.permits()),
        };
        Self { kind, permits: quota.permits().into(), period, limit, utc, tick }
    }

    /// A time after which everything is back.
    pub(super) fn whole(&self) -> u64 {
        let refill = u128::from(self.limit) * u128::from(self.period) / self.permits.max(1);
        let whole = refill.max(self.period.into()) * 2;
        // Leaves room for instants beyond.
        let whole = u64::try_from(whole).map_or(u64::MAX / 4, |whole| whole.min(u64::MAX / 4));
        whole.next_multiple_of(self.tick)
    }

    /// Permits that can be spent at `now`.
    pub(super) fn free(&self, history: &History, now: u64) -> u64 {
        let counted = |counts: &dyn Fn(u64) -> bool| {
            let counted = history.0.iter().filter(|(at, _)| counts(*at)).map(|(_, cost)| *cost);
            self.limit.saturating_sub(counted.sum())
        };
        match self.kind {
            // At most the limit.
            Kind::Bucket => u64::try_from(self.level(history, now) / self.period()).unwrap_or(0),
            Kind::Opened => match self.opened(history, now) {
                Some((_, spent)) => self.limit.saturating_sub(spent),
                None => self.limit,
            },
            Kind::Aligned | Kind::Calendar(_) => {
                let end = self.end(now);
                counted(&|at| self.end(at) == end)
            }
            Kind::Sliding { .. } => counted(&|at| now < self.over(at)),
        }
    }

    pub(super) fn decide(&self, history: &History, now: u64, cost: u64) -> Expected {
        if cost <= self.free(history, now) {
            return Expected::Allowed;
        }
        if cost > self.limit {
            return Expected::Never;
        }
        let wait = match self.kind {
            Kind::Bucket => {
                let lacking = u128::from(cost) * self.period() - self.level(history, now);
                u64::try_from(lacking.div_ceil(self.permits)).unwrap_or(u64::MAX)
            }
            Kind::Opened => {
                let opened = self.opened(history, now);
                let end = opened.map_or(now, |(start, _)| start.saturating_add(self.period));
                end - now
            }
            Kind::Aligned | Kind::Calendar(_) => self.end(now) - now,
            Kind::Sliding { .. } => {
                let ends = history.0.iter().map(|(at, _)| self.over(*at));
                let fits = |end: &u64| *end > now && self.free(history, *end) >= cost;
                ends.filter(fits).min().map_or(0, |end| end - now)
            }
        };
        Expected::Denied(wait.next_multiple_of(self.tick))
    }

    /// Spends all that can be spent.
    pub(super) fn drain(&self, history: &mut History, now: u64) -> u64 {
        let free = self.free(history, now);
        history.spend(now, free);
        free
    }

    /// The end of the window that `now` lies in, where windows are the same for all keys.
    pub(super) fn end(&self, now: u64) -> u64 {
        let utc = u128::from(now) + u128::from(self.utc);
        let every = |length: u64, first: u64| {
            let length = u128::from(length);
            ((utc + u128::from(first)) / length + 1) * length - u128::from(first)
        };
        let end = match self.kind {
            Kind::Calendar(Calendar::Day) => every(DAY, 0),
            // The first of January 1970 was a Thursday, three days after a Monday.
            Kind::Calendar(Calendar::IsoWeek) => every(7 * DAY, 3 * DAY),
            Kind::Calendar(Calendar::Month) => month_end(utc),
            _ => every(self.period, 0),
        };
        u64::try_from(end - u128::from(self.utc)).unwrap_or(u64::MAX)
    }

    /// A wait in whole ticks, rounded up.
    pub(super) fn ticks_up(&self, wait: u128) -> u128 {
        wait.next_multiple_of(self.tick.into())
    }

    fn period(&self) -> u128 {
        self.period.into()
    }

    /// What is in a bucket: a permit is as many units as the period has nanoseconds.
    fn level(&self, history: &History, now: u64) -> u128 {
        let full = u128::from(self.limit) * self.period();
        let (mut level, mut last) = (full, 0);
        for (at, cost) in history.0.iter().copied().chain([(now, 0)]) {
            level = full.min(level + u128::from(at.saturating_sub(last)) * self.permits);
            level = level.saturating_sub(u128::from(cost) * self.period());
            last = at;
        }
        level
    }

    /// Where a key's window began that is under way, and what is spent in it.
    fn opened(&self, history: &History, now: u64) -> Option<(u64, u64)> {
        let mut window: Option<(u64, u64)> = None;
        for (at, cost) in &history.0 {
            match &mut window {
                Some((start, spent)) if *at < start.saturating_add(self.period) => *spent += cost,
                _ => window = Some((*at, *cost)),
            }
        }
        window.filter(|(start, _)| now < start.saturating_add(self.period))
    }

    /// When what was admitted counts no more, where the window slides.
    fn over(&self, at: u64) -> u64 {
        let stamp = match self.kind {
            Kind::Sliding { cell } if cell > 0 => (at / cell + 1) * cell,
            _ => at,
        };
        stamp.saturating_add(self.period)
    }
}

impl History {
    /// Notes what was admitted.
    pub(super) fn spend(&mut self, at: u64, cost: u64) {
        if cost > 0 {
            self.0.push((at, cost));
        }
    }
}

/// The end of the month that `utc` lies in, by counting months from January 1970 on.
fn month_end(utc: u128) -> u128 {
    let (mut year, mut month, mut end) = (1970_u32, 0, 0_u128);
    loop {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if is_leap { 29 } else { 28 };
        let days = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month];
        end += days * u128::from(DAY);
        if utc < end {
            return end;
        }
        (year, month) = if month == 11 { (year + 1, 0) } else { (year, month + 1) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{FixedWindow, SlidingLog, SlidingWindow, TokenBucket};

    const S: u64 = 1_000_000_000;

    fn model(algorithm: impl Into<Algorithm>) -> Model {
        Model::new(&algorithm.into(), 0, 1)
    }

    /// The numbers of the page on algorithms, asked by hand.
    #[test]
    fn the_model_says_what_the_guide_draws() {
        let ten = Duration::from_secs(10);
        let mut spent = History::default();
        let bucket = model(TokenBucket::new(10, ten));
        assert_eq!(bucket.drain(&mut spent, 0), 10);
        assert_eq!(bucket.decide(&spent, 0, 2), Expected::Denied(2 * S));
        assert_eq!(bucket.free(&spent, 100 * S), 10);

        let window = model(FixedWindow::new(10, ten));
        let mut spent = History::default();
        spent.spend(S, 1);
        assert_eq!(window.drain(&mut spent, 10 * S), 9);
        assert_eq!(window.decide(&spent, 10 * S, 1), Expected::Denied(S));
        assert_eq!(window.drain(&mut spent, 11 * S), 10);

        let log = model(SlidingLog::new(2, ten));
        let mut spent = History::default();
        spent.spend(S, 1);
        spent.spend(3 * S, 1);
        assert_eq!(log.decide(&spent, 4 * S, 1), Expected::Denied(7 * S));
        assert_eq!(log.decide(&spent, 4 * S, 2), Expected::Denied(9 * S));
        // By cells of a second each.
        let cells = model(SlidingWindow::new(2, ten));
        assert_eq!(cells.decide(&spent, 4 * S, 1), Expected::Denied(8 * S));
        assert_eq!(cells.decide(&spent, 4 * S, 3), Expected::Never);
    }

    #[test]
    fn the_model_knows_the_calendar() {
        let day = |n: u64| n * DAY;
        let month = model(FixedWindow::calendar(1, Calendar::Month));
        // 2024-02-29 and 2100-02-28, the last days of their months.
        assert_eq!(month.end(day(19_782)), day(19_783));
        assert_eq!(month.end(day(19_754)), day(19_783));
        assert_eq!(month.end(day(47_540)), day(47_541));
        let week = model(FixedWindow::calendar(1, Calendar::IsoWeek));
        // 1970-01-04 was a Sunday.
        assert_eq!(week.end(day(3)), day(4));
        assert_eq!(week.end(day(4)), day(11));
    }
}
