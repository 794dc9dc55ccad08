//! HT: the HTTP surface.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, routing::get};
use http::StatusCode;
use tower_http::cors::CorsLayer;
use tower_sluice::{
    Algorithm, FixedWindow, Headers, LeakyBucket, ManualClock, Quota, RateLimitLayer, Reset, Rule,
    SlidingLog, SlidingWindow, TokenBucket, clock::Nanos, event::Fault, exposed_headers, key,
    matcher,
};

use crate::support::{Faults, ask, from_peer, get_with, request, tally, window};

#[tokio::test]
async fn ht_01_subsecond_wait_is_one_second() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("r", TokenBucket::per_second(5).burst(1)).spread(false))
        .clock(ManualClock::new())
        .expose_rejection()
        .build()
        .unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    assert!(ask(&app, request("GET", "/", None)).await.is_ok());
    let refused = ask(&app, request("GET", "/", None)).await;
    assert!(refused.is_refused());
    assert_eq!(refused.retry_after(), Some(1));
    assert!(!refused.body.contains("0s") && !refused.body.contains("0 s"), "{}", refused.body);
    let exact = refused.rejection.unwrap().retry_after();
    assert_eq!(exact, Some(Duration::from_millis(200)));
}

/// Small and repeatable; quality does not matter here.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[tokio::test]
async fn ht_03_obeying_the_hint() {
    let mut random = Random(0x5eed_0003);
    let quotas = [
        Quota::per_day(1),
        Quota::per_day(7).burst(3),
        Quota::per_hour(11),
        Quota::per_minute(10).burst(4),
        Quota::per_second(5).burst(1),
        Quota::new(3, Duration::from_millis(7_001)),
        Quota::per_second(10_000).burst(5),
    ];
    let mut algorithms: Vec<Algorithm> = Vec::new();
    for quota in quotas {
        let burst = quota.max_burst();
        let (permits, period) = (quota.permits(), quota.period());
        algorithms.push(TokenBucket::new(permits, period).burst(burst).into());
        algorithms.push(FixedWindow::new(permits.min(100), period).into());
        algorithms.push(FixedWindow::new(permits.min(100), period).aligned().into());
        algorithms.push(LeakyBucket::new(permits, period).into());
        algorithms.push(SlidingWindow::new(permits.min(100), period).into());
        algorithms.push(SlidingLog::new(permits.min(100), period).into());
    }
    let mut checked_early = 0;
    for (algorithm, round) in algorithms.iter().flat_map(|a| (0..8).map(move |round| (a, round))) {
        let clock = ManualClock::with_utc(Duration::from_secs(1_700_000_000));
        clock.set(Nanos::new(random.below(1 << 50)));
        let cost = Arc::new(AtomicU64::new(1));
        let charged = cost.clone();
        let layer = RateLimitLayer::builder()
            .rule(
                Rule::new("r", *algorithm)
                    .spread(false)
                    .cost_fn(move |_| charged.load(Ordering::Relaxed)),
            )
            .clock(clock.clone())
            .build()
            .unwrap();
        let app = Router::new().route("/", get(|| async {})).layer(layer.clone());
        let limit = layer.handle().peek("r", (), 0).await.unwrap().limit();
        let ask = async || ask(&app, request("GET", "/", None)).await;
        let pace = if limit == 1 { algorithm.quota().permits() } else { limit };
        let mut found = 0;
        while found < 3 {
            cost.store(1 + random.below(limit), Ordering::Relaxed);
            let first = ask().await;
            if !first.is_refused() {
                let period = algorithm.quota().period().as_nanos() as u64;
                clock.advance(Duration::from_nanos(random.below(period / pace + 1)));
                continue;
            }
            found += 1;
            let hint = Duration::from_secs(first.retry_after().unwrap());
            let early = Duration::from_millis(1_001);
            if hint >= Duration::from_secs(2) {
                clock.advance(hint - early);
                assert!(ask().await.is_refused(), "{algorithm:?}, round {round}: too long a hint");
                clock.advance(early);
                checked_early += 1;
            } else {
                clock.advance(hint);
            }
            assert!(ask().await.is_ok(), "{algorithm:?}, round {round}: too short a hint");
        }
    }
    assert!(checked_early > 100, "{checked_early}");
}

#[tokio::test]
async fn ht_05_remaining_counts_this_request() {
    // A leaky bucket has a limit of 1 at any rate.
    for (algorithm, limit) in [
        (TokenBucket::per_minute(3).into(), 3),
        (FixedWindow::per_minute(3).into(), 3),
        (window(3, 60), 3),
        (SlidingWindow::per_minute(3).into(), 3),
        (SlidingLog::per_minute(3).into(), 3),
        (LeakyBucket::per_minute(3).into(), 1),
    ] {
        let layer = RateLimitLayer::builder()
            .rule(Rule::new("r", algorithm))
            .clock(ManualClock::new())
            .expose_decision()
            .expose_rejection()
            .build()
            .unwrap();
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        let mut seen = Vec::new();
        for _ in 0..5 {
            let answer = ask(&app, request("GET", "/", None)).await;
            let rules = match (&answer.decisions, &answer.rejection) {
                (Some(decisions), None) => decisions.as_slice(),
                (None, Some(rejection)) => rejection.rules(),
                both => panic!("{both:?}"),
            };
            let decision = rules[0].decision().unwrap();
            assert_eq!(decision.limit(), limit);
            seen.push((answer.status.as_u16(), decision.remaining()));
        }
        let expected = [(200, 2), (200, 1), (200, 0), (429, 0), (429, 0), (429, 0), (429, 0)];
        let skipped = 3 - limit as usize;
        assert_eq!(seen, expected[skipped..skipped + 5], "{algorithm:?}");
    }
}

#[tokio::test]
async fn ht_08_browser_reads_the_429() {
    let limit = RateLimitLayer::builder()
        .rule(Rule::new("r", window(1, 60)).spread(false).advertise())
        .headers(Headers::Draft11)
        .headers(Headers::XRateLimit(Reset::After))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    // In the order the documentation of `exposed_headers` shows: CORS added last, so outside.
    let origin: http::HeaderValue = "https://app.example".parse().unwrap();
    let cors = CorsLayer::new().allow_origin(origin).expose_headers(exposed_headers());
    let app = Router::new().route("/", get(|| async {})).layer(limit).layer(cors);
    let ask = async || ask(&app, get_with("/", None, &[("origin", "https://app.example")])).await;
    assert!(ask().await.is_ok());
    let refused = ask().await;
    assert!(refused.is_refused());
    assert_eq!(refused.headers["access-control-allow-origin"], "https://app.example");
    let exposed = refused.headers["access-control-expose-headers"].to_str().unwrap();
    for name in refused.headers.keys() {
        let is_readable =
            ["content-type", "content-length", "cache-control", "vary"].contains(&name.as_str());
        let is_cors = name.as_str().starts_with("access-control-");
        assert!(is_readable || is_cors || exposed.split(',').any(|it| it == name), "{name}");
    }
    assert_eq!(refused.headers["ratelimit"], r#""r";r=0;t=60"#);
    assert_eq!(refused.headers["retry-after"], "60");
}

fn preflight(peer: &str) -> axum::extract::Request {
    let mut preflight = request("OPTIONS", "/", Some(peer));
    for (name, value) in
        [("origin", "https://app.example"), ("access-control-request-method", "PUT")]
    {
        preflight.headers_mut().insert(name, value.parse().unwrap());
    }
    preflight
}

#[tokio::test]
async fn ht_09_preflights_pass_uncounted() {
    for cors_outside in [true, false] {
        let limit = RateLimitLayer::builder()
            .rule(Rule::new("ip", window(10, 60)).key(key::client_ip()))
            .clock(ManualClock::new())
            .build()
            .unwrap();
        let routes = Router::new().route("/", get(|| async {}));
        let cors = CorsLayer::permissive();
        let app = if cors_outside {
            routes.layer(limit).layer(cors)
        } else {
            routes.layer(cors).layer(limit)
        };
        for _ in 0..10 {
            let allowed = ask(&app, preflight("192.0.2.1")).await;
            assert!(
                allowed.is_ok() && allowed.headers.contains_key("access-control-allow-methods")
            );
            assert!(ask(&app, from_peer("/", "192.0.2.1")).await.is_ok());
        }
        assert!(ask(&app, preflight("192.0.2.1")).await.is_ok(), "CORS outside: {cors_outside}");
        assert!(ask(&app, from_peer("/", "192.0.2.1")).await.is_refused());
    }
}

#[tokio::test]
async fn ht_09_bare_options_is_counted() {
    let build = |exempt| {
        let limit = RateLimitLayer::builder()
            .rule(Rule::new("ip", window(3, 60)).key(key::client_ip()))
            .exempt_by_default(exempt)
            .clock(ManualClock::new())
            .build()
            .unwrap();
        Router::new().route("/", get(|| async {}).options(|| async {})).layer(limit)
    };
    let app = build(true);
    let bare = || request("OPTIONS", "/", Some("192.0.2.1"));
    let half = || {
        let mut half = preflight("192.0.2.1");
        half.headers_mut().remove("access-control-request-method");
        half
    };
    assert_eq!(tally(&app, [bare(), half(), bare(), half(), bare()]).await, (3, 2));
    assert!(ask(&app, preflight("192.0.2.1")).await.is_ok());
    // And where it is asked for, true preflights are counted too.
    let app = build(false);
    assert_eq!(tally(&app, (0..5).map(|_| preflight("192.0.2.1"))).await, (3, 2));
}

fn by_route_and_address(faults: &Faults) -> RateLimitLayer {
    RateLimitLayer::builder()
        .rule(Rule::new("route", window(10, 60)).key(key::route().and(key::client_ip())))
        .observer(faults.clone())
        .clock(ManualClock::new())
        .build()
        .unwrap()
}

#[tokio::test]
async fn ht_14_unmatched_routes_share_one_bucket() {
    let faults = Faults::default();
    let layer = by_route_and_address(&faults);
    let app = Router::new()
        .route("/known", get(|| async {}))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such page") })
        .layer(layer.clone());
    for n in 0..20 {
        let answer = ask(&app, from_peer(&format!("/unknown/{n}"), "192.0.2.1")).await;
        if n < 10 {
            assert_eq!((answer.status, &*answer.body), (StatusCode::NOT_FOUND, "no such page"));
        } else {
            assert!(answer.is_refused(), "request {n}");
        }
    }
    assert_eq!(layer.handle().tracked_keys("route").unwrap(), Some(1));
    assert!(ask(&app, from_peer("/known", "192.0.2.1")).await.is_ok());
    assert_eq!(layer.handle().tracked_keys("route").unwrap(), Some(2));
    let other = ask(&app, from_peer("/unknown/0", "192.0.2.2")).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND, "one bucket for each address");
    assert_eq!(faults.raised(), []);
}

#[tokio::test]
async fn ht_14_route_layer_skips_fallbacks() {
    let faults = Faults::default();
    let layer = by_route_and_address(&faults);
    let app = Router::new()
        .route("/known", get(|| async {}))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .route_layer(layer.clone());
    for n in 0..20 {
        let answer = ask(&app, from_peer(&format!("/unknown/{n}"), "192.0.2.1")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(layer.handle().tracked_keys("route").unwrap(), Some(0));
    assert_eq!(tally(&app, (0..12).map(|_| from_peer("/known", "192.0.2.1"))).await, (10, 2));
    assert_eq!(faults.raised(), []);
}

#[tokio::test]
async fn ht_15_health_checks_are_exempt() {
    let faults = Faults::default();
    let layer = RateLimitLayer::builder()
        .rule(
            Rule::new("ip", window(60, 60))
                .key(key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.1"])),
        )
        .exempt_matching(matcher::path("/healthz"))
        .observer(faults.clone())
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let handle = layer.handle();
    let app = Router::new()
        .route("/api", get(|| async {}))
        .route("/healthz", get(|| async { "alive" }))
        .layer(layer);
    let api = || get_with("/api", Some("10.0.0.1"), &[("x-forwarded-for", "192.0.2.1")]);
    assert_eq!(tally(&app, (0..70).map(|_| api())).await, (60, 10));
    // A probe comes straight from the orchestrator, some even without a peer address.
    for peer in [Some("10.0.0.9"), None] {
        let probes = (0..200).map(|_| request("GET", "/healthz", peer));
        assert_eq!(tally(&app, probes).await, (200, 0));
    }
    assert_eq!(handle.tracked_keys("ip").unwrap(), Some(1), "probes are counted nowhere");
    assert!(!faults.raised().contains(&Fault::Peer));
    assert!(ask(&app, api()).await.is_refused());
}
