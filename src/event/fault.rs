//! [`Fault`]: what is wrong with a set-up.

use std::{fmt, sync::Arc};

/// Something about the set-up that makes limits useless or unjust.
///
/// Found while requests are served, and told once: to [`Observer::fault`](crate::Observer::fault) and, with the feature
/// `tracing`, as a warning of the target `tower_sluice` with the fields `code` and `rule`. Nothing else
/// happens: requests are limited as well as the set-up allows.
///
/// | code | what it means | the usual cause, and what to do | harmless where |
/// | --- | --- | --- | --- |
/// | [SL-PEER](Self::Peer) | an address is wanted and there is none: all share one quota | served without connect info: `into_make_service_with_connect_info` | a test sends requests without a socket: `MockConnectInfo` |
/// | [SL-PROXY](Self::Proxy) | a forwarding header came, none is configured: all behind the proxy share one quota | a proxy is not configured: `x_forwarded_for` and `trusted_proxies` on `client_ip` | no proxy of yours stands in front, and callers send the header for nothing |
/// | [SL-ONEKEY](Self::OneKey) | a minute of requests, all with one key | a proxy is not configured, or wrongly: header, network, number of hops | there really is one caller: a load test, a gateway that is the customer |
/// | [SL-NOKEY](Self::NoKey) | the first 1,000 requests had no key | the layer stands outside of what sets the key; a name is misspelt | such callers are rare |
/// | [SL-ROUTE](Self::Route) | the route is wanted and cannot be seen | the layer stands around the router, or outside of a `nest_service`: put it inside | never |
/// | [SL-UPGRADE](Self::Upgrade) | a connection came of a request, and nothing keeps its permits: it is not counted | a WebSocket handler that leaves [`Permits`](crate::in_flight::Permits) alone | only what comes before the connection is to be limited |
/// | [SL-TIER](Self::Tier) | a request names a tier that its rule does not have, or none of the first 1,000 was in any: the rule's own quota counts | a name is misspelt, a plan is newer than the rule, or the layer stands outside of what sets the tier | hardly anybody pays for more |
/// | [SL-TWICE](Self::Twice) | a request passed one built layer twice, and pays twice | the layer is on the router and on a route: remove one | paying twice is meant |
/// | [SL-CLOCK](Self::Clock) | a timer rings and the limiter's clock stands still: who waits is refused | tokio's time is paused, and the limiter reads another clock: `.clock(TokioClock)` | never |
/// | [SL-KEYS](Self::Keys) | more live keys than the rule keeps: newcomers share buckets | `max_keys` is too small, or somebody invents keys | it was an attack, and is over |
/// | [SL-LEAKY](Self::Leaky) | a leaky bucket with nothing to wait in: ordinary bursts are refused | the rule's policy does not queue: [`RejectionPolicy::queue`](crate::RejectionPolicy::queue), or `TokenBucket` | callers keep the interval themselves, as `Retry-After` tells them |
/// | [SL-SHARE](Self::Share) | the store of shared limits is away, and nobody knows how many instances share them: each takes itself for the only one | it was away from the start: `Redis::instances` | there is one instance |
/// | [SL-STORE](Self::Store) | the store of shared limits was never reached | address, network, or it is not started | it comes later |
/// | [SL-STORE-ACCESS](Self::StoreAccess) | the store does not let us in | user or password, or what the user may do | never |
/// | [SL-STORE-CLUSTER](Self::StoreCluster) | the store is a cluster and is asked as one server, or the other way round | `Redis::cluster` for clusters, `Redis::new` for servers | never |
/// | [SL-STORE-DB](Self::StoreDatabase) | the store has no such database | the number at the end of the URL | never |
/// | [SL-STORE-KEY](Self::StoreForeign) | what lies under a key of ours is not ours | another program writes there: `Redis::prefix` | never |
/// | [SL-STORE-OLD](Self::StoreOld) | the store is too old to count | Redis before 6.2: upgrade | never |
///
/// The last seven come from the [backend](crate::backend) and go to the observers that it was given.
///
/// [`silence`](crate::RateLimitLayerBuilder::silence) turns one off for a layer:
///
/// ```
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, event::Fault, key};
///
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("per-address", TokenBucket::per_second(10)).key(key::client_ip()))
///     .silence(Fault::Proxy) // nothing forwards to us; callers send the header all the same
///     .build()?;
/// assert_eq!(Fault::Proxy.code(), "SL-PROXY");
/// assert!(Fault::Proxy.advice().contains("trusted_proxies"));
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// SL-CLOCK: a timer rang three times while the clock of the layer or limiter stood still.
    ///
    /// Mostly a test has paused tokio's time, which makes timers ring at once, and the limiter reads another
    /// clock: give it [`TokioClock`](crate::TokioClock). The wait ends as refused. Told once per layer, and
    /// each time by a limiter without one.
    Clock,
    /// SL-KEYS: more live keys than the rule keeps.
    ///
    /// New keys share overflow buckets until others are idle; keys that are known keep theirs. Raise
    /// [`max_keys`](crate::Rule::max_keys), or ask who sends so many keys. Told once per rule.
    Keys,
    /// SL-LEAKY: a leaky bucket with nothing to wait in.
    ///
    /// The rule's policy cannot queue, so every request that comes less than an interval after the last is
    /// refused, and callers send bursts: a page with its images, a retry. Let them wait with
    /// [`RejectionPolicy::queue`](crate::RejectionPolicy::queue), or count with a
    /// [`TokenBucket`](crate::TokenBucket), whose burst they may spend at once. Told with the first such rule.
    Leaky,
    /// SL-NOKEY: none of the first 1,000 requests that the rule applied to had its key.
    ///
    /// The rule then skips everybody, counts everybody together or refuses everybody, as its
    /// [`Missing`](crate::Missing) says. Mostly the layer stands outside of the authentication that sets
    /// the key. Once one request had a key this is never told.
    NoKey,
    /// SL-ONEKEY: a minute of requests, a hundred at least, all with one key.
    ///
    /// The rule limits everybody together, though it is written per caller. With
    /// [`client_ip`](crate::key::client_ip) the key is then mostly the proxy's own address: no header is
    /// configured, or the wrong one, or its networks or hops are not those of the proxies.
    OneKey,
    /// SL-PEER: the client's address is wanted and no peer address is known.
    ///
    /// The server was started without connect info, so a request does not tell who is connected: serve
    /// with `app.into_make_service_with_connect_info::<SocketAddr>()`. Such requests share one quota, and
    /// no forwarding header of theirs is believed. A matcher by network raises it too.
    Peer,
    /// SL-PROXY: a forwarding header came, and no rule of the layer is told to believe one.
    ///
    /// If a proxy of yours writes it, everybody behind that proxy shares one quota: write
    /// `key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24"])`, or what else
    /// [`ClientIp`](crate::key::ClientIp) has. If nothing forwards to you, ignoring the header is right.
    Proxy,
    /// SL-ROUTE: the matched route is wanted where it cannot be seen.
    ///
    /// Outside the router no route is matched yet, and outside of a `nest_service` the inner one is not.
    /// A path pattern then applies to every request, and [`key::route`](crate::key) counts all of them
    /// together.
    Route,
    /// SL-SHARE: the store of shared limits is away, and nobody knows how many instances share them.
    ///
    /// A rule that counts its share then takes itself for the only one, so that together they may admit more than
    /// the quota. Heartbeats tell the number from the first contact with the store on; to know it before, tell it:
    /// `Redis::instances`, or `instances_from`. Told once per connection, as all faults of a store.
    Share,
    /// SL-STORE: the store of shared limits was never reached.
    ///
    /// It is tried twice a second, and rules decide by their mode meanwhile. Mostly the address is wrong, a network
    /// forbids it, or it is not started yet. Told when the first try fails.
    Store,
    /// SL-STORE-ACCESS: the store does not let us in.
    ///
    /// User or password are wrong or missing in the URL, or the user may not run scripts or write our keys:
    /// `+evalsha +eval +script|load +time +set +get +del +pttl +pexpire +zadd +zcard +zrange +zrangebyscore +zrem
    /// +zremrangebyscore` on keys of the prefix. All of it is tried before anything is counted.
    StoreAccess,
    /// SL-STORE-CLUSTER: the store is a cluster and is asked as one server, or the other way round.
    StoreCluster,
    /// SL-STORE-DB: the store has no database of the number at the end of the URL.
    StoreDatabase,
    /// SL-STORE-KEY: what lies under a key of ours is not ours.
    ///
    /// It is left as it is, and requests with that key are decided as if the store were away. Another program writes
    /// keys that begin like ours: give it or us another prefix, and delete the key.
    StoreForeign,
    /// SL-STORE-OLD: the store is too old to count: Redis before 6.2.
    StoreOld,
    /// SL-TIER: [`tiers`](crate::Rule::tiers) named a tier that the rule does not have, or none for any of the first
    /// 1,000 requests.
    ///
    /// Such requests count under the rule's own quota, so that nothing is unlimited: a customer who pays for more
    /// does not get it. Mostly the name is misspelt, or of a plan that the rule was not told of: add the
    /// [`tier`](crate::Rule::tier), or return `None` for who is in no tier. Where nobody ever is in one, the layer
    /// mostly stands outside of the middleware that sets the plan. Told once per rule. The name itself is not told: it
    /// may come from a caller.
    Tier,
    /// SL-TWICE: one request passed the same built layer twice.
    ///
    /// It is charged twice by every rule: clones of a layer are one layer. Two layers that were built
    /// apart may both be passed.
    Twice,
    /// SL-UPGRADE: a request became a connection of its own, and nobody kept its permits in flight.
    ///
    /// The answer (101, or that to `CONNECT`) ends at once, and with it the request: the connection that comes of
    /// it, a WebSocket say, is counted no longer, and there may be any number. Keep
    /// [`Permits`](crate::in_flight::Permits) in the task that serves it.
    Upgrade,
}

impl Fault {
    /// The code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Clock => "SL-CLOCK",
            Self::Keys => "SL-KEYS",
            Self::Leaky => "SL-LEAKY",
            Self::NoKey => "SL-NOKEY",
            Self::OneKey => "SL-ONEKEY",
            Self::Peer => "SL-PEER",
            Self::Proxy => "SL-PROXY",
            Self::Route => "SL-ROUTE",
            Self::Share => "SL-SHARE",
            Self::Store => "SL-STORE",
            Self::StoreAccess => "SL-STORE-ACCESS",
            Self::StoreCluster => "SL-STORE-CLUSTER",
            Self::StoreDatabase => "SL-STORE-DB",
            Self::StoreForeign => "SL-STORE-KEY",
            Self::StoreOld => "SL-STORE-OLD",
            Self::Tier => "SL-TIER",
            Self::Twice => "SL-TWICE",
            Self::Upgrade => "SL-UPGRADE",
        }
    }

    /// What is wrong and what to do.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Clock => {
                "tokio time is paused, the limiter's clock is not, so who waits is refused; \
                 give the layer or limiter .clock(TokioClock), or do not pause time"
            }
            Self::Keys => {
                "more live keys than the rule keeps, so new ones share overflow buckets; raise max_keys, \
                 or find out who sends so many keys"
            }
            Self::Leaky => {
                "a leaky bucket admits one request per interval and this rule has nothing to wait in, so \
                 ordinary bursts are refused; let them wait with RejectionPolicy::queue(..), or use \
                 TokenBucket, which has a burst"
            }
            Self::NoKey => {
                "none of the first 1,000 requests had the rule's key, so it tells nobody apart; \
                 is the layer inside whatever sets the key, and is the key's name right?"
            }
            Self::OneKey => {
                "a minute of requests all had one key, so everybody shares one quota; behind a proxy, \
                 tell client_ip which header it writes and where it stands, and if you did: another \
                 header, network or number of hops may be the right one"
            }
            Self::Peer => {
                "the client's address is wanted, but the peer address is unknown, so all requests share \
                 one quota; serve with into_make_service_with_connect_info::<SocketAddr>()"
            }
            Self::Proxy => {
                "requests carry a forwarding header and no proxy is configured, so everybody behind the \
                 proxy shares one quota; write \
                 key::client_ip().x_forwarded_for().trusted_proxies([\"10.0.1.0/24\"]) with its own \
                 header and network, or .silence(Fault::Proxy) if no proxy of yours is in front"
            }
            Self::Route => {
                "the rule reads the matched route, which cannot be seen from here; put the layer inside \
                 the router (Router::layer, route_layer or MethodRouter::layer), and use nest instead of \
                 nest_service"
            }
            Self::Share => {
                "the store of shared limits is away and nobody knows how many instances share them, so each \
                 counts as if it were the only one; tell Redis::instances(..) or instances_from(..)"
            }
            Self::Store => {
                "the store of shared limits was never reached, so each rule decides by its mode for a store \
                 that is away; is the address right, and the server started?"
            }
            Self::StoreAccess => {
                "the store of shared limits does not let us in; put the right user and password into the URL, \
                 and let the user run scripts and write keys of the prefix"
            }
            Self::StoreCluster => {
                "the store of shared limits is a cluster and is asked as one server, or the other way round; \
                 use Redis::cluster(..) for a cluster, with the feature redis-cluster, and Redis::new(..) for a server"
            }
            Self::StoreDatabase => {
                "the store of shared limits has no database of that number; correct the end of the URL"
            }
            Self::StoreForeign => {
                "what lies under a key of the limiter was not written by it, so requests with that key are \
                 decided as if the store were away; give it another prefix(..), or delete the key"
            }
            Self::StoreOld => {
                "the store of shared limits is too old to count; it takes Redis 6.2, or Valkey"
            }
            Self::Tier => {
                "tiers(..) named a tier that the rule does not have, or none for any of 1,000 requests, so they \
                 count under the rule's own quota; add .tier(name, quota), correct the name, or put the layer \
                 inside of what sets the tier"
            }
            Self::Twice => {
                "one request passed the same layer twice and is charged twice; \
                 remove one of the two, or build a second layer if both should count"
            }
            Self::Upgrade => {
                "a request became a connection and nothing keeps its in-flight permits, so the connection \
                 is not counted; move the extension in_flight::Permits into the task that serves it"
            }
        }
    }

    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A [`Fault`] found in a layer, with the rule it concerns. `Display` says what to do.
///
/// A test of the whole service can demand that there is none:
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use std::sync::{Arc, Mutex};
/// use tower::ServiceExt;
/// use tower_sluice::{Observer, RateLimitLayer, Rule, TokenBucket, event::SetupFault, key};
///
/// #[derive(Default)]
/// struct Faults(Mutex<Vec<String>>);
///
/// impl Observer for Faults {
///     fn fault(&self, fault: &SetupFault) {
///         self.0.lock().unwrap().push(fault.to_string());
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let faults = Arc::new(Faults::default());
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("per-address", TokenBucket::per_second(10)).key(key::client_ip()))
///     .observer(faults.clone())
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
///
/// // Nobody told this request's address.
/// app.oneshot(Request::get("/").body(Body::empty())?).await?;
/// let told = faults.0.lock().unwrap();
/// assert_eq!(told.len(), 1);
/// assert!(told[0].starts_with("SL-PEER: rule \"per-address\": "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SetupFault {
    pub(crate) fault: Fault,
    pub(crate) rule: Option<Arc<str>>,
}

impl SetupFault {
    /// What kind of fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The rule concerned, if one is.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }
}

impl fmt::Display for SetupFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.fault.code())?;
        if let Some(rule) = &self.rule {
            write!(f, "rule {rule:?}: ")?;
        }
        f.write_str(self.fault.advice())
    }
}
