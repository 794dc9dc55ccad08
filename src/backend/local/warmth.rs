//! [`Warmth`]: when a limiter's ramp started, and when it starts anew.
//!
//! A limiter goes cold as a whole: its ramp starts anew with the first request that comes after it has admitted
//! nothing for long enough. By then every key is idle, and nothing has to be converted.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    Algorithm,
    algorithm::{Compiled, Warming},
    clock::Nanos,
};

/// The ramp of a limiter, which all its quotas are on.
#[derive(Debug)]
pub(super) struct Warmth {
    first: Warming,
    /// After how long without an admission it starts anew.
    idle_after: Option<Nanos>,
    started: AtomicU64,
    /// When something was admitted last, and before that.
    admitted: AtomicU64,
    before: AtomicU64,
}

// All relaxed: nothing is read through these, and the time until a limiter goes cold is longer than a store takes
// to be seen.
impl Warmth {
    pub(super) fn of(compiled: &Compiled, algorithm: &Algorithm) -> Option<Arc<Self>> {
        let first = compiled.warming()?;
        Some(Arc::new(Self {
            first,
            idle_after: algorithm.warm_up().and_then(|warm_up| warm_up.idle_after()),
            started: AtomicU64::new(first.started().get()),
            admitted: AtomicU64::new(0),
            before: AtomicU64::new(0),
        }))
    }

    /// The ramp as a request at `now` meets it.
    pub(super) fn warming(&self, now: Nanos) -> Warming {
        let started = self.started.load(Ordering::Relaxed);
        self.first.starting(if self.is_cold(started, now) { now } else { Nanos::new(started) })
    }

    fn is_cold(&self, started: u64, now: Nanos) -> bool {
        self.idle_after.is_some_and(|idle| {
            let active = started.max(self.admitted.load(Ordering::Relaxed));
            now.since(Nanos::new(active)) >= idle
        })
    }

    /// Whether it has to be told of requests and admissions.
    pub(super) fn goes_cold(&self) -> bool {
        self.idle_after.is_some()
    }

    /// A request comes.
    pub(super) fn meet(&self, now: Nanos) {
        if self.is_cold(self.started.load(Ordering::Relaxed), now) {
            self.started.fetch_max(now.get(), Ordering::Relaxed);
        }
    }

    /// A request was admitted.
    pub(super) fn admit(&self, now: Nanos) {
        if self.goes_cold() {
            let before = self.admitted.fetch_max(now.get(), Ordering::Relaxed);
            if before < now.get() {
                self.before.store(before, Ordering::Relaxed);
            }
        }
    }

    /// A request that was admitted at `now` was refused then: as if it had not been, unless another was since.
    pub(super) fn take_back(&self, now: Nanos) {
        let before = self.before.load(Ordering::Relaxed);
        // Where it fails somebody else was admitted.
        let _ =
            self.admitted.compare_exchange(now.get(), before, Ordering::Relaxed, Ordering::Relaxed);
    }
}
