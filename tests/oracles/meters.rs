//! Virtual scheduling and leaky meters: the token bucket under other names.

use std::time::Duration;

use tower_sluice::StartLevel;

use crate::rig::{
    MILLI, NANO, Rig, SECOND,
    Want::{A, D, Left, Retry},
    bucket,
};

const TENTH: Duration = Duration::from_millis(100);

#[test]
fn o_46_the_whole_table() {
    const NEVER: Option<u32> = Some(u32::MAX);
    // Instant in tenths, cost, remaining, reset in tenths; no wait where allowed.
    let rows = [
        (0, 6, 5, 0, NEVER),
        (0, 1, 4, 10, None),
        (0, 1, 3, 20, None),
        (0, 1, 2, 30, None),
        (0, 1, 1, 40, None),
        (0, 1, 0, 50, None),
        (0, 1, 0, 50, Some(10)),
        (30, 1, 2, 30, None),
        (31, 1, 1, 39, None),
        (40, 1, 1, 40, None),
        (80, 1, 4, 10, None),
        (95, 1, 4, 10, None),
        (95, 0, 4, 10, None),
        (95, 2, 2, 30, None),
        (95, 5, 2, 30, Some(30)),
        (150, 6, 5, 0, NEVER),
    ];
    let rig = Rig::new(bucket(1, SECOND, 5));
    for (n, (instant, cost, remaining, reset, retry)) in rows.into_iter().enumerate() {
        rig.set(TENTH * instant);
        let decision = rig.ask(cost);
        assert_eq!(decision.limit(), 5);
        assert_eq!(decision.remaining(), remaining, "row {n}");
        assert_eq!(decision.reset_after(), TENTH * reset, "row {n}");
        assert_eq!(decision.is_allowed(), retry.is_none(), "row {n}");
        assert_eq!(decision.is_never(), retry == NEVER, "row {n}");
        let wait = retry.filter(|_| retry != NEVER).map(|wait| TENTH * wait);
        assert_eq!(decision.retry_after(), wait, "row {n}");
    }
}

#[test]
fn o_47_first_answer() {
    let first = Rig::new(bucket(30, SECOND * 60, 16)).ask(1);
    assert!(first.is_allowed());
    assert_eq!((first.limit(), first.remaining()), (16, 15));
    assert_eq!((first.retry_after(), first.reset_after()), (None, SECOND * 2));
}

#[test]
fn o_49_peek_never_spends() {
    let rig = Rig::new(bucket(10, SECOND, 10));
    assert_eq!(rig.remaining(), 10);
    // Taking at most so many is not offered: a charge is made whole or not at all.
    for (cost, left) in [(1, 9), (2, 7), (7, 0)] {
        for peeked in 0..=10 {
            assert_eq!(rig.peek(peeked).remaining(), left + cost);
        }
        assert_eq!(rig.ask(cost).remaining(), left);
    }
    assert_eq!(rig.ask(1).retry_after(), Some(TENTH));
    assert!(rig.ask(1_000).is_never());
    assert_eq!(rig.many.peek("unknown", 1).remaining(), 10);
    assert_eq!(rig.many.tracked_keys(), 1);
}

#[test]
fn o_50_burst_plus_rate_in_a_window() {
    // Q: users of the peer call it a bug; the pages of this crate say burst + rate x window, and a
    // fixed or sliding window is there for those who want a count per interval.
    let rig = Rig::new(bucket(17, SECOND * 30, 17));
    let ask = |instant| {
        rig.set(TENTH * instant);
        rig.ask(1).is_allowed()
    };
    assert_eq!((0..300).flat_map(|t| [t; 18]).filter(|t| ask(*t)).count(), 33);
    assert!(ask(300) && !ask(300));
}

#[test]
fn o_52_denied_ones_cost_nothing() {
    // Two at once and every half second one: "burst 1" of the peer is one more than the rate's own.
    let timeline =
        [(0, 1, A), (0, 1, A), (0, 1, D), (0, 1, D), (499, 1, D), (500, 1, A), (500, 1, D)];
    Rig::new(bucket(2, SECOND, 2)).run(MILLI, &timeline);
}

#[test]
fn o_56_six_at_once() {
    let rig = Rig::new(bucket(10, SECOND, 6));
    rig.run(MILLI, &[(0, 1, A); 6]);
    rig.run(MILLI, &[(0, 1, Retry(100)), (0, 1, D), (100, 1, A), (100, 1, D)]);
}

#[test]
fn o_58_clock_back_never_refills() {
    // Q: the peer counts a step back of more than a minute as a millisecond; here none counts at all,
    // and the bucket goes on where the latest charge left it.
    let rig = Rig::at(bucket(10, SECOND, 5), SECOND * 1_000);
    rig.run(MILLI, &[(1_000_000, 5, Left(0))]);
    for back in [NANO, MILLI, SECOND, SECOND * 60, SECOND * 61, SECOND * 999] {
        rig.set(SECOND * 1_000 - back);
        let decision = rig.ask(1);
        assert!(!decision.is_allowed(), "{back:?} back");
        assert_eq!((decision.remaining(), decision.retry_after()), (0, Some(back + TENTH)));
    }
    rig.run(MILLI, &[(1_000_000, 1, Retry(100)), (1_000_100, 1, Left(0))]);
}

#[test]
fn o_65_three_waits() {
    // One permit to begin with, five more that idleness stores.
    let fresh = || Rig::new(bucket(5, SECOND, 6).start(StartLevel::Fraction(1.0 / 6.0)));
    let timeline = [(0, 1, A), (0, 1, Retry(200)), (200, 1, A), (200, 1, Retry(200)), (400, 1, A)];
    fresh().run(MILLI, &timeline);
    let timeline = [(0, 1, Left(0)), (400, 1, A), (400, 1, A), (400, 1, Retry(200)), (600, 1, A)];
    fresh().run(MILLI, &timeline);
    let timeline =
        [(2_000, 1, A), (2_000, 1, A), (2_000, 3, A), (2_000, 1, A), (2_000, 1, Retry(200))];
    fresh().run(MILLI, &timeline);
}
