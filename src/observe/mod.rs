//! Looking on: set-up faults, found once and told to observers and to `tracing`.

mod key_watch;
mod once;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

pub(crate) use self::{
    key_watch::KeyWatch,
    once::{Lacking, Once},
};
use crate::event::{Admitted, Fault, Finished, Left, Observer, Rejected, SetupFault};
#[cfg(feature = "redis")]
use crate::{BackendError, event::StoreState};

/// How many requests are looked at closely, for faults that show at once.
const YOUTH: u32 = 1_000;

/// Who is told, and what was told already.
pub(crate) struct Watch {
    observers: Box<[Arc<dyn Observer>]>,
    silenced: u32,
    /// Faults of the whole layer that were raised.
    done: AtomicU32,
    seen: AtomicU32,
}

impl Watch {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>, silenced: &[Fault]) -> Self {
        let silenced = silenced.iter().fold(0, |bits, fault| bits | fault.bit());
        Self {
            observers: observers.into(),
            silenced,
            done: AtomicU32::new(0),
            seen: AtomicU32::new(0),
        }
    }

    /// Whether somebody wants to hear of requests.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Whether the next request is one of the first thousand that are not exempt.
    #[inline]
    pub(crate) fn is_young(&self) -> bool {
        // Relaxed: a few requests more or less are looked at.
        self.seen.load(Ordering::Relaxed) < YOUTH
    }

    /// Counts one of them.
    pub(crate) fn grow(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells of a fault of the whole layer, the first time; `rule` is the first it concerns.
    #[cold]
    pub(crate) fn raise_once(&self, fault: Fault, rule: Option<&Arc<str>>) {
        // Relaxed: whose bit it was first is all that matters.
        if self.done.fetch_or(fault.bit(), Ordering::Relaxed) & fault.bit() == 0 {
            self.raise(fault, rule);
        }
    }

    /// Tells of a fault, unless it is silenced; the caller tells it once.
    #[cold]
    pub(crate) fn raise(&self, fault: Fault, rule: Option<&Arc<str>>) {
        if self.silenced & fault.bit() != 0 {
            return;
        }
        let fault = warn(fault, rule);
        for observer in &self.observers {
            observer.fault(&fault);
        }
    }

    /// Whether nothing more will be told of this fault of the layer.
    pub(crate) fn is_done(&self, fault: Fault) -> bool {
        (self.silenced | self.done.load(Ordering::Relaxed)) & fault.bit() != 0
    }

    pub(crate) fn admitted(&self, admitted: &Admitted<'_>) {
        for observer in &self.observers {
            observer.admitted(admitted);
        }
    }

    pub(crate) fn rejected(&self, rejected: &Rejected<'_>) {
        for observer in &self.observers {
            observer.rejected(rejected);
        }
    }

    pub(crate) fn left(&self, limit: &str, waited: Duration) {
        for observer in &self.observers {
            observer.left(&Left { limit, waited });
        }
    }

    pub(crate) fn finished(&self, finished: &Finished) {
        for observer in &self.observers {
            observer.finished(finished);
        }
    }
}

/// Tells `tracing` of a fault; also where there is no layer, and so no observer.
#[cold]
pub(crate) fn warn(fault: Fault, rule: Option<&Arc<str>>) -> SetupFault {
    let fault = SetupFault { fault, rule: rule.cloned() };
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "tower_sluice",
        code = fault.fault().code(),
        rule = fault.rule(),
        "{}",
        fault.fault().advice(),
    );
    fault
}

/// Tells `tracing` that a store went away, or came back.
#[cfg(feature = "redis")]
#[cold]
pub(crate) fn store_changed(state: StoreState, error: Option<&BackendError>) {
    #[cfg(feature = "tracing")]
    match (state, error.and_then(std::error::Error::source)) {
        (StoreState::Away(kind), cause) => tracing::warn!(
            target: "tower_sluice",
            kind = kind.as_str(),
            cause = cause.map(tracing::field::display),
            "the store of shared limits is away; each rule decides by its mode until it is back",
        ),
        _ => tracing::info!(target: "tower_sluice", "the store of shared limits is there"),
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (state, error);
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("observers", &self.observers.len()).finish_non_exhaustive()
    }
}
