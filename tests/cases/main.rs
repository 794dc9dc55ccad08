//! Faults that users of other rate limiters met, by the ids of `docs/cases.md`.

mod arithmetic;
mod clocks;
mod memory;
mod support_core;
