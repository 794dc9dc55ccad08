//! [`Rule`]: a named algorithm, counted per key, for the requests it applies to; and [`InFlight`], which
//! limits what is under way.

mod in_flight;
mod scope;
mod tiers;

use std::{any::Any, fmt, sync::Arc};

use http::StatusCode;

pub use self::in_flight::InFlight;
pub(crate) use self::{
    scope::Scope,
    tiers::{MAX_TIERS, Pick, Tiers},
};
use crate::{
    Algorithm, KeyedLimiter, Limiter, RejectionPolicy,
    backend::{Backend, Local},
    clock::Time,
    request::{
        cost::Cost,
        head::Head,
        key::KeyExtractor,
        matcher::{self, Matcher},
    },
};

/// One limit of a layer.
///
/// | setting | default |
/// | --- | --- |
/// | [`key`](Self::key) | none: all its requests count together |
/// | [`missing`](Self::missing) | none: a key that can be missing needs it |
/// | [`when`](Self::when), [`matching`](Self::matching) | every request |
/// | [`tier`](Self::tier), [`tiers`](Self::tiers) | none: one quota for everybody |
/// | [`cost`](Self::cost), [`cost_fn`](Self::cost_fn) | 1 |
/// | [`status`](Self::status) | 429 |
/// | [`rejection`](Self::rejection), [`backend`](Self::backend) | the layer's |
/// | [`while_away`](Self::while_away) | as other refusals, with 503 |
/// | [`spread`](Self::spread) | on without a key, off with one |
/// | [`advertise`](Self::advertise) | shown to callers with a key, not without |
/// | [`max_keys`](Self::max_keys) | 131,072 |
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{Missing, Rule, SlidingLog, TokenBucket, key, matcher};
///
/// // Whoever logs in is nobody yet: only the address is known. A log, since each permit is a guess.
/// let logins = Rule::new("logins", SlidingLog::new(20, Duration::from_secs(15 * 60)))
///     .key(key::client_ip())
///     .matching(matcher::path("/login"));
/// let exports = Rule::new("exports", TokenBucket::per_hour(100))
///     .key(key::header("x-tenant"))
///     .missing(Missing::Skip)
///     .cost_fn(|head| if head.path().ends_with(".zip") { 10 } else { 1 });
/// # let _ = (logins, exports);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    pub(crate) name: Arc<str>,
    pub(crate) counting: Counting,
    pub(crate) scope: Scope,
    pub(crate) tiers: Tiers,
    pub(crate) cost: Cost,
    pub(crate) status: StatusCode,
    pub(crate) policy: Option<RejectionPolicy>,
    pub(crate) while_away: Option<RejectionPolicy>,
    pub(crate) spread: Option<bool>,
    pub(crate) advertised: bool,
    pub(crate) max_keys: Option<u64>,
    pub(crate) place: Place,
}

/// Where a rule counts.
#[derive(Clone)]
pub(crate) enum Place {
    /// As the layer says.
    Default,
    /// In this process.
    Here,
    /// On a backend that is not this process's own.
    Elsewhere(Arc<dyn Backend>),
}

/// What a rule counts with.
#[derive(Clone)]
pub(crate) enum Counting {
    /// State of its own.
    Own(Algorithm),
    /// State it shares with whoever holds the limiter.
    Shared(SharedLimiter),
}

/// A limiter of this process that a rule shares with others; see [`Rule::on`]. For several processes there is a
/// [`backend`](Rule::backend).
///
/// ```
/// use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // An account's quota, spent by its requests and by the jobs they leave behind.
/// let account = TokenBucket::per_minute(60).keyed_limiter().name("account");
/// # let account = account.clock(ManualClock::new());
/// let account = account.build()?;
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::on(account.clone()).key(key::header("x-account").or(key::global())))
///     .build()?;
/// assert!(account.try_acquire_many("acme", 25).is_allowed());
/// assert_eq!(layer.handle().peek("account", "acme", 1).await?.remaining(), 35);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SharedLimiter {
    /// Counted per key.
    Keyed(KeyedLimiter),
    /// All together.
    Unkeyed(Limiter),
}

impl From<Limiter> for SharedLimiter {
    fn from(limiter: Limiter) -> Self {
        Self::Unkeyed(limiter)
    }
}

impl From<KeyedLimiter> for SharedLimiter {
    fn from(limiter: KeyedLimiter) -> Self {
        Self::Keyed(limiter)
    }
}

/// What a rule does with a request that has no key.
///
/// There is no default: each choice is wrong for somebody, so a rule whose key can be missing says which.
///
/// ```
/// use http::StatusCode;
/// use tower_sluice::{Missing, Rule, TokenBucket, key};
///
/// let rule = Rule::new("api", TokenBucket::per_second(10))
///     .key(key::header("x-api-key"))
///     .missing(Missing::Refuse(StatusCode::UNAUTHORIZED));
/// # let _ = rule;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// All requests without a key count together.
    Shared,
    /// The rule does not apply.
    Skip,
    /// The request is refused with this status, and nothing is charged.
    Refuse(StatusCode),
}

impl Rule {
    /// A rule with state of its own.
    ///
    /// Its name is told to callers, logs and metrics: `[A-Za-z][A-Za-z0-9_.-]{0,63}`, checked when the
    /// layer is built, as everything else.
    pub fn new(name: impl Into<String>, algorithm: impl Into<Algorithm>) -> Self {
        Self::counted(Arc::from(name.into()), Counting::Own(algorithm.into()))
    }

    /// A rule that counts with a limiter others hold too: another layer, a client, a job. It has the
    /// limiter's name. The layer uses the limiter's clock, unless it is given
    /// another: then `build` says so.
    ///
    /// A rule with a key needs a [`KeyedLimiter`], a rule without one a [`Limiter`]. Rules on one keyed limiter
    /// should have one kind of key: a user and a tenant of the same name are one key to it.
    ///
    /// ```
    /// use tower_sluice::{RateLimitLayer, Rule, TokenBucket};
    ///
    /// let database = TokenBucket::per_second(200).limiter().name("database").build()?;
    /// let reads = RateLimitLayer::builder().rule(Rule::on(database.clone())).build()?;
    /// let writes = RateLimitLayer::builder().rule(Rule::on(database.clone()).cost(5)).build()?;
    /// # let _ = (reads, writes);
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub fn on(limiter: impl Into<SharedLimiter>) -> Self {
        let limiter = limiter.into();
        let name = match &limiter {
            SharedLimiter::Keyed(limiter) => &limiter.shared.name,
            SharedLimiter::Unkeyed(limiter) => &limiter.shared.name,
        };
        Self::counted(Arc::clone(name), Counting::Shared(limiter))
    }

    /// The clock of the limiter it shares.
    pub(crate) fn clock(&self) -> Option<&Time> {
        match &self.counting {
            Counting::Own(_) => None,
            Counting::Shared(SharedLimiter::Keyed(limiter)) => Some(&limiter.time),
            Counting::Shared(SharedLimiter::Unkeyed(limiter)) => Some(&limiter.time),
        }
    }

    fn counted(name: Arc<str>, counting: Counting) -> Self {
        Self {
            name,
            counting,
            scope: Scope::default(),
            tiers: Tiers::default(),
            cost: Cost::from(1),
            status: StatusCode::TOO_MANY_REQUESTS,
            policy: None,
            while_away: None,
            spread: None,
            advertised: false,
            max_keys: None,
            place: Place::Default,
        }
    }

    /// Counts per key. See the [`key`](crate::key) module for the keys there are.
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.scope.key = Some(key.boxed());
        self
    }

    /// Sets what becomes of a request without a key.
    pub fn missing(mut self, missing: Missing) -> Self {
        self.scope.missing = Some(missing);
        self
    }

    /// Applies the rule only to requests for which `applies` is true. Several conditions must all hold. A
    /// stored [`Match`](crate::matcher::Match) goes to [`matching`](Self::matching).
    pub fn when(self, applies: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.matching(matcher::from_fn(applies))
    }

    /// Applies the rule only to requests that match. Several conditions must all hold. A closure goes to
    /// [`when`](Self::when).
    pub fn matching(mut self, matcher: impl Matcher) -> Self {
        self.scope.narrow(matcher.boxed());
        self
    }

    /// Sets the permits a request costs. Zero is always allowed and spends nothing; more than the limit is
    /// an error at build. A closure goes to [`cost_fn`](Self::cost_fn).
    pub fn cost(mut self, cost: impl Into<Cost>) -> Self {
        self.cost = cost.into();
        self
    }

    /// Computes the permits a request costs from its head. A cost above the limit is refused for good,
    /// without `Retry-After`.
    pub fn cost_fn(self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost(Cost::from_fn(cost))
    }

    /// Sets the status of this rule's refusals: an error status. Default: 429.
    ///
    /// gRPC requests are answered with RESOURCE_EXHAUSTED (8); where this is 503, with UNAVAILABLE (14).
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets how this rule's refusals are answered. Default: as the layer says.
    pub fn rejection(mut self, policy: RejectionPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets how requests are answered that this rule's backend cannot count and does not let pass. Default: by the
    /// policy of the rule's other refusals, of which a queue is skipped, and with 503.
    ///
    /// ```
    /// use tower_sluice::{FixedWindow, RejectionPolicy, Rule, backend::Backend};
    ///
    /// /// For a backend that refuses while its store is away.
    /// fn codes(shared: impl Backend) -> Rule {
    ///     Rule::new("codes", FixedWindow::per_hour(5)).backend(shared).while_away(
    ///         RejectionPolicy::degrade(async || "We cannot send codes at the moment: call us."),
    ///     )
    /// }
    /// # let _ = codes(tower_sluice::backend::Local::new());
    /// ```
    pub fn while_away(mut self, policy: RejectionPolicy) -> Self {
        self.while_away = Some(policy);
        self
    }

    /// Shows the rule to callers where the layer tells them how they stand
    /// ([`headers`](crate::RateLimitLayerBuilder::headers)). Default: rules with a key are shown, others are not, since
    /// they tell strangers how loaded the service is.
    ///
    /// ```
    /// use tower_sluice::{FixedWindow, Headers, RateLimitLayer, Rule};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .rule(Rule::new("daily", FixedWindow::per_day(10_000)).advertise())
    ///     .headers(Headers::Draft11)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub fn advertise(mut self) -> Self {
        self.advertised = true;
        self
    }

    /// Sets whether `Retry-After` is spread: 0 to a fifth of it, at least a second, is added at random so
    /// that many who heard the same answer do not return together. Default: on without a key, off
    /// with one.
    pub fn spread(mut self, on: bool) -> Self {
        self.spread = Some(on);
        self
    }

    /// Sets how many keys are kept at most. Default: 131,072. When all are live, newcomers share overflow buckets and
    /// SL-KEYS says so.
    ///
    /// A bucket or fixed window takes 32 bytes for each that may be kept, for every quota the key may have (see
    /// `relaxed` and [`tier`](Self::tier)); a sliding window or log takes more, for each that is in use: see
    /// [memory](crate::guide::algorithms#memory-and-speed).
    pub fn max_keys(mut self, keys: u64) -> Self {
        self.max_keys = Some(keys);
        self
    }

    /// Counts on another backend. Default: the layer's, which is in this process.
    ///
    /// [`Local`](crate::backend::Local) is this process, whatever the layer's backend is.
    pub fn backend(mut self, backend: impl Backend) -> Self {
        self.place = Place::of(backend);
        self
    }
}

impl Place {
    pub(crate) fn of<B: Backend>(backend: B) -> Self {
        let any: &dyn Any = &backend;
        if any.is::<Local>() { Self::Here } else { Self::Elsewhere(Arc::new(backend)) }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("key", &self.scope.key)
            .field("missing", &self.scope.missing)
            .field("tiers", &self.tiers)
            .finish_non_exhaustive()
    }
}
