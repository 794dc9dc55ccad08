//! Health checks and metrics are served while everything else is refused.
//!
//! `cargo run --example health_checks` checks what it says.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::get,
};
use tower::ServiceExt;
use tower_sluice::{
    ConfigError, FixedWindow, InFlight, ManualClock, RateLimitLayer, Rule, matcher,
};

const SCRAPER: [u8; 4] = [10, 0, 0, 9];
const STRANGER: [u8; 4] = [203, 0, 113, 9];

fn limits(database: &InFlight) -> Result<RateLimitLayer, ConfigError> {
    // From anywhere, so the handler has to be cheap. A check that is refused looks like an outage: whoever
    // watches would restart a service that is merely busy.
    let health = matcher::path("/healthz");
    // Only from our own network. That is the address that connects; no header changes it.
    let metrics = matcher::path("/metrics").and(matcher::network(["10.0.0.0/8"]));

    RateLimitLayer::builder()
        .rule(Rule::new("api", FixedWindow::per_minute(1)))
        .in_flight(database.clone())
        .exempt_matching(health.or(metrics))
        .clock(ManualClock::new()) // stands still, so that the numbers below are exact
        .build()
}

async fn ask(app: &Router, path: &str, address: [u8; 4]) -> StatusCode {
    let request = Request::get(path).extension(SocketAddr::from((address, 4711)));
    let Ok(answer) = app.clone().oneshot(request.body(Body::empty()).unwrap()).await;
    answer.status()
}

/// What an orchestrator and a scraper see while the API is in trouble; and somebody else does not.
async fn watchers_are_served(app: &Router, trouble: StatusCode) {
    for _ in 0..100 {
        assert_eq!(ask(app, "/healthz", STRANGER).await, 200);
        assert_eq!(ask(app, "/metrics", SCRAPER).await, 200);
    }
    assert_eq!(ask(app, "/metrics", STRANGER).await, trouble);
    // Being one of us does not help at the API: only the metrics are exempt.
    assert_eq!(ask(app, "/orders", SCRAPER).await, trouble);
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = InFlight::new("database", 1);
    let limits = limits(&database)?;
    let handle = limits.handle();
    let app = Router::new()
        .route("/orders", get(|| async { "orders" }))
        .route("/healthz", get(|| async { "ok" }))
        .route("/metrics", get(|| async { "requests 1" }))
        .layer(limits); // inside the router, where routes can be seen, and after all of them

    // Saturated: as many are in flight as may be.
    let under_way = database.try_acquire().expect("nothing is in flight");
    watchers_are_served(&app, StatusCode::SERVICE_UNAVAILABLE).await;
    drop(under_way);

    // All of that has charged nothing, so the one request of this minute is still there.
    assert_eq!(handle.peek("api", (), 1).await?.remaining(), 1);
    assert_eq!(ask(&app, "/orders", STRANGER).await, 200);

    // Exhausted: the quota is spent.
    watchers_are_served(&app, StatusCode::TOO_MANY_REQUESTS).await;

    println!("400 health checks and scrapes were served while the API answered 503 and 429");
    Ok(())
}
