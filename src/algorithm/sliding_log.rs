//! [`SlidingLog`]: at most so many in any stretch of time as long as the window, to the nanosecond.
//!
//! **Definition.** The instant of every admitted permit is kept until the window has passed since. A request of cost
//! `c` passes if at most `limit - c` permits are kept. Also known as a sliding window log.
//!
//! **State.** The instants with their costs, at most `limit` of them; those of one nanosecond are one.
//!
//! **Promise.** In any half-open interval as long as the window at most `limit` is admitted, and a permit is to be
//! had again exactly one window after it was spent.
//!
//! **`retry_after`** is the first instant at which enough of what was spent lies a window back.
//!
//! **Bytes per key:** 16 for each request within the window, and some 150. Where that is too much take a
//! [`SlidingWindow`](super::SlidingWindow), which is nearly as exact in constant memory.

use std::time::Duration;

use super::{Epoch, WarmUp, sliding::Machine};
use crate::{ConfigError, Quota};

/// A sliding log: at most `limit` permits in any stretch of time as long as the window, and a permit is back exactly a
/// window after it was spent.
///
/// Keeps 16 bytes for each request of the window. A [`SlidingWindow`](super::SlidingWindow) takes constant memory.
///
/// Drawn and compared with the others: [`guide::algorithms`](crate::guide::algorithms). The count lives in this
/// process, from its start to its end: see [restarts and instances](crate::guide::algorithms#restarts-and-instances).
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, SlidingLog};
///
/// let clock = ManualClock::new();
/// let codes = SlidingLog::per_minute(2).limiter().clock(clock.clone()).build()?;
/// assert!(codes.try_acquire().is_allowed());
/// clock.advance(Duration::from_secs(50));
/// assert!(codes.try_acquire().is_allowed());
/// assert_eq!(codes.try_acquire().retry_after(), Some(Duration::from_secs(10)));
/// clock.advance(Duration::from_secs(10));
/// assert!(codes.try_acquire().is_allowed());
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct SlidingLog {
    quota: Quota,
    warm_up: Option<WarmUp>,
}

/// The most permits a log may have to keep: one megabyte a key.
const MAX_LIMIT: u64 = 65_536;

impl SlidingLog {
    /// `limit` permits in any `window`. The limit may be at most 65,536.
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
        let machine = Machine::compile(self.quota, 0, self.warm_up, epoch)?;
        if machine.limit > MAX_LIMIT {
            let reason = "is too many for a log, which keeps 16 bytes for each: at most 65,536; use a SlidingWindow";
            return Err(ConfigError::new("permits", machine.limit, reason));
        }
        Ok(machine)
    }
}

impl From<SlidingLog> for Quota {
    fn from(log: SlidingLog) -> Self {
        log.quota
    }
}
