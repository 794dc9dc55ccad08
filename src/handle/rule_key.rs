//! [`RuleKey`]: a key as a handle is told of it.

use std::net::{IpAddr, Ipv4Addr};

use smallvec::{SmallVec, smallvec};

use super::HandleError;
use crate::{
    Key,
    backend::{Charge, local::Seat},
    plan::{Encoded, MISSING, Planned, Remote},
    request::key::KeyBy,
};

/// A key as a [`Handle`](crate::Handle) is told of it.
///
/// A plain value is the key of a rule with one. Where `and` combined keys, name the [`parts`](Self::parts);
/// where `or` did, say which [`alternative`](Self::alternative); a client's address is told by
/// [`address`](Self::address), whatever the rule makes of it. Where the rule has tiers, each [tier](Self::tier)
/// has a count of its own. A key that cannot be the rule's is an
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
pub struct RuleKey<'k> {
    named: Named<'k>,
    tier: Option<&'k str>,
}

#[derive(Clone, Debug)]
enum Named<'k> {
    Parts(Resolved<'k>),
    Address(IpAddr),
    Missing,
}

/// A key as its rule counts it.
#[derive(Clone, Debug)]
pub(super) struct Resolved<'k> {
    parts: SmallVec<[Key<'k>; 2]>,
    alternative: u8,
    /// By its number; 0 is none.
    tier: usize,
}

impl<'k> Resolved<'k> {
    fn new(alternative: u8, parts: SmallVec<[Key<'k>; 2]>) -> Self {
        Self { parts, alternative, tier: 0 }
    }
}

impl<'k> RuleKey<'k> {
    /// The key whose parts `and` combined, in its order.
    pub fn parts(parts: impl IntoIterator<Item = Key<'k>>) -> Self {
        Self::named(Named::Parts(Resolved::new(0, parts.into_iter().collect())))
    }

    /// The key that the rule's `nth` alternative yields, counted from 0 over all its `or`s. Default: 0.
    pub fn alternative(mut self, nth: u8) -> Self {
        if let Named::Parts(key) = &mut self.named {
            key.alternative = nth;
        }
        self
    }

    /// The key in this tier, where it has a count of its own. Default: in none, under the rule's own quota.
    pub fn tier(mut self, name: &'k str) -> Self {
        self.tier = Some(name);
        self
    }

    /// A client's address, as the rule's `client_ip` counts it: IPv6 by its prefix, and the alternative
    /// that it is.
    pub fn address(address: IpAddr) -> Self {
        Self::named(Named::Address(address))
    }

    /// The requests without a key, where the rule counts them together
    /// ([`Missing::Shared`](crate::Missing::Shared)).
    pub fn missing() -> Self {
        Self::named(Named::Missing)
    }

    fn named(named: Named<'k>) -> Self {
        Self { named, tier: None }
    }

    /// The key as `rule` counts it.
    pub(super) fn resolve(self, rule: &Planned) -> Result<Resolved<'k>, HandleError> {
        let fits = |key: &Resolved<'_>| match &rule.scope.key {
            Some(by) => by.admits(key.alternative, &key.parts),
            None => key.alternative == 0 && key.parts.iter().all(Key::is_empty),
        };
        let key = match self.named {
            Named::Parts(key) => Some(key).filter(fits),
            Named::Address(address) => {
                let found = rule.scope.key.as_ref().and_then(|by| by.address(address));
                found.map(|(alternative, key)| Resolved::new(alternative, smallvec![key]))
            }
            Named::Missing => {
                rule.scope.shares_missing().then(|| Resolved::new(MISSING, SmallVec::new()))
            }
        };
        let mut key = key.ok_or_else(|| HandleError::WrongKey {
            rule: rule.by.name.to_string(),
            expected: expected(rule.scope.key.as_ref()),
        })?;
        if let Some(tier) = self.tier {
            let number = rule.tiers.as_ref().and_then(|tiers| tiers.number(tier));
            key.tier = number.ok_or_else(|| HandleError::no_such_tier(rule, tier))?;
        }
        Ok(key)
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
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let by_address = key.address(address).map_or("", |_| "; name an address by RuleKey::address");
    format!("{}; {parts} part{s}{alternatives}{by_address}", key.describe())
}

impl Resolved<'_> {
    fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(Key::as_bytes)
    }

    pub(super) fn seat(&self, rule: &Planned) -> Seat {
        rule.seat_of(self.tier, self.alternative, self.bytes())
    }

    pub(super) fn encoded(&self, rule: &Planned) -> Encoded {
        rule.key_bytes_of(self.seat(rule), self.alternative, self.bytes())
    }

    pub(super) fn charge<'c>(
        &self,
        rule: &Planned,
        remote: &Remote,
        bytes: &'c Encoded,
        cost: u64,
    ) -> Charge<'c> {
        Charge::new(remote.id, cost).quota_index(self.seat(rule).quota).key(bytes.as_bytes())
    }
}

impl<'k, K: Into<Key<'k>>> From<K> for RuleKey<'k> {
    fn from(key: K) -> Self {
        Self::named(Named::Parts(Resolved::new(0, smallvec![key.into()])))
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
