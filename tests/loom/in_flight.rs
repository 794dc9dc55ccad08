//! Permits that are handed over while others come, leave, and change the limit.
//!
//! What is asserted in all: no more permits are out than the limit has, none is lost, and nobody sleeps while
//! there is one for him. Each model runs with one count for all, and with a count of one key.

use loom::thread;
use tower_sluice::{
    Permit,
    models::{InLine, Line},
};

use crate::{Woken, check};

fn check_both(model: impl Fn(bool) + Send + Sync + Copy + 'static) {
    check(move || model(false));
    check(move || model(true));
}

fn waits(line: &Line) -> InLine {
    let Err(waiter) = line.join() else { panic!("no permit is free") };
    waiter
}

/// The permit of one who has looked already: he found it, or has been woken for it.
fn woken_for(found: Option<Permit>, woken: &Woken, waiter: &mut InLine) -> Permit {
    found.unwrap_or_else(|| {
        assert!(woken.times() > 0, "asleep, and a permit is his");
        let (_, waker) = Woken::new();
        waiter.poll(&waker).expect("woken for a permit")
    })
}

/// All permits are back: none was lost, and none was made.
fn is_whole(line: &Line, limit: usize) {
    assert_eq!((line.in_flight(), line.waiting()), (0, 0));
    let all: Vec<_> = std::iter::from_fn(|| line.try_take()).collect();
    assert_eq!(all.len(), limit);
}

#[test]
fn a_permit_handed_to_one_who_leaves_goes_to_the_next() {
    check_both(|keyed| {
        let line = Line::new(1, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let (mut first, mut second) = (waits(&line), waits(&line));
        let ((_, waker), (woken, second_waker)) = (Woken::new(), Woken::new());
        assert!(first.poll(&waker).is_none() && second.poll(&second_waker).is_none());
        let gives = thread::spawn(move || drop(held));
        // Before the permit comes to him, or after.
        let leaves = thread::spawn(move || drop(first));
        let found = second.poll(&second_waker);
        gives.join().unwrap();
        leaves.join().unwrap();
        let permit = woken_for(found, &woken, &mut second);
        assert_eq!((line.in_flight(), line.waiting()), (1, 0));
        drop(permit);
        is_whole(&line, 1);
    });
}

#[test]
fn a_permit_given_back_goes_to_who_waits_and_not_to_a_newcomer() {
    check_both(|keyed| {
        let line = Line::new(1, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let mut waiter = waits(&line);
        let (woken, waker) = Woken::new();
        let gives = thread::spawn(move || drop(held));
        let newcomer = {
            let line = line.clone();
            thread::spawn(move || assert!(line.try_take().is_none(), "overtook"))
        };
        let found = waiter.poll(&waker);
        gives.join().unwrap();
        newcomer.join().unwrap();
        drop(woken_for(found, &woken, &mut waiter));
        is_whole(&line, 1);
    });
}

#[test]
fn a_permit_given_back_while_two_join_is_not_missed() {
    check_both(|keyed| {
        let line = Line::new(1, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let gives = thread::spawn(move || drop(held));
        let other = {
            let line = line.clone();
            thread::spawn(move || line.join())
        };
        let (own, other) = (line.join(), other.join().unwrap());
        gives.join().unwrap();
        assert_eq!((line.in_flight(), line.waiting()), (1, 1));
        let (woken, waker) = Woken::new();
        let last = match (own, other) {
            (Ok(permit), Err(mut waiter)) | (Err(mut waiter), Ok(permit)) => {
                assert!(waiter.poll(&waker).is_none());
                drop(permit);
                woken_for(None, &woken, &mut waiter)
            }
            // Both came while it was held, and it went to the first of them.
            (Err(mut own), Err(mut other)) => {
                let (permit, mut waiter) = match own.poll(&waker) {
                    Some(permit) => (permit, other),
                    None => (other.poll(&waker).expect("the permit is one of theirs"), own),
                };
                assert!(waiter.poll(&waker).is_none());
                drop(permit);
                woken_for(None, &woken, &mut waiter)
            }
            (Ok(_), Ok(_)) => panic!("two permits of one"),
        };
        drop(last);
        is_whole(&line, 1);
    });
}

#[test]
fn a_higher_limit_lets_one_go_who_joins_meanwhile() {
    check_both(|keyed| {
        let line = Line::new(1, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let raises = {
            let line = line.clone();
            thread::spawn(move || line.set_limit(2))
        };
        let (woken, waker) = Woken::new();
        let permit = match line.join() {
            Ok(permit) => {
                raises.join().unwrap();
                permit
            }
            Err(mut waiter) => {
                let found = waiter.poll(&waker);
                raises.join().unwrap();
                woken_for(found, &woken, &mut waiter)
            }
        };
        assert_eq!((line.in_flight(), line.waiting()), (2, 0));
        drop((held, permit));
        is_whole(&line, 2);
    });
}

#[test]
fn a_higher_limit_and_a_permit_given_back_serve_two_who_wait() {
    check_both(|keyed| {
        let line = Line::new(1, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let mut waiters = [waits(&line), waits(&line)];
        let (woken, waker) = Woken::new();
        for waiter in &mut waiters {
            assert!(waiter.poll(&waker).is_none());
        }
        let gives = thread::spawn(move || drop(held));
        let raises = {
            let line = line.clone();
            thread::spawn(move || line.set_limit(2))
        };
        assert!(line.try_take().is_none_or(|_| line.waiting() == 0), "overtook");
        gives.join().unwrap();
        raises.join().unwrap();
        assert_eq!(woken.times(), 2);
        let permits = waiters.map(|mut waiter| waiter.poll(&waker).expect("woken for a permit"));
        assert_eq!((line.in_flight(), line.waiting()), (2, 0));
        drop(permits);
        is_whole(&line, 2);
    });
}

#[test]
fn a_lower_limit_holds_from_when_it_is_set() {
    check_both(|keyed| {
        let line = Line::new(2, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let lowers = {
            let line = line.clone();
            thread::spawn(move || {
                line.set_limit(1);
                assert!(line.try_take().is_none(), "above the limit in force");
            })
        };
        // Under either limit.
        drop(line.try_take());
        lowers.join().unwrap();
        assert_eq!(line.in_flight(), 1);
        assert!(line.try_take().is_none());
        drop(held);
        is_whole(&line, 1);
    });
}

#[test]
fn a_lower_limit_takes_what_is_given_back_before_those_who_wait() {
    check_both(|keyed| {
        let line = Line::new(2, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let other = line.try_take().expect("one is in flight");
        let mut waiter = waits(&line);
        let (woken, waker) = Woken::new();
        let gives = thread::spawn(move || drop(other));
        let lowers = {
            let line = line.clone();
            thread::spawn(move || line.set_limit(1))
        };
        let found = waiter.poll(&waker);
        gives.join().unwrap();
        lowers.join().unwrap();
        // It was given back under the higher limit and handed over, or under the lower one and kept.
        let went = found.is_some() || line.waiting() == 0;
        assert_eq!(line.in_flight(), 1 + u64::from(went));
        drop(held);
        let permit = woken_for(found, &woken, &mut waiter);
        assert_eq!((line.in_flight(), line.waiting()), (1, 0));
        drop(permit);
        is_whole(&line, 1);
    });
}

#[test]
fn of_two_changes_of_the_limit_one_holds_for_all() {
    check_both(|keyed| {
        let line = Line::new(1, keyed);
        let held = line.try_take().expect("nothing is in flight");
        let mut waiter = waits(&line);
        let (woken, waker) = Woken::new();
        assert!(waiter.poll(&waker).is_none());
        let raises = {
            let line = line.clone();
            thread::spawn(move || line.set_limit(2))
        };
        line.set_limit(1);
        let then = line.in_flight();
        raises.join().unwrap();
        if line.limit() == 1 {
            assert_eq!(line.in_flight(), then, "a permit above the limit in force");
            drop(held);
        } else {
            assert_eq!(line.in_flight(), 2, "asleep, and there is room");
        }
        drop(woken_for(None, &woken, &mut waiter));
    });
}
