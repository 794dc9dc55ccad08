//! Keys of your own: by tenant from the host name, by the public part of an API key, and both together.
//!
//! `cargo run --example custom_key` checks what it says.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use std::collections::HashMap;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::get,
};
use tower::ServiceExt;
use tower_sluice::{
    ConfigError, FixedWindow, Head, Key, ManualClock, Missing, RateLimitLayer, Rule, RuleKey, key,
};

/// The tenant's name in `acme.example.com`. HTTP/2 has the host in the URI, HTTP/1.1 in a header.
fn subdomain<'a>(head: &Head<'a>) -> Option<&'a str> {
    let host = head.uri().host().or_else(|| head.header_str("host"))?;
    host.split_once('.').map(|(name, _)| name)
}

/// What stands before the dot in `Bearer k1.secret`: it names the key, and is no secret.
fn key_name<'a>(head: &Head<'a>) -> Option<&'a str> {
    let token = head.header_str("authorization")?.strip_prefix("Bearer ")?;
    token.split_once('.').map(|(name, _)| name)
}

/// Host and key are the caller's word. In a real service authentication has checked both, outside of this
/// layer, so that nobody spends what is another's.
fn limits() -> Result<RateLimitLayer, ConfigError> {
    // Computed, so owned: a host may be written in capitals, and a name that is no tenant's is no key. Whoever
    // invents names would else have a count for each.
    let tenants = HashMap::from([("acme".to_owned(), 1_u64), ("globex".to_owned(), 2)]);
    let tenant =
        key::from_owned(move |head| tenants.get(&subdomain(head)?.to_ascii_lowercase()).copied());

    // A piece of the request, so borrowed: nothing is copied.
    let api_key = key::from_fn(|head| key_name(head).map(Key::from));

    RateLimitLayer::builder()
        // `or`: requests without a tenant count by address.
        .rule(
            Rule::new("per-tenant", FixedWindow::per_minute(5))
                .key(tenant.clone().or(key::client_ip())),
        )
        // `and`: a key's name may occur with two tenants, so only the pair says whose it is. Without one of the
        // two the pair is missing, and the rule does not apply.
        .rule(
            Rule::new("per-api-key", FixedWindow::per_minute(2))
                .key(tenant.and(api_key))
                .missing(Missing::Skip),
        )
        .clock(ManualClock::new()) // stands still, so that the numbers below are exact
        .build()
}

async fn ask(app: &Router, host: &str, token: &str) -> StatusCode {
    let request = Request::get("/")
        .header("host", host)
        .header("authorization", token)
        .extension(std::net::SocketAddr::from(([192, 0, 2, 7], 4711)));
    let Ok(answer) = app.clone().oneshot(request.body(Body::empty()).unwrap()).await;
    answer.status()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = limits()?;
    let handle = limits.handle();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limits);

    // Two for each key, whatever its secret, and five for the tenant with all keys.
    assert_eq!(ask(&app, "acme.example.com", "Bearer k1.s3cret").await, 200);
    assert_eq!(ask(&app, "ACME.example.com", "Bearer k1.other").await, 200);
    assert_eq!(ask(&app, "acme.example.com", "Bearer k1.s3cret").await, 429);
    assert_eq!(ask(&app, "acme.example.com", "Bearer k2.s3cret").await, 200);

    // Another tenant's key of the same name is another key.
    assert_eq!(ask(&app, "globex.example.com", "Bearer k1.s3cret").await, 200);

    // Without a key only the tenant is charged, and then it is spent, for all of its keys.
    assert_eq!(ask(&app, "acme.example.com", "").await, 200);
    assert_eq!(ask(&app, "acme.example.com", "").await, 200);
    assert_eq!(ask(&app, "acme.example.com", "Bearer k3.s3cret").await, 429);

    // Names that are no tenant's are one address together, so that inventing them gives nothing.
    for (name, expected) in [("a", 200), ("b", 200), ("c", 200), ("d", 200), ("e", 200), ("f", 429)]
    {
        assert_eq!(ask(&app, &format!("{name}.example.com"), "").await, expected);
    }

    // A handle is told of such keys by their parts.
    let pair = RuleKey::parts([Key::from(1_u64), Key::from("k2")]);
    assert_eq!(handle.peek("per-api-key", pair, 1).await?.remaining(), 1);
    assert_eq!(handle.peek("per-tenant", 2_u64, 1).await?.remaining(), 4);

    println!("two requests for each API key, five for each tenant, five for all who are no tenant");
    Ok(())
}
