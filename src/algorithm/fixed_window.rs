//! [`FixedWindow`]: at most so many per window.
//!
//! **Definition.** Windows of one length follow each other; in each, at most `limit` permits are spent.
//! A key's window starts at its first request and ends `window` later, the next request starts the next
//! one; or windows are *aligned*: they start at multiples of their length in UTC, for all keys; or they are
//! the days, weeks or months of the [`Calendar`].
//!
//! **State.** One word: when the window started, and how many permits are spent in it. Aligned windows and
//! those of the calendar are numbered, months from January 1970 on.
//!
//! **Promise.** At most `limit` per window, hence up to `2 x limit` across an edge: the whole limit at
//! the end of one window and again at the start of the next. Where that matters take a
//! [`TokenBucket`](super::TokenBucket).
//!
//! **`retry_after`** is the end of the window.
//!
//! **Resolution.** Start and count share the word, and starts are counted from a base that moves on once
//! in half a day or more; where windows are numbered it stays. Windows that have ended by then, or when the
//! limit changes, are forgotten, even by a clock that goes back to them, and an undo across the move burns.
//! What is left for the start is exact to the nanosecond up to a limit of some 16,000 in at most six hours, and
//! where windows are numbered always; above that the start of a window that begins with a request is rounded down,
//! to 64 ns for a limit of a million. A window is never longer than said. A limit that would make this coarser than
//! 1/64 of the window is refused when the rule is built.
//!
//! **Bytes per key:** 8, and 8 for the key's hash.

use std::time::Duration;

use super::{
    Epoch, MACHINE_WORDS, STATE_BITS, Step, WarmUp,
    calendar::{self, Calendar},
    check_no_burst, wait_until,
};
use crate::{ConfigError, Decision, Quota, clock::Nanos, decision::Level};

/// A fixed window: at most `limit` permits in each.
///
/// Drawn and compared with the others: [`guide::algorithms`](crate::guide::algorithms). The count lives in this
/// process, from its start to its end: see [restarts and instances](crate::guide::algorithms#restarts-and-instances).
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{Calendar, FixedWindow};
///
/// let per_user = FixedWindow::new(1_000, Duration::from_secs(3_600));
/// let per_day = FixedWindow::per_day(10_000).aligned();
/// let per_month = FixedWindow::calendar(100_000, Calendar::Month);
/// # let _ = (per_user, per_day, per_month);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct FixedWindow {
    quota: Quota,
    edges: Edges,
    warm_up: Option<WarmUp>,
}

/// Where windows start and end, as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Edges {
    FirstRequest,
    Aligned,
    Calendar(Calendar),
}

impl FixedWindow {
    /// `limit` permits per `window`, which starts at a key's first request.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self { quota: Quota::new(limit, window), edges: Edges::FirstRequest, warm_up: None }
    }

    per_period!("So many permits per");

    /// `limit` permits per day, week or month of the calendar, in UTC.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{Calendar, FixedWindow, ManualClock};
    ///
    /// let day = Duration::from_secs(86_400);
    /// // 2024-01-31, 18:00 UTC.
    /// let clock = ManualClock::with_utc(day * 19_753 + day * 3 / 4);
    /// let plan = FixedWindow::calendar(10_000, Calendar::Month);
    /// let plan = plan.keyed_limiter().clock(clock.clone()).build()?;
    /// assert!(plan.try_acquire_many("customer", 10_000).is_allowed());
    /// assert_eq!(plan.try_acquire("customer").retry_after(), Some(day / 4));
    ///
    /// // It is the first of February, and a leap year: the next is 29 days away.
    /// clock.advance(day / 4);
    /// assert!(plan.try_acquire_many("customer", 10_000).is_allowed());
    /// assert_eq!(plan.try_acquire("customer").retry_after(), Some(day * 29));
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    ///
    /// At worst `2 x limit` passes within an instant: the whole limit just before the edge and again just after it.
    /// And all keys start anew at the same instant, where clients that wait come back together.
    ///
    /// The [`period`](Quota::period) of its quota is [`Calendar::period`], which for a month is the longest one's,
    /// 31 days. A window of the calendar stays one: a quota with another period, put in force while it
    /// counts, is an error that names the field `period`.
    ///
    /// ```
    /// # use tower_sluice::{Calendar, FixedWindow, Quota};
    /// let plan = FixedWindow::calendar(10_000, Calendar::Month).limiter().build()?;
    /// plan.set_limit(FixedWindow::calendar(20_000, Calendar::Month).quota())?;
    /// assert_eq!(plan.set_limit(Quota::per_day(20_000)).unwrap_err().field(), "period");
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    ///
    /// Zones other than UTC, and with them daylight saving, are not offered: tables of zones are out of date within
    /// months. A window reads two numbers, the clock's time and the UTC of its zero. So processes whose wall clocks
    /// agreed when they started agree on every edge, and a wall clock that is set later moves none.
    pub const fn calendar(limit: u64, calendar: Calendar) -> Self {
        Self { edges: Edges::Calendar(calendar), ..Self::new(limit, calendar.period()) }
    }

    /// Starts windows at multiples of their length in UTC instead of at a key's first request.
    ///
    /// All keys then start anew at the same instant, and clients that wait come back together. It changes
    /// nothing where windows are those of the [calendar](Self::calendar).
    pub const fn aligned(self) -> Self {
        match self.edges {
            Edges::FirstRequest | Edges::Aligned => Self { edges: Edges::Aligned, ..self },
            Edges::Calendar(_) => self,
        }
    }

    /// Lets the limit grow to its own after a start. Default: it is whole at once.
    pub const fn warm_up(self, warm_up: WarmUp) -> Self {
        Self { warm_up: Some(warm_up), ..self }
    }

    /// Limit and window as a quota; its burst is the limit. Its period is the window's length, and the
    /// longest one's where the calendar's [months](Calendar::Month) differ.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Whether windows start at multiples of their length, or as the calendar has it, for all keys alike.
    #[must_use]
    pub const fn is_aligned(&self) -> bool {
        !matches!(self.edges, Edges::FirstRequest)
    }

    /// Whose windows these are, if they are the calendar's.
    #[must_use]
    pub const fn calendar_unit(&self) -> Option<Calendar> {
        match self.edges {
            Edges::Calendar(calendar) => Some(calendar),
            Edges::FirstRequest | Edges::Aligned => None,
        }
    }

    pub(super) const fn ramp(&self) -> Option<WarmUp> {
        self.warm_up
    }

    pub(crate) fn with_quota(self, quota: Quota) -> Self {
        Self { quota: quota.windowed(), ..self }
    }

    /// The limit times `factor`.
    pub(crate) fn relaxed(&self, factor: u64) -> Result<Quota, ConfigError> {
        self.check_period()?;
        self.quota.relaxed(factor)
    }

    fn check_period(&self) -> Result<(), ConfigError> {
        match self.edges {
            Edges::Calendar(calendar) if self.quota.period() != calendar.period() => {
                let reason = format!("must be {:?}, as the calendar has it", calendar.period());
                Err(ConfigError::new("period", format!("{:?}", self.quota.period()), reason))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn compile(&self, epoch: Epoch) -> Result<Machine, ConfigError> {
        let (limit, window) = check_no_burst(self.quota)?;
        self.check_period()?;
        let (starts, base) = match self.edges {
            Edges::FirstRequest => {
                if window.checked_mul(4).is_none() {
                    let period = format!("{:?}", self.quota.period());
                    return Err(ConfigError::new("period", period, "must be at most 146 years"));
                }
                (Starts::Grains, epoch.built.get())
            }
            Edges::Aligned => {
                let within = epoch.utc_at_zero.as_nanos() % u128::from(window);
                (Starts::Windows, within as u64)
            }
            Edges::Calendar(calendar) => {
                let starts = match calendar {
                    Calendar::Day | Calendar::IsoWeek => Starts::Windows,
                    Calendar::Month => Starts::Months,
                };
                (starts, calendar.phase(epoch.utc_at_zero))
            }
        };
        let machine = Machine { starts, limit, window, count_bits: 0, grain: 0, base };
        machine.counting(bits(limit)).ok_or_else(|| {
            let reason = "is too many for a fixed window this short; use a token bucket";
            ConfigError::new("permits", limit, reason)
        })
    }
}

impl From<FixedWindow> for Quota {
    fn from(window: FixedWindow) -> Self {
        window.quota
    }
}

/// How many bits `n` takes.
fn bits(n: u64) -> u32 {
    u64::BITS - n.leading_zeros()
}

/// A day in nanoseconds.
const DAY: u64 = 86_400_000_000_000;

/// A window compiled: state is `start << count_bits | count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    starts: Starts,
    pub(super) limit: u64,
    window: u64,
    count_bits: u32,
    grain: u32,
    /// What instant is start zero; where windows are numbered, how far the clock's zero lies after it.
    base: u64,
}

/// What the start of a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starts {
    /// `2^grain` ns.
    Grains,
    /// Windows of one length.
    Windows,
    /// Months since January 1970.
    Months,
}

/// A state taken apart, at some instant: an ended window has become the present one, with no count.
struct Window {
    start: u64,
    count: u64,
}

impl Machine {
    /// The same window with counts of so many bits, if what they leave is enough for its starts.
    fn counting(self, count_bits: u32) -> Option<Self> {
        let start_bits = STATE_BITS.checked_sub(count_bits)?;
        // Where windows are numbered, the clock's 64 bits of nanoseconds must fit.
        let most = match self.starts {
            Starts::Grains => None,
            Starts::Windows => Some(u64::MAX / self.window),
            Starts::Months => {
                Some(calendar::month_at(u128::from(u64::MAX) + u128::from(self.base)))
            }
        };
        if let Some(most) = most {
            return (bits(most) < start_bits).then_some(Self { count_bits, ..self });
        }
        // The base may stay for a day, and for four windows.
        let span = self.window.saturating_mul(4).max(DAY);
        let grain = bits(span).saturating_sub(start_bits);
        let fine = grain == 0 || self.window.checked_shr(grain)? >= 64;
        fine.then_some(Self { count_bits, grain, ..self })
    }

    #[inline]
    fn start_at(&self, now: Nanos) -> u64 {
        let since_start_zero = || u128::from(now.get()) + u128::from(self.base);
        match self.starts {
            Starts::Grains => now.get().saturating_sub(self.base) >> self.grain,
            Starts::Windows => (since_start_zero() / u128::from(self.window)) as u64,
            Starts::Months => calendar::month_at(since_start_zero()),
        }
    }

    /// Whether windows are numbered, and none begins with a request.
    #[inline]
    fn is_numbered(&self) -> bool {
        self.starts != Starts::Grains
    }

    /// The instant at which a window that is not numbered began.
    fn began(&self, start: u64) -> Nanos {
        Nanos::new(self.base.saturating_add(start << self.grain))
    }

    /// The first nanosecond after the window that starts at `start`.
    #[inline]
    fn end_of(&self, start: u64) -> u128 {
        let after = match self.starts {
            Starts::Grains => return u128::from(self.began(start).get()) + u128::from(self.window),
            Starts::Windows => (u128::from(start) + 1) * u128::from(self.window),
            Starts::Months => calendar::start_of(start + 1),
        };
        after.saturating_sub(self.base.into())
    }

    /// When the next base is wanted: while a window that starts then still ends within the word.
    pub(super) fn expires(&self) -> Nanos {
        if self.is_numbered() {
            return Nanos::new(u64::MAX);
        }
        let starts = 1_u64 << (STATE_BITS - self.count_bits);
        Nanos::new(self.base.saturating_add((starts / 2) << self.grain))
    }

    /// The same window with its base before any that is still under way at `now`.
    pub(super) fn rebased(self, now: Nanos) -> Self {
        if self.is_numbered() {
            return self;
        }
        // No window is under way any more that an earlier, greater limit counted in.
        let plain = self.counting(bits(self.limit)).unwrap_or(self);
        let earliest = now.get().saturating_sub(self.window);
        // By whole grains where the base moves on, so that starts stay what they are.
        let base = match earliest.checked_sub(self.base) {
            Some(step) => self.base + (step >> plain.grain << plain.grain),
            None => earliest,
        };
        Self { base, ..plain }
    }

    /// The same window in place of `old`: counts above a lower limit still fit, for when it is raised
    /// again while they last.
    pub(super) fn succeeding(self, old: &Self) -> Self {
        let most = self.count_bits.max(old.count_bits);
        (self.count_bits..=most).rev().find_map(|bits| self.counting(bits)).unwrap_or(self)
    }

    #[inline]
    fn split(&self, state: u64) -> Window {
        Window { start: state >> self.count_bits, count: state & ((1 << self.count_bits) - 1) }
    }

    #[inline]
    fn join(&self, window: &Window) -> u64 {
        window.start << self.count_bits | window.count.min((1 << self.count_bits) - 1)
    }

    #[inline]
    fn window_at(&self, state: u64, now: Nanos) -> Window {
        let window = self.split(state);
        if window.count == 0 || self.end_of(window.start) <= u128::from(now.get()) {
            Window { start: self.start_at(now), count: 0 }
        } else {
            window
        }
    }

    /// The same with a limit that is no greater.
    pub(super) fn limited(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// What is spent in the window that is under way, and how long it still lasts.
    pub(super) fn under_way(&self, state: u64, now: Nanos) -> Option<(u64, Nanos)> {
        let window = self.window_at(state, now);
        (window.count > 0).then(|| (window.count, self.left_of(&window, now)))
    }

    /// How long a window still lasts. A clock that went back reads as if it had stayed: no wait is longer than a
    /// window.
    #[inline]
    fn left_of(&self, window: &Window, now: Nanos) -> Nanos {
        let present = if self.is_numbered() { now } else { now.max(self.began(window.start)) };
        wait_until(self.end_of(window.start), present)
    }

    #[inline]
    pub(super) fn charge(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Step {
        let window = self.window_at(state, now);
        let spent = window.count.saturating_add(held);
        if cost > self.limit || spent > self.limit - cost {
            return Step::Denied;
        }
        Step::To(self.join(&Window { count: window.count + cost, ..window }))
    }

    pub(super) fn force(&self, state: u64, now: Nanos, cost: u64) -> u64 {
        let window = self.window_at(state, now);
        self.join(&Window { count: window.count.saturating_add(cost), ..window })
    }

    #[inline]
    pub(super) fn is_idle(&self, state: u64, now: Nanos) -> bool {
        let window = self.split(state);
        let ended = self.end_of(window.start) <= u128::from(now.get());
        // Below the idle word of now, so that whatever is charged now makes a greater word.
        (window.count == 0 || ended) && state < self.idle_word(now)
    }

    pub(super) fn is_known(&self, state: u64, now: Nanos) -> bool {
        self.window_at(state, now).count > 0
    }

    pub(super) fn idle_word(&self, now: Nanos) -> u64 {
        // After long idleness the base is about to move, and now may not fit into a word.
        let last = (1 << (STATE_BITS - self.count_bits)) - 1;
        self.join(&Window { start: self.start_at(now).min(last), count: 0 })
    }

    #[inline]
    pub(super) fn decide(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        let window = self.window_at(state, now);
        let spent = window.count.saturating_add(held);
        let remaining = self.limit.saturating_sub(spent);
        let left = self.left_of(&window, now);
        let reset_after = if window.count == 0 { Nanos::ZERO } else { left };
        let level = Level { capacity: self.limit, left: remaining, unit: 1, reset_after };
        if cost == 0 || (cost <= self.limit && spent <= self.limit - cost) {
            level.allowed()
        } else if cost > self.limit {
            level.never()
        } else if window.count == 0 {
            // Only holds are in the way, and nobody knows when they end.
            level.denied(Nanos::new(1))
        } else {
            level.denied(left)
        }
    }

    /// Keeps what is spent, and when the window started if the length is the same or the start known.
    pub(super) fn convert(&self, old: &Self, state: u64, now: Nanos) -> u64 {
        let window = old.window_at(state, now);
        if window.count == 0 {
            // Idle before now, so that its slot may be claimed.
            return self.join(&Window { start: self.start_at(now).saturating_sub(1), count: 0 });
        }
        let grid = |machine: &Self| (machine.starts, machine.window, machine.base);
        if self.is_numbered() && grid(self) == grid(old) {
            // It may be later than now, where the clock went back.
            return self.join(&window);
        }
        // The old window's start, unless that is not known or the new length has it ended already: then it
        // starts now, for what is spent stays spent for one new period at most.
        let began = if old.is_numbered() { now } else { old.began(window.start) };
        let start = self.start_at(began);
        let ended = self.end_of(start) <= u128::from(now.get());
        let start = if self.is_numbered() || ended { self.start_at(now) } else { start };
        self.join(&Window { start, count: window.count })
    }

    pub(super) fn to_words(self) -> [u64; MACHINE_WORDS] {
        let Self { starts, limit, window, count_bits, grain, base } = self;
        let bits = u64::from(count_bits) << 8 | u64::from(grain);
        [starts as u64, limit, window, bits, base, 0]
    }

    #[inline]
    pub(super) fn from_words(words: [u64; MACHINE_WORDS]) -> Self {
        let [starts, limit, window, bits, base, _] = words;
        let starts = match starts {
            0 => Starts::Grains,
            1 => Starts::Windows,
            _ => Starts::Months,
        };
        let (count_bits, grain) = ((bits >> 8) as u32, (bits & 0xff) as u32);
        Self { starts, limit, window, count_bits, grain, base }
    }
}
