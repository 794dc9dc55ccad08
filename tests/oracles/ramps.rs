//! Warm-up.

use std::time::Duration;

use tower_sluice::{Algorithm, LeakyBucket, WarmUp, clock::Clock};

use crate::{
    rig::{NANO, Rig, SECOND, bucket},
    waits::{Got, LONG, Waits},
};

/// Five a second, one at a time, on a ramp of four seconds.
fn ramps(factor: f64) -> [Algorithm; 2] {
    let warm_up = WarmUp::over(SECOND * 4).cold_factor(factor);
    [
        bucket(5, SECOND, 1).warm_up(warm_up).into(),
        LeakyBucket::per_second(5).warm_up(warm_up).into(),
    ]
}

/// When the `n`th permit after the first is there, in nanoseconds rounded up, from a cold factor of `k`: the solution
/// of the peer's equation. The time between two permits falls evenly, by permits, from `k` times the stable one to it,
/// so that `n` of them take a trapezoid.
fn due(n: i128, k: i128) -> i128 {
    let (period, stable) = (4_000_000_000, 200_000_000);
    // The ramp is over after 2 period / ((k + 1) stable) permits.
    let (permits, per) = (2 * period, (k + 1) * stable);
    let ceil = |a: i128, b: i128| (a + b - 1).div_euclid(b);
    if n * per >= permits {
        return ceil(period * per + n * per * stable - permits * stable, per);
    }
    // n (first + last) / 2, where first = k stable and last = first - n (k - 1) stable / (permits / per).
    let (first, lost) = (k * stable, n * (k - 1) * stable * per);
    ceil(n * (2 * first * permits - lost), 2 * permits)
}

#[test]
fn o_70_cold_factor_ten_and_none() {
    // What the peer prints, in hundredths of a second.
    let intervals = [175, 126, 76, 30, 20, 20, 20];
    for algorithm in ramps(10.0) {
        for mut waits in Waits::both(algorithm) {
            let callers: Vec<_> = (0..8).map(|_| waits.ask(1, LONG)).collect();
            waits.to(SECOND * 5);
            let mut before = Duration::ZERO;
            for (n, caller) in callers.into_iter().enumerate() {
                let (instant, got) = waits.got(caller).expect("an end");
                assert_eq!(got, Got::In);
                let exact = Duration::from_nanos(due(n as i128, 10) as u64);
                // The integral is rounded down, so that a permit may be a nanosecond late.
                let late = instant.checked_sub(exact).expect("never early");
                assert!(late <= NANO, "{n}: {instant:?} for {exact:?}");
                if n > 0 {
                    let hundredths = (instant - before).as_millis().div_ceil(5) / 2;
                    assert_eq!(hundredths, intervals[n - 1], "{n}: {:?}", instant - before);
                }
                before = instant;
            }
            // After idleness of 1.2 s one is there at once, and then one each 0.2 s.
            let idle = SECOND * 7;
            waits.to(idle);
            let callers: Vec<_> = (0..8).map(|_| waits.ask(1, LONG)).collect();
            waits.to(idle + SECOND * 2);
            for (n, caller) in (0_u32..).zip(callers) {
                assert_eq!(waits.got(caller), Some((idle + SECOND / 5 * n, Got::In)), "{n}");
            }
        }
    }
    // A factor of one is no warm-up.
    for algorithm in ramps(1.0) {
        for mut waits in Waits::both(algorithm) {
            let callers: Vec<_> = (0..8).map(|_| waits.ask(1, LONG)).collect();
            waits.to(SECOND * 2);
            for (n, caller) in (0_u32..).zip(callers) {
                assert_eq!(waits.got(caller), Some((SECOND / 5 * n, Got::In)), "{n}");
            }
        }
    }
    // During the ramp 2 / (k + 1) of what a warm one admits: for three, a half.
    for (factor, permits) in [(3.0, 10), (1.5, 16), (4.0, 8)] {
        for algorithm in ramps(factor) {
            let rig = Rig::new(algorithm);
            assert!(rig.ask(1).is_allowed());
            let mut admitted = 0;
            loop {
                let wait = rig.peek(1).retry_after().expect("one at a time");
                let instant = Duration::from(rig.clock.now()) + wait;
                if instant > SECOND * 4 + NANO {
                    break;
                }
                rig.set(instant);
                assert!(rig.ask(1).is_allowed());
                admitted += 1;
            }
            assert_eq!(admitted, permits);
        }
    }
}
