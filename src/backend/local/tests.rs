//! Promises of the backend that its public surface cannot be brought to show.

use std::{sync::Arc, thread, time::Duration};

use super::Local;
use crate::{
    Backend, FixedWindow, ManualClock, Quota, StartLevel, TokenBucket,
    backend::{Answer, Charge, LimiterId, LimiterSpec},
    clock::Nanos,
};

fn spec(quota: Quota) -> LimiterSpec {
    LimiterSpec {
        name: Arc::from("spec"),
        algorithm: TokenBucket::from(quota).into(),
        quotas: vec![quota],
        factors: vec![1],
        keyed: false,
        max_keys: 1,
        utc_at_zero: Duration::ZERO,
        now: Nanos::ZERO,
        replaces: None,
    }
}

#[test]
fn a_check_that_fails_has_charged_nothing() {
    let local = Local::new();
    let known = local.register(&spec(Quota::per_second(1))).expect("a limiter");
    let unknown = LimiterId(7);
    let charges = [Charge::new(known, 1), Charge::new(unknown, 1)];
    assert!(matches!(local.check(Nanos::ZERO, &charges), Answer::Ready(Err(_))));
    let Answer::Ready(Ok(decision)) = local.peek(Nanos::ZERO, &charges[0]) else {
        panic!("the backend answers at once");
    };
    assert_eq!(decision.remaining(), 1);
}

/// Numbers that a xorshift generator draws.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut x = seed;
    move |below| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % below
    }
}

#[test]
fn whatever_races_idle_keys_leave_nothing_behind() {
    let minute = Duration::from_secs(60);
    let half = StartLevel::Fraction(0.5);
    let limiters = [
        TokenBucket::new(100, minute).start(half).keyed_limiter(),
        FixedWindow::new(100, minute).keyed_limiter(),
        FixedWindow::new(100, minute).aligned().keyed_limiter(),
    ];
    for (limiter, seed) in limiters.into_iter().zip(1..) {
        let clock = ManualClock::new();
        let limiter = limiter.max_keys(50).clock(clock.clone()).build().expect("a limiter");
        thread::scope(|scope| {
            for thread in 0..4 {
                let (limiter, mut draw) = (&limiter, draws(seed * 100 + thread));
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        // More keys than there is room for.
                        let key = draw(120);
                        let decision = match draw(20) {
                            0 => {
                                limiter.reset(key);
                                continue;
                            }
                            1 => limiter.peek(key, draw(200)),
                            _ => limiter.try_acquire_many(key, draw(5)),
                        };
                        assert!(decision.remaining() <= decision.limit());
                    }
                });
            }
            let mut draw = draws(seed);
            for _ in 0..2_000 {
                // Up to a month: bases move as well.
                let step = [0, 1, 1_000_000, 1_000_000_000, 3_000_000_000_000_000];
                clock.advance(Duration::from_nanos(step[draw(5) as usize]));
                let permits = [1, 10, 17, 1_000_003, 999_999_937][draw(5) as usize];
                let period = Duration::from_secs([1, 60, 3_600][draw(3) as usize]);
                if draw(2) == 0 {
                    // Not all are fit for an aligned window of a second.
                    let _ = limiter.set_limit(Quota::new(permits, period));
                }
                assert!(limiter.tracked_keys() <= 50);
            }
        });
        clock.advance(minute * 600);
        assert_eq!(limiter.tracked_keys(), 0);
        limiter.set_limit(Quota::new(3, minute)).expect("a quota");
        clock.advance(Duration::from_nanos(1));
        // Keys have a whole quota and a slot of their own. Not as many as there is room for, since with
        // an unlucky hash one of those may have to share a bucket.
        for key in 0..20_u64 {
            for left in [2, 1, 0] {
                assert_eq!(limiter.try_acquire(key).remaining(), left);
            }
            assert!(!limiter.try_acquire(key).is_allowed());
        }
        assert_eq!(limiter.tracked_keys(), 20);
    }
}
