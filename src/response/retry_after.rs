//! `Retry-After` in whole seconds (RFC 9110, section 10.2.3).

use std::time::Duration;

use http::{HeaderMap, header};

/// A wait as whole seconds: rounded up, and never zero, which would invite a retry at once.
pub(crate) fn seconds(wait: Duration) -> u64 {
    rounded_up(wait).max(1)
}

/// In whole seconds, rounded up.
pub(super) fn rounded_up(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// What an answer says already, where that is whole seconds and no date.
pub(crate) fn read(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

/// The most that [`spread`] adds to `seconds`: a fifth, at least one.
pub(crate) fn spread_bound(seconds: u64) -> u64 {
    (seconds / 5).max(1)
}

/// Adds 0 to a fifth (at least one second), picked by `random`, so that callers who heard the same
/// answer do not all come back in the same second.
pub(crate) fn spread(seconds: u64, random: u64) -> u64 {
    seconds.saturating_add(random % (spread_bound(seconds) + 1))
}

/// The same in milliseconds, for clients that wait exactly so long.
pub(crate) fn spread_finely(wait: Duration, random: u64) -> Duration {
    let most = spread_bound(seconds(wait)).saturating_mul(1_000);
    wait.saturating_add(Duration::from_millis(random % most.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_and_never_says_zero() {
        for (millis, expected) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_200, 60)] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected, "{millis} ms");
        }
        assert_eq!(seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn spread_only_adds_and_stays_in_bounds() {
        for seconds in [1, 4, 5, 10, 60, 3_600] {
            for random in 0..2_000 {
                let spread = spread(seconds, random);
                assert!((seconds..=seconds + (seconds / 5).max(1)).contains(&spread));
            }
        }
        assert_eq!(spread(u64::MAX, 7), u64::MAX);
    }

    #[test]
    fn fine_spread_only_adds_and_stays_in_bounds() {
        for millis in [1, 900, 5_000, 60_000] {
            let wait = Duration::from_millis(millis);
            let most = wait + Duration::from_secs((seconds(wait) / 5).max(1));
            let drawn: Vec<_> = (0..20_000).map(|random| spread_finely(wait, random)).collect();
            assert!(drawn.iter().all(|drawn| (wait..=most).contains(drawn)));
            assert!(drawn.contains(&wait) && drawn.contains(&most));
        }
        assert_eq!(spread_finely(Duration::MAX, 7), Duration::MAX);
    }
}
