//! Rates over a century: no error accumulates, at any rate that can be counted.

use std::time::Duration;

use tower_sluice::{
    FixedWindow, LeakyBucket, Limiter, ManualClock, Quota, TokenBucket,
    clock::{Clock, Nanos},
};

use crate::models::Numbers;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
const YEAR: u64 = 365 * DAY;
const CENTURY: u64 = 100 * YEAR;

/// As many rates as (permits, period), from one a year to 10^9 a second, about evenly in their logarithms; half
/// of them fractions that no power of two or ten divides.
const RATES: [(u64, u64); 40] = [
    (1, 365 * DAY),
    (1, 100 * DAY),
    (1, 31 * DAY + 1),
    (7, 92 * DAY),
    (1, 7 * DAY),
    (1, DAY),
    (3, DAY + 1),
    (11, DAY),
    (1, 3_600 * SECOND),
    (7, 3_601 * SECOND),
    (17, 3_600 * SECOND),
    (1, 60 * SECOND),
    (5, 60 * SECOND),
    (1, 7 * SECOND),
    (1, SECOND),
    (7, 3 * SECOND),
    (10, SECOND),
    (997, 60 * SECOND),
    (31, SECOND),
    (100, SECOND),
    (333, SECOND),
    (1_000, SECOND),
    (1_024, SECOND),
    (3_600, 1_000_000_007),
    (10_000, SECOND),
    (44_100, SECOND),
    (65_537, SECOND),
    (1_000_003, 17 * SECOND),
    (123_457, SECOND),
    (1_000_000, SECOND),
    (2_999_999, SECOND),
    (10_000_000, SECOND),
    (33_333_333, SECOND),
    (100_000_007, 7 * SECOND),
    (50_000_000, SECOND),
    (123_456_789, SECOND),
    (7, 29),
    (999_999_937, 2 * SECOND),
    (999_999_937, SECOND),
    (SECOND, SECOND),
];

/// The most that a token bucket's burst can be.
const MAX_BURST: u64 = 1 << 59;

/// Some hundred instants over a century, at no regular distance, and its end.
fn instants(seed: u64) -> impl Iterator<Item = u64> {
    let mut x = seed;
    let mut now = 0;
    let steps = std::iter::repeat_with(move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Up to eight months, or a small part of that.
        let step = ((x >> 16) % (CENTURY / 150)) >> ((x >> 8) % 4 * 9);
        now += step;
        now
    });
    steps.take_while(|now| *now < CENTURY).chain([CENTURY])
}
/// A limiter on a clock of its own, which has been running for long.
fn on_a_clock(build: impl FnOnce(ManualClock) -> Limiter) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (build(clock.clone()), clock)
}

#[test]
fn a_token_bucket_gives_its_rate_over_a_century() {
    for (permits, period) in RATES {
        let quota = Quota::new(permits, Duration::from_nanos(period));
        let longest = instants(permits)
            .zip(instants(permits).skip(1))
            .map(|(from, to)| u128::from(to - from))
            .max()
            .expect("some instants");
        // As much as comes back in between, so that nothing is lost.
        let between = (longest * u128::from(permits)).div_ceil(u128::from(period)) as u64;
        for burst in [between + 1, between * 2 + 3] {
            assert!(burst <= MAX_BURST);
            let bucket = TokenBucket::from(quota).burst(burst);
            let (limiter, clock) =
                on_a_clock(|clock| bucket.limiter().clock(clock).build().expect("a bucket"));
            let Numbers { permits, period, burst } = bucket.quota().into();
            let mut admitted = 0_u128;
            for now in std::iter::once(0).chain(instants(quota.permits())) {
                clock.set(Nanos::new(now));
                // Where the rate is rounded and the base moves with this charge, a permit may come a hair
                // later than was just said.
                let taken = (0..2).find_map(|_| {
                    let there = limiter.peek(0).remaining();
                    limiter.try_acquire_many(there).is_allowed().then_some(there)
                });
                admitted += u128::from(taken.expect("what is there can be taken"));
                assert!(!limiter.try_acquire().is_allowed(), "{quota}: more at {now}");
                // All in units of 1 / period.
                let earned = permits * u128::from(now);
                let (given, due) = (admitted * period, burst * period + earned);
                assert!(given <= due, "{quota} burst {burst} at {now}: a gift");
                // Less than a permit is left behind, or a billionth where the rate is rounded.
                let (missing, billion) = (due - given, 1_000_000_000);
                let is_exact = is_told_exactly(permits, period, burst);
                assert!(missing < period || !is_exact, "{quota} burst {burst} at {now}");
                assert!(
                    missing * billion <= earned + period * billion,
                    "{quota} burst {burst} at {now}: {missing} of {earned} are missing",
                );
            }
        }
    }
}

/// Whether instants are told to the nanosecond: see the module page of the token bucket.
fn is_told_exactly(permits: u128, period: u128, burst: u128) -> bool {
    fn gcd(a: u128, b: u128) -> u128 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let common = gcd(permits, period);
    permits / common <= 1_024 && burst * (period / common) <= MAX_BURST.into()
}

/// A leaky bucket admits at whole nanoseconds and never closer than its interval, so that each admission is
/// late by a part of a nanosecond where the interval is no whole number of them: it keeps distance, not count.
#[test]
fn a_leaky_bucket_keeps_its_interval_over_a_century() {
    for (permits, period) in RATES {
        let bucket = LeakyBucket::new(permits, Duration::from_nanos(period));
        let (limiter, clock) =
            on_a_clock(|clock| bucket.limiter().clock(clock).build().expect("a bucket"));
        let (permits, period) = (u128::from(permits), u128::from(period));
        let rounding = u128::from(!is_told_exactly(permits, period, 1));
        let mut admissions = 0;
        // From each of some instants, 40 admissions that follow what is said.
        for start in instants(7).step_by(8) {
            let start = start.max(clock.now().get());
            clock.set(Nanos::new(start));
            if let Some(wait) = limiter.try_acquire().retry_after() {
                clock.advance(wait);
                assert!(limiter.try_acquire().is_allowed());
            }
            let first = u128::from(clock.now().get());
            let mut last = first;
            for n in 1..=40_u128 {
                let wait = limiter.try_acquire().retry_after().expect("too early");
                clock.advance(wait - Duration::from_nanos(1));
                assert!(!limiter.try_acquire().is_allowed(), "{permits}/{period} ns");
                clock.advance(Duration::from_nanos(1));
                assert!(limiter.try_acquire().is_allowed(), "{permits}/{period} ns");
                let now = u128::from(clock.now().get());
                // The first nanosecond that is an interval later, exactly.
                let earliest = (last * permits + period).div_ceil(permits);
                assert!(now >= earliest, "{permits}/{period} ns: closer than the interval");
                assert!(now <= earliest + rounding, "{permits}/{period} ns: {now}, not {earliest}");
                // And from the beginning: n x period / permits, which is exact where it is whole.
                let (since, exact) = ((now - first) * permits, n * period);
                assert!(since >= exact && since < exact + n * permits * (1 + rounding));
                if period % permits == 0 {
                    assert_eq!(since, exact, "{permits}/{period} ns");
                }
                last = now;
                admissions += 1;
            }
            if last > CENTURY.into() {
                break;
            }
        }
        assert!(admissions >= 100, "{permits}/{period} ns: {admissions}");
    }
}

/// Lengths of windows in nanoseconds, none a divisor of a day or of a year.
const LENGTHS: [u64; 10] = [
    997,
    1_000_003,
    999_999_937,
    7 * SECOND + 1,
    3_599 * SECOND,
    DAY - 1,
    DAY / 7 * 10 + 3,
    31 * DAY + 12_345,
    YEAR / 3 + 7,
    CENTURY / 7 + 11,
];

#[test]
fn aligned_windows_of_any_length_begin_at_their_multiples_over_a_century() {
    for length in LENGTHS {
        for utc in [0, 1, 1_700_000_000_000_000_007] {
            let clock = ManualClock::with_utc(Duration::from_nanos(utc));
            let window = FixedWindow::new(3, Duration::from_nanos(length)).aligned();
            let limiter = window.limiter().clock(clock.clone()).build().expect("a window");
            let number = |now: u64| (u128::from(utc) + u128::from(now)) / u128::from(length);
            let (mut seen, mut admitted) = (Vec::new(), 0);
            for now in std::iter::once(0).chain(instants(length)) {
                clock.set(Nanos::new(now));
                seen.push(number(now));
                while limiter.try_acquire().is_allowed() {
                    admitted += 1;
                }
                // The edge to the nanosecond, and a window later the next one.
                let edge = (number(now) + 1) * u128::from(length) - u128::from(utc);
                let wait = limiter.peek(1).retry_after().expect("all is spent");
                assert_eq!(u128::from(now) + wait.as_nanos(), edge, "{length} ns at {now}");
                clock.set(Nanos::new(edge as u64 - 1));
                assert!(!limiter.peek(1).is_allowed());
                clock.set(Nanos::new(edge as u64));
                assert_eq!(limiter.peek(3).remaining(), 3);
            }
            seen.dedup();
            assert_eq!(admitted, 3 * seen.len(), "{length} ns");
        }
    }
}

#[test]
fn windows_from_edge_to_edge_are_as_many_as_fit_into_a_century() {
    for length in LENGTHS.into_iter().filter(|length| *length >= DAY - 1) {
        let utc = 1_700_000_000_000_000_007;
        let clock = ManualClock::with_utc(Duration::from_nanos(utc));
        let window = FixedWindow::new(1, Duration::from_nanos(length)).aligned();
        let limiter = window.limiter().clock(clock.clone()).build().expect("a window");
        let mut windows = 0;
        while clock.now().get() < CENTURY {
            assert!(limiter.try_acquire().is_allowed());
            windows += 1;
            clock.advance(limiter.peek(1).retry_after().expect("all is spent"));
        }
        // Those that have begun before the end.
        assert_eq!(windows, (utc + CENTURY - 1) / length - utc / length + 1, "{length} ns");
    }
}
