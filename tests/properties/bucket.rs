//! Token bucket: equal to exact rational arithmetic where it counts exactly, and within its promise at
//! any rate; what is common to all algorithms is tried here for both.

use std::{collections::HashMap, time::Duration};

use proptest::{collection::vec, prelude::*};
use tower_sluice::{Algorithm, ManualClock, Quota, TokenBucket, clock::Nanos};

use crate::{
    config,
    models::{Bucket, Expected, Record, nanos},
    quotas::{
        Cost, Exact, Span, bucket_quota, cost, epoch, exact, exact_bucket_quota, is_exact, span,
    },
    subjects::{Keys, all, clock},
};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Advance(Span),
    Acquire(u8, Cost),
    /// Goes to one nanosecond before the time a denied request is told to come back, then to that time.
    ComeBack(u8, Cost),
    Reset(u8),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..3_u8;
    let step = prop_oneof![
        4 => span().prop_map(Step::Advance),
        8 => (key.clone(), cost()).prop_map(|(key, cost)| Step::Acquire(key, cost)),
        3 => (key.clone(), cost()).prop_map(|(key, cost)| Step::ComeBack(key, cost)),
        1 => key.prop_map(Step::Reset),
    ];
    vec(step, 1..20)
}

pub(crate) fn keys() -> impl Strategy<Value = Keys> {
    prop_oneof![Just(Keys::One), Just(Keys::Many)]
}

/// Takes every way to use a limit through the steps, beside the model, and compares all that is said.
pub(crate) fn follow_the_model(
    exact: Exact,
    (built, utc): (u64, Duration),
    keys: Keys,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let (quota, clock) = (exact.algorithm.quota(), clock(built, utc));
    let subjects = all(exact.algorithm, keys, 8, &clock);
    let mut models = HashMap::new();
    let mut now = built;
    let whose = |key| if keys == Keys::One { 0 } else { key };
    for step in steps {
        match *step {
            Step::Advance(span) => {
                now += span.nanos(quota);
                clock.set(Nanos::new(now));
            }
            Step::Acquire(key, cost) => {
                let (key, cost) = (whose(key), cost.permits(quota));
                let model = models.entry(key).or_insert_with(|| exact.model(built, utc));
                let expected = model.peek(now, cost);
                for subject in &subjects {
                    prop_assert_eq!(Expected::of(&subject.peek(key, cost)), expected);
                }
                let told = if expected.allowed {
                    prop_assert!(model.charge(now, cost));
                    model.peek(now, 0)
                } else {
                    expected
                };
                for subject in &subjects {
                    let decision = subject.acquire(key, cost);
                    prop_assert_eq!(Expected::of(&decision), told);
                    prop_assert_eq!(decision.limit(), quota.max_burst());
                    prop_assert_eq!(decision.is_never(), cost > quota.max_burst());
                }
            }
            Step::ComeBack(key, cost) => {
                let (key, cost) = (whose(key), cost.permits(quota));
                let model = models.entry(key).or_insert_with(|| exact.model(built, utc));
                let Some(wait) = model.peek(now, cost).retry_after else { continue };
                let wait = wait.as_nanos() as u64;
                prop_assert!(wait > 0);
                for (at, allowed) in [(now + wait - 1, false), (now + wait, true)] {
                    clock.set(Nanos::new(at));
                    prop_assert_eq!(model.peek(at, cost).allowed, allowed);
                    for subject in &subjects {
                        prop_assert_eq!(
                            Expected::of(&subject.peek(key, cost)),
                            model.peek(at, cost)
                        );
                    }
                }
                now += wait;
            }
            Step::Reset(key) => {
                let key = whose(key);
                let fresh = exact.model(built, utc);
                let model = models.entry(key).or_insert_with(|| fresh.clone());
                let known = !model.is_as_good_as(&fresh, now);
                *model = fresh;
                for subject in &subjects {
                    prop_assert_eq!(subject.reset(key), known);
                }
            }
        }
        let fresh = exact.model(built, utc);
        let live = models.values().filter(|model| !model.is_as_good_as(&fresh, now)).count() as u64;
        for tracked in subjects.iter().filter_map(|subject| subject.tracked()) {
            prop_assert_eq!(tracked, live);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_bucket_is_exact_rational_arithmetic_on_every_path(
        quota in exact_bucket_quota(),
        epoch in epoch(),
        keys in keys(),
        steps in steps(),
    ) {
        let exact = Exact::of(TokenBucket::from(quota));
        follow_the_model(exact, epoch, keys, &steps)?;
    }

    #[test]
    fn a_bucket_keeps_its_promise_in_every_interval_at_any_rate_though_clocks_go_back(
        quota in bucket_quota(),
        (built, utc) in epoch(),
        keys in keys(),
        which in 0..5_usize,
        steps in vec((span(), cost(), 0..8_u8), 1..25),
    ) {
        // Where a rate is rounded, so is it from a base that moves on at charges, and only some ways to use
        // a limit charge what will be denied: so one way at a time.
        let clock = clock(built, utc);
        let subject = all(TokenBucket::from(quota).into(), keys, 8, &clock).swap_remove(which);
        let (mut now, mut latest) = (built, built);
        let (mut record, mut model) = (Record::default(), Bucket::new(quota, built));
        for (span, cost, back) in steps {
            let cost = cost.permits(quota);
            now = if back == 0 {
                now.saturating_sub(span.nanos(quota))
            } else {
                now + span.nanos(quota)
            };
            clock.set(Nanos::new(now));
            let forward = now >= latest;
            latest = latest.max(now);
            let foretold = subject.peek(0, cost);
            let decision = subject.acquire(0, cost);
            prop_assert!(decision.remaining() <= decision.limit());
            prop_assert_eq!(decision.limit(), quota.max_burst());
            prop_assert_eq!(decision.is_allowed(), foretold.is_allowed());
            if decision.is_allowed() {
                record.admitted(now, cost);
                if forward {
                    prop_assert!(model.charge(now, cost), "more than the exact bucket held");
                }
            }
            if forward {
                let exact = model.peek(now, 0, 0);
                prop_assert!(u128::from(decision.remaining()) <= exact.remaining);
                prop_assert!(decision.reset_after() >= exact.reset_after);
            } else {
                // From here on the exact bucket is not fed what it would have to be.
                model = Bucket::new(quota, latest);
            }
            if let Some(wait) = decision.retry_after() {
                let wait = wait.as_nanos() as u64;
                prop_assert!(wait > 0);
                for (at, allowed) in [(now + wait - 1, false), (now + wait, true)] {
                    clock.set(Nanos::new(at));
                    prop_assert_eq!(subject.peek(0, cost).is_allowed(), allowed);
                }
                clock.set(Nanos::new(now));
            }
        }
        prop_assert_eq!(record.broken_interval(quota), None);
    }

    /// A bucket that has to round is never behind exact arithmetic by more than the rounding: two
    /// nanoseconds for each charge that started from idle, where the burst leaves room for whole units.
    #[test]
    fn a_bucket_that_rounds_is_hardly_stricter_than_exact_arithmetic(
        permits in 17..=1_000_000_000_u64,
        period in prop_oneof![Just(1_000_000_000_u64), Just(60_000_000_000), 1_000_000..=100_000_000_000_u64],
        burst in 1..=100_u64,
        steps in vec((span(), cost()), 1..25),
    ) {
        let quota = Quota::new(permits.min(period), Duration::from_nanos(period)).burst(burst);
        let clock = ManualClock::new();
        let limiter = TokenBucket::from(quota).limiter().clock(clock.clone()).build().unwrap();
        let mut model = Bucket::new(quota, 0);
        let (mut now, mut charges) = (0, 0);
        for (span, cost) in steps {
            let cost = cost.permits(quota);
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            let exact = model.peek(now, cost, 0);
            let decision = limiter.peek(cost);
            if let Some(wait) = exact.retry_after {
                let slack = Duration::from_nanos(2 * (charges + 1));
                prop_assert!(decision.retry_after().unwrap() >= wait);
                prop_assert!(decision.retry_after().unwrap() <= wait + slack);
            }
            if limiter.try_acquire_many(cost).is_allowed() {
                charges += 1;
                prop_assert!(model.charge(now, cost));
            }
        }
    }

    #[test]
    fn a_denial_changes_nothing(
        exact in exact(),
        (built, utc) in epoch(),
        keys in keys(),
        steps in vec((span(), 0..3_u8, cost(), cost()), 1..15),
    ) {
        let (quota, clock) = (exact.algorithm.quota(), clock(built, utc));
        let asked = all(exact.algorithm, keys, 8, &clock);
        let untouched = all(exact.algorithm, keys, 8, &clock);
        let mut now = built;
        for (span, key, cost, other) in steps {
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            let (cost, other) = (cost.permits(quota), other.permits(quota));
            for (asked, untouched) in asked.iter().zip(&untouched) {
                let foretold = asked.peek(key, cost);
                if !foretold.is_allowed() {
                    prop_assert_eq!(asked.acquire(key, cost), foretold);
                }
                let probes = [0, 1, other, quota.max_burst(), quota.max_burst() + 1];
                for probe in probes {
                    for key in 0..3 {
                        prop_assert_eq!(asked.peek(key, probe), untouched.peek(key, probe));
                    }
                }
                prop_assert_eq!(asked.tracked(), untouched.tracked());
                prop_assert_eq!(asked.acquire(key, other), untouched.acquire(key, other));
            }
        }
    }

    #[test]
    fn keys_that_come_and_go_are_each_a_limit_of_their_own(
        exact in exact(),
        (built, utc) in epoch(),
        max_keys in 1..=5_u64,
        steps in vec((span(), 0..12_u8, cost()), 1..40),
    ) {
        // Never more live keys than the rule keeps, so that idle ones must make room and live ones
        // must not.
        let (quota, clock) = (exact.algorithm.quota(), clock(built, utc));
        let subjects = all(exact.algorithm, Keys::Many, max_keys, &clock);
        let mut models = HashMap::new();
        let mut now = built;
        for (span, key, cost) in steps {
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            let cost = cost.permits(quota);
            let fresh = exact.model(built, utc);
            models.retain(|_, model: &mut crate::models::Model| {
                !model.is_as_good_as(&fresh, now)
            });
            // A key that is just now idle may still keep its slot for this nanosecond.
            now += 1;
            clock.set(Nanos::new(now));
            if models.len() as u64 >= max_keys && !models.contains_key(&key) {
                continue;
            }
            let model = models.entry(key).or_insert(fresh);
            let expected = model.peek(now, cost);
            for subject in &subjects {
                prop_assert_eq!(Expected::of(&subject.peek(key, cost)), expected);
                prop_assert_eq!(subject.acquire(key, cost).is_allowed(), expected.allowed);
            }
            if expected.allowed {
                prop_assert!(model.charge(now, cost));
            }
            for subject in &subjects {
                for (key, model) in &models {
                    prop_assert_eq!(Expected::of(&subject.peek(*key, 0)), model.peek(now, 0));
                }
            }
        }
    }

    #[test]
    fn a_bucket_that_starts_part_full_earns_its_start(
        quota in exact_bucket_quota(),
        (built, utc) in epoch(),
        quarters in 0..=4_u8,
        key_after in span(),
        cost in cost(),
    ) {
        // Quarters of a burst of whole units are exact in floating point below 2^53.
        let capacity = u128::from(quota.max_burst()) * quota.period().as_nanos();
        prop_assume!(is_exact(quota) && capacity < 1 << 50);
        let clock = clock(built, utc);
        let level = tower_sluice::StartLevel::Fraction(f64::from(quarters) / 4.0);
        let bucket = TokenBucket::from(quota).start(level);
        let subjects = all(Algorithm::from(bucket), Keys::Many, 8, &clock);
        let now = built + key_after.nanos(quota);
        clock.set(Nanos::new(now));
        let cost = cost.permits(quota);
        let start = capacity * u128::from(quarters) / 4;
        let gained = u128::from(now - built) * u128::from(quota.permits());
        let level = (start + gained).min(capacity);
        let wanted = u128::from(cost) * quota.period().as_nanos();
        for subject in &subjects {
            let decision = subject.peek(7, cost);
            prop_assert_eq!(decision.is_allowed(), wanted <= level);
            prop_assert_eq!(u128::from(decision.remaining()), level / quota.period().as_nanos());
            if wanted > level && cost <= quota.max_burst() {
                // Rounded up to a unit where the quarter is not a whole number of them.
                let wait = nanos((wanted - level).div_ceil(quota.permits().into()));
                let told = decision.retry_after().unwrap();
                prop_assert!(told >= wait && told <= wait + Duration::from_nanos(1));
            }
            prop_assert_eq!(subject.acquire(7, cost).is_allowed(), wanted <= level);
        }
    }
}
