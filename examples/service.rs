//! A whole service: authentication, limits by user and, behind a proxy, by address; CORS, a health check,
//! refusals in the service's own words, an admin page, and counters.
//!
//! `cargo run --example service` serves it; with `-- --check` it tries itself out.

#![allow(clippy::print_stdout, reason = "it tells where it listens")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{ConnectInfo, Path, Request, State},
    http::{Method, StatusCode, header},
    middleware::{self, Next},
    response::Response,
    routing::{get, put},
};
use tower::ServiceExt;
use tower_http::cors::{Any, CorsLayer};
use tower_sluice::{
    ConfigError, Handle, HandleError, Key, ManualClock, Missing, Observer, Quota, RateLimitLayer,
    RejectionPolicy, Rule, TokenBucket,
    clock::{Clock, FastClock},
    event::{Rejected, SetupFault},
    exposed_headers, key,
};

/// Who sent a request, as authentication found out. Nobody can invent it, so it makes a good key.
#[derive(Clone)]
struct User(String);

/// Stands for real authentication: the token is the user's name after `token-`.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let authorization = request.headers().get(header::AUTHORIZATION);
    let token = authorization.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer token-"));
    let user = User(token.ok_or(StatusCode::UNAUTHORIZED)?.to_owned());
    request.extensions_mut().insert(user);
    Ok(next.run(request).await)
}

/// Numbers for a metrics page.
#[derive(Default)]
struct Counters {
    rejected: AtomicU64,
    faults: AtomicU64,
}

impl Observer for Counters {
    fn rejected(&self, _: &Rejected<'_>) {
        self.rejected.fetch_add(1, Relaxed);
    }

    fn fault(&self, _: &SetupFault) {
        self.faults.fetch_add(1, Relaxed);
    }
}

/// A refusal in JSON of our own. Status, `Retry-After` and `Cache-Control` are added by the layer.
fn in_our_words() -> RejectionPolicy {
    RejectionPolicy::respond_with(|rejection, _| {
        let rules: Vec<_> = rejection.rules().iter().map(|said| said.rule().to_owned()).collect();
        Json(BTreeMap::from([("refused_by", rules)]))
    })
}

/// The service, and a page to look at its limits and to change them.
fn service(
    clock: impl Clock + Clone,
    counters: &Arc<Counters>,
) -> Result<(Router, Router), ConfigError> {
    // Outside of authentication, so that guessing tokens is limited too. An address may be a whole
    // office: its limit is wide. Our proxy stands in 10.0.0.0/8 and appends to X-Forwarded-For.
    let address = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.0/8"]);
    let addresses = RateLimitLayer::builder()
        .rule(Rule::new("per-address", TokenBucket::per_second(50).burst(100)).key(address))
        .exempt(|head| head.path() == "/healthz")
        .rejection(in_our_words())
        .observer(counters.clone())
        .clock(clock.clone())
        .build()?;

    // Inside of authentication, which gives the key. Both rules charge a request, or neither does.
    let writes = Rule::new("writes", TokenBucket::per_second(500));
    let users = RateLimitLayer::builder()
        .rule(writes.when(|head| head.method() == Method::POST))
        .rule(
            Rule::new("per-user", TokenBucket::per_second(1).burst(3))
                .key(key::extension(|user: &User| Key::from(&user.0)))
                .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)),
        )
        .rejection(in_our_words())
        .observer(counters.clone())
        .clock(clock)
        .build()?;

    let admin = Router::new()
        .route("/limits/{rule}", put(set_limit))
        .route("/limits/{rule}/{user}", get(left))
        .with_state(users.handle());

    let orders = Router::new()
        .route("/orders", get(|| async { "your orders" }).post(|| async { "order taken" }))
        .layer(users)
        .layer(middleware::from_fn(authenticate));
    // CORS is added last and so stands outside: a browser's script may read refusals too.
    let cors = CorsLayer::new().allow_origin(Any).expose_headers(exposed_headers());
    let app = Router::new()
        .merge(orders)
        .route("/healthz", get(|| async { "ok" }))
        .layer(addresses)
        .layer(cors);
    Ok((app, admin))
}

/// What an admin is told of a mistake; no rule here has a backend that could be away.
fn mistake(error: &HandleError) -> (StatusCode, String) {
    let unknown = matches!(error, HandleError::NoSuchRule(_));
    (if unknown { StatusCode::NOT_FOUND } else { StatusCode::BAD_REQUEST }, error.to_string())
}

async fn left(
    State(handle): State<Handle>,
    Path((rule, user)): Path<(String, String)>,
) -> Result<String, (StatusCode, String)> {
    let decision = handle.peek(&rule, &user, 1).await.map_err(|error| mistake(&error))?;
    Ok(format!("{} of {}", decision.remaining(), decision.limit()))
}

/// The body is a quota as text: `100/s burst 150`.
async fn set_limit(
    State(handle): State<Handle>,
    Path(rule): Path<String>,
    quota: String,
) -> Result<(), (StatusCode, String)> {
    let quota: Quota = quota.parse().map_err(|error| mistake(&HandleError::Config(error)))?;
    handle.set_limit(&rule, quota).map_err(|error| mistake(&error))
}

/// The status of a request through the proxy at 10.0.0.1.
async fn ask(app: &Router, [method, path, token]: [&str; 3], body: &'static str) -> u16 {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .header("x-forwarded-for", "192.0.2.7")
        .extension(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
    let answer = app.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    answer.status().as_u16()
}

/// Demands of the service what this page says of it.
async fn check() -> Result<(), Box<dyn std::error::Error>> {
    let (clock, counters) = (ManualClock::new(), Arc::new(Counters::default()));
    let (app, admin) = service(clock.clone(), &counters)?;
    for expected in [200, 200, 200, 429] {
        assert_eq!(ask(&app, ["POST", "/orders", "token-alice"], "").await, expected);
    }
    assert_eq!(ask(&app, ["GET", "/orders", "token-alice"], "").await, 429);
    assert_eq!(ask(&app, ["GET", "/orders", "token-bob"], "").await, 200);
    clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&app, ["GET", "/orders", "token-alice"], "").await, 200);

    // Whoever guesses tokens is limited by his address: of its 100, what was spent came back but one.
    for guess in 0..100 {
        let status = ask(&app, ["GET", "/orders", &format!("guess-{guess}")], "").await;
        assert_eq!(status, if guess < 99 { 401 } else { 429 });
    }
    assert_eq!(ask(&app, ["GET", "/healthz", ""], "").await, 200);
    assert_eq!(ask(&admin, ["GET", "/limits/per-user/bob", ""], "").await, 200);
    assert_eq!(ask(&admin, ["PUT", "/limits/per-user", ""], "5/s burst 9").await, 200);
    assert_eq!(ask(&admin, ["PUT", "/limits/per-user", ""], "many").await, 400);
    assert_eq!(ask(&admin, ["GET", "/limits/nobodys/bob", ""], "").await, 404);
    assert_eq!((counters.rejected.load(Relaxed), counters.faults.load(Relaxed)), (3, 0));
    println!("served, refused, degraded, exempt, and changed by its admin page: as it should be");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().any(|argument| argument == "--check") {
        return check().await;
    }
    let (app, admin) = service(FastClock::new(), &Arc::default())?;
    let public = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let private = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!(
        "curl -i -H 'authorization: Bearer token-alice' http://{}/orders",
        public.local_addr()?
    );
    println!("curl -i http://{}/limits/per-user/alice", private.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::try_join!(axum::serve(public, app), axum::serve(private, admin))?;
    Ok(())
}
