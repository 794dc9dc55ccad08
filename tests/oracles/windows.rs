//! Windows, fixed and sliding, and logs.

use std::time::Duration;

use tower_sluice::{Algorithm, FixedWindow, SlidingLog, SlidingWindow, TokenBucket};

use crate::{
    rig::{
        MILLI, NANO, Rig, SECOND,
        Want::{A, D, Left, Never, Retry},
        bucket, by_windows, one_each,
    },
    waits::{
        LONG,
        Turn::{At, Out},
        Waits,
    },
};

#[test]
fn o_62_rest_of_the_window() {
    // With one permit a window that begins with a request is an interval.
    for (algorithm, turn) in one_each(MILLI * 250) {
        let rig = Rig::new(algorithm);
        rig.run(turn, &[(0, 1, A), (0, 1, Retry(1)), (1, 1, A), (1, 1, Retry(1))]);
        rig.set(turn * 2 - NANO);
        assert_eq!(rig.ask(1).retry_after(), Some(NANO), "{algorithm:?}");
    }
}

#[test]
fn o_64_costs_over_three_windows() {
    for (algorithm, turn) in by_windows(10, SECOND) {
        let timeline = [
            (0, 5, A),
            (0, 5, Left(0)),
            (0, 1, Retry(1)),
            (1, 1, A),
            (1, 5, Left(4)),
            (1, 5, Retry(1)),
            (2, 5, Left(5)),
        ];
        Rig::new(algorithm).run(turn, &timeline);
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
    for (algorithm, _) in by_windows(5, SECOND) {
        rounds(&Rig::new(algorithm), SECOND, &[(0, 5), (3, 5)]);
        assert_eq!(Rig::new(algorithm).parallel(40), [5; 3]);
        // Another key has a window of its own.
        let rig = Rig::new(algorithm);
        rounds(&rig, SECOND, &[(0, 5)]);
        rig.set(Duration::ZERO);
        assert_eq!(rig.many.try_acquire("another").remaining(), 4);
        // Idle for a day, and for two.
        rounds(&rig, SECOND, &[(86_400, 5), (3 * 86_400, 5)]);
    }
    // The peer's burst of 3 comes beside the rate: a bucket of 8.
    let steps = [(0, 8), (1_002, 5), (2_004, 5), (4_004, 8), (5_006, 5)];
    rounds(&Rig::new(bucket(5, SECOND, 8)), MILLI, &steps);
    for (algorithm, turn) in by_windows(5, SECOND * 60) {
        let rig = Rig::new(algorithm);
        rounds(&rig, SECOND, &[(0, 5)]);
        let wait = |second| Retry(turn.as_secs() as u32 - second);
        rig.run(SECOND, &[(1, 1, wait(1)), (11, 1, wait(11)), (41, 1, wait(41))]);
        rounds(&rig, SECOND, &[(71, 5)]);
    }
}

#[test]
fn o_77_waits_for_the_interval() {
    for (algorithm, turn) in by_windows(10, SECOND * 60) {
        let turn = turn.as_secs() as u32;
        let timeline = [
            (0, 10, A),
            (0, 1, Retry(turn)),
            (0, 10, Retry(turn)),
            (15, 1, Retry(turn - 15)),
            (15, 15, Never),
        ];
        Rig::new(algorithm).run(SECOND, &timeline);
    }
    // A sliding window of ten nanoseconds has cells of one, and counts eleven.
    let nine: [(Algorithm, _); 3] = [
        (FixedWindow::new(9, NANO * 10).into(), 9),
        (SlidingLog::new(9, NANO * 10).into(), 9),
        (SlidingWindow::new(9, NANO * 10).into(), 0),
    ];
    for (algorithm, at_ten) in nine {
        let rig = Rig::new(algorithm);
        rig.run(NANO, &[(0, 9, A)]);
        for (instant, remaining) in [(4, 0), (10, at_ten), (11, 9)] {
            rig.set(NANO * instant);
            assert_eq!(rig.remaining(), remaining, "{algorithm:?} at {instant} ns");
        }
    }
}

#[test]
fn o_80_costs_against_a_window() {
    for (algorithm, turn) in by_windows(5, SECOND) {
        let rig = Rig::new(algorithm);
        let rows = [(2, A, 3), (2, A, 1), (1, A, 0), (2, D, 0), (10, Never, 0), (1, D, 0)];
        for (cost, want, remaining) in rows {
            rig.run(turn, &[(0, cost, want)]);
            rig.set(Duration::ZERO);
            assert_eq!(rig.remaining(), remaining);
        }
    }
    for (algorithm, turn) in by_windows(3, SECOND) {
        Rig::new(algorithm).run(turn, &[(0, 2, A), (0, 2, D), (0, 2, D), (0, 2, D)]);
        Rig::new(algorithm).run(turn, &[(0, 3, A), (0, 3, D), (0, 3, D)]);
        Rig::new(algorithm)
            .run(turn, &[(0, 4, Never), (0, 0, Left(3)), (0, 3, A), (0, 0, Left(0))]);
    }
}

#[test]
fn o_85_denied_request_consumes_nothing() {
    let windows = by_windows(10, SECOND).map(|(algorithm, _)| algorithm);
    for algorithm in windows.into_iter().chain([TokenBucket::per_second(10).into()]) {
        let rig = Rig::new(algorithm);
        let denied = [8, 5].map(|cost| rig.ask(cost))[1];
        assert_eq!((denied.is_allowed(), denied.remaining()), (false, 2), "{algorithm:?}");
        rig.run(SECOND, &[(0, 1, Left(1))]);
    }
}

#[test]
fn o_86_denials_are_not_counted() {
    // What came evenly early comes back a cell later in a sliding window: of the five of second 3 the first
    // comes too early for that of second 2, and so on, and the client recovers all the same.
    let expected = [[1, 0, 3], [1, 0, 3], [1, 0, 3], [1, 1, 4]];
    for ((algorithm, _), expected) in by_windows(5, SECOND).into_iter().zip(expected) {
        let rig = Rig::new(algorithm);
        let denied = [(2, 6), (3, 5), (4, 8)].map(|(second, offered)| {
            let calls = (0..offered).filter(|call| {
                rig.set(SECOND * second + SECOND * *call / offered);
                !rig.ask(1).is_allowed()
            });
            calls.count()
        });
        assert_eq!(denied, expected, "{algorithm:?}");
    }
}

#[test]
fn o_61_waits_on_a_window_of_ten_milliseconds() {
    let longest = MILLI * 12;
    let cycle = 10_000_000;
    // Three at once, three in the next window, and three who would have to wait for that after it.
    let rows = |turns: [u32; 3], third: u32| {
        let mut rows = Vec::new();
        for call in 1..=9 {
            rows.push(match call {
                1..=3 => (cycle + call, 1, longest, At(cycle + call)),
                4..=6 => (cycle + call, 1, longest, At(turns[call as usize - 4])),
                _ => (cycle + call, 1, longest, Out(third - cycle - call)),
            });
        }
        rows
    };
    let aligned = FixedWindow::new(3, MILLI * 10).aligned();
    // From the first request on a window begins a nanosecond later.
    let begun = cycle + 1;
    let log = [1, 2, 3].map(|call| 2 * cycle + call);
    let algorithms: [(Algorithm, _, _); 3] = [
        (aligned.into(), [2 * cycle; 3], 3 * cycle),
        (FixedWindow::new(3, MILLI * 10).into(), [begun + cycle; 3], begun + 2 * cycle),
        (SlidingLog::new(3, MILLI * 10).into(), log, begun + 2 * cycle),
    ];
    for (algorithm, turns, third) in algorithms {
        for mut waits in Waits::both(algorithm) {
            waits.run(NANO, &rows(turns, third));
            // The refused ones have consumed nothing: three have their turn at once in the third window.
            let next = [(third, 1, Duration::ZERO, At(third)), (third + 2, 2, LONG, At(third + 2))];
            waits.run(NANO, &next);
        }
    }
}

#[test]
fn o_91_exact_log_of_ten_a_minute() {
    let log = Rig::new(SlidingLog::per_minute(10));
    log.run(SECOND, &[(10, 1, A), (20, 2, A), (30, 4, A), (50, 3, Left(0)), (50, 1, Retry(20))]);
    log.run(SECOND, &[(71, 1, Left(0)), (72, 1, Retry(8)), (80, 2, Left(0))]);
    // Per permit: one of the four of 30 s is not to be had alone before the others, and all four are then.
    log.run(SECOND, &[(80, 1, Retry(10)), (80, 5, Retry(30)), (90, 4, Left(0))]);
}

#[test]
fn o_92_exact_log_of_two_a_minute() {
    Rig::new(SlidingLog::per_minute(2)).run(
        SECOND,
        &[(0, 1, Left(1)), (1, 1, Left(0)), (2, 1, Retry(58)), (2, 2, Retry(59)), (60, 1, Left(0))],
    );
}
