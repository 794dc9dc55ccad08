//! [`Line`]: who waits for a permit, in the order they came.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
};

use crate::waiting::renew;

/// Those who wait, and those who have been given a permit and have not taken it yet.
#[derive(Debug, Default)]
pub(super) struct Line {
    next: u64,
    /// Whom to wake, once the waiter has been polled.
    waiting: BTreeMap<u64, Option<Waker>>,
    granted: BTreeSet<u64>,
}

/// What somebody leaves behind who leaves.
pub(super) enum Left {
    /// A place, and his waker: to be dropped with no lock held, since that may run anything.
    Place {
        _waker: Option<Waker>,
    },
    Permit,
}

impl Line {
    pub(super) fn join(&mut self) -> u64 {
        let place = self.next;
        self.next += 1;
        self.waiting.insert(place, None);
        place
    }

    pub(super) fn len(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether nothing here is anybody's any more.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.granted.is_empty()
    }

    /// Gives the first in line a permit; false where nobody waits.
    pub(super) fn grant(&mut self, woken: &mut Vec<Waker>) -> bool {
        let Some((place, waker)) = self.waiting.pop_first() else { return false };
        self.granted.insert(place);
        woken.extend(waker);
        true
    }

    /// Whether the permit has come; if not, `waker` is woken when it does. Gives the waker it replaces.
    pub(super) fn poll(&mut self, place: u64, waker: &Waker) -> (bool, Option<Waker>) {
        if self.granted.remove(&place) {
            return (true, None);
        }
        (false, self.waiting.get_mut(&place).and_then(|known| renew(known, waker)))
    }

    pub(super) fn leave(&mut self, place: u64) -> Option<Left> {
        if let Some(waker) = self.waiting.remove(&place) {
            return Some(Left::Place { _waker: waker });
        }
        self.granted.remove(&place).then_some(Left::Permit)
    }
}
