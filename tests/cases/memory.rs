//! Area ME: memory, eviction and locking.

#![allow(clippy::disallowed_methods, reason = "load cases take the time of real checks")]

use std::{
    sync::{
        Arc, Barrier, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{runtime, task::JoinSet};
use tower_sluice::{
    FixedWindow, Handle, ManualClock, Missing, Observer, Quota, RateLimitLayer, RejectionPolicy,
    Rule, TokenBucket,
    event::{Admitted, Finished, Rejected, SetupFault},
    key,
    limiter::DEFAULT_MAX_KEYS,
};

use crate::support_core::{
    HOUR, SECOND, algorithms, counts_for, every, keyed, ready, request, scaled, send, status,
};

#[test]
fn me_01_keys_stay_bounded() {
    // Defaults only, no runtime and nobody who sweeps.
    let keys = scaled(5_000_000);
    let ten = Quota::per_second(10);
    for algorithm in every(ten) {
        for cap in [None, Some(1_000)] {
            let clock = ManualClock::new();
            let limiter = keyed(algorithm, clock.clone(), cap);
            let cap = cap.unwrap_or(DEFAULT_MAX_KEYS);
            let mut peak = 0;
            for key in 0..keys {
                clock.advance(Duration::from_micros(10));
                let _ = limiter.try_acquire(key);
                if key % 4_999 == 0 {
                    peak = peak.max(limiter.tracked_keys());
                }
            }
            assert!((100..=cap).contains(&peak), "{algorithm:?}: {peak} keys of {cap}");
            clock.advance(3 * SECOND);
            assert_eq!(limiter.tracked_keys(), 0, "{algorithm:?}");
        }
    }
}

#[test]
fn me_02_live_key_is_never_evicted() {
    for algorithm in algorithms(Quota::new(5, HOUR)) {
        let clock = ManualClock::new();
        let limiter = keyed(algorithm, clock.clone(), Some(1_000));
        for _ in 0..5 {
            assert!(limiter.try_acquire("mallory").is_allowed());
        }
        assert!(!limiter.try_acquire("mallory").is_allowed());
        assert!(limiter.try_acquire_many("alice", 3).is_allowed());
        let known = ["mallory", "alice"].map(|key| limiter.peek(key, 1));
        for key in 0..100_000_u64 {
            let _ = limiter.try_acquire(key);
        }
        assert!(limiter.tracked_keys() <= 1_000);
        // Nor would she pay for newcomers that share a bucket, as one who lost her slot would.
        assert_eq!(["mallory", "alice"].map(|key| limiter.peek(key, 1)), known, "{algorithm:?}");
        assert!(!limiter.try_acquire("mallory").is_allowed(), "{algorithm:?}");
        clock.advance(counts_for(algorithm));
        assert!(limiter.try_acquire("mallory").is_allowed(), "{algorithm:?}");
    }

    let rule = Rule::new("per-user", TokenBucket::new(5, HOUR))
        .key(key::header("x-user-id"))
        .missing(Missing::Skip)
        .max_keys(1_000);
    let layer = RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build();
    let layer = layer.expect("a layer");
    let mallory = || status(&layer, &[("x-user-id", "mallory")]).0;
    for _ in 0..5 {
        assert_eq!(mallory(), 200);
    }
    assert_eq!(mallory(), 429);
    for user in 0..100_000 {
        let _ = status(&layer, &[("x-user-id", &format!("user-{user}"))]);
    }
    assert_eq!(mallory(), 429);
    assert!(layer.handle().tracked_keys("per-user").is_ok_and(|keys| keys <= Some(1_000)));
}

#[test]
fn me_04_no_stall_with_a_full_table() {
    let live = scaled(1_000_000);
    let checks = scaled(50_000 * 30);
    let fill = |keys: u64| {
        let clock = ManualClock::new();
        let limiter = keyed(TokenBucket::new(5, HOUR).into(), clock.clone(), Some(keys));
        for key in 0..keys {
            assert!(limiter.try_acquire(key).is_allowed());
        }
        (limiter, clock)
    };
    // (p99.9, longest, whole) of checks of which every other is of a new key, with every slot live: a
    // store that sweeps has to sweep for each.
    let measure = |keys: u64| {
        let (limiter, clock) = fill(keys);
        let began = Instant::now();
        let mut times: Vec<Duration> = (0..checks)
            .map(|check| {
                let key = if check % 2 == 0 { check % keys } else { keys + check };
                clock.advance(Duration::from_nanos(1));
                let began = Instant::now();
                let _ = limiter.try_acquire(key);
                began.elapsed()
            })
            .collect();
        let whole = began.elapsed();
        times.sort_unstable();
        [times[times.len() * 999 / 1_000], times[times.len() - 1], whole]
    };
    // The best of several runs: what the store does it does in each, what the scheduler does in some.
    let best = |keys: u64| {
        let runs = (0..5).map(|_| measure(keys));
        let least = |a: [Duration; 3], b: [Duration; 3]| [0, 1, 2].map(|i| a[i].min(b[i]));
        runs.reduce(least).expect("five runs")
    };
    let ([_, _, small], [p999, longest, large]) = (best(1_000), best(live));
    // Ten times the case's bounds; throughput at least 8 % instead of 80 %.
    assert!(p999 < Duration::from_millis(10), "p99.9 {p999:?}");
    assert!(longest < Duration::from_millis(100), "longest {longest:?}");
    assert!(large < small * 12, "{large:?} with {live} keys, {small:?} with 1,000");
}

#[test]
fn me_05_first_requests_race() {
    const TASKS: usize = 16;
    let keys = scaled(10_000);
    for algorithm in algorithms(Quota::new(10, HOUR)) {
        let limiter = keyed(algorithm, ManualClock::new(), None);
        let passed: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
        let (barrier, done) = (Barrier::new(TASKS), AtomicBool::new(false));
        thread::scope(|scope| {
            // The nearest thing to a sweeper: quotas replaced and tables walked without pause.
            let sweeper = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    limiter.set_limit(Quota::new(10, HOUR)).expect("the same quota");
                    assert!(limiter.tracked_keys() <= keys);
                }
            });
            let workers: Vec<_> = (0..TASKS)
                .map(|task| {
                    let (limiter, passed, barrier) = (&limiter, &passed, &barrier);
                    scope.spawn(move || {
                        for (key, passed) in passed.iter().enumerate() {
                            if key % 16 == 0 {
                                barrier.wait();
                            }
                            // Fifty requests for each key over all tasks.
                            for _ in 0..(50 + TASKS - 1 - task) / TASKS {
                                let allowed = limiter.try_acquire(key as u64).is_allowed();
                                passed.fetch_add(u64::from(allowed), Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().expect("no panic");
            }
            done.store(true, Ordering::Relaxed);
            sweeper.join().expect("no panic");
        });
        for (key, passed) in passed.iter().enumerate() {
            assert_eq!(passed.load(Ordering::Relaxed), 10, "{algorithm:?}: key {key}");
        }
    }
}

fn two_rules() -> RateLimitLayer {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("all", TokenBucket::per_second(500)))
        .rule(Rule::new("each", FixedWindow::per_minute(5)).key(key::client_ip()));
    layer.build().expect("a layer")
}

#[test]
fn me_07_no_background_tasks() {
    // Outside a runtime, and in use there.
    let outside = two_rules();
    assert_eq!(status(&outside, &[]).0, 200);

    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let tasks = || runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let mut kept = Vec::new();
        for n in 0..scaled(10_000) {
            let layer = two_rules();
            assert_eq!(send(&layer, request(&[])).await.status(), 200);
            if n % 100 == 0 {
                kept.push(layer);
            }
            assert_eq!(tasks(), before, "layer {n}");
        }
        assert_eq!(send(&outside, request(&[])).await.status(), 200);
        drop(kept);
        assert_eq!(tasks(), before);
    });
    let began = Instant::now();
    runtime.shutdown_timeout(10 * SECOND);
    assert!(began.elapsed() < 10 * SECOND, "nothing of ours delays the shutdown");
}

/// Uses the layer's own handle from wherever it is called.
#[derive(Clone, Default)]
struct Reenter {
    handle: Arc<OnceLock<Handle>>,
    calls: Arc<AtomicU64>,
}

impl Reenter {
    fn call(&self) {
        let Some(handle) = self.handle.get() else { return };
        assert_eq!(handle.rules().collect::<Vec<_>>(), ["all", "each"]);
        let peeked = ready(handle.peek("each", "7", 1)).expect("a decision");
        assert_eq!(peeked.limit(), 5);
        assert!(ready(handle.reset("each", "nobody")).is_ok());
        assert!(handle.tracked_keys("each").is_ok_and(|keys| keys <= Some(100)));
        handle.set_limit("each", Quota::per_minute(5)).expect("the same quota");
        assert!(handle.set_limit("each", Quota::per_minute(0)).is_err());
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl Observer for Reenter {
    fn admitted(&self, _: &Admitted<'_>) {
        self.call();
    }

    fn rejected(&self, _: &Rejected<'_>) {
        self.call();
    }

    fn finished(&self, _: &Finished) {
        self.call();
    }

    fn fault(&self, _: &SetupFault) {
        self.call();
    }
}

#[test]
fn me_08_callbacks_may_reenter() {
    let mut single = runtime::Builder::new_current_thread();
    let mut double = runtime::Builder::new_multi_thread();
    for builder in [&mut single, double.worker_threads(2)] {
        let runtime = builder.enable_all().build().expect("a runtime");
        let reenter = Reenter::default();
        let [exempts, applies, keys, costs, responds] = [(); 5].map(|()| reenter.clone());
        let each = Rule::new("each", TokenBucket::per_minute(5))
            .max_keys(1_000)
            .when(move |_| {
                applies.call();
                true
            })
            .key(key::from_owned(move |head| {
                keys.call();
                Some(head.headers().get("x-user-id")?.to_str().ok()?.to_owned())
            }))
            .missing(Missing::Skip)
            .cost_fn(move |_| {
                costs.call();
                1
            });
        let layer = RateLimitLayer::builder()
            .clock(ManualClock::new())
            .rule(Rule::new("all", TokenBucket::per_second(100_000)))
            .rule(each)
            .exempt(move |_| {
                exempts.call();
                false
            })
            .rejection(RejectionPolicy::respond_with(move |rejection, _| {
                responds.call();
                rejection.status().to_string()
            }))
            .observer(reenter.clone())
            .build()
            .expect("a layer");
        assert!(reenter.handle.set(layer.handle()).is_ok());

        let layer = Arc::new(layer);
        let statuses = runtime.block_on(async {
            let mut requests = JoinSet::new();
            for n in 0..1_000 {
                let layer = Arc::clone(&layer);
                requests.spawn(async move {
                    let sent = request(&[("x-user-id", &(n % 100).to_string())]);
                    send(&layer, sent).await.status().as_u16()
                });
            }
            let all = tokio::time::timeout(60 * SECOND, requests.join_all());
            all.await.expect("no deadlock")
        });
        let passed = statuses.iter().filter(|status| **status == 200).count();
        let refused = statuses.iter().filter(|status| **status == 429).count();
        // Five for each of a hundred keys.
        assert_eq!((passed, refused), (500, 500));
        // Exemption, condition, key and cost of each; admitted and finished, or rejected and answered.
        assert!(reenter.calls.load(Ordering::Relaxed) >= 6_000);
    }
}
