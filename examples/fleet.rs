//! One quota for a fleet: two processes serve one limit per user, and together admit what it says.
//!
//! `cargo run --example fleet` starts a redis-server, or takes the one of `REDIS_URL`, and itself twice more.

#![allow(clippy::print_stdout, reason = "it tells what came")]

mod shared_redis;

use std::{
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{Router, body::Body, http::Request, routing::get};
use tower::ServiceExt;
use tower_sluice::{FixedWindow, Missing, RateLimitLayer, Rule, backend::Redis, key};

/// A hundred an hour for each user, and each process is asked eighty times.
const LIMIT: u64 = 100;
const ASKED: u64 = 80;

/// One process of the fleet.
async fn instance(url: &str, prefix: &str) -> Result<(), Box<dyn Error>> {
    let shared = Redis::new(url)?
        .prefix(prefix)
        // Nothing is admitted that the store has not counted. So the sum is exact, whatever happens.
        .refuse()
        // Long, since machines that run examples are busy with building others. Default: 10 ms.
        .deadline(Duration::from_secs(2));
    let limit = RateLimitLayer::builder()
        .rule(
            Rule::new("per-user", FixedWindow::per_hour(LIMIT))
                .key(key::header("x-user")) // stands for what authentication says
                .missing(Missing::Skip),
        )
        .backend(shared.clone())
        .build()?;
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);

    // No service has to wait for its store. This one does, so that both start at once.
    shared.ready(Duration::from_secs(5)).await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;

    let ask = |user: &'static str| {
        let request = Request::get("/").header("x-user", user).body(Body::empty()).unwrap();
        let app = app.clone();
        async move { app.oneshot(request).await.unwrap().status().as_u16() }
    };
    let mut admitted = 0;
    for _ in 0..ASKED {
        match ask("alice").await {
            200 => admitted += 1,
            status => assert_eq!(status, 429),
        }
    }
    // Others have a hundred of their own.
    assert_eq!(ask("bob").await, 200);
    println!("{admitted}");
    Ok(())
}

/// The next line that a process says.
fn next_line(out: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    out.read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [url, prefix] = &arguments[..] {
        return instance(url, prefix).await;
    }
    let (url, _server) = shared_redis::store()?;
    let prefix = shared_redis::prefix();
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([&url, &prefix]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut fleet: Vec<Child> = vec![start()?, start()?];
    let mut said: Vec<_> =
        fleet.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for out in &mut said {
        assert_eq!(next_line(out)?, "ready");
    }
    for child in &mut fleet {
        child.stdin.take().unwrap().write_all(b"go\n")?;
    }
    let mut admitted = Vec::new();
    for (child, out) in fleet.iter_mut().zip(&mut said) {
        admitted.push(next_line(out)?.parse::<u64>()?);
        assert!(child.wait()?.success());
    }
    println!("asked {ASKED} times each, two processes admitted {admitted:?}");
    assert_eq!(admitted.iter().sum::<u64>(), LIMIT);
    println!("together {LIMIT}, as the limit says");
    Ok(())
}
