//! Admission control for axum routers and Tower services.
//!
//! One `.layer(..)`, and a limit holds: over every connection, clone and mount, per route, user and
//! address.
//!
//! ```
//! use axum::{Router, routing::post};
//! use tower_sluice::{Missing, RateLimitLayer, Rule, TokenBucket, key};
//!
//! // Writes: 500/s in all, 10/s per user, and ten times that per address, which may be a whole office.
//! // What does not fit gets a 429 with Retry-After.
//! let writes = RateLimitLayer::builder()
//!     .rule(Rule::new("orders", TokenBucket::per_second(500).burst(750)))
//!     .rule(Rule::new("per-user", TokenBucket::per_second(10).burst(20))
//!         .key(key::header("x-user-id")).missing(Missing::Skip))
//!     .rule(Rule::new("per-address", TokenBucket::per_second(10).burst(20))
//!         .key(key::client_ip().relaxed(10)))
//!     .build()?;
//!
//! let app: Router = Router::new().route("/orders", post(|| async { "taken" }).layer(writes));
//! # let _ = app;
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc(test(attr(deny(warnings))))]

mod admission;
pub mod algorithm;
pub mod backend;
pub mod body;
pub mod clock;
mod core;
mod decision;
mod error;
pub mod event;
mod future;
mod handle;
mod identity;
mod layer;
pub mod limiter;
mod observe;
mod plan;
mod quota;
mod rejection;
mod request;
mod response;
mod rule;
mod service;
mod sync;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod testing;
mod verdict;

#[cfg(sluice_loom)]
#[doc(hidden)]
pub use crate::backend::local::models;
pub use crate::{
    algorithm::{Algorithm, FixedWindow, StartLevel, TokenBucket},
    backend::Backend,
    clock::{ManualClock, TokioClock},
    decision::{Decision, RuleDecision},
    error::{BackendError, BackendErrorKind, ConfigError},
    event::Observer,
    future::ResponseFuture,
    handle::{Handle, HandleError, RuleKey},
    identity::Key,
    layer::{KeepBodyLayer, RateLimitLayer, RateLimitLayerBuilder},
    limiter::{KeyedLimiter, Limiter},
    quota::Quota,
    rejection::{Rejection, RejectionPolicy},
    request::{cost::Cost, head::Head, key, matcher},
    response::exposed_headers,
    rule::{Missing, Rule, SharedLimiter},
    service::RateLimit,
    verdict::Decisions,
};
