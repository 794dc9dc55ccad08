//! CM: several limits on one request.

use std::time::Duration;

use axum::{Router, extract::MatchedPath, routing::get};
use tower_sluice::{ManualClock, Missing, RateLimitLayer, Rule, clock::Nanos, key, matcher};

use crate::support::{ask, by_user, get_with, remaining, request, tally, window};

fn user_rule(name: &str, limit: u64, seconds: u64) -> Rule {
    Rule::new(name, window(limit, seconds)).key(key::header("x-user-id")).missing(Missing::Skip)
}

#[tokio::test]
async fn cm_01_refusal_by_the_second_charges_nothing() {
    for user_first in [true, false] {
        let user = user_rule("user", 30, 60);
        let e1 = Rule::new("e1", window(4, 60)).matching(matcher::path("/e1")).spread(false);
        let rules = if user_first { [user, e1] } else { [e1, user] };
        let layer =
            RateLimitLayer::builder().rules(rules).clock(ManualClock::new()).build().unwrap();
        let app = Router::new()
            .route("/e1", get(|| async {}))
            .route("/e2", get(|| async {}))
            .layer(layer.clone());
        let others = (0..4).map(|n| by_user("/e1", &format!("other-{n}")));
        assert_eq!(tally(&app, others).await, (4, 0));
        for _ in 0..30 {
            let refused = ask(&app, by_user("/e1", "alice")).await;
            assert!(refused.is_refused());
            assert_eq!(refused.violated(), ["e1"]);
        }
        assert_eq!(remaining(&layer, "user", "alice").await, 30);
        assert!(ask(&app, by_user("/e2", "alice")).await.is_ok());
        assert_eq!(remaining(&layer, "user", "alice").await, 29, "user first: {user_first}");
    }
}

#[tokio::test]
async fn cm_03_each_layer_counts_once() {
    let clock = ManualClock::new();
    let layer = |name, limit| {
        RateLimitLayer::builder()
            .rule(Rule::new(name, window(limit, 60)))
            .clock(clock.clone())
            .build()
            .unwrap()
    };
    let (global, route) = (layer("global", 600), layer("a", 300));
    let app =
        Router::new().route("/a", get(|| async {}).layer(route.clone())).layer(global.clone());
    assert!(ask(&app, request("GET", "/a", None)).await.is_ok());
    let left = async |layer: &RateLimitLayer, rule| {
        layer.handle().peek(rule, (), 0).await.unwrap().remaining()
    };
    assert_eq!((left(&global, "global").await, left(&route, "a").await), (599, 299));
}

#[tokio::test]
async fn cm_03_three_rules_on_one_key() {
    let layer = RateLimitLayer::builder()
        .rule(user_rule("minute", 20, 60))
        .rule(user_rule("ten-minutes", 200, 600))
        .rule(user_rule("hour", 1_200, 3_600))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer.clone());
    assert_eq!(tally(&app, (0..20).map(|_| by_user("/", "alice"))).await, (20, 0));
    assert!(ask(&app, by_user("/", "alice")).await.is_refused());
    for (rule, left) in [("minute", 0), ("ten-minutes", 180), ("hour", 1_180)] {
        assert_eq!(remaining(&layer, rule, "alice").await, left, "{rule}");
    }
}

#[tokio::test]
async fn cm_04_every_rule_is_enforced() {
    let unmatched =
        Rule::new("default", window(1, 1)).when(|head| head.extension::<MatchedPath>().is_none());
    for reversed in [false, true] {
        let mut rules = vec![
            user_rule("user", 5, 60),
            Rule::new("ip", window(8, 60)).key(key::client_ip()),
            unmatched.clone(),
        ];
        if reversed {
            rules.reverse();
        }
        let layer =
            RateLimitLayer::builder().rules(rules).clock(ManualClock::new()).build().unwrap();
        let app = Router::new().route("/", get(|| async {})).layer(layer.clone());
        let by = |user| get_with("/", Some("192.0.2.1"), &[("x-user-id", user)]);
        assert_eq!(tally(&app, (0..5).map(|_| by("u1"))).await, (5, 0));
        assert_eq!(ask(&app, by("u1")).await.violated(), ["user"]);
        assert_eq!(tally(&app, (0..3).map(|_| by("u2"))).await, (3, 0));
        for _ in 0..2 {
            assert_eq!(ask(&app, by("u2")).await.violated(), ["ip"]);
        }
        let default = layer.handle().peek("default", (), 0).await.unwrap();
        assert_eq!(default.remaining(), 1, "the default rule does not touch this route");
    }
}

#[test]
fn cm_04_duplicate_names_are_refused() {
    let error = RateLimitLayer::builder()
        .rule(user_rule("user", 5, 60))
        .rule(Rule::new("ip", window(8, 60)).key(key::client_ip()))
        .rule(user_rule("user", 8, 60))
        .build()
        .unwrap_err();
    let parts = (error.rule(), error.field(), error.value());
    assert_eq!(parts, (Some("user"), "name", "\"user\""));
}

#[tokio::test]
async fn cm_06_longest_hint_wins() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::builder()
        .rule(user_rule("short", 10, 60))
        .rule(user_rule("day", 20, 86_400))
        .clock(clock.clone())
        .build()
        .unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer.clone());
    let ten = || (0..10).map(|_| by_user("/", "alice"));
    clock.set(Nanos::ZERO + Duration::from_secs(43_000));
    assert_eq!(tally(&app, ten()).await, (10, 0));
    clock.set(Nanos::ZERO + Duration::from_secs(43_200));
    assert_eq!(tally(&app, ten()).await, (10, 0));
    let refused = ask(&app, by_user("/", "alice")).await;
    assert!(refused.is_refused());
    assert_eq!(refused.retry_after(), Some(43_200));
    assert_eq!(refused.violated(), ["short", "day"]);
    // Nothing was spent on finding it out: both windows are whole once they have passed.
    clock.advance(Duration::from_secs(43_200));
    assert_eq!(remaining(&layer, "short", "alice").await, 10);
    assert_eq!(remaining(&layer, "day", "alice").await, 20);
    assert!(ask(&app, by_user("/", "alice")).await.is_ok());
}
