//! Area WN: windows, and what else is asked to be as exact as they; and costs in what slides.

use std::time::Duration;

use tower_sluice::{Algorithm, FixedWindow, Quota, SlidingLog, SlidingWindow};

use crate::support_core::{HOUR, SECOND, Three, algorithms, counts_for, every, leaky, retry_secs};

const MILLI: Duration = Duration::from_millis(1);
const NANO: Duration = Duration::from_nanos(1);

#[test]
fn ar_13_costs_in_a_log_and_a_window() {
    // Instants in seconds, costs, and the wait where it is denied.
    let mut log = vec![(0, 8, None), (1, 1, None), (2, 1, None), (3, 1, Some(57))];
    let mut cells = log.clone();
    // The eight have expired, and the two after them not.
    log.extend([(60, 8, None), (60, 1, Some(1)), (61, 1, None)]);
    // All ten are in a cell that ends at 6 s, and count to 66 s.
    cells[3].2 = Some(63);
    cells.extend([(60, 8, Some(6)), (66, 8, None), (66, 2, None), (66, 1, Some(66))]);
    let algorithms: [(Algorithm, _); 2] =
        [(SlidingLog::per_minute(10).into(), log), (SlidingWindow::per_minute(10).into(), cells)];
    for (algorithm, rows) in algorithms {
        let three = Three::new(algorithm);
        for (second, cost, wait) in rows {
            let decision = three.ask(SECOND * second, cost);
            assert_eq!(decision.is_allowed(), wait.is_none(), "{algorithm:?} at {second}");
            assert_eq!(decision.retry_after(), wait.map(|wait| SECOND * wait), "{algorithm:?}");
            let dear = three.ask(SECOND * second, 11);
            assert!(dear.is_never() && dear.retry_after().is_none(), "{algorithm:?}");
        }
    }
}

#[test]
fn wn_01_no_double_burst_across_an_edge() {
    let ten = Quota::per_second(10);
    let instants = [999, 1_000, 1_500, 1_998, 1_999, 2_000].map(|milli| MILLI * milli);
    let expected = [
        // A permit each tenth of a second.
        [10, 0, 5, 4, 1, 0],
        // From the first request, and by the clock: the double, as it says.
        [10, 0, 0, 0, 10, 0],
        [10, 10, 0, 0, 0, 10],
        // A cell later than the log.
        [10, 0, 0, 0, 0, 10],
        [10, 0, 0, 0, 10, 0],
        [1, 0, 1, 1, 0, 0],
    ];
    for (algorithm, expected) in every(ten).zip(expected) {
        let three = Three::new(algorithm);
        let passed = instants.map(|instant| three.admitted(instant, 11));
        assert_eq!(passed, expected, "{algorithm:?}");
    }
    // As much in its first request as can be.
    for algorithm in algorithms(ten) {
        let three = Three::new(algorithm);
        assert!(three.ask(instants[0], 10).is_allowed());
        let doubles = algorithm == FixedWindow::per_second(10).aligned().into();
        assert_eq!(three.ask(instants[1], 10).is_allowed(), doubles, "{algorithm:?}");
    }
}

#[test]
fn wn_02_never_more_in_a_trailing_window() {
    let (first, second) = (SECOND - NANO, SECOND * 2 - NANO * 2);
    for (algorithm, late) in [
        (SlidingWindow::per_second(100).into(), SECOND * 2),
        (Algorithm::from(SlidingLog::per_second(100)), SECOND * 2 - NANO),
    ] {
        let three = Three::new(algorithm);
        assert_eq!(three.admitted(first, 101), 100);
        assert_eq!(three.admitted(second, 100), 0, "{algorithm:?}");
        assert_eq!(three.ask(second, 1).retry_after(), Some(late - second), "{algorithm:?}");
        assert_eq!(three.admitted(late, 101), 100, "{algorithm:?}");
    }
}

#[test]
fn wn_03_seventeen_in_thirty_seconds() {
    let quota = Quota::new(17, SECOND * 30);
    // The bucket's burst, and its rate; the leaky one each 1.76 s, and a request comes each full second and a
    // quarter later.
    let expected = [33, 17, 17, 17, 17, 15];
    for (algorithm, expected) in every(quota).zip(expected) {
        let three = Three::new(algorithm);
        let instants = (0..30).flat_map(|n| [SECOND * n, SECOND * n + MILLI * 250]);
        let passed = instants.filter(|instant| three.ask(*instant, 1).is_allowed()).count();
        assert_eq!(passed, expected, "{algorithm:?}");
    }
    let page = include_str!("../../src/algorithm/token_bucket.rs");
    assert!(page.contains("at most `burst + rate x L`"), "what a bucket promises is said");
}

#[test]
fn wn_05_what_has_expired_counts_no_more() {
    let quota = (2, SECOND * 10);
    let log = [(0, None), (1_000, None), (10_000, None), (10_500, Some(500)), (11_000, None)];
    // The cells of the first two end at 1 s and at 2 s.
    let cells =
        [(0, None), (1_000, None), (10_000, Some(1_000)), (10_500, Some(500)), (11_000, None)];
    let algorithms: [(Algorithm, _); 2] = [
        (SlidingLog::new(quota.0, quota.1).into(), log),
        (SlidingWindow::new(quota.0, quota.1).into(), cells),
    ];
    for (algorithm, rows) in algorithms {
        let three = Three::new(algorithm);
        for (milli, wait) in rows {
            let decision = three.ask(MILLI * milli, 1);
            assert_eq!(decision.is_allowed(), wait.is_none(), "{algorithm:?} at {milli}");
            assert_eq!(decision.retry_after(), wait.map(|wait| MILLI * wait), "{algorithm:?}");
            // In whole seconds, rounded up, is what a client is told.
            assert_eq!(retry_secs(&decision), wait.map(|_| 1));
        }
    }
    // To the nanosecond, whatever ends: a window, a cell, an entry.
    for algorithm in algorithms_of_windows(Quota::new(2, SECOND * 10)) {
        let three = Three::new(algorithm);
        let end = counts_for(algorithm);
        assert_eq!(three.admitted(Duration::ZERO, 3), 2);
        assert_eq!(three.ask(end - NANO, 1).retry_after(), Some(NANO), "{algorithm:?}");
        assert_eq!(three.one.peek(0).remaining(), 0);
        assert_eq!(three.admitted(end, 3), 2, "{algorithm:?}");
    }
}

/// Those that count by windows, sliding or not.
fn algorithms_of_windows(quota: Quota) -> impl Iterator<Item = Algorithm> {
    algorithms(quota).into_iter().skip(1)
}

#[test]
fn wn_06_refused_attempts_are_not_logged() {
    let quota = Quota::new(10, SECOND * 600);
    let tens = |starts: &[u32]| {
        let passes = starts.iter().flat_map(|start| (0..10).map(move |n| start + 30 * n));
        passes.filter(|second| *second <= 1_200).collect::<Vec<_>>()
    };
    let whole = tens(&[0, 600, 1_200]);
    // Cells of a minute: two come back with each.
    let cells = tens(&[0, 660]);
    let minutes: Vec<_> = (0..=1_200).step_by(60).collect();
    // One each minute, and nine more from the burst: these last for the first 18 attempts.
    let bucket: Vec<_> =
        (0..=1_200).step_by(30).filter(|second| *second <= 540 || second % 60 == 0).collect();
    let expected = [bucket, whole.clone(), whole.clone(), cells, whole, minutes];
    for (algorithm, expected) in every(quota).zip(expected) {
        let three = Three::new(algorithm);
        let instants = (0..=1_200).step_by(30);
        let passed: Vec<_> =
            instants.filter(|second| three.ask(SECOND * *second, 1).is_allowed()).collect();
        assert_eq!(passed, expected, "{algorithm:?}");
        for from in [0, 600] {
            let within = passed.iter().filter(|second| (from..from + 600).contains(*second));
            assert!(within.count() >= 10, "{algorithm:?} from {from} s");
        }
    }
    // Nor does who never stops asking wait longer than who does.
    for algorithm in every(Quota::per_second(10)) {
        let three = Three::new(algorithm);
        let burst = three.one.peek(0).limit();
        assert_eq!(three.admitted(Duration::ZERO, burst), burst);
        let denied = three.ask(Duration::ZERO, 1).retry_after().expect("it is spent");
        let step = denied / 1_000;
        assert!((0..1_000).all(|n| !three.ask(step * n, 1).is_allowed()), "{algorithm:?}");
        assert!(three.ask(denied, 1).is_allowed(), "{algorithm:?}");
    }
}

#[test]
fn wn_09_exactly_as_many_as_the_limit() {
    for limit in [1, 2, 10, 1_000] {
        let quota = Quota::new(limit, HOUR);
        for algorithm in every(quota) {
            let three = Three::new(algorithm);
            let expected = if algorithm == leaky(quota) { 1 } else { limit };
            for round in 0..2 {
                let instant = HOUR * 2 * round;
                for n in 1..=expected {
                    let decision = three.ask(instant, 1);
                    assert!(decision.is_allowed(), "{algorithm:?}: {n} of {expected}");
                    assert_eq!(decision.remaining(), expected - n, "{algorithm:?}");
                }
                assert!(!three.ask(instant, 1).is_allowed(), "{algorithm:?}: one more");
            }
            // A key that was told to start anew starts with its limit, and no more.
            three.many.reset("key");
            let passed = (0..=expected).filter(|_| three.many.try_acquire("key").is_allowed());
            assert_eq!(passed.count() as u64, expected, "{algorithm:?} after a reset");
        }
    }
}
