//! A limit per key, without HTTP: keys uniformly at random, all known, all allowed.

use std::{hint::black_box, net::IpAddr};

use tower_sluice::{Key, KeyedLimiter, TokenBucket};

use crate::{
    harness::{Measured, Pace, Rows},
    report::Report,
    rivals,
    yardstick::{Gcra, HashOnly, Names, Random, address},
};

const RIVAL: &str = "governor, DashMap";
const OURS: &str = "**ours**";

/// (keys, how they are called, the target by string and by address).
const SIZES: [(u64, &str, f64, f64); 3] =
    [(1_000, "1 k", 0.85, 0.60), (100_000, "100 k", 0.35, 0.45), (1_000_000, "1 M", 0.50, 0.45)];

pub fn run(pace: Pace, report: &mut Report) {
    report.heading("A limit per key, without HTTP");
    report.note(
        "Keys at random among so many known ones, none of them idle, each written to a buffer first, as \
         if just parsed: that is in every row.",
    );
    for (kind, by_name) in [("36-byte string", true), ("IP address", false)] {
        let columns = [kind, "keys", "ns", "of governor", "target"];
        report.table(&columns);
        for (keys, size, name_target, address_target) in SIZES {
            let measured = if by_name { names(keys, pace) } else { addresses(keys, pace) };
            let at_most = if by_name { name_target } else { address_target };
            for name in measured.names() {
                let ratio = measured.ratio(name, RIVAL);
                let target = if name == OURS {
                    report.target(&format!("{size} keys by {kind}"), ratio.median, at_most, "")
                } else {
                    String::new()
                };
                let ns = measured.ns(name).text(1);
                report.row(&[name.into(), size.into(), ns, ratio.text(2), target]);
            }
        }
        report.end_table();
    }
}

/// A permit a second, and a burst that no run spends: no key is idle again once it was seen.
pub fn ours(keys: u64) -> KeyedLimiter {
    TokenBucket::per_second(1)
        .burst(500_000_000)
        .keyed_limiter()
        .max_keys(keys)
        .build()
        .expect("the quota is right")
}

fn names(keys: u64, pace: Pace) -> Measured {
    let clock = quanta::Clock::new();
    let (step, table, rival, ours) =
        (Gcra::generous(), HashOnly::new(), rivals::by_string(), ours(keys));
    let mut name = Names::new();
    for number in 0..keys {
        let key = name.of(number);
        assert!(rival.check_key(key).is_ok());
        assert!(ours.try_acquire(key).is_allowed());
        table.allows(key.as_bytes(), clock.raw());
    }
    assert_eq!(rival.len() as u64, keys);
    let mut rows = Rows::default();
    rows.add(
        "yardstick: key written, GCRA step, no table",
        each_name(keys, |key| {
            black_box(key);
            step.allows(clock.raw())
        }),
    );
    rows.add(
        "yardstick: hashes only, 64 mutex shards",
        each_name(keys, |key| table.allows(key.as_bytes(), clock.raw())),
    );
    rows.add(RIVAL, each_name(keys, |key| rival.check_key(key).is_ok()));
    rows.add(OURS, each_name(keys, |key| ours.try_acquire(Key::from(key)).is_allowed()));
    rows.measure(pace)
}

fn each_name<'a>(keys: u64, mut allows: impl FnMut(&String) -> bool + 'a) -> impl FnMut(u64) + 'a {
    let (mut random, mut name) = (Random::below(keys), Names::new());
    move |n| {
        for _ in 0..n {
            assert!(black_box(allows(name.of(random.next()))));
        }
    }
}

fn addresses(keys: u64, pace: Pace) -> Measured {
    let clock = quanta::Clock::new();
    let (step, table, rival, ours) =
        (Gcra::generous(), HashOnly::new(), rivals::by_address(), ours(keys));
    for number in 0..keys {
        let key = address(number);
        assert!(rival.check_key(&key).is_ok());
        assert!(ours.try_acquire(key).is_allowed());
        allows_address(&table, key, clock.raw());
    }
    assert_eq!(rival.len() as u64, keys);
    let mut rows = Rows::default();
    rows.add(
        "yardstick: key written, GCRA step, no table",
        each_address(keys, |key| {
            black_box(key);
            step.allows(clock.raw())
        }),
    );
    rows.add(
        "yardstick: hashes only, 64 mutex shards",
        each_address(keys, |key| allows_address(&table, *key, clock.raw())),
    );
    rows.add(RIVAL, each_address(keys, |key| rival.check_key(key).is_ok()));
    rows.add(OURS, each_address(keys, |key| ours.try_acquire(*key).is_allowed()));
    rows.measure(pace)
}

fn each_address<'a>(
    keys: u64,
    mut allows: impl FnMut(&IpAddr) -> bool + 'a,
) -> impl FnMut(u64) + 'a {
    let mut random = Random::below(keys);
    move |n| {
        for _ in 0..n {
            let key = black_box(address(random.next()));
            assert!(black_box(allows(&key)));
        }
    }
}

#[inline]
fn allows_address(table: &HashOnly, key: IpAddr, now: u64) -> bool {
    match key {
        IpAddr::V4(v4) => table.allows(&v4.octets(), now),
        IpAddr::V6(v6) => table.allows(&v6.octets(), now),
    }
}
