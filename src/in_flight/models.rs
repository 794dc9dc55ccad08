//! In-flight limits as their loom models use them: the lines of those who wait, with and without keys.
//!
//! Exists under `--cfg sluice_loom` only, and is no part of the crate's interface.

use std::{
    future::Future,
    num::NonZeroU64,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{Joined, Permit, Slots};
use crate::{
    ManualClock,
    clock::{Nanos, Time},
    waiting::{Depth, Timer},
};

/// A limit, with one key or none. Its clock stands still: nobody's longest wait ends.
#[derive(Clone, Debug)]
pub struct Line {
    slots: Arc<Slots>,
    key: Option<NonZeroU64>,
    time: Time,
}

/// Who waits for a permit.
#[allow(missing_debug_implementations, reason = "a boxed future has none")]
pub struct InLine(Pin<Box<dyn Future<Output = Option<Permit>> + Send>>);

impl Line {
    /// A limit, counted for one key where `keyed`.
    #[must_use]
    pub fn new(limit: u32, keyed: bool) -> Self {
        let slots = Arc::new(Slots::new(Arc::from("model"), limit));
        let time = Time::of(ManualClock::new());
        Self { slots, key: keyed.then_some(NonZeroU64::MIN), time }
    }

    /// Takes a permit, unless all are taken or somebody waits.
    #[must_use]
    pub fn try_take(&self) -> Option<Permit> {
        self.slots.try_take(self.key)
    }

    /// Takes a permit, or a place in the line.
    ///
    /// # Errors
    ///
    /// Where there is none: the place.
    pub fn join(&self) -> Result<Permit, InLine> {
        match self.slots.join(self.key, Depth::UNBOUNDED) {
            Ok(Joined::Permit(permit)) => Ok(permit),
            Ok(Joined::Waiting(waiting)) => {
                let mut timer = Timer::new(self.time.clone());
                Err(InLine(Box::pin(async move {
                    waiting.permit(Nanos::new(u64::MAX), &mut timer).await.ok().flatten()
                })))
            }
            Err(_) => unreachable!("the line is as long as it needs to be"),
        }
    }

    /// Puts another limit in force.
    pub fn set_limit(&self, limit: u32) {
        if let Err(error) = self.slots.set_limit(limit) {
            unreachable!("models set limits that can be: {error}");
        }
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.slots.limit()
    }

    /// How many permits are out.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.slots.count()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.slots.waiting()
    }
}

impl InLine {
    /// The permit, if it has come; else `waker` is woken when it does.
    #[must_use]
    pub fn poll(&mut self, waker: &Waker) -> Option<Permit> {
        match self.0.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }
}
