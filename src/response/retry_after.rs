//! `Retry-After` in whole seconds (RFC 9110, section 10.2.3).

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;

/// A wait as whole seconds: rounded up, and never zero, which would invite a retry at once.
pub(crate) fn seconds(wait: Duration) -> u64 {
    let whole = wait.as_secs();
    let seconds = if wait.subsec_nanos() > 0 { whole.saturating_add(1) } else { whole };
    seconds.max(1)
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

/// Numbers up to 9,999 as text, four digits each: a header value without an allocation.
static DIGITS: [u8; 40_000] = {
    let mut digits = [b'0'; 40_000];
    let mut n = 0;
    while n < 10_000 {
        digits[4 * n] = b'0' + (n / 1_000) as u8;
        digits[4 * n + 1] = b'0' + (n / 100 % 10) as u8;
        digits[4 * n + 2] = b'0' + (n / 10 % 10) as u8;
        digits[4 * n + 3] = b'0' + (n % 10) as u8;
        n += 1;
    }
    digits
};

/// The header value; allocates above 9,999.
pub(crate) fn value(seconds: u64) -> HeaderValue {
    let Ok(small @ 0..10_000) = usize::try_from(seconds) else { return seconds.into() };
    let width = match small {
        0..10 => 1,
        10..100 => 2,
        100..1_000 => 3,
        _ => 4,
    };
    let end = 4 * small + 4;
    let text = Bytes::from_static(&DIGITS).slice(end - width..end);
    // Digits are a valid value; were they not, the slow way would say the same.
    HeaderValue::from_maybe_shared(text).unwrap_or_else(|_| seconds.into())
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
    fn value_is_the_number() {
        for seconds in (0..10_050).chain([86_400, u64::MAX]) {
            assert_eq!(value(seconds).to_str().unwrap(), seconds.to_string());
        }
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
}
