//! KY: keys and client identity.

mod sockets;

use std::time::Duration;

use axum::{Router, extract::Request, middleware, response::Response, routing::get};
use http::StatusCode;
use tower::Layer;
use tower_sluice::{
    FixedWindow, Key, ManualClock, Missing, RateLimitLayer, Rule,
    event::Fault,
    key::{self, KeyBy, KeyExtractor},
    matcher,
};

use crate::support::{Faults, ask, by_user, from_peer, get_with, serve, tally, window};

const XFF: &str = "x-forwarded-for";

/// `FW(limit/60s)` by `key`, on a router with the one route `/`; and what it raises.
fn limited(limit: u64, key: impl KeyExtractor) -> (Router, RateLimitLayer, Faults) {
    let faults = Faults::default();
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("r", window(limit, 60)).key(key))
        .observer(faults.clone())
        .clock(ManualClock::new())
        .build()
        .unwrap();
    (Router::new().route("/", get(|| async {})).layer(layer.clone()), layer, faults)
}

fn forwarded(peer: &str, hops: &str) -> Request {
    get_with("/", Some(peer), &[(XFF, hops)])
}

fn tracked(layer: &RateLimitLayer) -> u64 {
    layer.handle().tracked_keys("r").unwrap().unwrap()
}

#[tokio::test]
async fn ky_01_no_connect_info_over_a_socket() {
    sockets::no_connect_info().await;
}

#[tokio::test]
async fn ky_02_leftmost_address_is_not_believed() {
    let address = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.1"]);
    let (app, layer, _) = limited(5, address);
    let rotating = (0..20).map(|n| forwarded("10.0.0.1", &format!("203.0.113.{n}, 198.51.100.7")));
    assert_eq!(tally(&app, rotating).await, (5, 15));
    assert_eq!(tracked(&layer), 1);
    let framing = (0..5).map(|_| forwarded("10.0.0.1", "192.0.2.50, 198.51.100.8"));
    assert_eq!(tally(&app, framing).await, (5, 0));
    assert!(ask(&app, forwarded("10.0.0.1", "192.0.2.50")).await.is_ok(), "the victim");
}

#[tokio::test]
async fn ky_02_two_trusted_hops() {
    let by_number = key::client_ip().x_forwarded_for().trusted_hops(2);
    let by_network = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.0/8"]);
    for address in [by_number, by_network] {
        let (app, layer, _) = limited(5, address);
        // The outer proxy appended the client, the inner one (the peer) the outer one.
        let rotating = (0..20)
            .map(|n| forwarded("10.0.0.1", &format!("203.0.113.{n}, 198.51.100.7, 10.0.0.2")));
        assert_eq!(tally(&app, rotating).await, (5, 15));
        assert_eq!(tracked(&layer), 1);
        let other = forwarded("10.0.0.1", "198.51.100.7, 198.51.100.9, 10.0.0.2");
        assert!(ask(&app, other).await.is_ok());
    }
}

#[tokio::test]
async fn ky_04_header_from_an_untrusted_peer() {
    for address in [
        key::client_ip(),
        key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.0/8"]),
        key::client_ip().forwarded().trusted_proxies(["10.0.0.0/8"]),
        key::client_ip().header("x-real-ip").trusted_proxies(["10.0.0.0/8"]),
    ] {
        let described = format!("{address:?}");
        let (app, layer, _) = limited(5, address);
        let rotating = (0..20).map(|n| {
            let client = format!("203.0.113.{n}");
            let headers =
                [(XFF, &*client), ("forwarded", &format!("for={client}")), ("x-real-ip", &*client)];
            get_with("/", Some("198.51.100.7"), &headers)
        });
        assert_eq!(tally(&app, rotating).await, (5, 15), "{described}");
        assert_eq!(tracked(&layer), 1);
    }
}

#[tokio::test]
async fn ky_05_clients_behind_a_proxy_are_told_apart() {
    let address = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.1"]);
    let (app, layer, faults) = limited(5, address);
    let clients = (0..100).map(|n| forwarded("10.0.0.1", &format!("203.0.113.{n}")));
    assert_eq!(tally(&app, clients).await, (100, 0));
    assert_eq!(tracked(&layer), 100);
    assert_eq!(faults.raised(), []);
}

#[tokio::test]
async fn ky_05_unconfigured_proxy_is_reported() {
    let (app, _, faults) = limited(5, key::client_ip());
    let clients = (0..100).map(|n| forwarded("10.0.0.1", &format!("203.0.113.{n}")));
    assert_eq!(tally(&app, clients).await, (5, 95), "all share the proxy's quota");
    assert_eq!(faults.raised(), [Fault::Proxy]);
}

#[tokio::test]
async fn ky_06_ipv6_prefix_is_one_key() {
    let in_first = |n: u64| {
        // Spread over all 64 bits of the host.
        let host = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let address = (0x2001_0db8_0000_0001_u128 << 64) | u128::from(host);
        from_peer("/", &std::net::Ipv6Addr::from_bits(address).to_string())
    };
    let second = || from_peer("/", "2001:db8:0:2::1");
    let (app, layer, _) = limited(5, key::client_ip());
    assert_eq!(tally(&app, (0..1_000).map(in_first)).await, (5, 995));
    assert_eq!(tally(&app, (0..5).map(|_| second())).await, (5, 0));
    assert_eq!(tracked(&layer), 2);
    let (app, layer, _) = limited(5, key::client_ip().ipv6_prefix(56));
    assert_eq!(tally(&app, (0..5).map(in_first)).await, (5, 0));
    assert!(ask(&app, second()).await.is_refused());
    assert_eq!(tracked(&layer), 1);
}

#[tokio::test]
async fn ky_08_missing_header_policies() {
    let user = || key::header("x-user-id");
    let nameless = |peer: &'static str| move |_| from_peer("/", peer);
    let named = |peer, value| get_with("/", Some(peer), &[("x-user-id", value)]);

    let (app, ..) = limited(5, user().or(key::client_ip()));
    assert_eq!(tally(&app, (0..10).map(nameless("192.0.2.1"))).await, (5, 5));
    assert_eq!(tally(&app, (0..5).map(nameless("192.0.2.2"))).await, (5, 0));
    // Empty and blank are missing, not a user of that name.
    for blank in ["", "   "] {
        assert!(ask(&app, named("192.0.2.1", blank)).await.is_refused(), "{blank:?}");
        assert!(ask(&app, named("192.0.2.3", blank)).await.is_ok(), "{blank:?}");
    }
    assert_eq!(tally(&app, (0..6).map(|_| named("192.0.2.1", "192.0.2.1"))).await, (5, 1));

    let with = |missing| {
        let layer = RateLimitLayer::builder()
            .rule(Rule::new("r", window(5, 60)).key(user()).missing(missing))
            .clock(ManualClock::new())
            .build()
            .unwrap();
        (Router::new().route("/", get(|| async {})).layer(layer.clone()), layer)
    };
    let all = || {
        let blank = ["", "   "].map(|blank| named("192.0.2.3", blank));
        (0..10).map(nameless("192.0.2.1")).chain((0..5).map(nameless("192.0.2.2"))).chain(blank)
    };
    let (app, layer) = with(Missing::Skip);
    assert_eq!(tally(&app, all()).await, (17, 0));
    assert_eq!(tracked(&layer), 0);
    let (app, layer) = with(Missing::Shared);
    assert_eq!(tally(&app, all()).await, (5, 12));
    assert_eq!(tracked(&layer), 1);
    assert!(ask(&app, by_user("/", "alice")).await.is_ok(), "users are apart from them");
    let (app, layer) = with(Missing::Refuse(StatusCode::UNAUTHORIZED));
    for request in all() {
        let refused = ask(&app, request).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        assert_eq!(refused.retry_after(), None);
    }
    assert_eq!(tracked(&layer), 0);
    let error = RateLimitLayer::builder()
        .rule(Rule::new("r", window(5, 60)).key(user()))
        .build()
        .unwrap_err();
    assert_eq!(error.field(), "missing", "there is no default");
}

#[tokio::test]
async fn ky_09_invented_users_share_the_address_limit() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("user", window(5, 60)).key(key::header("x-user-id")).missing(Missing::Skip))
        .rule(Rule::new("address", window(5, 60)).key(key::client_ip().relaxed(5)))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let invented =
        (0..100).map(|n| get_with("/", Some("192.0.2.1"), &[("x-user-id", &format!("u{n}"))]));
    assert_eq!(tally(&app, invented).await, (25, 75));
}

#[derive(Clone)]
struct User(String);

async fn authenticate(mut request: Request, next: middleware::Next) -> Response {
    let token = request.headers().get("authorization").and_then(|token| token.to_str().ok());
    if let Some(user) = token.and_then(|token| token.strip_prefix("Bearer token-of-")) {
        let user = User(user.to_owned());
        request.extensions_mut().insert(user);
    }
    next.run(request).await
}

#[tokio::test]
async fn ky_09_extension_behind_auth() {
    let layer = RateLimitLayer::builder()
        .rule(
            Rule::new("user", window(5, 60))
                .key(key::extension(|user: &User| Key::from(&user.0)))
                .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)),
        )
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .layer(middleware::from_fn(authenticate));
    let with = |token: &str, n| {
        let user = format!("u{n}");
        get_with("/", Some("192.0.2.1"), &[("authorization", token), ("x-user-id", &user)])
    };
    assert_eq!(tally(&app, (0..6).map(|n| with("Bearer token-of-alice", n))).await, (5, 1));
    assert_eq!(tally(&app, (0..5).map(|n| with("Bearer token-of-bob", n))).await, (5, 0));
    assert_eq!(ask(&app, with("Bearer forged", 0)).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn ky_10_spellings_of_a_path() {
    sockets::spellings().await;
}

#[tokio::test]
async fn ky_12_nested_routes_keep_their_pattern() {
    let items = || Router::new().route("/items/{id}", get(|| async {}));
    let full = || {
        Router::new()
            .route("/v1/items/{id}", get(|| async {}))
            .merge(Router::new().route("/v2/items/{id}", get(|| async {})))
    };
    type Build = Box<dyn Fn(RateLimitLayer) -> Router>;
    let placements: [(&str, Build); 5] = [
        (
            "outside",
            Box::new(move |l| Router::new().nest("/v1", items()).nest("/v2", items()).layer(l)),
        ),
        (
            "inside",
            Box::new(move |l| {
                let inner = items().layer(l);
                Router::new().nest("/v1", inner.clone()).nest("/v2", inner)
            }),
        ),
        (
            "route_layer",
            Box::new(move |l| {
                Router::new().nest("/v1", items()).nest("/v2", items()).route_layer(l)
            }),
        ),
        ("merged", Box::new(move |l| full().layer(l))),
        (
            "on the handler",
            Box::new(move |l| {
                let inner = Router::new().route("/items/{id}", get(|| async {}).layer(l));
                Router::new().nest("/v1", inner.clone()).nest("/v2", inner)
            }),
        ),
    ];
    for (placement, build) in placements {
        let (_, layer, faults) = limited(2, key::route());
        let app = build(layer.clone());
        for (path, served) in [
            ("/v1/items/1", true),
            ("/v1/items/2", true),
            ("/v2/items/1", true),
            ("/v1/items/3", false),
            ("/v2/items/2", true),
            ("/v2/items/3", false),
        ] {
            let answer = ask(&app, get_with(path, None, &[])).await;
            assert_eq!(
                (answer.is_ok(), answer.is_refused()),
                (served, !served),
                "{placement} {path}"
            );
        }
        assert_eq!(tracked(&layer), 2, "{placement}");
        for pattern in ["/v1/items/{id}", "/v2/items/{id}"] {
            let known = layer.handle().peek("r", pattern, 1).await.unwrap();
            assert_eq!(known.remaining(), 0, "{placement} {pattern}");
        }
        assert_eq!(faults.raised(), [], "{placement}");
    }

    // `nest_service` hides its pattern from layers outside it: a fault, and one key for all of them.
    let (_, layer, faults) = limited(2, key::route());
    let hidden = Router::new()
        .nest_service("/v1", items())
        .nest_service("/v2", items())
        .layer(layer.clone());
    let paths = ["/v1/items/1", "/v2/items/1", "/v1/items/2"];
    assert_eq!(tally(&hidden, paths.map(|path| get_with(path, None, &[]))).await, (2, 1));
    assert_eq!(tracked(&layer), 1);
    assert_eq!(faults.raised(), [Fault::Route]);

    // So does the router itself, for layers around it.
    let (_, layer, faults) = limited(2, key::route());
    let around = Router::new().fallback_service(layer.layer(full()));
    assert!(ask(&around, get_with("/v1/items/1", None, &[])).await.is_ok());
    assert_eq!(faults.raised(), [Fault::Route]);
}

/// Resident memory of this process in bytes, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1_024)
}

/// Tells the process that measures memory that it is alone.
const ALONE: &str = "SLUICE_KY_14_ALONE";

#[tokio::test]
async fn ky_14_large_keys_are_stored_small() {
    if std::env::var_os(ALONE).is_none() {
        // Memory is the whole process's, so the case runs in one of its own.
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["keys::ky_14_large_keys_are_stored_small", "--exact", "--test-threads=1"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    // Whole at every scale: it is quick, and a twentieth of the bytes would prove nothing.
    let users = 10_000;
    // They differ in their last bytes only.
    let prefix = "secret-".repeat(1_170);
    let user = |n: u64| format!("{prefix}{n:06}");
    assert!(user(0).len() >= 8_190);
    let (app, layer, _) = limited(1, key::header("x-user-id").or(key::global()));
    assert!(ask(&app, by_user("/", "somebody")).await.is_ok());
    let before = resident();
    for n in 0..users {
        assert!(ask(&app, by_user("/", &user(n))).await.is_ok(), "user {n} is new");
    }
    let grown = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
    assert_eq!(tracked(&layer), users + 1);
    if let Some(grown) = grown {
        assert!(grown < 5 << 20, "{grown} bytes for {users} keys of 8 KiB");
    }
    let refused = ask(&app, by_user("/", &user(0))).await;
    assert!(refused.is_refused());
    let told = format!("{:?} {:?} {:?} {}", layer, layer.handle(), refused.headers, refused.body);
    assert!(!told.contains("secret-"), "no value of a caller's is told");
}

#[tokio::test]
async fn ky_16_allow_list_and_header_source() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("address", window(5, 60)).key(key::client_ip()))
        .rule(
            Rule::new("tenant", FixedWindow::new(2, Duration::from_secs(60)))
                .key(key::header("x-tenant"))
                .missing(Missing::Skip),
        )
        .exempt_matching(matcher::network(["203.0.113.0/24"]))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer.clone());
    let from = |peer: &'static str| move |_| from_peer("/", peer);
    assert_eq!(tally(&app, (0..6).map(from("192.0.2.1"))).await, (5, 1));
    assert!(ask(&app, from_peer("/", "192.0.2.2")).await.is_ok());
    assert_eq!(tally(&app, (0..10).map(from("203.0.113.9"))).await, (10, 0));
    assert_eq!(layer.handle().tracked_keys("address").unwrap(), Some(2), "and uncounted");
    let tenant =
        |name: &'static str| move |_| get_with("/", Some("192.0.2.3"), &[("x-tenant", name)]);
    assert_eq!(tally(&app, (0..2).map(tenant("acme"))).await, (2, 0));
    let refused = ask(&app, tenant("acme")(0)).await;
    assert_eq!(refused.violated(), ["tenant"]);
    assert_eq!(tally(&app, (0..2).map(tenant("globex"))).await, (2, 0));

    let both: KeyBy = key::client_ip().x_forwarded_for().forwarded().trusted_hops(1).boxed();
    let error = RateLimitLayer::builder()
        .rule(Rule::new("address", window(5, 60)).key(both))
        .build()
        .unwrap_err();
    assert_eq!(
        (error.rule(), error.field(), error.value()),
        (Some("address"), "client_ip.header", "x-forwarded-for and forwarded")
    );
}
