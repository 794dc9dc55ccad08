//! [`Permit`]: one in flight, until it is dropped.

use std::{fmt, num::NonZeroU64, sync::Arc};

use super::Slots;
use crate::{clock::Nanos, event::Outcome};

/// One in flight: given back when it is dropped, whatever happens.
///
/// Layers hold it to the end of the response body. Without HTTP it is got from
/// [`InFlight::try_acquire`](crate::InFlight::try_acquire) and
/// [`acquire`](crate::InFlight::acquire), and kept as long as the work takes:
///
/// ```
/// use tower_sluice::{InFlight, event::Outcome};
///
/// let uploads = InFlight::new("uploads", 2);
/// let permit = uploads.try_acquire().expect("nothing is in flight");
/// assert_eq!(uploads.in_flight(), 1);
/// // Observers are told how it ended; a permit that is only dropped was given up.
/// permit.finish(Outcome::Completed(201));
/// assert_eq!(uploads.in_flight(), 0);
/// ```
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    slots: Arc<Slots>,
    key: Option<NonZeroU64>,
    /// `UNTOLD` where nobody is to be told how it ends.
    started: Nanos,
}

/// Nobody asked when it was taken, or it has been told.
const UNTOLD: Nanos = Nanos::new(u64::MAX);

impl Permit {
    #[inline]
    pub(super) fn new(slots: Arc<Slots>, key: Option<NonZeroU64>) -> Self {
        let started = if slots.is_observed() { slots.time().now() } else { UNTOLD };
        Self { slots, key, started }
    }

    /// Gives the permit back and says how the work ended. A permit that is only dropped was
    /// [given up](Outcome::Dropped).
    pub fn finish(mut self, outcome: Outcome) {
        let started = std::mem::replace(&mut self.started, UNTOLD);
        if started == UNTOLD {
            return;
        }
        let slots = Arc::clone(&self.slots);
        drop(self);
        slots.tell(started, outcome);
    }

    /// Whether somebody wants to know how it ends.
    pub(crate) fn wants_outcome(&self) -> bool {
        self.started != UNTOLD
    }

    /// The name of the limit.
    #[must_use]
    pub fn name(&self) -> &str {
        self.slots.name()
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        self.slots.give_back(self.key);
        if self.started != UNTOLD {
            self.slots.tell(self.started, Outcome::Dropped);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("of", &self.slots.name()).finish_non_exhaustive()
    }
}
