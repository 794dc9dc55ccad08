//! [`Teller`]: tells of changes of the store, and of what is wrong with its set-up, to observers and to `tracing`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{
    BackendError, Observer,
    event::{Fault, StoreChanged, StoreState},
    observe,
    sync::{Mutex, lock},
};

#[derive(Default)]
pub(super) struct Teller {
    observers: Mutex<Vec<Arc<dyn Observer>>>,
    /// Faults that are not to be told, or were.
    done: AtomicU32,
}

impl Teller {
    pub(super) fn add(&self, observer: Arc<dyn Observer>) {
        lock(&self.observers).push(observer);
    }

    pub(super) fn silence(&self, fault: Fault) {
        // Relaxed: whose bit it was first is all that matters.
        self.done.fetch_or(fault.bit(), Ordering::Relaxed);
    }

    /// Tells of a fault, the first time.
    #[cold]
    pub(super) fn fault(&self, fault: Option<Fault>) {
        let Some(fault) = fault else { return };
        if self.done.fetch_or(fault.bit(), Ordering::Relaxed) & fault.bit() != 0 {
            return;
        }
        let fault = observe::warn(fault, None);
        self.tell(|observer| observer.fault(&fault));
    }

    /// Tells of a change.
    #[cold]
    pub(super) fn change(&self, state: StoreState, error: Option<&BackendError>) {
        observe::store_changed(state, error);
        let changed = StoreChanged { state, error };
        self.tell(|observer| observer.store_changed(&changed));
    }

    /// Nothing is locked while they are told; and one that panics is not to end the task that sees to the store.
    fn tell(&self, tell: impl Fn(&dyn Observer)) {
        let observers = lock(&self.observers).clone();
        for observer in observers {
            let _ = catch_unwind(AssertUnwindSafe(|| tell(&*observer)));
        }
    }
}
