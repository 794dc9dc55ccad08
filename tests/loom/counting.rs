//! Charges, undos and changes of one word, and of a table of keys.
//!
//! Keys are hashes. In a table for up to four keys there are two lines of four slots: the home line of
//! an even key is the first, that of an odd key the second, and inserts of the two take different locks.
//! What is asserted in all: a charge that was made is spent, once, and nobody gets more than his quota.

use loom::{sync::Arc, thread};
use tower_sluice::{
    FixedWindow, TokenBucket,
    models::{Got, Keys, Word},
};

use crate::{SECOND, bucket, check};

fn made(got: Got) -> u64 {
    u64::from(got.is_made())
}

// ---------------------------------------------------------------------------------------------
// One word.

#[test]
fn hits_of_one_word_are_all_counted_and_never_too_many() {
    check(|| {
        let word = Arc::new(Word::new(bucket(2)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let word = Arc::clone(&word);
                thread::spawn(move || made(word.charge(SECOND, 1)))
            })
            .collect();
        let own = made(word.charge(SECOND, 1));
        let all: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>() + own;
        assert_eq!(all, 2);
        assert_eq!(word.remaining(SECOND), 0);
    });
}

/// A denial that is remembered is one of the word that stands: whoever asks after a reset has what it gave back.
#[test]
fn what_was_denied_before_a_reset_is_not_denied_after_it() {
    check(|| {
        let word = Arc::new(Word::new(bucket(1)));
        assert!(word.admits(SECOND));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let word = Arc::clone(&word);
                thread::spawn(move || u64::from(word.admits(SECOND)))
            })
            .collect();
        let known = word.reset(SECOND);
        let own = u64::from(word.admits(SECOND));
        let others: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(known, "nobody had anything to take before the reset");
        assert_eq!(own + others, 1, "the permit that came back, once");
        assert!(!word.admits(SECOND) && !word.admits(SECOND));
        assert!(word.admits(2 * SECOND), "and the next when it is due");
    });
}

#[test]
fn undo_of_a_word_gives_back_its_own_permit_or_none() {
    check(|| {
        let word = Arc::new(Word::new(bucket(2)));
        let other = {
            let word = Arc::clone(&word);
            thread::spawn(move || made(word.charge(SECOND, 1)) + made(word.charge(SECOND, 1)))
        };
        let Got::Made(undo) = word.charge(SECOND, 1) else {
            // The other took both.
            assert_eq!(other.join().unwrap(), 2);
            return;
        };
        let back = u64::from(word.undo(undo, SECOND));
        let kept = other.join().unwrap();
        assert_eq!(word.remaining(SECOND), 2 - kept - (1 - back));
    });
}

#[test]
fn reset_of_a_word_forgets_what_came_before_and_nothing_after() {
    check(|| {
        let word = Arc::new(Word::new(bucket(2)));
        assert!(word.charge(SECOND, 1).is_made());
        let other = {
            let word = Arc::clone(&word);
            thread::spawn(move || made(word.charge(SECOND, 1)))
        };
        assert!(word.reset(SECOND));
        assert_eq!(other.join().unwrap(), 1);
        let left = word.remaining(SECOND);
        assert!(left == 2 || left == 1, "{left}");
    });
}

#[test]
fn a_word_keeps_what_is_spent_while_its_quota_is_replaced() {
    check(|| {
        let word = Arc::new(Word::new(bucket(2)));
        assert!(word.charge(SECOND, 1).is_made());
        let other = {
            let word = Arc::clone(&word);
            thread::spawn(move || {
                let got = word.charge(SECOND, 1);
                // Under either quota.
                assert!(got.is_made());
                let Got::Made(undo) = got else { return 0 };
                u64::from(!word.undo(undo, SECOND))
            })
        };
        word.replace(TokenBucket::per_second(5).burst(3), SECOND);
        let spent = 1 + other.join().unwrap();
        assert_eq!(word.remaining(SECOND), 3 - spent);
    });
}

// ---------------------------------------------------------------------------------------------
// Keys.

#[test]
fn two_claims_of_one_key_take_one_slot_and_lose_no_charge() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(3), 4));
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(2, SECOND, 1)))
        };
        let own = made(keys.charge(2, SECOND, 1));
        assert_eq!(own + other.join().unwrap(), 2);
        assert_eq!(keys.remaining(2, SECOND), 1);
        assert_eq!(keys.tracked(SECOND), 1);
    });
}

#[test]
fn claims_of_three_keys_with_room_for_two_leave_one_outside() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(1), 2));
        let threads: Vec<_> = [3, 4]
            .map(|key| {
                let keys = Arc::clone(&keys);
                thread::spawn(move || keys.charge(key, SECOND, 1))
            })
            .into_iter()
            .collect();
        let own = keys.charge(2, SECOND, 1);
        let mut all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        all.push(own);
        assert_eq!(all.iter().filter(|got| got.is_made()).count(), 2, "{all:?}");
        assert_eq!(keys.tracked(SECOND), 2);
    });
}

/// A full table of four, all of it live but one slot, which is in the first line and idle: key 2. The
/// second line has no slot that was never used, so an odd key looks on into the first.
fn one_idle_slot() -> Keys {
    let keys = Keys::new(bucket(100), 4);
    for key in [3, 5, 7] {
        assert!(keys.charge(key, 0, 100).is_made());
    }
    assert!(keys.charge(9, 0, 1).is_made());
    // Key 9 is idle by now and makes room; its slot in the second line is free, and may not be used.
    assert!(keys.charge(2, 2 * SECOND, 1).is_made());
    keys
}

#[test]
fn of_two_keys_that_claim_one_idle_slot_one_gets_it() {
    check(|| {
        let now = 4 * SECOND;
        let keys = Arc::new(one_idle_slot());
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || keys.charge(11, now, 60))
        };
        let own = keys.charge(4, now, 60);
        let other = other.join().unwrap();
        assert_eq!(made(own) + made(other), 1, "{own:?} {other:?}");
        assert_eq!(keys.remaining(4, now), 100 - 60 * made(own));
        assert_eq!(keys.remaining(11, now), 100 - 60 * made(other));
        assert_eq!(keys.tracked(now), 4);
    });
}

#[test]
fn a_key_that_is_hit_while_its_idle_slot_is_claimed_loses_no_charge() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(1), 1));
        assert!(keys.charge(2, 0, 1).is_made());
        // Idle by now, and hit by its owner while another key wants its slot.
        let now = 2 * SECOND;
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(4, now, 1)) + made(keys.charge(4, now, 1)))
        };
        let own = made(keys.charge(2, now, 1)) + made(keys.charge(2, now, 1));
        let other = other.join().unwrap();
        assert_eq!(own + other, 1, "one slot, one permit");
        assert_eq!(keys.remaining(2, now), 1 - own);
        assert_eq!(keys.remaining(4, now), 1 - other);
    });
}

/// Two keys of different home lines may want the same slot: an even key whose home line is full goes on to
/// that of the odd keys. Whoever looks for a slot must not take one that was filled while it looked.
#[test]
fn a_slot_that_is_filled_while_another_looks_for_one_keeps_its_key() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(2), 8));
        for key in 1..=4 {
            assert!(keys.charge(2 * key, 5 * SECOND, 1).is_made());
        }
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(101, 5 * SECOND, 1)))
        };
        let own = made(keys.charge(100, 5 * SECOND, 1));
        assert_eq!((own, other.join().unwrap()), (1, 1));
        for key in [2, 4, 6, 8, 100, 101] {
            assert_eq!(keys.remaining(key, 5 * SECOND), 1, "{key} was evicted");
        }
    });
}

#[test]
fn a_key_that_is_hit_while_its_idle_slot_is_freed_loses_no_charge() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(1), 1));
        assert!(keys.charge(2, 0, 1).is_made());
        // An odd key finds its home line never used, and may take none of it before it has freed an
        // idle slot elsewhere.
        let now = 2 * SECOND;
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(3, now, 1)) + made(keys.charge(3, now, 1)))
        };
        let own = made(keys.charge(2, now, 1)) + made(keys.charge(2, now, 1));
        let other = other.join().unwrap();
        assert_eq!(own + other, 1, "one slot, one permit");
        assert_eq!(keys.remaining(2, now), 1 - own);
        assert_eq!(keys.remaining(3, now), 1 - other);
        assert_eq!(keys.tracked(now), 1);
    });
}

#[test]
fn inserts_while_slots_are_freed_stay_within_the_bound() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(1), 2));
        assert!(keys.charge(2, 0, 1).is_made());
        assert!(keys.charge(4, 0, 1).is_made());
        let now = 2 * SECOND;
        // Both are idle. Two odd keys free them and come in, and a third does not.
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(3, now, 1)))
        };
        let own = made(keys.charge(5, now, 1));
        assert_eq!(own + other.join().unwrap(), 2);
        assert_eq!(made(keys.charge(7, now, 1)), 0);
        assert_eq!((keys.remaining(3, now), keys.remaining(5, now)), (0, 0));
        assert_eq!(keys.tracked(now), 2);
    });
}

#[test]
fn hits_of_one_key_are_all_counted_and_never_too_many() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(3), 4));
        assert!(keys.charge(2, SECOND, 1).is_made());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let keys = Arc::clone(&keys);
                thread::spawn(move || made(keys.charge(2, SECOND, 1)))
            })
            .collect();
        let own = made(keys.charge(2, SECOND, 1));
        let all: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>() + own;
        assert_eq!(all, 2);
        assert_eq!(keys.remaining(2, SECOND), 0);
    });
}

#[test]
fn undo_of_a_key_gives_back_its_own_permit_or_none() {
    // A key's first charge, one on an idle slot, and one on a live slot.
    for (before, now) in [(0, SECOND), (1, 3 * SECOND), (1, SECOND)] {
        check(move || {
            let keys = Arc::new(Keys::new(bucket(3), 4));
            if before > 0 {
                assert!(keys.charge(2, SECOND, before).is_made());
            }
            let start = keys.remaining(2, now);
            let other = {
                let keys = Arc::clone(&keys);
                thread::spawn(move || made(keys.charge(2, now, 1)))
            };
            let Got::Made(undo) = keys.charge(2, now, 1) else { panic!("there is enough") };
            let back = u64::from(keys.undo(undo, now));
            let kept = other.join().unwrap();
            assert_eq!(kept, 1);
            assert_eq!(keys.remaining(2, now), start - kept - (1 - back));
        });
    }
}

/// The slot of a key whose charge is undone can be claimed by another, who may write the very word that
/// was undone; whoever read it before that must not charge the other.
#[test]
fn a_word_that_was_undone_does_not_come_back_under_another_key() {
    let window = |aligned: bool| {
        let window = FixedWindow::per_second(2);
        if aligned { window.aligned() } else { window }
    };
    for aligned in [false, true] {
        check(move || {
            let keys = Arc::new(Keys::new(window(aligned), 1));
            assert!(keys.charge(2, 0, 1).is_made());
            let now = 2 * SECOND;
            let other = {
                let keys = Arc::clone(&keys);
                thread::spawn(move || made(keys.charge(2, now, 1)))
            };
            let undone = match keys.charge(2, now, 1) {
                Got::Made(undo) => u64::from(keys.undo(undo, now)),
                _ => 1,
            };
            let newcomer = made(keys.charge(4, now + 1, 1));
            let kept = other.join().unwrap();
            assert_eq!(keys.remaining(4, now + 1), 2 - newcomer);
            assert!(kept + newcomer <= 1, "one slot for one of them");
            if newcomer == 0 {
                assert_eq!(keys.remaining(2, now + 1), 2 - kept - (1 - undone));
            }
        });
    }
}

#[test]
fn reset_of_a_key_forgets_what_came_before_and_nothing_after() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(2), 4));
        assert!(keys.charge(2, SECOND, 1).is_made());
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(2, SECOND, 1)))
        };
        assert!(keys.reset(2, SECOND));
        assert_eq!(other.join().unwrap(), 1);
        let left = keys.remaining(2, SECOND);
        assert!(left == 2 || left == 1, "{left}");
    });
}

#[test]
fn a_hold_that_becomes_a_charge_is_counted_beside_a_hit() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(3), 4));
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || assert!(keys.force(2, SECOND, 1)))
        };
        assert!(keys.charge(2, SECOND, 1).is_made());
        other.join().unwrap();
        assert_eq!(keys.remaining(2, SECOND), 1);
        assert_eq!(keys.tracked(SECOND), 1);
    });
}

#[test]
fn a_key_keeps_what_is_spent_while_its_quota_is_replaced() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(2), 4));
        assert!(keys.charge(2, SECOND, 1).is_made());
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(2, SECOND, 1)))
        };
        keys.replace(TokenBucket::per_second(5).burst(3), SECOND);
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(keys.remaining(2, SECOND), 1);
    });
}

#[test]
fn a_key_that_comes_while_the_quota_is_replaced_is_counted_under_one_of_them() {
    check(|| {
        let keys = Arc::new(Keys::new(bucket(2), 4));
        let other = {
            let keys = Arc::clone(&keys);
            thread::spawn(move || made(keys.charge(2, SECOND, 2)))
        };
        // The charge fits the old quota only.
        keys.replace(TokenBucket::per_second(1).burst(1), SECOND);
        let made = other.join().unwrap();
        assert_eq!(keys.remaining(2, SECOND), 1 - made);
        assert_eq!(keys.tracked(SECOND), made);
    });
}
