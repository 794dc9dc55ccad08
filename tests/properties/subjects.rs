//! The ways a limit can be used, behind one face.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Algorithm, Decision, Decisions, KeyedLimiter, Limiter, ManualClock, Missing, Quota,
    RateLimitLayer, RateLimitLayerBuilder, Rejection, Rule, TokenBucket,
    backend::{Answer, Local},
    clock::Nanos,
    key,
};

/// One limit, used in one way.
pub(crate) trait Subject {
    fn acquire(&self, key: u8, cost: u64) -> Decision;
    fn peek(&self, key: u8, cost: u64) -> Decision;
    fn reset(&self, key: u8) -> bool;
    fn set_limit(&self, quota: Quota);
    fn tracked(&self) -> Option<u64>;
}

/// What is ready must be ready at once.
#[track_caller]
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("not ready"),
    }
}

#[track_caller]
pub(crate) fn answer<T>(answer: Answer<T>) -> T {
    now(answer.resolve()).unwrap()
}

/// A clock that shows `built` and has this UTC at its zero.
pub(crate) fn clock(built: u64, utc_at_zero: Duration) -> ManualClock {
    let clock = ManualClock::with_utc(utc_at_zero);
    clock.set(Nanos::new(built));
    clock
}

/// Whether keys are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    One,
    Many,
}

/// Every way to use this limit.
pub(crate) fn all(
    algorithm: Algorithm,
    keys: Keys,
    max_keys: u64,
    clock: &ManualClock,
) -> Vec<Box<dyn Subject>> {
    let layers = || RateLimitLayer::builder().clock(clock.clone());
    let rule = || {
        let rule = Rule::new("rule", algorithm).spread(false).cost_fn(|head| {
            head.header_str("x-cost").and_then(|cost| cost.parse().ok()).unwrap_or(1)
        });
        match keys {
            Keys::One => rule,
            Keys::Many => rule.key(key::header("x-key")).missing(Missing::Skip).max_keys(max_keys),
        }
    };
    let build = |builder: RateLimitLayerBuilder| builder.build().unwrap();
    let plain = build(layers().rule(rule()));
    let exposed = build(layers().rule(rule()).expose_decision().expose_rejection());
    // A second rule that always passes, so that the decision is over all rules.
    let beside = Rule::new("beside", TokenBucket::per_second(1)).cost_fn(|_| 0);
    let two = build(layers().rule(beside).rule(rule()));
    let elsewhere = build(layers().rule(rule()).backend(Arc::new(Local::new())));
    let limiter: Box<dyn Subject> = match keys {
        Keys::One => Box::new(limiter(algorithm, clock)),
        Keys::Many => Box::new(keyed_limiter(algorithm, max_keys, clock)),
    };
    vec![
        limiter,
        Box::new(OfLayer::new(plain, keys)),
        Box::new(OfLayer::new(exposed, keys)),
        Box::new(OfLayer::new(two, keys)),
        Box::new(OfLayer::new(elsewhere, keys)),
    ]
}

pub(crate) fn limiter(algorithm: Algorithm, clock: &ManualClock) -> Limiter {
    match algorithm {
        Algorithm::TokenBucket(bucket) => bucket.limiter().clock(clock.clone()).build(),
        Algorithm::FixedWindow(window) => window.limiter().clock(clock.clone()).build(),
        Algorithm::LeakyBucket(bucket) => bucket.limiter().clock(clock.clone()).build(),
        Algorithm::SlidingLog(log) => log.limiter().clock(clock.clone()).build(),
        Algorithm::SlidingWindow(window) => window.limiter().clock(clock.clone()).build(),
        _ => unreachable!("no other algorithm is drawn"),
    }
    .unwrap()
}

pub(crate) fn keyed_limiter(
    algorithm: Algorithm,
    max_keys: u64,
    clock: &ManualClock,
) -> KeyedLimiter {
    match algorithm {
        Algorithm::TokenBucket(bucket) => bucket.keyed_limiter(),
        Algorithm::FixedWindow(window) => window.keyed_limiter(),
        Algorithm::LeakyBucket(bucket) => bucket.keyed_limiter(),
        Algorithm::SlidingLog(log) => log.keyed_limiter(),
        Algorithm::SlidingWindow(window) => window.keyed_limiter(),
        _ => unreachable!("no other algorithm is drawn"),
    }
    .max_keys(max_keys)
    .clock(clock.clone())
    .build()
    .unwrap()
}

impl Subject for Limiter {
    fn acquire(&self, _: u8, cost: u64) -> Decision {
        self.try_acquire_many(cost)
    }

    fn peek(&self, _: u8, cost: u64) -> Decision {
        Self::peek(self, cost)
    }

    fn reset(&self, _: u8) -> bool {
        Self::reset(self)
    }

    fn set_limit(&self, quota: Quota) {
        Self::set_limit(self, quota).unwrap();
    }

    fn tracked(&self) -> Option<u64> {
        None
    }
}

impl Subject for KeyedLimiter {
    fn acquire(&self, key: u8, cost: u64) -> Decision {
        self.try_acquire_many(&[key][..], cost)
    }

    fn peek(&self, key: u8, cost: u64) -> Decision {
        Self::peek(self, &[key][..], cost)
    }

    fn reset(&self, key: u8) -> bool {
        Self::reset(self, &[key][..])
    }

    fn set_limit(&self, quota: Quota) {
        Self::set_limit(self, quota).unwrap();
    }

    fn tracked(&self) -> Option<u64> {
        Some(self.tracked_keys())
    }
}

/// A layer whose rule is called "rule", asked over HTTP.
pub(crate) struct OfLayer {
    layer: RateLimitLayer,
    keys: Keys,
}

impl OfLayer {
    pub(crate) fn new(layer: RateLimitLayer, keys: Keys) -> Self {
        Self { layer, keys }
    }
}

pub(crate) fn request(key: u8, cost: u64) -> Request<Body> {
    Request::builder()
        .header("x-key", format!("key-{key}"))
        .header("x-cost", cost)
        .body(Body::empty())
        .unwrap()
}

pub(crate) fn served(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

/// An answer whose body never ends.
pub(crate) fn endless(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::new(Endless))))
}

struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

impl Subject for OfLayer {
    fn acquire(&self, key: u8, cost: u64) -> Decision {
        let foretold = self.peek(key, cost);
        let answer = now(self.layer.layer(service_fn(served)).oneshot(request(key, cost))).unwrap();
        assert_eq!(answer.status().is_success(), foretold.is_allowed());
        if answer.status().is_success() {
            let decision = self.peek(key, 0);
            if let Some(told) = answer.extensions().get::<Decisions>() {
                assert_eq!(told.as_slice()[0].decision(), Some(decision));
            }
            return decision;
        }
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        // Whole seconds, rounded up, at least one.
        let seconds = answer.headers().get("retry-after").map(|v| v.to_str().unwrap().to_owned());
        let exact = foretold.retry_after();
        assert_eq!(seconds, exact.map(|w| w.as_nanos().div_ceil(1_000_000_000).max(1).to_string()));
        if let Some(told) = answer.extensions().get::<Rejection>() {
            assert_eq!(told.retry_after(), exact);
            assert_eq!(told.rules().len(), 1);
            assert_eq!(told.rules()[0].decision(), Some(foretold));
        }
        foretold
    }

    fn peek(&self, key: u8, cost: u64) -> Decision {
        let (handle, name) = (self.layer.handle(), format!("key-{key}"));
        match self.keys {
            Keys::One => now(handle.peek("rule", (), cost)).unwrap(),
            Keys::Many => now(handle.peek("rule", name.as_str(), cost)).unwrap(),
        }
    }

    fn reset(&self, key: u8) -> bool {
        let (handle, name) = (self.layer.handle(), format!("key-{key}"));
        match self.keys {
            Keys::One => now(handle.reset("rule", ())).unwrap(),
            Keys::Many => now(handle.reset("rule", name.as_str())).unwrap(),
        }
    }

    fn set_limit(&self, quota: Quota) {
        self.layer.handle().set_limit("rule", quota).unwrap();
    }

    fn tracked(&self) -> Option<u64> {
        self.layer.handle().tracked_keys("rule").unwrap().filter(|_| self.keys == Keys::Many)
    }
}
