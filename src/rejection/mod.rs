//! What a refused request is told: [`RejectionPolicy`], and the [`Rejection`] it is told about.

use std::{fmt, sync::Arc, time::Duration};

use axum_core::{body::Body, response::IntoResponse};
use http::{Response, StatusCode};
use smallvec::SmallVec;

use crate::{Head, decision::RuleDecision, event::Reason, response};

/// Why a request was refused, as a responder sees it; in the response's extensions where
/// [`expose_rejection`](crate::RateLimitLayerBuilder::expose_rejection) asks for it.
#[derive(Clone, Debug)]
pub struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) retry_after_secs: Option<u64>,
    pub(crate) rules: SmallVec<[RuleDecision; 2]>,
}

impl Rejection {
    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The longest wait of the rules that refuse, exact; `None` where no waiting helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The number in `Retry-After`: whole seconds, rounded up, with the spread.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after_secs
    }

    /// All rules that refuse, in the order written.
    #[must_use]
    pub fn rules(&self) -> &[RuleDecision] {
        &self.rules
    }
}

/// How a refusal is answered.
///
/// ```
/// use tower_sluice::{RateLimitLayer, RejectionPolicy, Rule, TokenBucket};
///
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("orders", TokenBucket::per_second(500)))
///     .rejection(RejectionPolicy::respond_with(|rejection, head| {
///         format!("{}: try again in {:?}", head.path(), rejection.retry_after())
///     }))
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct RejectionPolicy {
    responder: Option<Arc<dyn Responder>>,
}

type Responded = Response<Body>;

trait Responder: Send + Sync {
    fn respond(&self, rejection: &Rejection, head: &Head<'_>) -> Responded;
}

impl<F, R> Responder for F
where
    F: Fn(&Rejection, &Head<'_>) -> R + Send + Sync,
    R: IntoResponse,
{
    fn respond(&self, rejection: &Rejection, head: &Head<'_>) -> Responded {
        self(rejection, head).into_response()
    }
}

impl RejectionPolicy {
    /// Answers with the rule's status (429), `Retry-After`, `Cache-Control: no-store` and problem details
    /// (RFC 9457). The default.
    pub fn respond() -> Self {
        Self { responder: None }
    }

    /// Answers with what `responder` makes of the rejection. The rule's status stands unless the
    /// responder sets one other than 200; `Retry-After` and `Cache-Control` are added where absent.
    pub fn respond_with<F, R>(responder: F) -> Self
    where
        F: Fn(&Rejection, &Head<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        Self { responder: Some(Arc::new(responder)) }
    }

    /// Whether the answer is the default one, which needs nothing but numbers.
    pub(crate) fn is_default(&self) -> bool {
        self.responder.is_none()
    }

    /// The responder's answer with our fields; `None` where the default answer is wanted.
    pub(crate) fn answer(&self, rejection: &Rejection, head: &Head<'_>) -> Option<Responded> {
        let mut response = self.responder.as_ref()?.respond(rejection, head);
        if response.status() == StatusCode::OK {
            *response.status_mut() = rejection.status;
        }
        response::add_fields(&mut response, rejection.retry_after_secs);
        Some(response)
    }
}

impl Default for RejectionPolicy {
    fn default() -> Self {
        Self::respond()
    }
}

impl fmt::Debug for RejectionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_default() { "respond" } else { "respond_with(..)" })
    }
}
