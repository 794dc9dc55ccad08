//! Several rules in one layer: a request is charged by all that apply, or by none.
//!
//! `cargo run --example several_rules` checks what it says.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::Response,
    routing::get,
};
use tower::ServiceExt;
use tower_sluice::{
    ConfigError, FixedWindow, Handle, HandleError, ManualClock, Missing, RateLimitLayer, Rejection,
    Rule, RuleKey, key,
};

/// Five a minute in all, three an hour for each user, four a day for each address.
fn limits(clock: ManualClock) -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .rule(Rule::new("all", FixedWindow::per_minute(5)).spread(false))
        .rule(
            Rule::new("per-user", FixedWindow::per_hour(3))
                .key(key::header("x-user")) // stands for what authentication says
                .missing(Missing::Skip),
        )
        .rule(Rule::new("per-address", FixedWindow::per_day(4)).key(key::client_ip()))
        .expose_rejection() // so that this page can see which rules refused
        .clock(clock)
        .build()
}

async fn ask(app: &Router, user: &str, address: [u8; 4]) -> Response {
    let peer = std::net::SocketAddr::from((address, 4711));
    let request = Request::get("/").header("x-user", user).extension(peer);
    let Ok(answer) = app.clone().oneshot(request.body(Body::empty()).unwrap()).await;
    answer
}

/// Which rules refused, and how many seconds to wait.
fn refusal(answer: &Response) -> (Vec<&str>, &str) {
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    let rejection: &Rejection = answer.extensions().get().unwrap();
    let rules = rejection.rules().iter().map(|said| said.rule()).collect();
    (rules, answer.headers()["retry-after"].to_str().unwrap())
}

/// What is left of the three limits, for this user at this address.
async fn left(handle: &Handle, user: &str, address: [u8; 4]) -> Result<[u64; 3], HandleError> {
    Ok([
        handle.peek("all", (), 1).await?.remaining(),
        handle.peek("per-user", user, 1).await?.remaining(),
        handle.peek("per-address", RuleKey::address(address.into()), 1).await?.remaining(),
    ])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new(); // stands still unless it is moved, so that the numbers are exact
    let limits = limits(clock.clone())?;
    let handle = limits.handle();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limits);
    let (office, home) = ([192, 0, 2, 1], [192, 0, 2, 2]);

    // One request, three charges.
    assert_eq!(ask(&app, "alice", office).await.status(), 200);
    assert_eq!(left(&handle, "alice", office).await?, [4, 2, 3]);
    assert_eq!(ask(&app, "alice", office).await.status(), 200);
    assert_eq!(ask(&app, "alice", office).await.status(), 200);

    // Her own limit refuses her. That costs nothing: neither all nor her colleagues pay for it.
    let refused = ask(&app, "alice", office).await;
    assert_eq!(refusal(&refused), (vec!["per-user"], "3600"));
    assert_eq!(left(&handle, "alice", office).await?, [2, 0, 1]);

    // A colleague takes what is left of the address, and two limits refuse her: she is told the longest wait,
    // since at the shorter one she would be refused again.
    assert_eq!(ask(&app, "bob", office).await.status(), 200);
    let refused = ask(&app, "alice", office).await;
    assert_eq!(refusal(&refused), (vec!["per-user", "per-address"], "86400"));
    println!("alice is refused by her own limit and by that of the office: again in 86400 s");

    // The limit on everything refuses who has spent nothing, and he still has all three of his own after it.
    assert_eq!(ask(&app, "carol", home).await.status(), 200);
    let refused = ask(&app, "dave", home).await;
    assert_eq!(refusal(&refused), (vec!["all"], "60"));
    assert_eq!(left(&handle, "dave", home).await?, [0, 3, 3]);

    // He comes when he was told to.
    clock.advance(Duration::from_secs(60));
    assert_eq!(ask(&app, "dave", home).await.status(), 200);
    assert_eq!(left(&handle, "dave", home).await?, [4, 2, 2]);
    println!("dave is refused by the limit on all, which costs him nothing, and passes 60 s later");
    Ok(())
}
