//! A case of its own: those behind one who waits for another limit.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{InFlight, LeakyBucket, ManualClock, RateLimitLayer, RejectionPolicy, Rule};

use crate::{
    executor::{First, Tasks},
    subjects::served,
};

/// The first in a room waits for a permit in flight, and nobody knows when that comes: those behind go by
/// the rate alone, for what they are told and for how long they wait.
#[test]
fn behind_one_who_waits_for_what_is_in_flight() {
    let clock = ManualClock::new();
    let limiter = LeakyBucket::per_second(10).limiter().clock(clock.clone()).build().unwrap();
    let flight = InFlight::new("flight", 1).clock(clock.clone());
    let seconds = |n| RejectionPolicy::queue(Duration::from_secs(n), 100);
    let builder = || RateLimitLayer::builder().rule(Rule::on(limiter.clone()));
    let both = builder().in_flight(flight.clone()).rejection(seconds(10)).build().unwrap();
    let alone = builder().rejection(seconds(2)).build().unwrap();
    let mut tasks = Tasks::default();
    let come = |tasks: &mut Tasks<u16>, layer: &RateLimitLayer| {
        let (id, layer) = (tasks.ids().last().map_or(0, |id| id + 1), layer.clone());
        tasks.spawn(id, async move {
            let request = Request::new(Body::empty());
            layer.layer(service_fn(served)).oneshot(request).await.unwrap().status().as_u16()
        });
        tasks.poll(id)
    };
    let permit = flight.try_acquire();
    assert!(limiter.try_acquire().is_allowed());
    assert_eq!(come(&mut tasks, &both), None);
    clock.advance(Duration::from_millis(100));
    assert_eq!(tasks.run(First::Oldest), []);
    assert_eq!(flight.waiting(), 1);

    let soon = Duration::from_millis(100);
    assert_eq!(limiter.peek(1).retry_after(), Some(soon));
    assert_eq!(come(&mut tasks, &alone), None);
    assert_eq!(limiter.try_acquire().retry_after(), Some(2 * soon));
    // A rate put in force gives no permit, and nobody more time.
    limiter.set_limit(limiter.quota()).unwrap();
    assert_eq!(tasks.run(First::Newest), []);
    clock.advance(Duration::from_secs(2) - Duration::from_nanos(1));
    assert_eq!(tasks.run(First::Newest), []);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(tasks.run(First::Newest), [(1, 429)]);
    drop(permit);
    assert_eq!(tasks.run(First::Newest), [(0, 200)]);
    assert_eq!((limiter.waiting(), flight.waiting(), flight.in_flight()), (0, 0, 0));
}
