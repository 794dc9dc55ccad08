//! What the limits decided, as handlers see it.

use axum::{Router, body::to_bytes, routing::get as at};
use http::StatusCode;
use tower::ServiceExt;
use tower_sluice::{
    Decisions, FixedWindow, ManualClock, NotExposed, RateLimitLayer, Rejection, RejectionPolicy,
    Rule,
};

use crate::support::get;

async fn body(app: &Router) -> (StatusCode, String) {
    let answer = app.clone().oneshot(get("alice")).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn layer(expose: bool) -> RateLimitLayer {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("daily", FixedWindow::per_day(2)))
        .rejection(RejectionPolicy::degrade(degraded))
        .clock(ManualClock::new());
    if expose { layer.expose_decision().build().unwrap() } else { layer.build().unwrap() }
}

async fn degraded(rejection: Rejection, again: Option<Rejection>) -> String {
    assert!(again.is_some());
    format!("{}: {:?}", rejection.reason().as_str(), rejection.retry_after_secs().is_some())
}

async fn left(decisions: Decisions) -> String {
    assert!(decisions.of("hourly").is_none());
    format!("{} left", decisions.of("daily").unwrap().remaining())
}

async fn perhaps(decisions: Option<Decisions>, rejection: Option<Rejection>) -> String {
    format!("{} {}", decisions.is_some(), rejection.is_some())
}

#[tokio::test]
async fn handlers_extract_decisions_and_rejections() {
    let app = Router::new().route("/", at(left)).layer(layer(true));
    assert_eq!(body(&app).await.1, "1 left");
    assert_eq!(body(&app).await.1, "0 left");
    assert_eq!(body(&app).await, (StatusCode::OK, "quota: true".to_owned()));
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let app = Router::new().route("/", at(left)).layer(layer(false));
    let (status, text) = body(&app).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains(".expose_decision()"), "{text}");

    let app = Router::new().route("/", at(async |_: Rejection| {}));
    let (status, text) = body(&app).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains("RejectionPolicy::degrade"), "{text}");

    let app = Router::new().route("/", at(perhaps));
    assert_eq!(body(&app).await.1, "false false");

    async fn told(decisions: Result<Decisions, NotExposed>) -> String {
        decisions.unwrap_err().to_string()
    }
    let app = Router::new().route("/", at(told));
    assert!(body(&app).await.1.starts_with("the request has no `Decisions`"));
}
