//! Slow models: exact rational arithmetic, and records of what was admitted.

use std::time::Duration;

use crate::ramps::Warming;
use tower_sluice::{Calendar, Decision, Quota};

use crate::calendar::next_edge;

/// A quota as numbers: permits, period in nanoseconds, burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) permits: u128,
    pub(crate) period: u128,
    pub(crate) burst: u128,
}

impl From<Quota> for Numbers {
    fn from(quota: Quota) -> Self {
        Self {
            permits: quota.permits().into(),
            period: quota.period().as_nanos(),
            burst: quota.max_burst().into(),
        }
    }
}

pub(crate) fn nanos(n: u128) -> Duration {
    Duration::from_nanos(n.try_into().unwrap_or(u64::MAX))
}

/// What a slow model says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) allowed: bool,
    pub(crate) remaining: u128,
    /// `None` where allowed, and where no waiting helps.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
}

impl Expected {
    pub(crate) fn of(decision: &Decision) -> Self {
        Self {
            allowed: decision.is_allowed(),
            remaining: decision.remaining().into(),
            retry_after: decision.retry_after(),
            reset_after: decision.reset_after(),
        }
    }
}

/// A token bucket: its level as a multiple of `1 / period` of a token, so that nothing is rounded.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    numbers: Numbers,
    level: u128,
    at: u128,
}

impl Bucket {
    pub(crate) fn new(quota: Quota, now: u64) -> Self {
        let numbers = Numbers::from(quota);
        Self { numbers, level: numbers.burst * numbers.period, at: now.into() }
    }

    /// The level now. Time that went backwards stands still.
    fn level(&self, now: u64) -> u128 {
        let gained = u128::from(now).saturating_sub(self.at) * self.numbers.permits;
        (self.level + gained).min(self.numbers.burst * self.numbers.period)
    }

    pub(crate) fn peek(&self, now: u64, cost: u64, held: u64) -> Expected {
        let Numbers { permits, period, burst } = self.numbers;
        let (level, cost) = (self.level(now), u128::from(cost));
        let (free, wanted) = (level.saturating_sub(u128::from(held) * period), cost * period);
        let allowed = cost == 0 || wanted <= free;
        Expected {
            allowed,
            remaining: free / period,
            retry_after: (!allowed && cost <= burst)
                .then(|| nanos((wanted - free).div_ceil(permits))),
            reset_after: nanos((burst * period - level).div_ceil(permits)),
        }
    }

    /// Charges what was admitted; `false` where the bucket does not hold that much.
    pub(crate) fn charge(&mut self, now: u64, cost: u64) -> bool {
        let (level, wanted) = (self.level(now), u128::from(cost) * self.numbers.period);
        self.at = self.at.max(now.into());
        self.level = level.saturating_sub(wanted);
        wanted <= level
    }
}

/// Where windows start and end; the last two with the UTC of the clock's zero.
#[derive(Clone, Copy, Debug)]
enum Edges {
    FirstRequest,
    Aligned(u128),
    Calendar(Calendar, u128),
}

/// A fixed window: when it ends and what is spent in it.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    numbers: Numbers,
    edges: Edges,
    end: u128,
    spent: u128,
}

impl Window {
    pub(crate) fn new(quota: Quota, aligned: Option<Duration>) -> Self {
        let edges = aligned.map_or(Edges::FirstRequest, |utc| Edges::Aligned(utc.as_nanos()));
        Self { numbers: quota.into(), edges, end: 0, spent: 0 }
    }

    pub(crate) fn calendar(quota: Quota, calendar: Calendar, utc_at_zero: Duration) -> Self {
        let edges = Edges::Calendar(calendar, utc_at_zero.as_nanos());
        Self { edges, ..Self::new(quota, None) }
    }

    /// Puts another limit in force. What is spent stays spent; says whether the window has ended, which then is
    /// forgotten.
    pub(crate) fn settle(&mut self, now: u64, quota: Quota) -> bool {
        self.numbers = quota.into();
        let ended = self.end <= now.into();
        if ended {
            self.spent = 0;
        }
        ended
    }

    /// The window that a request at `now` falls into: its end and what is spent in it.
    fn window(&self, now: u64) -> (u128, u128) {
        let now = u128::from(now);
        if self.spent > 0 && now < self.end {
            return (self.end, self.spent);
        }
        let end = match self.edges {
            Edges::FirstRequest => now + self.numbers.period,
            Edges::Aligned(utc) => {
                ((utc + now) / self.numbers.period + 1) * self.numbers.period - utc
            }
            Edges::Calendar(calendar, utc) => next_edge(calendar, utc + now) - utc,
        };
        (end, 0)
    }

    pub(crate) fn peek(&self, now: u64, cost: u64, held: u64) -> Expected {
        let (end, spent) = self.window(now);
        let (limit, cost) = (self.numbers.permits, u128::from(cost));
        let free = limit.saturating_sub(spent + u128::from(held));
        let end = nanos(end - u128::from(now));
        let allowed = cost == 0 || cost <= free;
        Expected {
            allowed,
            remaining: free,
            retry_after: (!allowed && cost <= limit).then_some(end),
            reset_after: if spent == 0 { Duration::ZERO } else { end },
        }
    }

    /// Charges what was admitted; `false` where the window does not hold that much.
    pub(crate) fn charge(&mut self, now: u64, cost: u64) -> bool {
        let (end, spent) = self.window(now);
        if cost > 0 {
            (self.end, self.spent) = (end, spent + u128::from(cost));
        }
        cost == 0 || self.spent <= self.numbers.permits
    }
}

/// What slides: what was admitted, each with the instant at which its window begins: its own, or the end of its
/// cell where there are cells.
#[derive(Clone, Debug)]
pub(crate) struct Slide {
    numbers: Numbers,
    cells: u128,
    admitted: Vec<(u128, u128)>,
}

impl Slide {
    /// Of so many cells; zero for a log.
    pub(crate) fn new(quota: Quota, cells: u128) -> Self {
        Self { numbers: quota.into(), cells, admitted: Vec::new() }
    }

    /// Puts another quota in force.
    pub(crate) fn set(&mut self, quota: Quota) {
        self.numbers = quota.into();
    }

    /// Lets go of what counts no more.
    pub(crate) fn forget(&mut self, now: u64) {
        let period = self.numbers.period;
        self.admitted.retain(|(begin, _)| begin + period > now.into());
    }

    fn ends(&self) -> impl Iterator<Item = (u128, u128)> {
        self.admitted.iter().map(|(begin, cost)| (begin + self.numbers.period, *cost))
    }

    fn count(&self, now: u128) -> u128 {
        self.ends().filter(|(end, _)| *end > now).map(|(_, cost)| cost).sum()
    }

    pub(crate) fn peek(&self, now: u64, cost: u64, held: u64) -> Expected {
        let (limit, cost, now) = (self.numbers.permits, u128::from(cost), u128::from(now));
        let free = limit.saturating_sub(self.count(now) + u128::from(held));
        let allowed = cost == 0 || cost <= free;
        let mut later: Vec<u128> =
            self.ends().map(|(end, _)| end).filter(|end| *end > now).collect();
        later.sort_unstable();
        // Where holds alone are in the way, nobody knows when they end.
        let fits = later.iter().find(|end| self.count(**end) + cost <= limit);
        let fits = fits.map_or(now + 1, |end| *end);
        Expected {
            allowed,
            remaining: free,
            retry_after: (!allowed && cost <= limit).then(|| nanos(fits - now)),
            reset_after: nanos(later.last().map_or(0, |end| end - now)),
        }
    }

    /// Charges what was admitted; `false` where that is too much.
    pub(crate) fn charge(&mut self, now: u64, cost: u64) -> bool {
        let (now, cost) = (u128::from(now), u128::from(cost));
        let fits = self.count(now) + cost <= self.numbers.permits;
        let begin = match self.cells {
            0 => now,
            cells => {
                let cell = self.numbers.period.div_ceil(cells);
                now - now % cell + cell
            }
        };
        if cost > 0 {
            // A clock that went back, or a cell that was longer: nothing begins before what came before it.
            let last = self.admitted.last().map_or(0, |(last, _)| *last);
            self.admitted.push((begin.max(last), cost));
        }
        cost == 0 || fits
    }
}

/// Any of them.
#[derive(Clone, Debug)]
pub(crate) enum Model {
    Bucket(Bucket),
    Slide(Slide),
    Warming(Warming),
    Window(Window),
}

impl Model {
    /// Whether it is as good as one that was never asked, which is `fresh`, and will be.
    pub(crate) fn is_as_good_as(&self, fresh: &Self, now: u64) -> bool {
        match (self, fresh) {
            (Self::Warming(warming), Self::Warming(fresh)) => warming.is_as_good_as(fresh, now),
            _ => self.peek(now, 0) == fresh.peek(now, 0),
        }
    }

    pub(crate) fn peek(&self, now: u64, cost: u64) -> Expected {
        self.peek_beside(now, cost, 0)
    }

    /// What a request gets while others hold permits. The times of a refusal are right without holds.
    pub(crate) fn peek_beside(&self, now: u64, cost: u64, held: u64) -> Expected {
        match self {
            Self::Bucket(bucket) => bucket.peek(now, cost, held),
            Self::Slide(slide) => slide.peek(now, cost, held),
            Self::Warming(warming) => warming.peek(now, cost, held),
            Self::Window(window) => window.peek(now, cost, held),
        }
    }

    pub(crate) fn charge(&mut self, now: u64, cost: u64) -> bool {
        match self {
            Self::Bucket(bucket) => bucket.charge(now, cost),
            Self::Slide(slide) => slide.charge(now, cost),
            Self::Warming(warming) => warming.charge(now, cost),
            Self::Window(window) => window.charge(now, cost),
        }
    }
}

/// What was admitted, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Vec<(u64, u64)>);

impl Record {
    pub(crate) fn admitted(&mut self, now: u64, cost: u64) {
        self.0.push((now, cost));
    }

    /// The first interval, if there is one, in which more was admitted than burst + rate x length.
    /// Every interval that starts and ends at an admission is looked at.
    pub(crate) fn broken_interval(&self, quota: Quota) -> Option<(u64, u64)> {
        let Numbers { permits, period, burst } = quota.into();
        let starts = || self.0.iter().map(|(at, _)| *at);
        starts().flat_map(|from| starts().map(move |to| (from, to))).find(|(from, to)| {
            let inside = self.0.iter().filter(|(at, _)| (from..=to).contains(&at));
            let sum: u128 = inside.map(|(_, cost)| u128::from(*cost)).sum();
            from <= to && sum * period > burst * period + permits * u128::from(to - from)
        })
    }
}
