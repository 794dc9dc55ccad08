//! Permits that are set aside while another backend is asked, beside charges and other holds: what is held is under
//! a lock, what is charged is an atomic word or a record under another.

use loom::{sync::Arc, thread};
use tower_sluice::{Algorithm, SlidingLog, models::Holding};

use crate::{SECOND, bucket, check};

/// One permit, in a word and in a record.
fn one_permit() -> [Algorithm; 2] {
    [bucket(1).into(), SlidingLog::per_hour(1).into()]
}

/// A limit, and another thread that takes of it.
fn beside(
    algorithm: Algorithm,
    take: fn(&Holding) -> bool,
) -> (Arc<Holding>, thread::JoinHandle<bool>) {
    let limit = Arc::new(Holding::new(algorithm));
    let theirs = Arc::clone(&limit);
    (limit, thread::spawn(move || take(&theirs)))
}

fn hold_and_commit(limit: &Holding) -> bool {
    let held = limit.hold(SECOND, 1);
    held.inspect(|held| limit.commit(held, SECOND)).is_some()
}

/// Of one permit, which this and another thread take, either gets it.
fn one_gets_it(take: fn(&Holding) -> bool) {
    for algorithm in one_permit() {
        check(move || {
            let (limit, other) = beside(algorithm, take);
            let own = hold_and_commit(&limit);
            assert!(other.join().unwrap() != own);
            assert_eq!(limit.remaining(SECOND), 0);
        });
    }
}

#[test]
fn a_permit_is_held_or_charged_and_never_both() {
    one_gets_it(|limit| limit.charge(SECOND, 1));
}

#[test]
fn of_two_holds_of_one_permit_one_is_made() {
    one_gets_it(hold_and_commit);
}

#[test]
fn what_is_let_go_is_left_for_others() {
    for algorithm in one_permit() {
        check(move || {
            let (limit, other) = beside(algorithm, |limit| limit.charge(SECOND, 1));
            if let Some(held) = limit.hold(SECOND, 1) {
                limit.release(&held);
            }
            let charged = other.join().unwrap();
            assert_eq!(limit.remaining(SECOND), u64::from(!charged));
            assert!(limit.charge(SECOND, 1) != charged);
        });
    }
}
