//! [`FailingBackend`] and [`StalledBackend`]: backends that do not count.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    BackendError, BackendErrorKind, ConfigError, Decision,
    backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Receipt, Verdicts},
    clock::Nanos,
};

/// A backend that is away: every question gets an error of one kind. Clones are one backend.
///
/// ```
/// use tower_sluice::backend::{Backend, Charge, LimiterId};
/// use tower_sluice::{BackendErrorKind, clock::Nanos, testing::FailingBackend};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let backend = FailingBackend::new(BackendErrorKind::Timeout);
/// let answer = backend.check(Nanos::ZERO, &[Charge::new(LimiterId(0), 1)]).resolve().await;
/// assert_eq!(answer.unwrap_err().kind(), BackendErrorKind::Timeout);
/// assert_eq!(backend.checks(), 1);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct FailingBackend {
    kind: BackendErrorKind,
    checks: Arc<AtomicU64>,
}

impl FailingBackend {
    /// A backend whose errors are of `kind`.
    #[must_use]
    pub fn new(kind: BackendErrorKind) -> Self {
        Self { kind, checks: Arc::default() }
    }

    /// How often it was asked to check.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }

    fn fail<T>(&self) -> Answer<T> {
        Answer::Ready(Err(BackendError::new(self.kind, "this backend always fails")))
    }
}

impl Backend for FailingBackend {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, _: Nanos, _: &[Charge<'_>]) -> Answer<Verdicts> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.fail()
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        self.fail()
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        self.fail()
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.checks).addr()
    }
}

/// A backend that never answers. Clones are one backend.
///
/// ```
/// use tower_sluice::backend::{Answer, Backend, Charge, LimiterId};
/// use tower_sluice::{clock::Nanos, testing::StalledBackend};
///
/// let backend = StalledBackend::new();
/// let answer = backend.check(Nanos::ZERO, &[Charge::new(LimiterId(0), 1)]);
/// assert!(matches!(answer, Answer::Pending(_)));
/// assert_eq!(backend.checks(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct StalledBackend {
    checks: Arc<AtomicU64>,
}

impl StalledBackend {
    /// A backend that never answers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How often it was asked to check.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }
}

impl Backend for StalledBackend {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, _: Nanos, _: &[Charge<'_>]) -> Answer<Verdicts> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        Answer::Pending(Box::pin(pending()))
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Pending(Box::pin(pending()))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Pending(Box::pin(pending()))
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.checks).addr()
    }
}
