//! Faults that users of other rate limiters met, each as a test named after its id in `docs/cases.md`.
#![allow(clippy::disallowed_methods, reason = "some cases want real sockets and tasks")]

mod arithmetic;
mod bad_numbers;
mod browser;
#[path = "../shared/civil.rs"]
mod civil;
mod clocks;
mod combined;
mod does_not_fit;
mod http_surface;
mod http_wire;
mod in_flight;
mod in_flight_load;
mod keys;
mod mechanics;
mod mechanics_in_flight;
mod memory;
mod queue_counts;
mod queue_ends;
mod queueing;
mod retry_storms;
mod saturated;
mod sliding;
mod support;
mod support_core;
mod support_wire;
#[path = "../shared/tasks.rs"]
mod tasks;
mod upgrades;
#[path = "../shared/upload.rs"]
mod upload;
mod waiting;
mod warming;
mod windows;
