//! Area WN: windows.

use std::time::Duration;

use tower_sluice::{
    Algorithm, Calendar, FixedWindow, KeyedLimiter, Limiter, ManualClock, Quota, RateLimitLayer,
    Rule,
    clock::{Clock, Nanos},
    key,
};

use crate::{
    civil::{DAY, days_in},
    support_core::{HOUR, SECOND, keyed, limiter, ready, retry_secs, status},
};

const NANO: Duration = Duration::from_nanos(1);

/// 00:00 UTC of a day since 1970, after 1970-01-01.
fn utc(year: u64, month: u64, day: u64) -> Duration {
    let before = (1970..year).flat_map(|year| (1..=12).map(move |month| (year, month)));
    let months = before.chain((1..month).map(|month| (year, month)));
    let days = months.map(|(year, month)| days_in(year, month)).sum::<u64>() + day - 1;
    Duration::from_secs(days * 86_400)
}

/// One window in three uses, on a clock that is set by its UTC.
struct Uses {
    clock: ManualClock,
    zero: Duration,
    one: Limiter,
    many: KeyedLimiter,
    layer: RateLimitLayer,
}

impl Uses {
    /// Built at this UTC; the clock's zero lies `age` before.
    fn built_at(window: FixedWindow, at: Duration, age: Duration) -> Self {
        let zero = at - age;
        let clock = ManualClock::with_utc(zero);
        clock.set(Nanos::from(age));
        let algorithm = Algorithm::from(window);
        let rule = Rule::new("plan", window).spread(false);
        let layer = RateLimitLayer::builder().clock(clock.clone()).rule(rule).build();
        Self {
            one: limiter(algorithm, clock.clone()),
            many: keyed(algorithm, clock.clone(), None),
            layer: layer.expect("a layer"),
            zero,
            clock,
        }
    }

    fn now(&self) -> Duration {
        self.zero + Duration::from(self.clock.now())
    }

    /// Spends all that is left at this UTC.
    fn exhaust(&self, at: Duration) {
        self.clock.set(Nanos::from(at - self.zero));
        let left = self.one.peek(0).remaining();
        assert!(left > 0, "nothing is left at {at:?}");
        assert!(self.one.try_acquire_many(left).is_allowed());
        assert!(self.many.try_acquire_many("key", left).is_allowed());
        for _ in 0..left {
            assert_eq!(status(&self.layer, &[]), (200, None));
        }
    }

    /// All is spent until `end`, and until no later.
    #[track_caller]
    fn assert_spent_until(&self, end: Duration) {
        for at in [self.now(), self.now() + NANO, end - HOUR, end - SECOND, end - NANO] {
            if at < self.now() || at >= end {
                continue;
            }
            self.clock.set(Nanos::from(at - self.zero));
            let denied = self.one.try_acquire();
            assert_eq!(denied.retry_after(), Some(end - at), "{at:?}");
            assert_eq!(self.many.try_acquire("key"), denied);
            assert_eq!(status(&self.layer, &[]), (429, retry_secs(&denied)));
        }
        self.clock.set(Nanos::from(end - self.zero));
        let fresh = self.one.peek(1);
        assert_eq!(fresh.remaining(), fresh.limit(), "{end:?}");
        assert_eq!(self.many.peek("key", fresh.limit()), fresh);
        let peek = self.layer.handle();
        assert_eq!(ready(peek.peek("plan", (), 1)).expect("a peek"), fresh);
    }
}

/// Half past eleven in the evening before the clocks of a zone change, as UTC, in spring and in autumn.
fn evenings_before_a_change() -> [Duration; 6] {
    let evening = HOUR * 23 + HOUR / 2;
    [
        // Berlin: an hour ahead, two in summer.
        utc(2024, 3, 30) + evening - HOUR,
        utc(2024, 10, 26) + evening - HOUR * 2,
        // New York: five hours behind, four in summer.
        utc(2025, 3, 8) + evening + HOUR * 5,
        utc(2025, 11, 1) + evening + HOUR * 4,
        // Lord Howe Island changes by half an hour, from eleven hours ahead to ten and a half.
        utc(2026, 4, 4) + evening - HOUR * 11,
        utc(2026, 10, 3) + evening - HOUR * 10 - HOUR / 2,
    ]
}

#[test]
fn wn_11_a_fixed_day_is_86400_seconds_whatever_the_zone() {
    for start in evenings_before_a_change() {
        for age in [Duration::ZERO, DAY * 400 + NANO] {
            let uses = Uses::built_at(FixedWindow::per_day(100), start, age);
            uses.exhaust(start);
            for hour in 0..24 {
                uses.clock.set(Nanos::from(start + HOUR * hour - uses.zero));
                assert_eq!(uses.one.try_acquire().retry_after(), Some(DAY - HOUR * hour));
                assert_eq!(status(&uses.layer, &[]).1, Some(86_400 - u64::from(hour) * 3_600));
            }
            uses.assert_spent_until(start + DAY);
            uses.clock.set(Nanos::from(start + HOUR * 26 - uses.zero));
            assert!(uses.one.try_acquire().is_allowed());
        }
    }
}

#[test]
fn wn_11_a_calendar_day_is_over_at_midnight_utc() {
    for start in evenings_before_a_change() {
        let midnight = Duration::from_secs((start.as_secs() / 86_400 + 1) * 86_400);
        let same = [
            FixedWindow::calendar(100, Calendar::Day),
            FixedWindow::calendar(100, Calendar::Day).aligned(),
            FixedWindow::per_day(100).aligned(),
        ];
        for window in same {
            let uses = Uses::built_at(window, start, HOUR * 77 + NANO);
            uses.exhaust(start);
            uses.assert_spent_until(midnight);
            // The day of 23 or 25 hours elsewhere has 24 here.
            uses.exhaust(midnight);
            uses.assert_spent_until(midnight + DAY);
        }
    }
}

#[test]
fn wn_11_a_calendar_week_is_over_on_monday() {
    // Mondays: before and after a new year, a leap day, and the 53rd week of 2020.
    let mondays =
        [utc(1970, 1, 5), utc(2020, 12, 28), utc(2021, 1, 4), utc(2024, 2, 26), utc(2100, 3, 1)];
    for monday in mondays {
        for (into, age) in [(Duration::ZERO, DAY), (DAY * 6 + HOUR * 23, DAY * 6), (NANO, HOUR)] {
            let start = monday + into;
            let uses = Uses::built_at(FixedWindow::calendar(10, Calendar::IsoWeek), start, age);
            uses.exhaust(start);
            uses.assert_spent_until(monday + DAY * 7);
            uses.exhaust(monday + DAY * 7);
            uses.assert_spent_until(monday + DAY * 14);
        }
    }
}

#[test]
fn wn_11_a_calendar_month_is_over_on_the_first() {
    for (year, leaps) in [(2023, 0), (2024, 1), (2000, 1), (2100, 0), (2400, 1), (1971, 0)] {
        let start = utc(year, 1, 31) + HOUR * 23 + HOUR / 2;
        let (february, march) = (utc(year, 2, 1), utc(year, 3, 1));
        assert_eq!(march - february, DAY * (28 + leaps));
        for age in [Duration::ZERO, DAY * 40 + NANO, DAY * 365] {
            let window = FixedWindow::calendar(100, Calendar::Month);
            let uses = Uses::built_at(window, start, age);
            uses.exhaust(start);
            uses.assert_spent_until(february);
            uses.exhaust(february);
            // Each hour from 28 February on.
            let hours = (march - utc(year, 2, 28)).as_secs() / 3_600;
            for left in (1..=hours).rev() {
                let left = HOUR * left as u32;
                uses.clock.set(Nanos::from(march - left - uses.zero));
                assert_eq!(uses.one.try_acquire().retry_after(), Some(left), "{year}");
                assert_eq!(status(&uses.layer, &[]).1, Some(left.as_secs()), "{year}");
            }
            uses.assert_spent_until(march);
        }
    }
}

#[test]
fn wn_11_every_month_of_eight_years_is_as_long_as_it_is() {
    let uses = Uses::built_at(FixedWindow::calendar(3, Calendar::Month), utc(2096, 1, 1), NANO);
    let mut first = utc(2096, 1, 1);
    for year in 2096..2104 {
        for month in 1..=12 {
            let next = first + DAY * days_in(year, month) as u32;
            // On the last day, or on the first.
            uses.exhaust(if month % 2 == 0 { next - DAY } else { first });
            uses.assert_spent_until(next);
            first = next;
        }
    }
    // December to January among them.
    assert_eq!(first, utc(2104, 1, 1));
}

#[test]
fn wn_11_a_new_limit_keeps_the_calendar_and_what_is_spent() {
    let start = utc(2026, 1, 31) + HOUR * 12;
    let month = |limit| FixedWindow::calendar(limit, Calendar::Month);
    let uses = Uses::built_at(month(100), start, HOUR);
    uses.exhaust(start);
    let handle = uses.layer.handle();
    let wrong = [Quota::per_day(100), Quota::new(100, DAY * 30), FixedWindow::per_hour(1).quota()];
    for quota in wrong {
        assert_eq!(uses.one.set_limit(quota).unwrap_err().field(), "period");
        assert_eq!(uses.many.set_limit(quota).unwrap_err().field(), "period");
        assert!(handle.set_limit("plan", quota).unwrap_err().to_string().contains("period"));
    }
    uses.assert_spent_until(utc(2026, 2, 1));

    uses.exhaust(utc(2026, 2, 1) + HOUR);
    let raise = |limit| {
        uses.one.set_limit(month(limit).quota()).expect("a quota");
        uses.many.set_limit(month(limit).quota()).expect("a quota");
        handle.set_limit("plan", month(limit).quota()).expect("a quota");
    };
    raise(150);
    assert_eq!(uses.one.peek(1).remaining(), 50);
    uses.exhaust(utc(2026, 2, 20));
    // A clock that goes back finds the month it was in, also while the limit changes.
    uses.clock.set(Nanos::from(utc(2026, 1, 31) + HOUR * 13 - uses.zero));
    raise(160);
    assert_eq!(uses.one.peek(1).remaining(), 10);
    let wait = uses.one.peek(11).retry_after();
    assert_eq!(wait, Some(utc(2026, 3, 1) - uses.now()));
    uses.clock.set(Nanos::from(utc(2026, 2, 21) - uses.zero));
    assert_eq!(uses.one.peek(1).remaining(), 10);
    uses.exhaust(utc(2026, 2, 21));
    uses.assert_spent_until(utc(2026, 3, 1));
}

#[test]
fn wn_11_a_relaxed_key_has_so_much_more_in_a_month() {
    let clock = ManualClock::with_utc(utc(2026, 4, 30));
    let of_key = key::header("x-user").or(key::global().relaxed(3));
    let rule = Rule::new("plan", FixedWindow::calendar(2, Calendar::Month)).key(of_key);
    let rule = rule.spread(false);
    let layer = RateLimitLayer::builder().clock(clock.clone()).rule(rule).build().expect("a layer");
    for (headers, limit) in [(&[][..], 6), (&[("x-user", "a")][..], 2)] {
        for _ in 0..limit {
            assert_eq!(status(&layer, headers).0, 200);
        }
        assert_eq!(status(&layer, headers), (429, Some(86_400)));
    }
    clock.advance(DAY);
    assert_eq!(status(&layer, &[]).0, 200);
}

#[test]
fn wn_11_the_calendar_goes_on_as_far_as_any_clock() {
    let zeros = [
        Duration::ZERO,
        Duration::from_nanos(u64::MAX),
        DAY * 146_097 - NANO,
        DAY * 146_097,
        Duration::from_secs(u64::MAX / 2),
        Duration::MAX,
    ];
    for calendar in [Calendar::Day, Calendar::IsoWeek, Calendar::Month] {
        for zero in zeros {
            for built in [0, 1 << 40, u64::MAX - 1] {
                let clock = ManualClock::with_utc(zero);
                clock.set(Nanos::new(built));
                let limiter = FixedWindow::calendar(5, calendar).limiter().clock(clock.clone());
                let limiter = limiter.build().expect("every clock has a calendar");
                for now in [built, 0, 1 << 55, 1 << 63, u64::MAX, 0] {
                    clock.set(Nanos::new(now));
                    let decision = limiter.try_acquire_many(5);
                    let wait = decision.retry_after().unwrap_or(NANO);
                    assert!(decision.is_allowed() || !wait.is_zero(), "{calendar:?} {zero:?}");
                }
            }
        }
        let error = FixedWindow::calendar(1 << 60, calendar).limiter().build().unwrap_err();
        assert_eq!(error.field(), "permits", "{calendar:?}");
        let error = FixedWindow::calendar(0, calendar).limiter().build().unwrap_err();
        assert_eq!(error.field(), "permits", "{calendar:?}");
    }
}
