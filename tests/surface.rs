//! The public surface: what a user writes compiles, and public types are what async code needs.

use std::{error::Error, net::IpAddr};

use axum::{
    Router,
    body::Body,
    handler::Handler,
    http::{Method, Request, StatusCode},
    routing::{get, post},
};
use tower::{ServiceBuilder, ServiceExt};
use tower_sluice::{
    Algorithm, Backend, BackendError, ConfigError, Cost, Decision, Decisions, FixedWindow, Handle,
    HandleError, Head, KeepBodyLayer, Key, KeyedLimiter, LeakyBucket, Limiter, ManualClock,
    Missing, Observer, Quota, RateLimit, RateLimitLayer, RateLimitLayerBuilder, Rejection,
    RejectionPolicy, Rule, RuleKey, TokenBucket, TokioClock, backend, body, clock, event, key,
    key::{ClientIp, KeyBy, KeyExtractor},
    matcher,
    matcher::{Match, Matcher},
};

fn send_sync<T: Send + Sync + 'static>() {}
fn unpin<T: Unpin>() {}

#[test]
fn public_types_are_send_sync_and_unpin() {
    send_sync::<RateLimitLayer>();
    send_sync::<RateLimitLayerBuilder>();
    send_sync::<KeepBodyLayer>();
    send_sync::<Rule>();
    send_sync::<RejectionPolicy>();
    send_sync::<Rejection>();
    send_sync::<Handle>();
    send_sync::<HandleError>();
    send_sync::<Limiter>();
    send_sync::<KeyedLimiter>();
    send_sync::<Decision>();
    send_sync::<Decisions>();
    send_sync::<ConfigError>();
    send_sync::<BackendError>();
    send_sync::<Key<'static>>();
    send_sync::<RuleKey<'static>>();
    send_sync::<KeyBy>();
    send_sync::<ClientIp>();
    send_sync::<Match>();
    send_sync::<Cost>();
    send_sync::<Quota>();
    send_sync::<Algorithm>();
    send_sync::<LeakyBucket>();
    send_sync::<ManualClock>();
    send_sync::<TokioClock>();
    send_sync::<clock::FastClock>();
    send_sync::<event::SetupFault>();
    send_sync::<backend::Local>();
    send_sync::<backend::Verdicts>();
    send_sync::<RateLimit<Router>>();
    send_sync::<RateLimit<Router, body::Kept>>();
    unpin::<RateLimitLayer>();
    unpin::<RateLimit<Router>>();
    unpin::<Handle>();
}

#[test]
fn open_traits_are_object_safe() {
    fn object<T: ?Sized>() {}
    object::<dyn Backend>();
    object::<dyn Observer>();
    object::<dyn clock::Clock>();
    object::<dyn Matcher>();
    object::<dyn KeyExtractor>();
}

/// The future a server spawns.
#[test]
fn response_futures_are_send() {
    fn send<T: Send>(_: T) {}
    let app = Router::new().route("/", get(|| async {}).layer(layer(1).unwrap()));
    send(app.clone().oneshot(Request::new(Body::empty())));
    let service = ServiceBuilder::new().layer(layer(1).unwrap()).service(app);
    send(service.oneshot(Request::new(Body::empty())));
}

fn layer(limit: u64) -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder().rule(Rule::new("all", FixedWindow::per_day(limit))).build()
}

/// A layer can be stored, returned and used in every place; the count is one.
#[tokio::test]
async fn layers_go_everywhere_and_count_once() -> Result<(), Box<dyn Error + Send + Sync>> {
    struct Limits {
        all: RateLimitLayer,
    }
    let limits = Limits { all: layer(8)? };
    let ok = || async {};
    let app: Router<()> = Router::new()
        .route("/method-router", get(ok).layer(limits.all.clone()))
        .route("/handler", get(ok.layer(limits.all.clone())))
        .merge(Router::new().route("/route-layer", get(ok)).route_layer(limits.all.clone()))
        .merge(Router::new().route("/router-layer", get(ok)).layer(limits.all.clone()))
        .nest("/nested", Router::new().route("/", get(ok)).layer(limits.all.clone()))
        .merge(
            Router::new()
                .route("/builder", post(ok).get(ok))
                .layer(ServiceBuilder::new().layer(limits.all.clone())),
        );
    let places =
        ["/method-router", "/handler", "/route-layer", "/router-layer", "/nested", "/builder"];
    let ask =
        |path: &'static str| app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
    for path in places {
        assert_eq!(ask(path).await?.status(), StatusCode::OK, "{path}");
    }
    let left = limits.all.handle().peek("all", (), 1).await?.remaining();
    assert_eq!(left, 2);
    assert_eq!(ask("/handler").await?.status(), StatusCode::OK);
    assert_eq!(ask("/nested").await?.status(), StatusCode::OK);
    for path in places {
        assert_eq!(ask(path).await?.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
    }
    Ok(())
}

#[derive(Clone)]
struct Tenant(String);

struct MyKey;

impl KeyExtractor for MyKey {
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
        head.header_str("x-my").map(Key::from)
    }
}

/// Every form of closure and combination compiles without a type annotation or a trait import.
#[test]
fn closures_infer_and_keys_combine() -> Result<(), ConfigError> {
    let quota = || TokenBucket::per_second(10);
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let keys: Vec<KeyBy> = vec![
        key::from_fn(|head| Some(head.extension::<Tenant>()?.0.as_str().into())),
        key::from_fn(|head| head.header_str("x-tenant").map(Key::from)),
        key::from_owned(|head| head.header_str("x-t").map(|s| s.to_lowercase())),
        key::from_owned(|head| head.header_str("x-n").and_then(|s| s.parse::<u64>().ok())),
        key::from_owned(move |_| Some(address)),
        key::header("x-b").or(key::always(|head| head.path().into())),
        key::extension(|tenant: &Tenant| Key::from(&tenant.0)),
        key::header("x-user-id").or(key::client_ip().relaxed(10)),
        key::header("x-tenant").and(key::route()),
        key::header("x-a").or(MyKey),
        MyKey.boxed(),
    ];
    let mut builder = RateLimitLayer::builder();
    for (i, key) in keys.into_iter().enumerate() {
        let mut rule = Rule::new(format!("rule-{i}"), quota()).key(key.clone());
        if !key.is_total() {
            rule = rule.missing(Missing::Skip);
        }
        builder = builder.rule(rule);
    }
    builder
        .rule(Rule::new("mine", quota()).key(MyKey).missing(Missing::Skip))
        .rule(
            Rule::new("tiers", quota())
                .tier("pro", TokenBucket::per_second(100))
                .tier("partner", "1000/min burst 50".parse::<Quota>()?)
                .tiers(|head| head.extension::<Tenant>().map(|tenant| tenant.0.as_str())),
        )
        .rule(Rule::new("tiers-2", quota()).tier("pro", quota()).tiers(|head| {
            if head.uri().query().is_some() { Some("pro") } else { head.header_str("x-tier") }
        }))
        .rule(Rule::new("when", quota()).when(|head| head.path() == "/x").cost(5))
        .rule(Rule::new("cost", quota()).cost_fn(|head| head.uri().query().map_or(1, |_| 2)))
        .rule(Rule::new("cost-2", quota()).cost(Cost::from_fn(|head| head.headers().len() as u64)))
        .rule(
            Rule::new("match", quota()).matching(
                matcher::method(Method::POST)
                    .and(matcher::path("/orders/{id}"))
                    .or(|head: &Head<'_>| head.path() == "/y"),
            ),
        )
        .rule(Rule::new("answer", quota()).rejection(RejectionPolicy::respond_with(
            |rejection, head| (StatusCode::IM_A_TEAPOT, format!("{} {rejection:?}", head.path())),
        )))
        .exempt(|head| head.path() == "/healthz")
        .exempt_matching(matcher::path("/livez"))
        .build()
        .map(drop)
}

/// Answers of the service keep the inner error type.
#[tokio::test]
async fn inner_errors_pass_unchanged() {
    let inner = tower::service_fn(|_: Request<Body>| async {
        Err::<axum::http::Response<Body>, _>("the inner service's own")
    });
    let service = ServiceBuilder::new().layer(layer(1).unwrap()).service(inner);
    let error = service.clone().oneshot(Request::new(Body::empty())).await.unwrap_err();
    assert_eq!(error, "the inner service's own");
    // The refusal is a response.
    let answer = service.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
}
