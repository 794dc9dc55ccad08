//! What is told once: [`Once`], that something has happened, and [`Lacking`], that nobody has what the set-up counts on.
//!
//! All accesses are relaxed: nothing is read through them, and a race makes a warning come a request later.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Something that may happen again and again, and is told the first time.
#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// It has happened; says whether that is news.
    #[cold]
    pub(crate) fn is_news(&self) -> bool {
        // Read first, so that a flood does not write one line from all processors. Who is the first is settled by the
        // swap.
        !(self.0.load(Ordering::Relaxed) || self.0.swap(true, Ordering::Relaxed))
    }
}

/// How many requests that lack it, and none that has it, are a fault.
const MANY: u64 = 1_000;

/// Counts the requests that lack something, until one has it or they are too many.
#[derive(Debug, Default)]
pub(crate) struct Lacking(AtomicU64);

impl Lacking {
    /// A request lacks it; says whether that is one too many, which it is once.
    pub(crate) fn is_fault(&self) -> bool {
        self.is_open() && self.0.fetch_add(1, Ordering::Relaxed) + 1 == MANY
    }

    /// A request has it: from here on others may lack it.
    #[inline]
    pub(crate) fn found(&self) {
        if self.is_open() {
            self.0.store(MANY, Ordering::Relaxed);
        }
    }

    /// Read before each write, so that not every request writes.
    #[inline]
    fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) < MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_news_once() {
        let once = Once::default();
        assert_eq!([(); 3].map(|()| once.is_news()), [true, false, false]);
    }

    #[test]
    fn of_many_that_lack_it_one_is_the_fault() {
        let lacking = Lacking::default();
        let faults: Vec<_> = (1..=3 * MANY).filter(|_| lacking.is_fault()).collect();
        assert_eq!(faults, [MANY]);
    }

    #[test]
    fn where_one_has_it_others_may_lack_it() {
        let lacking = Lacking::default();
        for before in [0, MANY - 1] {
            assert!((0..before).all(|_| !lacking.is_fault()));
            lacking.found();
            assert!((0..3 * MANY).all(|_| !lacking.is_fault()));
        }
    }
}
