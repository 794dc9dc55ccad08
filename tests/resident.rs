//! Memory is touched as keys come, not when a limiter is built.
//!
//! One test, since the memory is the whole process's.
#![cfg(target_os = "linux")]

use std::{fs, hint::black_box};

use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key};

const MIB: u64 = 1 << 20;

/// Bytes of this process that lie in memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib = line.trim().strip_suffix("kB").expect("its unit").trim();
    kib.parse::<u64>().expect("a number") * 1_024
}

/// What `make` makes, and by how much memory grew meanwhile.
fn grown<T>(make: impl FnOnce() -> T) -> (T, u64) {
    let before = resident();
    let made = make();
    (made, resident().saturating_sub(before))
}

#[test]
fn room_for_four_million_keys_takes_no_memory_before_they_come() {
    let (_touched, grew) = grown(|| black_box(vec![1_u8; 64 * MIB as usize]));
    assert!(grew > 32 * MIB, "memory that is written shows: {grew}");

    let clock = ManualClock::new();
    let keyed = || TokenBucket::per_hour(5).keyed_limiter().max_keys(4_000_000);
    let (limiter, grew) = grown(|| keyed().clock(clock.clone()).build().expect("a limiter"));
    assert!(grew < 8 * MIB, "building took {grew} bytes");
    let ((), grew) = grown(|| {
        for user in 0..100_u64 {
            assert!(limiter.try_acquire(user).is_allowed());
        }
    });
    assert!(grew < 8 * MIB, "a hundred keys took {grew} bytes");
    assert_eq!(limiter.peek(7_u64, 0).remaining(), 4);

    let rule = || Rule::new("r", TokenBucket::per_hour(5)).max_keys(4_000_000);
    let (layer, grew) = grown(|| {
        RateLimitLayer::builder().rule(rule().key(key::client_ip())).build().expect("a layer")
    });
    assert!(grew < 8 * MIB, "building took {grew} bytes");
    assert_eq!(layer.handle().rules().count(), 1);
}
