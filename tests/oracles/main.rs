//! Numeric timelines from the tests and documents of other limiters, by the ids of `docs/oracles.md`.
//!
//! Each runs on the manual clock, on every way to count in this process: without keys, per key, and
//! through the `Backend` trait. Those with waits run on every way to wait: `acquire`, with a key and without, and a
//! layer's queue. What a peer calls a reservation to act at an instant is a wait that ends in an admission at
//! that instant: who waits has charged nothing.

mod buckets;
mod meters;
mod queues;
mod ramps;
mod requests;
mod reservations;
mod rig;
#[path = "../shared/tasks.rs"]
mod tasks;
mod waits;
mod windows;
