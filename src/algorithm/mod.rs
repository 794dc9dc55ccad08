//! The algorithms: how a quota is counted.
//!
//! ```
//! use tower_sluice::{FixedWindow, LeakyBucket, Rule, StartLevel, TokenBucket};
//!
//! // 500 a second, and up to 750 at once after a pause; a restart gives nobody a burst.
//! let api = Rule::new("api", TokenBucket::per_second(500).burst(750).start(StartLevel::Empty));
//! // What people count: 1,000 a day, from midnight UTC.
//! let plan = Rule::new("plan", FixedWindow::per_day(1_000).aligned());
//! // One call every 50 ms, for a partner that cannot take two at once.
//! let partner = Rule::new("partner", LeakyBucket::per_second(20));
//! # let _ = (api, plan, partner);
//! ```
//!
//! | algorithm | admits | choose it for |
//! | --- | --- | --- |
//! | [`TokenBucket`] | at most `burst + rate x L` in any interval `L` | most limits: smooth, with room for bursts |
//! | [`FixedWindow`] | at most `limit` per window, `2 x limit` across an edge | quotas that people count: "1,000 per day", or per [`Calendar`] month |
//! | [`SlidingWindow`] | at most `limit` in any stretch as long as the window | limits that must never be doubled |
//! | [`SlidingLog`] | the same, and a permit comes back to the nanosecond | few permits that must be exact: codes, bills |
//! | [`LeakyBucket`] | one per interval, never closer | an even pace: what is behind cannot take two at once |
//!
//! Buckets and fixed windows are one word per key, so a check is one atomic step, and a denied check only reads. What
//! slides is kept in records under a lock for the length of a check. Any of them may start slowly: see [`WarmUp`].
//!
//! Which to choose, with what each lets through drawn and computed: [`guide::algorithms`](crate::guide::algorithms);
//! how the curves of a warm-up differ: [`guide::warm_up`](crate::guide::warm_up).

/// The constructors by the periods that people write, all of them by `new`.
macro_rules! per_period {
    ($what:literal) => {
        #[doc = concat!($what, " second.")]
        pub const fn per_second(permits: u64) -> Self {
            Self::new(permits, Duration::from_secs(1))
        }

        #[doc = concat!($what, " minute.")]
        pub const fn per_minute(permits: u64) -> Self {
            Self::new(permits, Duration::from_secs(60))
        }

        #[doc = concat!($what, " hour.")]
        pub const fn per_hour(permits: u64) -> Self {
            Self::new(permits, Duration::from_secs(3_600))
        }

        #[doc = concat!($what, " day of 86,400 seconds.")]
        pub const fn per_day(permits: u64) -> Self {
            Self::new(permits, Duration::from_secs(86_400))
        }
    };
}

mod calendar;
pub(crate) mod fixed_window;
pub(crate) mod leaky_bucket;
pub(crate) mod sliding;
mod sliding_log;
mod sliding_window;
pub(crate) mod token_bucket;
pub(crate) mod warm_up;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::{
    calendar::Calendar,
    fixed_window::FixedWindow,
    leaky_bucket::LeakyBucket,
    sliding_log::SlidingLog,
    sliding_window::SlidingWindow,
    token_bucket::{StartLevel, TokenBucket},
    warm_up::WarmUp,
};
pub(crate) use self::{sliding::Spent, token_bucket::charge_plainly, warm_up::Warming};
use crate::{ConfigError, Decision, Quota, clock::Nanos};

/// An algorithm with its quota: plain data that a rule or a backend takes.
///
/// ```
/// use tower_sluice::{Algorithm, Quota, TokenBucket};
///
/// let algorithm = Algorithm::from(TokenBucket::per_second(5).burst(10));
/// assert_eq!(algorithm.quota(), Quota::per_second(5).burst(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow),
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
}

impl Algorithm {
    /// The quota it counts.
    #[must_use]
    pub fn quota(&self) -> Quota {
        match self {
            Self::FixedWindow(window) => window.quota(),
            Self::LeakyBucket(bucket) => bucket.quota(),
            Self::SlidingLog(log) => log.quota(),
            Self::SlidingWindow(window) => window.quota(),
            Self::TokenBucket(bucket) => bucket.quota(),
        }
    }

    /// How its quota warms up, if it does. A [`Backend`](crate::Backend) that cannot do that refuses it.
    #[must_use]
    pub fn warm_up(&self) -> Option<WarmUp> {
        match self {
            Self::FixedWindow(window) => window.ramp(),
            Self::LeakyBucket(bucket) => bucket.ramp(),
            Self::SlidingLog(log) => log.ramp(),
            Self::SlidingWindow(window) => window.ramp(),
            Self::TokenBucket(bucket) => bucket.ramp(),
        }
    }

    /// The same algorithm with another quota. A leaky bucket takes one whose burst is the default, or 1, a
    /// window of the calendar one of its [period](Calendar::period); another is an error when it is built.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        match self {
            Self::FixedWindow(window) => Self::FixedWindow(window.with_quota(quota)),
            Self::LeakyBucket(bucket) => Self::LeakyBucket(bucket.with_quota(quota)),
            Self::SlidingLog(log) => Self::SlidingLog(log.with_quota(quota)),
            Self::SlidingWindow(window) => Self::SlidingWindow(window.with_quota(quota)),
            Self::TokenBucket(bucket) => Self::TokenBucket(bucket.with_quota(quota)),
        }
    }

    /// Its quota times `factor`; an overflow is an error, not a wrap.
    pub(crate) fn relaxed(&self, factor: u64) -> Result<Quota, ConfigError> {
        match self {
            Self::FixedWindow(window) => window.relaxed(factor),
            Self::LeakyBucket(bucket) => bucket.relaxed(factor),
            _ => self.quota().relaxed(factor),
        }
    }
}

/// Limit and window, in nanoseconds, of a quota whose burst is its limit.
fn check_no_burst(quota: Quota) -> Result<(u64, u64), ConfigError> {
    let (limit, window, burst) = quota.checked()?;
    if burst != limit {
        return Err(ConfigError::new(
            "burst",
            burst,
            "a window has no burst beside its limit; leave it out, or use a TokenBucket",
        ));
    }
    Ok((limit, window))
}

impl From<FixedWindow> for Algorithm {
    fn from(window: FixedWindow) -> Self {
        Self::FixedWindow(window)
    }
}

impl From<LeakyBucket> for Algorithm {
    fn from(bucket: LeakyBucket) -> Self {
        Self::LeakyBucket(bucket)
    }
}

impl From<SlidingLog> for Algorithm {
    fn from(log: SlidingLog) -> Self {
        Self::SlidingLog(log)
    }
}

impl From<SlidingWindow> for Algorithm {
    fn from(window: SlidingWindow) -> Self {
        Self::SlidingWindow(window)
    }
}

impl From<TokenBucket> for Algorithm {
    fn from(bucket: TokenBucket) -> Self {
        Self::TokenBucket(bucket)
    }
}

impl From<Quota> for Algorithm {
    /// A token bucket.
    fn from(quota: Quota) -> Self {
        Self::TokenBucket(quota.into())
    }
}

/// How many bits of a word a machine may use; the rest tell which quota it was written under.
pub(crate) const STATE_BITS: u32 = 61;

/// A compiled algorithm, by what it counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiled {
    /// In one word per key.
    Word(Machine),
    /// The same, on a ramp.
    Warming(warm_up::Machine),
    /// In [`Spent`].
    Sliding(sliding::Machine),
}

impl Compiled {
    pub(crate) fn of(algorithm: &Algorithm, epoch: Epoch) -> Result<Self, ConfigError> {
        let bucket = |machine| Machine::TokenBucket(machine);
        let (machine, refill) = match algorithm {
            Algorithm::FixedWindow(window) => {
                let machine = window.compile(epoch)?;
                (Machine::FixedWindow(machine), window.quota().period().as_nanos())
            }
            Algorithm::LeakyBucket(leaky) => {
                (leaky.compile(epoch).map(bucket)?, leaky.quota().refill())
            }
            Algorithm::SlidingLog(log) => return log.compile(epoch).map(Self::Sliding),
            Algorithm::SlidingWindow(window) => return window.compile(epoch).map(Self::Sliding),
            Algorithm::TokenBucket(token) => {
                (token.compile(epoch).map(bucket)?, token.quota().refill())
            }
        };
        let warm_up = algorithm.warm_up();
        let warming = warm_up.map_or(Ok(None), |warm_up| warm_up.compile(refill, epoch))?;
        Ok(match warming {
            None => Self::Word(machine),
            Some(warming) => Self::Warming(machine.on(warming)),
        })
    }

    /// The ramp it is on.
    pub(crate) fn warming(&self) -> Option<Warming> {
        match self {
            Self::Word(_) => None,
            Self::Warming(machine) => Some(machine.warming()),
            Self::Sliding(machine) => machine.warming,
        }
    }
}

/// The arithmetic of one quota on one clock, as a function of a state word.
///
/// Zero is the word of a key never seen. A word that is idle is indistinguishable from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    FixedWindow(fixed_window::Machine),
    TokenBucket(token_bucket::Machine),
}

/// What a charge made of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Allowed: the word to write.
    To(u64),
    /// Denied; nothing changes.
    Denied,
}

/// When a clock started, in its own time and in the wall clock's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Epoch {
    /// Now, when the machine is made: start levels count from here.
    pub(crate) built: Nanos,
    /// The wall clock's time at the clock's zero.
    pub(crate) utc_at_zero: Duration,
}

/// How many words a machine takes when it is stored in atomics.
pub(crate) const MACHINE_WORDS: usize = 6;

macro_rules! on {
    ($machine:expr, $inner:ident => $then:expr) => {
        match $machine {
            Machine::FixedWindow($inner) => $then,
            Machine::TokenBucket($inner) => $then,
        }
    };
}

impl Machine {
    /// The same on a ramp.
    pub(crate) fn on(self, warming: Warming) -> warm_up::Machine {
        warm_up::Machine::new(self, warming)
    }

    /// Charges `cost`, at least 1, with `held` permits set aside by others.
    #[inline]
    pub(crate) fn charge(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Step {
        on!(self, machine => machine.charge(state, now, cost, held))
    }

    /// Charges `cost` whether it fits or not: what was held was counted when it was set aside.
    pub(crate) fn force(&self, state: u64, now: Nanos, cost: u64) -> u64 {
        on!(self, machine => machine.force(state, now, cost))
    }

    /// Whether a key with this word is indistinguishable from one never seen, and was before `now`:
    /// every later charge writes a greater word.
    #[inline]
    pub(crate) fn is_idle(&self, state: u64, now: Nanos) -> bool {
        on!(self, machine => machine.is_idle(state, now))
    }

    /// An idle word, greater than any word that was idle at `now`.
    pub(crate) fn idle_word(&self, now: Nanos) -> u64 {
        on!(self, machine => machine.idle_word(now))
    }

    /// What a charge of `cost` would get.
    #[inline]
    pub(crate) fn decide(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        on!(self, machine => machine.decide(state, now, cost, held))
    }

    /// Whether a key with this word has anything spent that a key never seen has not.
    pub(crate) fn is_known(&self, state: u64, now: Nanos) -> bool {
        on!(self, machine => machine.is_known(state, now))
    }

    /// This machine in place of `old`: every key's start level stays the one it had, and what was spent under `old`
    /// fits into its words.
    pub(crate) fn succeeding(self, old: &Self, now: Nanos) -> Self {
        match (self, old) {
            (Self::TokenBucket(new), Self::TokenBucket(old)) => {
                Self::TokenBucket(new.started_as(old, now))
            }
            (Self::FixedWindow(new), Self::FixedWindow(old)) => {
                Self::FixedWindow(new.succeeding(old))
            }
            (new, _) => new,
        }
    }

    /// When [`rebased`](Self::rebased) is wanted: later instants do not fit into a word.
    pub(crate) fn expires(&self) -> Nanos {
        on!(self, machine => machine.expires())
    }

    /// The same quota, counting time from about `now`.
    pub(crate) fn rebased(self, now: Nanos) -> Self {
        match self {
            Self::FixedWindow(machine) => Self::FixedWindow(machine.rebased(now)),
            Self::TokenBucket(machine) => Self::TokenBucket(machine.rebased(now)),
        }
    }

    /// Before which instant [`charge_plainly`] charges as this does, or says that it cannot.
    pub(crate) fn plain_until(&self) -> Nanos {
        match self {
            Self::FixedWindow(_) => Nanos::ZERO,
            Self::TokenBucket(bucket) => bucket.expires(),
        }
    }

    pub(crate) fn is_window(&self) -> bool {
        matches!(self, Self::FixedWindow(_))
    }

    /// The state that means under this quota what `state` means under `old`, rounded against the key;
    /// zero for an idle one.
    pub(crate) fn convert(&self, old: &Self, state: u64, now: Nanos) -> u64 {
        match (self, old) {
            (Self::FixedWindow(new), Self::FixedWindow(old)) => new.convert(old, state, now),
            (Self::TokenBucket(new), Self::TokenBucket(old)) => new.convert(old, state, now),
            // A limiter keeps its algorithm for life; were it to change, its keys would start anew.
            _ => 0,
        }
    }

    pub(crate) fn to_words(self) -> [u64; MACHINE_WORDS] {
        on!(self, machine => machine.to_words())
    }

    /// The machine that [`to_words`](Self::to_words) took apart; `is_window` says which algorithm it is.
    #[inline]
    pub(crate) fn from_words(is_window: bool, words: [u64; MACHINE_WORDS]) -> Self {
        if is_window {
            Self::FixedWindow(fixed_window::Machine::from_words(words))
        } else {
            Self::TokenBucket(token_bucket::Machine::from_words(words))
        }
    }
}

/// `amount` of time units of the past as a wait from `now`; the least is one nanosecond, since what is
/// denied now cannot be allowed now.
#[inline]
pub(crate) fn wait_until(deadline: u128, now: Nanos) -> Nanos {
    let deadline = u64::try_from(deadline).unwrap_or(u64::MAX);
    Nanos::new(deadline.saturating_sub(now.get()).max(1))
}
