//! [`WarmUp`]: a rate that grows to its own after a start, or after idleness.
//!
//! **Definition.** For the length of a period the quota is multiplied by a *share* that grows from a start
//! factor to 1. A bucket refills at its rate times the share, and never holds more than its burst times the
//! share, at least one permit; a window's limit is its limit times the share, rounded down, at least 1.
//!
//! | curve | share at `x` of the period, from a start factor `f` | after half the period, from 10 % |
//! | --- | --- | --- |
//! | [`power(p)`](WarmUp::power), `p` = 2 unless set | `f + (1 - f) x^p` | 0.325 |
//! | [`linear`](WarmUp::linear) | `f + (1 - f) x` | 0.55 |
//! | [`cold_factor(k)`](WarmUp::cold_factor) | `1 / sqrt(k^2 - (k^2 - 1) x)` | 0.14 (k = 10) |
//!
//! A *square root* of the time, which is sometimes called gentle, is the opposite: it lets through 30 % of the
//! full rate on average in the first fifth of its period, where the square lets through 1.3 %.
//!
//! **How buckets do it.** The unchanged bucket runs on a clock that is slow at first: its time is the integral of
//! the share. So the ramp is exact for every key, at no cost in its state, and a wait is told by the inverse. The cold
//! factor's curve is what Guava's `SmoothWarmingUp` does under saturation, as a function of time: from the
//! differential equation of its interval.

mod bucket;
mod ramp;
mod window;

use std::time::Duration;

use self::ramp::Ramp;
pub(crate) use self::ramp::Warming;
use super::{Epoch, Machine as Words, Step};
use crate::{ConfigError, Decision, clock::Nanos};

/// How a quota grows to its own after a start.
///
/// | setting | default |
/// | --- | --- |
/// | curve | [`power(2)`](Self::power): slow at first |
/// | [`start_factor`](Self::start_factor) | 0.1 |
/// | [`after_idle`](Self::after_idle) | never: it warms up once, from when the rule is built |
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, TokenBucket, WarmUp};
///
/// let clock = ManualClock::new();
/// let limiter = TokenBucket::per_second(100)
///     .warm_up(WarmUp::over(Duration::from_secs(30)).linear())
///     .limiter()
///     .clock(clock.clone())
///     .build()?;
/// // A tenth of the burst, and of the rate; both are whole after 30 s.
/// assert_eq!(limiter.peek(1).remaining(), 10);
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(limiter.peek(1).remaining(), 100);
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
///
/// It is the rule that warms up, not each of its keys: a key that comes when the rule is warm has the full quota. And
/// it does so by the clock, from when it is built, with requests or without: a service that gets its first request a
/// period after its start gets it at the full rate. Where traffic comes late, or in bouts, add `after_idle`.
///
/// Numbers, drawings and a worked example: [`guide::warm_up`](crate::guide::warm_up).
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct WarmUp {
    period: Duration,
    curve: Curve,
    start_factor: f64,
    after_idle: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Curve {
    Power(u32),
    ColdFactor(f64),
}

impl WarmUp {
    /// From a tenth to the whole over `period`, slowly at first. A period of zero is no warm-up.
    pub const fn over(period: Duration) -> Self {
        Self { period, curve: Curve::Power(2), start_factor: 0.1, after_idle: None }
    }

    /// Grows in a straight line.
    pub const fn linear(self) -> Self {
        self.power(1)
    }

    /// Grows with the `exponent`th power of the time, from 1 (a straight line) to 16 (late and steep). Default: 2.
    pub const fn power(self, exponent: u32) -> Self {
        Self { curve: Curve::Power(exponent), ..self }
    }

    /// Grows as Guava's `SmoothWarmingUp` does under load: the first permits lie `factor` times as far apart as the
    /// last, and from each permit to the next the distance shrinks by the same amount. So it is slow for long, and fast at
    /// the end. From 1.0 to 1,000.0; the start factor is `1 / factor`. Below 1.0001 it is no warm-up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{ManualClock, TokenBucket, WarmUp};
    ///
    /// let clock = ManualClock::new();
    /// let ramp = WarmUp::over(Duration::from_secs(40)).cold_factor(3.0);
    /// let cache = TokenBucket::per_second(300).warm_up(ramp).limiter().clock(clock.clone()).build()?;
    /// let at = |seconds| {
    ///     clock.set(Duration::from_secs(seconds).into());
    ///     cache.peek(1).remaining()
    /// };
    /// assert_eq!((at(0), at(20), at(39), at(40)), (100, 134, 273, 300));
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub const fn cold_factor(self, factor: f64) -> Self {
        Self { curve: Curve::ColdFactor(factor), ..self }
    }

    /// Sets the share that it starts from: above 0.0, at most 1.0. Default: 0.1. A
    /// [`cold_factor`](Self::cold_factor) sets its own.
    pub const fn start_factor(self, factor: f64) -> Self {
        Self { start_factor: factor, ..self }
    }

    /// Starts anew, with the next request, when the rule has admitted nothing for `idle`: whatever is behind it has
    /// gone cold. Requests that are refused do not count. Default: never.
    ///
    /// At least the period and the time in which the quota is whole again, so that nobody who was told to come back
    /// finds the rule gone cold meanwhile.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{ManualClock, TokenBucket, WarmUp};
    ///
    /// let clock = ManualClock::new();
    /// let ramp = WarmUp::over(Duration::from_secs(40)).after_idle(Duration::from_secs(600));
    /// let search = TokenBucket::per_second(100).warm_up(ramp).limiter().clock(clock.clone()).build()?;
    /// clock.advance(Duration::from_secs(40));
    /// assert!(search.try_acquire_many(100).is_allowed());
    /// clock.advance(Duration::from_secs(600));
    /// assert_eq!(search.peek(1).remaining(), 10);
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub const fn after_idle(self, idle: Duration) -> Self {
        Self { after_idle: Some(idle), ..self }
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How a quota that is whole again after `refill` nanoseconds warms up; `None` where that is not at all.
    pub(super) fn compile(
        &self,
        refill: u128,
        epoch: Epoch,
    ) -> Result<Option<Warming>, ConfigError> {
        let text = |period: Duration| format!("{period:?}");
        let period = u64::try_from(self.period.as_nanos()).map_err(|_| {
            ConfigError::new("warm_up", text(self.period), "must be at most 584 years")
        })?;
        let ramp = match self.curve {
            Curve::Power(exponent @ 1..=16) => {
                let factor = self.start_factor;
                if !(factor > 0.0 && factor <= 1.0) {
                    let reason = "must be above 0.0 and at most 1.0";
                    return Err(ConfigError::new("start_factor", factor, reason));
                }
                Ramp::power(period, factor, exponent)
            }
            Curve::Power(exponent) => {
                return Err(ConfigError::new("power", exponent, "must be from 1 to 16"));
            }
            Curve::ColdFactor(factor) if (1.0..=1_000.0).contains(&factor) => {
                Ramp::cold(period, factor)
            }
            Curve::ColdFactor(factor) => {
                let reason = "must be from 1.0 to 1000.0";
                return Err(ConfigError::new("cold_factor", factor, reason));
            }
        };
        let warming = ramp.map(|ramp| Warming::new(ramp, epoch.built));
        let Some(idle) = self.after_idle else { return Ok(warming) };
        let least = u128::from(period) + refill;
        if idle.as_nanos() < least {
            let Ok(least) = u64::try_from(least).map(Duration::from_nanos) else {
                let reason = "cannot be set for a quota that is not whole again within 584 years";
                return Err(ConfigError::new("after_idle", text(idle), reason));
            };
            let reason = format!(
                "must be at least the warm-up period and the time in which the quota is whole again, \
                 together {least:?}, or who was told to come back could find the rule cold"
            );
            return Err(ConfigError::new("after_idle", text(idle), reason));
        }
        Ok(warming)
    }

    /// After how long without an admission it starts anew.
    pub(crate) fn idle_after(&self) -> Option<Nanos> {
        self.after_idle.map(Nanos::from)
    }
}

/// A quota counted in words while it warms up, and after: as [`Words`] does, with a ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    words: Words,
    warming: Warming,
}

impl Machine {
    pub(super) fn new(words: Words, warming: Warming) -> Self {
        Self { words, warming }
    }

    pub(crate) fn words(&self) -> Words {
        self.words
    }

    pub(crate) fn warming(&self) -> Warming {
        self.warming
    }

    /// The time that its words are written by.
    fn time(&self, now: Nanos) -> Nanos {
        match self.words {
            Words::TokenBucket(_) => self.warming.warp(now),
            Words::FixedWindow(_) => now,
        }
    }

    pub(crate) fn charge(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Step {
        match &self.words {
            Words::TokenBucket(bucket) => {
                bucket.charge_warming(&self.warming, state, now, cost, held)
            }
            Words::FixedWindow(window) => {
                let limit = self.warming.scaled(window.limit, now);
                window.limited(limit).charge(state, now, cost, held)
            }
        }
    }

    pub(crate) fn force(&self, state: u64, now: Nanos, cost: u64) -> u64 {
        match &self.words {
            Words::TokenBucket(bucket) => bucket.force_warming(&self.warming, state, now, cost),
            Words::FixedWindow(window) => window.force(state, now, cost),
        }
    }

    pub(crate) fn decide(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        match &self.words {
            Words::TokenBucket(bucket) => {
                bucket.decide_warming(&self.warming, state, now, cost, held)
            }
            Words::FixedWindow(window) => {
                window.decide_warming(&self.warming, state, now, cost, held)
            }
        }
    }

    pub(crate) fn is_idle(&self, state: u64, now: Nanos) -> bool {
        self.words.is_idle(state, self.time(now))
    }

    pub(crate) fn is_known(&self, state: u64, now: Nanos) -> bool {
        self.words.is_known(state, self.time(now))
    }

    pub(crate) fn idle_word(&self, now: Nanos) -> u64 {
        self.words.idle_word(self.time(now))
    }

    /// Whether [`rebased`](Self::rebased) is wanted, by the ramp's time, which its words are written by.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.time(now) >= self.words.expires()
    }

    pub(crate) fn rebased(self, now: Nanos) -> Self {
        Self { words: self.words.rebased(self.time(now)), ..self }
    }

    /// In place of `old`, whose ramp goes on.
    pub(crate) fn succeeding(self, old: &Self, now: Nanos) -> Self {
        let words = match (self.words, &old.words) {
            (Words::TokenBucket(new), Words::TokenBucket(bucket)) => {
                Words::TokenBucket(new.started_warming(&old.warming, bucket, now))
            }
            (new, window) => new.succeeding(window, now),
        };
        Self { words, warming: old.warming }
    }

    pub(crate) fn convert(&self, old: &Self, state: u64, now: Nanos) -> u64 {
        match (&self.words, &old.words) {
            (Words::TokenBucket(new), Words::TokenBucket(old)) => {
                new.convert_warming(&self.warming, old, state, now)
            }
            (new, old) => new.convert(old, state, now),
        }
    }
}
