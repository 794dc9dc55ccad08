//! Token buckets.

use std::time::Duration;

use tower_sluice::{FixedWindow, LeakyBucket, Quota, StartLevel, TokenBucket};

use crate::rig::{
    MILLI, NANO, Rig, SECOND,
    Want::{A, D, Left, Never, Retry},
    bucket, by_windows, one_each, paced,
};

const TENTH: Duration = Duration::from_millis(100);

#[test]
fn o_01_one_at_a_time() {
    let timeline = [
        (0, 1, A),
        (0, 1, Retry(1)),
        (0, 1, D),
        (1, 1, A),
        (1, 1, D),
        (1, 1, D),
        (2, 2, Never),
        (2, 1, A),
        (2, 1, D),
    ];
    for (algorithm, turn) in one_each(TENTH) {
        Rig::new(algorithm).run(turn, &timeline);
    }
}

#[test]
fn o_02_read_then_ask() {
    let rig = Rig::new(bucket(10, SECOND, 3));
    let rows = [
        (0, 3, 2, A),
        (0, 1, 2, D),
        (0, 1, 1, A),
        (0, 0, 1, D),
        (1, 1, 4, Never),
        (2, 2, 1, A),
        (3, 2, 1, A),
        (4, 2, 1, A),
        (4, 1, 1, A),
        (4, 0, 1, D),
        (4, 0, 1, D),
        (9, 3, 3, A),
        (9, 0, 0, A),
    ];
    for (instant, tokens, cost, want) in rows {
        rig.set(TENTH * instant);
        assert_eq!(rig.remaining(), tokens, "at {instant}");
        rig.run(TENTH, &[(instant, cost, want)]);
        rig.set(TENTH * instant);
    }
}

#[test]
fn o_17_parallel_callers() {
    assert_eq!(Rig::new(bucket(1, SECOND, 5)).parallel(15), [5, 5, 5]);
}

#[test]
fn o_19_extreme_rates() {
    // A rate of 0 is an error here, and so is one that words cannot tell from it.
    let error = bucket(0, SECOND, 1).limiter().build().unwrap_err();
    assert_eq!(error.field(), "permits");
    assert_eq!(LeakyBucket::per_second(0).limiter().build().unwrap_err().field(), "permits");
    let age = Duration::from_secs(10_000_000_000);
    assert_eq!(bucket(1, age, 1).limiter().build().unwrap_err().field(), "period");
    assert_eq!(LeakyBucket::new(1, age).limiter().build().unwrap_err().field(), "period");
    Rig::new(FixedWindow::new(1, age).aligned()).run(SECOND, &[(0, 1, A), (0, 1, D)]);

    // The slowest there is: 36 years a permit.
    let years = Duration::from_nanos(1 << 60);
    for algorithm in paced(1, years) {
        let rig = Rig::new(algorithm);
        rig.run(years, &[(0, 1, A), (0, 1, Retry(1)), (1, 1, A), (1, 1, Retry(1))]);
        rig.set(years);
        rig.set_limit(Quota::per_second(10).burst(1));
        assert_eq!(rig.ask(1).retry_after(), Some(TENTH));
    }
    // 0.7692307692307693 a second.
    for algorithm in paced(10, SECOND * 13) {
        Rig::new(algorithm).run(TENTH, &[(0, 1, A), (0, 1, Retry(13)), (13, 1, A)]);
    }
}

#[test]
fn o_20_all_or_nothing() {
    Rig::new(bucket(10, SECOND * 10, 10)).run(
        MILLI,
        &[
            (0, 20, Never),
            (0, 9, Left(1)),
            (0, 1, Left(0)),
            (999, 1, Retry(1)),
            (5_999, 6, Retry(1)),
            (6_000, 6, Left(0)),
        ],
    );
}

#[test]
fn o_22_next_permit() {
    let timeline = [(0, 10, A), (0, 1, Retry(200)), (199, 1, D), (200, 1, A), (200, 1, Retry(200))];
    Rig::new(bucket(5, SECOND, 10)).run(MILLI, &timeline);
}

#[test]
fn o_25_one_per_tick() {
    // The peer refuses ticks below 50 ms; here a nanosecond is as good.
    for tick in [SECOND, MILLI * 50, MILLI, NANO * 3, NANO] {
        let timeline = [(0, 1, A), (0, 1, A), (0, 1, Retry(1)), (1, 1, A), (1, 1, Retry(1))];
        Rig::new(bucket(1, tick, 2)).run(tick, &timeline);
    }
}

#[test]
fn o_26_remainder_is_kept() {
    let quota = bucket(10, NANO * 100, 10);
    let timeline = [(97, 9, A), (97, 1, Retry(3)), (100, 1, A), (100, 1, Retry(10))];
    Rig::new(quota.start(StartLevel::Empty)).run(NANO, &timeline);
    let drained = Rig::new(quota);
    drained.run(NANO, &[(0, 10, A)]);
    drained.run(NANO, &timeline);
    // What would have come while the bucket was full is gone.
    Rig::new(quota).run(NANO, &[(97, 10, A), (100, 1, Retry(7))]);
}

#[test]
fn o_28_estimates() {
    let quota = bucket(100, NANO * 100, 100);
    Rig::new(quota).run(NANO, &[(0, 49, A)]);
    Rig::new(quota).run(NANO, &[(0, 30, Left(70)), (0, 80, Retry(10))]);
    Rig::new(quota).run(NANO, &[(0, 100, Left(0)), (0, 10, Retry(10)), (0, 120, Never)]);
    Rig::new(quota.start(StartLevel::Empty)).run(NANO, &[(0, 10, Retry(10)), (0, 120, Never)]);
    // Replenished by the interval instead: windows and logs. By the clock, windows so short would leave no room to
    // count a hundred.
    let aligned = FixedWindow::new(100, NANO * 100).aligned().into();
    let windows = by_windows(100, NANO * 100).into_iter();
    for (algorithm, turn) in windows.filter(|(algorithm, _)| *algorithm != aligned) {
        let timeline = [(0, 100, Left(0)), (0, 10, Retry(1)), (0, 120, Never)];
        Rig::new(algorithm).run(turn, &timeline);
    }
}

#[test]
fn o_32_fractions_and_a_clock_back() {
    let rig = Rig::new(bucket(100, NANO * 1_000, 100));
    rig.run(NANO, &[(0, 100, Left(0)), (3, 1, Retry(7))]);
    rig.set(NANO * 3);
    assert_eq!(rig.remaining(), 0);

    let rig = Rig::new(bucket(100, NANO * 1_000, 100));
    rig.run(NANO, &[(0, 10, Left(90))]);
    rig.set(NANO * 17);
    assert_eq!((rig.remaining(), rig.peek(0).reset_after()), (91, NANO * 83));
    assert_eq!(rig.peek(92).retry_after(), Some(NANO * 3));
    rig.set(NANO * 16);
    assert_eq!(rig.remaining(), 91);
    rig.set(NANO * 17);
    assert_eq!((rig.remaining(), rig.peek(0).reset_after()), (91, NANO * 83));
}

#[test]
fn o_34_undo_gives_back_once() {
    let rig = Rig::at(bucket(10, SECOND, 10), SECOND * 5);
    let (decision, receipt) = rig.check(10);
    assert!(decision.is_allowed());
    let (denied, nothing) = rig.check(1);
    assert!(!denied.is_allowed());
    // A receipt of a denied check is of nothing.
    rig.undo(nothing);
    assert!(!rig.check(1).0.is_allowed());
    // However often it is given back, it is ten that come back.
    for _ in 0..5 {
        rig.undo(receipt);
    }
    assert_eq!(rig.check(0).0.remaining(), 10);
    assert!(rig.check(10).0.is_allowed());
    assert!(!rig.check(1).0.is_allowed());
}

#[test]
fn o_38_start_levels() {
    let full = bucket(1, SECOND, 2);
    // The peer's cold bucket starts with the permits of one period.
    let cold = full.start(StartLevel::Fraction(0.5));
    Rig::new(full).run(SECOND, &[(0, 2, Left(0)), (0, 1, Retry(1)), (2, 2, A), (2, 1, D)]);
    let timeline = [(0, 1, Left(0)), (0, 1, D), (1, 1, Left(0)), (1, 1, Retry(1))];
    Rig::new(cold).run(SECOND, &timeline);
    let timeline = [(0, 1, Retry(1)), (1, 1, Left(0)), (1, 1, D), (3, 2, A)];
    Rig::new(full.start(StartLevel::Empty)).run(SECOND, &timeline);

    let full = bucket(5, SECOND, 10);
    assert_eq!(Rig::new(full).parallel(64), [10; 3]);
    assert_eq!(Rig::new(full.start(StartLevel::Fraction(0.5))).parallel(64), [5; 3]);
    assert_eq!(Rig::new(full.start(StartLevel::Empty)).parallel(64), [0; 3]);
}

#[test]
fn o_40_three_per_tick() {
    let rig = Rig::new(bucket(3, SECOND, 7));
    rig.run(SECOND, &[(0, 5, Left(2)), (0, 3, D)]);
    for (tick, remaining) in [(0, 2), (1, 5), (2, 7), (3, 7)] {
        rig.set(SECOND * tick);
        assert_eq!(rig.remaining(), remaining, "tick {tick}");
    }
}

#[test]
fn o_41_exact_waits() {
    // Q: the peer divides rounding down and forgets time already elapsed; these are the true waits.
    let slow = bucket(1, SECOND * 20, 2);
    Rig::new(slow).run(SECOND, &[(0, 2, A), (0, 2, Retry(40)), (15, 2, Retry(25))]);
    Rig::new(bucket(2, SECOND * 20, 2)).run(SECOND, &[(0, 2, A), (0, 2, Retry(20))]);
    Rig::new(bucket(2, SECOND * 20, 3)).run(SECOND, &[(0, 3, A), (0, 3, Retry(30))]);
    Rig::new(bucket(100, SECOND * 20, 2)).run(MILLI, &[(0, 2, A), (0, 2, Retry(400))]);
    Rig::new(bucket(1, SECOND * 20, 3)).run(SECOND, &[(0, 2, A), (0, 3, Retry(40))]);
}

#[test]
fn o_44_offered_twice_the_rate() {
    let rig = Rig::new(TokenBucket::per_second(100));
    let passed = (0..400).filter(|call| {
        rig.set(MILLI * 5 * *call);
        rig.ask(1).is_allowed()
    });
    // The burst, and 1.995 s of rate.
    assert_eq!(passed.count(), 299);
}

#[test]
fn o_124_raised_limit_shortens_the_debt() {
    let rig = Rig::new(bucket(10, SECOND * 20, 10));
    rig.run(SECOND, &[(0, 10, Left(0)), (0, 1, Retry(2))]);
    rig.set(Duration::ZERO);
    rig.set_limit(Quota::new(1_000, SECOND * 20).burst(10));
    let timeline = [(0, 1, Retry(20)), (20, 1, Left(0)), (200, 9, Left(0))];
    rig.run(MILLI, &timeline);
    // With a burst of the new limit the ten that are spent are ten of a thousand.
    let rig = Rig::new(bucket(10, SECOND * 20, 10));
    rig.run(SECOND, &[(0, 10, Left(0))]);
    rig.set_limit(Quota::new(1_000, SECOND * 20));
    assert_eq!((rig.remaining(), rig.peek(0).reset_after()), (990, MILLI * 200));
}
