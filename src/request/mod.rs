//! What a rule reads of a request: its head, its key, whether the rule applies, and what it costs.

pub(crate) mod cost;
pub(crate) mod head;
pub mod key;
pub mod matcher;
