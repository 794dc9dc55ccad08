//! Numeric timelines from the tests and documents of other limiters, by the ids of `docs/oracles.md`.
//!
//! Each runs on the manual clock, on every way to count in this process: without keys, per key, and
//! through the `Backend` trait.

mod buckets;
mod meters;
mod requests;
mod rig;
mod windows;
