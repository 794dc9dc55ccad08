//! Fixed windows.

use std::time::Duration;

use tower_sluice::{Algorithm, FixedWindow, LeakyBucket, TokenBucket};

use crate::rig::{
    MILLI, NANO, Rig, SECOND,
    Want::{A, D, Left, Never, Retry},
    bucket, windows,
};

#[test]
fn o_62_rest_of_the_window() {
    // With one permit a window that begins with a request is an interval.
    let windows = windows(1, MILLI * 250).map(Algorithm::from);
    let leaky = LeakyBucket::new(1, MILLI * 250).into();
    for algorithm in windows.into_iter().chain([leaky]) {
        let timeline = [(0, 1, A), (0, 1, Retry(250)), (250, 1, A), (250, 1, Retry(250))];
        let rig = Rig::new(algorithm);
        rig.run(MILLI, &timeline);
        rig.set(MILLI * 500 - NANO);
        assert_eq!(rig.ask(1).retry_after(), Some(NANO));
    }
}

#[test]
fn o_64_costs_over_three_windows() {
    for window in windows(10, SECOND) {
        let timeline = [
            (0, 5, A),
            (0, 5, Left(0)),
            (0, 1, Retry(1)),
            (1, 1, A),
            (1, 5, Left(4)),
            (1, 5, Retry(1)),
            (2, 5, Left(5)),
        ];
        Rig::new(window).run(SECOND, &timeline);
    }
}

/// `n` that pass and one that does not, at each instant.
fn rounds(rig: &Rig, unit: Duration, instants: &[(u32, usize)]) {
    for &(instant, passes) in instants {
        rig.run(unit, &vec![(instant, 1, A); passes]);
        rig.run(unit, &[(instant, 1, D)]);
    }
}

#[test]
fn o_76_window_and_burst_per_key() {
    for window in windows(5, SECOND) {
        rounds(&Rig::new(window), SECOND, &[(0, 5), (3, 5)]);
        assert_eq!(Rig::new(window).parallel(40), [5; 3]);
        // Another key has a window of its own.
        let rig = Rig::new(window);
        rounds(&rig, SECOND, &[(0, 5)]);
        rig.set(Duration::ZERO);
        assert_eq!(rig.many.try_acquire("another").remaining(), 4);
        // Idle for a day, and for two.
        rounds(&rig, SECOND, &[(86_400, 5), (3 * 86_400, 5)]);
    }
    // The peer's burst of 3 comes beside the rate: a bucket of 8.
    let steps = [(0, 8), (1_002, 5), (2_004, 5), (4_004, 8), (5_006, 5)];
    rounds(&Rig::new(bucket(5, SECOND, 8)), MILLI, &steps);
    for window in windows(5, SECOND * 60) {
        let rig = Rig::new(window);
        rounds(&rig, SECOND, &[(0, 5)]);
        rig.run(SECOND, &[(1, 1, Retry(59)), (11, 1, Retry(49)), (41, 1, Retry(19))]);
        rounds(&rig, SECOND, &[(71, 5)]);
    }
}

#[test]
fn o_77_waits_for_the_interval() {
    for window in windows(10, SECOND * 60) {
        let timeline = [
            (0, 10, A),
            (0, 1, Retry(60)),
            (0, 10, Retry(60)),
            (15, 1, Retry(45)),
            (15, 15, Never),
        ];
        Rig::new(window).run(SECOND, &timeline);
    }
    let rig = Rig::new(FixedWindow::new(9, NANO * 10));
    rig.run(NANO, &[(0, 9, A)]);
    for (instant, remaining) in [(4, 0), (10, 9), (11, 9)] {
        rig.set(NANO * instant);
        assert_eq!(rig.remaining(), remaining, "at {instant} ns");
    }
}

#[test]
fn o_80_costs_against_a_window() {
    for window in windows(5, SECOND) {
        let rig = Rig::new(window);
        let rows = [(2, A, 3), (2, A, 1), (1, A, 0), (2, D, 0), (10, Never, 0), (1, D, 0)];
        for (cost, want, remaining) in rows {
            rig.run(SECOND, &[(0, cost, want)]);
            rig.set(Duration::ZERO);
            assert_eq!(rig.remaining(), remaining);
        }
    }
    for window in windows(3, SECOND) {
        Rig::new(window).run(SECOND, &[(0, 2, A), (0, 2, D), (0, 2, D), (0, 2, D)]);
        Rig::new(window).run(SECOND, &[(0, 3, A), (0, 3, D), (0, 3, D)]);
        Rig::new(window).run(SECOND, &[(0, 4, Never), (0, 0, Left(3)), (0, 3, A), (0, 0, Left(0))]);
    }
}

#[test]
fn o_85_denied_request_consumes_nothing() {
    let [window, aligned] = windows(10, SECOND).map(Algorithm::from);
    for algorithm in [TokenBucket::per_second(10).into(), window, aligned] {
        let rig = Rig::new(algorithm);
        let denied = [8, 5].map(|cost| rig.ask(cost))[1];
        assert_eq!((denied.is_allowed(), denied.remaining()), (false, 2), "{algorithm:?}");
        rig.run(SECOND, &[(0, 1, Left(1))]);
    }
}

#[test]
fn o_86_denials_are_not_counted() {
    for window in windows(5, SECOND) {
        let rig = Rig::new(window);
        for (second, offered, expected) in [(2, 6, 1), (3, 5, 0), (4, 8, 3)] {
            let denied = (0..offered).filter(|call| {
                rig.set(SECOND * second + SECOND * *call / offered);
                !rig.ask(1).is_allowed()
            });
            assert_eq!(denied.count(), expected, "{window:?}, second {second}");
        }
    }
}
