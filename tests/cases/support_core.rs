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
    Algorithm, Decision, FixedWindow, Head, KeyedLimiter, LeakyBucket, Limiter, ManualClock, Quota,
    RateLimitLayer, Rule, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
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

/// The same quota on every algorithm that admits as many at once: a bucket, a window from the first request, one by
/// the clock, a sliding window, a log.
pub(crate) fn algorithms(quota: Quota) -> [Algorithm; 5] {
    let (permits, period) = (quota.permits(), quota.period());
    let window = FixedWindow::new(permits, period);
    [
        TokenBucket::from(quota).into(),
        window.into(),
        window.aligned().into(),
        SlidingWindow::new(permits, period).into(),
        SlidingLog::new(permits, period).into(),
    ]
}

/// The same quota without its burst, as a leaky bucket.
pub(crate) fn leaky(quota: Quota) -> Algorithm {
    LeakyBucket::new(quota.permits(), quota.period()).into()
}

/// The same quota on every algorithm there is, the leaky bucket last.
pub(crate) fn every(quota: Quota) -> impl Iterator<Item = Algorithm> {
    algorithms(quota).into_iter().chain([leaky(quota)])
}

/// How long at most counts what a window or a log admitted: as long as its period, in cells one more of them.
pub(crate) fn counts_for(algorithm: Algorithm) -> Duration {
    let period = algorithm.quota().period();
    match algorithm {
        Algorithm::SlidingWindow(_) => period + period / 10,
        _ => period,
    }
}

/// The same on a ramp.
pub(crate) fn warmed(algorithm: Algorithm, warm_up: WarmUp) -> Algorithm {
    match algorithm {
        Algorithm::FixedWindow(window) => window.warm_up(warm_up).into(),
        Algorithm::LeakyBucket(bucket) => bucket.warm_up(warm_up).into(),
        Algorithm::SlidingLog(log) => log.warm_up(warm_up).into(),
        Algorithm::SlidingWindow(window) => window.warm_up(warm_up).into(),
        Algorithm::TokenBucket(bucket) => bucket.warm_up(warm_up).into(),
        other => panic!("{other:?} is not known here"),
    }
}

/// A limiter of any algorithm.
pub(crate) fn limiter(algorithm: Algorithm, clock: impl Clock) -> Limiter {
    let builder = match algorithm {
        Algorithm::FixedWindow(window) => window.limiter(),
        Algorithm::LeakyBucket(bucket) => bucket.limiter(),
        Algorithm::SlidingLog(log) => log.limiter(),
        Algorithm::SlidingWindow(window) => window.limiter(),
        Algorithm::TokenBucket(bucket) => bucket.limiter(),
        other => panic!("{other:?} is not known here"),
    };
    builder.clock(clock).build().expect("a quota that can be counted")
}

/// A keyed limiter of any algorithm, for `max_keys` keys or the default number.
pub(crate) fn keyed(
    algorithm: Algorithm,
    clock: impl Clock,
    max_keys: Option<u64>,
) -> KeyedLimiter {
    let builder = match algorithm {
        Algorithm::FixedWindow(window) => window.keyed_limiter(),
        Algorithm::LeakyBucket(bucket) => bucket.keyed_limiter(),
        Algorithm::SlidingLog(log) => log.keyed_limiter(),
        Algorithm::SlidingWindow(window) => window.keyed_limiter(),
        Algorithm::TokenBucket(bucket) => bucket.keyed_limiter(),
        other => panic!("{other:?} is not known here"),
    };
    let builder = match max_keys {
        Some(keys) => builder.max_keys(keys),
        None => builder,
    };
    builder.clock(clock).build().expect("a quota that can be counted")
}

/// One algorithm counted alone, per key and by a layer, on one clock: all three must say the same.
pub(crate) struct Three {
    pub(crate) clock: ManualClock,
    pub(crate) one: Limiter,
    pub(crate) many: KeyedLimiter,
    pub(crate) layer: RateLimitLayer,
}

impl Three {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let clock = ManualClock::new();
        let cost = |head: &Head<'_>| {
            let cost = head.headers().get("x-cost").and_then(|cost| cost.to_str().ok());
            cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
        };
        let rule = Rule::new("three", algorithm).spread(false).cost_fn(cost);
        Self {
            one: limiter(algorithm, clock.clone()),
            many: keyed(algorithm, clock.clone(), None),
            layer: RateLimitLayer::builder().clock(clock.clone()).rule(rule).build().expect("one"),
            clock,
        }
    }

    /// Asks for `cost` permits at `instant`.
    #[track_caller]
    pub(crate) fn ask(&self, instant: Duration, cost: u64) -> Decision {
        self.clock.set(instant.into());
        let decision = self.one.try_acquire_many(cost);
        assert_eq!(self.many.try_acquire_many("key", cost), decision, "per key");
        let answer = status(&self.layer, &[("x-cost", &cost.to_string())]);
        let expected = if decision.is_allowed() { 200 } else { 429 };
        assert_eq!(answer, (expected, retry_secs(&decision)), "by a layer: {decision:?}");
        decision
    }

    /// How many of `n` requests at `instant` pass.
    #[track_caller]
    pub(crate) fn admitted(&self, instant: Duration, n: u64) -> u64 {
        (0..n).filter(|_| self.ask(instant, 1).is_allowed()).count() as u64
    }
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

#[test]
fn every_lists_each_algorithm_there_is() {
    let source = include_str!("../../src/algorithm/mod.rs");
    let (_, variants) = source.split_once("pub enum Algorithm {").expect("the enum");
    let (variants, _) = variants.split_once("\n}").expect("its end");
    let names = variants.lines().filter_map(|line| line.trim().split_once('('));
    let mut there_are: Vec<_> = names.map(|(name, _)| name.to_owned()).collect();
    let name = |algorithm: Algorithm| {
        let text = format!("{algorithm:?}");
        text.split_once('(').expect("a variant with one field").0.to_owned()
    };
    let mut listed: Vec<_> = every(Quota::per_second(1)).map(name).collect();
    listed.dedup();
    there_are.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, there_are);
}
