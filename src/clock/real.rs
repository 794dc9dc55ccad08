//! [`StdClock`]: the operating system's monotonic clock.

use std::{
    sync::LazyLock,
    time::{Duration, Instant, SystemTime},
};

use super::{BoxFuture, Clock, Nanos};

/// The operating system's monotonic clock, with tokio's timer.
///
/// Its zero is the same for the whole process. It does not move while the machine is suspended where
/// the system's monotonic clock does not.
///
/// ```
/// use tower_sluice::clock::{Clock, StdClock};
///
/// let clock = StdClock;
/// let earlier = clock.now();
/// assert!(clock.now() >= earlier);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct StdClock;

/// Zero of the process: an instant, and the wall clock's time at it.
pub(super) static ZERO: LazyLock<(Instant, Duration)> = LazyLock::new(|| {
    // The one place that reads the system's clocks, with `Clock for StdClock` below.
    #[allow(clippy::disallowed_methods)]
    let (now, wall) = (Instant::now(), SystemTime::now());
    (now, wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
});

impl Clock for StdClock {
    #[inline]
    fn now(&self) -> Nanos {
        #[allow(clippy::disallowed_methods)]
        let now = Instant::now();
        now.saturating_duration_since(ZERO.0).into()
    }

    /// # Panics
    ///
    /// Polling the future panics outside a tokio runtime with its timer enabled.
    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        sleep(deadline.since(self.now()))
    }

    fn utc_at_zero(&self) -> Duration {
        ZERO.1
    }
}

/// Sleeps on tokio's timer, which is the one timer this crate has.
pub(super) fn sleep(wait: Nanos) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        #[allow(clippy::disallowed_methods)]
        tokio::time::sleep(wait.into()).await;
    })
}
