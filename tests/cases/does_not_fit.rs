//! What becomes of requests that do not fit, in short: what permits cover, who is next, and what is bounded.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    routing::{any, get},
};
use http::{Response, StatusCode};
use tower::ServiceExt;
use tower_sluice::{
    Decline, InFlight, LeakyBucket, ManualClock, RateLimitLayer, RateLimitLayerBuilder,
    RejectionPolicy, Rule,
};

use crate::support::{ask, request};

fn app(layer: RateLimitLayerBuilder) -> Router {
    let layer = layer.build().unwrap();
    Router::new().route("/", get(|| async { "text" })).layer(layer)
}

fn get_it() -> Request {
    request("GET", "/", None)
}

/// The answer, if it is there at the first look; else the future, which has been looked at.
fn look(app: &Router) -> Result<Response<Body>, impl Future<Output = Response<Body>> + Unpin> {
    let app = app.clone();
    let mut future = Box::pin(async move { app.oneshot(get_it()).await.unwrap() });
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => Ok(response),
        Poll::Pending => Err(future),
    }
}

fn poll(future: impl Future<Output = Response<Body>> + Unpin) -> Option<StatusCode> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => Some(response.status()),
        Poll::Pending => None,
    }
}

/// One a second, the first of them spent.
fn one_a_second(policy: RejectionPolicy) -> (ManualClock, Router) {
    let clock = ManualClock::new();
    let rule = Rule::new("pace", LeakyBucket::per_second(1)).spread(false).rejection(policy);
    let app = app(RateLimitLayer::builder().rule(rule).clock(clock.clone()));
    assert!(look(&app).is_ok_and(|response| response.status() == 200));
    (clock, app)
}

#[tokio::test]
async fn a_permit_covers_the_body() {
    let (one, two) = (InFlight::new("one", 1), InFlight::new("two", 1));
    for limits in [vec![one.clone()], vec![one.clone(), two.clone()]] {
        let layer = limits.iter().cloned();
        let app = app(layer.fold(RateLimitLayer::builder(), RateLimitLayerBuilder::in_flight));
        let Ok(response) = look(&app) else { panic!("it is answered at once") };
        assert_eq!(response.status(), 200);
        assert!(limits.iter().all(|limit| limit.in_flight() == 1), "freed at the head");
        assert_eq!(ask(&app, get_it()).await.status, 503);
        let text = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(text, "text");
        assert!(limits.iter().all(|limit| limit.in_flight() == 0));
        assert_eq!(ask(&app, get_it()).await.status, 200);
    }
}

#[test]
fn a_waiter_who_leaves_frees_his_place() {
    let (clock, app) = one_a_second(RejectionPolicy::queue(Duration::from_secs(5), 1));
    let Err(waits) = look(&app) else { panic!("there is a place") };
    assert!(look(&app).is_ok_and(|response| response.status() == 429), "there was one place");
    drop(waits);
    let Err(mut next) = look(&app) else { panic!("the place is free") };
    clock.advance(Duration::from_secs(1));
    assert_eq!(poll(&mut next), Some(StatusCode::OK), "nobody is ahead");
}

#[test]
fn a_waiter_for_a_permit_who_leaves_frees_his_place() {
    let limit = InFlight::new("one", 1).clock(ManualClock::new());
    let queue = RejectionPolicy::queue(Duration::from_secs(5), 1);
    let app = app(RateLimitLayer::builder().in_flight(limit.clone().rejection(queue)));
    let permit = limit.try_acquire().unwrap();
    let Err(waits) = look(&app) else { panic!("there is a place") };
    drop(waits);
    let Err(mut next) = look(&app) else { panic!("the place is free") };
    drop(permit);
    assert_eq!(poll(&mut next), Some(StatusCode::OK), "nobody is ahead");
}

#[test]
fn a_newcomer_waits_behind_who_is_due() {
    let (clock, app) = one_a_second(RejectionPolicy::queue(Duration::from_secs(5), 2));
    let Err(mut first) = look(&app) else { panic!("there is a place") };
    clock.advance(Duration::from_secs(1));
    let Err(mut second) = look(&app) else { panic!("overtook") };
    assert_eq!(poll(&mut first), Some(StatusCode::OK));
    assert_eq!(poll(&mut second), None);
    clock.advance(Duration::from_secs(1));
    assert_eq!(poll(&mut second), Some(StatusCode::OK));
}

#[test]
fn a_wait_is_foreseen_with_all_who_are_ahead() {
    let (clock, app) = one_a_second(RejectionPolicy::queue(Duration::from_millis(1_500), 10));
    let Err(mut first) = look(&app) else { panic!("a second is short enough") };
    let Ok(refused) = look(&app) else { panic!("two seconds are too long") };
    assert_eq!(
        (refused.status(), &refused.headers()["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"2".parse().unwrap())
    );
    clock.advance(Duration::from_secs(1));
    assert_eq!(poll(&mut first), Some(StatusCode::OK));
}

#[tokio::test]
async fn degraded_answers_are_bounded_and_their_bodies_count() {
    let (open, waits) = tokio::sync::oneshot::channel::<()>();
    let waits = std::sync::Arc::new(std::sync::Mutex::new(Some(waits)));
    let handler = any(move || {
        let waits = waits.lock().unwrap().take();
        async move {
            match waits {
                Some(waits) => waits.await.map(|()| "stale").map_err(|_| Decline),
                None => Ok("stale"),
            }
        }
    });
    let (_clock, app) = one_a_second(RejectionPolicy::degrade_service(handler).max_degraded(1));
    let Err(mut degraded) = look(&app) else { panic!("the handler is not done") };
    assert_eq!(ask(&app, get_it()).await.status, 429, "one is under way");
    open.send(()).unwrap();
    let response = (&mut degraded).await;
    assert_eq!(response.status(), 200);
    assert_eq!(ask(&app, get_it()).await.status, 429, "its body is under way");
    drop(response);
    assert_eq!(ask(&app, get_it()).await.body, "stale");
}

/// A request that is kept and not polled holds up those behind it, but not for ever.
#[tokio::test]
async fn a_stalled_first_is_outlasted() {
    let (clock, app) = one_a_second(RejectionPolicy::queue(Duration::from_secs(5), 10));
    let stalled = look(&app).expect_err("it waits");
    clock.advance(Duration::from_secs(2));
    let mut behind = look(&app).expect_err("it waits");
    // Its wait ends at seven seconds; the first has been due for six by then, and gets as much again.
    for second in 3..13 {
        clock.set(tower_sluice::clock::Nanos::ZERO + Duration::from_secs(second));
        assert_eq!(poll(&mut behind), None, "at {second} s");
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(poll(&mut behind), Some(StatusCode::TOO_MANY_REQUESTS));
    // Once the first is gone nothing is left of it.
    drop(stalled);
    assert!(look(&app).is_ok_and(|response| response.status() == 200));
}

/// Newcomers who are refused while the first is late are told what they would have to wait.
#[tokio::test]
async fn a_late_first_moves_what_newcomers_are_told() {
    let (clock, app) = one_a_second(RejectionPolicy::queue(Duration::from_secs(2), 2));
    let (mut first, _second) = (look(&app).err().unwrap(), look(&app).err().unwrap());
    clock.advance(Duration::from_millis(1_500));
    let refused = look(&app).ok().expect("no place is left");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // The first goes now at the earliest, the second a second later, and it a second after that.
    assert_eq!(refused.headers()["retry-after"], "2");
    assert_eq!(poll(&mut first), Some(StatusCode::OK));
}

/// A degrade handler that declines slowly does not make the hint older than it is.
#[tokio::test]
async fn a_hint_is_told_as_of_the_answer() {
    use tower_sluice::clock::Clock;

    let clock = ManualClock::new();
    let slow = clock.clone();
    let policy = RejectionPolicy::degrade(move || {
        let sleep = slow.sleep_until(slow.now() + Duration::from_secs(8));
        async move {
            sleep.await;
            Err::<(), Decline>(Decline)
        }
    });
    let rule = Rule::new("pace", LeakyBucket::new(1, Duration::from_secs(10)));
    let rule = rule.spread(false).rejection(policy);
    let app = app(RateLimitLayer::builder().rule(rule).clock(clock.clone()));
    assert!(look(&app).is_ok());
    let refused = look(&app).expect_err("the handler takes its time");
    clock.advance(Duration::from_secs(8));
    let refused = refused.await;
    assert_eq!(refused.headers()["retry-after"], "2");
}
