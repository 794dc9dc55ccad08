//! Models of what is done without locks, or with them by halves: each is run through every schedule that
//! loom finds with at most two preemptions. Compiled to nothing without `--cfg sluice_loom`:
//!
//! ```text
//! RUSTFLAGS="--cfg sluice_loom" cargo test --release --test loom
//! ```
#![cfg(sluice_loom)]

mod counting;
mod holds;
mod in_flight;
mod rooms;
mod sliding;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Wake, Waker},
};

use loom::model::Builder;
use tower_sluice::TokenBucket;

const SECOND: u64 = 1_000_000_000;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// `burst` at once, and one more a second.
fn bucket(burst: u64) -> TokenBucket {
    TokenBucket::per_second(1).burst(burst)
}

/// Counts how often somebody is woken. The count itself is not modelled: it is read after threads are joined.
#[derive(Default)]
struct Woken(AtomicU64);

impl Woken {
    fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::new(Self::default());
        (Arc::clone(&woken), Waker::from(woken))
    }

    fn times(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
