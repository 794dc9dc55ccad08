//! Outgoing calls to a partner that takes ten a second and no more, two at a time: paced, and bounded.
//!
//! `cargo run --example paced_calls` makes some calls and checks how far apart they were.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(clippy::disallowed_methods, reason = "a client reads the system's clock")]

use std::time::{Duration, Instant};

use tower_sluice::{ConfigError, Decision, InFlight, LeakyBucket, Limiter, Permit};

/// A client of the partner's. Clones share its limits.
#[derive(Clone)]
struct Partner {
    pace: Limiter,
    under_way: InFlight,
}

/// Why a call was not made.
#[derive(Debug, PartialEq)]
enum NotCalled {
    /// The pace leaves no room for it in time; come again then.
    Again(Duration),
    /// Two are under way, and neither ended in time.
    Busy,
}

const LONGEST_WAIT: Duration = Duration::from_millis(450);

impl Partner {
    fn new() -> Result<Self, ConfigError> {
        Ok(Self {
            pace: LeakyBucket::per_second(10).limiter().name("partner").build()?,
            under_way: InFlight::new("partner-calls", 2),
        })
    }

    /// Calls when it may; says when that was.
    async fn call(&self) -> Result<Instant, NotCalled> {
        let permit: Option<Permit> = self.under_way.acquire(LONGEST_WAIT).await;
        let permit = permit.ok_or(NotCalled::Busy)?;
        let decision: Decision = self.pace.acquire(LONGEST_WAIT).await;
        if let Some(wait) = decision.retry_after() {
            return Err(NotCalled::Again(wait));
        }
        let started = Instant::now();
        // .. the call itself; the permit is kept until its answer is there
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(permit);
        Ok(started)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ConfigError> {
    let partner = Partner::new()?;
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let partner = partner.clone();
            tokio::spawn(async move { partner.call().await })
        })
        .collect();
    let mut started = Vec::new();
    for call in calls {
        started.push(call.await.unwrap().expect("there is room for four"));
    }
    started.sort();
    for pair in started.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(99), "{:?}", pair[1] - pair[0]);
    }

    // Who would have to wait too long is told at once, and has taken nothing.
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let pace = partner.pace.clone();
            tokio::spawn(async move { pace.acquire(LONGEST_WAIT).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(partner.pace.waiting(), 4);
    let refused = partner.pace.acquire(LONGEST_WAIT).await;
    assert!(refused.retry_after().is_some_and(|wait| wait > LONGEST_WAIT));
    // Who leaves makes room.
    for wait in waiting {
        wait.abort();
        assert!(wait.await.is_err());
    }
    assert_eq!(partner.pace.waiting(), 0);
    println!(
        "four calls went 100 ms apart; a fifth was refused at once, and waiters who left made room"
    );
    Ok(())
}
