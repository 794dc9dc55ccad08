//! [`LeakyBucket`]: one permit per interval.
//!
//! **Definition.** The interval is the period divided by its permits. A request passes if the last one that
//! passed is at least an interval ago; else it is too early. This is virtual scheduling as ATM networks do
//! it, the generic cell rate algorithm (ITU-T I.371) without tolerance, and the pace that the `limit_req`
//! of nginx keeps without a burst. It is a [`TokenBucket`] of burst 1, under the name that says so.
//!
//! It does not wait itself: who is too early is denied and told when to come. Let callers wait where
//! bursts are ordinary and only their pace is to be evened out; where they need not be evened out, take a
//! [`TokenBucket`].
//!
//! **State.** One word, the token bucket's: the instant from which the next request may pass, in fractions of
//! a permit; a rate is as exact as it is there, and what has to be rounded is rounded against the caller.
//!
//! **Promise.** Two admissions are never closer than the interval. Where the rate is changed between them,
//! the time before the change counts at the old rate and the time after it at the new one, so that they are
//! no closer than the shorter of both intervals.
//!
//! **`retry_after`** is the first nanosecond at which the request passes: an interval after the last one
//! that did. The limit is 1, so a cost above 1 never passes.
//!
//! **Bytes per key:** 8, and 8 for the key's hash.

use std::time::Duration;

use super::{
    Epoch, WarmUp,
    token_bucket::{Machine, TokenBucket},
};
use crate::{ConfigError, Quota};

/// A leaky bucket: one permit per interval, no burst; two admissions are never closer than the interval.
///
/// It does not wait itself: who is too early is denied, with [`retry_after`](crate::Decision::retry_after).
/// Its limit is 1, so a cost above 1 never passes, and [`relaxed`](crate::key::KeyBy::relaxed) multiplies the
/// rate alone. Start levels are for the [`TokenBucket`]. A rule whose policy cannot queue raises
/// [SL-LEAKY](crate::event::Fault::Leaky).
///
/// Who waits is admitted by a timer, which is a millisecond or so late each time; since no two come closer than the
/// interval that is not made up, and the pace falls a little short.
///
/// Drawn and compared with the others: [`guide::algorithms`](crate::guide::algorithms).
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{LeakyBucket, ManualClock, Quota};
///
/// // A partner that takes twenty calls a second, but no two at once.
/// let bucket = LeakyBucket::per_second(20);
/// assert_eq!(bucket.quota(), Quota::per_second(20).burst(1));
///
/// let clock = ManualClock::new();
/// let partner = bucket.limiter().clock(clock.clone()).build()?;
/// assert!(partner.try_acquire().is_allowed());
/// assert_eq!(partner.try_acquire().retry_after(), Some(Duration::from_millis(50)));
/// // Idleness saves nothing up.
/// clock.advance(Duration::from_secs(60));
/// assert!(partner.try_acquire().is_allowed());
/// assert!(!partner.try_acquire().is_allowed());
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct LeakyBucket {
    quota: Quota,
    warm_up: Option<WarmUp>,
}

impl LeakyBucket {
    /// `permits` per `period`, evenly spaced.
    pub const fn new(permits: u64, period: Duration) -> Self {
        Self { quota: Quota::new(permits, period).burst(LIMIT), warm_up: None }
    }

    per_period!("So many permits per");

    /// Lets the rate grow to its own after a start: intervals are longer at first. Default: it is whole at once.
    pub const fn warm_up(self, warm_up: WarmUp) -> Self {
        Self { warm_up: Some(warm_up), ..self }
    }

    /// The quota; its burst is 1.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    pub(super) const fn ramp(&self) -> Option<WarmUp> {
        self.warm_up
    }

    pub(super) fn with_quota(self, quota: Quota) -> Self {
        Self { quota: spaced(quota), ..self }
    }

    /// The rate times `factor`; the limit stays.
    pub(crate) fn relaxed(&self, factor: u64) -> Result<Quota, ConfigError> {
        self.check_burst()?;
        let faster = Quota::new(self.quota.permits(), self.quota.period()).relaxed(factor)?;
        Ok(faster.burst(LIMIT))
    }

    pub(crate) fn compile(&self, epoch: Epoch) -> Result<Machine, ConfigError> {
        self.check_burst()?;
        TokenBucket::from(self.quota).compile(epoch)
    }

    fn check_burst(&self) -> Result<(), ConfigError> {
        match self.quota.max_burst() {
            LIMIT => Ok(()),
            burst => {
                let reason = "a leaky bucket has none, it admits one at a time; use a TokenBucket";
                Err(ConfigError::new("burst", burst, reason))
            }
        }
    }
}

impl From<LeakyBucket> for Quota {
    fn from(bucket: LeakyBucket) -> Self {
        bucket.quota
    }
}

impl From<Quota> for LeakyBucket {
    /// A burst that was set to anything but 1 is an error when the bucket is built.
    fn from(quota: Quota) -> Self {
        Self { quota: spaced(quota), warm_up: None }
    }
}

/// The quota with the burst that it has here, unless it was set to another.
fn spaced(quota: Quota) -> Quota {
    quota.burst(quota.burst_setting().unwrap_or(LIMIT))
}

/// The most that passes at once.
const LIMIT: u64 = 1;
