//! [`Teller`]: tells of changes of the store, and of what is wrong with its set-up, to observers and to `tracing`.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
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
        for observer in self.observers() {
            observer.fault(&fault);
        }
    }

    /// Tells of a change.
    #[cold]
    pub(super) fn change(&self, state: StoreState, error: Option<&BackendError>) {
        observe::store_changed(state, error);
        let changed = StoreChanged { state, error };
        for observer in self.observers() {
            observer.store_changed(&changed);
        }
    }

    /// Nothing is locked while they are told.
    fn observers(&self) -> Vec<Arc<dyn Observer>> {
        lock(&self.observers).clone()
    }
}
