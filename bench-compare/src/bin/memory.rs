//! Fills one table with keys and prints what that took: `memory CONTENDER KEYS`. A process of its
//! own for each, so that what the kernel has lent is this table's. Called by `bench-compare`.

use std::{alloc::System, fs, time::Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[path = "../harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "../keyed.rs"]
#[allow(dead_code)]
mod keyed;
#[path = "../report.rs"]
#[allow(dead_code)]
mod report;
#[path = "../rivals.rs"]
#[allow(dead_code)]
mod rivals;
#[path = "../yardstick.rs"]
#[allow(dead_code)]
mod yardstick;

use yardstick::{HashOnly, Names, address};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let contender = arguments.next().expect("memory CONTENDER KEYS");
    let keys: u64 = arguments.next().and_then(|keys| keys.parse().ok()).expect("a number of keys");
    let clock = quanta::Clock::new();
    let mut names = Names::new();
    match contender.as_str() {
        "ours-string" => {
            fill(
                keys,
                || keyed::ours(keys),
                |limiter, number| limiter.try_acquire(names.of(number)).is_allowed(),
            );
        }
        "ours-address" => {
            fill(
                keys,
                || keyed::ours(keys),
                |limiter, number| limiter.try_acquire(address(number)).is_allowed(),
            );
        }
        "governor-string" => {
            fill(keys, rivals::by_string, |limiter, number| {
                limiter.check_key(names.of(number)).is_ok()
            });
        }
        "governor-address" => {
            fill(keys, rivals::by_address, |limiter, number| {
                limiter.check_key(&address(number)).is_ok()
            });
        }
        "hash-only" => {
            fill(keys, HashOnly::new, |table, number| {
                table.allows(names.of(number).as_bytes(), clock.raw())
            });
        }
        other => panic!("no contender {other:?}"),
    }
}

fn fill<T>(keys: u64, make: impl FnOnce() -> T, mut insert: impl FnMut(&T, u64) -> bool) {
    // In place before the measurement begins; written to, so that it is counted before.
    let mut took = vec![u32::MAX; keys as usize];
    let live = Region::new(ALLOCATOR);
    let resident_before = resident();
    let table = make();
    let start = Instant::now();
    let mut last = 0;
    for number in 0..keys {
        assert!(insert(&table, number));
        let now = start.elapsed().as_nanos() as u64;
        took[number as usize] = u32::try_from(now - last).unwrap_or(u32::MAX);
        last = now;
    }
    let resident = resident() - resident_before;
    let change = live.change();
    let live = change.bytes_allocated as i64 + change.bytes_reallocated as i64
        - change.bytes_deallocated as i64;
    took.sort_unstable();
    let percentile = took[(keys - 1 - keys / 10_000) as usize];
    let worst = took[keys as usize - 1];
    println!("{live} {resident} {percentile} {worst} {last}");
    drop(table);
}

/// Bytes in memory.
fn resident() -> i64 {
    let status = fs::read_to_string("/proc/self/smaps_rollup").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("Rss:")).expect("a line `Rss:`");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<i64>().ok()).expect("KiB") * 1024
}
