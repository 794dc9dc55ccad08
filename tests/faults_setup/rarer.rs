//! Where the fault hides behind a matcher, an exemption or a backend elsewhere.

use std::time::Duration;

use axum::Router;
use tower::{Layer, ServiceExt};
use tower_sluice::{
    FixedWindow, Handle, LeakyBucket, ManualClock, Missing, RateLimitLayer, RateLimitLayerBuilder,
    Rule, TokenBucket, event::Fault, key, matcher, testing::ScriptedBackend,
};

use crate::{
    Record, Watched, alone, by_user, from_peer, of_rule, request, routes, send, send_many, wide,
};

/// Statuses of three such requests.
async fn thrice(app: &Router, uri: &str) -> [u16; 3] {
    [send(app, request(uri)).await, send(app, request(uri)).await, send(app, request(uri)).await]
}

fn two() -> Rule {
    Rule::new("lan", FixedWindow::per_day(2))
}

fn builder() -> RateLimitLayerBuilder {
    RateLimitLayer::builder()
}

#[tokio::test]
async fn a_network_matcher_without_a_peer_address_limits_and_says_so() {
    let lan = || matcher::network(["10.0.0.0/8"]);
    for matcher in [lan(), lan().not(), lan().and(matcher::path("/a")), lan().or(lan().not())] {
        let watched = Watched::of(two().matching(matcher.clone()));
        assert_eq!(thrice(&watched.inside(), "/a").await, [200, 200, 429], "{matcher:?}");
        assert_eq!(watched.raised(), of_rule(Fault::Peer, "lan"), "{matcher:?}");
    }
    let right = Watched::of(two().matching(lan()));
    send_many(&right.inside(), 5, |n| from_peer("/a", [192, 0, 2, n as u8])).await;
    assert_eq!(send(&right.inside(), from_peer("/a", [10, 0, 0, 1])).await, 200);
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn a_network_without_a_peer_address_exempts_nobody_and_says_so() {
    let lan = || matcher::network(["10.0.0.0/8"]);
    for exempt in [lan(), lan().not(), lan().or(lan().not())] {
        // The rule itself does not ask for an address, so that no rule is named.
        let watched = Watched::new(builder().rule(two()).exempt_matching(exempt.clone()));
        assert_eq!(thrice(&watched.inside(), "/a").await, [200, 200, 429], "{exempt:?}");
        assert_eq!(watched.raised(), alone(Fault::Peer), "{exempt:?}");
        // One that does is.
        let by_address = two().key(key::client_ip());
        let watched = Watched::new(builder().rule(by_address).exempt_matching(exempt.clone()));
        assert_eq!(thrice(&watched.inside(), "/a").await, [200, 200, 429], "{exempt:?}");
        assert_eq!(watched.raised(), of_rule(Fault::Peer, "lan"), "{exempt:?}");
    }
    let right = Watched::new(builder().rule(two()).exempt_matching(lan()));
    send_many(&right.inside(), 5, |_| from_peer("/a", [10, 0, 0, 1])).await;
    assert_eq!(send(&right.inside(), from_peer("/a", [192, 0, 2, 1])).await, 200);
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn sl_keys_beside_a_rule_counted_elsewhere() {
    let user = || {
        Rule::new("user", FixedWindow::per_minute(5))
            .key(key::header("x-user-id"))
            .missing(Missing::Skip)
            .max_keys(4)
    };
    let users = |n: usize| by_user(&format!("u{n}"));
    let beside = |rule: Rule| {
        let fleet = Rule::new("fleet", TokenBucket::per_second(10));
        builder().rule(rule).rule(fleet.backend(ScriptedBackend::new()))
    };
    let wrong = Watched::new(beside(user()));
    send_many(&wrong.inside(), 500, users).await;
    assert_eq!(wrong.raised(), of_rule(Fault::Keys, "user"));
    let handle: Handle = wrong.layer.handle();
    assert!(handle.tracked_keys("user").unwrap().unwrap() <= 4);

    let silenced = Watched::new(beside(user()).silence(Fault::Keys));
    send_many(&silenced.inside(), 500, users).await;
    assert_eq!(silenced.raised(), []);

    let right = Watched::new(beside(user().max_keys(5_000)));
    send_many(&right.inside(), 500, users).await;
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn sl_route_for_a_hidden_pattern_also_where_the_verdict_comes_late() {
    const MILLI: Duration = Duration::from_millis(1);
    let late = || {
        let (record, clock) = (Record::default(), ManualClock::new());
        let fleet = ScriptedBackend::new().delay(clock.clone(), MILLI);
        let layer = builder()
            .rule(wide("route").key(key::route()))
            .rule(Rule::new("fleet", TokenBucket::per_second(10)).backend(fleet))
            .observer(record.clone())
            .clock(clock.clone())
            .build()
            .unwrap();
        Watched { layer, record, clock }
    };
    let send_late = async |watched: &Watched, app: &Router, uri: &str| {
        let mut asking = std::pin::pin!(send(app, request(uri)));
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(asking.as_mut().poll(cx)));
        assert!(first.await.is_pending(), "the verdict comes late");
        watched.clock.advance(MILLI);
        asking.await
    };
    let wrong = late();
    let hidden = Router::new().nest_service("/in", routes()).layer(wrong.layer.clone());
    assert_eq!(send_late(&wrong, &hidden, "/in/unknown").await, 404);
    assert_eq!(wrong.raised(), [], "nothing there is nothing hidden");
    for _ in 0..3 {
        assert_eq!(send_late(&wrong, &hidden, "/in/a").await, 200);
    }
    assert_eq!(wrong.raised(), of_rule(Fault::Route, "route"));

    let right = late();
    let nested = Router::new().nest("/in", routes()).layer(right.layer.clone());
    for (uri, status) in [("/in/a", 200), ("/in/unknown", 404)] {
        assert_eq!(send_late(&right, &nested, uri).await, status);
    }
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn exempt_requests_do_not_use_up_the_first_thousand() {
    let watched = Watched::new(
        builder()
            .rule(wide("address").key(key::client_ip()))
            .exempt(|head| head.path() == "/healthz"),
    );
    let app = watched.inside();
    send_many(&app, 1_500, |_| request("/healthz")).await;
    assert_eq!(watched.raised(), [], "nobody asks for the address of an exempt request");
    send_many(&app, 5, |_| request("/a")).await;
    assert_eq!(watched.raised(), of_rule(Fault::Peer, "address"));

    // Those that are not exempt do.
    let late = Watched::of(wide("address").key(key::client_ip()));
    send_many(&late.inside(), 1_000, |n| from_peer("/a", [192, 0, 2, n as u8])).await;
    send_many(&late.inside(), 5, |_| request("/a")).await;
    assert_eq!(late.raised(), []);
}

#[tokio::test]
async fn sl_route_where_an_exemption_by_path_stands_around_the_router() {
    let exempt = || matcher::path("/healthz");
    let app = || routes().route("/healthz", axum::routing::get(|| async {}));
    let wrong = Watched::new(builder().rule(two()).exempt_matching(exempt()));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let answer = wrong.layer.layer(app()).oneshot(request("/healthz")).await.unwrap();
        statuses.push(answer.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429], "who cannot tell exempts nobody");
    assert_eq!(wrong.raised(), alone(Fault::Route));

    let right = Watched::new(builder().rule(two()).exempt_matching(exempt()));
    let inside = app().layer(right.layer.clone());
    assert_eq!(thrice(&inside, "/healthz").await, [200; 3]);
    assert_eq!(thrice(&inside, "/a").await, [200, 200, 429]);
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn sl_leaky_whatever_keeps_the_bucket() {
    let clock = ManualClock::new();
    let leaky = LeakyBucket::per_second(20);
    let shared = leaky.limiter().name("paced").clock(clock.clone()).build().unwrap();
    let keyed = leaky.keyed_limiter().name("paced").clock(clock.clone()).build().unwrap();
    let elsewhere = ScriptedBackend::new();
    for rule in [
        Rule::on(shared),
        Rule::on(keyed).key(key::header("x-user-id")).missing(Missing::Shared),
        Rule::new("paced", leaky).backend(elsewhere),
        // The fault is in the set-up, whether or not the rule applies to the first requests.
        Rule::new("paced", leaky).when(|_| false),
    ] {
        let record = Record::default();
        let builder = builder().rule(wide("first")).rule(rule).rule(Rule::new("last", leaky));
        let layer = builder.observer(record.clone()).clock(clock.clone()).build().unwrap();
        let app = routes().layer(layer.clone());
        for _ in 0..3 {
            send(&app, request("/a")).await;
        }
        assert_eq!(*record.0.lock().unwrap(), of_rule(Fault::Leaky, "paced"));
    }
}

#[tokio::test]
async fn sl_tier_where_a_tier_is_named_that_the_rule_does_not_have() {
    let user = || {
        wide("user")
            .tier("pro", TokenBucket::per_second(1_000_000))
            .tiers(|head| head.header_str("x-user-id"))
    };
    let send_as = async |watched: &Watched, tier: &str| {
        send_many(&watched.inside(), 5, |_| by_user(tier)).await;
    };
    let wrong = Watched::of(user());
    send_as(&wrong, "pro").await;
    assert_eq!(wrong.raised(), [], "it is one of its tiers");
    send_as(&wrong, "gold").await;
    send_as(&wrong, "silver").await;
    assert_eq!(wrong.raised(), of_rule(Fault::Tier, "user"));

    // Once for each rule.
    let other = wide("other").tier("gold", TokenBucket::per_second(1_000_000));
    let other = other.tiers(|head| head.header_str("x-user-id"));
    let two = Watched::new(builder().rule(user()).rule(other));
    send_as(&two, "silver").await;
    let both = [of_rule(Fault::Tier, "user"), of_rule(Fault::Tier, "other")].concat();
    assert_eq!(two.raised(), both);

    let silenced = Watched::silenced(user(), Fault::Tier);
    send_as(&silenced, "gold").await;
    assert_eq!(silenced.raised(), []);

    // Who is in no tier is in none that is unknown; nor does a tier matter where a rule does not apply.
    let right = Watched::of(user().when(|head| head.path() == "/b"));
    send_many(&right.inside(), 5, |_| request("/b")).await;
    send_as(&right, "gold").await;
    assert_eq!(right.raised(), []);

    // Nobody in a tier: the layer stands outside of what sets it. One who is, and all is well.
    let outside = || user().tiers(|head| head.header_str("x-plan"));
    let nobody = Watched::of(outside());
    send_many(&nobody.inside(), 999, |_| by_user("alice")).await;
    assert_eq!(nobody.raised(), []);
    send_many(&nobody.inside(), 2, |_| by_user("alice")).await;
    assert_eq!(nobody.raised(), of_rule(Fault::Tier, "user"));
    let somebody = Watched::of(outside());
    let pro = |_| {
        let mut pro = by_user("bob");
        pro.headers_mut().insert("x-plan", "pro".parse().unwrap());
        pro
    };
    send_many(&somebody.inside(), 1, pro).await;
    send_many(&somebody.inside(), 1_100, |_| by_user("alice")).await;
    assert_eq!(somebody.raised(), []);

    // After the first thousand requests too, and where only the verdict is wanted.
    let late = Watched::of(user());
    send_many(&late.inside(), 1_100, |_| by_user("pro")).await;
    send_as(&late, "gold").await;
    assert_eq!(late.raised(), of_rule(Fault::Tier, "user"));
}
