//! Waiting rooms whose first departs while others come, leave, and change the quota.
//!
//! What is asserted in all: the order is kept, nobody overtakes, and whoever is the first knows when he is due.

use std::time::Duration;

use loom::thread;
use tower_sluice::{
    ManualClock, TokenBucket,
    clock::Nanos,
    models::{InRoom, Rate},
};

use crate::{SECOND, Woken, bucket, check};

/// One permit a second, the first of them spent.
fn spent() -> (ManualClock, Rate) {
    let clock = ManualClock::new();
    let rate = Rate::new(bucket(1), clock.clone());
    assert!(rate.charge());
    (clock, rate)
}

/// So many who wait, in this order, and whom they wake.
fn wait<const N: usize>(rate: &Rate) -> [(InRoom, std::sync::Arc<Woken>, std::task::Waker); N] {
    std::array::from_fn(|_| {
        let (mut waiter, (woken, waker)) = (rate.acquire(), Woken::new());
        assert!(!waiter.poll(&waker));
        (waiter, woken, waker)
    })
}

fn at(clock: &ManualClock, seconds: u64) {
    clock.set(Nanos::new(seconds * SECOND));
}

#[test]
fn the_third_is_first_when_the_first_departs_and_the_second_leaves() {
    check(|| {
        let (clock, rate) = spent();
        let [(mut first, _, waker), (second, ..), (mut third, woken, third_waker)] = wait(&rate);
        at(&clock, 1);
        let departs = thread::spawn(move || assert!(first.poll(&waker)));
        let leaves = thread::spawn(move || drop(second));
        assert!(!rate.charge(), "overtook");
        departs.join().unwrap();
        leaves.join().unwrap();
        assert_eq!(rate.waiting(), 1);
        assert!(woken.times() > 0, "the first, and asleep");
        assert!(!third.poll(&third_waker), "before his turn");
        let before = woken.times();
        at(&clock, 2);
        assert!(woken.times() > before);
        assert!(!rate.charge(), "overtook");
        assert!(third.poll(&third_waker));
        assert_eq!(rate.waiting(), 0);
        at(&clock, 3);
        assert!(rate.charge());
    });
}

#[test]
fn one_who_looks_while_those_ahead_go_misses_nothing() {
    check(|| {
        let (clock, rate) = spent();
        let [(first, ..), (second, ..), (mut third, woken, waker)] = wait(&rate);
        let leave = [first, second].map(|waiter| thread::spawn(move || drop(waiter)));
        assert!(!third.poll(&waker), "before his turn");
        for thread in leave {
            thread.join().unwrap();
        }
        // He is the first, and sleeps until he is due or has been woken to.
        let before = woken.times();
        at(&clock, 1);
        assert!(woken.times() > before || before > 0, "due, and asleep");
        assert!(third.poll(&waker));
    });
}

#[test]
fn a_newcomer_does_not_overtake_the_only_one_who_waits() {
    check(|| {
        let (clock, rate) = spent();
        let [(mut first, _, waker)] = wait(&rate);
        at(&clock, 1);
        let newcomer = {
            let rate = rate.clone();
            thread::spawn(move || assert!(!rate.charge(), "overtook"))
        };
        let mut behind = rate.acquire();
        let (woken, behind_waker) = Woken::new();
        let joins = thread::spawn(move || {
            assert!(!behind.poll(&behind_waker), "overtook");
            (behind, behind_waker)
        });
        assert!(first.poll(&waker));
        newcomer.join().unwrap();
        let (mut behind, waker) = joins.join().unwrap();
        // As the second he is woken when the first departs; as the first he sleeps until he is due.
        assert_eq!(rate.waiting(), 1);
        at(&clock, 2);
        assert!(woken.times() > 0, "due, and asleep");
        assert!(behind.poll(&waker));
        assert_eq!(rate.waiting(), 0);
    });
}

#[test]
fn of_two_who_join_one_waits_for_the_other() {
    check(|| {
        let (clock, rate) = spent();
        let other = {
            let rate = rate.clone();
            thread::spawn(move || wait::<1>(&rate))
        };
        let own = wait::<1>(&rate);
        let mut both: Vec<_> = other.join().unwrap().into_iter().chain(own).collect();
        for second in [1, 2] {
            at(&clock, second);
            let charged = both
                .extract_if(.., |(waiter, woken, waker)| woken.times() > 0 && waiter.poll(waker));
            assert_eq!(charged.count(), 1, "at {second} s");
        }
    });
}

#[test]
fn who_joins_while_the_key_is_reset_does_not_sleep_on() {
    check(|| {
        let (_clock, rate) = spent();
        let resets = {
            let rate = rate.clone();
            thread::spawn(move || rate.reset())
        };
        let (mut waiter, (woken, waker)) = (rate.acquire(), Woken::new());
        let charged = waiter.poll(&waker);
        resets.join().unwrap();
        if !charged {
            assert!(woken.times() > 0, "due, and asleep");
            assert!(waiter.poll(&waker));
        }
        assert_eq!(rate.waiting(), 0);
        assert!(!rate.charge());
    });
}

#[test]
fn who_waits_while_the_quota_changes_goes_by_the_new_one() {
    check(|| {
        let (clock, rate) = spent();
        let changes = {
            let rate = rate.clone();
            thread::spawn(move || rate.set_limit(TokenBucket::per_second(10).burst(1)))
        };
        let [(mut waiter, woken, waker)] = wait(&rate);
        changes.join().unwrap();
        if woken.times() > 0 {
            assert!(!waiter.poll(&waker), "before his turn");
        }
        let before = woken.times();
        clock.advance(Duration::from_millis(100));
        assert!(woken.times() > before, "due, and asleep");
        assert!(waiter.poll(&waker));
        assert_eq!(rate.waiting(), 0);
    });
}
