//! For tests of your own: how many pass, backends with given answers, an observer that remembers, and the checks
//! that a backend has to pass.
//!
//! | I want | use |
//! | --- | --- |
//! | the first test: the limit refuses | [`admitted`] |
//! | time that stands still until I move it | [`ManualClock`](crate::ManualClock); [`TokioClock`](crate::TokioClock) where tokio's time is paused |
//! | a store that says what I tell it, and remembers what it was asked | [`ScriptedBackend`] |
//! | a store that is slow | [`ScriptedBackend::delay`] |
//! | a store that lets requests wait for their turn | [`ScriptedBackend::departing`] |
//! | a store that fails | [`FailingBackend`] |
//! | a store that never answers | [`StalledBackend`] |
//! | what was admitted, refused and finished; set-up faults | [`Recorder`] |
//! | whether a backend of mine counts right | [`Conformance`] |
//!
//! How to test a service with these: [`guide::testing`](crate::guide::testing). The example `testing` is a small one.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_sluice::{Decision, RateLimitLayer, Rule, TokenBucket};
//! use tower_sluice::testing::{Event, Recorder, ScriptedBackend};
//! use axum::body::Body;
//! use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let second = Duration::from_secs(1);
//! let shared = ScriptedBackend::decisions([Decision::denied(10, 0, second, second)]);
//! let seen = Recorder::new();
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("fleet", TokenBucket::per_second(10)).backend(shared.clone()))
//!     .observer(seen.clone())
//!     .build()?;
//! let service = layer.layer(service_fn(async |_: Request<Body>| {
//!     Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
//! }));
//!
//! let answer = service.oneshot(Request::new(Body::empty())).await.unwrap();
//! assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(shared.charges().len(), 1);
//! assert!(matches!(seen.events()[..], [Event::Rejected { status: 429, .. }]));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```

mod admitted;
mod broken;
mod conformance;
mod recorder;
mod scripted;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::{
    admitted::admitted,
    broken::{FailingBackend, StalledBackend},
    conformance::{Conformance, Finding, Report},
    recorder::{Event, Recorder},
    scripted::{ScriptedBackend, SeenCharge},
};

/// Locks; what these locks guard is valid at every step, so a panicking test spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
