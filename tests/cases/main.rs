//! Faults that users of other rate limiters met, each as a test named after its id in `docs/cases.md`.
#![allow(clippy::disallowed_methods, reason = "some cases want real sockets and tasks")]

mod arithmetic;
mod clocks;
mod combined;
mod does_not_fit;
mod http_surface;
mod keys;
mod mechanics;
mod memory;
mod queue_counts;
mod queue_ends;
mod queueing;
mod support;
mod support_core;
#[path = "../shared/tasks.rs"]
mod tasks;
mod waiting;
