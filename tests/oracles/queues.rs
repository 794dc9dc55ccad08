//! Waiting rooms and permits in flight.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Algorithm, FixedWindow, InFlight, LeakyBucket, Limiter, ManualClock, RateLimitLayer,
    RejectionPolicy, Rule, SlidingLog, in_flight::Permit,
};

use crate::{
    rig::{MILLI, NANO, SECOND, bucket, builders, by_windows, one_each, ready},
    tasks::{Steps, Tasks},
    waits::{
        Got, LONG,
        Turn::{At, Never, Out},
        Waits, through,
    },
};

/// A limiter of any algorithm.
fn limiter(algorithm: Algorithm, clock: &Steps) -> Limiter {
    builders(algorithm).0.clock(clock.clone()).build().expect("a quota")
}

/// A layer with a queue on this limiter; the header `x-cost` says what a request costs.
fn queue(limiter: &Limiter, longest: Duration, depth: u64) -> RateLimitLayer {
    let rule = Rule::on(limiter.clone()).cost_fn(|head| {
        let cost = head.headers().get("x-cost").and_then(|cost| cost.to_str().ok());
        cost.and_then(|cost| cost.parse().ok()).expect("a cost")
    });
    let builder = RateLimitLayer::builder().rule(rule).expose_rejection();
    builder.rejection(RejectionPolicy::queue(longest, depth)).build().expect("a layer")
}

#[test]
fn o_98_one_permit_and_one_place() {
    for (algorithm, turn) in one_each(SECOND) {
        let clock = Steps::default();
        let limiter = limiter(algorithm, &clock);
        let layer = queue(&limiter, LONG, 1);
        let mut tasks = Tasks::new(clock);
        for caller in 0..3 {
            tasks.start(caller, through(&layer, 1));
        }
        // The third is told when its turn would have been, behind the one who waits.
        let third = (2, Duration::ZERO, Got::Out(Some(turn * 2)));
        assert_eq!(tasks.ended(), [(0, Duration::ZERO, Got::In), third], "{algorithm:?}");
        assert_eq!(limiter.waiting(), 1);
        tasks.to(turn);
        assert_eq!(tasks.ended()[2], (1, turn, Got::In), "{algorithm:?}");
    }

    // In flight nobody knows when a permit comes, and the hint is the limit's.
    let calls = InFlight::new("calls", 1);
    let layer = RateLimitLayer::builder()
        .in_flight(calls.clone())
        .rejection(RejectionPolicy::queue(LONG, 1))
        .expose_rejection()
        .clock(ManualClock::new())
        .build()
        .expect("a layer");
    let held = calls.try_acquire().expect("nothing is in flight");
    let mut tasks = Tasks::new(Steps::default());
    tasks.start(1, through(&layer, 1));
    tasks.start(2, through(&layer, 1));
    assert_eq!(tasks.ended(), [(2, Duration::ZERO, Got::Out(Some(SECOND)))]);
    assert_eq!(calls.waiting(), 1);
    drop(held);
    tasks.settle();
    assert_eq!(tasks.ended()[1], (1, Duration::ZERO, Got::In));
}

#[test]
fn o_101_newcomer_behind_a_waiter_of_two() {
    let (half, quarter) = (MILLI * 500, MILLI * 250);
    for mut waits in Waits::both(bucket(2, SECOND, 2)) {
        waits.run(half, &[(0, 1, LONG, At(0))]);
        let waiter = waits.ask(2, LONG);
        // One permit is there, and another in half a second; then the newcomer's half a second later.
        let denied = waits.try_acquire(1);
        assert_eq!((denied.remaining(), denied.retry_after()), (1, Some(half * 2)));
        let (late, out) = (waits.ask(1, LONG), waits.ask(1, quarter));
        waits.to(SECOND * 2);
        assert_eq!(waits.got(waiter), Some((half, Got::In)));
        assert_eq!(waits.got(late), Some((half * 2, Got::In)));
        assert_eq!(waits.got(out), Some((Duration::ZERO, Got::Out(Some(half * 3)))));
    }
    // Where permits come back together the newcomer waits for those of the two.
    for (algorithm, turn) in by_windows(2, SECOND) {
        for mut waits in Waits::both(algorithm) {
            waits.run(turn, &[(0, 1, LONG, At(0))]);
            let waiter = waits.ask(2, LONG);
            let denied = waits.try_acquire(1);
            assert_eq!((denied.remaining(), denied.retry_after()), (1, Some(turn * 2)));
            let (late, out) = (waits.ask(1, LONG), waits.ask(1, turn));
            waits.to(turn * 3);
            assert_eq!(waits.got(waiter), Some((turn, Got::In)), "{algorithm:?}");
            assert_eq!(waits.got(late), Some((turn * 2, Got::In)), "{algorithm:?}");
            assert_eq!(waits.got(out), Some((Duration::ZERO, Got::Out(Some(turn * 2)))));
        }
    }
}

#[test]
fn o_104_counts_of_a_queue() {
    // The peer's queue counts permits, ours those who wait: one of fifty.
    for (algorithm, turn) in by_windows(100, SECOND) {
        let clock = Steps::default();
        let limiter = limiter(algorithm, &clock);
        let layer = queue(&limiter, LONG, 1);
        let mut tasks = Tasks::new(clock);
        tasks.start(60, through(&layer, 60));
        assert_eq!((limiter.peek(0).remaining(), limiter.waiting()), (40, 0));
        for cost in [50, 1, 100] {
            tasks.start(cost, through(&layer, cost));
        }
        // One permit would fit, but not before those who came first; the hundred not in the window of the
        // fifty either.
        let now = Duration::ZERO;
        let refused = |cost, wait| (cost, now, Got::Out(Some(wait)));
        let ended = [(60, now, Got::In), refused(1, turn), refused(100, turn * 2)];
        assert_eq!(tasks.ended(), ended, "{algorithm:?}");
        assert_eq!((limiter.peek(0).remaining(), limiter.waiting()), (40, 1));
        tasks.to(turn);
        assert_eq!(tasks.ended()[3..], [(50, turn, Got::In)], "{algorithm:?}");
        assert_eq!((limiter.peek(0).remaining(), limiter.waiting()), (50, 0));
    }
}

#[test]
fn o_106_order_places_and_two_rules() {
    for (algorithm, turn) in one_each(SECOND) {
        for mut waits in Waits::both(algorithm) {
            let timeline = [
                (0, 1, LONG, At(0)),
                (0, 1, LONG, At(1)),
                (0, 2, LONG, Never),
                (0, 1, LONG, At(2)),
                (0, 1, LONG, At(3)),
            ];
            waits.run(turn, &timeline);
        }
    }
    // The peer's second allowance is one of two that must allow, which is a burst: two at once.
    for mut waits in Waits::both(bucket(1, SECOND, 2)) {
        let timeline = [
            (0, 1, LONG, At(0)),
            (0, 1, LONG, At(0)),
            (0, 1, SECOND - NANO, Out(1)),
            (0, 1, SECOND, At(1)),
        ];
        waits.run(SECOND, &timeline);
    }
    // Of two rules of ours both must allow: one a second, and two in three seconds.
    let two: [Algorithm; 2] =
        [FixedWindow::new(2, SECOND * 3).into(), SlidingLog::new(2, SECOND * 3).into()];
    for two in two {
        let clock = Steps::default();
        let layer = RateLimitLayer::builder()
            .rule(Rule::new("second", LeakyBucket::per_second(1)))
            .rule(Rule::new("three", two))
            .rejection(RejectionPolicy::queue(SECOND * 5, 10))
            .expose_rejection()
            .clock(clock.clone())
            .build()
            .expect("a layer");
        let mut tasks = Tasks::new(clock);
        for caller in 0..4 {
            tasks.start(caller, through(&layer, 1));
        }
        tasks.to(SECOND * 10);
        let turns = [(0, 0), (1, 1), (2, 3), (3, 4)];
        let ended = turns.map(|(caller, turn)| (caller, SECOND * turn, Got::In));
        assert_eq!(tasks.ended(), ended, "{two:?}");
        assert_eq!(tasks.running(), 0);
    }
}

#[test]
fn o_109_bulkhead_of_two() {
    let clock = Steps::default();
    let calls = InFlight::new("calls", 2).clock(clock.clone());
    let [first, second] = [(); 2].map(|()| calls.try_acquire().expect("one of two"));
    assert!(calls.try_acquire().is_none());
    assert_eq!(calls.in_flight(), 2);

    // Who waits 50 ms is denied after 50 ms, to the nanosecond.
    let mut tasks = Tasks::<_, Option<Permit>>::new(clock.clone());
    let wait = |calls: &InFlight| {
        let calls = calls.clone();
        async move { calls.acquire(MILLI * 50).await }
    };
    tasks.start(0, wait(&calls));
    tasks.to(MILLI * 50 - NANO);
    assert_eq!((tasks.ended().len(), calls.waiting()), (0, 1));
    tasks.to(SECOND);
    assert!(matches!(tasks.ended(), [(0, instant, None)] if *instant == MILLI * 50));
    assert_eq!(calls.waiting(), 0);

    drop(first);
    assert_eq!(calls.in_flight(), 1);
    drop(second);
    assert_eq!(calls.in_flight(), 0);
    assert!(calls.try_acquire().is_some());

    // None at all admits nobody by itself, and is an error in a layer.
    let none = InFlight::new("none", 0).clock(clock);
    assert!(none.try_acquire().is_none());
    tasks.start(1, wait(&none));
    tasks.to(SECOND * 2);
    assert!(matches!(tasks.ended()[1], (1, instant, None) if instant == SECOND + MILLI * 50));
    let error = RateLimitLayer::builder().in_flight(none).build().unwrap_err();
    assert_eq!((error.rule(), error.field()), (Some("none"), "limit"));
}

#[test]
fn o_110_one_zone_over_several_locations() {
    let clock = ManualClock::new();
    let zone = InFlight::new("zone", 1);
    let location = |zone: &InFlight| {
        let builder = RateLimitLayer::builder().in_flight(zone.clone().spread(false));
        builder.clock(clock.clone()).build().expect("a layer")
    };
    let (first, second) = (location(&zone), location(&zone));
    let other = location(&InFlight::new("other", 1));
    let ask = |layer: &RateLimitLayer| {
        let handler = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from("body")))
        });
        let Ok(answer) = ready(layer.layer(handler).oneshot(Request::new(Body::empty())));
        answer
    };
    let held = ask(&first);
    assert_eq!(held.status(), StatusCode::OK);
    for layer in [&first, &second] {
        let refused = ask(layer);
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "1");
    }
    assert_eq!(ask(&other).status(), StatusCode::OK);
    drop(held);
    let held = ask(&second);
    assert_eq!(held.status(), StatusCode::OK);
    assert_eq!(ask(&first).status(), StatusCode::SERVICE_UNAVAILABLE);
}
