//! The client's address behind proxies that you name: what they wrote counts, what a client writes does not.
//!
//! `cargo run --example behind_proxy` checks what it says.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use std::net::{AddrParseError, IpAddr, SocketAddr};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
    routing::get,
};
use tower::ServiceExt;
use tower_sluice::{ConfigError, FixedWindow, ManualClock, RateLimitLayer, Rule, RuleKey, key};

fn limits() -> Result<RateLimitLayer, ConfigError> {
    // Our proxies stand in these networks, nobody else does, and each appends whom it hears to the header.
    let address = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.0/8", "fd00::/8"]);
    RateLimitLayer::builder()
        .rule(Rule::new("per-address", FixedWindow::per_minute(2)).key(address))
        .clock(ManualClock::new()) // stands still, so that the numbers below are exact
        .build()
}

/// What a request meets that connects from `peer` and says it is forwarded for somebody.
async fn ask(app: &Router, peer: &str, forwarded_for: &str) -> Result<StatusCode, AddrParseError> {
    // A server puts the peer here: `into_make_service_with_connect_info::<SocketAddr>()`.
    let peer = SocketAddr::new(peer.parse()?, 4711);
    let request = Request::get("/")
        .header("x-forwarded-for", forwarded_for)
        .extension(ConnectInfo(peer))
        .body(Body::empty())
        .unwrap();
    let Ok(answer) = app.clone().oneshot(request).await;
    Ok(answer.status())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = limits()?;
    let handle = limits.handle();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limits);

    // All come from our proxy, and each client has a count of its own.
    assert_eq!(ask(&app, "10.0.0.1", "192.0.2.7").await?, 200);
    assert_eq!(ask(&app, "10.0.0.1", "192.0.2.7").await?, 200);
    assert_eq!(ask(&app, "10.0.0.1", "192.0.2.7").await?, 429);
    assert_eq!(ask(&app, "10.0.0.1", "192.0.2.8").await?, 200);

    // What the client wrote himself stands to the left of what our proxy appended, and is not read. Nor does
    // it help to come by two proxies of ours.
    assert_eq!(ask(&app, "10.0.0.1", "198.51.100.1, 192.0.2.7").await?, 429);
    assert_eq!(ask(&app, "10.0.0.1", "10.9.9.9, 192.0.2.7").await?, 429);
    assert_eq!(ask(&app, "10.0.0.1", "198.51.100.2, 192.0.2.7, 10.0.0.2").await?, 429);

    // Who finds a way around the proxies is counted by his own address, whatever he writes.
    assert_eq!(ask(&app, "203.0.113.9", "198.51.100.3").await?, 200);
    assert_eq!(ask(&app, "203.0.113.9", "198.51.100.4").await?, 200);
    assert_eq!(ask(&app, "203.0.113.9", "10.0.0.1").await?, 429);
    // And he spends nothing of those whom he names.
    let named: IpAddr = "198.51.100.3".parse()?;
    assert_eq!(handle.peek("per-address", RuleKey::address(named), 1).await?.remaining(), 2);

    // Who has one IPv6 address has at least a /64 of them, so that is what counts.
    assert_eq!(ask(&app, "fd00::1", "2001:db8:0:1::1").await?, 200);
    assert_eq!(ask(&app, "fd00::1", "2001:db8:0:1::2").await?, 200);
    assert_eq!(ask(&app, "fd00::1", "2001:db8:0:1:ffff::3").await?, 429);
    assert_eq!(ask(&app, "fd00::1", "2001:db8:0:2::1").await?, 200);

    println!(
        "each client behind the proxy had two requests, and forged headers gave nobody a third"
    );
    println!("an IPv6 client had two for his whole /64");
    Ok(())
}
