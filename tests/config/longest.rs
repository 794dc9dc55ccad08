//! Longest waits of centuries: allowed, and whoever waits goes when it is his turn.

#![allow(clippy::disallowed_methods, reason = "who waits is a task of the test")]

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    InFlight, LeakyBucket, ManualClock, RateLimitLayer, RejectionPolicy, Rule, TokioClock,
    clock::{Clock, Nanos},
};

const DAY: Duration = Duration::from_secs(86_400);

/// From a year to more than there are nanoseconds for.
const LONG: [Duration; 5] = [
    Duration::from_secs(365 * 86_400),
    Duration::from_secs(300 * 365 * 86_400),
    Duration::from_nanos(u64::MAX),
    Duration::from_nanos(u64::MAX).saturating_add(Duration::from_nanos(1)),
    Duration::MAX,
];

/// A clock that the test moves on.
trait Moves: Clock + Clone {
    async fn go(&self, step: Duration);
}

impl Moves for ManualClock {
    async fn go(&self, step: Duration) {
        self.advance(step);
        settle().await;
    }
}

impl Moves for TokioClock {
    async fn go(&self, step: Duration) {
        tokio::time::advance(step).await;
        settle().await;
    }
}

/// Lets all run who can.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn send(layer: &RateLimitLayer) -> JoinHandle<StatusCode> {
    let inner =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let service = layer.layer(inner);
    tokio::spawn(
        async move { service.oneshot(Request::new(Body::empty())).await.unwrap().status() },
    )
}

/// One permit a day, for three who wait so long by a layer and by `acquire`.
async fn a_day_apart(clock: impl Moves, longest: Duration) {
    let limiter = LeakyBucket::per_day(1).limiter().clock(clock.clone()).build().unwrap();
    let layer = RateLimitLayer::builder()
        .rule(Rule::on(limiter.clone()))
        .rejection(RejectionPolicy::queue(longest, 10))
        .build()
        .unwrap();
    assert!(limiter.try_acquire().is_allowed());
    let first = send(&layer);
    settle().await;
    let second = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(longest).await }
    });
    settle().await;
    let third = send(&layer);
    settle().await;
    assert_eq!(limiter.waiting(), 3);
    clock.go(DAY - Duration::from_millis(5)).await;
    assert!(!first.is_finished());
    clock.go(Duration::from_millis(10)).await;
    assert!(first.is_finished() && !second.is_finished());
    assert_eq!(first.await.unwrap(), 200);
    clock.go(DAY + Duration::from_millis(5)).await;
    assert!(second.is_finished() && !third.is_finished());
    assert!(second.await.unwrap().is_allowed());
    clock.go(DAY + Duration::from_millis(5)).await;
    assert!(third.is_finished());
    assert_eq!(third.await.unwrap(), 200);
    assert_eq!(limiter.waiting(), 0);
}

/// One in flight, and two who wait for it so long.
async fn one_by_one(clock: impl Moves, longest: Duration) {
    let flight = InFlight::new("f", 1).clock(clock.clone());
    let layer = RateLimitLayer::builder()
        .in_flight(flight.clone())
        .rejection(RejectionPolicy::queue(longest, 10))
        .build()
        .unwrap();
    let permit = flight.try_acquire();
    let first = send(&layer);
    settle().await;
    let second = tokio::spawn({
        let flight = flight.clone();
        async move { flight.acquire(longest).await.is_some() }
    });
    settle().await;
    clock.go(DAY).await;
    assert_eq!((flight.in_flight(), flight.waiting()), (1, 2));
    drop(permit);
    settle().await;
    assert!(first.is_finished() && second.is_finished());
    assert_eq!(first.await.unwrap(), 200);
    assert!(second.await.unwrap());
    assert_eq!((flight.in_flight(), flight.waiting()), (0, 0));
}

#[tokio::test]
async fn centuries_by_a_clock_of_the_test() {
    for longest in LONG {
        // From the beginning of time, and from close to its end.
        for start in [0, u64::MAX / 2, u64::MAX - 10 * DAY.as_nanos() as u64] {
            let clock = ManualClock::new();
            clock.set(Nanos::new(start));
            a_day_apart(clock.clone(), longest).await;
            one_by_one(clock, longest).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn centuries_by_the_clock_of_tokio() {
    for longest in LONG {
        a_day_apart(TokioClock, longest).await;
        one_by_one(TokioClock, longest).await;
    }
}

/// One permit in 36 years: no clock shows the turn of the 17th of those who wait.
#[tokio::test]
async fn turns_come_up_to_the_end_of_time() {
    let clock = ManualClock::new();
    let (wait, last) = (36 * 365 * DAY, 16);
    let limiter = LeakyBucket::new(1, wait).limiter().clock(clock.clone()).build().unwrap();
    let layer = RateLimitLayer::builder()
        .rule(Rule::on(limiter.clone()))
        .rejection(RejectionPolicy::queue(Duration::MAX, 100))
        .build()
        .unwrap();
    assert!(limiter.try_acquire().is_allowed());
    let waits: Vec<_> = (0..last).map(|_| send(&layer)).collect();
    settle().await;
    assert_eq!(limiter.waiting(), last);
    // A number of more than a century need not be exact.
    assert!(limiter.acquire(wait).await.retry_after() > Some(100 * 365 * DAY));
    // Whoever may wait for ever does.
    let too_late = send(&layer);
    settle().await;
    assert!(!too_late.is_finished());
    too_late.abort();
    settle().await;
    assert_eq!(limiter.waiting(), last);
    for (gone, waits) in (1..).zip(waits) {
        clock.advance(wait);
        assert_eq!(waits.await.unwrap(), 200);
        assert_eq!(limiter.waiting(), last - gone);
    }
}
