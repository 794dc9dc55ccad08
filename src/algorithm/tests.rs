//! Quotas at the edge, and a slow exact model beside the token bucket, over years.

use std::time::Duration;

use crate::{
    ConfigError, Decision, FixedWindow, Limiter, ManualClock, Quota, StartLevel, TokenBucket,
    clock::{Clock, Nanos},
};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn bucket(bucket: TokenBucket) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (bucket.limiter().clock(clock.clone()).build().expect("a bucket"), clock)
}

fn window(window: FixedWindow) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (window.limiter().clock(clock.clone()).build().expect("a window"), clock)
}

/// A token bucket in fractions of a nanosecond's worth, without rounding: at instant `t` it stands at
/// `t * permits`, and a permit is `period`.
struct Exact {
    permits: u128,
    period: u128,
    burst: u128,
    arrival: u128,
}

impl Exact {
    fn new(quota: Quota) -> Self {
        Self {
            permits: quota.permits().into(),
            period: quota.period().as_nanos(),
            burst: quota.max_burst().into(),
            arrival: 0,
        }
    }

    /// The first nanosecond at which `cost` passes.
    fn passes_at(&self, cost: u64) -> u128 {
        let full = self.burst * self.period;
        (self.arrival + u128::from(cost) * self.period).saturating_sub(full).div_ceil(self.permits)
    }

    fn remaining(&self, now: Nanos) -> u64 {
        let spent = self.arrival.saturating_sub(u128::from(now.get()) * self.permits);
        ((self.burst * self.period).saturating_sub(spent) / self.period) as u64
    }

    fn reset_after(&self, now: Nanos) -> Duration {
        let full = self.arrival.div_ceil(self.permits) as u64;
        Duration::from_nanos(full.saturating_sub(now.get()))
    }

    fn charge(&mut self, now: Nanos, cost: u64) {
        let standing = u128::from(now.get()) * self.permits;
        self.arrival = self.arrival.max(standing) + u128::from(cost) * self.period;
    }
}

/// Steps of a kind that a linear congruential generator draws: bursts, odd nanoseconds, long idleness.
fn steps(seed: u64, longest: Duration) -> impl Iterator<Item = (Duration, u64)> {
    let mut x = seed;
    std::iter::repeat_with(move || {
        let mut draw = |below: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % below
        };
        let step = match draw(8) {
            0..4 => 0,
            4..6 => draw(3_000),
            6 => draw(2_000_000_000),
            _ => longest.as_nanos() as u64 / 1_000 * draw(1_000),
        };
        (Duration::from_nanos(step), 1 + draw(3) * draw(4))
    })
}

/// The bucket against the model: equal to the nanosecond if `exact`; else never more, and at most
/// `late` later.
#[track_caller]
fn assert_as_exact(quota: Quota, longest: Duration, late: Option<Duration>) {
    let (limiter, clock) = bucket(quota.into());
    let mut model = Exact::new(quota);
    for (step, cost) in steps(quota.permits() ^ quota.max_burst(), longest).take(20_000) {
        clock.advance(step);
        let now = clock.now();
        if now.get() > u64::MAX / 2 {
            break;
        }
        let cost = cost.min(quota.max_burst());
        let (decision, wanted) = (limiter.try_acquire_many(cost), model.passes_at(cost));
        let allowed = wanted <= now.get().into();
        let wait = wanted.saturating_sub(now.get().into()) as u64;
        let said = decision.retry_after().map_or(0, |wait| wait.as_nanos() as u64);
        assert!(allowed || !decision.is_allowed(), "{quota} at {now:?}: a gift of {wait} ns");
        assert!(said >= wait, "{quota} at {now:?}: waits {said} ns of {wait}");
        if let Some(late) = late {
            assert!(u128::from(said - wait) <= late.as_nanos(), "{quota}: {said} for {wait} ns");
        } else {
            assert_eq!((decision.is_allowed(), said), (allowed, wait), "{quota} at {now:?}");
        }
        if decision.is_allowed() {
            model.charge(now, cost);
        }
        if late.is_none() {
            assert_eq!(decision.remaining(), model.remaining(now), "{quota} at {now:?}");
            assert_eq!(decision.reset_after(), model.reset_after(now), "{quota} at {now:?}");
        }
    }
}

#[test]
fn ordinary_rates_are_exact_to_the_nanosecond() {
    let day = Duration::from_secs(86_400);
    for permits in [1, 3, 7, 10, 17, 60, 99, 101, 150, 500, 997, 1_000, 1_024, 5_000, 1_000_000] {
        for period in [1, 30, 60, 3_600].map(Duration::from_secs) {
            assert_as_exact(Quota::new(permits, period), day, None);
            assert_as_exact(Quota::new(permits, period).burst(3), day, None);
        }
    }
    assert_as_exact(Quota::per_day(997), day * 30, None);
    assert_as_exact(Quota::new(1, YEAR), YEAR, None);
    assert_as_exact(Quota::new(1, YEAR).burst(10), YEAR, None);
    assert_as_exact(Quota::per_second(1_000_000_000), day, None);
}

#[test]
fn odd_fast_rates_and_huge_bursts_never_give_and_are_a_nanosecond_late_at_most() {
    let day = Duration::from_secs(86_400);
    let nanosecond = Some(Duration::from_nanos(1));
    for permits in [7_000_001, 65_537, 123_456_789, 999_999_937, 999_999_999] {
        assert_as_exact(Quota::per_second(permits), day, nanosecond);
        assert_as_exact(Quota::per_second(permits).burst(3), day, nanosecond);
        assert_as_exact(Quota::per_second(permits).burst(1), day, nanosecond);
        assert_as_exact(Quota::per_minute(permits), day, nanosecond);
    }
    // 2^27 units a permit: less than eight nanoseconds each.
    let burst = u64::from(u32::MAX);
    assert_as_exact(Quota::per_second(1).burst(burst), day, Some(Duration::from_nanos(8)));
    // One unit a permit.
    let burst = 1 << 59;
    assert_as_exact(Quota::per_second(1).burst(burst), day, Some(Duration::from_secs(1)));
}

#[test]
fn the_base_of_a_bucket_moves_without_a_trace() {
    // Over a century, with a base that moves every few weeks.
    for permits in [997, 1_024, 999_999_937] {
        let late = (permits > 1_024).then_some(Duration::from_nanos(1));
        assert_as_exact(Quota::per_second(permits).burst(7), YEAR / 12, late);
        // In debt for weeks while the base moves.
        let slow = Quota::new(permits, YEAR).burst(10);
        assert_as_exact(slow, Duration::from_secs(86_400), late.map(|_| Duration::from_millis(1)));
    }
}

#[test]
fn the_base_of_a_window_moves_within_windows_under_way() {
    let hour = Duration::from_secs(3_600);
    let (limiter, clock) = window(FixedWindow::new(1_000, hour * 96));
    // A year; the base moves every fortnight.
    for _ in 0..90 {
        // One window: spent at its start and after two and three days, over at four.
        assert_eq!(limiter.try_acquire_many(500).remaining(), 500);
        clock.advance(hour * 48);
        assert_eq!(limiter.try_acquire_many(400).remaining(), 100);
        clock.advance(hour * 24 + Duration::from_nanos(1));
        let denied = limiter.try_acquire_many(101);
        assert_eq!(denied.retry_after(), Some(hour * 24 - Duration::from_nanos(1)));
        assert_eq!(denied.remaining(), 100);
        clock.advance(hour * 24 - Duration::from_nanos(2));
        assert!(!limiter.try_acquire_many(101).is_allowed());
        clock.advance(Duration::from_nanos(1));
        assert_eq!(limiter.peek(1).remaining(), 1_000);
    }
}

#[test]
fn a_full_bucket_spends_its_burst_at_any_instant() {
    for permits in [16, 17, 33, 99, 1_023] {
        let (limiter, clock) = bucket(TokenBucket::per_second(permits));
        for odd in [1, 7, 999_999_999, 1_234_567_891_011] {
            clock.advance(Duration::from_nanos(odd));
            for left in (0..permits).rev() {
                let decision = limiter.try_acquire();
                assert!(decision.is_allowed(), "{permits}/s, {left} left");
                assert_eq!(decision.remaining(), left, "{permits}/s");
            }
            assert!(!limiter.try_acquire().is_allowed());
            clock.advance(Duration::from_secs(1));
        }
    }
}

#[test]
fn a_reset_after_long_idleness_leaves_a_whole_quota() {
    for years in [1, 5, 50, 500] {
        let (limiter, clock) = window(FixedWindow::per_hour(1_000_000));
        let _ = limiter.try_acquire();
        clock.advance(YEAR * years);
        assert!(!limiter.reset(), "{years} years later nothing is known");
        assert_eq!(limiter.try_acquire_many(7).remaining(), 999_993, "{years}");
        assert!(limiter.reset());

        for quota in [Quota::per_second(999_999_937), Quota::per_second(1), Quota::per_second(17)] {
            let (limiter, clock) = bucket(quota.into());
            let _ = limiter.try_acquire();
            clock.advance(YEAR * years);
            assert!(!limiter.reset());
            assert!(limiter.try_acquire().is_allowed(), "{quota}: {years}");
            assert!(limiter.reset());
            assert_eq!(limiter.peek(1).remaining(), quota.max_burst());
        }
    }
}

#[test]
fn a_start_level_is_whole_permits_where_the_fraction_says_so() {
    for (fraction, permits) in [(0.7, 7), (0.1, 1), (0.3, 3), (0.9, 9), (0.75, 7), (1.0, 10)] {
        let start = StartLevel::Fraction(fraction);
        for quota in [Quota::per_second(10), Quota::per_day(10), Quota::per_second(17).burst(10)] {
            let (limiter, _) = bucket(TokenBucket::from(quota).start(start));
            assert_eq!(limiter.peek(1).remaining(), permits, "{fraction} of {quota}");
        }
    }
    let (limiter, _) = bucket(TokenBucket::per_second(100).start(StartLevel::Fraction(0.29)));
    assert_eq!(limiter.peek(1).remaining(), 29);
}

#[test]
fn a_key_first_seen_later_starts_with_what_it_would_have_by_then() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    let empty = TokenBucket::per_second(1).burst(10).start(StartLevel::Empty);
    let limiter = empty.keyed_limiter().clock(clock.clone()).build().expect("a bucket");
    let denied = limiter.try_acquire("a");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!((denied.remaining(), denied.reset_after()), (0, Duration::from_secs(10)));
    assert_eq!(limiter.tracked_keys(), 0);
    clock.advance(Duration::from_millis(3_500));
    assert_eq!(limiter.try_acquire_many("b", 2).remaining(), 1);
    assert_eq!(limiter.peek("c", 1).remaining(), 3);
    // A raised burst is not there at once: what was missing at the start is counted in permits.
    limiter.set_limit(Quota::per_second(2).burst(20)).expect("a quota");
    assert_eq!(limiter.peek("c", 1).remaining(), 13);
    assert_eq!(limiter.peek("b", 1).remaining(), 11);
    clock.advance(Duration::from_secs(100));
    assert_eq!(limiter.peek("d", 1).remaining(), 20);
    assert!(!limiter.reset("b"));
    clock.advance(YEAR * 20);
    assert_eq!(limiter.try_acquire_many("b", 20).remaining(), 0);
    assert_eq!(limiter.peek("e", 1).remaining(), 20);
}

#[test]
fn a_lowered_window_keeps_its_count_for_when_it_is_raised_again() {
    for aligned in [false, true] {
        let minute = FixedWindow::per_minute(100);
        let (limiter, clock) = window(if aligned { minute.aligned() } else { minute });
        clock.advance(Duration::from_secs(60));
        assert!(limiter.try_acquire_many(50).is_allowed());
        clock.advance(Duration::from_secs(20));
        limiter.set_limit(Quota::per_minute(10)).expect("a quota");
        let denied = limiter.try_acquire();
        assert_eq!((denied.limit(), denied.remaining()), (10, 0));
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(40)));
        limiter.set_limit(Quota::per_minute(200)).expect("a quota");
        let allowed = limiter.try_acquire();
        assert!(allowed.is_allowed());
        assert_eq!((allowed.limit(), allowed.remaining()), (200, 149));
        assert_eq!(allowed.reset_after(), Duration::from_secs(40));

        // The new period is honoured within one of its own length.
        limiter.set_limit(Quota::new(200, Duration::from_secs(10))).expect("a quota");
        let allowed = limiter.try_acquire();
        assert_eq!(allowed.remaining(), 148);
        assert!(allowed.reset_after() <= Duration::from_secs(10));
        clock.advance(Duration::from_secs(10));
        assert_eq!(limiter.try_acquire().remaining(), 199);
    }
}

#[test]
fn nine_changes_of_the_quota_in_a_row_keep_what_is_spent() {
    let (limiter, clock) = window(FixedWindow::per_minute(1_000));
    let keyed = TokenBucket::per_minute(60).burst(60).keyed_limiter().clock(clock.clone());
    let keyed = keyed.build().expect("a bucket");
    assert!(limiter.try_acquire_many(321).is_allowed());
    for key in 0..100_u64 {
        assert!(keyed.try_acquire_many(&*key.to_string(), 20).is_allowed());
    }
    for turn in 0..20_u64 {
        let limit = if turn % 2 == 0 { 2 } else { 5_000 };
        limiter.set_limit(Quota::per_minute(limit)).expect("a quota");
        assert_eq!(limiter.peek(1).remaining(), limit.saturating_sub(321), "turn {turn}");
        keyed.set_limit(Quota::per_minute(60).burst(60 + turn)).expect("a quota");
        for key in [0_u64, 57, 99] {
            assert_eq!(keyed.peek(&*key.to_string(), 1).remaining(), 40 + turn, "turn {turn}");
        }
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(limiter.peek(1).remaining(), 5_000);
    assert_eq!((keyed.peek("0", 1).remaining(), keyed.tracked_keys()), (79, 0));
}

#[test]
fn a_lowered_burst_empties_a_bucket_and_no_more() {
    let (limiter, clock) = bucket(TokenBucket::per_second(10).burst(100));
    assert!(limiter.try_acquire_many(90).is_allowed());
    limiter.set_limit(Quota::per_second(10).burst(5)).expect("a quota");
    assert_eq!(limiter.peek(5).retry_after(), Some(Duration::from_millis(500)));
    limiter.set_limit(Quota::per_second(1).burst(100)).expect("a quota");
    assert_eq!(limiter.peek(1).remaining(), 95);
    clock.advance(Duration::from_secs(5));
    assert_eq!(limiter.peek(1).remaining(), 100);
}

#[test]
fn a_clock_that_goes_back_neither_gives_nor_takes() {
    let hour = Duration::from_secs(3_600);
    let (limiter, clock) = bucket(TokenBucket::per_second(17));
    clock.advance(hour * 24 * 365);
    assert!(limiter.try_acquire_many(17).is_allowed());
    let (then, denied) = (clock.now(), limiter.try_acquire());
    clock.set(Nanos::new(then.get() - hour.as_nanos() as u64));
    let back = limiter.try_acquire();
    assert_eq!(back.remaining(), 0);
    assert_eq!(back.retry_after(), denied.retry_after().map(|wait| wait + hour));
    clock.set(Nanos::ZERO);
    assert!(!limiter.try_acquire().is_allowed());
    clock.set(then);
    assert_eq!(limiter.try_acquire(), denied);

    let (limiter, clock) = window(FixedWindow::per_minute(3));
    clock.advance(hour * 24 * 365);
    assert!(limiter.try_acquire_many(3).is_allowed());
    let (then, denied) = (clock.now(), limiter.try_acquire());
    clock.set(Nanos::new(then.get() - 1));
    assert_eq!(limiter.try_acquire().retry_after(), Some(Duration::from_secs(60)));
    clock.set(Nanos::ZERO);
    assert_eq!(limiter.try_acquire().retry_after(), Some(Duration::from_secs(60)));
    clock.set(then);
    assert_eq!(limiter.try_acquire(), denied);
}

#[test]
fn what_a_window_cannot_count_is_refused_by_field() {
    let refused = |window: FixedWindow| -> ConfigError { window.limiter().build().unwrap_err() };
    assert_eq!(refused(FixedWindow::new(10, YEAR * 200)).field(), "period");
    assert_eq!(refused(FixedWindow::new(1 << 60, YEAR * 100)).field(), "permits");
    assert_eq!(refused(FixedWindow::new((1 << 61) - 1, YEAR * 140)).field(), "permits");
    assert_eq!(refused(FixedWindow::new(1 << 60, YEAR * 500).aligned()).field(), "permits");
    assert_eq!(refused(FixedWindow::per_second(1 << 40).aligned()).field(), "permits");
    assert!(FixedWindow::new(10, YEAR * 140).limiter().build().is_ok());
}

#[test]
fn a_decision_is_the_same_with_and_without_a_key() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(12_345));
    for quota in [Quota::per_second(17), Quota::per_minute(5), Quota::per_second(999_999_937)] {
        let one = TokenBucket::from(quota).limiter().clock(clock.clone()).build().expect("one");
        let many = TokenBucket::from(quota).keyed_limiter().clock(clock.clone());
        let many = many.build().expect("many");
        for (step, cost) in steps(7, Duration::from_secs(9)).take(2_000) {
            clock.advance(step);
            let (a, b): (Decision, Decision) =
                (one.try_acquire_many(cost), many.try_acquire_many("key", cost));
            assert_eq!(a, b, "{quota}");
        }
    }
}
