//! Tiers: a rule's named quotas, each with counts of its own; here, on other backends, and by a handle.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Algorithm, FixedWindow, Handle, HandleError, LeakyBucket, ManualClock, Missing, Quota,
    RateLimitLayer, RateLimitLayerBuilder, Rejection, RejectionPolicy, Rule, RuleKey, TokenBucket,
    backend::{LimiterId, Local},
    event::Fault,
    key,
    testing::{Event, Recorder, ScriptedBackend},
};

#[path = "shared/tasks.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod tasks;

use tasks::{Steps, Tasks};

const MILLI: Duration = Duration::from_millis(1);

/// The tier a request is in, as authentication would say it.
#[derive(Clone)]
struct Tier(&'static str);

/// Two a day; five for `pro`, nine for `partner`.
fn rule() -> Rule {
    tiered(FixedWindow::per_day(2), FixedWindow::per_day(5), FixedWindow::per_day(9))
}

fn tiered(own: impl Into<Algorithm>, pro: impl Into<Quota>, partner: impl Into<Quota>) -> Rule {
    Rule::new("r", own)
        .tier("pro", pro)
        .tier("partner", partner)
        .tiers(|head| head.extension::<Tier>().map(|tier| tier.0))
        .spread(false)
}

fn keyed(rule: Rule) -> Rule {
    rule.key(key::header("x-user-id")).missing(Missing::Skip)
}

fn builder() -> RateLimitLayerBuilder {
    RateLimitLayer::builder().clock(ManualClock::new()).expose_rejection()
}

fn layer(rule: Rule) -> RateLimitLayer {
    builder().rule(rule).build().unwrap()
}

/// In process, and on a backend elsewhere that counts as this process does.
fn both(rule: &Rule) -> [RateLimitLayer; 2] {
    [layer(rule.clone()), layer(rule.clone().backend(Arc::new(Local::new())))]
}

fn request(user: &str, tier: &'static str) -> Request<Body> {
    let mut request = Request::get("/").header("x-user-id", user).body(Body::empty()).unwrap();
    if !tier.is_empty() {
        request.extensions_mut().insert(Tier(tier));
    }
    request
}

async fn answer(layer: &RateLimitLayer, request: Request<Body>) -> Response<Body> {
    let inner =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let Ok(answer) = layer.layer(inner).oneshot(request).await;
    answer
}

async fn ask(layer: &RateLimitLayer, user: &str, tier: &'static str) -> u16 {
    answer(layer, request(user, tier)).await.status().as_u16()
}

/// How many of a day's requests pass.
async fn passes(layer: &RateLimitLayer, user: &str, tier: &'static str) -> usize {
    let mut passed = 0;
    for _ in 0..20 {
        passed += usize::from(ask(layer, user, tier).await == 200);
    }
    passed
}

fn named<'k>(key: impl Into<RuleKey<'k>>, tier: &'k str) -> RuleKey<'k> {
    let key = key.into();
    if tier.is_empty() { key } else { key.tier(tier) }
}

/// Limit, and what is left of it.
async fn left<'k>(handle: &Handle, key: impl Into<RuleKey<'k>>, tier: &'k str) -> (u64, u64) {
    let decision = handle.peek("r", named(key, tier), 0).await.unwrap();
    (decision.limit(), decision.remaining())
}

#[tokio::test]
async fn each_tier_has_its_own_quota() {
    for layer in both(&keyed(rule())) {
        for user in ["alice", "bob"] {
            assert_eq!(passes(&layer, user, "").await, 2);
            assert_eq!(passes(&layer, user, "pro").await, 5);
            assert_eq!(passes(&layer, user, "partner").await, 9);
        }
        // What is told is the tier's.
        let refused = answer(&layer, request("alice", "pro")).await;
        let told = refused.extensions().get::<Rejection>().unwrap().rules()[0].decision().unwrap();
        assert_eq!((told.limit(), told.remaining()), (5, 0));
    }
}

#[tokio::test]
async fn without_a_key_all_callers_of_a_tier_count_together() {
    for layer in both(&rule()) {
        assert_eq!(ask(&layer, "alice", "pro").await, 200);
        assert_eq!(passes(&layer, "bob", "pro").await, 4);
        assert_eq!(passes(&layer, "carol", "partner").await, 9);
        assert_eq!(passes(&layer, "alice", "").await, 2);
        let handle = layer.handle();
        assert_eq!(left(&handle, (), "pro").await, (5, 0));
        assert!(handle.reset("r", RuleKey::from(()).tier("pro")).await.unwrap());
        assert_eq!(left(&handle, (), "pro").await, (5, 5));
        assert_eq!(left(&handle, (), "partner").await, (9, 0));
        assert_eq!(left(&handle, (), "").await, (2, 0));
    }
}

#[tokio::test]
async fn a_change_of_tier_starts_that_tiers_bucket_and_keeps_the_old_debt() {
    for layer in both(&keyed(rule())) {
        assert_eq!(passes(&layer, "alice", "").await, 2);
        assert_eq!(ask(&layer, "alice", "pro").await, 200);
        assert_eq!(left(&layer.handle(), "alice", "pro").await, (5, 4));
        // Back again: still spent, and so is what the tier has spent.
        assert_eq!(ask(&layer, "alice", "").await, 429);
        assert_eq!(passes(&layer, "alice", "pro").await, 4);
    }
}

#[tokio::test]
async fn requests_without_a_key_that_count_together_do_so_by_tier() {
    let shared = rule().key(key::header("x-api-key")).missing(Missing::Shared);
    for layer in both(&shared) {
        assert_eq!(passes(&layer, "alice", "").await, 2);
        assert_eq!(passes(&layer, "bob", "pro").await, 5);
        let handle = layer.handle();
        assert_eq!(left(&handle, RuleKey::missing(), "").await, (2, 0));
        assert_eq!(left(&handle, RuleKey::missing(), "pro").await, (5, 0));
        assert_eq!(left(&handle, RuleKey::missing(), "partner").await, (9, 9));
    }
}

#[tokio::test]
async fn an_unknown_tier_counts_under_the_rules_own_quota_and_is_told_once() {
    for rule in [rule(), keyed(rule()), keyed(rule()).backend(ScriptedBackend::new())] {
        let seen = Recorder::new();
        let layer = builder().rule(rule).observer(seen.clone()).build().unwrap();
        for tier in ["", "pro", "partner"] {
            ask(&layer, "alice", tier).await;
        }
        assert_eq!(seen.faults(), [], "all of these there are");
        for tier in ["gold", "Pro", "pro ", "gold"] {
            ask(&layer, "alice", tier).await;
        }
        assert_eq!(seen.faults(), [Fault::Tier]);
        let told = seen.take().into_iter().find_map(|event| match event {
            Event::Fault { rule, .. } => Some(rule),
            _ => None,
        });
        assert_eq!(told, Some(Some("r".to_owned())));
    }
    let layer = layer(keyed(rule()));
    assert_eq!(ask(&layer, "alice", "gold").await, 200);
    assert_eq!(ask(&layer, "alice", "").await, 200);
    for tier in ["gold", "silver", ""] {
        assert_eq!(ask(&layer, "alice", tier).await, 429, "{tier}");
    }
}

#[tokio::test]
async fn relaxed_multiplies_the_quota_of_each_tier() {
    let key = key::header("x-api-key").or(key::header("x-user-id").relaxed(3));
    for layer in both(&rule().key(key.or(key::global().relaxed(3)))) {
        let by = |header: &'static str, tier: &'static str| {
            let mut request = request("", tier);
            request.headers_mut().insert(header, "a".parse().unwrap());
            request
        };
        let handle = layer.handle();
        for (tier, limit) in [("", 2), ("pro", 5), ("partner", 9)] {
            for (nth, header, factor) in [(0, "x-api-key", 1), (1, "x-user-id", 3), (2, "x-z", 3)] {
                let key = || match nth {
                    2 => RuleKey::from(()).alternative(2),
                    nth => RuleKey::from("a").alternative(nth),
                };
                assert_eq!(left(&handle, key(), tier).await, (limit * factor, limit * factor));
                assert_eq!(answer(&layer, by(header, tier)).await.status(), 200);
                assert_eq!(left(&handle, key(), tier).await, (limit * factor, limit * factor - 1));
            }
        }
    }
}

#[tokio::test]
async fn every_algorithm_counts_the_quotas_of_tiers() {
    let minute = Duration::from_secs(60);
    for own in [
        Algorithm::from(TokenBucket::per_minute(2)),
        FixedWindow::per_minute(2).into(),
        FixedWindow::per_minute(2).aligned().into(),
    ] {
        let rule = keyed(tiered(own, Quota::per_minute(5), "9/min".parse::<Quota>().unwrap()));
        for rule in [rule.clone(), rule.backend(Arc::new(Local::new()))] {
            let clock = ManualClock::new();
            let layer = RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().unwrap();
            for _ in 0..3 {
                assert_eq!(passes(&layer, "alice", "").await, 2, "{own:?}");
                assert_eq!(passes(&layer, "alice", "pro").await, 5, "{own:?}");
                assert_eq!(passes(&layer, "alice", "partner").await, 9, "{own:?}");
                clock.advance(minute);
            }
        }
    }
    // A leaky bucket has no burst in any tier.
    let clock = ManualClock::new();
    let rule = keyed(tiered(
        LeakyBucket::per_second(1),
        Quota::per_second(10),
        LeakyBucket::per_second(100),
    ));
    let layer = RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().unwrap();
    for tier in ["", "pro", "partner"] {
        assert_eq!(passes(&layer, "alice", tier).await, 1);
    }
    clock.advance(MILLI * 100);
    assert_eq!(passes(&layer, "alice", "").await, 0);
    assert_eq!(passes(&layer, "alice", "pro").await, 1);
}

/// What a cost function asks for above one tier's limit may fit another's.
#[tokio::test]
async fn a_cost_above_a_tiers_limit_is_never() {
    for layer in both(&keyed(rule()).cost_fn(|_| 6)) {
        for (tier, limit) in [("", 2), ("pro", 5)] {
            let refused = answer(&layer, request("alice", tier)).await;
            assert_eq!(refused.status(), 429);
            assert!(!refused.headers().contains_key("retry-after"));
            let rejection = refused.extensions().get::<Rejection>().unwrap();
            assert_eq!(rejection.reason().as_str(), "never");
            let told = rejection.rules()[0].decision().unwrap();
            assert!(told.is_never());
            assert_eq!((told.limit(), told.remaining()), (limit, limit));
        }
        assert_eq!(ask(&layer, "alice", "partner").await, 200);
        assert_eq!(left(&layer.handle(), "alice", "partner").await, (9, 3));
    }
}

#[tokio::test]
async fn several_rules_with_tiers_are_all_charged_or_none() {
    let other = || {
        Rule::new("all", FixedWindow::per_day(3))
            .tier("pro", Quota::per_day(4))
            .tiers(|head| head.extension::<Tier>().map(|tier| tier.0).filter(|tier| *tier == "pro"))
    };
    for elsewhere in [false, true] {
        let rule = match elsewhere {
            true => keyed(rule()).backend(Arc::new(Local::new())),
            false => keyed(rule()),
        };
        let layer = builder().rule(other()).rule(rule).build().unwrap();
        assert_eq!(passes(&layer, "alice", "pro").await, 4);
        assert_eq!(left(&layer.handle(), "alice", "pro").await, (5, 1));
        assert_eq!(passes(&layer, "alice", "").await, 2);
        let all = layer.handle().peek("all", (), 0).await.unwrap();
        assert_eq!((all.limit(), all.remaining()), (3, 1));
    }
}

// ---------------------------------------------------------------------------------------------
// Other backends.

#[tokio::test]
async fn a_backend_elsewhere_is_told_the_quotas_and_by_key_and_index_which_one() {
    let backend = ScriptedBackend::new();
    let key = key::header("x-user-id").or(key::global().relaxed(10));
    let layer = layer(rule().key(key).backend(backend.clone()));
    let spec = &backend.specs()[0];
    assert!(spec.is_keyed());
    assert_eq!(spec.quotas(), [2, 20, 5, 50, 9, 90].map(Quota::per_day));
    assert_eq!(spec.algorithm().quota(), Quota::per_day(2));

    let nobody = |tier| {
        let mut request = request("", tier);
        request.headers_mut().clear();
        request
    };
    for (tier, quotas) in [("", [0, 1]), ("pro", [2, 3]), ("partner", [4, 5]), ("gold", [0, 1])] {
        ask(&layer, "alice", tier).await;
        answer(&layer, nobody(tier)).await;
        let seen = &backend.charges()[backend.charges().len() - 2..];
        assert_eq!([seen[0].quota, seen[1].quota], quotas, "{tier}");
    }
    // An unknown tier is none; all else are different keys.
    let mut keys: Vec<_> = backend.charges().into_iter().map(|charge| charge.key).collect();
    assert_eq!(keys[6..], keys[..2]);
    keys.truncate(6);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 6);

    // A handle names the same ones.
    let handle = layer.handle();
    let _ = handle.peek("r", RuleKey::from("alice").tier("pro"), 1).await.unwrap();
    assert!(handle.reset("r", RuleKey::from(()).alternative(1).tier("partner")).await.unwrap());
    assert!(!handle.reset("r", RuleKey::from("bob").tier("pro")).await.unwrap());
    let (peeked, reset) = (&backend.peeks()[0], &backend.resets()[0]);
    let charges = backend.charges();
    assert_eq!((&peeked.key, peeked.quota), (&charges[2].key, 2));
    assert_eq!((&reset.key, reset.quota), (&charges[5].key, 5));
}

/// The key's bytes of a request, as a backend elsewhere gets them.
async fn bytes_of(rule: Rule, request: Request<Body>) -> Vec<u8> {
    let backend = ScriptedBackend::new();
    answer(&layer(rule.backend(backend.clone())), request).await;
    backend.charges()[0].key.clone()
}

#[tokio::test]
async fn who_is_in_no_tier_has_the_key_of_a_rule_without_tiers() {
    let plain = || Rule::new("r", FixedWindow::per_day(2));
    let bytes = bytes_of(keyed(plain()), request("alice", "pro")).await;
    assert_eq!(bytes, *b"\0\0\0\0\0\0\0\x05alice\0");
    assert_eq!(bytes_of(keyed(rule()), request("alice", "")).await, bytes);
    let pro = bytes_of(keyed(rule()), request("alice", "pro")).await;
    assert_eq!(pro, [&bytes[..], b"pro\x03\xfe"].concat());
    // Without a key there is nothing but the tier.
    assert_eq!(bytes_of(plain(), request("alice", "pro")).await, b"");
    assert_eq!(bytes_of(rule(), request("alice", "")).await, b"");
    assert_eq!(bytes_of(rule(), request("alice", "pro")).await, b"pro\x03\xfe");
}

#[test]
fn a_rule_without_a_key_is_told_to_have_one_elsewhere_where_it_has_tiers() {
    let backend = ScriptedBackend::new();
    let plain = Rule::new("plain", FixedWindow::per_day(2));
    let _ = builder().backend(backend.clone()).rule(plain).rule(rule()).build().unwrap();
    let keyed: Vec<_> = backend.specs().iter().map(|spec| spec.is_keyed()).collect();
    assert_eq!(keyed, [false, true]);
}

// ---------------------------------------------------------------------------------------------
// Changes.

#[tokio::test]
async fn limits_of_tiers_change_each_for_itself() {
    for layer in both(&keyed(rule())) {
        let handle = layer.handle();
        for tier in ["", "pro", "partner"] {
            ask(&layer, "alice", tier).await;
        }
        let all = async || {
            let mut all = Vec::new();
            for tier in ["", "pro", "partner"] {
                all.push(left(&handle, "alice", tier).await);
            }
            all
        };
        assert_eq!(all().await, [(2, 1), (5, 4), (9, 8)]);
        handle.set_limit("r", Quota::per_day(20)).unwrap();
        assert_eq!(all().await, [(20, 19), (5, 4), (9, 8)]);
        handle.set_tier_limit("r", "partner", FixedWindow::per_day(90)).unwrap();
        assert_eq!(all().await, [(20, 19), (5, 4), (90, 89)]);
        handle.set_tier_limit("r", "pro", Quota::per_day(50)).unwrap();
        assert_eq!(all().await, [(20, 19), (50, 49), (90, 89)]);
        // One after the other they do not undo each other.
        handle.set_limit("r", Quota::per_day(3)).unwrap();
        assert_eq!(all().await, [(3, 2), (50, 49), (90, 89)]);
    }
}

#[tokio::test]
async fn relaxed_multiplies_the_changed_quota_of_a_tier() {
    let key = key::header("x-api-key").or(key::global().relaxed(10));
    for layer in both(&rule().key(key)) {
        let handle = layer.handle();
        handle.set_tier_limit("r", "pro", Quota::per_day(6)).unwrap();
        let limit = async |key: RuleKey<'static>, tier| left(&handle, key, tier).await.0;
        for (tier, own, relaxed) in [("", 2, 20), ("pro", 6, 60), ("partner", 9, 90)] {
            assert_eq!(limit("a".into(), tier).await, own);
            assert_eq!(limit(RuleKey::from(()).alternative(1), tier).await, relaxed);
        }
    }
}

#[test]
fn a_backend_elsewhere_is_told_of_changed_tiers() {
    let backend = ScriptedBackend::new();
    let layer = layer(keyed(rule()).backend(backend.clone()));
    let handle = layer.handle();
    handle.set_tier_limit("r", "pro", Quota::per_day(6)).unwrap();
    handle.set_limit("r", Quota::per_day(3)).unwrap();
    let specs = backend.specs();
    assert_eq!(specs[1].quotas(), [2, 6, 9].map(Quota::per_day));
    assert_eq!(specs[1].algorithm().quota(), Quota::per_day(2));
    assert_eq!(specs[2].quotas(), [3, 6, 9].map(Quota::per_day));
    assert_eq!(specs[2].algorithm().quota(), Quota::per_day(3));
    assert!(specs[1..].iter().all(|spec| spec.replaces() == Some(LimiterId(0))));
}

/// What a backend refuses is not remembered as its limit.
#[tokio::test]
async fn a_change_that_is_refused_changes_nothing() {
    for layer in both(&keyed(rule())) {
        let handle = layer.handle();
        let error = handle.set_tier_limit("r", "pro", Quota::per_day(6).burst(7)).unwrap_err();
        let HandleError::Config(error) = error else { panic!("{error:?}") };
        assert_eq!((error.rule(), error.tier(), error.field()), (Some("r"), Some("pro"), "burst"));
        handle.set_limit("r", Quota::per_day(3)).unwrap();
        assert_eq!(left(&handle, "alice", "").await, (3, 3));
        assert_eq!(left(&handle, "alice", "pro").await, (5, 5));
    }
}

/// A tier that is left alone is not touched when another changes, whatever its rate rounds to.
#[tokio::test]
async fn who_changes_one_tier_does_not_round_another() {
    let odd = Quota::new(999_983, Duration::from_nanos(1_000_000_007)).burst(10);
    let clock = ManualClock::new();
    let rule = keyed(tiered(Quota::per_second(2), odd, Quota::per_second(9)));
    let touched = RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().unwrap();
    let handle = touched.handle();
    for _ in 0..10 {
        ask(&touched, "alice", "pro").await;
    }
    let pro = || RuleKey::from("alice").tier("pro");
    let before = handle.peek("r", pro(), 1).await.unwrap();
    for n in 1..100 {
        handle.set_limit("r", Quota::per_second(n)).unwrap();
        handle.set_tier_limit("r", "partner", Quota::per_second(n)).unwrap();
    }
    assert_eq!(handle.peek("r", pro(), 1).await.unwrap(), before);
}

// ---------------------------------------------------------------------------------------------
// Named to a handle.

#[tokio::test]
async fn a_tier_named_to_a_handle_has_a_count_of_its_own() {
    for layer in both(&keyed(rule())) {
        let handle = layer.handle();
        for tier in ["", "pro", "pro", "partner", "partner", "partner"] {
            ask(&layer, "alice", tier).await;
        }
        assert!(handle.reset("r", RuleKey::from("alice").tier("pro")).await.unwrap());
        assert_eq!(left(&handle, "alice", "").await, (2, 1));
        assert_eq!(left(&handle, "alice", "pro").await, (5, 5));
        assert_eq!(left(&handle, "alice", "partner").await, (9, 6));
        assert!(!handle.reset("r", RuleKey::from("bob").tier("pro")).await.unwrap());
        assert!(handle.reset("r", "alice").await.unwrap());
        assert_eq!(left(&handle, "alice", "partner").await, (9, 6));
    }
}

#[tokio::test]
async fn a_tier_that_a_rule_does_not_have_is_an_error_that_names_those_it_has() {
    let plain = Rule::new("plain", FixedWindow::per_day(2));
    let layer = builder().rule(keyed(rule())).rule(plain).build().unwrap();
    let handle = layer.handle();
    let text = "rule \"r\" has no tier \"gold\"; it has pro, partner";
    let gold = || RuleKey::from("alice").tier("gold");
    let errors = [
        handle.peek("r", gold(), 1).await.unwrap_err(),
        handle.reset("r", gold()).await.unwrap_err(),
        handle.set_tier_limit("r", "gold", Quota::per_day(1)).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.to_string(), text);
        let HandleError::NoSuchTier { rule, tier, tiers } = error else { panic!("{error:?}") };
        assert_eq!((&*rule, &*tier, tiers), ("r", "gold", vec!["pro".into(), "partner".into()]));
    }
    let text = "rule \"plain\" has no tier \"pro\", nor any other";
    let pro = || RuleKey::from(()).tier("pro");
    assert_eq!(handle.peek("plain", pro(), 1).await.unwrap_err().to_string(), text);
    let error = handle.set_tier_limit("plain", "pro", Quota::per_day(1)).unwrap_err();
    assert_eq!(error.to_string(), text);
    let error = handle.set_tier_limit("gone", "pro", Quota::per_day(1)).unwrap_err();
    assert!(matches!(error, HandleError::NoSuchRule(name) if name == "gone"));
    // A key that is not the rule's is said first.
    let error = handle.peek("r", pro(), 1).await.unwrap_err();
    assert!(matches!(error, HandleError::WrongKey { .. }), "{error}");
}

// ---------------------------------------------------------------------------------------------
// Waiting.

/// One rule under a queue.
fn queued(rule: Rule, depth: u64) -> (RateLimitLayer, Tasks<&'static str, u16>) {
    let clock = Steps::default();
    let builder = RateLimitLayer::builder().rule(rule).clock(clock.clone());
    let layer = builder.rejection(RejectionPolicy::queue(MILLI * 1_000, depth)).build().unwrap();
    (layer, Tasks::new(clock))
}

#[test]
fn who_waits_in_one_tier_does_not_hold_up_another() {
    for rule in [keyed, |rule| rule] {
        let rule = rule(tiered(
            Quota::per_second(2).burst(1),
            Quota::per_second(10).burst(1),
            Quota::per_second(9),
        ));
        let (layer, mut tasks) = queued(rule, 10);
        let ask = |tier: &'static str| {
            let layer = layer.clone();
            async move { ask(&layer, "alice", tier).await }
        };
        for (name, tier) in [("a", ""), ("b", ""), ("c", "pro"), ("d", "pro"), ("e", "partner")] {
            tasks.start(name, ask(tier));
        }
        assert_eq!(layer.handle().waiting("r").unwrap(), 2);
        tasks.to(MILLI * 600);
        let at = |n| MILLI * n;
        assert_eq!(
            tasks.ended(),
            [
                ("a", at(0), 200),
                ("c", at(0), 200),
                ("e", at(0), 200),
                ("d", at(100), 200),
                ("b", at(500), 200)
            ]
        );
    }
}

#[test]
fn who_waits_in_one_tier_elsewhere_does_not_hold_up_another() {
    let denied = tower_sluice::Decision::denied(1, 0, MILLI * 50, MILLI * 50);
    for rule in [keyed, |rule| rule] {
        let backend = ScriptedBackend::decisions([denied]);
        let (layer, mut tasks) = queued(rule(self::rule()).backend(backend.clone()), 10);
        let ask = |tier: &'static str| {
            let layer = layer.clone();
            async move { ask(&layer, "alice", tier).await }
        };
        tasks.start("a", ask("pro"));
        tasks.start("b", ask("pro"));
        tasks.start("c", ask("partner"));
        tasks.start("d", ask(""));
        tasks.to(MILLI * 100);
        let (now, later) = (Duration::ZERO, MILLI * 50);
        assert_eq!(
            tasks.ended(),
            [("c", now, 200), ("d", now, 200), ("a", later, 200), ("b", later, 200)]
        );
    }
}

/// Without a key too there is more than one room, and none may take all the places.
#[test]
fn one_tier_holds_at_most_half_of_the_places() {
    let slow = Quota::per_second(5).burst(1);
    let (layer, mut tasks) = queued(tiered(slow, slow, slow), 4);
    let ask = |tier: &'static str| {
        let layer = layer.clone();
        async move { ask(&layer, "alice", tier).await }
    };
    for name in ["1", "2", "3", "4"] {
        tasks.start(name, ask("pro"));
    }
    for name in ["5", "6"] {
        tasks.start(name, ask("partner"));
    }
    assert_eq!(layer.handle().waiting("r").unwrap(), 3);
    let now = Duration::ZERO;
    assert_eq!(tasks.ended(), [("1", now, 200), ("4", now, 429), ("5", now, 200)]);
}

#[test]
fn those_who_wait_in_a_tier_go_by_its_changed_limit() {
    let slow = Quota::per_second(2).burst(1);
    for rule in [keyed, |rule| rule] {
        let (layer, mut tasks) = queued(rule(tiered(slow, slow, slow)), 10);
        let handle = layer.handle();
        let ask = |tier: &'static str| {
            let layer = layer.clone();
            async move { ask(&layer, "alice", tier).await }
        };
        for (name, tier) in [("a", "pro"), ("b", "pro"), ("c", "partner"), ("d", "partner")] {
            tasks.start(name, ask(tier));
        }
        tasks.to(MILLI * 100);
        handle.set_tier_limit("r", "pro", Quota::per_second(10).burst(1)).unwrap();
        handle.set_limit("r", Quota::per_second(100).burst(1)).unwrap();
        tasks.to(MILLI * 700);
        // 100 ms of 500 had gone, so four fifths of a permit were owed: 80 ms at ten a second.
        assert_eq!(tasks.ended()[2..], [("b", MILLI * 180, 200), ("d", MILLI * 500, 200)]);
    }
}
