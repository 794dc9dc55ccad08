//! [`Report`]: what came of each check.

use std::fmt;

/// What a [`Conformance`](super::Conformance) found, in the order it was tried.
///
/// `Display` writes a line for each check: its name, the algorithm, and `passed`, `FAILED: ..`, `refused: ..` or `not
/// tried: ..`.
///
/// ```
/// use tower_sluice::{FixedWindow, backend::Local, testing::Conformance};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let window = FixedWindow::per_minute(5).into();
/// let report = Conformance::of(Local::new).algorithms([window]).run().await;
/// assert!(report.is_passed());
/// assert_eq!(report.failures().count(), 0);
/// assert!(report.to_string().contains("peek changes nothing: fixed window 5/min: passed\n"));
/// # });
/// ```
#[derive(Clone, Debug)]
#[must_use = "it may hold failures; see assert_passed"]
pub struct Report {
    pub(super) findings: Vec<Finding>,
}

impl Report {
    /// What came of each check.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Whether no check failed. What a backend refused to count is no failure, unless it refused everything.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.failure().is_some())
    }

    /// Demands that no check failed.
    ///
    /// # Panics
    ///
    /// If one did, with the line of each that did.
    #[track_caller]
    pub fn assert_passed(&self) {
        let failures: Vec<_> = self.failures().map(|failure| format!("\n  {failure}")).collect();
        let (failed, all) = (failures.len(), self.findings.len());
        assert!(failed == 0, "{failed} of {all} checks failed:{}", failures.concat());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}

/// What came of one check on one algorithm.
///
/// ```
/// use tower_sluice::{BackendErrorKind, testing::{Conformance, FailingBackend}};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let away = || FailingBackend::new(BackendErrorKind::Unavailable);
/// let report = Conformance::of(away).run().await;
/// let first = report.failures().next().unwrap();
/// assert_eq!(first.check(), "allows the limit, then denies");
/// assert_eq!(first.algorithm(), "token bucket 5/min burst 5");
/// assert!(first.failure().unwrap().contains("the backend cannot be reached"));
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Finding {
    pub(super) check: &'static str,
    pub(super) algorithm: String,
    pub(super) found: Found,
}

/// What was found, with what there is to say of it.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Passed,
    Failed(String),
    Refused(String),
    NotTried(String),
}

impl Finding {
    /// The check's name, which says what is promised.
    #[must_use]
    pub fn check(&self) -> &'static str {
        self.check
    }

    /// The algorithm, with its quota.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// What is wrong, if the check failed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match &self.found {
            Found::Failed(failure) => Some(failure),
            Found::Passed | Found::Refused(_) | Found::NotTried(_) => None,
        }
    }

    /// Why the backend does not count this, if it refused to.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match &self.found {
            Found::Refused(reason) => Some(reason),
            Found::Passed | Found::Failed(_) | Found::NotTried(_) => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.check, self.algorithm)?;
        match &self.found {
            Found::Passed => f.write_str("passed"),
            Found::Failed(failure) => write!(f, "FAILED: {failure}"),
            Found::Refused(reason) => write!(f, "refused: {reason}"),
            Found::NotTried(reason) => write!(f, "not tried: {reason}"),
        }
    }
}
