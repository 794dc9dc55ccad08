//! Answers that are not refusals: a list from the cache; the cache, else a short wait, else a refusal; and
//! writes that are taken for later.
//!
//! `cargo run --example degraded` tries all of it and checks what comes.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(clippy::disallowed_methods, reason = "handlers of a service sleep as they like")]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Path, State},
    http::{Request, StatusCode},
    response::IntoResponse,
    routing::{get, post},
};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_sluice::{
    ConfigError, Decline, FixedWindow, InFlight, RateLimitLayer, Rejection, RejectionPolicy, Rule,
};

/// What the database last said, and writes that wait for it.
#[derive(Clone, Default)]
struct Store {
    list: Arc<Mutex<Option<String>>>,
    deferred: Arc<Mutex<Vec<String>>>,
}

/// The fresh list: slow, and kept for those who come while it is being read.
async fn list(State(store): State<Store>) -> String {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let list = "1, 2, 3".to_owned();
    *store.list.lock().unwrap_or_else(PoisonError::into_inner) = Some(list.clone());
    list
}

/// The list as it was, where there is one.
async fn cached(
    State(store): State<Store>,
    Extension(rejection): Extension<Rejection>,
) -> Result<impl IntoResponse, Decline> {
    let list = store.list.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let list = list.ok_or(Decline)?;
    Ok(([("x-degraded", rejection.reason().as_str())], list))
}

async fn write() -> StatusCode {
    StatusCode::CREATED
}

/// Taken for later. It has the body, and what the route says.
async fn defer(
    State(store): State<Store>,
    Path(user): Path<String>,
    note: String,
) -> (StatusCode, &'static str) {
    let mut deferred = store.deferred.lock().unwrap_or_else(PoisonError::into_inner);
    deferred.push(format!("{user}: {note}"));
    (StatusCode::ACCEPTED, "will be written soon")
}

fn app(store: &Store) -> Result<Router, ConfigError> {
    // One read at a time. When one is under way the cached list is better than an error; where there is none
    // yet, a short wait is better than a retry; and what does not fit then is refused.
    let reads = RateLimitLayer::builder()
        .in_flight(InFlight::new("database", 1))
        .rejection(
            RejectionPolicy::degrade_with_state(store.clone(), cached)
                .max_degraded(100)
                .or(RejectionPolicy::queue(Duration::from_secs(1), 1)),
        )
        .build()?;

    // Two writes an hour; the others are taken for later.
    let writes = RateLimitLayer::builder()
        .rule(Rule::new("writes", FixedWindow::per_hour(2)))
        .rejection(RejectionPolicy::degrade_with_state(store.clone(), defer).taking_body())
        .build()?;

    Ok(Router::new()
        .route("/list", get(list).layer(reads))
        .route("/notes/{user}", post(write).layer(writes))
        .with_state(store.clone()))
}

/// The status, whether the answer is degraded, and the body.
async fn ask(app: &Router, request: Request<Body>) -> (u16, bool, String) {
    let Ok(answer) = app.clone().oneshot(request).await;
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let degraded = head.headers.contains_key("x-degraded");
    (head.status.as_u16(), degraded, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::default();
    let app = app(&store)?;
    let read = || ask(&app, Request::get("/list").body(Body::empty()).unwrap());

    // Three at once, and nothing in the cache: one reads, one waits for it, one is refused.
    let (first, second, third) = tokio::join!(read(), read(), read());
    assert_eq!((first.0, first.1), (200, false));
    assert_eq!((second.0, second.1), (200, false));
    assert_eq!((third.0, third.1), (503, false));
    // From now on there is something in the cache.
    let (first, second, third) = tokio::join!(read(), read(), read());
    assert_eq!(first, (200, false, "1, 2, 3".to_owned()));
    assert_eq!(second, (200, true, "1, 2, 3".to_owned()));
    assert_eq!(third, second);

    let note = |text: &'static str| {
        ask(&app, Request::post("/notes/alice").body(Body::from(text)).unwrap())
    };
    assert_eq!((note("one").await.0, note("two").await.0, note("three").await.0), (201, 201, 202));
    assert_eq!(*store.deferred.lock().unwrap(), ["alice: three"]);
    println!(
        "reads, three at once: fresh, waited, refused; then from the cache: fresh, cached, cached"
    );
    println!("writes, two an hour: 201, 201, and 202 for the one taken for later");
    Ok(())
}
