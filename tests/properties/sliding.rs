//! Sliding log and sliding window: equal to a record of what was admitted, and never over the limit in any stretch as
//! long as the window.

use proptest::{collection::vec, prelude::*, sample::select};
use tower_sluice::{Algorithm, clock::Nanos};

use crate::{
    bucket::{follow_the_model, keys, steps},
    config,
    models::{Expected, Numbers, Slide},
    quotas::{Exact, cost, epoch, exact_sliding, sliding_quota, span},
    subjects::{Keys, all, clock},
};

fn cells(exact: &Exact) -> u128 {
    if matches!(exact.algorithm, Algorithm::SlidingLog(_)) { 0 } else { 10 }
}

/// The most that was admitted in any stretch of time as long as a window, both ends of which are not in it.
fn busiest(admitted: &[(u64, u64)], window: u128) -> u64 {
    let within = |from: u64| {
        let inside = admitted
            .iter()
            .filter(|(at, _)| *at >= from && u128::from(*at) < u128::from(from) + window);
        inside.map(|(_, cost)| cost).sum()
    };
    admitted.iter().map(|(from, _)| within(*from)).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_slides_is_a_record_of_admissions_on_every_path(
        exact in exact_sliding(),
        epoch in epoch(),
        keys in keys(),
        steps in steps(),
    ) {
        follow_the_model(exact, epoch, keys, &steps)?;
    }

    /// Time is what the clock shows, or what it showed when the key was last charged, if that is later.
    #[test]
    fn no_stretch_as_long_as_a_window_has_more_than_the_limit_though_clocks_go_back(
        exact in exact_sliding(),
        (built, utc) in epoch(),
        keys in keys(),
        steps in vec((span(), cost(), 0..5_u8), 1..40),
    ) {
        let (quota, clock) = (exact.algorithm.quota(), clock(built, utc));
        let subjects = all(exact.algorithm, keys, 8, &clock);
        let (mut now, mut charged, mut admitted) = (built, 0, Vec::new());
        for (span, cost, back) in steps {
            let cost = cost.permits(quota);
            let step = span.nanos(quota) / 4;
            now = if back == 0 { now.saturating_sub(step) } else { now + step };
            clock.set(Nanos::new(now));
            let decision = subjects[0].acquire(0, cost);
            for subject in &subjects[1..] {
                prop_assert_eq!(subject.acquire(0, cost), decision);
            }
            prop_assert!(decision.remaining() <= decision.limit());
            prop_assert_eq!(decision.limit(), quota.permits());
            if decision.is_allowed() && cost > 0 {
                charged = charged.max(now);
                admitted.push((charged, cost));
            }
            if let Some(wait) = decision.retry_after() {
                // No wait is longer than a window and a cell.
                let Numbers { period, .. } = quota.into();
                prop_assert!(wait.as_nanos() <= period + period.div_ceil(10));
            }
        }
        let Numbers { period, .. } = quota.into();
        prop_assert!(busiest(&admitted, period) <= quota.permits());
    }

    /// Who takes what there is as soon as it is there uses nine tenths of a sliding window, and all of a log.
    #[test]
    fn constant_load_uses_nine_tenths_at_least(
        exact in exact_sliding(),
        (built, utc) in epoch(),
        windows in 2..6_u64,
    ) {
        let quota = exact.algorithm.quota();
        let Numbers { period, permits, .. } = quota.into();
        prop_assume!(period >= 1_000);
        let clock = clock(built, utc);
        let subject = all(exact.algorithm, Keys::One, 8, &clock).swap_remove(0);
        let (mut now, mut admitted) = (built, 0_u128);
        let end = u128::from(built) + u128::from(windows) * period;
        while u128::from(now) < end {
            let decision = subject.peek(0, 1);
            match decision.remaining() {
                0 => now += decision.retry_after().expect("a wait").as_nanos() as u64,
                there => {
                    prop_assert!(subject.acquire(0, there).is_allowed());
                    admitted += u128::from(there);
                }
            }
            clock.set(Nanos::new(now));
        }
        if cells(&exact) == 0 {
            prop_assert_eq!(admitted, permits * u128::from(windows));
        } else {
            // A limit comes back every eleven cells, the first of which begins at the latest with the first charge.
            let cell = period.div_ceil(10);
            let rounds = (u128::from(windows) * period).div_ceil(period + cell);
            prop_assert!(admitted >= permits * rounds);
            prop_assert!(admitted * 10 >= permits * u128::from(windows) * 9);
        }
    }

    #[test]
    fn what_slides_stays_spent_when_the_limit_changes(
        exact in exact_sliding(),
        others in vec(sliding_quota(), 4),
        (built, utc) in epoch(),
        keys in select(vec![Keys::One, Keys::Many]),
        steps in vec((span(), cost(), 0..12_usize), 1..25),
    ) {
        let mut quota = exact.algorithm.quota();
        let clock = clock(built, utc);
        let subjects = all(exact.algorithm, keys, 8, &clock);
        let mut model = Slide::new(quota, cells(&exact));
        let mut now = built;
        for (span, cost, change) in steps {
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            if let Some(other) = others.get(change) {
                quota = *other;
                // What has expired by now does not come back.
                model.forget(now);
                model.set(quota);
                subjects.iter().for_each(|subject| subject.set_limit(quota));
            }
            let cost = cost.permits(quota);
            let expected = model.peek(now, cost, 0);
            for subject in &subjects {
                prop_assert_eq!(Expected::of(&subject.peek(0, cost)), expected);
                prop_assert_eq!(subject.acquire(0, cost).is_allowed(), expected.allowed);
            }
            if expected.allowed {
                model.charge(now, cost);
            }
        }
    }
}
