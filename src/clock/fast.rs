//! [`FastClock`]: the processor's time stamp counter, where it can be trusted.

use std::{fmt, sync::LazyLock, time::Duration};

use super::{BoxFuture, Clock, Nanos, StdClock, real};

/// The default clock: the processor's time stamp counter where the kernel itself keeps time by it,
/// else [`StdClock`]; with tokio's timer.
///
/// Reading the counter costs less than half of a call to the operating system, and more than the
/// whole arithmetic of a limiter. Whether it is trusted is decided once per process, by `fastant`;
/// `quanta` calibrates it then, and reads it.
///
/// ```
/// use tower_sluice::clock::{Clock, FastClock};
///
/// let clock = FastClock::new();
/// let earlier = clock.now();
/// assert!(clock.now() >= earlier);
/// ```
#[derive(Clone)]
pub struct FastClock(Option<Counter>);

#[derive(Clone)]
struct Counter {
    clock: quanta::Clock,
    zero: u64,
}

/// Calibrated once: making a `quanta::Clock` costs microseconds and traps in a virtual machine.
static COUNTER: LazyLock<(Option<Counter>, Duration)> = LazyLock::new(|| {
    let counter = fastant::is_tsc_available().then(|| {
        let clock = quanta::Clock::new();
        let zero = clock.raw();
        Counter { clock, zero }
    });
    let wall = StdClock.utc_at_zero() + Duration::from(StdClock.now());
    (counter, wall)
});

impl FastClock {
    /// The process's clock; the first call calibrates it.
    #[must_use]
    pub fn new() -> Self {
        Self(COUNTER.0.clone())
    }

    /// Whether it reads the time stamp counter rather than the operating system's clock.
    #[must_use]
    pub fn reads_tsc(&self) -> bool {
        self.0.is_some()
    }
}

impl Default for FastClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FastClock {
    #[inline]
    fn now(&self) -> Nanos {
        match &self.0 {
            Some(counter) => {
                Nanos::new(counter.clock.delta_as_nanos(counter.zero, counter.clock.raw()))
            }
            None => StdClock.now(),
        }
    }

    /// # Panics
    ///
    /// Polling the future panics outside a tokio runtime with its timer enabled.
    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        real::sleep(deadline.since(self.now()))
    }

    fn utc_at_zero(&self) -> Duration {
        match self.0 {
            Some(_) => COUNTER.1,
            None => StdClock.utc_at_zero(),
        }
    }
}

impl fmt::Debug for FastClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastClock").field("reads_tsc", &self.reads_tsc()).finish()
    }
}
