//! The calendar counted day by day, as it is taught.

use std::time::Duration;

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// How many days a month has; January is 1.
pub(crate) fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(400) => 29,
        2 if year.is_multiple_of(4) && !year.is_multiple_of(100) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
