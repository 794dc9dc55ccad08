//! [`Calendar`]: windows as people name them: days, weeks and months, in UTC.
//!
//! The arithmetic of months is Howard Hinnant's, "chrono-compatible low-level date algorithms", in whole
//! numbers throughout: years begin in March, so that the day which a leap year adds is their last. It is the
//! Gregorian calendar, which comes round every 400 years. Leap seconds do not count, as nowhere in the time
//! that systems tell.

use std::time::Duration;

/// Which windows of the calendar, all in UTC; for [`FixedWindow::calendar`](super::FixedWindow::calendar).
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::Calendar;
///
/// assert_eq!(Calendar::IsoWeek.period(), Duration::from_secs(7 * 86_400));
/// assert_eq!(Calendar::Month.period(), Duration::from_secs(31 * 86_400));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Calendar {
    /// From 00:00 to 24:00 UTC.
    Day,
    /// From Monday, 00:00 UTC, for seven days (ISO 8601).
    IsoWeek,
    /// From the first of the month, 00:00 UTC, for 28 to 31 days.
    Month,
}

impl Calendar {
    /// How long such a window is at the most: a month, which has no one length, 31 days.
    ///
    /// It is the [`period`](crate::Quota::period) of the window's quota.
    #[must_use]
    pub const fn period(self) -> Duration {
        let days = match self {
            Self::Day => 1,
            Self::IsoWeek => 7,
            Self::Month => 31,
        };
        Duration::from_nanos(days * DAY)
    }

    /// How far `utc` lies within a window, or, where these differ in length, within the 400 years after which
    /// they come round; in nanoseconds.
    pub(super) fn phase(self, utc: Duration) -> u64 {
        let (ahead, round) = match self {
            Self::Day => (0, 1),
            // 1970 began on a Thursday.
            Self::IsoWeek => (3, 7),
            Self::Month => (0, DAYS_OF_400_YEARS),
        };
        // 400 years of nanoseconds fit into 64 bits.
        ((utc.as_nanos() + u128::from(ahead * DAY)) % u128::from(round * DAY)) as u64
    }
}

/// The month that lies `nanos` after the first instant of month zero, January 1970.
#[inline]
pub(super) fn month_at(nanos: u128) -> u64 {
    month_of((nanos / u128::from(DAY)) as u64)
}

/// The first instant of a month, in nanoseconds since that of January 1970.
#[inline]
pub(super) fn start_of(month: u64) -> u128 {
    // Above any that a clock comes to: there, 2^32 months are as far away as more.
    let month = month.min(u64::from(u32::MAX));
    u128::from(first_day_of(month)) * u128::from(DAY)
}

/// The month of a day; both are counted from the beginning of 1970.
fn month_of(day: u64) -> u64 {
    let day = day + DAYS_BEFORE_1970;
    let (rounds, day) = (day / DAYS_OF_400_YEARS, day % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    (rounds * 400 + year) * 12 + (5 * day_of_year + 2) / 153 - MONTHS_BEFORE_1970
}

/// The first day of a month; both are counted from the beginning of 1970.
fn first_day_of(month: u64) -> u64 {
    let month = month + MONTHS_BEFORE_1970;
    let (year, month) = (month / 12, month % 12);
    let days_of_years = 365 * year + year / 4 - year / 100 + year / 400;
    days_of_years + (153 * month + 2) / 5 - DAYS_BEFORE_1970
}

/// A day in nanoseconds.
const DAY: u64 = 86_400_000_000_000;

/// After as many days the Gregorian calendar comes round.
const DAYS_OF_400_YEARS: u64 = 146_097;

/// From 1 March of the year 0 to 1970.
const DAYS_BEFORE_1970: u64 = 719_468;

/// From March of the year 0 to 1970.
const MONTHS_BEFORE_1970: u64 = 1_969 * 12 + 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Days of a month, January being 0, by the rule as it is taught.
    fn days(year: u64, month: u64) -> u64 {
        let leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize]
    }

    #[test]
    fn months_are_those_of_a_slow_count_for_eleven_centuries() {
        let (mut first, mut months) = (0, 0);
        for year in 1970..3070 {
            for month in 0..12 {
                assert_eq!(first_day_of(months), first, "{year}-{month}");
                for day in first..first + days(year, month) {
                    assert_eq!(month_of(day), months, "day {day}: {year}-{month}");
                }
                first += days(year, month);
                months += 1;
            }
        }
        // A clock's whole range, from the last day of 400 years.
        let latest = u128::from(DAYS_OF_400_YEARS * DAY - 1) + u128::from(u64::MAX);
        assert!(month_at(latest) < months);
    }

    #[test]
    fn years_that_end_a_century_are_leap_years_every_fourth_time() {
        let month = |year: u64, month: u64| (year - 1970) * 12 + month - 1;
        let february = |year| first_day_of(month(year, 3)) - first_day_of(month(year, 2));
        // 1900 was as 2300 will be.
        let years = [2000, 2004, 2024, 2025, 2100, 2200, 2300, 2400, 2800, 2900];
        assert_eq!(years.map(february), [29, 29, 29, 28, 28, 28, 28, 29, 29, 28]);
        // Known days: 2000-01-01, 2000-03-01, 2038-01-19, 2100-03-01.
        assert_eq!(first_day_of(month(2000, 1)), 10_957);
        assert_eq!(first_day_of(month(2000, 3)), 11_017);
        assert_eq!(month_of(24_855), month(2038, 1));
        assert_eq!(first_day_of(month(2100, 3)), 47_541);
        assert_eq!(month_of(47_540), month(2100, 2));
    }

    #[test]
    fn edges_are_the_first_nanosecond() {
        for month in [1, 2, 361, 1_572, 11_000] {
            assert_eq!(month_at(start_of(month)), month);
            assert_eq!(month_at(start_of(month) - 1), month - 1);
        }
        assert_eq!((month_at(0), start_of(0)), (0, 0));
        assert_eq!(start_of(u64::MAX), start_of(u32::MAX.into()));
    }

    #[test]
    fn a_phase_is_the_same_a_round_later_and_never_overflows() {
        let round = Duration::from_nanos(DAYS_OF_400_YEARS * DAY);
        for calendar in [Calendar::Day, Calendar::IsoWeek, Calendar::Month] {
            for utc in [0, 1, 1_700_000_000_000_000_007, u64::MAX / 3].map(Duration::from_nanos) {
                let phase = calendar.phase(utc);
                assert_eq!(calendar.phase(utc + round * 20_000_000), phase, "{calendar:?}");
                let longest = if calendar == Calendar::Month { round } else { calendar.period() };
                assert!(u128::from(phase) < longest.as_nanos(), "{calendar:?}");
            }
            let _ = calendar.phase(Duration::MAX);
        }
        let day = Duration::from_nanos(DAY);
        // 1970-01-05 was a Monday.
        assert_eq!(Calendar::IsoWeek.phase(day * 4), 0);
        assert_eq!(Calendar::IsoWeek.phase(day * 4 - Duration::from_nanos(1)), 7 * DAY - 1);
    }
}
