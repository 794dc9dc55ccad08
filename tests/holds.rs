//! Holds where a key loses its room, or finds it, while its permits are held.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Algorithm, FixedWindow, KeyedLimiter, ManualClock, RateLimitLayer, Rule, SlidingLog,
    SlidingWindow, TokenBucket, key, testing::ScriptedBackend,
};

fn keyed(algorithm: Algorithm, clock: &ManualClock) -> KeyedLimiter {
    let builder = match algorithm {
        Algorithm::TokenBucket(bucket) => bucket.keyed_limiter(),
        Algorithm::FixedWindow(window) => window.keyed_limiter(),
        Algorithm::SlidingLog(log) => log.keyed_limiter(),
        Algorithm::SlidingWindow(window) => window.keyed_limiter(),
        _ => unreachable!(),
    };
    builder.max_keys(1).clock(clock.clone()).build().unwrap()
}

fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn who_loses_his_room_while_he_holds_gets_no_second_quota() {
    for algorithm in [
        Algorithm::from(SlidingWindow::per_hour(10)),
        SlidingLog::per_hour(10).into(),
        TokenBucket::per_hour(10).into(),
        FixedWindow::per_hour(10).into(),
    ] {
        let clock = ManualClock::new();
        let limiter = keyed(algorithm, &clock);
        let remote = ScriptedBackend::new().delay(clock.clone(), Duration::from_millis(1));
        let layer = RateLimitLayer::builder()
            .rule(Rule::on(limiter.clone()).key(key::header("x-user").or(key::global())))
            .rule(Rule::new("fleet", TokenBucket::per_second(1_000)).backend(remote))
            .clock(clock.clone())
            .build()
            .unwrap();
        let ask = |user: &str| {
            let inner = service_fn(async |_: Request<Body>| {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            });
            let request = Request::get("/").header("x-user", user).body(Body::empty()).unwrap();
            Box::pin(layer.clone().layer(inner).oneshot(request))
        };
        // Ten requests of mallory's ask the other backend: nothing is charged yet, all is held.
        let mut asked: Vec<_> = (0..10).map(|_| ask("mallory")).collect();
        assert!(asked.iter_mut().all(|asked| poll_once(asked).is_pending()));
        assert!(!limiter.peek("mallory", 1).is_allowed());
        // Somebody else takes the last room.
        assert!(limiter.try_acquire("somebody").is_allowed());
        assert!(!limiter.peek("mallory", 1).is_allowed(), "{algorithm:?}");
        for mut again in (0..10).map(|_| ask("mallory")) {
            let Poll::Ready(answer) = poll_once(&mut again) else {
                panic!("{algorithm:?}: another one is held");
            };
            assert_eq!(answer.unwrap().status(), 429);
        }
        clock.advance(Duration::from_millis(2));
        for future in asked {
            assert_eq!(future.await.unwrap().status(), 200);
        }
        assert!(!limiter.peek("mallory", 1).is_allowed(), "{algorithm:?}");
    }
}
