//! What is sent instead of the inner service's answer.

mod digits;
mod fields;
pub(crate) mod grpc;
pub(crate) mod problem;
pub(crate) mod retry_after;
mod unread;

use axum_core::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

pub use self::{
    fields::{Headers, Reset},
    unread::UnreadBody,
};
pub(crate) use self::{
    fields::{Policies, Policy, Standing, Unit, Wait},
    unread::{Most, Unread},
};

/// The response headers a browser's script may read only if CORS exposes them: `Retry-After`, the fields of all
/// [`Headers`], and those of gRPC-Web answers.
///
/// Put the CORS layer outside the limiter, so that refusals carry its headers too, and expose these. A `*` in their place
/// works for requests without credentials alone.
///
/// ```
/// use tower_http::cors::CorsLayer;
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, exposed_headers};
///
/// let limit = RateLimitLayer::builder()
///     .rule(Rule::new("orders", TokenBucket::per_second(500)))
///     .build()?;
/// let cors = CorsLayer::new().expose_headers(exposed_headers());
/// let app: axum::Router = axum::Router::new()
///     .layer(limit)
///     .layer(cors); // added last, so outside
/// # let _ = app;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[must_use]
pub fn exposed_headers() -> Vec<HeaderName> {
    [header::RETRY_AFTER].into_iter().chain(fields::names()).chain(grpc::NAMES).collect()
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A refusal's status, wait and body.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) retry_after_secs: Option<u64>,
    pub(crate) body: Bytes,
}

impl Refusal {
    /// The default answer: problem details, not to be stored.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, problem::MEDIA_TYPE);
        // As `add_fields` does, which would look for each first: here there is none.
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        if let Some(seconds) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, digits::value(seconds));
        }
        response
    }
}

/// Tells that the connection ends with this answer, whatever else is said of it: in that list `close` is what counts.
pub(crate) fn close(headers: &mut HeaderMap) {
    let is_close = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    if !headers.get_all(header::CONNECTION).iter().any(is_close) {
        headers.append(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Text as bytes whose clones share it. As long as it is: spare room would cost an allocation more.
fn bytes_of(text: String) -> Bytes {
    Bytes::from(text.into_boxed_str().into_string())
}

/// Adds our fields where they are absent.
pub(crate) fn add_fields(response: &mut Response<Body>, retry_after_secs: Option<u64>) {
    let headers = response.headers_mut();
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, NO_STORE);
    }
    if let Some(seconds) = retry_after_secs
        && !headers.contains_key(header::RETRY_AFTER)
    {
        headers.insert(header::RETRY_AFTER, digits::value(seconds));
    }
}
