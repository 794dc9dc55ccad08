//! Chains of rejection policies that cannot be.

use std::time::Duration;

use tower_sluice::{ConfigError, Decline, InFlight, RateLimitLayer, RejectionPolicy};

use crate::support::{assert_names, right};

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> RejectionPolicy {
    RejectionPolicy::queue(SECOND, 100)
}

async fn handler() -> Decline {
    Decline
}

fn degrade() -> RejectionPolicy {
    RejectionPolicy::degrade(handler)
}

fn respond() -> RejectionPolicy {
    RejectionPolicy::respond()
}

fn custom() -> RejectionPolicy {
    RejectionPolicy::respond_with(|_, _| "later")
}

/// What is said of the policy, wherever it is set: for a layer, a rule, or an in-flight limit.
#[track_caller]
fn error_of(policy: &RejectionPolicy) -> ConfigError {
    let layer = RateLimitLayer::builder().rule(right("r")).rejection(policy.clone());
    let error = layer.build().unwrap_err();
    assert_eq!(error.rule(), None);
    let rule = right("r").rejection(policy.clone());
    let of_rule = RateLimitLayer::builder().rule(rule).build().unwrap_err();
    assert_names(&of_rule, "r", error.field(), error.value());
    let limit = InFlight::new("f", 1).rejection(policy.clone());
    let of_limit = RateLimitLayer::builder().in_flight(limit).build().unwrap_err();
    assert_names(&of_limit, "f", error.field(), error.value());
    assert_eq!([of_rule.reason(), of_limit.reason()], [error.reason(); 2]);
    error
}

#[track_caller]
fn assert_refused(policy: RejectionPolicy, field: &str, value: &str) {
    let error = error_of(&policy);
    assert_eq!((error.field(), error.value()), (field, value), "{error}");
    // Nothing that is joined to it mends it.
    let joined = error_of(&policy.clone().or(degrade()));
    assert_eq!(joined.field(), field, "{joined}");
    let behind = error_of(&degrade().or(policy));
    assert_eq!(behind.field(), field, "{behind}");
}

#[test]
fn queues_without_time_or_places_are_refused() {
    for depth in [0, 1, u64::MAX] {
        assert_refused(RejectionPolicy::queue(Duration::ZERO, depth), "longest_wait", "0s");
    }
    for longest in [Duration::from_nanos(1), SECOND, Duration::MAX] {
        assert_refused(RejectionPolicy::queue(longest, 0), "depth", "0");
    }
}

#[test]
fn two_queues_in_a_chain_are_refused() {
    let shown = "queue(1s, 100) or queue(1s, 100) or respond";
    assert_refused(queue().or(queue()), "rejection", shown);
    let shown = "queue(1s, 100) or degrade(..) or queue(1s, 100) or respond_with(..)";
    let error = error_of(&queue().or(degrade()).or(queue()).or(custom()));
    assert_eq!((error.field(), error.value()), ("rejection", shown));
}

#[test]
fn what_follows_respond_is_refused() {
    for (end, shown) in [(respond(), "respond"), (custom(), "respond_with(..)")] {
        let after = |first: &str| format!("{first} or {shown}");
        assert_refused(respond().or(end.clone()), "rejection", &after("respond"));
        assert_refused(custom().or(end), "rejection", &after("respond_with(..)"));
    }
    let shown = "respond or queue(1s, 100) or respond";
    assert_refused(respond().or(queue()), "rejection", shown);
    let shown = "queue(1s, 100) or respond or degrade(..) or respond";
    assert_refused(queue().or(respond()).or(degrade()), "rejection", shown);
    assert_refused(
        RejectionPolicy::default().or(queue()),
        "rejection",
        "respond or queue(1s, 100) or respond",
    );
}

#[test]
fn what_follows_a_handler_with_the_body_is_refused() {
    let taking = || degrade().taking_body();
    for (next, shown) in [
        (queue(), "degrade(..).taking_body() or queue(1s, 100) or respond"),
        (degrade(), "degrade(..).taking_body() or degrade(..) or respond"),
        (queue().or(custom()), "degrade(..).taking_body() or queue(1s, 100) or respond_with(..)"),
    ] {
        let error = error_of(&taking().or(next));
        assert_eq!((error.field(), error.value()), ("rejection", shown));
        assert!(error.reason().contains("takes the body"), "{error}");
    }
    for right_one in [taking(), taking().or(respond()), taking().or(custom()), queue().or(taking())]
    {
        let layer = RateLimitLayer::builder().rule(right("r")).rejection(right_one);
        assert!(layer.build().is_ok());
    }
}

#[test]
fn settings_of_a_degrade_step_need_one() {
    for (policy, shown) in [
        (queue(), "queue(1s, 100) or respond"),
        (respond(), "respond"),
        (custom(), "respond_with(..)"),
        (degrade().or(queue()), "degrade(..) or queue(1s, 100) or respond"),
        (degrade().or(respond()), "degrade(..) or respond"),
    ] {
        let error = error_of(&policy.clone().taking_body());
        assert_eq!((error.field(), error.value()), ("taking_body", shown));
        let error = error_of(&policy.max_degraded(5));
        assert_eq!((error.field(), error.value()), ("max_degraded", shown));
    }
}

#[test]
fn numbers_of_degraded_answers_are_checked() {
    for most in [0, 1 << 31, u32::MAX] {
        assert_refused(degrade().max_degraded(most), "max_degraded", &most.to_string());
    }
    for most in [1, 256, (1 << 31) - 1] {
        let layer = RateLimitLayer::builder().rule(right("r"));
        assert!(layer.rejection(degrade().max_degraded(most)).build().is_ok());
    }
}

#[test]
fn errors_read_well() {
    let of_rule = |policy: RejectionPolicy| {
        let rule = right("jobs").rejection(policy);
        RateLimitLayer::builder().rule(rule).build().unwrap_err().to_string()
    };
    for (policy, text) in [
        (
            RejectionPolicy::queue(Duration::ZERO, 1),
            "rule \"jobs\": longest_wait = 0s: must be above zero; for no waiting, leave the queue \
             out",
        ),
        (
            RejectionPolicy::queue(SECOND, 0),
            "rule \"jobs\": depth = 0: must be at least 1; for no waiting, leave the queue out",
        ),
        (
            queue().or(queue()),
            "rule \"jobs\": rejection = queue(1s, 100) or queue(1s, 100) or respond: a request waits \
             in one queue; keep one of them",
        ),
        (
            respond().or(queue()),
            "rule \"jobs\": rejection = respond or queue(1s, 100) or respond: nothing can follow respond, \
             which always answers; write it last",
        ),
        (
            queue().taking_body(),
            "rule \"jobs\": taking_body = queue(1s, 100) or respond: belongs right behind \
             degrade(..), whose handler it is for",
        ),
        (degrade().max_degraded(0), "rule \"jobs\": max_degraded = 0: must be from 1 to 2^31 - 1"),
        (
            degrade().taking_body().or(queue()),
            "rule \"jobs\": rejection = degrade(..).taking_body() or queue(1s, 100) or respond: \
             nothing but respond can follow a handler that takes the body; put other steps before it",
        ),
    ] {
        assert_eq!(of_rule(policy), text);
    }
}
