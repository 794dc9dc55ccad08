//! Degraded answers: what answers instead of the inner service, and how many at once.

use std::{fmt, sync::Arc};

use axum_core::{body::Body, response::IntoResponse};
use http::{Request, Response, StatusCode};

use crate::{clock::BoxFuture, in_flight::Slots};

/// What a degrade handler returns, as an error, where it has no answer either: the next policy of the chain
/// then goes on.
///
/// ```
/// use axum::response::Html;
/// use std::sync::OnceLock;
/// use tower_sluice::{Decline, RejectionPolicy};
///
/// static CACHED: OnceLock<String> = OnceLock::new();
///
/// async fn cached() -> Result<Html<&'static str>, Decline> {
///     CACHED.get().map(|page| Html(page.as_str())).ok_or(Decline)
/// }
///
/// let policy = RejectionPolicy::degrade(cached);
/// # let _ = policy;
/// ```
///
/// As a response of any other handler it is a bare 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decline;

/// Marks the response of a handler that declined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declined;

impl IntoResponse for Decline {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.extensions_mut().insert(Declined);
        response
    }
}

impl fmt::Display for Decline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("declined: there is no degraded answer")
    }
}

impl std::error::Error for Decline {}

/// A degrade handler, whatever it is made of.
pub(crate) trait Degrade: Send + Sync + 'static {
    fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>>;
}

/// One degrade step of a chain.
#[derive(Clone)]
pub(crate) struct Degrading {
    pub(crate) handler: Arc<dyn Degrade>,
    /// Whether it gets the request's body, so that nothing but respond may follow.
    pub(crate) takes_body: bool,
    /// As it was set; `slots` has it too, unless it is zero.
    pub(crate) most: u32,
    /// How many degraded answers are under way.
    pub(crate) slots: Arc<Slots>,
}

/// How many degraded answers may be under way unless told otherwise.
const DEFAULT_MOST: u32 = 256;

impl Degrading {
    pub(crate) fn new(handler: impl Degrade) -> Self {
        let (handler, most) = (Arc::new(handler), DEFAULT_MOST);
        Self { handler, takes_body: false, most, slots: slots(most) }
    }

    pub(super) fn at_most(self, most: u32) -> Self {
        Self { most, slots: slots(most), ..self }
    }
}

fn slots(most: u32) -> Arc<Slots> {
    Arc::new(Slots::new(Arc::from("degraded"), most))
}
