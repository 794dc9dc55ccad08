//! Tiers: the named quotas of a rule, and what picks one for a request.

use std::{fmt, sync::Arc};

use super::Rule;
use crate::{Quota, request::head::Head};

/// The tiers of a rule.
#[derive(Clone, Default)]
pub(crate) struct Tiers {
    pub(crate) named: Vec<(Arc<str>, Quota)>,
    pub(crate) pick: Option<Arc<Pick>>,
}

/// The name of the tier that a request is in; `None` where it is in none.
pub(crate) type Pick = dyn for<'a> Fn(&Head<'a>) -> Option<&'a str> + Send + Sync;

/// The most tiers a rule may have: they are looked at one after the other.
pub(crate) const MAX_TIERS: usize = 16;

impl Tiers {
    /// Whether nothing was said of tiers.
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.pick.is_none()
    }

    /// What was said of them, in a few words.
    pub(crate) fn describe(&self) -> String {
        if self.named.is_empty() { "set".to_owned() } else { self.names() }
    }

    /// The names there are.
    pub(crate) fn names(&self) -> String {
        self.named.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ")
    }
}

/// Tiers: one rule, several quotas.
impl Rule {
    /// Adds a tier: a quota of its own for the requests that [`tiers`](Self::tiers) says are in it. The rule's
    /// own quota is for those in none.
    ///
    /// A tier has no algorithm, start level or warm-up of its own: those are the rule's, and of an algorithm given
    /// here only the quota is taken. The plan that most callers have need not be a tier: it is the rule's own quota.
    /// [`relaxed`](crate::key::KeyBy::relaxed) multiplies it too. At most 16 tiers, named
    /// as rules are, and at most 256 quotas in one rule: each tier and the rule's own have one for each factor
    /// that its key may have. A limiter that is [shared](Self::on) has one quota for all, and no tiers.
    ///
    /// ```
    /// use tower_sluice::{Quota, RateLimitLayer, Rule, TokenBucket};
    ///
    /// /// Who calls, as authentication knows it.
    /// #[derive(Clone)]
    /// struct Caller { plan: String }
    ///
    /// // Without a key: all callers of one tier share its quota, and those in none the rule's own.
    /// let reports = Rule::new("reports", TokenBucket::per_second(10))
    ///     .tier("pro", TokenBucket::per_second(100).burst(200))
    ///     .tier("partner", "1000/min burst 50".parse::<Quota>()?)
    ///     .tiers(|head| head.extension::<Caller>().map(|caller| &*caller.plan));
    /// let layer = RateLimitLayer::builder().rule(reports).build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub fn tier(mut self, name: impl Into<String>, quota: impl Into<Quota>) -> Self {
        self.tiers.named.push((Arc::from(name.into()), quota.into()));
        self
    }

    /// Picks each request's tier by its name; `None` is no tier, and the rule's own quota counts. The last
    /// closure given is the one that picks.
    ///
    /// **Take tiers from something a caller cannot choose**: an extension that your authentication sets, not a
    /// header of the caller's. The tier is part of the key. Who changes his tier starts with a full bucket there,
    /// and what he spent in the old one stays spent; so whoever can choose has the quotas of all tiers together.
    ///
    /// A name that no [`tier`](Self::tier) has counts under the rule's own quota, so that nothing is unlimited,
    /// and raises [SL-TIER](crate::event::Fault::Tier); so do 1,000 requests of which none is in a tier. The layer
    /// stands inside of the middleware that sets the tier, which is added to a router after it. The closure runs on the request path: it should neither
    /// block nor allocate.
    ///
    /// ```
    /// use axum::body::Body;
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sluice::{Missing, RateLimitLayer, Rule, RuleKey, TokenBucket, key};
    ///
    /// /// What a customer pays for; the authentication layer puts it into the request's extensions.
    /// #[derive(Clone)]
    /// enum Plan { Free, Pro }
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .rule(Rule::new("per-user", TokenBucket::per_second(10).burst(20))
    ///         .key(key::header("x-user-id")).missing(Missing::Skip)
    ///         .tier("pro", TokenBucket::per_second(100).burst(200))
    ///         .tiers(|head| match head.extension::<Plan>()? {
    ///             Plan::Free => None,
    ///             Plan::Pro => Some("pro"),
    ///         }))
    ///     .build()?;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let service = layer.layer(service_fn(async |_: Request<Body>| {
    ///     Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    /// }));
    /// let mut request = Request::get("/").header("x-user-id", "alice").body(Body::empty())?;
    /// request.extensions_mut().insert(Plan::Pro);
    /// service.oneshot(request).await?;
    ///
    /// let handle = layer.handle();
    /// let pro = RuleKey::from("alice").tier("pro");
    /// assert_eq!(handle.peek("per-user", pro, 1).await?.limit(), 200);
    /// assert_eq!(handle.peek("per-user", "alice", 1).await?.remaining(), 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub fn tiers<F>(mut self, pick: F) -> Self
    where
        F: for<'a> Fn(&Head<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        self.tiers.pick = Some(Arc::new(pick));
        self
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.named.iter().map(|(name, quota)| (name, quota))).finish()
    }
}
