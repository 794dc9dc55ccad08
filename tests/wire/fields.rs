//! The fields that tell a caller how he stands.

use std::time::Duration;

use axum::{
    Router,
    response::Redirect,
    routing::{any, get as at},
};
use http::StatusCode;
use tower_sluice::{
    Calendar, Decision, FixedWindow, Headers, InFlight, LeakyBucket, ManualClock, Missing, Quota,
    RateLimitLayer, RateLimitLayerBuilder, RejectionPolicy, Reset, Rule, SlidingLog, SlidingWindow,
    TokenBucket, key, testing::ScriptedBackend,
};

use crate::support::{Answer, Member, ask, get, member};

fn per_user(name: &str, algorithm: impl Into<tower_sluice::Algorithm>) -> Rule {
    Rule::new(name, algorithm).key(key::header("x-user-id")).missing(Missing::Skip)
}

fn builder(clock: &ManualClock) -> RateLimitLayerBuilder {
    RateLimitLayer::builder().clock(clock.clone()).headers(Headers::Draft11)
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", any(|| async {})).layer(layer)
}

/// The policies and the standing of an answer.
fn told(answer: &Answer) -> (Vec<Member>, Vec<Member>) {
    (answer.list("ratelimit-policy"), answer.list("ratelimit"))
}

#[tokio::test]
async fn a_bucket_tells_what_is_left_until_it_refuses() {
    let clock = ManualClock::new();
    let rule = per_user("api", TokenBucket::per_second(10).burst(50)).cost(20);
    let layer = builder(&clock).rule(rule).build().unwrap();
    let app = app(layer);
    let policy = || vec![member("api", &[("q", "50"), ("w", "5")])];

    let first = ask(&app, get("alice")).await;
    assert_eq!(told(&first), (policy(), vec![member("api", &[("r", "30"), ("t", "2")])]));
    ask(&app, get("alice")).await;
    let refused = ask(&app, get("alice")).await;
    assert_eq!(refused.status, 429);
    // What is left is not enough; the wait is that of Retry-After, not the time until it is full.
    assert_eq!(told(&refused), (policy(), vec![member("api", &[("r", "10"), ("t", "1")])]));
    assert_eq!(refused.number("retry-after"), Some(1));

    // Whole again, save for what the request itself spends.
    clock.advance(Duration::from_secs(60));
    let rested = ask(&app, get("alice")).await;
    assert_eq!(told(&rested), (policy(), vec![member("api", &[("r", "30"), ("t", "2")])]));
}

#[tokio::test]
async fn a_whole_quota_has_no_time_to_wait() {
    let clock = ManualClock::new();
    let rule = per_user("api", TokenBucket::per_second(10)).cost_fn(|_| 0);
    let layer = builder(&clock).headers(Headers::XRateLimit(Reset::After)).rule(rule).build();
    let answer = ask(&app(layer.unwrap()), get("alice")).await;
    assert_eq!(answer.list("ratelimit"), [member("api", &[("r", "10")])]);
    assert_eq!(answer.number("x-ratelimit-reset"), Some(0));
}

#[tokio::test]
async fn each_algorithm_tells_its_limit_and_window() {
    type Parameters = &'static [(&'static str, &'static str)];
    let cases: [(tower_sluice::Algorithm, Parameters, Parameters); 9] = [
        (
            FixedWindow::per_minute(100).into(),
            &[("q", "100"), ("w", "60")],
            &[("r", "99"), ("t", "60")],
        ),
        (
            SlidingWindow::per_minute(100).into(),
            &[("q", "100"), ("w", "60")],
            &[("r", "99"), ("t", "66")],
        ),
        (
            SlidingLog::per_minute(100).into(),
            &[("q", "100"), ("w", "60")],
            &[("r", "99"), ("t", "60")],
        ),
        (
            FixedWindow::calendar(100, Calendar::Day).into(),
            &[("q", "100"), ("w", "86400")],
            &[("r", "99"), ("t", "86400")],
        ),
        (
            TokenBucket::per_second(500).burst(750).into(),
            &[("q", "750"), ("w", "2")],
            &[("r", "749"), ("t", "1")],
        ),
        // One in ten seconds: what comes at once is one.
        (
            TokenBucket::new(6, Duration::from_secs(60)).burst(1).into(),
            &[("q", "1"), ("w", "10")],
            &[("r", "0"), ("t", "10")],
        ),
        // Below a second a window cannot be told: "1 in 1 s" would be a twentieth of the truth.
        (LeakyBucket::per_second(20).into(), &[("q", "1")], &[("r", "0"), ("t", "1")]),
        (
            FixedWindow::new(5, Duration::from_millis(100)).into(),
            &[("q", "5")],
            &[("r", "4"), ("t", "1")],
        ),
        (
            FixedWindow::new(5, Duration::from_millis(1_500)).into(),
            &[("q", "5"), ("w", "2")],
            &[("r", "4"), ("t", "2")],
        ),
    ];
    for (algorithm, policy, standing) in cases {
        let layer = builder(&ManualClock::new()).rule(per_user("a", algorithm)).build().unwrap();
        let answer = ask(&app(layer), get("alice")).await;
        let expected = (vec![member("a", policy)], vec![member("a", standing)]);
        assert_eq!(told(&answer), expected, "{algorithm:?}");
    }
}

#[tokio::test]
async fn all_policies_are_told_and_the_one_with_the_least_left() {
    let clock = ManualClock::new();
    let layer = builder(&clock)
        .rule(Rule::new("all", TokenBucket::per_second(1_000)))
        .rule(per_user("min", FixedWindow::per_minute(3)))
        .rule(per_user("day", FixedWindow::per_day(5)))
        .rule(per_user("posts", FixedWindow::per_minute(1)).when(|head| head.method() == "POST"))
        .build()
        .unwrap();
    let app = app(layer);
    let (min, day) =
        (member("min", &[("q", "3"), ("w", "60")]), member("day", &[("q", "5"), ("w", "86400")]));
    let policies = vec![min, day];

    // The rule without a key tells strangers how loaded we are: it is not shown, nor is what does not apply.
    for (left, reset) in [("2", "60"), ("1", "60"), ("0", "60")] {
        let answer = ask(&app, get("alice")).await;
        let standing = vec![member("min", &[("r", left), ("t", reset)])];
        assert_eq!(told(&answer), (told(&answer).0, standing));
        assert_eq!(answer.list("ratelimit-policy"), policies);
    }
    clock.advance(Duration::from_secs(42));
    let refused = ask(&app, get("alice")).await;
    assert_eq!(told(&refused).1, [member("min", &[("r", "0"), ("t", "18")])]);
    assert_eq!(refused.number("retry-after"), Some(18));

    // With less left of the day than of the minute, the day is told.
    clock.advance(Duration::from_secs(18));
    let answer = ask(&app, get("alice")).await;
    assert_eq!(told(&answer).1, [member("day", &[("r", "1"), ("t", "86340")])]);
    ask(&app, get("alice")).await;
    let refused = ask(&app, get("alice")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(told(&refused), (policies, vec![member("day", &[("r", "0"), ("t", "86340")])]));
    assert_eq!(refused.number("retry-after"), Some(86_340));
}

#[tokio::test]
async fn on_refusal_the_time_is_that_of_retry_after_with_its_spread() {
    let clock = ManualClock::new();
    let rule = Rule::new("all", FixedWindow::per_minute(1)).advertise();
    let app = app(builder(&clock).rule(rule).build().unwrap());
    ask(&app, get("alice")).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let refused = ask(&app, get("alice")).await;
        let said = refused.number("retry-after").unwrap();
        let standing = [member("all", &[("r", "0"), ("t", &said.to_string())])];
        assert_eq!(refused.list("ratelimit"), standing);
        assert!((60..=72).contains(&said));
        seen.insert(said);
    }
    assert!(seen.len() > 5, "{seen:?}");
}

#[tokio::test]
async fn nothing_is_told_of_a_limit_that_is_not_shown() {
    let clock = ManualClock::new();
    let layer = builder(&clock)
        .rule(Rule::new("all", FixedWindow::per_hour(1)))
        .rule(per_user("user", FixedWindow::per_minute(10)))
        .build()
        .unwrap();
    let app = app(layer);
    ask(&app, get("alice")).await;
    let refused = ask(&app, get("alice")).await;
    assert_eq!(refused.status, 429);
    // Hers does not refuse, and of the one that does nothing is said but the wait.
    assert_eq!(told(&refused), (vec![member("user", &[("q", "10"), ("w", "60")])], vec![]));
    assert!(refused.number("retry-after").unwrap() >= 3_600);
    // Whoever has no key has no limit that is shown.
    let anonymous =
        ask(&app, http::Request::get("/").body(axum::body::Body::empty()).unwrap()).await;
    assert_eq!(told(&anonymous), (vec![], vec![]));
}

#[tokio::test]
async fn what_never_fits_has_no_time() {
    let rule = per_user("user", FixedWindow::per_minute(10)).cost_fn(|_| 11);
    let app = app(builder(&ManualClock::new()).rule(rule).build().unwrap());
    let refused = ask(&app, get("alice")).await;
    assert_eq!(
        (refused.status, refused.number("retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, None)
    );
    assert_eq!(told(&refused).1, [member("user", &[("r", "10")])]);
}

#[tokio::test]
async fn degraded_answers_tell_how_the_caller_stands() {
    let layer = builder(&ManualClock::new())
        .rule(per_user("user", TokenBucket::per_second(10).burst(50)).cost(20))
        .rejection(RejectionPolicy::degrade(|| async { "cached" }))
        .build()
        .unwrap();
    let app = app(layer);
    ask(&app, get("alice")).await;
    ask(&app, get("alice")).await;
    let degraded = ask(&app, get("alice")).await;
    assert_eq!(degraded.status, 200);
    let policy = vec![member("user", &[("q", "50"), ("w", "5")])];
    // A second until the same would fit, though it would be four until all is back.
    assert_eq!(told(&degraded), (policy, vec![member("user", &[("r", "10"), ("t", "1")])]));
    assert_eq!(degraded.field("retry-after"), None, "the handler's answer is no refusal");
}

#[tokio::test]
async fn in_flight_limits_have_a_unit_of_their_own() {
    let (clock, limit) = (ManualClock::new(), InFlight::new("uploads", 8));
    let held: Vec<_> = (0..5).map(|_| limit.try_acquire().unwrap()).collect();
    let policy = || member("uploads", &[("q", "8"), ("qu", "concurrent-requests")]);
    let layer = builder(&clock).in_flight(limit.clone().advertise()).build().unwrap();
    let alone = app(layer);
    let answer = ask(&alone, get("alice")).await;
    // Three are free; the request itself has one of them.
    assert_eq!(told(&answer), (vec![policy()], vec![member("uploads", &[("r", "2")])]));

    // Beside a rate it is not the one that is told, unless it refuses.
    let layer = builder(&clock)
        .headers(Headers::XRateLimit(Reset::After))
        .rule(per_user("user", FixedWindow::per_minute(10)))
        .in_flight(limit.clone().advertise())
        .build()
        .unwrap();
    let both = app(layer);
    let user = || member("user", &[("q", "10"), ("w", "60")]);
    let answer = ask(&both, get("alice")).await;
    let standing = vec![member("user", &[("r", "9"), ("t", "60")])];
    assert_eq!(told(&answer), (vec![user(), policy()], standing));

    let _rest: Vec<_> = (0..3).map(|_| limit.try_acquire().unwrap()).collect();
    for app in [&alone, &both] {
        let refused = ask(app, get("alice")).await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.list("ratelimit"), [member("uploads", &[("r", "0")])]);
        // Other forms have no word for it.
        assert_eq!(refused.field("x-ratelimit-limit"), None);
    }
    drop(held);
}

#[tokio::test]
async fn a_key_of_its_own_shows_an_in_flight_limit() {
    let limit = InFlight::new("user", 4).key(key::header("x-user-id")).missing(Missing::Skip);
    let held = limit.try_acquire_by("alice").unwrap();
    let layer = builder(&ManualClock::new()).in_flight(limit).build().unwrap();
    let app = app(layer);
    assert_eq!(ask(&app, get("alice")).await.list("ratelimit"), [member("user", &[("r", "2")])]);
    assert_eq!(ask(&app, get("bob")).await.list("ratelimit"), [member("user", &[("r", "3")])]);
    drop(held);
}

#[tokio::test]
async fn older_forms_have_the_same_numbers() {
    let clock = ManualClock::with_utc(Duration::from_millis(1_764_000_000_400));
    let with = |forms: &[Headers]| {
        let builder = RateLimitLayer::builder()
            .rule(per_user("min", FixedWindow::per_minute(100)))
            .rule(per_user("day", FixedWindow::per_day(5_000)))
            .rule(per_user("week", FixedWindow::new(100, Duration::from_secs(604_800))))
            .clock(clock.clone());
        app(forms.iter().fold(builder, |builder, form| builder.headers(*form)).build().unwrap())
    };
    let seventh = ask(&with(&[Headers::Draft07]), get("alice")).await;
    let dictionary = seventh.dictionary("ratelimit");
    let expected = [("limit", "100"), ("remaining", "99"), ("reset", "604800")];
    assert_eq!(dictionary, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    // No two policies of one limit.
    assert_eq!(seventh.field("ratelimit-policy").unwrap(), "100;w=60, 5000;w=86400");

    let both = [Headers::Draft06, Headers::XRateLimit(Reset::Epoch)];
    let sixth = ask(&with(&both), get("alice")).await;
    let numbers = |prefix: &str| {
        ["limit", "remaining", "reset"].map(|name| sixth.number(&format!("{prefix}-{name}")))
    };
    assert_eq!(numbers("ratelimit"), [Some(100), Some(99), Some(604_800)]);
    assert_eq!(sixth.field("ratelimit-policy").unwrap(), "100;w=60, 5000;w=86400");
    assert_eq!(numbers("x-ratelimit"), [Some(100), Some(99), Some(1_764_604_801)]);

    let after = ask(&with(&[Headers::XRateLimit(Reset::After)]), get("alice")).await;
    assert_eq!(after.number("x-ratelimit-reset"), Some(604_800));
    assert_eq!(after.field("ratelimit-policy"), None);
}

#[test]
fn two_forms_of_the_same_fields_are_refused() {
    let rule = || per_user("user", FixedWindow::per_minute(1));
    for (one, other) in [
        (Headers::Draft11, Headers::Draft07),
        (Headers::Draft06, Headers::Draft11),
        (Headers::Draft11, Headers::Draft11),
        (Headers::XRateLimit(Reset::After), Headers::XRateLimit(Reset::Epoch)),
    ] {
        let built = RateLimitLayer::builder().rule(rule()).headers(one).headers(other).build();
        let error = built.unwrap_err();
        assert_eq!((error.field(), error.value()), ("headers", &*format!("{other:?}")));
        assert!(error.reason().contains(&format!("{one:?}")), "{error}");
    }
}

#[tokio::test]
async fn stacked_layers_tell_of_all_and_a_handler_has_the_last_word() {
    let clock = ManualClock::new();
    let layer = |name: &str, limit| {
        let rule = per_user(name, FixedWindow::per_minute(limit));
        let builder = builder(&clock).headers(Headers::XRateLimit(Reset::After));
        builder.rule(rule).build().unwrap()
    };
    let app = app(layer("inner", 5)).layer(layer("outer", 9));
    let answer = ask(&app, get("alice")).await;
    let names =
        |field| answer.list(field).into_iter().map(|member| member.name).collect::<Vec<_>>();
    assert_eq!(names("ratelimit-policy"), ["inner", "outer"]);
    assert_eq!(names("ratelimit"), ["inner", "outer"]);
    assert_eq!(answer.field("x-ratelimit-limit").unwrap(), "5");

    let handler = at(|| async { ([("x-ratelimit-limit", "own")], ()) });
    let own = Router::new().route("/", handler).layer(layer("outer", 9));
    let answer = ask(&own, get("alice")).await;
    assert_eq!(answer.field("x-ratelimit-limit").unwrap(), "own");

    // And so has a responder.
    let rule = per_user("user", FixedWindow::per_minute(1));
    let refuse = RejectionPolicy::respond_with(|_, _| ([("ratelimit", "own")], "no"));
    let layer = builder(&clock).rule(rule).rejection(refuse).build().unwrap();
    let app = Router::new().route("/", any(|| async {})).layer(layer);
    ask(&app, get("alice")).await;
    let refused = ask(&app, get("alice")).await;
    assert_eq!(
        (refused.status, &*refused.field("ratelimit").unwrap()),
        (StatusCode::TOO_MANY_REQUESTS, "own")
    );
    assert_eq!(refused.list("ratelimit-policy").len(), 1);
}

#[tokio::test]
async fn redirects_and_exempt_requests_tell_nothing() {
    let layer = builder(&ManualClock::new())
        .rule(per_user("user", FixedWindow::per_minute(5)))
        .exempt(|head| head.path() == "/healthz")
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", at(|| async { Redirect::to("/there") }))
        .route("/healthz", at(|| async {}))
        .route("/304", at(|| async { StatusCode::NOT_MODIFIED }))
        .layer(layer);
    let ask_at = async |path: &str| {
        let request = http::Request::get(path).header("x-user-id", "alice");
        ask(&app, request.body(axum::body::Body::empty()).unwrap()).await
    };
    for path in ["/", "/healthz"] {
        assert_eq!(told(&ask_at(path).await), (vec![], vec![]), "{path}");
    }
    assert_eq!(ask_at("/304").await.list("ratelimit").len(), 1);
    assert_eq!(ask_at("/gone").await.list("ratelimit").len(), 1);
}

#[tokio::test]
async fn only_refusals_where_admitted_answers_are_to_be_as_they_are() {
    let layer = builder(&ManualClock::new())
        .rule(per_user("user", FixedWindow::per_minute(1)))
        .headers_on_admitted(false)
        .build()
        .unwrap();
    let app = app(layer);
    assert_eq!(told(&ask(&app, get("alice")).await), (vec![], vec![]));
    assert_eq!(
        told(&ask(&app, get("alice")).await).1,
        [member("user", &[("r", "0"), ("t", "60")])]
    );
}

#[tokio::test]
async fn a_changed_limit_is_told_at_once() {
    let layer = builder(&ManualClock::new())
        .rule(
            per_user("user", FixedWindow::per_minute(5))
                .tier("pro", FixedWindow::per_minute(50))
                .tiers(|head| head.header_str("x-tier")),
        )
        .rule(Rule::new("scripted", TokenBucket::per_second(7)).advertise().backend(
            ScriptedBackend::from_fn(|_| Decision::allowed(7, 6, Duration::from_millis(100))),
        ))
        .in_flight(InFlight::new("all", 3).advertise())
        .build()
        .unwrap();
    let (handle, app) = (layer.handle(), app(layer));
    let limits = async |tier: Option<&str>| {
        let mut request = get("alice");
        if let Some(tier) = tier {
            request.headers_mut().insert("x-tier", tier.parse().unwrap());
        }
        let answer = ask(&app, request).await;
        let limit = |member: Member| member.parameters["q"].clone();
        answer.list("ratelimit-policy").into_iter().map(limit).collect::<Vec<_>>()
    };
    assert_eq!(limits(None).await, ["5", "7", "3"]);
    assert_eq!(limits(Some("pro")).await, ["50", "7", "3"]);
    // Each by itself, so that no other change makes the list anew.
    handle.set_limit("user", Quota::per_minute(6)).unwrap();
    assert_eq!(limits(None).await, ["6", "7", "3"]);
    handle.set_limit("scripted", Quota::per_second(8)).unwrap();
    assert_eq!(limits(None).await, ["6", "8", "3"]);
    handle.set_in_flight("all", 4).unwrap();
    assert_eq!(limits(None).await, ["6", "8", "4"]);
    assert_eq!(limits(Some("pro")).await, ["50", "8", "4"]);
    handle.set_tier_limit("user", "pro", Quota::per_minute(60)).unwrap();
    assert_eq!(limits(Some("pro")).await, ["60", "8", "4"]);
}

#[tokio::test]
async fn what_another_backend_decided_is_told() {
    let decisions = [
        Decision::allowed(7, 6, Duration::from_millis(100)),
        Decision::denied(7, 0, Duration::from_millis(2_500), Duration::from_secs(9)),
    ];
    let backend = ScriptedBackend::decisions(decisions);
    let rule = per_user("fleet", TokenBucket::per_second(7)).backend(backend);
    let app = app(builder(&ManualClock::new()).rule(rule).build().unwrap());
    let policy = || vec![member("fleet", &[("q", "7"), ("w", "1")])];
    let answer = ask(&app, get("alice")).await;
    assert_eq!(told(&answer), (policy(), vec![member("fleet", &[("r", "6"), ("t", "1")])]));
    let refused = ask(&app, get("alice")).await;
    assert_eq!(told(&refused), (policy(), vec![member("fleet", &[("r", "0"), ("t", "3")])]));
    assert_eq!(refused.number("retry-after"), Some(3));
}

#[tokio::test]
async fn numbers_too_large_for_a_field_are_cut() {
    let rule =
        per_user("huge", TokenBucket::new(1_000_000_000, Duration::from_secs(1)).burst(1 << 52));
    let app = app(builder(&ManualClock::new()).rule(rule).build().unwrap());
    let answer = ask(&app, get("alice")).await;
    assert_eq!(answer.list("ratelimit-policy")[0].parameters["q"], "999999999999999");
    assert_eq!(answer.list("ratelimit")[0].parameters["r"], "999999999999999");
}

#[tokio::test]
async fn a_head_request_is_told_what_a_get_is() {
    let app = app(builder(&ManualClock::new())
        .rule(per_user("u", FixedWindow::per_minute(2)))
        .build()
        .unwrap());
    let head = || {
        let mut request = get("alice");
        *request.method_mut() = http::Method::HEAD;
        request
    };
    assert_eq!(
        ask(&app, head()).await.list("ratelimit"),
        [member("u", &[("r", "1"), ("t", "60")])]
    );
    assert_eq!(ask(&app, get("alice")).await.list("ratelimit")[0].parameters["r"], "0");
    let refused = ask(&app, head()).await;
    assert_eq!(
        (refused.status, refused.number("retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some(60))
    );
}

#[tokio::test]
async fn no_more_is_left_than_the_quota_has() {
    // A backend that knows of another quota, as any does for a moment when it changes.
    let backend = ScriptedBackend::decisions([Decision::allowed(70, 69, Duration::from_secs(1))]);
    let rule = per_user("fleet", TokenBucket::per_second(7)).backend(backend);
    let app = app(builder(&ManualClock::new()).rule(rule).build().unwrap());
    let answer = ask(&app, get("alice")).await;
    let policy = vec![member("fleet", &[("q", "7"), ("w", "1")])];
    assert_eq!(told(&answer), (policy, vec![member("fleet", &[("r", "7"), ("t", "1")])]));
}

#[tokio::test]
async fn an_epoch_stays_while_the_handler_works() {
    let clock = ManualClock::with_utc(Duration::from_millis(1_764_000_000_400));
    let layer = RateLimitLayer::builder()
        .rule(per_user("min", FixedWindow::per_minute(2)))
        .headers(Headers::XRateLimit(Reset::Epoch))
        .clock(clock.clone())
        .build()
        .unwrap();
    let slow = any(move || async move { clock.advance(Duration::from_millis(17_450)) });
    let app = Router::new().route("/", slow).layer(layer);
    // The window ends 60 s after it began, at ..060.4: for the admitted, and for who is refused.
    for _ in 0..3 {
        let answer = ask(&app, get("alice")).await;
        assert_eq!(answer.number("x-ratelimit-reset"), Some(1_764_000_061), "{answer:?}");
    }
}

#[tokio::test]
async fn redirects_of_a_policy_tell_nothing_either() {
    let to = || Redirect::to("/waiting-room");
    for policy in [
        RejectionPolicy::respond_with(move |_, _| to()),
        RejectionPolicy::degrade(move || async move { to() }),
    ] {
        let rule = per_user("min", FixedWindow::per_minute(1));
        let layer = builder(&ManualClock::new()).rule(rule).rejection(policy).build().unwrap();
        let app = app(layer);
        assert_eq!(told(&ask(&app, get("alice")).await).1.len(), 1);
        let redirect = ask(&app, get("alice")).await;
        assert_eq!(redirect.status, StatusCode::SEE_OTHER);
        assert_eq!(told(&redirect), (vec![], vec![]));
    }
}

#[tokio::test]
async fn the_time_is_that_of_retry_after_whoever_set_it() {
    let clock = ManualClock::with_utc(Duration::from_secs(1_764_000_000));
    let with = |value: &'static str| {
        let policy = RejectionPolicy::respond_with(move |_, _| [("retry-after", value)]);
        let layer = builder(&clock)
            .headers(Headers::XRateLimit(Reset::Epoch))
            .rule(per_user("min", FixedWindow::per_minute(1)))
            .rejection(policy)
            .build();
        app(layer.unwrap())
    };
    // A date, or what is no time, is not read.
    for (value, seconds) in [
        ("90", 90),
        ("60", 60),
        ("7", 7),
        ("0", 60),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 60),
        ("-1", 60),
    ] {
        let app = with(value);
        ask(&app, get("alice")).await;
        let refused = ask(&app, get("alice")).await;
        let standing = member("min", &[("r", "0"), ("t", &seconds.to_string())]);
        assert_eq!(told(&refused).1, [standing], "{value}");
        assert_eq!(refused.number("x-ratelimit-reset"), Some(1_764_000_000 + seconds));
    }
}
