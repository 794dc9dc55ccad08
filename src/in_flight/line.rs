//! [`Line`]: who waits for a permit, in the order they came.

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Waker,
};

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
    Place,
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

    /// Whether the permit has come; if not, `waker` is woken when it does.
    pub(super) fn poll(&mut self, place: u64, waker: &Waker) -> bool {
        if self.granted.remove(&place) {
            return true;
        }
        if let Some(known) = self.waiting.get_mut(&place)
            && !known.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            *known = Some(waker.clone());
        }
        false
    }

    pub(super) fn leave(&mut self, place: u64) -> Option<Left> {
        if self.waiting.remove(&place).is_some() {
            return Some(Left::Place);
        }
        self.granted.remove(&place).then_some(Left::Permit)
    }
}
