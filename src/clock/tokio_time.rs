//! [`TokioClock`]: tokio's clock, which tests can pause.

use std::{sync::LazyLock, time::Duration};

use tokio::time::Instant;

use super::{BoxFuture, Clock, Nanos, StdClock};

/// Tokio's clock and timer: stands still and jumps with `tokio::time::pause` and `advance`.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{TokenBucket, TokioClock};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
/// #     .block_on(async {
/// let limiter = TokenBucket::per_second(1).limiter().clock(TokioClock).build()?;
/// assert!(limiter.try_acquire().is_allowed());
/// tokio::time::advance(Duration::from_millis(999)).await;
/// assert!(!limiter.try_acquire().is_allowed());
/// tokio::time::advance(Duration::from_millis(1)).await;
/// assert!(limiter.try_acquire().is_allowed());
/// # Ok::<(), tower_sluice::ConfigError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioClock;

/// How far zero lies before the clock is first used: a runtime whose time was paused earlier reads
/// instants that lie before that first use, and must not read them as zero.
const HEADROOM: Duration = Duration::from_secs(86_400);

static ZERO: LazyLock<(Instant, Duration)> = LazyLock::new(|| {
    let wall = StdClock.utc_at_zero() + Duration::from(StdClock.now());
    // Not `Instant::now` of tokio: zero must not depend on which runtime asks first.
    #[allow(clippy::disallowed_methods)]
    let now = std::time::Instant::now();
    match now.checked_sub(HEADROOM) {
        Some(zero) => (Instant::from_std(zero), wall.saturating_sub(HEADROOM)),
        None => (Instant::from_std(now), wall),
    }
});

impl Clock for TokioClock {
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
        let deadline = ZERO.0 + Duration::from(deadline);
        Box::pin(async move {
            #[allow(clippy::disallowed_methods)]
            tokio::time::sleep_until(deadline).await;
        })
    }

    fn utc_at_zero(&self) -> Duration {
        ZERO.1
    }
}
