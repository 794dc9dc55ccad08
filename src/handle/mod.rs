//! [`Handle`]: looking at a running layer, and changing it.

mod error;
mod rule_key;

use std::{fmt, sync::Arc};

pub use self::{error::HandleError, rule_key::RuleKey};
use crate::{
    Decision, Quota,
    core::Core,
    plan::{Count, Planned, PlannedSlots},
};

/// Looks at a layer's counts and changes them while it serves.
///
/// Clones and the layer share everything. What a handle does is seen by the next request.
///
/// ```
/// use tower_sluice::{Missing, Quota, RateLimitLayer, Rule, TokenBucket, key};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("per-user", TokenBucket::per_second(10).burst(20))
///         .key(key::header("x-user-id")).missing(Missing::Skip))
///     .build()?;
/// let handle = layer.handle();
/// assert_eq!(handle.peek("per-user", "alice", 1).await?.remaining(), 20);
/// handle.reset("per-user", "alice").await?;
/// handle.set_limit("per-user", Quota::per_second(5).burst(8))?;
/// assert_eq!(handle.peek("per-user", "alice", 1).await?.remaining(), 8);
/// assert_eq!(handle.tracked_keys("per-user")?, Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Handle {
    core: Arc<Core>,
}

impl Handle {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The names of the rules, in the order written.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.core.plan.rules.iter().map(|rule| &*rule.by.name)
    }

    /// What a request of `key` and `cost` would get from `rule` now; changes nothing. For a rule without
    /// a key give `()`.
    ///
    /// # Errors
    ///
    /// If there is no such rule, or its backend could not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the answer; nothing changes.
    pub async fn peek<'k>(
        &self,
        rule: &str,
        key: impl Into<RuleKey<'k>>,
        cost: u64,
    ) -> Result<Decision, HandleError> {
        let (rule, now) = (self.rule(rule)?, self.core.time.now());
        let key = key.into().resolve(rule)?;
        match &rule.count {
            Count::Local(limit) => Ok(limit.peek(key.seat(rule), now, cost)),
            Count::Remote(remote) => {
                let answer = {
                    let bytes = key.encoded(rule);
                    remote.backend.peek(now, &key.charge(rule, remote, &bytes, cost))
                };
                answer.resolve().await.map_err(HandleError::Backend)
            }
        }
    }

    /// Forgets what `key` spent on `rule`; says whether anything was known of it. For a rule without a
    /// key give `()`.
    ///
    /// # Errors
    ///
    /// If there is no such rule, or its backend could not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the answer; the key may be forgotten nonetheless.
    pub async fn reset<'k>(
        &self,
        rule: &str,
        key: impl Into<RuleKey<'k>>,
    ) -> Result<bool, HandleError> {
        let (rule, now) = (self.rule(rule)?, self.core.time.now());
        let key = key.into().resolve(rule)?;
        match &rule.count {
            Count::Local(limit) => Ok(limit.reset(key.seat(rule), now)),
            Count::Remote(remote) => {
                let answer = {
                    let bytes = key.encoded(rule);
                    remote.backend.reset(now, &key.charge(rule, remote, &bytes, 0))
                };
                answer.resolve().await.map_err(HandleError::Backend)
            }
        }
    }

    /// Puts another quota in force, for every key; `relaxed` multiplies it as before, and
    /// [tiers](Self::set_tier_limit) keep theirs. What is spent stays spent: a token or leaky bucket's debt is
    /// counted in permits of the new quota, at most its burst; a window keeps its count. Walks through all keys
    /// kept.
    ///
    /// # Errors
    ///
    /// If there is no such rule, or it cannot count the quota, as a leaky bucket one with a burst; the old one
    /// stays.
    pub fn set_limit(&self, rule: &str, quota: impl Into<Quota>) -> Result<(), HandleError> {
        let rule = self.rule(rule)?;
        rule.set_limit(quota.into(), self.core.time.now()).map_err(HandleError::Config)
    }

    /// Puts another quota of one of a rule's [tiers](crate::Rule::tier) in force, as
    /// [`set_limit`](Self::set_limit) does for the rule's own; those of the others stay.
    ///
    /// ```
    /// use tower_sluice::{Quota, RateLimitLayer, Rule, RuleKey, TokenBucket};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// #[derive(Clone)]
    /// struct Paying;
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .rule(Rule::new("reports", TokenBucket::per_second(10))
    ///         .tier("pro", Quota::per_second(100))
    ///         .tiers(|head| head.extension::<Paying>().map(|_| "pro")))
    ///     .build()?;
    /// let handle = layer.handle();
    /// handle.set_tier_limit("reports", "pro", Quota::per_second(50))?;
    /// let pro = RuleKey::from(()).tier("pro");
    /// assert_eq!(handle.peek("reports", pro, 1).await?.limit(), 50);
    /// assert_eq!(handle.peek("reports", (), 1).await?.limit(), 10);
    /// let error = handle.set_tier_limit("reports", "gold", Quota::per_second(50)).unwrap_err();
    /// assert_eq!(error.to_string(), "rule \"reports\" has no tier \"gold\"; it has pro");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such rule or tier, or it cannot count the quota; the old one stays.
    pub fn set_tier_limit(
        &self,
        rule: &str,
        tier: &str,
        quota: impl Into<Quota>,
    ) -> Result<(), HandleError> {
        let rule = self.rule(rule)?;
        match rule.set_tier_limit(tier, quota.into(), self.core.time.now()) {
            Some(set) => set.map_err(HandleError::Config),
            None => Err(HandleError::no_such_tier(rule, tier)),
        }
    }

    /// How many keys of `rule` hold state now, in each tier for itself; keys that are idle do not. `None` where
    /// the backend cannot tell. Walks through all keys kept.
    ///
    /// # Errors
    ///
    /// If there is no such rule.
    pub fn tracked_keys(&self, rule: &str) -> Result<Option<u64>, HandleError> {
        let now = self.core.time.now();
        Ok(match &self.rule(rule)?.count {
            Count::Local(limit) => Some(limit.counter.tracked(now)),
            Count::Remote(remote) => remote.backend.tracked_keys(now, remote.id),
        })
    }

    /// The names of the in-flight limits, in the order written.
    pub fn in_flight_names(&self) -> impl Iterator<Item = &str> {
        self.core.plan.slots.iter().map(|slots| &*slots.by.name)
    }

    /// How many are in flight under an in-flight limit, over all keys; those of other layers that share it too.
    ///
    /// ```
    /// use tower_sluice::{InFlight, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::builder().in_flight(InFlight::new("feed", 64)).build()?;
    /// let handle = layer.handle();
    /// assert_eq!((handle.in_flight("feed")?, handle.waiting("feed")?), (0, 0));
    /// handle.set_in_flight("feed", 32)?;
    /// assert_eq!(handle.in_flight_limit("feed")?, 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such in-flight limit.
    pub fn in_flight(&self, limit: &str) -> Result<u64, HandleError> {
        self.slots(limit).map(|planned| planned.slots.count())
    }

    /// How many may be in flight under an in-flight limit.
    ///
    /// # Errors
    ///
    /// If there is no such in-flight limit.
    pub fn in_flight_limit(&self, limit: &str) -> Result<u64, HandleError> {
        self.slots(limit).map(|planned| planned.slots.limit())
    }

    /// How many requests wait for a rule or an in-flight limit, over all keys; of what is shared, all who wait
    /// in this process.
    ///
    /// # Errors
    ///
    /// If there is no limit of this name.
    pub fn waiting(&self, limit: &str) -> Result<u64, HandleError> {
        if let Ok(planned) = self.slots(limit) {
            return Ok(planned.slots.waiting());
        }
        Ok(match &self.rule(limit)?.count {
            Count::Local(limit) => limit.waiting(),
            Count::Remote(remote) => remote.waiting.waiting(),
        })
    }

    /// Puts another in-flight limit in force, as [`InFlight::set_limit`](crate::InFlight::set_limit).
    ///
    /// # Errors
    ///
    /// If there is no such in-flight limit, or the number is 0 or above 2^31 - 1; the old one stays.
    pub fn set_in_flight(&self, limit: &str, in_flight: u32) -> Result<(), HandleError> {
        self.slots(limit)?.slots.set_limit(in_flight).map_err(HandleError::Config)
    }

    fn slots(&self, name: &str) -> Result<&PlannedSlots, HandleError> {
        let planned = self.core.plan.slots.iter().find(|planned| &*planned.by.name == name);
        planned.ok_or_else(|| HandleError::NoSuchInFlight(name.to_owned()))
    }

    fn rule(&self, name: &str) -> Result<&Planned, HandleError> {
        self.core.plan.rule(name).ok_or_else(|| match self.slots(name) {
            Ok(_) => HandleError::IsInFlight(name.to_owned()),
            Err(_) => HandleError::NoSuchRule(name.to_owned()),
        })
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("rules", &self.core.plan.rules)
            .field("in_flight", &self.core.plan.slots)
            .finish_non_exhaustive()
    }
}
