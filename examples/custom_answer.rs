//! Refusals in the service's own JSON, with other words for each reason.
//!
//! `cargo run --example custom_answer` checks what it says.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, header::WWW_AUTHENTICATE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use tower::ServiceExt;
use tower_sluice::{
    ConfigError, FixedWindow, Head, InFlight, ManualClock, Missing, RateLimitLayer, Rejection,
    RejectionPolicy, Rule, event::Reason, key,
};

/// The body that all errors of this service have.
#[derive(Serialize)]
struct Problem {
    error: &'static str,
    path: String,
    again_in: Option<u64>,
}

/// Status, `Retry-After` and `Cache-Control` are the layer's business: it adds what is absent here.
fn in_our_words(rejection: &Rejection, head: &Head<'_>) -> Response {
    let error = match rejection.reason() {
        Reason::Quota => "your quota is spent",
        Reason::Never => "nobody may have so many rows",
        Reason::MissingKey => "say who you are",
        Reason::InFlight => "too many exports are running",
        _ => "not now", // there may be other reasons one day
    };
    let path = head.path().to_owned();
    let body = Json(Problem { error, path, again_in: rejection.retry_after_secs() });
    match rejection.reason() {
        // A field of our own.
        Reason::MissingKey => ([(WWW_AUTHENTICATE, "Bearer")], body).into_response(),
        // A status of our own, in place of 429: to come again would not help.
        Reason::Never => (StatusCode::UNPROCESSABLE_ENTITY, body).into_response(),
        _ => body.into_response(),
    }
}

fn rows(head: &Head<'_>) -> Option<u64> {
    head.uri().query()?.strip_prefix("rows=")?.parse().ok()
}

fn limits(exports: &InFlight) -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .rule(
            Rule::new("rows", FixedWindow::per_hour(100))
                .cost_fn(|head| rows(head).unwrap_or(1).max(1)) // no request is free
                .key(key::header("x-user")) // stands for what authentication says
                .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)),
        )
        .in_flight(exports.clone())
        .rejection(RejectionPolicy::respond_with(in_our_words))
        .clock(ManualClock::new()) // stands still, so that the numbers below are exact
        .build()
}

type Answer = (u16, Option<String>, String);

/// The status, one header if it is there, and the body.
async fn ask(app: &Router, (user, path): (&str, &str), header: &str) -> Answer {
    let request = Request::get(path).header("x-user", user).body(Body::empty()).unwrap();
    let Ok(answer) = app.clone().oneshot(request).await;
    let (head, body) = answer.into_parts();
    let header = head.headers.get(header).map(|value| value.to_str().unwrap().to_owned());
    let body = to_bytes(body, 1_000).await.unwrap();
    (head.status.as_u16(), header, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exports = InFlight::new("exports", 1).spread(false);
    let app = Router::new().route("/export", get(|| async { "the rows" })).layer(limits(&exports)?);
    let some = |text: &str| Some(text.to_owned());

    let served = ask(&app, ("alice", "/export?rows=60"), "retry-after").await;
    assert_eq!(served, (200, None, "the rows".to_owned()));

    // The status is the limit's, 429, and Retry-After is there.
    let spent = ask(&app, ("alice", "/export?rows=60"), "retry-after").await;
    let body = r#"{"error":"your quota is spent","path":"/export","again_in":3600}"#;
    assert_eq!(spent, (429, some("3600"), body.to_owned()));

    // What can never pass is not told to come again.
    let never = ask(&app, ("alice", "/export?rows=101"), "retry-after").await;
    let body = r#"{"error":"nobody may have so many rows","path":"/export","again_in":null}"#;
    assert_eq!(never, (422, None, body.to_owned()));

    // Nobody in particular.
    let nobody = ask(&app, ("", "/export"), "www-authenticate").await;
    let body = r#"{"error":"say who you are","path":"/export","again_in":null}"#;
    assert_eq!(nobody, (401, some("Bearer"), body.to_owned()));

    // The service is busy, which is not the caller's fault: 503.
    let _running = exports.try_acquire().expect("none is running");
    let busy = ask(&app, ("bob", "/export"), "retry-after").await;
    let body = r#"{"error":"too many exports are running","path":"/export","again_in":1}"#;
    assert_eq!(busy, (503, some("1"), body.to_owned()));
    println!("{} with {}\n{} with {}", spent.0, spent.2, busy.0, busy.2);
    Ok(())
}
