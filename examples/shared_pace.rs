//! Two processes, six workers, and a partner that takes twenty calls a second and no more: one pace for all.
//!
//! `cargo run --example shared_pace` starts a redis-server, or takes the one of `REDIS_URL`, and itself once more.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(clippy::disallowed_methods, reason = "it serves a socket, and measures when calls come")]

mod shared_redis;

use std::{
    error::Error,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, http::Request, routing::post};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};
use tower::{ServiceBuilder, ServiceExt};
use tower_sluice::{LeakyBucket, RateLimitLayer, RejectionPolicy, Rule, backend::Redis};

/// Twenty a second.
const INTERVAL: Duration = Duration::from_millis(50);
const WORKERS: usize = 3;
const CALLS: usize = 4;

/// A turn is counted from when the store was asked, so what an answer takes is missing from the interval: 10 ms at
/// most, the deadline. The rest is for waking up and for delivering a call.
const TOLERANCE: Duration = Duration::from_millis(15);

/// Workers of one process, which call the partner one after another. Says how late this process was woken at worst.
async fn work(partner: SocketAddr, url: &str, prefix: &str) -> Result<Duration, Box<dyn Error>> {
    // Refuses while the store is away: who does not know when the others call does not call.
    let shared = Redis::new(url)?.prefix(prefix).refuse();
    let pace = RateLimitLayer::builder()
        .rule(Rule::new("partner", LeakyBucket::per_second(20)).backend(shared.clone()))
        // The store says when it is a call's turn; here it waits for that.
        .rejection(RejectionPolicy::queue(Duration::from_secs(2), 100))
        .build()?;
    // The layer stands around a client as it stands around a service.
    let http = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let client = ServiceBuilder::new().layer(pace).service(http);
    shared.ready(Duration::from_secs(5)).await?;

    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let client = client.clone();
        workers.spawn(async move {
            let mut made = 0;
            while made < CALLS {
                let call = Request::post(format!("http://{partner}/")).body(Body::empty()).unwrap();
                match client.clone().oneshot(call).await.unwrap().status().as_u16() {
                    200 => made += 1,
                    // Ours, while the store is away or late: nothing was sent, and who asked again at once would ask
                    // in vain.
                    status => {
                        assert_eq!(status, 503);
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
    }
    let mut latest = Duration::ZERO;
    while !workers.is_empty() {
        let (asleep, short) = (Instant::now(), Duration::from_millis(5));
        sleep(short).await;
        latest = latest.max(asleep.elapsed() - short);
        while let Some(done) = workers.try_join_next() {
            done?;
        }
    }
    Ok(latest)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [partner, url, prefix] = &arguments[..] {
        println!("{}", work(partner.parse()?, url, prefix).await?.as_millis());
        return Ok(());
    }
    let (url, _server) = shared_redis::store()?;
    let prefix = shared_redis::prefix();

    // The partner notes when calls come.
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    let called = post(async move || noted.lock().unwrap().push(Instant::now()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let partner = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, Router::new().route("/", called)).await });

    let second = Command::new(std::env::current_exe()?)
        .args([&partner.to_string(), &url, &prefix])
        .stdout(Stdio::piped())
        .spawn()?;
    let here = work(partner, &url, &prefix).await?;
    let said = tokio::task::spawn_blocking(|| second.wait_with_output()).await??;
    assert!(said.status.success());
    let there = Duration::from_millis(String::from_utf8(said.stdout)?.trim().parse()?);

    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), 2 * WORKERS * CALLS);
    let gaps: Vec<_> = calls.windows(2).map(|two| two[1] - two[0]).collect();
    let (least, sum) = (*gaps.iter().min().unwrap(), gaps.iter().sum::<Duration>());
    println!("{} calls of two processes came in {sum:.1?}, {least:.1?} apart or more", calls.len());
    // A busy machine wakes processes late; who comes late is close to the next.
    let tolerance = TOLERANCE + here.max(there);
    assert!(least + tolerance >= INTERVAL, "{gaps:?}, woken late by {here:?}, {there:?}");
    assert!(sum + tolerance >= INTERVAL * gaps.len() as u32, "{sum:?}");
    Ok(())
}
