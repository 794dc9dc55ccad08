//! [`Decision`]: a limiter's answer, before anything is served.

use std::{fmt, sync::Arc, time::Duration};

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
#[derive(Clone, Copy)]
#[must_use = "a denied decision must be acted on"]
pub struct Decision {
    outcome: Outcome,
    level: Level,
}

/// How full a quota is. Counted in units, a permit being `unit` of them: most callers never ask for
/// permits, so who asks divides.
#[derive(Clone, Copy)]
pub(crate) struct Level {
    /// What may pass at once.
    pub(crate) capacity: u64,
    /// What of that could pass now.
    pub(crate) left: u64,
    /// Not zero.
    pub(crate) unit: u64,
    pub(crate) reset_after: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Denied(Nanos),
    Never,
}

impl Decision {
    /// An allowed decision. `remaining` is cut to `limit`.
    pub fn allowed(limit: u64, remaining: u64, reset_after: Duration) -> Self {
        Self::new(Outcome::Allowed, limit, remaining, reset_after)
    }

    /// A denied decision: the same check could be allowed after `retry_after`.
    pub fn denied(
        limit: u64,
        remaining: u64,
        retry_after: Duration,
        reset_after: Duration,
    ) -> Self {
        Self::new(Outcome::Denied(retry_after.into()), limit, remaining, reset_after)
    }

    /// A denied decision on a cost that can never fit.
    pub fn never(limit: u64, remaining: u64, reset_after: Duration) -> Self {
        Self::new(Outcome::Never, limit, remaining, reset_after)
    }

    fn new(outcome: Outcome, limit: u64, remaining: u64, reset_after: Duration) -> Self {
        let left = remaining.min(limit);
        Self {
            outcome,
            level: Level { capacity: limit, left, unit: 1, reset_after: reset_after.into() },
        }
    }

    /// Whether the request may pass.
    #[inline]
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// Whether the cost is above the limit, so that no waiting helps.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.outcome == Outcome::Never
    }

    /// The most that may pass at once: the burst, the limit of a window, or 1 for a leaky bucket.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.level.capacity / self.level.unit.max(1)
    }

    /// Permits that could still be spent now.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.level.left / self.level.unit.max(1)
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
        self.level.reset_after.into()
    }
}

impl Decision {
    /// Makes it a denial.
    pub(crate) fn deny(&mut self, retry_after: Nanos) {
        self.outcome = Outcome::Denied(retry_after);
    }
}

impl Level {
    #[inline]
    pub(crate) fn allowed(self) -> Decision {
        Decision { outcome: Outcome::Allowed, level: self }
    }

    #[inline]
    pub(crate) fn denied(self, retry_after: Nanos) -> Decision {
        Decision { outcome: Outcome::Denied(retry_after), level: self }
    }

    #[inline]
    pub(crate) fn never(self) -> Decision {
        Decision { outcome: Outcome::Never, level: self }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed => f.write_str("Allowed"),
            Self::Denied(wait) => write!(f, "Denied({:?})", Duration::from(*wait)),
            Self::Never => f.write_str("Never"),
        }
    }
}

impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |decision: &Self| {
            (decision.outcome, decision.limit(), decision.remaining(), decision.reset_after())
        };
        numbers(self) == numbers(other)
    }
}

impl Eq for Decision {}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("outcome", &self.outcome)
            .field("limit", &self.limit())
            .field("remaining", &self.remaining())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}

/// A rule's name with what it decided: in [`Decisions`](crate::Decisions) of admitted requests, in a
/// [`Rejection`](crate::Rejection), and in what observers are told.
///
/// ```
/// use tower_sluice::{RejectionPolicy, RuleDecision};
///
/// // "per-user (20 at once), orders (750 at once)"
/// fn named(rules: &[RuleDecision]) -> String {
///     let name = |said: &RuleDecision| match said.decision() {
///         Some(decision) => format!("{} ({} at once)", said.rule(), decision.limit()),
///         None => said.rule().to_owned(),
///     };
///     rules.iter().map(name).collect::<Vec<_>>().join(", ")
/// }
///
/// let policy = RejectionPolicy::respond_with(|rejection, _| named(rejection.rules()));
/// # let _ = policy;
/// ```
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

    /// The decision; none where there is none to tell: of an in-flight limit, for a missing key, for a failed
    /// backend.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        self.decision
    }
}
