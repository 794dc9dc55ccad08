//! [`KeyBy`]: every kind of key as one type, and how keys combine.

use std::{borrow::Cow, fmt, sync::Arc};

use http::HeaderName;

#[cfg(feature = "axum")]
use super::route;
use super::{ClientIp, KeyExtractor, cookie, is_blank};
use crate::{ConfigError, Head, Key};

/// A key of any kind, erased, so that rules have no type parameter.
///
/// The functions of [this module](super) return it; clones are cheap. Its `extract` is for
/// extractors of your own that wrap another: it gives the bytes (those of combined keys joined), and
/// knows nothing of `relaxed`.
///
/// ```
/// use tower_sluice::{Rule, TokenBucket, key};
///
/// let caller = key::header("x-user-id").or(key::client_ip().relaxed(10));
/// let reads = Rule::new("reads", TokenBucket::per_second(10)).key(caller.clone());
/// let writes = Rule::new("writes", TokenBucket::per_second(1)).key(caller);
/// # let _ = (reads, writes);
/// ```
#[derive(Clone)]
#[must_use]
pub struct KeyBy {
    pub(super) kind: Kind,
}

#[derive(Clone)]
pub(super) enum Kind {
    Global,
    Header(HeaderName),
    Cookie(Arc<str>),
    #[cfg(feature = "axum")]
    Route,
    #[cfg(feature = "axum")]
    PathParam(Arc<str>),
    ClientIp(Arc<ClientIp>),
    Custom(Arc<dyn KeyExtractor>),
    /// The first that is present.
    Or(Arc<[KeyBy]>),
    /// All of them.
    And(Arc<[KeyBy]>),
    Relaxed(Arc<KeyBy>, u64),
    /// A mistake, reported when the rule is built. A key that contains one is one.
    Invalid(Arc<ConfigError>),
}

/// Receives the parts of a key, in order.
///
/// How many parts there are depends on the alternative alone, so a sink that tells parts apart (by
/// their length, say) and knows the alternative cannot confuse two keys.
pub(crate) trait KeySink {
    /// Takes the next part.
    fn part(&mut self, bytes: &[u8]);

    /// Forgets all parts so far.
    fn clear(&mut self);
}

/// Which alternative of a key was present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Counted over all the `or`s in the key, in the order written; part of the key.
    pub(crate) alternative: u8,
    /// What limit and burst are multiplied by.
    pub(crate) factor: u64,
}

impl Found {
    const ONLY: Self = Self { alternative: 0, factor: 1 };
}

/// A sink for asking whether a key is present.
struct Nowhere;

impl KeySink for Nowhere {
    fn part(&mut self, _: &[u8]) {}

    fn clear(&mut self) {}
}

/// How many alternatives a key may have: they are looked at one after the other.
const MAX_ALTERNATIVES: usize = 16;

impl KeyBy {
    /// Counts per this key where it is present, else per `other`.
    ///
    /// Which of the two it was is part of the key: a header that says `192.0.2.1` never shares the
    /// bucket of that address. At most 16 alternatives.
    ///
    /// For callers without an identity; it is no defence against invented ones. A key that cannot be
    /// missing comes last, or building the rule is an error.
    pub fn or(self, other: impl KeyExtractor) -> Self {
        let (left, right) = match self.valid_with(other.boxed()) {
            Ok(both) => both,
            Err(invalid) => return invalid,
        };
        if left.is_total() {
            return Self::invalid(ConfigError::new(
                "key.or",
                format!("{} or {}", left.nested(), right.nested()),
                format!("{} cannot be missing, so what follows is never asked", left.nested()),
            ));
        }
        let mut alternatives = Vec::new();
        for key in [left, right] {
            match key.kind {
                Kind::Or(inner) => alternatives.extend(inner.iter().cloned()),
                _ => alternatives.push(key),
            }
        }
        Self { kind: Kind::Or(alternatives.into()) }.checked()
    }

    /// Counts per this key and `other` together; missing where either is.
    ///
    /// ```
    /// use tower_sluice::key;
    ///
    /// let key = key::header("x-tenant").and(key::header("x-user-id"));
    /// assert_eq!(format!("{key:?}"), "KeyBy(header x-tenant and header x-user-id)");
    /// ```
    pub fn and(self, other: impl KeyExtractor) -> Self {
        let (left, right) = match self.valid_with(other.boxed()) {
            Ok(both) => both,
            Err(invalid) => return invalid,
        };
        let mut parts = Vec::new();
        for key in [left, right] {
            match key.kind {
                Kind::And(inner) => parts.extend(inner.iter().cloned()),
                _ => parts.push(key),
            }
        }
        Self { kind: Kind::And(parts.into()) }.checked()
    }

    /// Multiplies limit and burst of what is counted by this key, for keys that many callers share.
    ///
    /// Default: 1. Applies to all alternatives of the key; nested factors multiply. Must be at least 1.
    pub fn relaxed(self, factor: u64) -> Self {
        if let Kind::Invalid(_) = self.kind {
            return self;
        }
        if factor == 0 {
            return Self::invalid(ConfigError::new(
                "key.relaxed",
                factor,
                "must be at least 1: it multiplies limit and burst",
            ));
        }
        // A factor of a factor is one factor, so that depth does not grow.
        let (inner, product) = match self.kind {
            Kind::Relaxed(inner, earlier) => (inner, earlier.checked_mul(factor)),
            _ => (Arc::new(self), Some(factor)),
        };
        match product {
            Some(product) => Self { kind: Kind::Relaxed(inner, product) }.checked(),
            None => Self::invalid(too_relaxed(factor)),
        }
    }

    pub(super) fn global() -> Self {
        Self { kind: Kind::Global }
    }

    pub(super) fn header(name: HeaderName) -> Self {
        Self { kind: Kind::Header(name) }
    }

    pub(super) fn cookie(name: &str) -> Self {
        Self { kind: Kind::Cookie(name.into()) }
    }

    #[cfg(feature = "axum")]
    pub(super) fn route() -> Self {
        Self { kind: Kind::Route }
    }

    #[cfg(feature = "axum")]
    pub(super) fn path_param(name: &str) -> Self {
        Self { kind: Kind::PathParam(name.into()) }
    }

    pub(super) fn client_ip(settings: ClientIp) -> Self {
        Self { kind: Kind::ClientIp(Arc::new(settings)) }
    }

    pub(super) fn custom(extractor: impl KeyExtractor) -> Self {
        match extractor.validate() {
            Ok(()) => Self { kind: Kind::Custom(Arc::new(extractor)) },
            Err(error) => Self::invalid(error),
        }
    }

    pub(super) fn invalid(error: ConfigError) -> Self {
        Self { kind: Kind::Invalid(Arc::new(error)) }
    }

    /// Gives the parts of the key to `sink`, which is empty; `None` where the key is missing, and
    /// then the sink is empty again.
    #[inline]
    pub(crate) fn feed(&self, head: &Head<'_>, sink: &mut impl KeySink) -> Option<Found> {
        match &self.kind {
            Kind::Or(alternatives) => {
                let mut offset = 0;
                for key in alternatives.iter() {
                    if let Some(found) = key.feed_combined(head, sink) {
                        return Some(Found { alternative: offset + found.alternative, ..found });
                    }
                    offset += key.alternatives();
                }
                None
            }
            Kind::And(_) | Kind::Relaxed(..) => self.feed_combined(head, sink),
            _ => self.write(head, sink),
        }
    }

    /// `feed` for keys that may fail after a part was written.
    fn feed_combined(&self, head: &Head<'_>, sink: &mut impl KeySink) -> Option<Found> {
        let found = self.write(head, sink);
        if found.is_none() && self.writes_in_steps() {
            sink.clear();
        }
        found
    }

    /// Adds the parts to what the sink has; where the key is missing, some may have been written.
    #[inline]
    fn write<S: KeySink>(&self, head: &Head<'_>, sink: &mut S) -> Option<Found> {
        match &self.kind {
            // One empty part, as `Key::GLOBAL` is named to a handle.
            Kind::Global => sink.part(&[]),
            Kind::Header(name) => sink.part(head.header_bytes(name)?),
            Kind::Cookie(name) => sink.part(&cookie::find(name, head)?),
            #[cfg(feature = "axum")]
            Kind::Route => sink.part(route::key(head)),
            #[cfg(feature = "axum")]
            Kind::PathParam(name) => sink.part(&route::param(name, head)?),
            Kind::ClientIp(settings) => sink.part(settings.bytes(head).as_slice()),
            Kind::Custom(extractor) => sink.part(custom(&**extractor, head)?.as_bytes()),
            Kind::Or(_) | Kind::And(_) | Kind::Relaxed(..) => {
                return self.write_combined(head, sink);
            }
            Kind::Invalid(_) => return None,
        }
        Some(Found::ONLY)
    }

    // Apart from `write`, so that the plain kinds can be inlined: this one recurses.
    fn write_combined<S: KeySink>(&self, head: &Head<'_>, sink: &mut S) -> Option<Found> {
        match &self.kind {
            Kind::Or(alternatives) => {
                let mut offset = 0;
                for key in alternatives.iter() {
                    // The sink holds earlier parts of an `and`, so it cannot be cleared when this
                    // alternative fails half way: look first.
                    let whole = !key.writes_in_steps() || key.write(head, &mut Nowhere).is_some();
                    if whole && let Some(found) = key.write(head, sink) {
                        return Some(Found { alternative: offset + found.alternative, ..found });
                    }
                    offset += key.alternatives();
                }
                None
            }
            Kind::And(parts) => {
                let mut all = Found::ONLY;
                for key in parts.iter() {
                    let found = key.write(head, sink)?;
                    // One digit per part, each to the base of its own alternatives. Neither can
                    // overflow: `checked` went through all the combinations.
                    all.alternative = all.alternative * key.alternatives() + found.alternative;
                    all.factor *= found.factor;
                }
                Some(all)
            }
            Kind::Relaxed(key, factor) => {
                let found = key.write(head, sink)?;
                Some(Found { factor: found.factor * factor, ..found })
            }
            _ => self.write(head, sink),
        }
    }

    /// Whether a missing key may be noticed after a part was written.
    fn writes_in_steps(&self) -> bool {
        match &self.kind {
            Kind::And(_) => true,
            Kind::Relaxed(key, _) => key.writes_in_steps(),
            // An `or` writes its alternatives whole or not at all.
            _ => false,
        }
    }

    /// How many alternatives there are; at most [`MAX_ALTERNATIVES`] in a key that was built.
    pub(crate) fn alternatives(&self) -> u8 {
        match &self.kind {
            Kind::Or(keys) => {
                keys.iter().fold(0, |sum: u8, key| sum.saturating_add(key.alternatives()))
            }
            Kind::And(keys) => {
                keys.iter().fold(1, |product: u8, key| product.saturating_mul(key.alternatives()))
            }
            Kind::Relaxed(key, _) => key.alternatives(),
            _ => 1,
        }
    }

    /// Whether every request has this key.
    pub(crate) fn is_total(&self) -> bool {
        match &self.kind {
            Kind::Global | Kind::ClientIp(_) => true,
            #[cfg(feature = "axum")]
            Kind::Route => true,
            Kind::Custom(extractor) => extractor.is_total(),
            Kind::Or(keys) => keys.iter().any(Self::is_total),
            Kind::And(keys) => keys.iter().all(Self::is_total),
            Kind::Relaxed(key, _) => key.is_total(),
            _ => false,
        }
    }

    /// The factor of each alternative, in the order of [`Found::alternative`].
    pub(crate) fn factors(&self) -> Vec<u64> {
        // A key whose factors overflow was made invalid when it was combined.
        self.checked_factors().unwrap_or_default()
    }

    fn checked_factors(&self) -> Option<Vec<u64>> {
        match &self.kind {
            Kind::Or(keys) => {
                let factors: Option<Vec<_>> = keys.iter().map(Self::checked_factors).collect();
                Some(factors?.concat())
            }
            Kind::And(keys) => keys.iter().try_fold(vec![1_u64], |so_far, key| {
                let factors = key.checked_factors()?;
                let pairs = so_far.iter().flat_map(|a| factors.iter().map(|b| a.checked_mul(*b)));
                pairs.collect()
            }),
            Kind::Relaxed(key, factor) => {
                key.checked_factors()?.iter().map(|inner| inner.checked_mul(*factor)).collect()
            }
            _ => Some(vec![1]),
        }
    }

    /// What is wrong with this key, if anything.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match &self.kind {
            Kind::Invalid(error) => Err((**error).clone()),
            _ => Ok(()),
        }
    }

    /// Whether the peer address matters.
    pub(crate) fn wants_peer(&self) -> bool {
        self.any(&|kind| matches!(kind, Kind::ClientIp(_)))
    }

    /// Whether a `client_ip` in here finds no peer address.
    pub(crate) fn lacks_peer(&self, head: &Head<'_>) -> bool {
        self.any(&|kind| matches!(kind, Kind::ClientIp(settings) if settings.peer(head).is_none()))
    }

    /// Whether all requests have one key by design.
    pub(crate) fn is_global(&self) -> bool {
        match &self.kind {
            Kind::Global => true,
            Kind::Relaxed(key, _) => key.is_global(),
            _ => false,
        }
    }

    /// Whether a `client_ip` in here believes a forwarding header.
    pub(crate) fn proxy_configured(&self) -> bool {
        self.any(&|kind| matches!(kind, Kind::ClientIp(settings) if settings.reads_header()))
    }

    /// Whether the route that axum matched matters.
    pub(crate) fn wants_route(&self) -> bool {
        self.any(&|kind| match kind {
            #[cfg(feature = "axum")]
            Kind::Route | Kind::PathParam(_) => true,
            _ => false,
        })
    }

    fn any(&self, is: &dyn Fn(&Kind) -> bool) -> bool {
        match &self.kind {
            Kind::Or(keys) | Kind::And(keys) => keys.iter().any(|key| key.any(is)),
            Kind::Relaxed(key, _) => key.any(is),
            kind => is(kind),
        }
    }

    /// What this reads, in a few words.
    pub(crate) fn describe(&self) -> Cow<'static, str> {
        match &self.kind {
            Kind::Global => "global".into(),
            Kind::Header(name) => format!("header {name}").into(),
            Kind::Cookie(name) => format!("cookie {name}").into(),
            #[cfg(feature = "axum")]
            Kind::Route => "route".into(),
            #[cfg(feature = "axum")]
            Kind::PathParam(name) => format!("path parameter {name}").into(),
            Kind::ClientIp(settings) => KeyExtractor::describe(&**settings),
            Kind::Custom(extractor) => extractor.describe(),
            Kind::Or(keys) => list(keys, " or ").into(),
            Kind::And(keys) => list(keys, " and ").into(),
            Kind::Relaxed(key, factor) => format!("{} relaxed {factor} times", key.nested()).into(),
            Kind::Invalid(_) => "invalid".into(),
        }
    }

    /// `describe`, in parentheses where it needs them inside another key.
    fn nested(&self) -> Cow<'static, str> {
        match &self.kind {
            Kind::Or(_) | Kind::And(_) => format!("({})", self.describe()).into(),
            _ => self.describe(),
        }
    }

    /// Both keys, or the one with a mistake.
    fn valid_with(self, other: Self) -> Result<(Self, Self), Self> {
        match (&self.kind, &other.kind) {
            (Kind::Invalid(_), _) => Err(self),
            (_, Kind::Invalid(_)) => Err(other),
            _ => Ok((self, other)),
        }
    }

    /// This combination, if its alternatives can be counted and its factors multiplied.
    fn checked(self) -> Self {
        let alternatives = self.alternatives();
        if usize::from(alternatives) > MAX_ALTERNATIVES {
            return Self::invalid(ConfigError::new(
                "key.or",
                self.describe(),
                format!(
                    "has more than {MAX_ALTERNATIVES} alternatives, which `and` multiplies; drop some `or`"
                ),
            ));
        }
        match self.checked_factors() {
            Some(_) => self,
            None => Self::invalid(too_relaxed(self.describe())),
        }
    }
}

impl KeyExtractor for KeyBy {
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
        match &self.kind {
            Kind::Global => Some(Key::GLOBAL),
            Kind::Header(name) => head.header_bytes(name).map(Key::from),
            Kind::Cookie(name) => cookie::find(name, head).map(key_of),
            #[cfg(feature = "axum")]
            Kind::Route => Some(Key::from(route::key(head))),
            #[cfg(feature = "axum")]
            Kind::PathParam(name) => route::param(name, head).map(key_of),
            Kind::ClientIp(settings) => settings.extract(head),
            Kind::Custom(extractor) => custom(&**extractor, head),
            Kind::Relaxed(key, _) => key.extract(head),
            Kind::Or(_) | Kind::And(_) => {
                let mut joined = Joined(vec![0]);
                let found = self.feed(head, &mut joined)?;
                joined.0[0] = found.alternative;
                Some(Key::copied(&joined.0))
            }
            Kind::Invalid(_) => None,
        }
    }

    fn describe(&self) -> Cow<'static, str> {
        Self::describe(self)
    }

    fn is_total(&self) -> bool {
        Self::is_total(self)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        Self::validate(self)
    }

    fn boxed(self) -> KeyBy {
        self
    }
}

impl fmt::Debug for KeyBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBy({})", self.describe())
    }
}

/// The alternative, then each part after its length.
struct Joined(Vec<u8>);

impl KeySink for Joined {
    fn part(&mut self, bytes: &[u8]) {
        self.0.extend((bytes.len() as u64).to_be_bytes());
        self.0.extend(bytes);
    }

    fn clear(&mut self) {
        self.0.truncate(1);
    }
}

/// What `extractor` finds, under the rule that blank is missing unless nothing can be.
#[inline]
fn custom<'a>(extractor: &'a dyn KeyExtractor, head: &Head<'a>) -> Option<Key<'a>> {
    match extractor.extract(head) {
        Some(key) if !is_blank(key.as_bytes()) => Some(key),
        key if extractor.is_total() => Some(key.unwrap_or(Key::GLOBAL)),
        _ => None,
    }
}

fn key_of(value: Cow<'_, [u8]>) -> Key<'_> {
    match value {
        Cow::Borrowed(bytes) => Key::from(bytes),
        Cow::Owned(bytes) => Key::copied(&bytes),
    }
}

fn list(keys: &[KeyBy], word: &str) -> String {
    keys.iter().map(KeyBy::nested).collect::<Vec<_>>().join(word)
}

fn too_relaxed(value: impl fmt::Display) -> ConfigError {
    ConfigError::new(
        "key.relaxed",
        value,
        "the product of the factors is above 64 bits; take smaller ones",
    )
}
