//! Quotas as text, and keys from numbers.

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use tower_sluice::{Key, Quota};

use crate::{config, quotas::log_uniform};

/// Any period a text can name: up to 584 years, and often a whole number of units.
fn period() -> impl Strategy<Value = Duration> {
    let units = vec![1_u64, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000];
    let whole = (prop::sample::select(units), log_uniform(20))
        .prop_map(|(unit, count)| unit.saturating_mul(count));
    prop_oneof![whole, log_uniform(63)].prop_map(Duration::from_nanos)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_quota_is_read_as_it_was_written(
        permits in log_uniform(63),
        period in period(),
        burst in prop::option::of(prop_oneof![log_uniform(63), Just(0)]),
    ) {
        let quota = Quota::new(permits, period);
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        let text = quota.to_string();
        let read: Quota = text.parse().expect("what was written");
        prop_assert_eq!(read.permits(), permits, "{}", &text);
        prop_assert_eq!(read.period(), period, "{}", &text);
        prop_assert_eq!(read.max_burst(), burst.unwrap_or(permits), "{}", &text);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn keys_of_numbers_are_told_apart_as_the_numbers_are(
        a in any::<u128>(),
        b in any::<u128>(),
        shift in 0..128_u32,
    ) {
        // Often equal, or apart in a single bit.
        for (a, b) in [(a, b), (a, a), (a, a ^ (1 << shift)), (a >> shift, b >> shift)] {
            prop_assert_eq!(Key::from(a) == Key::from(b), a == b);
            prop_assert_eq!(Key::from(a as i128) == Key::from(b as i128), a == b);
            prop_assert_eq!(Key::from(a.to_le_bytes()) == Key::from(b.to_le_bytes()), a == b);
            prop_assert_eq!(Key::from(a as u64) == Key::from(b as u64), a as u64 == b as u64);
            prop_assert_eq!(Key::from(a as i64) == Key::from(b as i64), a as i64 == b as i64);
            prop_assert_eq!(Key::from(a as u32) == Key::from(b as u32), a as u32 == b as u32);
            prop_assert_eq!(Key::from(a as i32) == Key::from(b as i32), a as i32 == b as i32);
        }
        // Sixteen bytes are themselves; a number is its bytes, never empty, and never of another width.
        let bytes = Key::from(a.to_be_bytes());
        prop_assert_eq!(bytes.as_bytes(), a.to_be_bytes());
        prop_assert_eq!(&bytes, &Key::from(a));
        let mut widths = HashMap::new();
        for key in [Key::from(a as u32), Key::from(a as u64), Key::from(a)] {
            prop_assert!(!key.is_empty());
            prop_assert!(widths.insert(key.as_bytes().len(), ()).is_none());
            prop_assert_eq!(key.clone().into_owned(), key);
        }
    }
}
