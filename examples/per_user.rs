//! A limit per user with a JSON answer of one's own, and the tests that prove it: the README's first program.
//!
//! `cargo run --example per_user` serves it; `cargo test --example per_user` runs its tests.

use axum::{Json, Router, http::StatusCode, routing::get};
use serde_json::json;
use tower_sluice::{
    ConfigError, Missing, RateLimitLayer, RejectionPolicy, Rule, TokenBucket,
    clock::{Clock, FastClock},
    event::Reason,
    key,
};

fn app(clock: impl Clock) -> Result<Router, ConfigError> {
    // Ten requests a second for each user. Up to twenty at once after a pause; without `burst`, ten.
    let per_user = Rule::new("per-user", TokenBucket::per_second(10).burst(20))
        .key(key::header("x-user-id")) // which a gateway sets; behind your own authentication see below
        .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)); // requests without that header
    let limit = RateLimitLayer::builder()
        .rule(per_user)
        // The body of a refusal. Its status, 429 or 401 here, and Retry-After are added.
        .rejection(RejectionPolicy::respond_with(|rejection, _head| {
            let error = match rejection.reason() {
                Reason::Quota | Reason::Never => "too many requests",
                Reason::MissingKey => "say who you are",
                _ => "busy", // an in-flight limit; or `Reason::Backend`, a store that is away: 503
            };
            // None where waiting does not help.
            let again_in = rejection.retry_after_secs();
            Json(json!({ "error": error, "again_in_seconds": again_in }))
        }))
        .clock(clock) // only so that tests can bring their own
        .build()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Mistakes in the set-up are logged as warnings: SL-PEER, SL-PROXY, ..
    tracing_subscriber::fmt::init();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app(FastClock::new())?).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use std::time::Duration;
    use tower::ServiceExt; // for `oneshot`, which sends one request
    use tower_sluice::{ManualClock, testing::admitted};

    fn request(user: &str) -> Request<Body> {
        Request::get("/").header("x-user-id", user).body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn the_limit_refuses() {
        let clock = ManualClock::new(); // stands still until it is moved
        let app = super::app(clock.clone()).unwrap();
        assert_eq!(admitted(&app, 25, || request("alice")).await, 20);
        assert_eq!(admitted(&app, 25, || request("bob")).await, 20);
        clock.advance(Duration::from_secs(1));
        assert_eq!(admitted(&app, 25, || request("alice")).await, 10);
    }

    #[tokio::test]
    async fn a_refusal_is_json() {
        let app = super::app(ManualClock::new()).unwrap();
        admitted(&app, 20, || request("alice")).await;
        let refused = app.clone().oneshot(request("alice")).await.unwrap();
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "1");
        let body = axum::body::to_bytes(refused.into_body(), 1_000).await.unwrap();
        assert_eq!(body, r#"{"again_in_seconds":1,"error":"too many requests"}"#);
    }

    #[tokio::test]
    async fn a_missing_user_is_a_401() {
        let app = super::app(ManualClock::new()).unwrap();
        let refused = app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(refused.status(), 401);
        let body = axum::body::to_bytes(refused.into_body(), 1_000).await.unwrap();
        assert_eq!(body, r#"{"again_in_seconds":null,"error":"say who you are"}"#);
    }
}
