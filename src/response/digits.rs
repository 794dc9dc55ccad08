//! Whole numbers as header values.

use bytes::Bytes;
use http::HeaderValue;

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

/// A number as a header value; allocates above 9,999.
pub(super) fn value(number: u64) -> HeaderValue {
    let Ok(small @ 0..10_000) = usize::try_from(number) else { return number.into() };
    let width = match small {
        0..10 => 1,
        10..100 => 2,
        100..1_000 => 3,
        _ => 4,
    };
    let end = 4 * small + 4;
    let text = Bytes::from_static(&DIGITS).slice(end - width..end);
    // Digits are a valid value; were they not, the slow way would say the same.
    HeaderValue::from_maybe_shared(text).unwrap_or_else(|_| number.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_the_number() {
        for number in (0..10_050).chain([86_400, u64::MAX]) {
            assert_eq!(value(number).to_str().unwrap(), number.to_string());
        }
    }
}
