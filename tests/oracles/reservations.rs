//! Reservations of peers, as waits: what is to be acted on at an instant is admitted at it.

use std::time::Duration;

use tower_sluice::{FixedWindow, LeakyBucket, Quota, SlidingLog, StartLevel};

use crate::{
    rig::{MILLI, SECOND, bucket, one_each, paced},
    waits::{
        Got, LONG,
        Turn::{self, At, Never, Out},
        Waits,
    },
};

const TENTH: Duration = Duration::from_millis(100);
const NOW: Duration = Duration::ZERO;

#[test]
fn o_04_reservations() {
    for mut waits in Waits::both(bucket(10, SECOND, 2)) {
        waits.run(TENTH, &[(0, 2, LONG, At(0)), (0, 2, LONG, At(2)), (3, 2, LONG, At(4))]);
    }
}

#[test]
fn o_05_reservations_and_asks() {
    for mut waits in Waits::both(bucket(10, SECOND, 2)) {
        waits.run(TENTH, &[(0, 3, LONG, Never), (0, 2, LONG, At(0))]);
        waits.to(TENTH);
        assert_eq!(waits.peek(0).remaining(), 1);
        assert_eq!(waits.try_acquire(2).retry_after(), Some(TENTH));
        let waiter = waits.ask(2, LONG);
        // The peer is at -1 now. Here the one permit is there still, and is not a newcomer's: he would
        // have his at t3.
        let denied = waits.try_acquire(1);
        assert_eq!((denied.remaining(), denied.retry_after()), (1, Some(TENTH * 2)));
        waits.to(TENTH * 3);
        assert_eq!(waits.got(waiter), Some((TENTH * 2, Got::In)));
        assert_eq!(waits.peek(0).remaining(), 1);
        assert!(waits.try_acquire(1).is_allowed());
    }
}

#[test]
fn o_07_cancelled_too_late() {
    for mut waits in Waits::both(bucket(10, SECOND, 2)) {
        waits.run(TENTH, &[(0, 2, LONG, At(0)), (0, 2, LONG, At(2))]);
        // There is nothing left to cancel, and nothing comes back.
        waits.run(TENTH, &[(3, 2, LONG, At(4))]);
    }
}

#[test]
fn o_11_bounded_wait() {
    for mut waits in Waits::both(bucket(10, SECOND, 2)) {
        let timeline = [(0, 2, TENTH, At(0)), (0, 1, TENTH, At(1)), (0, 1, TENTH, Out(2))];
        waits.run(TENTH, &timeline);
        // Of who was refused nothing is left.
        waits.run(TENTH, &[(1, 1, TENTH, At(2)), (2, 1, TENTH, At(3))]);
    }
}

#[test]
fn o_14_rate_raised_and_one_leaves() {
    // Q: what a cancelled reservation gives back is disputed among peers. Here it was never taken.
    for leaves in [true, false] {
        for mut waits in Waits::both(bucket(5, SECOND, 2)) {
            waits.run(TENTH, &[(0, 2, LONG, At(0))]);
            let first = waits.ask(2, LONG);
            waits.to(TENTH * 2);
            waits.set_limit(Quota::per_second(10).burst(2));
            if leaves {
                waits.leave(first);
                waits.run(TENTH, &[(2, 2, LONG, At(3))]);
            } else {
                // Due at t4 by the old rate, and sooner by the new one.
                waits.run(TENTH, &[(2, 2, LONG, At(5))]);
                assert_eq!(waits.got(first), Some((TENTH * 3, Got::In)));
            }
        }
    }
}

#[test]
fn o_16_known_too_long() {
    for mut waits in Waits::both(bucket(10, SECOND, 2)) {
        waits.run(TENTH, &[(0, 2, NOW, At(0)), (0, 2, TENTH, Out(2)), (2, 2, NOW, At(2))]);
    }
    // A nanosecond too long is too long.
    let nano = Duration::from_nanos(1);
    for (algorithm, turn) in one_each(TENTH) {
        for mut waits in Waits::both(algorithm) {
            let timeline = [(0, 1, NOW, At(0)), (0, 1, turn - nano, Out(1)), (0, 1, turn, At(1))];
            waits.run(turn, &timeline);
        }
    }
}

#[test]
fn o_19_waiting_while_the_limit_is_raised() {
    let years = Duration::from_nanos(1 << 60);
    for algorithm in paced(1, years) {
        for mut waits in Waits::both(algorithm) {
            waits.run(years, &[(0, 1, NOW, At(0)), (0, 1, LONG, Out(1))]);
            let first = waits.ask(1, years);
            let second = waits.ask(1, years * 3);
            waits.set_limit(Quota::per_second(10).burst(1));
            waits.to(SECOND);
            assert_eq!(waits.got(first), Some((TENTH, Got::In)));
            assert_eq!(waits.got(second), Some((TENTH * 2, Got::In)));
        }
    }
    for algorithm in paced(10, SECOND * 13) {
        for mut waits in Waits::both(algorithm) {
            let timeline = [(0, 1, LONG, At(0)), (0, 1, LONG, At(13)), (0, 1, LONG, At(26))];
            waits.run(TENTH, &timeline);
        }
    }
}

#[test]
fn o_35_ten_waits_of_a_second_each() {
    for mut waits in Waits::both(bucket(10, SECOND, 10)) {
        waits.to(SECOND);
        waits.run(TENTH, &[(10, 10, NOW, At(10)), (10, 1, NOW, Out(1))]);
        let timeline: Vec<_> = (1..=10).map(|turn| (1, 10, LONG, At(1 + turn))).collect();
        waits.run(SECOND, &timeline);
        assert_eq!(waits.try_acquire(1).retry_after(), Some(TENTH));
    }
}

#[test]
fn o_41_waits_behind_a_permit() {
    // Q: the peer rounds down and forgets time already elapsed; these are the true waits.
    for mut waits in Waits::both(bucket(1, SECOND * 20, 2)) {
        let timeline = [(0, 2, NOW, At(0)), (0, 1, LONG, At(20)), (0, 2, LONG, At(60))];
        waits.run(SECOND, &timeline);
    }
    // Three permits are lacking, one comes each ten seconds; five of them are over.
    for mut waits in Waits::both(bucket(2, SECOND * 20, 2)) {
        let timeline = [
            (0, 2, NOW, At(0)),
            (0, 1, LONG, At(10)),
            (0, 2, SECOND * 30 - MILLI, Out(30)),
            (5, 2, SECOND * 25 - MILLI, Out(25)),
            (5, 2, SECOND * 25, At(30)),
        ];
        waits.run(SECOND, &timeline);
    }
}

#[test]
fn o_43_waits_of_whole_windows() {
    // The peer's permits come at once at the end of each period, as a window's do; what it asks for together
    // comes here one by one, and the last waits as long.
    let several = |callers: usize, came, last| {
        let mut rows = vec![(came, 1, LONG, None); callers];
        rows[callers - 1].3 = Some(last);
        rows
    };
    let two = [
        several(7, 0, 3_000),
        several(3, 800, 4_000),
        several(1, 2_300, 5_000),
        several(3, 3_500, 6_000),
        several(1, 7_000, 7_000),
    ];
    let five = [several(3, 300, 300), several(10, 1_550, 2_000), several(2, 2_210, 3_000)];
    let windows = [(2, two.concat()), (5, five.concat())];
    for (permits, rows) in windows {
        for mut waits in Waits::both(FixedWindow::new(permits, SECOND).aligned()) {
            let asked: Vec<_> = rows
                .iter()
                .map(|(came, cost, longest, last)| {
                    waits.to(MILLI * *came);
                    (waits.ask(*cost, *longest), *last)
                })
                .collect();
            waits.to(SECOND * 10);
            for (caller, last) in asked {
                let (instant, got) = waits.got(caller).expect("an end");
                assert_eq!(got, Got::In);
                if let Some(last) = last {
                    assert_eq!(instant, MILLI * last, "caller {caller}");
                }
            }
        }
    }
}

#[test]
fn o_53_the_third_waits() {
    for mut waits in Waits::both(bucket(30, SECOND * 60, 2)) {
        let longest = SECOND * 2;
        let timeline = [
            (0, 1, longest, At(0)),
            (0, 1, longest, At(0)),
            (0, 1, longest, At(2)),
            (0, 1, longest, Out(4)),
        ];
        waits.run(SECOND, &timeline);
    }
}

#[test]
fn o_56_eight_at_once() {
    for (algorithm, turn) in one_each(TENTH) {
        for mut waits in Waits::both(algorithm) {
            let longest = turn * 5;
            let admitted = (0..6).map(|turn| (0, 1, longest, At(turn)));
            let refused = [(0, 1, longest, Out(6)); 2];
            waits.run(turn, &admitted.chain(refused).collect::<Vec<_>>());
        }
    }
}

#[test]
fn o_59_ten_at_once() {
    for (algorithm, turn) in one_each(TENTH) {
        for mut waits in Waits::both(algorithm) {
            let longest = turn * 5;
            let admitted = (0..6).map(|turn| (0, 1, longest, At(turn)));
            let refused = [(0, 1, longest, Out(6)); 4];
            let free = [(0, 0, longest, At(0))];
            waits.run(turn, &admitted.chain(refused).chain(free).collect::<Vec<_>>());
        }
    }
    // A count of 0 is an error here.
    assert_eq!(LeakyBucket::per_second(0).limiter().build().unwrap_err().field(), "permits");
}

#[test]
fn o_65_three_acquires() {
    let quota = bucket(5, SECOND, 6).start(StartLevel::Fraction(1.0 / 6.0));
    // Each asks when the one before has gone.
    let fresh = |timeline: &[(u32, u64, Duration, Turn)]| {
        for mut waits in Waits::both(quota) {
            waits.run(MILLI, timeline);
        }
    };
    fresh(&[(0, 1, LONG, At(0)), (0, 1, LONG, At(200)), (200, 1, LONG, At(400))]);
    let all_at_once = [(0, 1, LONG, At(0)), (0, 1, LONG, At(200)), (0, 1, LONG, At(400))];
    fresh(&all_at_once);
    fresh(&[
        (0, 1, LONG, At(0)),
        (400, 1, LONG, At(400)),
        (400, 1, LONG, At(400)),
        (400, 1, LONG, At(600)),
    ]);
    fresh(&[
        (2_000, 1, LONG, At(2_000)),
        (2_000, 1, LONG, At(2_000)),
        (2_000, 3, LONG, At(2_000)),
        (2_000, 1, LONG, At(2_000)),
        (2_000, 1, LONG, At(2_200)),
    ]);
}

#[test]
fn o_67_timed_tries() {
    // Q: the peer charges who comes and lets the next pay for it, so that who waits is in its own debt; here a
    // wait ends with the charge. Of one permit each, the instants are the same.
    let log = SlidingLog::new(1, TENTH * 2).into();
    for algorithm in paced(5, SECOND).into_iter().chain([log]) {
        let run = |timeline: &[(u32, u64, Duration, Turn)]| {
            for mut waits in Waits::both(algorithm) {
                waits.run(MILLI, timeline);
            }
        };
        run(&[
            (0, 1, NOW, At(0)),
            (0, 1, NOW, Out(200)),
            (0, 1, NOW, Out(200)),
            (100, 1, NOW, Out(100)),
        ]);
        run(&[
            (0, 1, NOW, At(0)),
            (0, 1, TENTH * 2, At(200)),
            (200, 1, TENTH, Out(200)),
            (300, 1, TENTH, At(400)),
        ]);
    }
}
