//! What the cases about counting share: scale, limiters of any algorithm, requests.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sluice::{
    Algorithm, Decision, FixedWindow, KeyedLimiter, LeakyBucket, Limiter, ManualClock, Quota,
    RateLimitLayer, TokenBucket,
    clock::{Clock, Nanos},
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// A millisecond, as [`at`] counts.
pub(crate) const MILLI: u64 = 1_000_000;

/// `whole` of a load case at the scale in force: a twentieth, times `SLUICE_SCALE`.
pub(crate) fn scaled(whole: u64) -> u64 {
    let scale = std::env::var("SLUICE_SCALE").ok().and_then(|scale| scale.parse().ok());
    (whole / 20 * scale.unwrap_or(1)).max(1)
}

/// `Retry-After` of a refusal: whole seconds, rounded up, at least 1.
pub(crate) fn retry_secs(decision: &Decision) -> Option<u64> {
    decision.retry_after().map(|wait| (wait.as_nanos().div_ceil(1_000_000_000) as u64).max(1))
}

/// The same quota on every algorithm: a bucket, a window from the first request, one by the clock.
pub(crate) fn algorithms(quota: Quota) -> [Algorithm; 3] {
    let window = FixedWindow::new(quota.permits(), quota.period());
    [TokenBucket::from(quota).into(), window.into(), window.aligned().into()]
}

/// The same quota without its burst, as a leaky bucket.
pub(crate) fn leaky(quota: Quota) -> Algorithm {
    LeakyBucket::new(quota.permits(), quota.period()).into()
}

/// A limiter of any algorithm.
pub(crate) fn limiter(algorithm: Algorithm, clock: impl Clock) -> Limiter {
    let built = match algorithm {
        Algorithm::TokenBucket(bucket) => bucket.limiter().clock(clock).build(),
        Algorithm::FixedWindow(window) => window.limiter().clock(clock).build(),
        Algorithm::LeakyBucket(bucket) => bucket.limiter().clock(clock).build(),
        other => panic!("{other:?} is not known here"),
    };
    built.expect("a quota that can be counted")
}

/// A keyed limiter of any algorithm, for `max_keys` keys or the default number.
pub(crate) fn keyed(
    algorithm: Algorithm,
    clock: impl Clock,
    max_keys: Option<u64>,
) -> KeyedLimiter {
    let builder = match algorithm {
        Algorithm::TokenBucket(bucket) => bucket.keyed_limiter(),
        Algorithm::FixedWindow(window) => window.keyed_limiter(),
        Algorithm::LeakyBucket(bucket) => bucket.keyed_limiter(),
        other => panic!("{other:?} is not known here"),
    };
    let builder = match max_keys {
        Some(keys) => builder.max_keys(keys),
        None => builder,
    };
    builder.clock(clock).build().expect("a quota that can be counted")
}

/// Sets `clock` to `nanos`.
pub(crate) fn at(clock: &ManualClock, nanos: u64) {
    clock.set(Nanos::new(nanos));
}

/// How many of `n` calls at this instant pass.
pub(crate) fn admitted(limiter: &Limiter, n: u64) -> u64 {
    (0..n).filter(|_| limiter.try_acquire().is_allowed()).count() as u64
}

/// The answer of a future that does not have to wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

/// A request for `/` with these headers.
pub(crate) fn request(headers: &[(&str, &str)]) -> Request<Body> {
    let request = Request::get("/");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).expect("a request")
}

/// Sends `request` through `layer` to a handler that answers 200.
pub(crate) async fn send(layer: &RateLimitLayer, request: Request<Body>) -> Response<Body> {
    let handler = service_fn(|_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    });
    let Ok(response) = service(layer, handler).oneshot(request).await;
    response
}

fn service<S>(
    layer: &RateLimitLayer,
    handler: S,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = S::Error, Future: Send>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    layer.layer(handler)
}

/// The status of a request with these headers, and its `Retry-After`.
pub(crate) fn status(layer: &RateLimitLayer, headers: &[(&str, &str)]) -> (u16, Option<u64>) {
    let response = ready(send(layer, request(headers)));
    let retry = response.headers().get("retry-after");
    let retry = retry.map(|value| value.to_str().expect("digits").parse().expect("seconds"));
    (response.status().as_u16(), retry)
}
