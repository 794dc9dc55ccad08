//! [`KeyWatch`]: does a rule's key tell callers apart?

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Lacking, Once};
use crate::{clock::Nanos, event::Fault};

/// How long one key alone must be seen, and how often, before that is a fault.
const ONE_KEY_NANOS: u64 = 60_000_000_000;
const ONE_KEY_REQUESTS: u64 = 100;

/// Watches the keys of one rule until a second key is seen; then costs one relaxed load a request.
///
/// All its accesses are relaxed: a race makes a warning come a request later.
#[derive(Debug, Default)]
pub(crate) struct KeyWatch {
    settled: AtomicBool,
    first: AtomicU64,
    since: AtomicU64,
    requests: AtomicU64,
    missing: Lacking,
    overflowed: Once,
    /// What stands for a missing key where such requests count together.
    shared: Option<u64>,
}

impl KeyWatch {
    /// Watches a key; `shared` is the hash that requests without one count under.
    pub(crate) fn new(shared: Option<u64>) -> Self {
        Self { shared, ..Self::default() }
    }

    /// Watches nothing: all requests have one key by design.
    pub(crate) fn settled() -> Self {
        Self { settled: AtomicBool::new(true), ..Self::default() }
    }

    #[inline]
    pub(crate) fn saw(&self, hash: u64, now: Nanos) -> Option<Fault> {
        if self.settled.load(Ordering::Relaxed) { None } else { self.look(hash, now) }
    }

    #[cold]
    fn look(&self, hash: u64, now: Nanos) -> Option<Fault> {
        if self.shared == Some(hash) {
            return self.missed();
        }
        self.missing.found();
        self.requests.fetch_add(1, Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        if first == 0 {
            self.since.store(now.get(), Ordering::Relaxed);
            self.first.store(hash, Ordering::Relaxed);
            return None;
        }
        let elapsed = now.get().saturating_sub(self.since.load(Ordering::Relaxed));
        if first != hash {
            self.settled.store(true, Ordering::Relaxed);
        } else if elapsed >= ONE_KEY_NANOS
            && self.requests.load(Ordering::Relaxed) >= ONE_KEY_REQUESTS
        {
            self.settled.store(true, Ordering::Relaxed);
            return Some(Fault::OneKey);
        }
        None
    }

    /// The rule's keys have had to share overflow buckets.
    pub(crate) fn overflowed(&self) -> Option<Fault> {
        self.overflowed.is_news().then_some(Fault::Keys)
    }

    /// A request had no key: no fault once one was seen.
    pub(crate) fn missed(&self) -> Option<Fault> {
        self.missing.is_fault().then_some(Fault::NoKey)
    }
}
