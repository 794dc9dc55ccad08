//! Fixed window: equal to a record of what was admitted, from the first request and aligned to UTC.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use tower_sluice::{FixedWindow, ManualClock, Quota, clock::Nanos};

use crate::{
    bucket::{follow_the_model, keys, steps},
    config,
    models::Window,
    quotas::{Exact, base_stays, cost, epoch, exact_window_quota, log_uniform, span},
    subjects::{all, clock},
};

fn window(quota: Quota, aligned: bool) -> FixedWindow {
    let window = FixedWindow::new(quota.permits(), quota.period());
    if aligned { window.aligned() } else { window }
}

/// Any window that can be counted, with whether it is aligned. Too many for one this short is refused
/// when it is built.
fn any_window() -> impl Strategy<Value = (FixedWindow, bool)> {
    let limit = prop_oneof![log_uniform(20), log_uniform(40)];
    let period = prop_oneof![log_uniform(40), log_uniform(50)];
    (limit, period, any::<bool>())
        .prop_map(|(limit, period, aligned)| {
            (window(Quota::new(limit, Duration::from_nanos(period)), aligned), aligned)
        })
        .prop_filter("can be counted", |(window, _)| {
            window.limiter().clock(ManualClock::new()).build().is_ok()
        })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_window_is_a_record_of_admissions_on_every_path(
        quota in exact_window_quota(),
        aligned in any::<bool>(),
        epoch in epoch(),
        keys in keys(),
        steps in steps(),
    ) {
        let exact = Exact::of(window(quota, aligned)).aligned(aligned);
        follow_the_model(exact, epoch, keys, &steps)?;
    }

    /// Time is what the clock shows, or what it showed when the limiter was built or the key was last
    /// charged, if that is later. Where the base has moved, windows that had ended by then are forgotten,
    /// and a clock that goes back to them finds them anew; here it goes back before that.
    #[test]
    fn a_window_keeps_its_promise_though_clocks_go_back(
        quota in exact_window_quota(),
        aligned in any::<bool>(),
        (built, utc) in epoch(),
        keys in keys(),
        steps in vec((span(), cost(), 0..5_u8), 1..30),
    ) {
        let clock = clock(built, utc);
        let subjects = all(window(quota, aligned).into(), keys, 8, &clock);
        let mut record = Window::new(quota, aligned.then_some(utc));
        let (mut now, mut charged) = (built, if aligned { 0 } else { built });
        let mut latest = built;
        for (span, cost, back) in steps {
            let cost = cost.permits(quota);
            now = if back == 0 && base_stays(built, latest) {
                now.saturating_sub(span.nanos(quota))
            } else {
                now + span.nanos(quota)
            };
            latest = latest.max(now);
            clock.set(Nanos::new(now));
            let decision = subjects[0].acquire(0, cost);
            for subject in &subjects[1..] {
                prop_assert_eq!(subject.acquire(0, cost), decision);
            }
            prop_assert!(decision.remaining() <= decision.limit());
            prop_assert_eq!(decision.limit(), quota.permits());
            if decision.is_allowed() && cost > 0 {
                charged = now.max(charged);
                prop_assert!(record.charge(charged, cost), "more than the limit in one window");
            }
        }
    }

    /// Windows are told apart by their ends, which every decision tells.
    #[test]
    fn a_window_of_any_limit_keeps_its_promise_and_its_length(
        window in any_window(),
        (built, utc) in epoch(),
        keys in keys(),
        steps in vec((span(), cost()), 1..30),
    ) {
        let (window, aligned) = window;
        let clock = clock(built, utc);
        let quota = window.quota();
        let (limit, period) = (quota.permits(), quota.period().as_nanos() as u64);
        let subjects = all(window.into(), keys, 8, &clock);
        let mut now = built;
        // Of the present window: first request, end, permits spent.
        let mut present: Option<(u64, u64, u64)> = None;
        for (span, cost) in steps {
            let cost = cost.permits(quota);
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            let decision = subjects[0].acquire(0, cost);
            for subject in &subjects[1..] {
                prop_assert_eq!(subject.acquire(0, cost), decision);
            }
            let end = now + decision.reset_after().as_nanos() as u64;
            if decision.is_allowed() && cost > 0 {
                present = match present {
                    Some((first, at, spent)) if at == end => Some((first, at, spent + cost)),
                    earlier => {
                        if let Some((_, at, _)) = earlier {
                            prop_assert!(now >= at, "windows overlap");
                        }
                        if !aligned {
                            prop_assert!(end - now > period - period / 64 - 1, "too short");
                        }
                        Some((now, end, cost))
                    }
                };
            }
            if let Some((first, at, spent)) = present {
                prop_assert!(at - first <= period, "too long");
                prop_assert!(spent <= limit);
                if now < at {
                    prop_assert_eq!(decision.remaining(), limit - spent);
                }
            }
            if let Some(wait) = decision.retry_after() {
                let wait = wait.as_nanos() as u64;
                for (at, allowed) in [(now + wait - 1, false), (now + wait, true)] {
                    clock.set(Nanos::new(at));
                    for subject in &subjects {
                        prop_assert_eq!(subject.peek(0, cost).is_allowed(), allowed);
                    }
                }
                clock.set(Nanos::new(now));
            }
        }
    }
}
