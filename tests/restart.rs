//! Start levels: what a key has that is first seen after a limit was built, and what restarts give away.

#[path = "properties/subjects.rs"]
#[allow(dead_code, reason = "shared with the properties, which use more of it")]
mod subjects;

use std::time::Duration;

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, FileFailurePersistence},
};
use tower_sluice::{ManualClock, Quota, StartLevel, TokenBucket, clock::Nanos};

use crate::subjects::{Keys, Subject, all, clock, keyed_limiter, limiter};

fn config() -> Config {
    let persistence = FileFailurePersistence::Direct("tests/restart.proptest-regressions");
    let scale = std::env::var("SLUICE_SCALE").ok().and_then(|scale| scale.parse().ok());
    let cases = 10_000 * scale.unwrap_or(1).max(1);
    Config { cases, failure_persistence: Some(Box::new(persistence)), ..Config::default() }
}

/// A quota that is counted without rounding, quarters of its burst in floating point as well.
fn quota() -> impl Strategy<Value = Quota> {
    let everyday = select(vec![1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000_u64]);
    let period = prop_oneof![everyday, 1_000..10_000_000_000_000_u64];
    (1..=16_u64, period, 1..=50_u64).prop_map(|(permits, period, burst)| {
        Quota::new(permits, Duration::from_nanos(period)).burst(burst)
    })
}

/// A start level, and how many quarters of the burst that is.
fn start() -> impl Strategy<Value = (StartLevel, u128)> {
    let parts = (0..=4_u8).prop_map(|n| (StartLevel::Fraction(f64::from(n) / 4.0), n.into()));
    prop_oneof![Just((StartLevel::Full, 4)), Just((StartLevel::Empty, 0)), parts]
}

fn keys() -> impl Strategy<Value = Keys> {
    select(vec![Keys::One, Keys::Many])
}

/// Shares of the time in which an empty bucket is full, in 256ths.
fn share() -> impl Strategy<Value = u64> {
    prop_oneof![0..=300_u64, select(vec![0, 1, 64, 128, 255, 256, 257, 1_000])]
}

/// The time in which an empty bucket is full.
fn time_to_full(quota: Quota) -> u64 {
    let nanos = u128::from(quota.max_burst()) * quota.period().as_nanos();
    nanos.div_ceil(quota.permits().into()) as u64
}

fn part(quota: Quota, share: u64) -> u64 {
    (u128::from(time_to_full(quota)) * u128::from(share) / 256) as u64
}

/// A level in `1 / period` of a permit.
#[derive(Clone, Copy, Debug)]
struct Level {
    quota: Quota,
    units: u128,
}

impl Level {
    fn start(quota: Quota, quarters: u128) -> Self {
        Self { quota, units: Self::full(quota) * quarters / 4 }
    }

    fn full(quota: Quota) -> u128 {
        u128::from(quota.max_burst()) * quota.period().as_nanos()
    }

    /// `min(burst, level + rate x t)`.
    fn after(self, nanos: u64) -> Self {
        let gained = u128::from(nanos) * u128::from(self.quota.permits());
        Self { units: (self.units + gained).min(Self::full(self.quota)), ..self }
    }

    fn without(self, permits: u64) -> Self {
        Self { units: self.units - u128::from(permits) * self.quota.period().as_nanos(), ..self }
    }

    /// Under another quota, with the same permits missing.
    fn under(self, quota: Quota) -> Self {
        let missing = (Self::full(self.quota) - self.units) * quota.period().as_nanos();
        let missing = missing.div_ceil(self.quota.period().as_nanos());
        Self { quota, units: Self::full(quota).saturating_sub(missing) }
    }

    fn permits(self) -> u64 {
        (self.units / self.quota.period().as_nanos()) as u64
    }
}

/// Both say the same to every cost.
fn same(
    one: (&dyn Subject, u8),
    other: (&dyn Subject, u8),
    quota: Quota,
) -> Result<(), TestCaseError> {
    let there = one.0.peek(one.1, 0).remaining();
    for cost in [0, 1, there, there + 1, quota.max_burst(), quota.max_burst() + 1] {
        prop_assert_eq!(one.0.peek(one.1, cost), other.0.peek(other.1, cost), "cost {}", cost);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_new_key_has_its_start_and_what_came_back_since(
        quota in quota(),
        (start, quarters) in start(),
        built in 0..1_u64 << 50,
        keys in keys(),
        (early, late) in (share(), share()),
    ) {
        let clock = clock(built, Duration::ZERO);
        let bucket = TokenBucket::from(quota).start(start);
        let asked = all(bucket.into(), keys, 8, &clock);
        let unseen = all(bucket.into(), keys, 8, &clock);
        let mut since = 0;
        for share in [early, late] {
            since += part(quota, share);
            clock.set(Nanos::new(built + since));
            let level = Level::start(quota, quarters).after(since);
            for (asked, unseen) in asked.iter().zip(&unseen) {
                // Asking spends nothing, nor does a denial.
                same((&**asked, 0), (&**unseen, 0), quota)?;
                prop_assert_eq!(asked.peek(0, 1).remaining(), level.permits());
                prop_assert!(!asked.acquire(0, quota.max_burst() + 1).is_allowed());
                prop_assert!(level.permits() == quota.max_burst()
                    || !asked.acquire(0, level.permits() + 1).is_allowed());
            }
        }
        let level = Level::start(quota, quarters).after(since);
        for subject in asked.iter().chain(&unseen) {
            prop_assert!(subject.acquire(0, level.permits()).is_allowed());
            prop_assert!(!subject.acquire(0, 1).is_allowed());
        }
    }

    #[test]
    fn a_key_that_spent_and_idled_is_as_good_as_a_new_one_and_no_better(
        quota in quota(),
        (start, quarters) in start(),
        built in 0..1_u64 << 50,
        keys in keys(),
        (early, late) in (share(), share()),
        spent in 0..=255_u64,
    ) {
        let clock = clock(built, Duration::ZERO);
        let bucket = TokenBucket::from(quota).start(start);
        let seen = all(bucket.into(), keys, 8, &clock);
        let unseen = all(bucket.into(), keys, 8, &clock);
        let spent_at = part(quota, early);
        clock.set(Nanos::new(built + spent_at));
        let level = Level::start(quota, quarters).after(spent_at);
        let cost = level.permits() * spent / 255;
        for subject in &seen {
            prop_assert!(subject.acquire(0, cost).is_allowed());
        }
        let since = part(quota, late);
        clock.set(Nanos::new(built + spent_at + since));
        for subject in &seen {
            let left = subject.peek(0, 0).remaining();
            prop_assert_eq!(left, level.without(cost).after(since).permits());
        }
        // By now it has come back, whatever was there at first.
        let idle = since.max(time_to_full(quota));
        clock.set(Nanos::new(built + spent_at + idle));
        for (seen, unseen) in seen.iter().zip(&unseen) {
            same((&**seen, 0), (&**unseen, 0), quota)?;
            prop_assert_eq!(seen.acquire(0, quota.max_burst()), unseen.acquire(0, quota.max_burst()));
        }
    }

    #[test]
    fn a_key_that_lost_its_place_is_a_new_one(
        quota in quota(),
        (start, quarters) in start(),
        built in 0..1_u64 << 50,
        max_keys in 1..=4_u64,
        gap in share(),
        others in 1..=20_u8,
    ) {
        let clock = clock(built, Duration::ZERO);
        let bucket = TokenBucket::from(quota).start(start);
        let seen = all(bucket.into(), Keys::Many, max_keys, &clock);
        let unseen = all(bucket.into(), Keys::Many, max_keys, &clock);
        let first = part(quota, gap);
        clock.set(Nanos::new(built + first));
        let there = Level::start(quota, quarters).after(first).permits();
        for subject in &seen {
            // More keys than have places: who has none has at most as much.
            for key in 0..others {
                prop_assert!(subject.peek(key, 0).remaining() <= there);
                let _ = subject.acquire(key, there);
                prop_assert!(!subject.acquire(key, 1).is_allowed());
            }
        }
        // One nanosecond after all has come back, places are free for others.
        clock.set(Nanos::new(built + first + time_to_full(quota) + 1));
        for (seen, unseen) in seen.iter().zip(&unseen) {
            for key in 100..100 + max_keys as u8 {
                prop_assert!(seen.acquire(key, 1).is_allowed());
            }
            for key in [0, others - 1, 200] {
                same((&**seen, key), (&**unseen, key), quota)?;
                prop_assert_eq!(seen.peek(key, 0).remaining(), quota.max_burst());
            }
        }
    }

    #[test]
    fn a_new_limit_leaves_what_was_missing_at_the_start(
        quota in quota(),
        next in quota(),
        (start, quarters) in start(),
        built in 0..1_u64 << 50,
        keys in keys(),
        (early, late) in (share(), share()),
    ) {
        let clock = clock(built, Duration::ZERO);
        let bucket = TokenBucket::from(quota).start(start);
        let asked = all(bucket.into(), keys, 8, &clock);
        let unseen = all(bucket.into(), keys, 8, &clock);
        let changed = part(quota, early);
        clock.set(Nanos::new(built + changed));
        for (asked, unseen) in asked.iter().zip(&unseen) {
            prop_assert!(!asked.acquire(0, quota.max_burst() + 1).is_allowed());
            asked.set_limit(next);
            unseen.set_limit(next);
        }
        let since = part(next, late);
        clock.set(Nanos::new(built + changed + since));
        let level = Level::start(quota, quarters).after(changed).under(next).after(since);
        for (asked, unseen) in asked.iter().zip(&unseen) {
            same((&**asked, 0), (&**unseen, 0), next)?;
            // Against the key, where a part of a permit is no whole number of the new quota's units.
            let there = unseen.peek(0, 0).remaining();
            prop_assert!(there <= level.permits(), "{} for {}", there, level.permits());
            prop_assert!(there + 1 >= level.permits(), "{} for {}", there, level.permits());
        }
    }

    #[test]
    fn each_restart_starts_at_its_level_whatever_was_before(
        quota in quota(),
        (start, quarters) in start(),
        built in 0..1_u64 << 50,
        keys in keys(),
        lives in vec((share(), 0..=255_u64), 2..4),
    ) {
        let clock = clock(built, Duration::ZERO);
        let bucket = TokenBucket::from(quota).start(start);
        let mut now = built;
        for (share, spent) in lives {
            let subjects = all(bucket.into(), keys, 8, &clock);
            let life = part(quota, share);
            let cost = Level::start(quota, quarters).permits() * spent / 255;
            for subject in &subjects {
                prop_assert!(subject.acquire(0, cost).is_allowed());
            }
            now += life;
            clock.set(Nanos::new(now));
            let level = Level::start(quota, quarters);
            for subject in &subjects {
                let left = level.without(cost).after(life).permits();
                prop_assert_eq!(subject.peek(0, 0).remaining(), left);
                if keys == Keys::Many {
                    prop_assert_eq!(subject.peek(5, 0).remaining(), level.after(life).permits());
                }
            }
        }
    }
}

/// What passes in ten lives, each a tenth of the period, of a caller who never stops asking.
fn in_ten_lives(start: StartLevel, keys: Keys) -> Vec<u64> {
    let tick = Duration::from_millis(10);
    let bucket = TokenBucket::per_minute(100).start(start);
    let clock = ManualClock::new();
    let mut passed = vec![0; 5];
    for _ in 0..10 {
        let subjects = all(bucket.into(), keys, 8, &clock);
        for _ in 0..600 {
            for (subject, passed) in subjects.iter().zip(&mut passed) {
                while subject.acquire(0, 1).is_allowed() {
                    *passed += 1;
                }
            }
            clock.advance(tick);
        }
    }
    passed
}

#[test]
fn a_service_that_starts_empty_gives_nobody_a_burst() {
    for keys in [Keys::One, Keys::Many] {
        // A hundred a minute; each life of six seconds ends a tick before its tenth permit.
        assert_eq!(in_ten_lives(StartLevel::Empty, keys), [90; 5], "{keys:?}");
        assert_eq!(in_ten_lives(StartLevel::Fraction(0.0), keys), [90; 5], "{keys:?}");
    }
}

#[test]
fn a_service_that_starts_full_gives_everybody_a_burst_each_time() {
    for keys in [Keys::One, Keys::Many] {
        assert_eq!(in_ten_lives(StartLevel::Full, keys), [1_090; 5], "{keys:?}");
        assert_eq!(in_ten_lives(StartLevel::Fraction(0.5), keys), [590; 5], "{keys:?}");
    }
    assert_eq!(TokenBucket::per_minute(100), TokenBucket::per_minute(100).start(StartLevel::Full));
}

#[test]
fn a_restart_makes_the_first_caller_wait_for_the_first_permit() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_second(4).burst(20).start(StartLevel::Empty);
    for _ in 0..3 {
        let one = limiter(bucket.into(), &clock);
        let many = keyed_limiter(bucket.into(), 8, &clock);
        let denied = one.try_acquire();
        assert_eq!(denied.retry_after(), Some(Duration::from_millis(250)));
        assert_eq!(many.try_acquire("key"), denied);
        assert_eq!(denied.reset_after(), Duration::from_secs(5));
        clock.advance(Duration::from_millis(250));
        assert!(one.try_acquire().is_allowed() && many.try_acquire("key").is_allowed());
        assert!(!one.try_acquire().is_allowed() && !many.try_acquire("key").is_allowed());
        // A key first seen now has the permit that came back to all.
        assert_eq!(many.peek("other", 1).remaining(), 1);
    }
}
