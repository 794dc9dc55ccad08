//! Windows of the calendar: equal to a record of what was admitted between edges that are counted day by day.

use std::{collections::HashMap, sync::LazyLock, time::Duration};

use proptest::{collection::vec, prelude::*, sample::select};
use tower_sluice::{Algorithm, Calendar, FixedWindow, clock::Nanos};

use crate::{
    bucket::{follow_the_model, keys, steps},
    civil::{DAY, days_in},
    config,
    models::{Expected, Window},
    quotas::{Exact, cost, log_uniform, span},
    subjects::{all, clock},
};

const CALENDARS: [Calendar; 3] = [Calendar::Day, Calendar::IsoWeek, Calendar::Month];

/// The first days of months, or of weeks, from the beginning of 1970 on: for two rounds of 400 years, beyond which
/// the calendar comes round, and for what clocks add.
static MONTHS: LazyLock<Vec<u64>> = LazyLock::new(|| first_days(|_, day, _| day == 1));
static MONDAYS: LazyLock<Vec<u64>> = LazyLock::new(|| first_days(|_, _, weekday| weekday == 0));

/// The days since 1970 that `is_first` of their month, of the month and of the week, Monday being 0.
fn first_days(is_first: impl Fn(u64, u64, u64) -> bool) -> Vec<u64> {
    let years = (1970..3570).flat_map(|year| (1..=12).map(move |month| (year, month)));
    let days =
        years.flat_map(|(year, month)| (1..=days_in(year, month)).map(move |day| (month, day)));
    // 1970 began on a Thursday.
    let days = days.zip(0..).filter(|((month, day), n)| is_first(*month, *day, (n + 3) % 7));
    days.map(|(_, n)| n).collect()
}

/// The first edge after an instant, both in nanoseconds since the beginning of 1970.
pub(crate) fn next_edge(calendar: Calendar, utc: u128) -> u128 {
    let day = (utc / DAY.as_nanos()) as u64;
    let edges: &[u64] = match calendar {
        Calendar::IsoWeek => &MONDAYS,
        Calendar::Month => &MONTHS,
        _ => return u128::from(day + 1) * DAY.as_nanos(),
    };
    let next = edges.partition_point(|first| *first <= day);
    u128::from(edges[next]) * DAY.as_nanos()
}

/// Whose windows these are; `None` where they are not the calendar's.
pub(crate) fn calendar_of(algorithm: Algorithm) -> Option<Calendar> {
    let Algorithm::FixedWindow(window) = algorithm else { return None };
    window.calendar_unit()
}

fn window() -> impl Strategy<Value = (FixedWindow, Calendar)> {
    let limit = prop_oneof![3 => 1..=20_u64, 1 => log_uniform(40)];
    (limit, select(&CALENDARS[..]))
        .prop_map(|(limit, calendar)| (FixedWindow::calendar(limit, calendar), calendar))
}

pub(crate) fn exact_calendar() -> impl Strategy<Value = Exact> {
    window().prop_map(|(window, _)| Exact::of(window).aligned(true))
}

/// What a clock shows when a limiter is built, up to three centuries, and the UTC of its zero: at most a
/// thousand years from 1970, often an edge of a month or next to it.
fn epoch() -> impl Strategy<Value = (u64, Duration)> {
    let built = prop_oneof![Just(0), log_uniform(56), log_uniform(62)];
    let near = (1..12_000_usize, 0..5_u64).prop_map(|(month, nanos)| {
        DAY * MONTHS[month] as u32 + Duration::from_nanos(nanos) - Duration::from_nanos(2)
    });
    let any = (0..365_000_u32, 0..DAY.as_nanos() as u64)
        .prop_map(|(days, nanos)| DAY * days + Duration::from_nanos(nanos));
    (built, prop_oneof![near, any])
}

proptest! {
    #![proptest_config(config())]

    /// With `retry_after` exact: denied one nanosecond earlier, allowed at it.
    #[test]
    fn a_calendar_window_is_a_record_of_admissions_on_every_path(
        exact in exact_calendar(),
        epoch in epoch(),
        keys in keys(),
        steps in steps(),
    ) {
        follow_the_model(exact, epoch, keys, &steps)?;
    }

    /// Even a clock that goes back by years finds what the record says, and the limit may change meanwhile, when
    /// a window that has ended is forgotten.
    #[test]
    fn a_calendar_window_admits_its_limit_and_no_more_though_clocks_go_back(
        (window, calendar) in window(),
        (built, utc) in epoch(),
        keys in keys(),
        steps in vec((span(), cost(), 0..6_u8, 0..10_u64), 1..30),
    ) {
        let clock = clock(built, utc);
        let subjects = all(window.into(), keys, 8, &clock);
        let mut quota = window.quota();
        let mut record = Window::calendar(quota, calendar, utc);
        // By the edge that ends each window. Time that goes back stands still for who was charged since.
        let mut admitted = HashMap::<u128, u128>::new();
        let mut charged = 0;
        let mut most = quota.permits();
        let mut now = built;
        for (span, cost, back, change) in steps {
            now = match back {
                0 => now.saturating_sub(span.nanos(quota)),
                1 => built,
                _ => now + span.nanos(quota),
            };
            clock.set(Nanos::new(now));
            if change == 0 {
                let limit = 1 + u64::from(back) * window.quota().permits() / 3;
                let next = FixedWindow::calendar(limit, calendar).quota();
                for subject in &subjects {
                    subject.set_limit(next);
                }
                if next != quota && record.settle(now, next) {
                    (admitted, charged) = (HashMap::new(), 0);
                }
                quota = next;
                most = most.max(quota.permits());
            }
            let cost = cost.permits(quota);
            let expected = record.peek(now, cost, 0);
            for subject in &subjects {
                prop_assert_eq!(Expected::of(&subject.peek(0, cost)), expected);
                prop_assert_eq!(subject.acquire(0, cost).is_allowed(), expected.allowed);
            }
            if expected.allowed && cost > 0 {
                prop_assert!(record.charge(now, cost), "more than the limit in one window");
                charged = now.max(charged);
                let edge = next_edge(calendar, utc.as_nanos() + u128::from(charged));
                let sum = admitted.entry(edge).or_default();
                *sum += u128::from(cost);
                prop_assert!(*sum <= u128::from(most), "{} of {}", sum, most);
            }
        }
    }

    /// Two neighbours: the whole limit in each, twice the limit across the edge, which is where months are said
    /// to begin.
    #[test]
    fn the_limit_is_there_again_at_each_edge_and_not_before(
        (window, calendar) in window(),
        (built, utc) in epoch(),
        keys in keys(),
        windows in 1..14_usize,
    ) {
        let clock = clock(built, utc);
        let limit = window.quota().permits();
        let subjects = all(window.into(), keys, 8, &clock);
        let mut now = built;
        for _ in 0..windows {
            let edge = next_edge(calendar, utc.as_nanos() + u128::from(now)) - utc.as_nanos();
            let wait = Duration::from_nanos(edge as u64 - now);
            for subject in &subjects {
                prop_assert!(subject.acquire(0, limit).is_allowed());
                prop_assert_eq!(subject.peek(0, 1).retry_after(), Some(wait));
            }
            clock.set(Nanos::new(edge as u64 - 1));
            for subject in &subjects {
                let denied = subject.acquire(0, 1);
                prop_assert_eq!(denied.retry_after(), Some(Duration::from_nanos(1)));
                prop_assert_eq!(denied.remaining(), 0);
            }
            now = edge as u64;
            clock.set(Nanos::new(now));
        }
    }
}
