//! [`Gate`]: how many are in flight under one limit without keys, and who waits for a permit.
//!
//! One word has the count, the limit, and whether anybody waits. As long as nobody does, taking a permit is
//! one compare-and-swap and giving it back one subtraction; who finds the mark set goes by the line, under its
//! lock. The mark is set and cleared under that lock alone, and a newcomer who sees it does not take: that is
//! why nobody overtakes. Who gives back and finds the mark hands what is free to the first in line.

use std::task::Waker;

use super::{
    Full,
    line::{Left, Line},
};
use crate::{
    sync::{AtomicU64, Mutex, Ordering, lock},
    waiting::{Depth, wake},
};

/// All changes of the word are read-modify-writes. So whoever acquires it sees what *all* have released before,
/// also past the relaxed changes between: of the mark, and of the limit.
#[derive(Debug)]
pub(super) struct Gate {
    /// Bits 0 to 31: in flight; 32 to 62: the limit; 63: whether somebody waits.
    word: AtomicU64,
    line: Mutex<Line>,
}

const WAITED: u64 = 1 << 63;
const LIMIT: u32 = 32;
const COUNT: u64 = (1 << LIMIT) - 1;

/// The most that may be in flight: what a limit has bits for.
pub(super) const MOST: u32 = (1 << 31) - 1;

fn count(word: u64) -> u64 {
    word & COUNT
}

fn limit(word: u64) -> u64 {
    (word & !WAITED) >> LIMIT
}

fn has_room(word: u64) -> bool {
    count(word) < limit(word)
}

impl Gate {
    pub(super) fn new(limit: u32) -> Self {
        let word = u64::from(limit.min(MOST)) << LIMIT;
        Self { word: AtomicU64::new(word), line: Mutex::new(Line::default()) }
    }

    pub(super) fn limit(&self) -> u64 {
        // Relaxed: a number for whoever asks; who acts on it does so by compare-and-swap or under a lock.
        limit(self.word.load(Ordering::Relaxed))
    }

    pub(super) fn count(&self) -> u64 {
        count(self.word.load(Ordering::Relaxed))
    }

    pub(super) fn waiting(&self) -> u64 {
        lock(&self.line).len()
    }

    /// Whether a newcomer could take a permit.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & WAITED == 0 && has_room(word)
    }

    /// Takes a permit, unless all are taken or somebody waits for one.
    #[inline]
    pub(super) fn try_take(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & WAITED == 0 && has_room(word) {
            // Acquire pairs with the releases in `give_back` and `leave`: who holds a permit sees what
            // its last holder did.
            match self.word.compare_exchange_weak(
                word,
                word + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
        false
    }

    /// Gives a permit back.
    #[inline]
    pub(super) fn give_back(&self) {
        // Release pairs with the acquires in `try_take`, `take_marked` and `fill`: of whoever takes it next. If
        // somebody waits it is free for a moment, but not to newcomers, who see the mark.
        if self.word.fetch_sub(1, Ordering::Release) & WAITED != 0 {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&self) {
        self.change(|_| ());
    }

    /// Makes a change with the line locked, gives those in it what is free then, and wakes them with the line
    /// unlocked again.
    fn change<T>(&self, change: impl FnOnce(&mut Line) -> T) -> T {
        let mut woken = Vec::new();
        let mut line = lock(&self.line);
        let changed = change(&mut line);
        self.fill(&mut line, &mut woken);
        drop(line);
        wake(woken);
        changed
    }

    /// Gives what is free to those in line, and clears the mark when nobody is left.
    fn fill(&self, line: &mut Line, woken: &mut Vec<Waker>) {
        while !line.is_empty() {
            // Relaxed: while the mark is set others only give back, so there is no less room than seen; who gave
            // back what is not seen yet comes by this lock next.
            let word = self.word.load(Ordering::Relaxed);
            if !has_room(word) {
                return;
            }
            // Acquire: as in `try_take`, for whoever is granted, who then comes by this lock.
            self.word.fetch_add(1, Ordering::Acquire);
            line.grant(woken);
        }
        // Relaxed: who sees it cleared goes by the word, which has all there is to know.
        self.word.fetch_and(!WAITED, Ordering::Relaxed);
    }

    /// Joins the line; `None` where a permit was free after all and is taken.
    pub(super) fn join(&self, depth: Depth) -> Result<Option<u64>, Full> {
        let mut line = lock(&self.line);
        // From here on whoever gives a permit back comes by the line: none can be missed. Who did before is in
        // the word that this reads. Relaxed: others take by a compare-and-swap, which fails on the mark whatever
        // they have seen, and the lock orders the rest.
        let word = self.word.fetch_or(WAITED, Ordering::Relaxed);
        if line.is_empty() && self.take_marked(word | WAITED) {
            return Ok(None);
        }
        if line.len() >= depth.whole {
            if line.is_empty() {
                self.word.fetch_and(!WAITED, Ordering::Relaxed);
            }
            return Err(Full);
        }
        Ok(Some(line.join()))
    }

    /// Takes a free permit and clears the mark; the line is locked and empty.
    fn take_marked(&self, word: u64) -> bool {
        if !has_room(word) {
            return false;
        }
        // While the mark is set nobody else takes: there is still room. Acquire: as in `try_take`.
        self.word.fetch_add(1, Ordering::Acquire);
        // Relaxed: as in `fill`.
        self.word.fetch_and(!WAITED, Ordering::Relaxed);
        true
    }

    pub(super) fn poll(&self, place: u64, waker: &Waker) -> bool {
        // The old waker is dropped with the line unlocked.
        let (granted, _old) = lock(&self.line).poll(place, waker);
        granted
    }

    /// Leaves the line; a permit that had come goes to the next.
    pub(super) fn leave(&self, place: u64) {
        // What is left is dropped with the line unlocked.
        let _left = self.change(|line| {
            let left = line.leave(place);
            if matches!(left, Some(Left::Permit)) {
                // Release: as in `give_back`; what its last holder did came to this one by the lock.
                self.word.fetch_sub(1, Ordering::Release);
            }
            left
        });
    }

    /// Puts another limit in force; those in line take what it frees.
    pub(super) fn set_limit(&self, limit: u32) {
        let limit = u64::from(limit.min(MOST)) << LIMIT;
        self.change(|_| {
            let mut word = self.word.load(Ordering::Relaxed);
            // Relaxed: only the number of permits changes, nothing is handed over by it.
            while let Err(seen) = self.word.compare_exchange_weak(
                word,
                (word & (WAITED | COUNT)) | limit,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                word = seen;
            }
        });
    }
}
