//! [`ConfigError`]: why a limit could not be built. [`BackendError`]: why it could not be counted.

use std::{borrow::Cow, error::Error, fmt};

/// Why a layer, rule or limiter could not be built.
///
/// Every mistake has the same four parts, so this is one struct and not an enum: the rule (where one
/// is concerned, and its tier), the field, the value it was given, and what is wrong with it.
///
/// ```
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket};
///
/// let error = RateLimitLayer::builder()
///     .rule(Rule::new("orders", TokenBucket::per_second(0)))
///     .build()
///     .unwrap_err();
/// assert_eq!(error.rule(), Some("orders"));
/// assert_eq!(error.field(), "permits");
/// assert_eq!(error.to_string(), "rule \"orders\": permits = 0: must be at least 1");
/// ```
///
/// Its `Debug` is the same text, since that is what a `main` which returns it prints.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    rule: Option<String>,
    tier: Option<String>,
    field: &'static str,
    value: String,
    reason: Cow<'static, str>,
    /// Whether what is called a rule is an in-flight limit.
    is_in_flight: bool,
}

impl ConfigError {
    /// An error about `field`, which was given `value`; for backends of your own.
    pub fn new(
        field: &'static str,
        value: impl fmt::Display,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (value, reason) = (value.to_string(), reason.into());
        Self { rule: None, tier: None, field, value, reason, is_in_flight: false }
    }

    /// The same error, said of `rule`; a rule named earlier stays.
    #[must_use]
    pub fn of_rule(mut self, rule: &str) -> Self {
        self.rule.get_or_insert_with(|| rule.to_owned());
        self
    }

    /// The same error, said of a tier of the rule; one named earlier stays.
    pub(crate) fn of_tier(mut self, tier: &str) -> Self {
        self.tier.get_or_insert_with(|| tier.to_owned());
        self
    }

    /// The same error, said of an in-flight limit; a name given earlier stays.
    pub(crate) fn of_in_flight(mut self, limit: &str) -> Self {
        self.is_in_flight |= self.rule.is_none();
        self.of_rule(limit)
    }

    /// The name of the rule or in-flight limit, where one is concerned.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The tier of the rule, where what is wrong is wrong with one of its [tiers](crate::Rule::tier).
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// The field or setting.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The value it was given.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What is wrong with it, and what to write instead.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            let kind = if self.is_in_flight { "in-flight limit" } else { "rule" };
            write!(f, "{kind} {rule:?}: ")?;
        }
        if let Some(tier) = &self.tier {
            write!(f, "tier {tier:?}: ")?;
        }
        write!(f, "{} = {}: {}", self.field, self.value, self.reason)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ConfigError {}

/// Why a backend could not answer. Opaque, since causes will grow; the cause is its `source`.
///
/// ```
/// use std::error::Error;
/// use tower_sluice::{BackendError, BackendErrorKind};
///
/// let error = BackendError::new(BackendErrorKind::Timeout, "no answer within 10 ms");
/// assert_eq!(error.kind(), BackendErrorKind::Timeout);
/// assert_eq!(error.source().unwrap().to_string(), "no answer within 10 ms");
/// ```
#[derive(Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// What kind of failure a [`BackendError`] is.
///
/// ```
/// use tower_sluice::{Observer, BackendErrorKind, event::Rejected};
///
/// /// Wakes somebody up, unless the store is only slow.
/// struct Pager;
///
/// impl Observer for Pager {
///     fn rejected(&self, rejected: &Rejected<'_>) {
///         match rejected.error().map(|error| error.kind()) {
///             None | Some(BackendErrorKind::Timeout) => {}
///             Some(kind) => eprintln!("the store of the limits is away: {kind:?}"),
///         }
///     }
/// }
/// # let _ = Pager;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// No answer in time; the charge may have been made.
    Timeout,
    /// The backend cannot be reached.
    Unavailable,
    /// It answered something that makes no sense.
    Protocol,
}

impl BackendError {
    /// An error of `kind` with its cause.
    pub fn new(kind: BackendErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BackendErrorKind::Timeout => "the backend did not answer in time",
            BackendErrorKind::Unavailable => "the backend cannot be reached",
            BackendErrorKind::Protocol => "the backend's answer makes no sense",
        })
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
