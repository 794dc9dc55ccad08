//! [`RateLimitLayer`] and its builder.

use std::{fmt, sync::Arc};

use ahash::RandomState;
use tower_layer::Layer;

use crate::{
    ConfigError, Handle, Head, Headers, InFlight, RateLimit, RejectionPolicy, Rule, UnreadBody,
    backend::Backend,
    body::{Erased, Kept},
    clock::{Clock, Time},
    core::Core,
    event::{Fault, Observer},
    observe::Watch,
    plan::{Defaults, Plan, Planned, Scoped, Shown},
    request::matcher::{self, Match, Matcher},
    rule::Place,
};

/// Limits that requests must pass before they reach the service inside.
///
/// All state lives in this value: services it makes and clones of it share one count, whatever builds a
/// service per connection or per request. Building twice makes two counts.
///
/// The service is [`RateLimit`]; the [crate page](crate) shows where to put the layer.
///
/// ```
/// use axum::{Router, routing::post};
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, key};
///
/// let writes = RateLimitLayer::builder()
///     .rule(Rule::new("orders", TokenBucket::per_second(500).burst(750)))
///     .rule(Rule::new("per-address", TokenBucket::per_second(10).burst(20)).key(key::client_ip()))
///     .build()?;
/// let app: Router = Router::new().route("/orders", post(|| async {}).layer(writes));
/// # let _ = app;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a layer limits nothing until it is put around a service"]
pub struct RateLimitLayer {
    pub(crate) core: Arc<Core>,
}

/// A [`RateLimitLayer`] whose answers keep the inner body's type; see
/// [`RateLimitLayer::keep_body`].
///
/// Under axum there is nothing to gain. Where a service of hyper's or tonic's has a body of its own, this
/// saves the box around it:
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_sluice::{FixedWindow, RateLimitLayer, Rule, body::ResponseBody};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = RateLimitLayer::builder().rule(Rule::new("daily", FixedWindow::per_day(1))).build()?;
/// let service = layer.keep_body().layer(service_fn(async |_: Request<Full<Bytes>>| {
///     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
/// }));
///
/// let ask = || service.clone().oneshot(Request::new(Full::default()));
/// let served: Response<ResponseBody<Full<Bytes>>> = ask().await?;
/// assert_eq!(served.into_body().collect().await?.to_bytes(), "hello");
/// assert_eq!(ask().await?.status(), 429);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a layer limits nothing until it is put around a service"]
pub struct KeepBodyLayer {
    core: Arc<Core>,
}

impl RateLimitLayer {
    /// Starts a layer without rules.
    pub fn builder() -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::default()
    }

    /// A handle to look at the counts and to change them.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.core))
    }

    /// The same limits, for services that are not axum's: answers are
    /// [`ResponseBody`](crate::body::ResponseBody) around the inner body instead of one boxed body.
    pub fn keep_body(self) -> KeepBodyLayer {
        KeepBodyLayer { core: self.core }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S, Erased>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.core))
    }
}

impl<S> Layer<S> for KeepBodyLayer {
    type Service = RateLimit<S, Kept>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.core))
    }
}

/// Settings of a [`RateLimitLayer`].
///
/// | setting | default |
/// | --- | --- |
/// | [`rule`](Self::rule), [`in_flight`](Self::in_flight) | none; at least one |
/// | [`rejection`](Self::rejection) | 429 with `Retry-After` and problem details |
/// | [`exempt`](Self::exempt), [`exempt_matching`](Self::exempt_matching) | none |
/// | [`exempt_by_default`](Self::exempt_by_default) | on: CORS preflights, gRPC health |
/// | [`clock`](Self::clock) | [`FastClock`](crate::clock::FastClock) |
/// | [`backend`](Self::backend) | in this process |
/// | [`observer`](Self::observer) | none |
/// | [`silence`](Self::silence) | nothing silenced |
/// | [`headers`](Self::headers) | none |
/// | [`headers_on_admitted`](Self::headers_on_admitted) | on |
/// | [`unread_body`](Self::unread_body) | [`UnreadBody::Close`] |
/// | [`expose_decision`](Self::expose_decision), [`expose_rejection`](Self::expose_rejection) | off |
///
/// ```
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, event::Fault, matcher};
///
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("all", TokenBucket::per_second(500)))
///     .exempt_matching(matcher::path("/healthz"))
///     .silence(Fault::Proxy)
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct RateLimitLayerBuilder {
    rules: Vec<Rule>,
    in_flight: Vec<InFlight>,
    policy: RejectionPolicy,
    exempt: Vec<Match>,
    exempt_by_default: bool,
    time: Option<Time>,
    backend: Option<Arc<dyn Backend>>,
    observers: Vec<Arc<dyn Observer>>,
    silenced: Vec<Fault>,
    expose_decision: bool,
    expose_rejection: bool,
    headers: Vec<Headers>,
    headers_on_admitted: bool,
    unread: UnreadBody,
}

impl Default for RateLimitLayerBuilder {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            in_flight: Vec::new(),
            policy: RejectionPolicy::respond(),
            exempt: Vec::new(),
            exempt_by_default: true,
            time: None,
            backend: None,
            observers: Vec::new(),
            silenced: Vec::new(),
            expose_decision: false,
            expose_rejection: false,
            headers: Vec::new(),
            headers_on_admitted: true,
            unread: UnreadBody::default(),
        }
    }
}

impl RateLimitLayerBuilder {
    /// Adds a rule. A request must pass all that apply, and is charged by all or by none.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds rules.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }

    /// Adds a limit on what is in flight. Several may be given; a request holds a permit of each that applies.
    ///
    /// ```
    /// use tower_sluice::{InFlight, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::builder().in_flight(InFlight::new("feed", 64)).build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub fn in_flight(mut self, limit: InFlight) -> Self {
        self.in_flight.push(limit);
        self
    }

    /// Sets what becomes of requests that do not fit, for limits that do not say it themselves: refused, made
    /// to wait, or answered by another handler. See [`RejectionPolicy`].
    pub fn rejection(mut self, policy: RejectionPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Takes requests out of everything: no rule sees them, nothing is charged. Several may be given.
    pub fn exempt(self, exempt: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.exempt_matching(matcher::from_fn(exempt))
    }

    /// Takes matching requests out of everything, a health check first of all. Several may be given.
    ///
    /// A route pattern exempts nothing where the route cannot be seen: outside the router, exempt by
    /// [`Head::path`] instead.
    pub fn exempt_matching(mut self, matcher: impl Matcher) -> Self {
        self.exempt.push(matcher.boxed());
        self
    }

    /// Sets whether true CORS preflights (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) and
    /// gRPC health checks are exempt. Default: they are.
    ///
    /// Turn it off where such an `OPTIONS` reaches a handler that does work (`any(..)`, a proxy, a fallback):
    /// anybody can send one. With a CORS layer outside the limiter, preflights never come here anyway.
    pub fn exempt_by_default(mut self, on: bool) -> Self {
        self.exempt_by_default = on;
        self
    }

    /// Sets the clock, with its timer. Default: that of the first limiter a rule shares, else
    /// [`FastClock`](crate::clock::FastClock).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.time = Some(Time::of(clock));
        self
    }

    /// Sets the backend of rules that do not name one and do not share a limiter.
    pub fn backend(mut self, backend: impl Backend) -> Self {
        self.backend = match Place::of(backend) {
            Place::Elsewhere(backend) => Some(backend),
            Place::Default | Place::Here => None,
        };
        self
    }

    /// Adds an observer. Several may be given.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Never raises this set-up fault.
    pub fn silence(mut self, fault: Fault) -> Self {
        self.silenced.push(fault);
        self
    }

    /// Puts [`Decisions`](crate::Decisions) into the extensions of admitted requests and of their
    /// responses. Costs allocations on each request.
    pub fn expose_decision(mut self) -> Self {
        self.expose_decision = true;
        self
    }

    /// Puts the [`Rejection`](crate::Rejection) into the extensions of refusals, for layers outside.
    pub fn expose_rejection(mut self) -> Self {
        self.expose_rejection = true;
        self
    }

    /// Tells callers how they stand, in fields of this form: what their quota is, how much is left, when it is
    /// whole. Several may be given, one of the draft's and one of `X-RateLimit`. Default: none.
    ///
    /// Rules and in-flight limits with a key are shown; others by [`Rule::advertise`] and
    /// [`InFlight::advertise`]. [`Headers`] says what the fields have in them, and [`exposed_headers`](crate::exposed_headers)
    /// lets scripts in browsers read them.
    ///
    /// Fields are added to admitted answers, to refusals, and to degraded answers, but to no redirect. Where layers are
    /// stacked the lists have the members of all, inner first; of fields with one value the inner one stands, and
    /// so does what a [responder](RejectionPolicy::respond_with) sets. A shared cache that stores an answer would
    /// show one caller's numbers to others: let it not store the answers that callers have limits of their own for, or
    /// see [`headers_on_admitted`](Self::headers_on_admitted).
    ///
    /// To tell what is left, keys, tiers and matchers are looked at again after the charge.
    pub fn headers(mut self, form: Headers) -> Self {
        self.headers.push(form);
        self
    }

    /// Sets whether admitted answers carry the [`headers`](Self::headers) too, or only those of the layer. Default:
    /// they do.
    pub fn headers_on_admitted(mut self, on: bool) -> Self {
        self.headers_on_admitted = on;
        self
    }

    /// Sets what is done about the body of a request that the layer answers without reading it. Default:
    /// [`UnreadBody::Close`].
    pub fn unread_body(mut self, choice: UnreadBody) -> Self {
        self.unread = choice;
        self
    }

    /// Checks everything and builds the layer. If the compiler says that a builder, or a `Result`, is no
    /// `Layer<..>`, what is missing is `.build()?`.
    ///
    /// # Errors
    ///
    /// If there is no limit, or one is wrong; the error names rule, field and value.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        if self.rules.is_empty() && self.in_flight.is_empty() {
            let reason = "a layer needs at least one .rule(..) or .in_flight(..)";
            return Err(ConfigError::new("rules", 0, reason));
        }
        self.policy.validate()?;
        Headers::check(&self.headers)?;
        self.unread.check()?;
        for matcher in &self.exempt {
            matcher.validate()?;
        }
        // What is shared brings its clock.
        let shared = self.rules.iter().find_map(Rule::clock);
        let shared = shared.or_else(|| self.in_flight.iter().find_map(InFlight::own_clock));
        let time = self.time.or_else(|| shared.cloned()).unwrap_or_default();
        let random = RandomState::new();
        let plan = Plan::compile(
            &self.rules,
            &self.in_flight,
            &Defaults {
                time: &time,
                hasher: &random,
                policy: &self.policy,
                backend: self.backend.as_ref(),
            },
        )?;
        let scopes = || plan.all().map(|(_, scope)| scope);
        let keys = || scopes().filter_map(|scope| scope.key.as_ref());
        let wants_peer =
            scopes().any(Scoped::wants_peer) || self.exempt.iter().any(Match::wants_peer);
        let wants_route =
            scopes().any(Scoped::wants_route) || self.exempt.iter().any(Match::wants_route);
        let shown = (!self.headers.is_empty())
            .then(|| Shown::new(&self.headers, self.headers_on_admitted, &time));
        let knows_proxy = keys().any(|key| key.proxy_configured());
        Ok(RateLimitLayer {
            core: Arc::new(Core {
                wants_peer,
                is_plain: !plan.has_remote
                    && !self.expose_decision
                    && self.headers.is_empty()
                    && self.exempt.is_empty()
                    && self.observers.is_empty(),
                knows_proxy,
                wants_route,
                lacks_waiting: plan.rules.iter().any(Planned::lacks_waiting),
                plan,
                time,
                random,
                watch: Watch::new(self.observers, &self.silenced),
                exempt: self.exempt.into(),
                exempt_by_default: self.exempt_by_default,
                expose_decision: self.expose_decision,
                expose_rejection: self.expose_rejection,
                shown,
                unread: self.unread,
            }),
        })
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("rules", &self.core.plan.rules)
            .field("in_flight", &self.core.plan.slots)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for KeepBodyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepBodyLayer")
            .field("rules", &self.core.plan.rules)
            .field("in_flight", &self.core.plan.slots)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RateLimitLayerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder")
            .field("rules", &self.rules)
            .field("in_flight", &self.in_flight)
            .field("rejection", &self.policy)
            .finish_non_exhaustive()
    }
}
