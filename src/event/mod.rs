//! What happened: the events an [`Observer`] is told of, and the set-up faults.
//!
//! | event | when | once per |
//! | --- | --- | --- |
//! | [`Admitted`] | a request goes to the inner service | request |
//! | [`Rejected`] | a request is answered by the layer | request |
//! | [`Left`] | a request that waited is given up | request |
//! | [`Finished`] | an admitted request has ended, its body included | admitted request, unless exempt |
//! | [`StoreChanged`] | the store of shared limits went away, or came back | change |
//! | [`SetupFault`] | the set-up looks wrong: [`Fault`] lists how | layer, or rule where it concerns one |
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use tower_sluice::{Observer, event::{Admitted, Finished, Outcome, Rejected, SetupFault}};
//!
//! /// Numbers for a metrics page.
//! #[derive(Default)]
//! struct Counters {
//!     admitted: AtomicU64,
//!     rejected: AtomicU64,
//!     given_up: AtomicU64,
//! }
//!
//! impl Observer for Counters {
//!     fn admitted(&self, _: &Admitted<'_>) {
//!         self.admitted.fetch_add(1, Relaxed);
//!     }
//!
//!     fn rejected(&self, _: &Rejected<'_>) {
//!         self.rejected.fetch_add(1, Relaxed);
//!     }
//!
//!     fn finished(&self, finished: &Finished) {
//!         if finished.outcome() == Outcome::Dropped {
//!             self.given_up.fetch_add(1, Relaxed);
//!         }
//!     }
//!
//!     fn fault(&self, fault: &SetupFault) {
//!         eprintln!("{fault}");
//!     }
//! }
//! # let _ = Counters::default();
//! ```

mod fault;
mod store;

use std::{sync::Arc, time::Duration};

pub use self::{
    fault::{Fault, SetupFault},
    store::{StoreChanged, StoreState},
};

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
///     fn rejected(&self, rejected: &Rejected<'_>) {
///         // A degraded answer is one of the layer's too.
///         if !rejected.is_degraded() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an observer",
    note = "implement `Observer` for a type of your own; every method has a default"
)]
pub trait Observer: Send + Sync + 'static {
    /// A request goes to the inner service. Told of exempt requests too, whose end is not told: see
    /// [`Admitted::is_exempt`].
    fn admitted(&self, admitted: &Admitted<'_>) {
        let _ = admitted;
    }

    /// A request is answered by the layer: refused, or [degraded](Rejected::is_degraded).
    fn rejected(&self, rejected: &Rejected<'_>) {
        let _ = rejected;
    }

    /// An admitted request has ended, its body included. Told once for each admitted request that is not
    /// exempt.
    fn finished(&self, finished: &Finished) {
        let _ = finished;
    }

    /// A request that waited, in a queue or for the answer of a backend or degrade handler, has left before it
    /// was admitted or answered, by a disconnect say. Nothing else is told of it.
    fn left(&self, left: &Left<'_>) {
        let _ = left;
    }

    /// The set-up looks wrong. Each fault is told once per layer, or per rule where it concerns one.
    fn fault(&self, fault: &SetupFault) {
        let _ = fault;
    }

    /// The store of shared limits went away, or came back. Told by the backend, whose observers are its own.
    fn store_changed(&self, changed: &StoreChanged<'_>) {
        let _ = changed;
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

    fn left(&self, left: &Left<'_>) {
        (**self).left(left);
    }

    fn fault(&self, fault: &SetupFault) {
        (**self).fault(fault);
    }

    fn store_changed(&self, changed: &StoreChanged<'_>) {
        (**self).store_changed(changed);
    }
}

/// A request that goes to the inner service.
///
/// ```
/// use tower_sluice::{Observer, event::Admitted};
///
/// struct NearlySpent;
///
/// impl Observer for NearlySpent {
///     fn admitted(&self, admitted: &Admitted<'_>) {
///         for said in admitted.decisions() {
///             if said.decision().is_some_and(|decision| decision.remaining() == 0) {
///                 eprintln!("that was the last permit of {}", said.rule());
///             }
///         }
///     }
/// }
/// # let _ = NearlySpent;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Admitted<'a> {
    pub(crate) decisions: &'a [RuleDecision],
    pub(crate) exempt: bool,
    pub(crate) waited: Option<Duration>,
}

impl<'a> Admitted<'a> {
    /// How long the request waited for its turn; none where it was admitted at once.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.waited
    }

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
///
/// ```
/// use tower_sluice::{Observer, event::{Reason, Rejected}};
///
/// struct Outages;
///
/// impl Observer for Outages {
///     fn rejected(&self, rejected: &Rejected<'_>) {
///         if let (Reason::Backend, Some(error)) = (rejected.reason(), rejected.error()) {
///             let rules = rejected.rules().iter().map(|said| said.rule()).collect::<Vec<_>>();
///             eprintln!("{} for {rules:?}: {error}", rejected.status());
///         }
///     }
/// }
/// # let _ = Outages;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rejected<'a> {
    pub(crate) decisions: &'a [RuleDecision],
    pub(crate) reason: Reason,
    pub(crate) status: u16,
    pub(crate) error: Option<&'a BackendError>,
    pub(crate) degraded: bool,
}

impl<'a> Rejected<'a> {
    /// Whether a degrade handler has answered, whose status is then [`status`](Self::status).
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

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

    /// The HTTP status of the answer; of a refusal to a gRPC client, whose own is 200, the one that its code stands
    /// for.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }
}

/// A request that waited and left.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use tower_sluice::{Observer, event::Left};
///
/// #[derive(Default)]
/// struct Impatient(AtomicU64);
///
/// impl Observer for Impatient {
///     fn left(&self, left: &Left<'_>) {
///         self.0.fetch_add(1, Relaxed);
///         eprintln!("left {} after {:?}", left.limit(), left.waited());
///     }
/// }
/// # let _ = Impatient::default();
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Left<'a> {
    pub(crate) limit: &'a str,
    pub(crate) waited: Duration,
}

impl<'a> Left<'a> {
    /// The name of the rule or in-flight limit it waited for, or whose backend or degrade handler.
    #[must_use]
    pub fn limit(&self) -> &'a str {
        self.limit
    }

    /// For how long.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

/// Why a request was answered instead of the inner service.
///
/// In the body of a refusal, `reason` says it in the words of [`as_str`](Self::as_str):
///
/// | reason | `as_str` | status | waiting helps |
/// | --- | --- | --- | --- |
/// | [`Quota`](Self::Quota) | `quota` | 429, or the rule's | yes |
/// | [`Never`](Self::Never) | `never` | 429, or the rule's | no |
/// | [`MissingKey`](Self::MissingKey) | `missing-key` | what [`Missing::Refuse`](crate::Missing) says | no |
/// | [`InFlight`](Self::InFlight) | `in-flight` | 503, or the limit's | yes |
/// | [`Backend`](Self::Backend) | `backend` | 503 | yes |
///
/// ```
/// use tower_sluice::event::Reason;
///
/// let all =
///     [Reason::Quota, Reason::Never, Reason::MissingKey, Reason::InFlight, Reason::Backend];
/// assert_eq!(
///     all.map(|reason| reason.as_str()),
///     ["quota", "never", "missing-key", "in-flight", "backend"]
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A quota is spent for now.
    Quota,
    /// The request's cost is above a limit: waiting does not help.
    Never,
    /// The request has no key for a rule that demands one.
    MissingKey,
    /// As many are in flight as may be.
    InFlight,
    /// A backend could not answer.
    Backend,
}

impl Reason {
    /// The reason as problem details carry it: `quota`, `never`, `missing-key`, `in-flight` or `backend`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Never => "never",
            Self::MissingKey => "missing-key",
            Self::InFlight => "in-flight",
            Self::Backend => "backend",
        }
    }
}

/// An admitted request that has ended.
///
/// ```
/// use tower_sluice::{Observer, event::Finished};
///
/// struct Slow;
///
/// impl Observer for Slow {
///     fn finished(&self, finished: &Finished) {
///         if finished.elapsed().as_secs() >= 1 {
///             eprintln!("{:?} after {:?}", finished.outcome(), finished.elapsed());
///         }
///     }
/// }
/// # let _ = Slow;
/// ```
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
///
/// ```
/// use tower_sluice::event::Outcome;
///
/// fn label(outcome: Outcome) -> &'static str {
///     match outcome {
///         Outcome::Completed(500..) | Outcome::Failed => "error",
///         Outcome::Completed(_) => "ok",
///         Outcome::Dropped => "given up",
///         // Outcomes may be added.
///         _ => "other",
///     }
/// }
/// assert_eq!(label(Outcome::Completed(404)), "ok");
/// ```
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
