//! Leaky bucket: never two admissions closer than the interval, at any rate and whatever clocks do; equal
//! to exact rational arithmetic where it counts exactly.

use proptest::{collection::vec, option, prelude::*};
use tower_sluice::{Quota, clock::Nanos};

use crate::{
    bucket::{follow_the_model, keys, steps},
    config,
    models::Numbers,
    quotas::{Exact, bucket_quota, epoch, exact_bucket_quota, leaky, span},
    subjects::{all, clock},
};

/// How much has come back since the last admission, by all the ways that the clock went forward.
#[derive(Default)]
pub(crate) struct Since {
    /// Time under the quota in force, in nanoseconds.
    pub(crate) present: u128,
    /// What earlier quotas have given, in permits; rounded, so it is never zero where one has given any.
    earlier: f64,
}

impl Since {
    fn permits(&self, quota: Quota) -> f64 {
        let Numbers { permits, period, .. } = quota.into();
        self.earlier + (self.present as f64) * (permits as f64) / (period as f64)
    }

    /// Goes on under another quota.
    pub(crate) fn under_another(&mut self, quota: Quota) {
        *self = Self { present: 0, earlier: self.permits(quota).max(f64::MIN_POSITIVE) };
    }

    /// Whether a whole permit has come back: exactly, where one quota was in force all the while.
    pub(crate) fn is_an_interval(&self, quota: Quota) -> bool {
        let Numbers { permits, period, .. } = quota.into();
        if self.earlier == 0.0 {
            return self.present * permits >= period;
        }
        self.permits(quota) >= 1.0 - 1e-9
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_leaky_bucket_is_exact_rational_arithmetic_on_every_path(
        quota in exact_bucket_quota(),
        epoch in epoch(),
        keys in keys(),
        steps in steps(),
    ) {
        let exact = Exact::of(leaky(quota));
        follow_the_model(exact, epoch, keys, &steps)?;
    }

    #[test]
    fn admissions_are_never_closer_than_the_interval_though_rates_change_and_clocks_go_back(
        quotas in vec(bucket_quota(), 1..4),
        (built, utc) in epoch(),
        keys in keys(),
        which in 0..5_usize,
        changes in any::<bool>(),
        steps in vec((span(), 0..8_u8, option::weighted(0.2, 0..4_usize), 0..3_u64), 1..30),
    ) {
        let rates: Vec<Quota> = quotas.iter().map(|quota| leaky(*quota).quota()).collect();
        let mut quota = rates[0];
        let clock = clock(built, utc);
        let subject = all(leaky(quota).into(), keys, 8, &clock).swap_remove(which);
        let (mut now, mut since) = (built, None::<Since>);
        for (span, back, change, cost) in steps {
            let step = span.nanos(quota);
            now = if back == 0 { now.saturating_sub(step) } else { now + step };
            clock.set(Nanos::new(now));
            if let Some(since) = since.as_mut().filter(|_| back > 0) {
                since.present += u128::from(step);
            }
            if let Some(change) = change.filter(|_| changes) {
                let next = rates[change % rates.len()];
                subject.set_limit(next);
                if let Some(since) = since.as_mut().filter(|_| next != quota) {
                    since.under_another(quota);
                }
                quota = next;
            }
            let decision = subject.acquire(0, cost);
            prop_assert_eq!(decision.limit(), 1);
            prop_assert_eq!(decision.is_never(), cost > 1);
            prop_assert!(cost > 0 || decision.is_allowed());
            if cost == 1 && decision.is_allowed() {
                if let Some(since) = &since {
                    prop_assert!(since.is_an_interval(quota), "too close: {:?}", quota);
                }
                since = Some(Since::default());
                prop_assert_eq!(decision.remaining(), 0);
            }
            if let Some(wait) = decision.retry_after() {
                // Told to come back at the first nanosecond that is good.
                let wait = wait.as_nanos() as u64;
                prop_assert!(wait > 0);
                for (at, allowed) in [(now + wait - 1, false), (now + wait, true)] {
                    clock.set(Nanos::new(at));
                    prop_assert_eq!(subject.peek(0, 1).is_allowed(), allowed);
                }
                clock.set(Nanos::new(now));
            }
        }
    }
}
