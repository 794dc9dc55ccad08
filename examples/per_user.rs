//! A limit per user with a JSON answer of one's own, and the tests that prove it: the README's first program.
//!
//! `cargo run --example per_user` serves it; `cargo test --example per_user` runs its tests.

use axum::{Json, Router, http::StatusCode, routing::get};
use serde_json::json;
use tower_sluice::{
    ConfigError, Missing, RateLimitLayer, RejectionPolicy, Rule, TokenBucket,
    clock::{Clock, FastClock},
    key,
};

fn app(clock: impl Clock) -> Result<Router, ConfigError> {
    // Ten requests a second for each user, and up to twenty at once after a pause.
    let per_user = Rule::new("per-user", TokenBucket::per_second(10).burst(20))
        .key(key::header("x-user-id"))
        .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)); // who does not say who he is
    let limit = RateLimitLayer::builder()
        .rule(per_user)
        // The status, 429 here, and Retry-After are added to it.
        .rejection(RejectionPolicy::respond_with(|rejection, _head| {
            let seconds = rejection.retry_after_secs();
            Json(json!({ "error": rejection.reason().as_str(), "again_in_seconds": seconds }))
        }))
        .clock(clock)
        .build()?;
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app(FastClock::new())?).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use std::time::Duration;
    use tower::ServiceExt; // for `oneshot`
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
        let refused = app.oneshot(request("alice")).await.unwrap();
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "1");
        let body = axum::body::to_bytes(refused.into_body(), 1_000).await.unwrap();
        assert_eq!(body, r#"{"again_in_seconds":1,"error":"quota"}"#);
    }
}
