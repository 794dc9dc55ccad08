//! [`Decision`]: a limiter's answer, before anything is served.

use std::{sync::Arc, time::Duration};

use crate::clock::Nanos;

/// What a limiter says to one request on one rule.
///
/// `remaining` is in `0..=limit`; `retry_after` is exact: the same check is denied one clock tick
/// earlier and allowed at it, if nothing else comes.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, TokenBucket};
///
/// let limiter = TokenBucket::per_second(5).burst(1).limiter().clock(ManualClock::new()).build()?;
/// assert!(limiter.try_acquire().is_allowed());
/// let denied = limiter.try_acquire();
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(200)));
/// assert_eq!((denied.limit(), denied.remaining()), (1, 0));
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied decision must be acted on"]
pub struct Decision {
    outcome: Outcome,
    limit: u64,
    remaining: u64,
    reset_after: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Denied(Nanos),
    Never,
}

impl Decision {
    /// An allowed decision. `remaining` is cut to `limit`.
    pub fn allowed(limit: u64, remaining: u64, reset_after: Duration) -> Self {
        Self::new(Outcome::Allowed, limit, remaining, reset_after.into())
    }

    /// A denied decision: the same check could be allowed after `retry_after`.
    pub fn denied(
        limit: u64,
        remaining: u64,
        retry_after: Duration,
        reset_after: Duration,
    ) -> Self {
        Self::new(Outcome::Denied(retry_after.into()), limit, remaining, reset_after.into())
    }

    /// A denied decision on a cost that can never fit.
    pub fn never(limit: u64, remaining: u64, reset_after: Duration) -> Self {
        Self::new(Outcome::Never, limit, remaining, reset_after.into())
    }

    fn new(outcome: Outcome, limit: u64, remaining: u64, reset_after: Nanos) -> Self {
        Self { outcome, limit, remaining: remaining.min(limit), reset_after }
    }

    /// Whether the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// Whether the cost is above the limit, so that no waiting helps.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.outcome == Outcome::Never
    }

    /// The most that may pass at once: the burst, or the limit of a window.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Permits that could still be spent now.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The shortest wait after which the same check could be allowed; `None` where it is allowed now,
    /// and where it never can be.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Denied(wait) => Some(wait.into()),
            Outcome::Allowed | Outcome::Never => None,
        }
    }

    /// Time until the quota is whole again if nobody asks.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after.into()
    }
}

/// A rule's name with what it decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    rule: Arc<str>,
    decision: Option<Decision>,
}

impl RuleDecision {
    pub(crate) fn new(rule: Arc<str>, decision: Option<Decision>) -> Self {
        Self { rule, decision }
    }

    /// The rule's name.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// The decision; none where the rule refuses without one, for a missing key or a failed backend.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.decision
    }
}
