//! A service whose writes are limited in all, per user and per address.
//!
//! `cargo run --example quickstart`, then try the commands it prints.

#![allow(clippy::print_stdout, reason = "it tells what to try")]

use std::net::SocketAddr;

use axum::{Router, routing::post};
use tower_sluice::{Missing, RateLimitLayer, Rule, TokenBucket, key};

async fn create_order() -> &'static str {
    "order taken\n"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Writes: 500/s in all, 10/s per user, and ten times that per address, which may be a whole office.
    // What does not fit gets a 429 with Retry-After.
    let writes = RateLimitLayer::builder()
        .rule(Rule::new("orders", TokenBucket::per_second(500).burst(750)))
        .rule(
            Rule::new("per-user", TokenBucket::per_second(10).burst(20))
                .key(key::header("x-user-id"))
                .missing(Missing::Skip),
        )
        .rule(
            Rule::new("per-address", TokenBucket::per_second(10).burst(20))
                .key(key::client_ip().relaxed(10)),
        )
        .build()?;

    let app = Router::new().route("/orders", post(create_order).layer(writes));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    print_commands(listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

fn print_commands(address: SocketAddr) {
    let orders = format!("http://{address}/orders");
    println!(
        "serving POST {orders}

one order, taken:
  curl -s -i -X POST -H 'x-user-id: alice' {orders}

a flood by alice: some twenty pass, the rest meet 429:
  curl -s -o /dev/null -w '%{{http_code}}\\n' -X POST -H 'x-user-id: alice' '{orders}?[1-100]' | sort | uniq -c

what she is told: Retry-After, and the rule that refuses her:
  curl -s -o /dev/null -X POST -H 'x-user-id: alice' '{orders}?[1-40]'; \\
  curl -s -i -X POST -H 'x-user-id: alice' {orders}

bob is not bothered:
  curl -s -i -X POST -H 'x-user-id: bob' {orders}
"
    );
}
