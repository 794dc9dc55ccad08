//! Permits that are set aside while another backend is asked, beside charges and other holds: what is held is under
//! a lock, what is charged is an atomic word or a record under another.

use loom::{sync::Arc, thread};
use tower_sluice::{Algorithm, SlidingLog, models::Holding};

use crate::{SECOND, bucket, check};

/// One permit, in a word and in a record.
fn one_permit() -> [Algorithm; 2] {
    [bucket(1).into(), SlidingLog::per_hour(1).into()]
}

#[test]
fn a_permit_is_held_or_charged_and_never_both() {
    for algorithm in one_permit() {
        check(move || {
            let limit = Arc::new(Holding::new(algorithm));
            let other = {
                let limit = Arc::clone(&limit);
                thread::spawn(move || limit.charge(SECOND, 1))
            };
            let held = limit.hold(SECOND, 1);
            if let Some(held) = &held {
                limit.commit(held, SECOND);
            }
            assert!(other.join().unwrap() != held.is_some());
            assert_eq!(limit.remaining(SECOND), 0);
        });
    }
}

#[test]
fn of_two_holds_of_one_permit_one_is_made() {
    for algorithm in one_permit() {
        check(move || {
            let limit = Arc::new(Holding::new(algorithm));
            let other = {
                let limit = Arc::clone(&limit);
                thread::spawn(move || {
                    let held = limit.hold(SECOND, 1);
                    held.inspect(|held| limit.commit(held, SECOND)).is_some()
                })
            };
            let held = limit.hold(SECOND, 1);
            let own = held.inspect(|held| limit.commit(held, SECOND)).is_some();
            assert!(other.join().unwrap() != own);
            assert_eq!(limit.remaining(SECOND), 0);
        });
    }
}

#[test]
fn what_is_let_go_is_left_for_others() {
    for algorithm in one_permit() {
        check(move || {
            let limit = Arc::new(Holding::new(algorithm));
            let other = {
                let limit = Arc::clone(&limit);
                thread::spawn(move || limit.charge(SECOND, 1))
            };
            if let Some(held) = limit.hold(SECOND, 1) {
                limit.release(&held);
            }
            let charged = other.join().unwrap();
            assert_eq!(limit.remaining(SECOND), u64::from(!charged));
            assert!(limit.charge(SECOND, 1) != charged);
        });
    }
}
