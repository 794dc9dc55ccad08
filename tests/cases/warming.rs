//! Area WU: warm-up; and clocks of area AR on a ramp.

use std::time::Duration;

use tower_sluice::{Algorithm, ManualClock, Quota, TokenBucket, WarmUp};

use crate::{
    support_core::{
        HOUR, SECOND, Three, YEAR, algorithms, counts_for, every, keyed, limiter, warmed,
    },
    tasks::{Steps, Tasks},
};

const NANO: Duration = Duration::from_nanos(1);

#[test]
fn ar_01_clock_stepped_backwards_on_a_ramp() {
    let [linear, ..] = curves();
    for algorithm in algorithms(Quota::per_second(90)) {
        let three = Three::new(warmed(algorithm, linear.warm_up));
        // Half way two thirds are there, and a clock that goes back makes neither more nor a debt of them.
        assert_eq!(three.admitted(SECOND * 5, 100), 60, "{algorithm:?}");
        for back in [NANO, Duration::from_millis(300), SECOND, SECOND * 5] {
            let denied = three.ask(SECOND * 5 - back, 1);
            assert_eq!(denied.remaining(), 0, "{algorithm:?}");
            let wait = denied.retry_after().expect("it is spent");
            assert!(wait <= back + counts_for(algorithm), "{algorithm:?}, {back:?}: {wait:?}");
        }
        assert_eq!(three.admitted(SECOND * 5, 1), 0, "{algorithm:?}");
        let later = three.admitted(SECOND * 5 + counts_for(algorithm), 100);
        assert!((60..=67).contains(&later), "{algorithm:?}: {later}");
    }
}

#[test]
fn ar_04_huge_idle_gap_on_a_ramp() {
    let ramp = WarmUp::over(SECOND);
    for (warm_up, after_idle) in [(ramp, 5), (ramp.after_idle(SECOND * 100), 1)] {
        for algorithm in every(Quota::per_second(5)) {
            let three = Three::new(warmed(algorithm, warm_up));
            let limit = three.one.peek(0).limit();
            let mut instant = 0;
            for (jump, expected) in [(0, 1), (1_u64 << 62, after_idle), ((1 << 63) - 1, after_idle)]
            {
                instant += jump;
                let passed = three.admitted(Duration::from_nanos(instant), 6);
                assert_eq!(passed, expected.min(limit), "{algorithm:?} after {jump}");
            }
        }
    }
}

/// The case's requests: ten that take all at once, then one a second; which passed.
fn ten_and_ten(algorithm: Algorithm, start: Duration) -> Vec<bool> {
    let three = Three::new(algorithm);
    let limit = three.one.peek(0).limit();
    let at_once = (0..10).map(|_| start);
    let seconds = (1..=10).map(|second| start + SECOND * second);
    at_once.chain(seconds).map(|instant| three.ask(instant, limit).is_allowed()).collect()
}

#[test]
fn wu_01_no_period_is_no_warm_up() {
    let curves = |period| {
        let ramp = WarmUp::over(period);
        [ramp, ramp.linear(), ramp.power(16), ramp.cold_factor(10.0), ramp.start_factor(1e-9)]
    };
    for algorithm in every(Quota::per_second(5)) {
        let plain = ten_and_ten(algorithm, Duration::ZERO);
        assert_eq!(plain.iter().position(|passed| !passed), Some(1), "{algorithm:?}");
        // The sliding window's cells cost it one of eleven.
        let passed = plain.iter().filter(|passed| **passed).count();
        let expected = if matches!(algorithm, Algorithm::SlidingWindow(_)) { 6 } else { 11 };
        assert_eq!(passed, expected, "{algorithm:?}");
        for warm_up in curves(Duration::ZERO) {
            let warmed = warmed(algorithm, warm_up);
            assert_eq!(ten_and_ten(warmed, Duration::ZERO), plain, "{warmed:?}");
        }
        // A ramp of a nanosecond is over after it.
        for warm_up in curves(NANO) {
            let warmed = warmed(algorithm, warm_up);
            let three = Three::new(warmed);
            let limit = three.one.peek(0).limit();
            if limit > 1 {
                let denied = three.ask(Duration::ZERO, limit);
                assert_eq!(denied.retry_after(), Some(NANO), "{warmed:?}");
            }
            assert_eq!(
                ten_and_ten(warmed, NANO),
                ten_and_ten(algorithm, NANO),
                "{warmed:?}, from a nanosecond on"
            );
        }
    }
}

#[test]
fn wu_01_a_century_stays_at_its_floor() {
    let century = WarmUp::over(YEAR * 100);
    for warm_up in [century, century.linear(), century.cold_factor(10.0)] {
        // A tenth of five a second is one each two seconds; a window's limit is at least 1.
        let expected = [6, 11, 11, 6, 11, 6];
        for (algorithm, expected) in every(Quota::per_second(5)).zip(expected) {
            let three = Three::new(warmed(algorithm, warm_up));
            assert_eq!(three.admitted(Duration::ZERO, 10), 1, "{algorithm:?}");
            // A little late, since the last bit of a century's part is some nanoseconds.
            let later = (1..=10).map(|second| (SECOND + NANO * 10_000) * second);
            let passed = later.filter(|instant| three.ask(*instant, 1).is_allowed()).count();
            assert_eq!(1 + passed, expected, "{algorithm:?}, {warm_up:?}");
            // All at once is to be had when the ramp is over, and without an overflow.
            let limit = three.one.peek(0).limit();
            let instant = SECOND * 20;
            let decision = three.ask(instant, limit);
            if limit > 1 {
                let wait = decision.retry_after().expect("not for a century");
                assert!(wait <= YEAR * 100 - instant && wait > YEAR * 90, "{wait:?}");
                assert!(three.ask(instant + wait, limit).is_allowed(), "{algorithm:?}");
            }
        }
    }
}

/// A curve: its share of the quota at a part of the period, and the integral of that.
struct Curve {
    warm_up: WarmUp,
    share: fn(f64) -> f64,
    integral: fn(f64) -> f64,
}

const THIRD: f64 = 1.0 / 3.0;

/// From one third to the whole in ten seconds.
fn curves() -> [Curve; 3] {
    let ramp = WarmUp::over(SECOND * 10).start_factor(THIRD);
    [
        Curve {
            warm_up: ramp.linear(),
            share: |x| THIRD + (1.0 - THIRD) * x,
            integral: |x| THIRD * x + (1.0 - THIRD) * x * x / 2.0,
        },
        Curve {
            warm_up: ramp,
            share: |x| THIRD + (1.0 - THIRD) * x * x,
            integral: |x| THIRD * x + (1.0 - THIRD) * x * x * x / 3.0,
        },
        Curve {
            warm_up: ramp.cold_factor(3.0),
            share: |x| (9.0 - 8.0 * x).powf(-0.5),
            integral: |x| 2.0 * (3.0 - (9.0 - 8.0 * x).sqrt()) / 8.0,
        },
    ]
}

impl Curve {
    /// What comes back by `milli` at ninety a second, in permits.
    fn gained(&self, milli: u64) -> f64 {
        let part = milli.min(10_000) as f64 / 10_000.0;
        900.0 * (self.integral)(part) + 0.09 * milli.saturating_sub(10_000) as f64
    }

    /// A limit of ninety at `milli`.
    fn limit(&self, milli: u64) -> usize {
        let share = if milli < 10_000 { (self.share)(milli as f64 / 10_000.0) } else { 1.0 };
        (90.0 * share + 1e-9) as usize
    }
}

/// Whether what was admitted at `came` counts at `now`, both in milliseconds, with a second's window.
fn counts(algorithm: Algorithm, came: u64, now: u64) -> bool {
    match algorithm {
        Algorithm::FixedWindow(_) => came / 1_000 == now / 1_000,
        Algorithm::SlidingLog(_) => came + 1_000 > now,
        Algorithm::SlidingWindow(_) => (came / 100 + 1) * 100 + 1_000 > now,
        other => unreachable!("{other:?} counts no windows"),
    }
}

#[test]
fn wu_02_the_burst_at_the_start_is_on_the_ramp() {
    for curve in curves() {
        for algorithm in every(Quota::per_second(90)) {
            let three = Three::new(warmed(algorithm, curve.warm_up));
            // 200 a second for 20 s, each as a slow model has it; a hair late, as a bucket never rounds up.
            let mut passed: Vec<u64> = Vec::new();
            for milli in (0..20_000).step_by(5) {
                let is_due = match algorithm {
                    // A third of the burst, and what has come back since.
                    Algorithm::TokenBucket(_) => {
                        30.0 + curve.gained(milli) + 1e-6 >= passed.len() as f64 + 1.0
                    }
                    Algorithm::LeakyBucket(_) => passed
                        .last()
                        .is_none_or(|last| curve.gained(milli) - curve.gained(*last) + 1e-6 >= 1.0),
                    _ => {
                        let live = passed.iter().filter(|came| counts(algorithm, **came, milli));
                        live.count() < curve.limit(milli)
                    }
                };
                let decision = three.ask(Duration::from_millis(milli) + NANO * 3, 1);
                let what = format!("{algorithm:?}, {:?} at {milli} ms", curve.warm_up);
                assert_eq!(decision.is_allowed(), is_due, "{what}: {decision:?}");
                if is_due {
                    passed.push(milli);
                }
            }
            let within =
                |from, to| passed.iter().filter(|milli| (from..to).contains(*milli)).count();
            if matches!(algorithm, Algorithm::LeakyBucket(_)) {
                continue;
            }
            assert!(within(0, 1_000) <= 63 + 1, "{algorithm:?}");
            assert!((800..=900).contains(&within(10_000, 20_000)), "{algorithm:?}");
            // No second has less than the one before, but for the burst that was there at first.
            let seconds: Vec<_> = (0..20).map(|n| within(n * 1_000, (n + 1) * 1_000)).collect();
            if matches!(algorithm, Algorithm::TokenBucket(_) | Algorithm::FixedWindow(_)) {
                let first = match algorithm {
                    Algorithm::TokenBucket(_) => seconds[0] - 30,
                    _ => seconds[0],
                };
                let mut before = first;
                for second in &seconds[1..] {
                    assert!(second + 1 >= before, "{algorithm:?}: {seconds:?}");
                    before = *second;
                }
            }
        }
    }
}

#[test]
fn wu_02_the_numbers_of_the_case() {
    let [linear, ..] = curves();
    let bucket = TokenBucket::per_second(90).warm_up(linear.warm_up);
    // As many as there are, each millisecond: a third of the burst at once, and three in 100 ms.
    let three = Three::new(bucket.into());
    assert_eq!(three.admitted(Duration::ZERO, 100), 30);
    let later = (1..100).map(|n| three.admitted(Duration::from_millis(n), 20));
    assert_eq!(later.sum::<u64>(), 2);
    assert_eq!(three.admitted(Duration::from_millis(100), 20), 1);

    // The integral of 30 + 6t is 600, and thirty were there; from then on ninety a second.
    let three = Three::new(bucket.into());
    let instant = |n: u64| Duration::from_millis(5 * n) + NANO * 3;
    let offered: Vec<_> = (0..=4_000).map(|n| (n, three.admitted(instant(n), 1))).collect();
    let until = |end| offered.iter().filter(|(n, _)| *n <= end).map(|(_, n)| n).sum::<u64>();
    assert_eq!(until(2_000), 630);
    assert_eq!(until(4_000) - until(2_000), 900);

    // Everybody's burst is on it, and who comes late has no more.
    for algorithm in algorithms(Quota::per_second(90)) {
        let clock = ManualClock::new();
        let many = keyed(warmed(algorithm, linear.warm_up), clock.clone(), None);
        for second in 0..=10 {
            clock.set((SECOND * second).into());
            let key = u64::from(second);
            let passed = (0..100).filter(|_| many.try_acquire(key).is_allowed()).count();
            assert_eq!(passed as u64, 30 + 6 * key, "{algorithm:?} at {second} s");
        }
    }

    // What is above the present burst waits for the ramp: sixty for five seconds.
    for algorithm in algorithms(Quota::per_second(90)) {
        let three = Three::new(warmed(algorithm, linear.warm_up));
        let wait = three.ask(Duration::ZERO, 60).retry_after().expect("more than thirty");
        assert!(wait <= SECOND * 5 && wait >= SECOND * 5 - NANO * 2, "{algorithm:?}: {wait:?}");
        assert!(!three.ask(wait - NANO, 60).is_allowed(), "{algorithm:?}");
        assert!(three.ask(wait, 60).is_allowed(), "{algorithm:?}");
        assert!(three.ask(wait, 91).is_never(), "{algorithm:?}");
    }
}

#[test]
fn wu_04_the_rule_goes_cold_and_not_its_keys() {
    let [linear, ..] = curves();
    let once = linear.warm_up;
    let again = once.after_idle(SECOND * 60);
    for algorithm in algorithms(Quota::per_second(90)) {
        // An unchanged quota does not start the ramp anew, half way.
        let three = Three::new(warmed(algorithm, once));
        three.clock.set((SECOND * 5).into());
        three.one.set_limit(Quota::per_second(90)).expect("the same");
        three.many.set_limit(Quota::per_second(90)).expect("the same");
        three.layer.handle().set_limit("three", Quota::per_second(90)).expect("the same");
        assert_eq!(three.admitted(SECOND * 5, 100), 60, "{algorithm:?}");

        // Nor is a quota taken that is not whole again by the time the rule goes cold.
        let three = Three::new(warmed(algorithm, again));
        let errors = [
            three.one.set_limit(Quota::per_hour(90)).map_err(|error| error.field().to_owned()),
            three.many.set_limit(Quota::per_hour(90)).map_err(|error| error.field().to_owned()),
        ];
        assert!(
            errors.iter().all(|error| error.as_ref().is_err_and(|field| field == "after_idle"))
        );
        assert!(three.layer.handle().set_limit("three", Quota::per_hour(90)).is_err());
        assert_eq!(three.admitted(Duration::ZERO, 100), 30, "{algorithm:?}");

        // A new key on a warm rule has the whole, and so has one after idleness that is not asked for.
        for (warm_up, after_idle) in [(once, 90), (again, 30)] {
            let algorithm = warmed(algorithm, warm_up);
            let clock = ManualClock::new();
            let (one, many) =
                (limiter(algorithm, clock.clone()), keyed(algorithm, clock.clone(), None));
            let admitted = |second: u64, key: &str| {
                clock.set((SECOND * second as u32).into());
                let of_one = (0..100).filter(|_| one.try_acquire().is_allowed()).count();
                let of_many = (0..100).filter(|_| many.try_acquire(key).is_allowed()).count();
                [of_one, of_many]
            };
            assert_eq!(admitted(20, "new"), [90; 2], "{algorithm:?}");
            // A nanosecond less than a minute is none.
            clock.set((SECOND * 80 - NANO).into());
            assert_eq!(many.peek("new", 0).remaining(), 90, "{algorithm:?}");
            assert_eq!(admitted(80, "new"), [after_idle; 2], "{algorithm:?}");
            // One key goes on, and the ramp with it, for all keys.
            assert_eq!(admitted(90, "newer"), [90; 2], "{algorithm:?}");
            // Refusals keep nothing warm.
            for second in 91..150 {
                clock.set((SECOND * second).into());
                assert!(
                    one.try_acquire_many(91).is_never()
                        && many.try_acquire_many("new", 91).is_never()
                );
            }
            assert_eq!(admitted(150, "newest"), [after_idle; 2], "{algorithm:?}");
        }

        // Two instances of a service, started 30 s apart, each warm up by themselves.
        let clock = ManualClock::new();
        let first = limiter(warmed(algorithm, once), clock.clone());
        clock.set((SECOND * 30).into());
        let second = limiter(warmed(algorithm, once), clock.clone());
        assert_eq!([&first, &second].map(|one| one.peek(0).remaining()), [90, 30], "{algorithm:?}");
    }
}

/// When callers of these costs pass who ask from `start` on, one after the other, and come back exactly when they were
/// told.
fn in_turn(algorithm: Algorithm, costs: &[u64], start: Duration) -> Vec<Duration> {
    let three = Three::new(algorithm);
    let mut instant = start;
    let mut turn = |cost: &u64| {
        while let Some(wait) = three.ask(instant, *cost).retry_after() {
            instant += wait;
        }
        instant
    };
    costs.iter().map(&mut turn).collect()
}

#[test]
fn wu_02_who_waits_is_served_as_the_ramp_allows() {
    let cold = WarmUp::over(SECOND * 10).cold_factor(10.0);
    let ramps = curves().map(|curve| curve.warm_up).into_iter().chain([cold]);
    // At the start, half way, and when the rule has gone cold again.
    let ramps = ramps.flat_map(|warm_up| {
        let again = warm_up.after_idle(SECOND * 60);
        [(warm_up, Duration::ZERO), (warm_up, SECOND * 5), (again, SECOND * 100)]
    });
    for (warm_up, start) in ramps {
        for algorithm in every(Quota::per_second(90)) {
            let is_leaky = matches!(algorithm, Algorithm::LeakyBucket(_));
            let costs = if is_leaky { [1; 9] } else { [20, 60, 1, 90, 30, 1, 45, 75, 90] };
            let algorithm = warmed(algorithm, warm_up);
            let expected = in_turn(algorithm, &costs, start);
            for newest_first in [false, true] {
                let clock = Steps::default();
                let one = limiter(algorithm, clock.clone());
                let many = keyed(algorithm, clock.clone(), None);
                let mut tasks = Tasks::new(clock).newest_first(newest_first);
                tasks.to(start);
                for (caller, cost) in costs.into_iter().enumerate() {
                    let (one, many) = (one.clone(), many.clone());
                    tasks.start((0, caller), async move {
                        one.acquire_many(cost, HOUR).await.is_allowed()
                    });
                    tasks.start((1, caller), async move {
                        many.acquire_many("key", cost, HOUR).await.is_allowed()
                    });
                }
                tasks.to(start + SECOND * 30);
                for (way, caller) in (0..costs.len()).flat_map(|caller| [(0, caller), (1, caller)])
                {
                    let ended = tasks.ended().iter().find(|(name, ..)| *name == (way, caller));
                    let ended = ended.map(|(_, instant, passed)| (*instant, *passed));
                    let due = Some((expected[caller], true));
                    assert_eq!(ended, due, "{algorithm:?}: caller {caller}, way {way}");
                }
            }
        }
    }
}
