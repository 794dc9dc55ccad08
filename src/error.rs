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
    limiter: Option<u64>,
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
    /// It does not let us in: the password, or what the user may do.
    Denied,
    /// It takes no writes: a replica, or one that cannot save.
    ReadOnly,
    /// It has no room for more.
    OutOfMemory,
    /// It is reading its data.
    Loading,
    /// It is busy with a script of somebody's.
    Busy,
    /// As many calls are under way as may be.
    Overloaded,
    /// What lies under a key of ours is somebody else's.
    Foreign,
    /// It is a part of a cluster and was asked as a server, or the other way round; or a slot is moving.
    Cluster,
    /// It is too old to count.
    TooOld,
    /// It has no such database.
    NoDatabase,
}

impl BackendErrorKind {
    /// The kind as a label of few values: `timeout`, `unavailable`, `read-only` and so on.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Protocol => "protocol",
            Self::Denied => "denied",
            Self::ReadOnly => "read-only",
            Self::OutOfMemory => "out-of-memory",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::Overloaded => "overloaded",
            Self::Foreign => "foreign",
            Self::Cluster => "cluster",
            Self::TooOld => "too-old",
            Self::NoDatabase => "no-database",
        }
    }
}

impl BackendError {
    /// An error of `kind` with its cause.
    pub fn new(kind: BackendErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into(), limiter: None }
    }

    /// The same, of one limiter alone: the number in its [`LimiterId`](crate::backend::LimiterId). The request is
    /// then answered as its rule says; else as the first rule that was asked about in that call.
    #[must_use]
    pub fn on(self, limiter: u64) -> Self {
        Self { limiter: Some(limiter), ..self }
    }

    /// The limiter it concerns, if one alone.
    #[must_use]
    pub fn limiter(&self) -> Option<u64> {
        self.limiter
    }

    /// The same once more, told by its text.
    #[cfg(feature = "redis")]
    pub(crate) fn again(&self) -> Self {
        Self::new(self.kind, self.source.to_string())
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
            BackendErrorKind::Denied => "the backend does not let us in",
            BackendErrorKind::ReadOnly => "the backend takes no writes",
            BackendErrorKind::OutOfMemory => "the backend has no memory left",
            BackendErrorKind::Loading => "the backend is reading its data",
            BackendErrorKind::Busy => "the backend is busy with a script",
            BackendErrorKind::Overloaded => "too many calls on the backend are under way",
            BackendErrorKind::Foreign => "what lies under the backend's key is somebody else's",
            BackendErrorKind::Cluster => {
                "the backend is asked as a cluster and is none, or the other way round"
            }
            BackendErrorKind::TooOld => "the backend is too old",
            BackendErrorKind::NoDatabase => "the backend has no such database",
        })
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
