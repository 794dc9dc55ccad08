//! [`Decisions`] and [`Rejection`] as axum extractors.

use std::{convert::Infallible, fmt};

use axum_core::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::IntoResponse,
};
use http::{Response, StatusCode, request::Parts};

use crate::{Decisions, Rejection};

/// A handler wants what its request does not have. As a response it is a 500 that says so: it is the set-up that is
/// wrong, and every request will show it.
///
/// `Option<Decisions>` and `Option<Rejection>` as extractors are never refused.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_sluice::Decisions;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // There is no layer that exposes its decisions.
/// let app: Router = Router::new().route("/", get(|_: Decisions| async {}));
/// let answer = app.oneshot(Request::get("/").body(Body::empty())?).await?;
/// assert_eq!(answer.status(), 500);
/// let body = axum::body::to_bytes(answer.into_body(), 1_000).await?;
/// assert!(body.starts_with(b"the request has no `Decisions`: build the layer with .expose_decision()"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotExposed(&'static str);

impl fmt::Display for NotExposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NotExposed {}

impl IntoResponse for NotExposed {
    fn into_response(self) -> Response<Body> {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0).into_response()
    }
}

/// Extracts `$what` from the extensions of a request.
macro_rules! extract {
    ($what:ty, $missing:literal) => {
        impl<S: Sync> FromRequestParts<S> for $what {
            type Rejection = NotExposed;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotExposed> {
                parts.extensions.get().cloned().ok_or(NotExposed($missing))
            }
        }

        impl<S: Sync> OptionalFromRequestParts<S> for $what {
            type Rejection = Infallible;

            async fn from_request_parts(
                parts: &mut Parts,
                _: &S,
            ) -> Result<Option<Self>, Infallible> {
                Ok(parts.extensions.get().cloned())
            }
        }
    };
}

extract!(
    Decisions,
    "the request has no `Decisions`: build the layer with .expose_decision(), and put it around this handler"
);
extract!(
    Rejection,
    "the request has no `Rejection`: only handlers given to RejectionPolicy::degrade get one"
);
