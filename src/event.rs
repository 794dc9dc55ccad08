//! What happened: the events an [`Observer`] is told of, and the set-up faults.

use std::{fmt, sync::Arc, time::Duration};

use crate::{BackendError, decision::RuleDecision};

/// Is told what a layer does. Every method does nothing by default.
///
/// The methods are called on the request's path: they must not block. They may use the layer's own
/// [`Handle`](crate::Handle); nothing is locked meanwhile.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use tower_sluice::{Observer, RateLimitLayer, Rule, TokenBucket, event::Rejected};
///
/// #[derive(Default)]
/// struct Refusals(AtomicU64);
///
/// impl Observer for Refusals {
///     fn rejected(&self, _: &Rejected<'_>) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let refusals = Arc::new(Refusals::default());
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("orders", TokenBucket::per_second(500)))
///     .observer(refusals.clone())
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A request goes to the inner service.
    fn admitted(&self, admitted: &Admitted<'_>) {
        let _ = admitted;
    }

    /// A request is answered by the layer.
    fn rejected(&self, rejected: &Rejected<'_>) {
        let _ = rejected;
    }

    /// An admitted request has ended, its body included. Told once for each admitted request that is not
    /// exempt.
    fn finished(&self, finished: &Finished) {
        let _ = finished;
    }

    /// The set-up looks wrong. Each fault is told once per layer, or per rule where it concerns one.
    fn fault(&self, fault: &SetupFault) {
        let _ = fault;
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn admitted(&self, admitted: &Admitted<'_>) {
        (**self).admitted(admitted);
    }

    fn rejected(&self, rejected: &Rejected<'_>) {
        (**self).rejected(rejected);
    }

    fn finished(&self, finished: &Finished) {
        (**self).finished(finished);
    }

    fn fault(&self, fault: &SetupFault) {
        (**self).fault(fault);
    }
}

/// A request that goes to the inner service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Admitted<'a> {
    pub(crate) decisions: &'a [RuleDecision],
    pub(crate) exempt: bool,
}

impl<'a> Admitted<'a> {
    /// What each rule that applied decided, after its charge.
    #[must_use]
    pub fn decisions(&self) -> &'a [RuleDecision] {
        self.decisions
    }

    /// Whether it was exempt, so that no rule applied.
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        self.exempt
    }
}

/// A request the layer answered itself.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rejected<'a> {
    pub(crate) decisions: &'a [RuleDecision],
    pub(crate) reason: Reason,
    pub(crate) status: u16,
    pub(crate) error: Option<&'a BackendError>,
}

impl<'a> Rejected<'a> {
    /// What the backend's failure was, where that is the reason.
    #[must_use]
    pub fn error(&self) -> Option<&'a BackendError> {
        self.error
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The rules that refuse, with their decisions; for a missing key or a failed backend the rule
    /// concerned, without one.
    #[must_use]
    pub fn rules(&self) -> &'a [RuleDecision] {
        self.decisions
    }

    /// The HTTP status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }
}

/// Why a request was answered instead of the inner service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A quota is spent for now.
    Quota,
    /// The request's cost is above a limit: waiting does not help.
    Never,
    /// The request has no key for a rule that demands one.
    MissingKey,
    /// A backend could not answer.
    Backend,
}

impl Reason {
    /// The reason as problem details carry it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Never => "never",
            Self::MissingKey => "missing-key",
            Self::Backend => "backend",
        }
    }
}

/// An admitted request that has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Finished {
    pub(crate) elapsed: Duration,
    pub(crate) outcome: Outcome,
}

impl Finished {
    /// From admission to the end, by the layer's clock.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// How it ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }
}

/// How an admitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// With a response of this status whose body reached its end, or was dropped complete.
    Completed(u16),
    /// With an error of the inner service or of the body.
    Failed,
    /// Given up: the response or its body was dropped before its end.
    Dropped,
}

/// Something about the set-up that makes limits useless or unjust.
///
/// Found while requests are served, told once, and silenced with
/// [`silence`](crate::RateLimitLayerBuilder::silence). `Display` says what to do.
///
/// ```
/// use tower_sluice::event::Fault;
///
/// assert_eq!(Fault::Peer.code(), "SL-PEER");
/// assert!(Fault::Peer.advice().contains("into_make_service_with_connect_info"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// SL-KEYS: more live keys than the rule keeps.
    Keys,
    /// SL-NOKEY: none of the first 1,000 requests had the rule's key.
    NoKey,
    /// SL-ONEKEY: a minute of requests, all with one key.
    OneKey,
    /// SL-PEER: the client's address is wanted and no peer address is known.
    Peer,
    /// SL-PROXY: a forwarding header came, and none is configured.
    Proxy,
    /// SL-ROUTE: the route is wanted where it cannot be seen.
    Route,
    /// SL-TWICE: one request passed the same built layer twice.
    Twice,
}

impl Fault {
    /// The code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Keys => "SL-KEYS",
            Self::NoKey => "SL-NOKEY",
            Self::OneKey => "SL-ONEKEY",
            Self::Peer => "SL-PEER",
            Self::Proxy => "SL-PROXY",
            Self::Route => "SL-ROUTE",
            Self::Twice => "SL-TWICE",
        }
    }

    /// What is wrong and what to do.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Keys => {
                "more live keys than the rule keeps: new ones share overflow buckets; raise max_keys"
            }
            Self::NoKey => {
                "none of the first 1,000 requests had the key, so the rule limits nobody by it; \
                 is the layer inside whatever sets it?"
            }
            Self::OneKey => {
                "a minute of requests all had one key, so everybody shares one quota; behind a proxy, \
                 configure client_ip with its header and its address"
            }
            Self::Peer => {
                "the client's address is wanted, but the peer address is unknown, so all requests share \
                 one quota; serve with into_make_service_with_connect_info::<SocketAddr>()"
            }
            Self::Proxy => {
                "requests carry a forwarding header and no proxy is configured, so everybody behind the \
                 proxy shares one quota; name its header and its address on client_ip, or silence this \
                 if nothing forwards to you"
            }
            Self::Route => {
                "the rule reads the matched route, which cannot be seen from here; put the layer inside \
                 the router (Router::layer, route_layer or MethodRouter::layer), and use nest instead of \
                 nest_service"
            }
            Self::Twice => {
                "one request passed the same layer twice and is charged twice; \
                 build a second layer, or remove one of the two"
            }
        }
    }

    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A [`Fault`] found in a layer, with the rule it concerns.
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
