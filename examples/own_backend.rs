//! A whole backend of your own: windows counted in a map that several services could share, with an
//! answer that comes later.
//!
//! `cargo run --example own_backend` runs the checks for backends on it, `testing::Conformance`, and then a layer.

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
    testing::Conformance,
};

/// Clones are one backend.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    hasher: RandomState,
    limiters: Vec<Counted>,
    /// Of a key, by its hash.
    spent: HashMap<u64, Spent>,
    /// How often keys were reset: what was charged before must not be taken back after.
    resets: u64,
}

struct Counted {
    quotas: Vec<Quota>,
    utc_at_zero: Duration,
}

/// The number of a key's window, and what is spent in it.
#[derive(Clone, Copy, Default, PartialEq)]
struct Spent {
    window: u64,
    permits: u64,
}

impl Counts {
    fn hash(&self, charge: &Charge<'_>) -> u64 {
        self.hasher.hash_one((charge.limiter(), charge.key_bytes()))
    }

    /// What is spent, and what a charge would get.
    fn read(&self, now: Nanos, charge: &Charge<'_>) -> (Spent, Decision) {
        let counted = &self.limiters[charge.limiter().0 as usize];
        let quota = counted.quotas[charge.quota()];
        let (limit, length) = (quota.permits(), quota.period().as_nanos());
        let utc = u128::from(now.get()) + counted.utc_at_zero.as_nanos();
        let window = (utc / length) as u64;
        let known = self.spent.get(&self.hash(charge)).copied().unwrap_or_default();
        // A clock that went back stays in the window that it was in.
        let spent = if known.window >= window { known } else { Spent { window, permits: 0 } };
        let left = Duration::from_nanos(((u128::from(spent.window) + 1) * length - utc) as u64);
        // More may be spent than a lowered limit has.
        let remaining = limit.saturating_sub(spent.permits);
        let decision = match charge.cost() {
            cost if cost <= remaining => Decision::allowed(limit, remaining - cost, left),
            cost if cost > limit => Decision::never(limit, remaining, left),
            _ => Decision::denied(limit, remaining, left, left),
        };
        (spent, decision)
    }

    /// All charges, or none. Each is looked at with those before it made, since two may be on one key.
    fn check(&mut self, now: Nanos, charges: &[Charge<'_>]) -> Verdicts {
        let (mut verdicts, mut before) = (Vec::new(), Vec::new());
        for charge in charges {
            let (hash, cost) = (self.hash(charge), charge.cost());
            let (spent, decision) = self.read(now, charge);
            if decision.is_allowed() && cost > 0 {
                let made = Spent { permits: spent.permits + cost, ..spent };
                before.push((hash, self.spent.insert(hash, made)));
            }
            let receipt = Receipt::new(charge.limiter(), [hash, spent.window, cost, self.resets]);
            verdicts.push(Verdict::new(decision, receipt));
        }
        let verdicts: Verdicts = verdicts.into_iter().collect();
        if !verdicts.all_allowed() {
            for (hash, old) in before.into_iter().rev() {
                match old {
                    Some(old) => self.spent.insert(hash, old),
                    None => self.spent.remove(&hash),
                };
            }
        }
        verdicts
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

/// What is not counted here is refused: a limit must not be silently another.
fn is_counted(algorithm: &Algorithm) -> Result<(), ConfigError> {
    let quota = algorithm.quota();
    let is_aligned = matches!(
        algorithm,
        Algorithm::FixedWindow(window) if window.is_aligned() && window.calendar_unit().is_none()
    );
    if !is_aligned || algorithm.warm_up().is_some() {
        let reason = "only aligned windows are counted here, without a warm-up or a calendar";
        return Err(ConfigError::new("algorithm", format!("{algorithm:?}"), reason));
    }
    if quota.permits() == 0 {
        return Err(ConfigError::new("permits", 0, "must be at least 1"));
    }
    if quota.period().is_zero() {
        return Err(ConfigError::new("period", "0s", "must be longer than zero"));
    }
    Ok(())
}

impl Backend for Shared {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        is_counted(&spec.algorithm())?;
        let counted = Counted { quotas: spec.quotas().to_vec(), utc_at_zero: spec.utc_at_zero() };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = spec.replaces() {
            let old = &mut counts.limiters[id.0 as usize];
            let periods = |counted: &Counted| -> Vec<_> {
                counted.quotas.iter().map(Quota::period).collect()
            };
            if periods(old) != periods(&counted) {
                // Windows of another length have other numbers.
                let period = format!("{:?}", spec.algorithm().quota().period());
                return Err(ConfigError::new("period", period, "cannot change here"));
            }
            *old = counted;
            return Ok(id);
        }
        counts.limiters.push(counted);
        Ok(LimiterId(counts.limiters.len() as u64 - 1))
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        self.later(|counts| counts.check(now, charges))
    }

    fn undo(&self, _: Nanos, receipts: &[Receipt]) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for receipt in receipts {
            // Windows here do not start with a request, so what is taken back shifts nothing.
            let [hash, window, cost, resets] = receipt.words();
            if counts.resets == resets
                && let Some(spent) = counts.spent.get_mut(&hash).filter(|s| s.window == window)
            {
                spent.permits = spent.permits.saturating_sub(cost);
            }
        }
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        self.later(|counts| counts.read(now, charge).1)
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        self.later(|counts| {
            let (spent, _) = counts.read(now, charge);
            counts.resets += 1;
            counts.spent.remove(&counts.hash(charge));
            spent.permits > 0
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
    // Whether it keeps what a backend promises; what it does not count it refuses.
    let report = Conformance::of(Shared::default).run().await;
    report.assert_passed();
    let (refused, checked): (Vec<_>, Vec<_>) =
        report.findings().iter().partition(|finding| finding.refusal().is_some());
    println!("{} checks passed, {} algorithms refused", checked.len(), refused.len());

    let (shared, clock) = (Shared::default(), ManualClock::new());
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .backend(shared.clone())
        .rule(Rule::new("all", FixedWindow::per_minute(5).aligned()))
        .rule(
            Rule::new("per-user", FixedWindow::per_minute(3).aligned())
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
