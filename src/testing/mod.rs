//! Doubles for tests of your own: backends with given answers, and an observer that remembers.
//!
//! Beside them tests want a [`ManualClock`](crate::ManualClock), or [`TokioClock`](crate::TokioClock)
//! where they pause tokio's time.
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

mod broken;
mod recorder;
mod scripted;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::{
    broken::{FailingBackend, StalledBackend},
    recorder::{Event, Recorder},
    scripted::{ScriptedBackend, SeenCharge},
};

/// Locks; what these locks guard is valid at every step, so a panicking test spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
