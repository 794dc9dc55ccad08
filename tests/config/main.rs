//! Bad input: what cannot be built is a `ConfigError` naming rule, field and value; whatever a caller
//! sends gets a decision.

mod handles;
mod hostile;
mod in_flight;
mod layers;
mod longest;
mod quotas;
mod rejections;
mod rules;
mod support;
mod tiers;
