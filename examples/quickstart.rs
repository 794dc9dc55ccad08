//! A service with three kinds of routes: writes with quotas, reads that wait on a database, and jobs for a
//! partner who takes so many a second and no more.
//!
//! `cargo run --example quickstart`, then try the commands it prints.

#![allow(clippy::print_stdout, reason = "it tells what to try")]
#![allow(clippy::disallowed_methods, reason = "handlers of a service read the system's clock")]

use axum::{
    Router,
    routing::{get, post},
};
use std::{
    net::SocketAddr,
    sync::LazyLock,
    time::{Duration, Instant},
};
use tower_sluice::{
    InFlight, LeakyBucket, Missing, RateLimitLayer, RejectionPolicy, Rule, TokenBucket, key,
};

async fn create_order() -> &'static str {
    "order taken\n"
}

/// Waits on the database, as it were.
async fn feed() -> &'static str {
    tokio::time::sleep(Duration::from_secs(1)).await;
    "the feed, fresh\n"
}

async fn hot_list() -> &'static str {
    "the feed of a minute ago\n"
}

/// Says when it was admitted.
async fn submit() -> String {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    format!("job admitted at {} ms\n", START.elapsed().as_millis())
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

    // Reads wait on a database: at most 64 in flight; when full, a cached list is better than an error.
    let reads = RateLimitLayer::builder()
        .in_flight(InFlight::new("feed", 64))
        .rejection(RejectionPolicy::degrade(hot_list)) // any axum handler
        .build()?;

    // Jobs feed a partner that takes 20/s and no more: 50 ms apart, up to 150 ms of waiting, 100 at most.
    let jobs = RateLimitLayer::builder()
        .rule(Rule::new("partner", LeakyBucket::per_second(20)))
        .rejection(RejectionPolicy::queue(Duration::from_millis(150), 100))
        .build()?;

    let app = Router::new()
        .route("/orders", post(create_order).layer(writes))
        .route("/feed", get(feed).layer(reads))
        .route("/jobs", post(submit).layer(jobs));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    print_commands(listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

fn print_commands(address: SocketAddr) {
    let at = format!("http://{address}");
    println!(
        "serving POST {at}/orders, GET {at}/feed, POST {at}/jobs

one order, taken:
  curl -s -i -X POST -H 'x-user-id: alice' {at}/orders

a flood by alice: some twenty pass, the rest meet 429:
  curl -s -o /dev/null -w '%{{http_code}}\\n' -X POST -H 'x-user-id: alice' '{at}/orders?[1-100]' | sort | uniq -c

what she is told: Retry-After, and the rule that refuses her:
  curl -s -o /dev/null -X POST -H 'x-user-id: alice' '{at}/orders?[1-40]'; \\
  curl -s -i -X POST -H 'x-user-id: alice' {at}/orders

bob is not bothered:
  curl -s -i -X POST -H 'x-user-id: bob' {at}/orders

65 slow reads at once: 64 fresh, one degraded:
  seq 65 | xargs -P 65 -I@ curl -s {at}/feed | sort | uniq -c

ten jobs at once: four admitted, 50 ms apart, the others meet 429:
  seq 10 | xargs -P 10 -I@ curl -s -w ' %{{http_code}}\\n' -X POST {at}/jobs
"
    );
}
