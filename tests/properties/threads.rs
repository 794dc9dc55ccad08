//! Threads on one layer: what was promised holds whatever the schedule. Time stands still, so that every
//! number is exact.

use std::{sync::Barrier, thread};

use http::Request;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{FixedWindow, ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key};

use crate::subjects::{now as ready_now, request, served};

const THREADS: usize = 3;
const ROUNDS: usize = 200;
const REQUESTS: usize = 60;

/// How many of the requests of all threads are admitted.
fn flood(layer: &RateLimitLayer, make: impl Fn(usize) -> Request<axum::body::Body> + Sync) -> u64 {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (barrier, make) = (&barrier, &make);
                scope.spawn(move || {
                    let service = layer.layer(service_fn(served));
                    barrier.wait();
                    let admitted = (0..REQUESTS).filter(|n| {
                        let request = make(thread * REQUESTS + n);
                        ready_now(service.clone().oneshot(request)).unwrap().status() == 200
                    });
                    admitted.count() as u64
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

fn remaining(layer: &RateLimitLayer, rule: &str) -> u64 {
    ready_now(layer.handle().peek(rule, (), 0)).unwrap().remaining()
}

#[test]
fn threads_share_one_limit_exactly() {
    for _ in 0..ROUNDS {
        let layer = RateLimitLayer::builder()
            .clock(ManualClock::new())
            .rule(Rule::new("all", TokenBucket::per_second(100)))
            .build()
            .unwrap();
        assert_eq!(flood(&layer, |_| request(0, 1)), 100);
    }
}

#[test]
fn threads_are_charged_by_all_rules_or_by_none() {
    for _ in 0..ROUNDS {
        let layer = RateLimitLayer::builder()
            .clock(ManualClock::new())
            .rule(Rule::new("wide", TokenBucket::per_hour(120)))
            .rule(Rule::new("narrow", FixedWindow::per_hour(100)))
            .build()
            .unwrap();
        let admitted = flood(&layer, |_| request(0, 1));
        // Only who is overtaken between read and charge is charged by one and undone; what cannot be
        // restored is burnt, at most once for each thread that was about to charge.
        assert_eq!(remaining(&layer, "narrow"), 100 - admitted);
        assert_eq!(admitted, 100);
        let burnt = 120 - admitted - remaining(&layer, "wide");
        assert!(burnt < THREADS as u64, "{burnt} burnt");
    }
}

#[test]
fn threads_that_bring_new_keys_get_one_limit_each() {
    for round in 0..ROUNDS {
        let keys = 1 + round % 20;
        let layer = RateLimitLayer::builder()
            .clock(ManualClock::new())
            .rule(
                Rule::new("per-key", FixedWindow::per_hour(3))
                    .key(key::header("x-key"))
                    .missing(Missing::Refuse(http::StatusCode::BAD_REQUEST))
                    .max_keys(32),
            )
            .build()
            .unwrap();
        let expected = 3 * keys.min(REQUESTS) as u64;
        let admitted = flood(&layer, |n| request((n % keys) as u8, 1));
        assert_eq!(admitted, expected, "{keys} keys");
        assert_eq!(layer.handle().tracked_keys("per-key").unwrap(), Some(keys as u64));
    }
}
