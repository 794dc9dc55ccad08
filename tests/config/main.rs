//! Bad input: what cannot be built is a `ConfigError` naming rule, field and value; whatever a caller
//! sends gets a decision.

mod handles;
mod hostile;
mod layers;
mod quotas;
mod rules;
mod support;
