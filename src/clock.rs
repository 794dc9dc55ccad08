//! Time: a [`Clock`] tells what time it is and comes with the timer that sleeps by it.
//!
//! A layer or limiter reads its clock once per request and sleeps by the same clock, so that what it
//! promises and when it wakes can never disagree. The default is [`FastClock`]. In tests give it a
//! [`ManualClock`], or [`TokioClock`] where the test pauses tokio's time.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let limiter = TokenBucket::per_second(1).limiter().clock(clock.clone()).build()?;
//! assert!(limiter.try_acquire().is_allowed());
//! assert!(!limiter.try_acquire().is_allowed());
//! clock.advance(Duration::from_secs(1));
//! assert!(limiter.try_acquire().is_allowed());
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```

mod fast;
mod manual;
mod real;
mod tokio_time;

use std::{any::Any, fmt, future::Future, ops, pin::Pin, sync::Arc, time::Duration};

pub use self::{fast::FastClock, manual::ManualClock, real::StdClock, tokio_time::TokioClock};

/// A boxed future, as object-safe traits return it.
///
/// ```
/// use tower_sluice::clock::BoxFuture;
///
/// fn later(answer: u64) -> BoxFuture<'static, u64> {
///     Box::pin(async move { answer })
/// }
/// # let _ = later;
/// ```
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Nanoseconds since a clock's zero.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::clock::Nanos;
///
/// let later = Nanos::ZERO + Duration::from_millis(2);
/// assert_eq!(later.get(), 2_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// The clock's zero.
    pub const ZERO: Self = Self(0);

    /// `nanos` after zero.
    #[must_use]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The number of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The time from `earlier` until here; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Nanos {
    /// Durations above 584 years become 584 years.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl ops::Add<Duration> for Nanos {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(Self::from(duration).0))
    }
}

/// A source of time together with its timer.
///
/// Both belong to one clock: a `now` that stands still while sleeps fly by (or the reverse) makes
/// promises that nobody keeps. A clock need not be perfectly monotonic: time that goes backwards is
/// ignored. See the [module page](self) for the clocks there are.
///
/// A clock of your own, here one that runs sixty times as fast, say for a demonstration:
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{TokenBucket, clock::{BoxFuture, Clock, Nanos, StdClock}};
///
/// struct Hasty;
///
/// impl Clock for Hasty {
///     fn now(&self) -> Nanos {
///         Nanos::new(StdClock.now().get() * 60)
///     }
///
///     fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
///         // Rounded up: who wakes too early would be refused once more.
///         StdClock.sleep_until(Nanos::new(deadline.get().div_ceil(60)))
///     }
///
///     fn utc_at_zero(&self) -> Duration {
///         StdClock.utc_at_zero()
///     }
/// }
///
/// let limiter = TokenBucket::per_hour(1).limiter().clock(Hasty).build()?;
/// assert!(limiter.try_acquire().is_allowed());
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The time since this clock's zero.
    fn now(&self) -> Nanos;

    /// Sleeps until `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and leaves nothing behind.
    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()>;

    /// The wall clock's time (UTC, since 1970-01-01) at this clock's zero. Aligned windows and those of
    /// the calendar use it and nothing else, so that a stepped wall clock moves nothing.
    fn utc_at_zero(&self) -> Duration;

    /// Which clock this is: clocks that say the same read the same time, so that limits by either may stand in
    /// one layer.
    ///
    /// Default: the address of the value, so that clones of an `Arc` are one clock. A clock whose clones read
    /// one time gives the address of what they share.
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Nanos {
        (**self).now()
    }

    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        (**self).sleep_until(deadline)
    }

    fn utc_at_zero(&self) -> Duration {
        (**self).utc_at_zero()
    }

    fn identity(&self) -> usize {
        (**self).identity()
    }
}

/// The clock a layer or limiter holds: the built-in ones without a virtual call.
#[derive(Clone)]
pub(crate) enum Time {
    Fast(FastClock),
    Std(StdClock),
    Tokio(TokioClock),
    Manual(ManualClock),
    Other(Arc<dyn Clock>),
}

impl Time {
    pub(crate) fn of<C: Clock>(clock: C) -> Self {
        let mut clock = Some(clock);
        let any: &mut dyn Any = &mut clock;
        if let Some(fast) = any.downcast_mut::<Option<FastClock>>() {
            return fast.take().map_or_else(Self::default, Self::Fast);
        }
        if let Some(manual) = any.downcast_mut::<Option<ManualClock>>() {
            return manual.take().map_or_else(Self::default, Self::Manual);
        }
        if any.is::<Option<StdClock>>() {
            return Self::Std(StdClock);
        }
        if any.is::<Option<TokioClock>>() {
            return Self::Tokio(TokioClock);
        }
        clock.map_or_else(Self::default, |clock| Self::Other(Arc::new(clock)))
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        match self {
            Self::Fast(clock) => clock.now(),
            _ => self.now_otherwise(),
        }
    }

    /// Apart, so that the default clock costs no jump through a table.
    #[inline(never)]
    fn now_otherwise(&self) -> Nanos {
        match self {
            Self::Fast(clock) => clock.now(),
            Self::Std(clock) => clock.now(),
            Self::Tokio(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    /// Sleeps by this clock.
    pub(crate) fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        match self {
            Self::Fast(clock) => clock.sleep_until(deadline),
            Self::Std(clock) => clock.sleep_until(deadline),
            Self::Tokio(clock) => clock.sleep_until(deadline),
            Self::Manual(clock) => clock.sleep_until(deadline),
            Self::Other(clock) => clock.sleep_until(deadline),
        }
    }

    /// Whether it moves only when it is told to.
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self, Self::Manual(_))
    }

    pub(crate) fn utc_at_zero(&self) -> Duration {
        match self {
            Self::Fast(clock) => clock.utc_at_zero(),
            Self::Std(clock) => clock.utc_at_zero(),
            Self::Tokio(clock) => clock.utc_at_zero(),
            Self::Manual(clock) => clock.utc_at_zero(),
            Self::Other(clock) => clock.utc_at_zero(),
        }
    }

    /// Whether both read the same time, so that state kept by one can be read by the other.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fast(_), Self::Fast(_))
            | (Self::Std(_), Self::Std(_))
            | (Self::Tokio(_), Self::Tokio(_)) => true,
            (Self::Manual(a), Self::Manual(b)) => a.is_same_as(b),
            (Self::Other(a), Self::Other(b)) => a.identity() == b.identity(),
            _ => false,
        }
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::Fast(FastClock::new())
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast(_) => "FastClock",
            Self::Std(_) => "StdClock",
            Self::Tokio(_) => "TokioClock",
            Self::Manual(_) => "ManualClock",
            Self::Other(_) => "custom clock",
        })
    }
}
