//! Charges, undos and resets of what slides: all under locks, so what is asked here is what lies between two of them.

use loom::{sync::Arc, thread};
use tower_sluice::{
    SlidingLog, SlidingWindow,
    models::{Got, Sliding},
};

use crate::{SECOND, check};

const KEY: u64 = 1 << 8;
const OTHER: u64 = 2 << 8;

fn made(got: Got) -> u64 {
    u64::from(got.is_made())
}

#[test]
fn hits_of_what_slides_are_all_counted_and_never_too_many() {
    for max_keys in [None, Some(4)] {
        check(move || {
            let log = Arc::new(Sliding::new(SlidingLog::per_hour(2), max_keys));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let log = Arc::clone(&log);
                    thread::spawn(move || made(log.charge(KEY, SECOND, 1)))
                })
                .collect();
            let own = made(log.charge(KEY, SECOND, 1));
            let all: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(all + own, 2);
            assert_eq!(log.remaining(KEY, SECOND), 0);
            assert_eq!(log.tracked(SECOND), u64::from(max_keys.is_some()));
        });
    }
}

#[test]
fn undo_of_what_slides_gives_back_its_own_permit_or_none() {
    check(|| {
        let window = Arc::new(Sliding::new(SlidingWindow::per_hour(2), None));
        let other = {
            let window = Arc::clone(&window);
            thread::spawn(move || {
                made(window.charge(KEY, SECOND, 1)) + made(window.charge(KEY, SECOND, 1))
            })
        };
        let Got::Made(undo) = window.charge(KEY, SECOND, 1) else {
            assert_eq!(other.join().unwrap(), 2);
            return;
        };
        let back = u64::from(window.undo(undo));
        let kept = other.join().unwrap();
        assert_eq!(window.remaining(KEY, SECOND), 2 - kept - (1 - back));
    });
}

/// What is undone after a reset is nobody else's charge, though it was made of the same nothing.
#[test]
fn undo_after_a_reset_takes_nothing_from_whoever_came_then() {
    check(|| {
        let log = Arc::new(Sliding::new(SlidingLog::per_hour(1), Some(4)));
        let Got::Made(undo) = log.charge(KEY, SECOND, 1) else { panic!("there was room") };
        let other = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                assert!(log.reset(KEY, SECOND) || log.remaining(KEY, SECOND) == 1);
                made(log.charge(KEY, SECOND, 1))
            })
        };
        let _ = log.undo(undo);
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(log.remaining(KEY, SECOND), 0);
        assert_eq!(made(log.charge(KEY, SECOND, 1)), 0);
    });
}

/// Two new keys and room for one: one of them shares an overflow record, and neither gets two quotas.
#[test]
fn new_keys_never_exceed_the_bound_nor_their_quota() {
    check(|| {
        let log = Arc::new(Sliding::new(SlidingLog::per_hour(1), Some(1)));
        let other = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                made(log.charge(OTHER, SECOND, 1)) + made(log.charge(OTHER, SECOND, 1))
            })
        };
        let own = made(log.charge(KEY, SECOND, 1)) + made(log.charge(KEY, SECOND, 1));
        let others = other.join().unwrap();
        assert!(own <= 1 && others <= 1 && own + others >= 1);
        assert_eq!(log.tracked(SECOND), 1);
    });
}
