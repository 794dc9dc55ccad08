//! Changes of the quota in between.

use proptest::{collection::vec, prelude::*, sample::select};
use tower_sluice::{Algorithm, Quota, clock::Nanos};

use crate::{
    calendar::calendar_of,
    config,
    quotas::{cost, epoch, exact, exact_bucket_quota, exact_window_quota, span, without_ramp},
    subjects::{Keys, all, clock},
};

/// Whether the shortest window has room for a count up to the limit.
fn small(quota: &Quota) -> bool {
    quota.permits() < 32
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_spent_stays_spent_when_the_limit_changes(
        exact in without_ramp().prop_filter("a count any window has room for, of any length", |exact| {
            match exact.algorithm {
                Algorithm::FixedWindow(_) => small(&exact.algorithm.quota()) && calendar_of(exact.algorithm).is_none(),
                // What slides is in `sliding`.
                algorithm => !matches!(algorithm, Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_)),
            }
        }),
        buckets in vec(exact_bucket_quota(), 4),
        windows in vec(exact_window_quota().prop_filter("a small count", small), 4),
        (built, utc) in epoch(),
        keys in select(vec![Keys::One, Keys::Many]),
        steps in vec((span(), 0..2_u8, cost(), 0..12_usize), 1..20),
    ) {
        let clock = clock(built, utc);
        let subjects = all(exact.algorithm, keys, 8, &clock);
        let mut quota = exact.algorithm.quota();
        let is_bucket = !matches!(exact.algorithm, Algorithm::FixedWindow(_));
        let mut now = built;
        // What the present window of each key has admitted, under whatever limits.
        let mut counted = [0, 0];
        for (span, key, cost, change) in steps {
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            let key = if keys == Keys::One { 0 } else { key };
            let counted = &mut counted[usize::from(key)];
            if subjects[0].peek(key, 0).reset_after().is_zero() {
                *counted = 0;
            }
            if change < 4 {
                let next = exact.other(buckets[change], windows[change]);
                let spent = |subject: &dyn crate::subjects::Subject| {
                    let now = subject.peek(key, 0);
                    now.limit() - now.remaining()
                };
                for subject in &subjects {
                    let before = spent(&**subject);
                    subject.set_limit(next);
                    let after = subject.peek(key, 0);
                    prop_assert_eq!(after.limit(), next.max_burst());
                    // A bucket cannot be emptier than empty; a window that has admitted more than its
                    // limit is now remembers that.
                    let before = if is_bucket { before } else { *counted };
                    prop_assert_eq!(spent(&**subject), before.min(next.max_burst()));
                }
                quota = next;
            }
            let cost = cost.permits(quota);
            let told = subjects[0].acquire(key, cost);
            if told.is_allowed() {
                *counted += cost;
            }
            for subject in &subjects[1..] {
                prop_assert_eq!(subject.acquire(key, cost), told);
            }
            prop_assert!(told.remaining() <= told.limit());
            prop_assert_eq!(told.limit(), quota.max_burst());
        }
    }

    #[test]
    fn setting_the_limit_that_is_in_force_changes_nothing(
        exact in exact(),
        rounding in (17..=1_000_000_u64, 1..=100_u64, any::<bool>()),
        (built, utc) in epoch(),
        keys in select(vec![Keys::One, Keys::Many]),
        steps in vec((span(), 0..2_u8, cost(), any::<bool>()), 1..20),
    ) {
        let (permits, burst, rounds) = rounding;
        let algorithm = if rounds {
            Quota::per_second(permits * 7 + 1).burst(burst).into()
        } else {
            exact.algorithm
        };
        let (quota, clock) = (algorithm.quota(), clock(built, utc));
        let touched = all(algorithm, keys, 8, &clock);
        let untouched = all(algorithm, keys, 8, &clock);
        let mut now = built;
        for (span, key, cost, touch) in steps {
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            let cost = cost.permits(quota);
            for (touched, untouched) in touched.iter().zip(&untouched) {
                if touch {
                    touched.set_limit(quota);
                }
                for probe in [0, 1, cost] {
                    prop_assert_eq!(touched.peek(key, probe), untouched.peek(key, probe));
                }
                prop_assert_eq!(touched.acquire(key, cost), untouched.acquire(key, cost));
                prop_assert_eq!(touched.tracked(), untouched.tracked());
            }
        }
    }
}
