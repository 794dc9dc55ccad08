//! What slides gives its memory back while ordinary traffic goes on. Alone, since it counts all allocations.

use std::{alloc::System, time::Duration};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower_sluice::{ManualClock, SlidingWindow};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn live(region: &Region<'_, System>) -> i64 {
    let stats = region.change();
    stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
}

#[test]
fn memory_of_a_flood_of_keys_comes_back_within_three_windows_of_ordinary_traffic() {
    let clock = ManualClock::new();
    let region = Region::new(GLOBAL);
    let window = SlidingWindow::per_minute(100);
    let limiter = window.keyed_limiter().clock(clock.clone()).build().unwrap();
    // A thousand users, each once a second.
    let second = |limiter: &tower_sluice::KeyedLimiter| {
        for user in 0..1_000_u64 {
            assert!(limiter.try_acquire(user).is_allowed());
        }
        clock.advance(Duration::from_secs(1));
    };
    (0..60).for_each(|_| second(&limiter));
    let ordinary = live(&region);
    for key in 0..100_000_u64 {
        assert!(limiter.try_acquire(key + 1_000_000).is_allowed());
    }
    let flood = live(&region);
    (0..180).for_each(|_| second(&limiter));
    let after = live(&region);
    assert!(
        after < ordinary + (flood - ordinary) / 4,
        "ordinary {ordinary}, flood {flood}, after {after}"
    );
}
