//! Set-up faults: each raised once, with its rule where it concerns one, silenced where asked, and not
//! raised in a right set-up.

mod clocks;
mod rarer;
mod upgrades;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
    routing::get,
};
use tower::{Layer, ServiceExt};
use tower_sluice::{
    Decline, FixedWindow, Handle, LeakyBucket, ManualClock, Missing, Observer, RateLimitLayer,
    RateLimitLayerBuilder, RejectionPolicy, Rule, TokenBucket,
    event::{Fault, SetupFault},
    key, matcher,
};

type Raised = Vec<(Fault, Option<String>)>;

#[derive(Clone, Default)]
struct Record(Arc<Mutex<Raised>>);

impl Observer for Record {
    fn fault(&self, fault: &SetupFault) {
        let rule = fault.rule().map(str::to_owned);
        self.0.lock().unwrap().push((fault.fault(), rule));
    }
}

/// What a layer raises while it serves.
struct Watched {
    layer: RateLimitLayer,
    record: Record,
    clock: ManualClock,
}

impl Watched {
    fn new(builder: RateLimitLayerBuilder) -> Self {
        let (record, clock) = (Record::default(), ManualClock::new());
        let layer = builder.observer(record.clone()).clock(clock.clone()).build().unwrap();
        Self { layer, record, clock }
    }

    fn of(rule: Rule) -> Self {
        Self::new(RateLimitLayer::builder().rule(rule))
    }

    /// The same with `fault` silenced.
    fn silenced(rule: Rule, fault: Fault) -> Self {
        Self::new(RateLimitLayer::builder().rule(rule).silence(fault))
    }

    /// A router with the routes `/a`, `/b` and `/users/{id}`, inside the layer.
    fn inside(&self) -> Router {
        routes().layer(self.layer.clone())
    }

    fn raised(&self) -> Raised {
        self.record.0.lock().unwrap().clone()
    }
}

fn routes() -> Router {
    Router::new()
        .route("/a", get(|| async {}))
        .route("/b", get(|| async {}))
        .route("/users/{id}", get(|| async {}))
}

/// A rule that refuses nobody here.
fn wide(name: &str) -> Rule {
    Rule::new(name, TokenBucket::per_second(1_000_000))
}

fn request(uri: &str) -> Request {
    Request::get(uri).body(Body::empty()).unwrap()
}

fn from_peer(uri: &str, peer: [u8; 4]) -> Request {
    let mut request = request(uri);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 1))));
    request
}

fn by_user(user: &str) -> Request {
    let mut request = request("/a");
    request.headers_mut().insert("x-user-id", user.parse().unwrap());
    request
}

async fn send(app: &Router, request: Request) -> u16 {
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

async fn send_many(app: &Router, n: usize, request: impl Fn(usize) -> Request) {
    for i in 0..n {
        send(app, request(i)).await;
    }
}

/// The fault, of no rule in particular.
fn alone(fault: Fault) -> Raised {
    vec![(fault, None)]
}

/// The fault, of this rule.
fn of_rule(fault: Fault, rule: &str) -> Raised {
    vec![(fault, Some(rule.to_owned()))]
}

#[tokio::test]
async fn sl_peer_where_no_peer_address_is_known() {
    let rule = || wide("address").key(key::client_ip());
    let wrong = Watched::of(rule());
    send_many(&wrong.inside(), 5, |_| request("/a")).await;
    assert_eq!(wrong.raised(), of_rule(Fault::Peer, "address"));

    let silenced = Watched::silenced(rule(), Fault::Peer);
    send_many(&silenced.inside(), 5, |_| request("/a")).await;
    assert_eq!(silenced.raised(), []);

    let right = Watched::of(rule());
    send_many(&right.inside(), 5, |n| from_peer("/a", [192, 0, 2, n as u8])).await;
    assert_eq!(right.raised(), []);

    // Nobody asks for an address: none is missed.
    let other = Watched::of(wide("all"));
    send_many(&other.inside(), 5, |_| request("/a")).await;
    assert_eq!(other.raised(), []);

    // An address from elsewhere does.
    let from = |_: &tower_sluice::Head<'_>| Some([192, 0, 2, 1].into());
    let own = Watched::of(wide("address").key(key::client_ip().peer_from(from)));
    send_many(&own.inside(), 5, |_| request("/a")).await;
    assert_eq!(own.raised(), [], "the peer address comes from elsewhere");
}

#[tokio::test]
async fn sl_proxy_where_a_forwarding_header_comes_and_none_is_configured() {
    for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let forwarded = |n: usize| {
            let mut request = from_peer("/a", [10, 0, 0, 1]);
            let value = format!("for=192.0.2.{n}").parse().unwrap();
            request.headers_mut().insert(header, value);
            request
        };
        let rule = || wide("address").key(key::client_ip());
        let wrong = Watched::of(rule());
        send_many(&wrong.inside(), 5, forwarded).await;
        assert_eq!(wrong.raised(), of_rule(Fault::Proxy, "address"), "{header}");

        let silenced = Watched::silenced(rule(), Fault::Proxy);
        send_many(&silenced.inside(), 5, forwarded).await;
        assert_eq!(silenced.raised(), []);

        let plain = Watched::of(rule());
        send_many(&plain.inside(), 5, |_| from_peer("/a", [192, 0, 2, 1])).await;
        assert_eq!(plain.raised(), []);

        let behind = key::client_ip().forwarded().trusted_proxies(["10.0.0.1"]);
        let right = Watched::of(wide("address").key(behind));
        send_many(&right.inside(), 5, forwarded).await;
        assert_eq!(right.raised(), []);

        let other = Watched::of(wide("all"));
        send_many(&other.inside(), 5, forwarded).await;
        assert_eq!(other.raised(), [], "nobody asks for an address");
    }
}

#[tokio::test]
async fn sl_onekey_after_a_minute_of_one_key() {
    let rule = || wide("address").key(key::client_ip());
    let minute = async |watched: &Watched, n: usize, request: &dyn Fn(usize) -> Request| {
        let app = watched.inside();
        for i in 0..n {
            send(&app, request(i)).await;
            watched.clock.advance(Duration::from_secs(60) / (n as u32 - 1));
        }
    };
    let one = |_| from_peer("/a", [10, 0, 0, 1]);
    let wrong = Watched::of(rule());
    minute(&wrong, 100, &one).await;
    assert_eq!(wrong.raised(), [], "not before the minute is over");
    send(&wrong.inside(), one(0)).await;
    assert_eq!(wrong.raised(), of_rule(Fault::OneKey, "address"));
    minute(&wrong, 200, &one).await;
    assert_eq!(wrong.raised().len(), 1);

    let silenced = Watched::silenced(rule(), Fault::OneKey);
    minute(&silenced, 300, &one).await;
    minute(&silenced, 300, &one).await;
    assert_eq!(silenced.raised(), []);

    let right = Watched::of(rule());
    minute(&right, 300, &|n| from_peer("/a", [192, 0, 2, u8::from(n == 150)])).await;
    minute(&right, 300, &one).await;
    assert_eq!(right.raised(), [], "a second key was seen");

    let few = Watched::of(rule());
    minute(&few, 20, &one).await;
    minute(&few, 20, &one).await;
    assert_eq!(few.raised(), [], "a handful of requests says nothing");

    // One key by design is none that fails to tell callers apart.
    for rule in [wide("all"), wide("all").key(key::global())] {
        let global = Watched::of(rule);
        minute(&global, 300, &one).await;
        minute(&global, 300, &one).await;
        assert_eq!(global.raised(), []);
    }
}

#[tokio::test]
async fn sl_nokey_where_the_first_thousand_have_no_key() {
    let user = || wide("user").key(key::header("x-user-id"));
    for missing in [Missing::Skip, Missing::Shared, Missing::Refuse(http::StatusCode::UNAUTHORIZED)]
    {
        let wrong = Watched::of(user().missing(missing));
        send_many(&wrong.inside(), 999, |_| request("/a")).await;
        assert_eq!(wrong.raised(), []);
        send_many(&wrong.inside(), 1_001, |_| request("/a")).await;
        assert_eq!(wrong.raised(), of_rule(Fault::NoKey, "user"), "{missing:?}");

        let silenced = Watched::silenced(user().missing(missing), Fault::NoKey);
        send_many(&silenced.inside(), 2_000, |_| request("/a")).await;
        assert_eq!(silenced.raised(), []);

        let right = Watched::of(user().missing(missing));
        send_many(
            &right.inside(),
            2_000,
            |n| {
                if n == 500 { by_user("alice") } else { request("/a") }
            },
        )
        .await;
        assert_eq!(right.raised(), [], "{missing:?}");
    }
    let or = Watched::of(wide("user").key(key::header("x-user-id").or(key::client_ip())));
    send_many(&or.inside(), 2_000, |n| from_peer("/a", [192, 0, 2, n as u8])).await;
    assert_eq!(or.raised(), [], "another key stands in");
}

#[tokio::test]
async fn sl_route_where_the_layer_stands_around_the_router() {
    let rules = || [wide("route").key(key::route()), wide("a").matching(matcher::path("/a"))];
    for rule in rules() {
        let wrong = Watched::of(rule.clone());
        let around = || Router::new().fallback_service(wrong.layer.layer(routes()));
        // A service around the router, as a server would have it: no router knows of it.
        for _ in 0..5 {
            let served = wrong.layer.layer(routes()).oneshot(request("/a")).await.unwrap();
            assert_eq!(served.status(), 200);
        }
        assert_eq!(wrong.raised().len(), 1, "{rule:?}");
        assert_eq!(wrong.raised()[0].0, Fault::Route, "{rule:?}");
        send(&around(), request("/a")).await;
        assert_eq!(wrong.raised().len(), 1);

        let silenced = Watched::silenced(rule, Fault::Route);
        let served = silenced.layer.layer(routes()).oneshot(request("/a")).await.unwrap();
        assert_eq!((served.status().as_u16(), silenced.raised()), (200, vec![]));
    }
    for rule in rules() {
        let right = Watched::of(rule);
        for app in [right.inside(), routes().route_layer(right.layer.clone())] {
            for path in ["/a", "/b", "/users/7", "/unknown"] {
                let status = if path == "/unknown" { 404 } else { 200 };
                assert_eq!(send(&app, request(path)).await, status);
            }
        }
        assert_eq!(right.raised(), []);
    }
    // A limit that cannot tell does not vanish.
    let pattern = Rule::new("a", FixedWindow::per_day(1)).matching(matcher::path("/a"));
    let wrong = Watched::of(pattern);
    let around = wrong.layer.layer(routes());
    assert_eq!(around.clone().oneshot(request("/b")).await.unwrap().status(), 200);
    assert_eq!(around.oneshot(request("/users/7")).await.unwrap().status(), 429);
    // Where no rule reads the route, the layer may stand where it likes.
    let other = Watched::of(wide("all"));
    other.layer.layer(routes()).oneshot(request("/a")).await.unwrap();
    assert_eq!(other.raised(), []);
}

#[tokio::test]
async fn sl_route_where_nest_service_hides_the_pattern() {
    let rule = || wide("route").key(key::route());
    let hidden = |watched: &Watched| {
        Router::new().nest_service("/in", routes()).layer(watched.layer.clone())
    };
    let wrong = Watched::of(rule());
    assert_eq!(send(&hidden(&wrong), request("/in/unknown")).await, 404);
    assert_eq!(send(&hidden(&wrong), request("/unknown")).await, 404);
    assert_eq!(wrong.raised(), [], "nothing there is nothing hidden");
    send_many(&hidden(&wrong), 5, |_| request("/in/a")).await;
    assert_eq!(wrong.raised(), of_rule(Fault::Route, "route"));

    let silenced = Watched::silenced(rule(), Fault::Route);
    send_many(&hidden(&silenced), 5, |_| request("/in/a")).await;
    assert_eq!(silenced.raised(), []);

    let right = Watched::of(rule());
    let nested = Router::new().nest("/in", routes()).layer(right.layer.clone());
    let inside = Router::new().nest_service("/in", right.inside());
    for app in [nested, inside] {
        send_many(&app, 5, |_| request("/in/a")).await;
        assert_eq!(send(&app, request("/in/unknown")).await, 404);
    }
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn sl_twice_where_a_request_passes_one_built_layer_twice() {
    let wrong = Watched::of(wide("all"));
    let twice = |watched: &Watched| {
        Router::new()
            .route("/a", get(|| async {}).layer(watched.layer.clone()))
            .layer(watched.layer.clone())
    };
    send_many(&twice(&wrong), 5, |_| request("/a")).await;
    assert_eq!(wrong.raised(), alone(Fault::Twice));

    let silenced = Watched::silenced(wide("all"), Fault::Twice);
    send_many(&twice(&silenced), 5, |_| request("/a")).await;
    assert_eq!(silenced.raised(), []);

    // On two routes each request passes it once; and two that were built are two.
    let right = Watched::of(wide("all"));
    let other = Watched::of(wide("all"));
    let app = Router::new()
        .route("/a", get(|| async {}).layer(right.layer.clone()))
        .route("/b", get(|| async {}).layer(right.layer.clone()))
        .layer(other.layer.clone());
    send_many(&app, 10, |n| request(if n % 2 == 0 { "/a" } else { "/b" })).await;
    assert_eq!((right.raised(), other.raised()), (vec![], vec![]));
}

#[tokio::test]
async fn sl_keys_where_more_keys_are_live_than_are_kept() {
    let rule = || {
        Rule::new("user", FixedWindow::per_minute(5))
            .key(key::header("x-user-id"))
            .missing(Missing::Skip)
            .max_keys(64)
    };
    let users = |n: usize| by_user(&format!("u{n}"));
    let wrong = Watched::of(rule());
    send_many(&wrong.inside(), 500, users).await;
    assert_eq!(wrong.raised(), of_rule(Fault::Keys, "user"));
    let handle: Handle = wrong.layer.handle();
    assert!(handle.tracked_keys("user").unwrap().unwrap() <= 64);

    let silenced = Watched::silenced(rule(), Fault::Keys);
    send_many(&silenced.inside(), 500, users).await;
    assert_eq!(silenced.raised(), []);

    // Keys that come and go are not live together.
    let right = Watched::of(rule());
    let app = right.inside();
    for n in 0..500 {
        send(&app, users(n)).await;
        right.clock.advance(Duration::from_secs(2));
    }
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn sl_leaky_where_nothing_can_wait() {
    let leaky = || Rule::new("paced", LeakyBucket::per_second(20));
    let wrong = Watched::of(leaky());
    assert_eq!(wrong.raised(), [], "nothing is told before a request comes");
    for expected in [200, 429, 429] {
        assert_eq!(send(&wrong.inside(), request("/a")).await, expected);
    }
    assert_eq!(wrong.raised(), of_rule(Fault::Leaky, "paced"));
    // Another service of the same layer, later.
    wrong.clock.advance(Duration::from_secs(1));
    send_many(&wrong.inside(), 5, |_| request("/b")).await;
    assert_eq!(wrong.raised(), of_rule(Fault::Leaky, "paced"));

    let silenced = Watched::silenced(leaky(), Fault::Leaky);
    send_many(&silenced.inside(), 5, |_| request("/a")).await;
    assert_eq!(silenced.raised(), []);

    // There is something to wait in: the layer's queue, the rule's own, or one behind another step.
    let wait = || RejectionPolicy::queue(Duration::from_secs(1), 10);
    let layers = [
        RateLimitLayer::builder().rule(leaky()).rejection(wait()),
        RateLimitLayer::builder().rule(leaky().rejection(wait())),
        RateLimitLayer::builder()
            .rule(leaky().rejection(RejectionPolicy::degrade(async || Decline).or(wait()))),
    ];
    for layer in layers {
        let right = Watched::new(layer);
        assert_eq!(send(&right.inside(), request("/a")).await, 200);
        let (app, clock) = (right.inside(), right.clock.clone());
        let (waits, ()) = tokio::join!(send(&app, request("/a")), async {
            clock.advance(Duration::from_millis(50));
        });
        assert_eq!((waits, right.raised()), (200, vec![]));
    }
    // The layer's queue is not this rule's, which has an answer of its own.
    let layer = RateLimitLayer::builder().rejection(wait());
    let wrong = Watched::new(layer.rule(leaky().rejection(RejectionPolicy::respond())));
    assert_eq!(send(&wrong.inside(), request("/a")).await, 200);
    assert_eq!(wrong.raised(), of_rule(Fault::Leaky, "paced"));

    // A burst of 1 that somebody wrote is meant.
    let right = Watched::of(Rule::new("paced", TokenBucket::per_second(20).burst(1)));
    send_many(&right.inside(), 5, |_| request("/a")).await;
    assert_eq!(right.raised(), []);
}

#[tokio::test]
async fn several_faults_are_raised_once_each() {
    let watched = Watched::new(
        RateLimitLayer::builder()
            .rule(wide("one").key(key::client_ip()))
            .rule(wide("two").key(key::client_ip().and(key::route()))),
    );
    for _ in 0..20 {
        let mut forwarded = request("/a");
        forwarded.headers_mut().insert("x-forwarded-for", "192.0.2.1".parse().unwrap());
        watched.layer.layer(routes()).oneshot(forwarded).await.unwrap();
    }
    let mut faults: Vec<_> = watched.raised().iter().map(|(fault, _)| fault.code()).collect();
    faults.sort_unstable();
    assert_eq!(faults, ["SL-PEER", "SL-PROXY", "SL-ROUTE"]);
}
