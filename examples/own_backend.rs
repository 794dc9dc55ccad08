//! A whole backend of your own: windows counted in a map that several services could share, with an
//! answer that comes later.
//!
//! `cargo run --example own_backend` checks what it says.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use http::{Request, StatusCode};
use tower::ServiceExt;
use tower_sluice::{
    Algorithm, ConfigError, Decision, FixedWindow, ManualClock, Missing, Quota, RateLimitLayer,
    Rule,
    backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts},
    clock::Nanos,
    key,
};

/// Clones are one backend.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    hasher: RandomState,
    limiters: Vec<Vec<Quota>>,
    /// Of a key, by its hash: the number of its window, and what is spent in it.
    spent: HashMap<u64, (u64, u64)>,
}

/// A charge, told apart from the request it came with.
struct Line {
    limiter: LimiterId,
    hash: u64,
    window: u64,
    cost: u64,
    decision: Decision,
}

impl Counts {
    fn read(&self, now: Nanos, charge: &Charge<'_>) -> Line {
        let quota = self.limiters[charge.limiter().0 as usize][charge.quota()];
        let (limit, length) = (quota.permits(), quota.period().as_nanos() as u64);
        let hash = self.hasher.hash_one((charge.limiter(), charge.key_bytes()));
        let window = now.get() / length;
        let spent = self.spent.get(&hash).filter(|line| line.0 == window).map_or(0, |line| line.1);
        let (left, remaining) = (Duration::from_nanos(length - now.get() % length), limit - spent);
        let decision = match charge.cost() {
            cost if cost <= remaining => Decision::allowed(limit, remaining - cost, left),
            cost if cost > limit => Decision::never(limit, remaining, left),
            _ => Decision::denied(limit, remaining, left, left),
        };
        Line { limiter: charge.limiter(), hash, window, cost: charge.cost(), decision }
    }

    /// All charges, or none.
    fn check(&mut self, now: Nanos, charges: &[Charge<'_>]) -> Verdicts {
        let lines: Vec<_> = charges.iter().map(|charge| self.read(now, charge)).collect();
        let all = lines.iter().all(|line| line.decision.is_allowed());
        for line in lines.iter().filter(|_| all) {
            let spent = self.spent.entry(line.hash).or_default();
            *spent = (line.window, line.cost + if spent.0 == line.window { spent.1 } else { 0 });
        }
        let verdict = |line: &Line| {
            let receipt = Receipt::new(line.limiter, [line.hash, line.window, line.cost, 0]);
            Verdict::new(line.decision, receipt)
        };
        lines.iter().map(verdict).collect()
    }
}

impl Shared {
    /// Here a request would go out; the answer comes when the task is polled next.
    fn later<T: Send + 'static>(&self, ask: impl FnOnce(&mut Counts) -> T) -> Answer<T> {
        let answer = ask(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Answer::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(answer)
        }))
    }
}

impl Backend for Shared {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        let algorithm = spec.algorithm();
        // What is not counted here is refused: a limit must not be silently another.
        let is_counted = matches!(algorithm, Algorithm::FixedWindow(window) if window.calendar_unit().is_none())
            && algorithm.warm_up().is_none();
        if !is_counted {
            let value = format!("{algorithm:?}");
            let reason = "only fixed windows are counted here, without a warm-up or a calendar";
            return Err(ConfigError::new("algorithm", value, reason));
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = spec.replaces() {
            counts.limiters[id.0 as usize] = spec.quotas().to_vec();
            return Ok(id);
        }
        counts.limiters.push(spec.quotas().to_vec());
        Ok(LimiterId(counts.limiters.len() as u64 - 1))
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        self.later(|counts| counts.check(now, charges))
    }

    fn undo(&self, _: Nanos, receipts: &[Receipt]) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for receipt in receipts {
            // Windows here do not start with a request, so what is taken back shifts nothing.
            let [hash, window, cost, _] = receipt.words();
            if let Some(spent) = counts.spent.get_mut(&hash).filter(|spent| spent.0 == window) {
                spent.1 = spent.1.saturating_sub(cost);
            }
        }
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        self.later(|counts| counts.read(now, charge).decision)
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        self.later(|counts| {
            let line = counts.read(now, charge);
            counts.spent.remove(&line.hash).is_some_and(|spent| spent.0 == line.window)
        })
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

async fn status(app: &Router, user: &str) -> StatusCode {
    let request = Request::get("/").header("x-user", user).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (shared, clock) = (Shared::default(), ManualClock::new());
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .backend(shared.clone())
        .rule(Rule::new("all", FixedWindow::per_minute(5)))
        .rule(
            Rule::new("per-user", FixedWindow::per_minute(3))
                .key(key::header("x-user"))
                .missing(Missing::Skip),
        )
        .build()?;
    let handle = layer.handle();
    let app = Router::new().route("/", get(|| async { "hello" }).layer(layer));

    for expected in [200, 200, 200, 429] {
        assert_eq!(status(&app, "alice").await, expected);
    }
    // Her refusal cost nobody anything: bob has the two that are left of five.
    assert_eq!(handle.peek("all", (), 0).await?.remaining(), 2);
    for expected in [200, 200, 429] {
        assert_eq!(status(&app, "bob").await, expected);
    }
    assert_eq!(handle.peek("per-user", "bob", 0).await?.remaining(), 1);

    clock.advance(Duration::from_secs(60));
    assert_eq!(status(&app, "alice").await, 200);
    assert!(handle.reset("per-user", "alice").await?);
    assert_eq!(handle.peek("per-user", "alice", 0).await?.remaining(), 3);

    let refused = RateLimitLayer::builder()
        .backend(shared)
        .rule(Rule::new("smooth", tower_sluice::TokenBucket::per_second(5)))
        .build();
    assert_eq!(refused.unwrap_err().field(), "algorithm");
    println!("two rules counted on a backend of one's own, all or nothing");
    Ok(())
}
