//! In-flight limits that cannot be.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::StatusCode;
use tower_sluice::{
    ConfigError, InFlight, ManualClock, Missing, RateLimitLayer, RejectionPolicy,
    clock::StdClock,
    key::{self, KeyExtractor},
    matcher,
};

use crate::support::{assert_names, right};

fn flight() -> InFlight {
    InFlight::new("f", 2)
}

fn build(limits: impl IntoIterator<Item = InFlight>) -> Result<RateLimitLayer, ConfigError> {
    let builder = limits.into_iter().fold(RateLimitLayer::builder(), |b, limit| b.in_flight(limit));
    builder.build()
}

/// Asserts that a limit named `f` is refused for this field and value.
#[track_caller]
fn assert_refused(limit: InFlight, field: &str, value: &str) {
    assert_names(&build([limit]).unwrap_err(), "f", field, value);
}

/// More than there are bits for.
const TOO_MANY: [u32; 3] = [1 << 31, (1 << 31) + 1, u32::MAX];
const MOST: u32 = (1 << 31) - 1;

#[test]
fn limits_of_none_and_of_too_many_are_refused() {
    for limit in [0].into_iter().chain(TOO_MANY) {
        assert_refused(InFlight::new("f", limit), "limit", &limit.to_string());
        let by_key = InFlight::new("f", limit).key(key::client_ip());
        assert_refused(by_key, "limit", &limit.to_string());
    }
    for limit in [1, MOST] {
        assert!(build([InFlight::new("f", limit)]).is_ok(), "{limit}");
    }
    // By itself it admits nobody, or as many as there are bits for.
    assert!(InFlight::new("f", 0).try_acquire().is_none());
    assert!(InFlight::new("f", 0).try_acquire_by("alice").is_none());
    assert_eq!(InFlight::new("f", u32::MAX).limit(), u64::from(MOST));
}

#[test]
fn a_limit_that_cannot_be_is_not_put_in_force_and_disturbs_nobody() {
    for key in [None, Some("alice")] {
        let flight = flight().clock(ManualClock::new());
        let take = || match key {
            None => flight.try_acquire(),
            Some(key) => flight.try_acquire_by(key),
        };
        let permits = [take(), take()];
        let longest = Duration::from_secs(1);
        let mut waits = pin!(async {
            match key {
                None => flight.acquire(longest).await,
                Some(key) => flight.acquire_by(key, longest).await,
            }
        });
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        for limit in [0].into_iter().chain(TOO_MANY) {
            let error = flight.set_limit(limit).unwrap_err();
            assert_names(&error, "f", "limit", &limit.to_string());
            assert_eq!((flight.limit(), flight.in_flight(), flight.waiting()), (2, 2, 1));
            assert!(waits.as_mut().poll(&mut cx).is_pending());
        }
        drop(permits);
        let Poll::Ready(Some(_permit)) = waits.as_mut().poll(&mut cx) else {
            panic!("a permit is free");
        };
        assert!(flight.set_limit(1).is_ok());
        assert!(flight.set_limit(MOST).is_ok());
    }
}

#[test]
fn names_that_are_none_and_names_twice_are_refused() {
    let long = "x".repeat(65);
    for name in ["", "1a", "_a", "a b", "a\"", "\u{e4}", &long] {
        let error = build([InFlight::new(name, 1)]).unwrap_err();
        assert_names(&error, name, "name", &format!("{name:?}"));
    }
    let error = build([flight(), InFlight::new("g", 1), flight()]).unwrap_err();
    assert_names(&error, "f", "name", "\"f\"");
    let twice = flight();
    let error = build([twice.clone(), twice]).unwrap_err();
    assert_names(&error, "f", "name", "\"f\"");
    // A rule and an in-flight limit are both told to callers.
    let builder = RateLimitLayer::builder().in_flight(flight()).rule(right("f"));
    assert_names(&builder.build().unwrap_err(), "f", "name", "\"f\"");
    let builder = RateLimitLayer::builder().in_flight(flight()).rule(right("g"));
    assert!(builder.build().is_ok());
}

#[test]
fn a_layer_has_at_most_64_of_them() {
    let many = |n: usize| (0..n).map(|i| InFlight::new(format!("f{i}"), 1));
    assert!(build(many(64)).is_ok());
    let error = build(many(65)).unwrap_err();
    assert_eq!((error.rule(), error.field(), error.value()), (None, "in_flight", "65"));
}

#[test]
fn keys_are_checked_as_those_of_rules() {
    for key in [key::header("a").boxed(), key::header("a").and(key::client_ip()).boxed()] {
        let error = build([flight().key(key.clone())]).unwrap_err();
        assert_eq!((error.rule(), error.field()), (Some("f"), "missing"));
        assert!(error.value().starts_with("not set, and the key (header a"), "{error}");
        for choice in [".or(", "Missing::Skip", "Missing::Shared", "Missing::Refuse"] {
            assert!(error.reason().contains(choice), "{error}");
        }
        assert!(build([flight().key(key).missing(Missing::Shared)]).is_ok());
    }
    assert_refused(flight().missing(Missing::Skip), "missing", "Skip");
    let refuse = Missing::Refuse(StatusCode::OK);
    assert_refused(flight().key(key::header("a")).missing(refuse), "missing", "Refuse(200 OK)");
    assert_refused(flight().matching(matcher::path("healthz")), "matcher.path", "\"healthz\"");
    for relaxed in [key::client_ip().relaxed(10), key::header("a").or(key::client_ip().relaxed(10))]
    {
        let error = build([flight().key(relaxed)]).unwrap_err();
        assert_names(&error, "f", "key", "relaxed(..)");
        assert!(error.reason().contains("in flight"), "{error}");
    }
    assert!(build([flight().key(key::client_ip().relaxed(1))]).is_ok());
}

#[test]
fn answers_are_errors_and_hints_are_above_zero() {
    for (status, shown) in
        [(200, "200 OK"), (301, "301 Moved Permanently"), (101, "101 Switching Protocols")]
    {
        assert_refused(flight().status(StatusCode::from_u16(status).unwrap()), "status", shown);
    }
    assert!(build([flight().status(StatusCode::TOO_MANY_REQUESTS)]).is_ok());
    assert_refused(flight().retry_after(Duration::ZERO), "retry_after", "0s");
    for hint in [Duration::from_nanos(1), Duration::MAX] {
        assert!(build([flight().retry_after(hint)]).is_ok());
    }
    assert_refused(
        flight().rejection(RejectionPolicy::queue(Duration::ZERO, 1)),
        "longest_wait",
        "0s",
    );
}

#[test]
fn all_that_share_a_limit_read_one_clock() {
    let clock = ManualClock::new();
    let own = || flight().clock(clock.clone());
    let layer = || RateLimitLayer::builder().in_flight(own());
    assert!(layer().build().is_ok());
    assert!(layer().clock(clock.clone()).build().is_ok());
    for (builder, value) in
        [(layer().clock(ManualClock::new()), "ManualClock"), (layer().clock(StdClock), "StdClock")]
    {
        let error = builder.build().unwrap_err();
        assert_names(&error, "f", "clock", value);
        assert!(error.reason().contains("ManualClock"), "{error}");
    }
    // The first layer's is the limit's from then on.
    let shared = flight();
    let build = |clock: &ManualClock| {
        RateLimitLayer::builder().in_flight(shared.clone()).clock(clock.clone()).build()
    };
    assert!(build(&clock).is_ok());
    assert!(build(&clock).is_ok());
    assert_names(&build(&ManualClock::new()).unwrap_err(), "f", "clock", "ManualClock");
}

#[test]
fn a_layer_that_was_not_built_leaves_no_clock_behind() {
    let shared = flight();
    let builder = || RateLimitLayer::builder().in_flight(shared.clone());
    for wrong in [InFlight::new("g", 0), flight()] {
        let builder = builder().clock(ManualClock::new());
        assert!(builder.in_flight(wrong).build().is_err());
    }
    assert!(builder().clock(ManualClock::new()).build().is_ok());
}

#[test]
fn errors_read_well() {
    for (limit, text) in [
        (
            InFlight::new("feed", 0),
            "in-flight limit \"feed\": limit = 0: must be at least 1; to close a route, answer it with 503",
        ),
        (
            InFlight::new("feed", 1 << 31),
            "in-flight limit \"feed\": limit = 2147483648: must be at most 2^31 - 1",
        ),
        (
            InFlight::new("feed", 1).retry_after(Duration::ZERO),
            "in-flight limit \"feed\": retry_after = 0s: must be above zero",
        ),
        (
            InFlight::new("feed", 1).key(key::client_ip().relaxed(2)),
            "in-flight limit \"feed\": key = relaxed(..): what may be in flight is one number for all keys; add \
             a limit for those who may have more",
        ),
    ] {
        assert_eq!(build([limit]).unwrap_err().to_string(), text);
    }
}
