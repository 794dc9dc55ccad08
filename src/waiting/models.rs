//! Waiting rooms as their loom models use them: one rate without keys, and who waits for it.
//!
//! Exists under `--cfg sluice_loom` only, and is no part of the crate's interface.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::Limit;
use crate::{
    Algorithm, ManualClock,
    backend::{
        LimiterSpec,
        local::{Counter, Seat},
    },
    clock::{Clock, Time},
};

/// One rate.
#[derive(Clone, Debug)]
pub struct Rate {
    limit: Arc<Limit>,
    clock: ManualClock,
}

/// Who waits for it, once polled.
#[allow(missing_debug_implementations, reason = "a boxed future has none")]
pub struct InRoom(Pin<Box<dyn Future<Output = bool> + Send>>);

const SEAT: Seat = Seat { quota: 0, hash: 0 };

impl Rate {
    /// A rate, by this clock.
    #[must_use]
    pub fn new(algorithm: impl Into<Algorithm>, clock: ManualClock) -> Self {
        match Counter::new(&LimiterSpec::new("model", algorithm)) {
            Ok(counter) => Self { limit: Arc::new(Limit::new(counter)), clock },
            Err(error) => unreachable!("models count what can be counted: {error}"),
        }
    }

    /// Charges at once; says whether it was allowed.
    #[must_use]
    pub fn charge(&self) -> bool {
        self.limit.try_acquire(SEAT, self.clock.now(), 1).is_allowed()
    }

    /// Charges as soon as it is this one's turn.
    #[must_use]
    pub fn acquire(&self) -> InRoom {
        let (limit, time) = (Arc::clone(&self.limit), Time::of(self.clock.clone()));
        InRoom(Box::pin(async move {
            let longest = Duration::from_secs(3_600);
            let decision = limit.acquire(SEAT, 1, &time, longest).await;
            decision.is_ok_and(|decision| decision.is_allowed())
        }))
    }

    /// Forgets what was spent.
    pub fn reset(&self) {
        let _ = self.limit.reset(SEAT, self.clock.now());
    }

    /// Puts another quota in force.
    pub fn set_limit(&self, algorithm: impl Into<Algorithm>) {
        let quota = algorithm.into().quota();
        if let Err(error) = self.limit.set_limit(0, quota, self.clock.now()) {
            unreachable!("models set quotas that can be: {error}");
        }
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.limit.waiting()
    }
}

impl InRoom {
    /// Whether it has charged; false where `waker` is woken when to look again.
    ///
    /// # Panics
    ///
    /// If it gave up: an hour is long enough for all that models let wait.
    #[must_use]
    pub fn poll(&mut self, waker: &Waker) -> bool {
        match self.0.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(allowed) => {
                assert!(allowed, "refused after all");
                true
            }
            Poll::Pending => false,
        }
    }
}
