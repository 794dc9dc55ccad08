//! What a gRPC client sees of a refusal.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, time::timeout};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tonic_health::{
    pb::{HealthCheckRequest, health_client::HealthClient},
    server::health_reporter,
};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt};
use tower_sluice::{
    BackendErrorKind, FixedWindow, Headers, InFlight, ManualClock, Missing, RateLimitLayer,
    RateLimitLayerBuilder, RejectionPolicy, Rule, TokenBucket,
    event::Reason,
    key,
    testing::{Event, FailingBackend, Recorder},
};

/// A layer in which the health check, which is the service here, is not exempt.
fn builder(clock: &ManualClock) -> RateLimitLayerBuilder {
    RateLimitLayer::builder().exempt_by_default(false).clock(clock.clone())
}

fn one_a_minute() -> Rule {
    Rule::new("calls", FixedWindow::per_minute(1)).spread(false)
}

/// Serves a tonic service inside of `layer` on loopback.
async fn serve(layer: RateLimitLayer) -> SocketAddr {
    let (_, service) = health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(layer.layer(service.clone()));
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    address
}

async fn client(layer: RateLimitLayer) -> HealthClient<Channel> {
    let address = serve(layer).await;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.check(HealthCheckRequest::default()).await.map(drop)
}

/// A streaming call, up to its first message.
async fn watch(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client.watch(HealthCheckRequest::default()).await?.into_inner().message().await.map(drop)
}

/// The wait that `google.rpc.RetryInfo` has.
fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

fn metadata<'s>(status: &'s Status, name: &str) -> Option<&'s str> {
    status.metadata().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_spent_quota_is_resource_exhausted_with_retry_info() {
    let clock = ManualClock::new();
    let layer = builder(&clock).rule(one_a_minute()).headers(Headers::Draft11);
    let layer = layer.rule(
        Rule::new("user", FixedWindow::per_hour(9))
            .key(key::header("user-agent"))
            .missing(Missing::Skip),
    );
    let mut client = client(layer.build().unwrap()).await;
    check(&mut client).await.unwrap();
    clock.advance(Duration::from_millis(58_500));
    for refused in [check(&mut client).await, watch(&mut client).await] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().starts_with("The quota is spent"), "{refused}");
        // To the nanosecond, since the client waits as long as it is told.
        assert_eq!(retry_delay(&refused), Some(Duration::from_millis(1_500)));
        assert_eq!(metadata(&refused, "grpc-retry-pushback-ms"), Some("1500"));
        assert_eq!(metadata(&refused, "retry-after"), Some("2"));
        assert_eq!(metadata(&refused, "ratelimit-policy"), Some(r#""user";q=9;w=3600"#));
    }
    clock.advance(Duration::from_millis(1_500));
    watch(&mut client).await.unwrap();
}

#[tokio::test]
async fn what_is_full_or_away_is_unavailable() {
    let clock = ManualClock::new();
    let limit = InFlight::new("calls", 1).spread(false).retry_after(Duration::from_secs(3));
    let mut full = client(builder(&clock).in_flight(limit.clone()).build().unwrap()).await;
    let permit = limit.try_acquire().unwrap();
    let refused = check(&mut full).await.unwrap_err();
    assert_eq!(
        (refused.code(), retry_delay(&refused)),
        (Code::Unavailable, Some(Duration::from_secs(3)))
    );
    drop(permit);
    check(&mut full).await.unwrap();

    let away = FailingBackend::new(BackendErrorKind::Timeout);
    let rule = Rule::new("fleet", TokenBucket::per_second(9)).backend(away);
    let mut away = client(builder(&clock).rule(rule).build().unwrap()).await;
    let refused = check(&mut away).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    // It is told to many at once, so it is spread.
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(2));
    assert!((least..=most).contains(&retry_delay(&refused).unwrap()));
}

#[tokio::test]
async fn a_status_of_ones_own_is_a_code_of_ones_own() {
    let clock = ManualClock::new();
    let rule = one_a_minute().status(http::StatusCode::SERVICE_UNAVAILABLE);
    let mut unavailable = client(builder(&clock).rule(rule).build().unwrap()).await;
    check(&mut unavailable).await.unwrap();
    assert_eq!(check(&mut unavailable).await.unwrap_err().code(), Code::Unavailable);

    let limit = InFlight::new("calls", 1).status(http::StatusCode::TOO_MANY_REQUESTS);
    let _permit = limit.try_acquire().unwrap();
    let mut exhausted = client(builder(&clock).in_flight(limit).build().unwrap()).await;
    assert_eq!(check(&mut exhausted).await.unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn what_no_waiting_helps_says_so() {
    let clock = ManualClock::new();
    let never = builder(&clock).rule(one_a_minute().cost_fn(|_| 2)).build().unwrap();
    let refused = check(&mut client(never).await).await.unwrap_err();
    assert_eq!((refused.code(), retry_delay(&refused)), (Code::ResourceExhausted, None));
    assert_eq!(metadata(&refused, "grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(metadata(&refused, "retry-after"), None);

    for (status, code) in [(401, Code::Unauthenticated), (400, Code::PermissionDenied)] {
        let missing = Missing::Refuse(http::StatusCode::from_u16(status).unwrap());
        let rule = one_a_minute().key(key::header("x-user-id")).missing(missing);
        let refused = check(&mut client(builder(&clock).rule(rule).build().unwrap()).await).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn a_spread_answer_keeps_its_hints_together() {
    let clock = ManualClock::new();
    let mut client =
        client(builder(&clock).rule(one_a_minute().spread(true)).build().unwrap()).await;
    check(&mut client).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let refused = check(&mut client).await.unwrap_err();
        let delay = retry_delay(&refused).unwrap();
        assert!((60_000..=72_000).contains(&delay.as_millis()), "{delay:?}");
        let pushback = metadata(&refused, "grpc-retry-pushback-ms").unwrap();
        assert_eq!(pushback.parse::<u128>().unwrap(), delay.as_millis());
        let seconds = metadata(&refused, "retry-after").unwrap();
        assert_eq!(seconds.parse::<u128>().unwrap(), delay.as_millis().div_ceil(1_000));
        seen.insert(delay);
    }
    assert!(seen.len() > 25, "{seen:?}");
}

#[tokio::test]
async fn observers_hear_of_a_grpc_refusal_as_of_any() {
    let (clock, seen) = (ManualClock::new(), Recorder::new());
    let layer = builder(&clock).rule(one_a_minute()).observer(seen.clone()).build().unwrap();
    let mut client = client(layer).await;
    check(&mut client).await.unwrap();
    check(&mut client).await.unwrap_err();
    let events = seen.events();
    let refused = events.iter().find_map(|event| match event {
        Event::Rejected { status, reason, .. } => Some((*status, *reason)),
        _ => None,
    });
    assert_eq!(refused, Some((429, Reason::Quota)));
}

/// A call by hand through a router: what a refusal of it has in its head.
async fn by_hand(layer: RateLimitLayer, content_type: &str) -> http::Response<Body> {
    let app = Router::new().route("/", axum::routing::any(|| async {})).layer(layer);
    let request = || {
        let request = http::Request::post("/").header("content-type", content_type);
        request.body(Body::from("five!")).unwrap()
    };
    app.clone().oneshot(request()).await.unwrap();
    app.oneshot(request()).await.unwrap()
}

#[tokio::test]
async fn a_refusal_is_a_head_and_nothing_else() {
    let clock = ManualClock::new();
    for content_type in ["application/grpc", "application/grpc+proto", "application/grpc-web+proto"]
    {
        // A responder is for others: a gRPC client would not understand it.
        let policy = RejectionPolicy::respond_with(|_, _| "no");
        let layer = builder(&clock).rule(one_a_minute()).rejection(policy).build().unwrap();
        let refused = by_hand(layer, content_type).await;
        assert_eq!(
            (refused.status(), &refused.headers()["grpc-status"]),
            (http::StatusCode::OK, &"8".parse().unwrap())
        );
        assert_eq!(refused.headers()["content-type"], content_type);
        assert_eq!(refused.headers()["cache-control"], "no-store");
        assert!(http_body::Body::is_end_stream(refused.body()));
    }
    let layer = builder(&clock).rule(one_a_minute()).build().unwrap();
    let refused = by_hand(layer, "application/json").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers().get("grpc-status"), None);
}

#[tokio::test]
async fn nobody_waits_longer_than_his_own_deadline() {
    let clock = ManualClock::new();
    let queue = RejectionPolicy::queue(Duration::from_secs(100), 10);
    let layer = builder(&clock).rule(one_a_minute()).rejection(queue).build().unwrap();
    let handle = layer.handle();
    let app = Router::new().route("/", axum::routing::any(|| async {})).layer(layer);
    let ask = |deadline: &str, content_type: &str| {
        let request = http::Request::post("/").header("grpc-timeout", deadline);
        let request = request.header("content-type", content_type).body(Body::empty());
        app.clone().oneshot(request.unwrap())
    };
    assert_eq!(ask("1S", "application/grpc").await.unwrap().headers().get("grpc-status"), None);
    // Its turn comes in 60 s.
    let refused = timeout(Duration::from_secs(5), ask("59S", "application/grpc")).await;
    let refused = refused.expect("an answer at once").unwrap();
    assert_eq!(refused.headers()["grpc-status"], "8");
    for (deadline, content_type) in [("61S", "application/grpc"), ("1S", "application/json")] {
        let waits = tokio::spawn(ask(deadline, content_type));
        while handle.waiting("calls").unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(60));
        assert_eq!(waits.await.unwrap().unwrap().headers().get("grpc-status"), None);
    }
}
