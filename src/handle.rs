//! [`Handle`]: looking at a running layer, and changing it.

use std::{error::Error, fmt, net::IpAddr, sync::Arc};

use smallvec::{SmallVec, smallvec};

use crate::{
    BackendError, ConfigError, Decision, Key, Quota,
    backend::{Charge, local::Seat},
    core::Core,
    plan::{Count, Encoded, MISSING, Planned, Remote},
    request::key::KeyBy,
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
                    let bytes = key.encoded();
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
                    let bytes = key.encoded();
                    remote.backend.reset(now, &key.charge(rule, remote, &bytes, 0))
                };
                answer.resolve().await.map_err(HandleError::Backend)
            }
        }
    }

    /// Puts another quota in force, for every key; `relaxed` multiplies it as before. What is spent stays
    /// spent: a token or leaky bucket's debt is counted in permits of the new quota, at most its burst; a
    /// window keeps its count. Walks through all keys kept.
    ///
    /// # Errors
    ///
    /// If there is no such rule, or it cannot count the quota, as a leaky bucket a burst; the old one stays.
    pub fn set_limit(&self, rule: &str, quota: impl Into<Quota>) -> Result<(), HandleError> {
        let rule = self.rule(rule)?;
        rule.set_limit(quota.into(), self.core.time.now()).map_err(HandleError::Config)
    }

    /// How many keys of `rule` hold state now; keys that are idle do not. `None` where the backend cannot
    /// tell. Walks through all keys kept.
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

    fn rule(&self, name: &str) -> Result<&Planned, HandleError> {
        self.core.plan.rule(name).ok_or_else(|| HandleError::NoSuchRule(name.to_owned()))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("rules", &self.core.plan.rules).finish_non_exhaustive()
    }
}

/// A key as a [`Handle`] is told of it.
///
/// A plain value is the key of a rule with one. Where `and` combined keys, name the [`parts`](Self::parts);
/// where `or` did, say which [`alternative`](Self::alternative); a client's address is told by
/// [`address`](Self::address), whatever the rule makes of it. A key that cannot be the rule's is an
/// error, not an answer about nobody.
///
/// ```
/// use tower_sluice::{Key, RateLimitLayer, Rule, RuleKey, TokenBucket, key};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let handle = RateLimitLayer::builder()
///     .rule(Rule::new("callers", TokenBucket::per_second(10))
///         .key(key::header("x-user-id").or(key::client_ip().relaxed(5))))
///     .rule(Rule::new("pairs", TokenBucket::per_second(10))
///         .key(key::header("x-tenant").and(key::route())).missing(tower_sluice::Missing::Skip))
///     .build()?
///     .handle();
/// let office = RuleKey::address("203.0.113.7".parse()?);
/// assert_eq!(handle.peek("callers", "alice", 1).await?.remaining(), 10);
/// assert_eq!(handle.peek("callers", office.clone(), 1).await?.remaining(), 50);
/// let pair = RuleKey::parts([Key::from("acme"), Key::from("/orders/{id}")]);
/// assert_eq!(handle.peek("pairs", pair, 1).await?.remaining(), 10);
/// let error = handle.peek("pairs", office, 1).await.unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "the key of rule \"pairs\" is: header x-tenant and route; 2 parts"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RuleKey<'k>(Named<'k>);

#[derive(Clone, Debug)]
enum Named<'k> {
    Parts(Resolved<'k>),
    Address(IpAddr),
    Missing,
}

/// A key as its rule counts it.
#[derive(Clone, Debug)]
struct Resolved<'k> {
    parts: SmallVec<[Key<'k>; 2]>,
    alternative: u8,
}

impl<'k> RuleKey<'k> {
    /// The key whose parts `and` combined, in its order.
    pub fn parts(parts: impl IntoIterator<Item = Key<'k>>) -> Self {
        Self(Named::Parts(Resolved { parts: parts.into_iter().collect(), alternative: 0 }))
    }

    /// The key that the rule's `nth` alternative yields, counted from 0 over all its `or`s. Default: 0.
    pub fn alternative(self, nth: u8) -> Self {
        match self.0 {
            Named::Parts(key) => Self(Named::Parts(Resolved { alternative: nth, ..key })),
            Named::Address(_) | Named::Missing => self,
        }
    }

    /// A client's address, as the rule's `client_ip` counts it: IPv6 by its prefix, and the alternative
    /// that it is.
    pub fn address(address: IpAddr) -> Self {
        Self(Named::Address(address))
    }

    /// The requests without a key, where the rule counts them together
    /// ([`Missing::Shared`](crate::Missing::Shared)).
    pub fn missing() -> Self {
        Self(Named::Missing)
    }

    /// The key as `rule` counts it.
    fn resolve(self, rule: &Planned) -> Result<Resolved<'k>, HandleError> {
        let fits = |key: &Resolved<'_>| match &rule.scope.key {
            Some(by) => by.admits(key.alternative, &key.parts),
            None => key.alternative == 0 && key.parts.iter().all(Key::is_empty),
        };
        let key = match self.0 {
            Named::Parts(key) => Some(key).filter(fits),
            Named::Address(address) => {
                let found = rule.scope.key.as_ref().and_then(|by| by.address(address));
                found.map(|(alternative, key)| Resolved { parts: smallvec![key], alternative })
            }
            Named::Missing => rule
                .scope
                .shares_missing()
                .then(|| Resolved { parts: SmallVec::new(), alternative: MISSING }),
        };
        key.ok_or_else(|| HandleError::WrongKey {
            rule: rule.by.name.to_string(),
            expected: expected(rule.scope.key.as_ref()),
        })
    }
}

/// What a rule's key is, for whoever named another.
fn expected(key: Option<&KeyBy>) -> String {
    let Some(key) = key else { return "none; give ()".to_owned() };
    let parts = key.parts_of(0).unwrap_or(1);
    let alternatives = match key.alternatives() {
        0 | 1 => String::new(),
        count => format!(", alternatives 0 to {}", count - 1),
    };
    let s = if parts == 1 { "" } else { "s" };
    format!("{}; {parts} part{s}{alternatives}", key.describe())
}

impl Resolved<'_> {
    fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(Key::as_bytes)
    }

    fn seat(&self, rule: &Planned) -> Seat {
        rule.seat_of(self.alternative, self.bytes())
    }

    fn encoded(&self) -> Encoded {
        Encoded::named(self.alternative, self.bytes())
    }

    fn charge<'c>(
        &self,
        rule: &Planned,
        remote: &Remote,
        bytes: &'c Encoded,
        cost: u64,
    ) -> Charge<'c> {
        let charge = Charge::new(remote.id, cost).quota_index(self.seat(rule).quota);
        if rule.scope.key.is_some() { charge.key(bytes.as_bytes()) } else { charge }
    }
}

impl<'k, K: Into<Key<'k>>> From<K> for RuleKey<'k> {
    fn from(key: K) -> Self {
        Self(Named::Parts(Resolved { parts: smallvec![key.into()], alternative: 0 }))
    }
}

/// Why a [`Handle`] could not do what it was asked.
///
/// An admin route gives each its status:
///
/// ```
/// use axum::{Router, body::Body, extract::{Path, State}, http::{Request, StatusCode}, routing::post};
/// use tower::ServiceExt;
/// use tower_sluice::{Handle, HandleError, Quota, RateLimitLayer, Rule, TokenBucket};
///
/// async fn set_limit(
///     State(handle): State<Handle>,
///     Path(rule): Path<String>,
///     quota: String,
/// ) -> Result<StatusCode, (StatusCode, String)> {
///     let said = |status| move |error: &dyn std::error::Error| (status, error.to_string());
///     let quota: Quota = quota.parse().map_err(|e| said(StatusCode::BAD_REQUEST)(&e))?;
///     handle.set_limit(&rule, quota).map_err(|error| {
///         let status = match &error {
///             HandleError::NoSuchRule(_) => StatusCode::NOT_FOUND,
///             HandleError::Config(_) | HandleError::WrongKey { .. } => StatusCode::BAD_REQUEST,
///             HandleError::Backend(_) => StatusCode::BAD_GATEWAY,
///             _ => StatusCode::INTERNAL_SERVER_ERROR,
///         };
///         said(status)(&error)
///     })?;
///     Ok(StatusCode::NO_CONTENT)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let orders = Rule::new("orders", TokenBucket::per_second(500));
/// let layer = RateLimitLayer::builder().rule(orders).build()?;
/// let admin = Router::new().route("/limits/{rule}", post(set_limit)).with_state(layer.handle());
/// let ask = |uri: &str, quota: &'static str| {
///     admin.clone().oneshot(Request::post(uri).body(Body::from(quota)).unwrap())
/// };
/// assert_eq!(ask("/limits/orders", "100/s burst 150").await?.status(), 204);
/// assert_eq!(layer.handle().peek("orders", (), 1).await?.limit(), 150);
/// assert_eq!(ask("/limits/odrers", "100/s").await?.status(), 404);
/// assert_eq!(ask("/limits/orders", "many").await?.status(), 400);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum HandleError {
    /// The backend could not answer.
    Backend(BackendError),
    /// The quota cannot be counted.
    Config(ConfigError),
    /// The layer has no rule of this name.
    NoSuchRule(String),
    /// The key named is not one the rule can have.
    WrongKey {
        /// The rule.
        rule: String,
        /// What its keys are.
        expected: String,
    },
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => fmt::Display::fmt(error, f),
            Self::Config(error) => fmt::Display::fmt(error, f),
            Self::NoSuchRule(name) => write!(f, "the layer has no rule {name:?}"),
            Self::WrongKey { rule, expected } => {
                write!(f, "the key of rule {rule:?} is: {expected}")
            }
        }
    }
}

impl Error for HandleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backend(error) => error.source(),
            Self::Config(_) | Self::NoSuchRule(_) | Self::WrongKey { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum_core::body::Body;
    use http::{Request, Response};
    use tower::{Layer, ServiceExt, service_fn};

    use super::*;
    use crate::{ManualClock, RateLimitLayer, Rule, TokenBucket, key, key::KeyBy};

    /// What a handle calls a key is what a request without headers counted under.
    #[tokio::test]
    async fn keys_named_and_keys_extracted_are_the_same() {
        let keys: [(KeyBy, RuleKey<'_>); 4] = [
            (key::global(), ().into()),
            (key::header("x-user-id").or(key::global()), RuleKey::from(()).alternative(1)),
            (key::always(|head| Key::from(head.path())), "/a".into()),
            (
                key::global().and(key::always(|head| Key::from(head.path()))),
                RuleKey::parts([Key::GLOBAL, Key::from("/a")]),
            ),
        ];
        for (by, named) in keys {
            let rule = Rule::new("r", TokenBucket::per_hour(9)).key(by.clone());
            let layer =
                RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap();
            let inner = service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            });
            for _ in 0..2 {
                layer
                    .layer(inner)
                    .oneshot(Request::get("/a").body(Body::empty()).unwrap())
                    .await
                    .unwrap();
            }
            let peeked = layer.handle().peek("r", named.clone(), 1).await.unwrap();
            assert_eq!(peeked.remaining(), 7, "{by:?}");
            assert!(layer.handle().reset("r", named.clone()).await.unwrap(), "{by:?}");
            assert_eq!(layer.handle().peek("r", named, 1).await.unwrap().remaining(), 9);
        }
    }
}
