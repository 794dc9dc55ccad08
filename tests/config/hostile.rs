//! Whatever a caller sends gets a decision: never a panic, and never an error of ours.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use http::{HeaderValue, Request, Response, header};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    FixedWindow, ManualClock, Missing, RateLimitLayer, Rule, TokenBucket,
    backend::Local,
    key::{self, KeyBy, KeyExtractor},
};

/// A layer whose rule admits two requests of a key.
fn two_of(key: impl KeyExtractor) -> RateLimitLayer {
    let rule = Rule::new("r", FixedWindow::per_day(2)).key(key).missing(Missing::Shared);
    RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap()
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new()
        .route("/", get(|| async {}))
        .route("/users/{id}", get(|| async {}))
        .layer(layer.clone())
}

fn request(uri: &str, headers: &[(&'static str, &[u8])]) -> Request<Body> {
    let mut request = Request::get(uri).body(Body::empty()).unwrap();
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(*name, value);
    }
    let proxy = SocketAddr::from(([10, 0, 0, 1], 1));
    request.extensions_mut().insert(ConnectInfo(proxy));
    request
}

/// The statuses of three such requests.
async fn thrice(layer: &RateLimitLayer, uri: &str, headers: &[(&'static str, &[u8])]) -> [u16; 3] {
    let mut statuses = [0; 3];
    for status in &mut statuses {
        let answer = app(layer).oneshot(request(uri, headers)).await.unwrap();
        *status = answer.status().as_u16();
    }
    statuses
}

const TWO: [u16; 3] = [200, 200, 429];

#[tokio::test]
async fn header_bytes_that_are_not_utf8_are_keys() {
    let layer = two_of(key::header("x-user-id"));
    for value in [&b"\xff\xfe\x80"[..], b"\x80", b"caf\xe9", b"caf\xc3\xa9", b"a\tb", b"\"", b"%00"]
    {
        assert_eq!(thrice(&layer, "/", &[("x-user-id", value)]).await, TWO, "{value:?}");
    }
    for value in [&b"id=\xff\xfe"[..], b"id=%ff%fe%00", b";;;=;id=x", b"id==", b"\xff;id=\xff"] {
        let cookie = two_of(key::cookie("id"));
        assert_eq!(thrice(&cookie, "/", &[("cookie", value)]).await, TWO, "{value:?}");
    }
    let param = two_of(key::path_param("id"));
    for path in ["/users/%ff%fe", "/users/%00", "/users/%", "/users/%zz", "/users/%2F..%2F"] {
        assert_eq!(thrice(&param, path, &[]).await, TWO, "{path}");
    }
}

#[tokio::test]
async fn keys_of_64_kib_are_told_apart_by_their_last_byte() {
    let long = |last: char| format!("{}{last}", "k".repeat(65_535));
    let (a, b) = (long('a'), long('b'));
    let header = two_of(key::header("x-user-id"));
    let pair = two_of(key::header("x-user-id").and(key::header("x-user-id")));
    for layer in [&header, &pair] {
        for value in [&a, &b] {
            assert_eq!(thrice(layer, "/", &[("x-user-id", value.as_bytes())]).await, TWO);
        }
        assert_eq!(layer.handle().tracked_keys("r").unwrap(), Some(2));
    }
    let cookie = two_of(key::cookie("id"));
    for value in [&a, &b] {
        assert_eq!(
            thrice(&cookie, "/", &[("cookie", format!("id={value}").as_bytes())]).await,
            TWO
        );
    }
    // A path holds a little less.
    let param = two_of(key::path_param("id"));
    for value in [&a, &b] {
        let path = format!("/users/{}", &value[2_000..]);
        assert_eq!(thrice(&param, &path, &[]).await, TWO);
    }
    let owned = two_of(key::from_owned(|head| head.header_str("x-user-id").map(str::to_uppercase)));
    assert_eq!(thrice(&owned, "/", &[("x-user-id", a.as_bytes())]).await, TWO);
}

#[tokio::test]
async fn a_thousand_forwarded_hops_are_one_client() {
    let xff = || key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.0/8"]).boxed();
    let hops = || key::client_ip().x_forwarded_for().trusted_hops(32).boxed();
    let fwd = || key::client_ip().forwarded().trusted_proxies(["10.0.0.0/8"]).boxed();
    let list = |hop: &str| vec![hop; 1_000].join(", ");
    let (trusted, stranger) = (list("10.0.0.2"), list("203.0.113.9"));
    let (elements, quotes) = (list("for=10.0.0.2"), list("for=\"[2001:db8::1]:1\""));
    let (commas, open) = (",".repeat(60_000), "\"".repeat(60_001));
    let texts = [&*trusted, &stranger, &elements, &quotes, &commas, &open, "for=;for=,=;\\", ", ,"];
    let keys: [fn() -> KeyBy; 3] = [xff, hops, fwd];
    for (key, name) in keys.into_iter().zip(["x-forwarded-for", "x-forwarded-for", "forwarded"]) {
        for text in texts {
            // In one line, and in a line for each.
            let layer = two_of(key());
            assert_eq!(thrice(&layer, "/", &[(name, text.as_bytes())]).await, TWO, "{name}");
            assert_eq!(layer.handle().tracked_keys("r").unwrap(), Some(1));
        }
        let lines = vec![(name, &b"10.0.0.2"[..]); 1_000];
        assert_eq!(thrice(&two_of(key()), "/", &lines).await, TWO, "{name}");
    }
}

#[tokio::test]
async fn absurd_costs_are_never_and_spend_nothing() {
    let cost = |head: &tower_sluice::Head<'_>| {
        head.header_str("x-cost").and_then(|cost| cost.parse().ok()).unwrap_or(1)
    };
    let bucket = || Rule::new("bucket", TokenBucket::per_hour(1).burst(10));
    let wide = || Rule::new("wide", TokenBucket::per_second(1).burst(1 << 59));
    let window = || Rule::new("window", FixedWindow::per_day(10));
    let aligned = || Rule::new("aligned", FixedWindow::per_day(10).aligned());
    let sets: Vec<Vec<Rule>> = vec![
        vec![bucket()],
        vec![window()],
        vec![aligned()],
        vec![bucket().key(key::client_ip())],
        vec![window().key(key::client_ip().relaxed(1 << 20))],
        vec![bucket().key(key::client_ip()), window(), wide()],
        // Those of this process hold while the other backend is asked.
        vec![wide(), bucket().backend(Arc::new(Local::new()))],
        vec![window().backend(Arc::new(Local::new())), aligned(), wide()],
    ];
    for rules in sets {
        let names = format!("{rules:?}");
        let first = rules[0].clone();
        let layer = RateLimitLayer::builder()
            .rules(rules.into_iter().map(|rule| rule.cost_fn(cost)))
            .expose_rejection()
            .clock(ManualClock::new())
            .build()
            .unwrap();
        for absurd in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 62) + 1, (1 << 60) + 1] {
            let sent = request("/", &[("x-cost", absurd.to_string().as_bytes())]);
            let answer = app(&layer).oneshot(sent).await.unwrap();
            assert_eq!(answer.status().as_u16(), 429, "{absurd} on {names}");
            assert!(!answer.headers().contains_key(header::RETRY_AFTER));
            let body = axum::body::to_bytes(answer.into_body(), 10_000).await.unwrap();
            let body = std::str::from_utf8(&body).unwrap();
            assert!(body.contains(r#""reason":"never""#), "{absurd} on {names}: {body}");
        }
        // Nothing was spent: ten permits still fit, in pieces.
        for cost in ["0", "4", "0", "6", "0"] {
            let sent = request("/", &[("x-cost", cost.as_bytes())]);
            assert_eq!(app(&layer).oneshot(sent).await.unwrap().status().as_u16(), 200);
        }
        let sent = request("/", &[]);
        let last = app(&layer).oneshot(sent).await.unwrap().status().as_u16();
        let relaxed = format!("{first:?}").contains("relaxed");
        assert_eq!(last, if relaxed { 200 } else { 429 }, "{names}");
    }
}

#[tokio::test]
async fn requests_without_anything_are_decided() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("ip", FixedWindow::per_day(2)).key(key::client_ip().and(key::route())))
        .rule(
            Rule::new("host", FixedWindow::per_day(2))
                .key(key::path_param("id"))
                .missing(Missing::Shared),
        )
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let service = layer.layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let mut statuses = Vec::new();
    for uri in ["*", "/", "http://example"] {
        let request = Request::options(uri).body(Body::empty()).unwrap();
        statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, TWO);
}

#[tokio::test]
async fn only_the_two_methods_of_grpc_health_are_exempt() {
    const HEALTH: &str = "/grpc.health.v1.Health";
    const GRPC: Option<&str> = Some("application/grpc");
    let statuses = async |method: &str, path: &str, content_type: Option<&str>| {
        let rule = Rule::new("all", FixedWindow::per_day(2));
        let layer = RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap();
        let mut statuses = [0; 3];
        for status in &mut statuses {
            let service = layer.layer(service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }));
            let mut request = Request::builder().method(method).uri(path);
            if let Some(content_type) = content_type {
                request = request.header(header::CONTENT_TYPE, content_type);
            }
            let answer = service.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            // A refusal in gRPC's own words is a 200.
            let is_refused = answer.headers().contains_key("grpc-status");
            *status = if is_refused { 429 } else { answer.status().as_u16() };
        }
        statuses
    };
    for method in ["Check", "Watch"] {
        let path = format!("{HEALTH}/{method}");
        for content_type in ["application/grpc", "application/grpc+proto"] {
            assert_eq!(statuses("POST", &path, Some(content_type)).await, [200; 3], "{path}");
        }
        for content_type in [None, Some("application/json"), Some("text/plain"), Some("")] {
            assert_eq!(statuses("POST", &path, content_type).await, TWO, "{content_type:?}");
        }
        for other in ["GET", "PUT", "OPTIONS"] {
            assert_eq!(statuses(other, &path, GRPC).await, TWO, "{other} {path}");
        }
    }
    for path in ["login", "", "check", "Check/", "Check/login", "Checks", "../login"] {
        let path = format!("{HEALTH}/{path}");
        assert_eq!(statuses("POST", &path, GRPC).await, TWO, "{path}");
    }
    for path in ["/", HEALTH, "/in/grpc.health.v1.Health/Check", "/other.Health/Check"] {
        assert_eq!(statuses("POST", path, GRPC).await, TWO, "{path}");
    }
}
