//! [`SlidingWindow`]: at most so many in any stretch of time as long as the window, in constant memory.
//!
//! **Definition.** Time is cut into cells of a tenth of the window. A ring counts the permits of the present cell
//! and the ten before it; a request of cost `c` passes if these together are at most `limit - c`. The oldest cell,
//! of which only a part lies within the window, is counted whole.
//!
//! **Promise.** In any interval as long as the window at most `limit` is admitted: never the double of a fixed
//! window's edge, nor what two weighted counters let through. The price is that a permit comes back up to a tenth of
//! the window late, so that under constant load at least nine tenths of the limit are used.
//!
//! **`retry_after`** is the first instant at which enough cells lie a window back, to the nanosecond.
//!
//! **Cells** begin at multiples of their length by the limiter's clock, for all keys alike. The length is a tenth of
//! the window, rounded up to a nanosecond.
//!
//! **Bytes per key:** 16 for each of at most eleven cells in which something was admitted, and some 150.

use std::time::Duration;

use super::{Epoch, WarmUp, sliding::Machine};
use crate::{ConfigError, Quota};

/// A sliding window: at most `limit` permits in any stretch of time as long as the window, in constant memory.
///
/// A permit comes back up to a tenth of the window late, so that under constant load a caller gets nine tenths of the
/// limit or more (of a window below a hundred nanoseconds, less). Where he must get all of it, take a
/// [`SlidingLog`](super::SlidingLog), or a [`TokenBucket`](super::TokenBucket) with a small burst.
///
/// Drawn and compared with the others: [`guide::algorithms`](crate::guide::algorithms). The count lives in this
/// process, from its start to its end: see [restarts and instances](crate::guide::algorithms#restarts-and-instances).
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, SlidingWindow};
///
/// let clock = ManualClock::new();
/// let api = SlidingWindow::per_second(10).limiter().clock(clock.clone()).build()?;
/// clock.advance(Duration::from_millis(990));
/// assert!(api.try_acquire_many(10).is_allowed());
/// // The next second has begun, and a second has not passed.
/// clock.advance(Duration::from_millis(20));
/// assert_eq!(api.try_acquire().retry_after(), Some(Duration::from_millis(990)));
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct SlidingWindow {
    quota: Quota,
    warm_up: Option<WarmUp>,
}

/// Cells in a window.
const CELLS: u64 = 10;

impl SlidingWindow {
    /// `limit` permits in any `window`. The limit may be at most one for each nanosecond of it.
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self { quota: Quota::new(limit, window), warm_up: None }
    }

    per_period!("So many permits in any");

    /// Lets the limit grow to its own after a start. Default: it is whole at once.
    pub const fn warm_up(self, warm_up: WarmUp) -> Self {
        Self { warm_up: Some(warm_up), ..self }
    }

    /// Limit and window as a quota; its burst is the limit.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    pub(super) const fn ramp(&self) -> Option<WarmUp> {
        self.warm_up
    }

    pub(super) fn with_quota(self, quota: Quota) -> Self {
        Self { quota: quota.windowed(), ..self }
    }

    pub(super) fn compile(&self, epoch: Epoch) -> Result<Machine, ConfigError> {
        Machine::compile(self.quota, CELLS, self.warm_up, epoch)
    }
}

impl From<SlidingWindow> for Quota {
    fn from(window: SlidingWindow) -> Self {
        window.quota
    }
}
