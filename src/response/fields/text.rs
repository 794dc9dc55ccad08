//! The values of the fields: structured fields (RFC 9651) by hand, since there are four shapes of them and all
//! they hold is names without anything to escape, and whole numbers.

use std::fmt::{self, Write};

use http::HeaderValue;

use super::{Policy, Unit};
use crate::response::bytes_of;

/// The largest integer of a structured field.
const MOST: u64 = 999_999_999_999_999;

/// A number as a structured field can have it.
pub(super) fn integer(number: u64) -> u64 {
    number.min(MOST)
}

/// `"min";q=100;w=60, "day";q=5000;w=86400`
pub(super) fn policies(all: &[Policy]) -> Option<HeaderValue> {
    value(list(all, |text, Policy { name, limit, unit }| {
        write!(text, r#""{name}";q={}"#, integer(*limit))?;
        match unit {
            Unit::Requests(Some(window)) => write!(text, ";w={}", integer(*window)),
            Unit::Requests(None) => Ok(()),
            Unit::InFlight => text.write_str(r#";qu="concurrent-requests""#),
        }
    }))
}

/// `100;w=60, 5000;w=86400`: no two with the same limit, and none without a window.
pub(super) fn earlier_policies(all: &[Policy]) -> Option<HeaderValue> {
    let mut limits = Vec::new();
    let told: Vec<_> = all
        .iter()
        .filter_map(|policy| match policy.unit {
            Unit::Requests(Some(window)) if !limits.contains(&policy.limit) => {
                limits.push(policy.limit);
                Some((policy.limit, window))
            }
            _ => None,
        })
        .collect();
    value(list(&told, |text, (limit, window)| {
        write!(text, "{};w={}", integer(*limit), integer(*window))
    }))
}

/// `"min";r=0;t=18`
pub(super) fn standing(
    policy: &Policy,
    remaining: u64,
    reset_secs: Option<u64>,
) -> Option<HeaderValue> {
    let (remaining, reset_secs) = (integer(remaining), reset_secs.map(integer));
    // As long as it will be, so that it is the one allocation of an answer's fields.
    let reset = reset_secs.map_or(0, |seconds| ";t=".len() + digits(seconds));
    let length = r#""";r="#.len() + policy.name.len() + digits(remaining) + reset;
    let mut text = String::with_capacity(length);
    write!(text, r#""{}";r={remaining}"#, policy.name).ok()?;
    if let Some(seconds) = reset_secs {
        write!(text, ";t={seconds}").ok()?;
    }
    value(text)
}

/// `limit=100, remaining=0, reset=18`
pub(super) fn dictionary((limit, remaining, reset): (u64, u64, u64)) -> Option<HeaderValue> {
    let mut text = String::with_capacity(80);
    let (limit, remaining, reset) = (integer(limit), integer(remaining), integer(reset));
    write!(text, "limit={limit}, remaining={remaining}, reset={reset}").ok()?;
    value(text)
}

/// How many digits a number has.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn list<T>(all: &[T], mut member: impl FnMut(&mut String, &T) -> fmt::Result) -> String {
    let mut text = String::new();
    for (index, item) in all.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        // Writing to a string does not fail.
        let _ = member(&mut text, item);
    }
    text
}

/// None where there is nothing to say: an empty list is not sent.
fn value(text: String) -> Option<HeaderValue> {
    if text.is_empty() {
        return None;
    }
    HeaderValue::from_maybe_shared(bytes_of(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, limit: u64, unit: Unit) -> Policy {
        Policy { name: name.into(), limit, unit }
    }

    #[test]
    fn values_are_those_of_the_drafts() {
        let all = [
            policy("min", 100, Unit::Requests(Some(60))),
            policy("day", 5_000, Unit::Requests(Some(86_400))),
            policy("pace", 1, Unit::Requests(None)),
            policy("uploads", 8, Unit::InFlight),
            policy("hour", 100, Unit::Requests(Some(3_600))),
        ];
        assert_eq!(
            policies(&all).unwrap(),
            concat!(
                r#""min";q=100;w=60, "day";q=5000;w=86400, "pace";q=1, "#,
                r#""uploads";q=8;qu="concurrent-requests", "hour";q=100;w=3600"#
            )
        );
        assert_eq!(earlier_policies(&all).unwrap(), "100;w=60, 5000;w=86400");
        assert_eq!(standing(&all[0], 0, Some(18)).unwrap(), r#""min";r=0;t=18"#);
        assert_eq!(standing(&all[3], 3, None).unwrap(), r#""uploads";r=3"#);
        assert_eq!(dictionary((100, 0, 18)).unwrap(), "limit=100, remaining=0, reset=18");
        assert_eq!((policies(&[]), earlier_policies(&all[2..4])), (None, None));
    }

    #[test]
    fn a_standing_is_as_long_as_was_foreseen() {
        let policy = policy("api", 1, Unit::InFlight);
        for number in [0, 1, 9, 10, 99, 100, MOST] {
            for reset in [None, Some(number)] {
                let text = standing(&policy, number, reset).unwrap();
                let foreseen = 8 + digits(number) + reset.map_or(0, |reset| 3 + digits(reset));
                assert_eq!(text.len(), foreseen, "{text:?}");
            }
        }
    }

    #[test]
    fn numbers_are_cut_to_what_a_field_can_hold() {
        let huge = policy("huge", u64::MAX, Unit::Requests(Some(u64::MAX)));
        let most = "999999999999999";
        assert_eq!(
            policies(std::slice::from_ref(&huge)).unwrap(),
            format!(r#""huge";q={most};w={most}"#)
        );
        let text = standing(&huge, u64::MAX, Some(u64::MAX)).unwrap();
        assert_eq!(text, format!(r#""huge";r={most};t={most}"#));
    }
}
