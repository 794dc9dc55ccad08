//! Per-user limits by plan: authentication says who calls and what he pays for, the rule picks the quota.
//!
//! `cargo run --example tiers` tries it and checks what comes.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tower::ServiceExt;
use tower_sluice::{
    ConfigError, Key, ManualClock, Missing, RateLimitLayer, Rule, RuleKey, TokenBucket, key,
};

/// Who calls. Only authentication makes one, so nobody chooses his plan.
#[derive(Clone)]
struct Customer {
    id: u64,
    plan: &'static str,
}

/// A session store would be asked here.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|token| token.to_str().ok());
    let customer = match token {
        Some("Bearer alice") => Customer { id: 1, plan: "free" },
        Some("Bearer bob") => Customer { id: 2, plan: "pro" },
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(customer);
    next.run(request).await
}

fn limits() -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .rule(
            Rule::new("per-user", TokenBucket::per_second(10).burst(20)) // who is in no tier
                .key(key::extension(|customer: &Customer| Key::from(customer.id)))
                .missing(Missing::Skip)
                .tier("pro", TokenBucket::per_second(100).burst(200))
                .tier("partner", TokenBucket::per_second(1_000))
                .tiers(|head| match head.extension::<Customer>()?.plan {
                    "free" => None,
                    // A plan that the rule was not told of counts as none, and SL-TIER says so.
                    plan => Some(plan),
                }),
        )
        .clock(ManualClock::new()) // stands still, so that the numbers below are exact
        .build()
}

/// How many of 500 requests at once pass.
async fn flood(app: &Router, token: &str) -> usize {
    let mut passed = 0;
    for _ in 0..500 {
        let request = Request::get("/").header("authorization", token).body(Body::empty()).unwrap();
        let Ok(answer) = app.clone().oneshot(request).await;
        passed += usize::from(answer.status() == StatusCode::OK);
    }
    passed
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = limits()?;
    let handle = limits.handle();
    // The layer that is added last is the outermost: authentication comes first.
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limits)
        .layer(middleware::from_fn(authenticate));

    let (alice, bob) = (flood(&app, "Bearer alice").await, flood(&app, "Bearer bob").await);
    assert_eq!((alice, bob), (20, 200));

    // Each tier has a count of its own, and a limit that can be changed while it serves.
    let pro = || RuleKey::from(2_u64).tier("pro");
    assert_eq!(handle.peek("per-user", pro(), 1).await?.remaining(), 0);
    handle.reset("per-user", pro()).await?;
    handle.set_tier_limit("per-user", "pro", TokenBucket::per_second(50))?;
    let again = flood(&app, "Bearer bob").await;
    assert_eq!(again, 50);

    println!(
        "of 500 at once {alice} by alice passed, who is on the free plan, and {bob} by bob, who pays"
    );
    println!("with the limit of his plan set to 50, {again} of another 500 did");
    Ok(())
}
