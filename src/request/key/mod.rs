//! Keys: whose permits a request spends.
//!
//! A rule without a key counts all its requests together. A rule with one counts each user, address
//! or tenant for itself. Take the key from something that a caller cannot choose: an extension that
//! an auth layer set, the client address, a header that a proxy of yours overwrites. A key that a
//! caller invents is a new bucket for each request.
//!
//! ```
//! use tower_sluice::{Missing, Rule, TokenBucket, key};
//!
//! // Ten requests a second for each user; a request that names no user is not this rule's business.
//! let per_user = Rule::new("per-user", TokenBucket::per_second(10))
//!     .key(key::header("x-user-id"))
//!     .missing(Missing::Skip);
//! # let _ = per_user;
//! ```
//!
//! Keys combine: `or` asks the next where the first is missing, `and` counts per pair, `relaxed`
//! multiplies limit and burst, for a key that many callers share:
//!
//! ```
//! use tower_sluice::{Key, Rule, TokenBucket, key};
//!
//! #[derive(Clone)]
//! struct User { id: String }
//!
//! // Per user where the auth layer found one; else per address, which may be a whole office.
//! let callers = Rule::new("callers", TokenBucket::per_second(10))
//!     .key(key::extension(|user: &User| Key::from(&user.id)).or(key::client_ip().relaxed(10)));
//!
//! // Per tenant and user together.
//! let pairs = key::header("x-tenant").and(key::header("x-user-id"));
//! # let _ = (callers, pairs);
//! ```
//!
//! # Missing keys
//!
//! A key is missing where the request does not have it, and where its value is empty or consists of
//! ASCII blanks. [`global`], [`client_ip`], `route` and [`always`] cannot miss; every other key needs
//! an `or` with one of those, or a word on what happens: `Rule::missing`.
//!
//! # What handlers see
//!
//! A key reads what a handler behind the layer would read, so that nobody can be one user to the
//! limiter and another to the application: the first line of a repeated header, the last of several
//! cookies of one name, path parameters with percent-encoding undone.
//!
//! # Performance
//!
//! Keys borrow from the request. None of the keys here allocates, however long the value, except
//! where percent-encoding has to be undone, and [`from_owned`].

use std::{borrow::Cow, sync::Arc};

use http::HeaderName;

use crate::{ConfigError, Head, Key};

mod by;
mod client_ip;
mod closure;
mod cookie;
mod forwarded;
mod named;
pub(crate) mod route;
#[cfg(test)]
mod tests;
pub(crate) mod trust;

pub use by::KeyBy;
pub(crate) use by::{Found, KeySink};
pub use client_ip::ClientIp;
pub(crate) use client_ip::{has_forwarding_header, peer};
pub(crate) use route::{RouteState, route_state};

/// Takes the key out of a request's head; for kinds of key that this module does not have.
///
/// Closures go through [`from_fn`], [`from_owned`] and [`always`]; a type of your own implements
/// this.
///
/// ```
/// use std::borrow::Cow;
/// use tower_sluice::{Head, Key, Missing, Rule, TokenBucket, key::KeyExtractor};
///
/// /// The part of a bearer token before the dot.
/// struct TokenPrefix;
///
/// impl KeyExtractor for TokenPrefix {
///     fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
///         let token = head.header_str("authorization")?.strip_prefix("Bearer ")?;
///         Some(Key::from(token.split_once('.')?.0))
///     }
///
///     fn describe(&self) -> Cow<'static, str> {
///         "token prefix".into()
///     }
/// }
///
/// let rule = Rule::new("per-token", TokenBucket::per_second(10))
///     .key(TokenPrefix)
///     .missing(Missing::Skip);
/// # let _ = rule;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    note = "for a header write `key::header(\"x-user-id\")`, for a closure `key::from_fn(|head| ..)`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key, borrowed from the head or from the extractor; `None` where the request has none.
    ///
    /// Should be a pure function of the head: it may run more than once for a request.
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>>;

    /// What this reads, in a few words, for warnings and errors. Default: `custom`.
    fn describe(&self) -> Cow<'static, str> {
        "custom".into()
    }

    /// Whether every request has a key, so that a rule need not say what a missing one means.
    /// Default: `false`.
    ///
    /// Where this is `true`, an empty key is a key like any other, and so is `None`.
    fn is_total(&self) -> bool {
        false
    }

    /// Whether the extractor's own settings make sense; asked when a rule is built. Default: yes.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and what to write instead.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The same extractor as the one type that rules hold.
    fn boxed(self) -> KeyBy
    where
        Self: Sized,
    {
        KeyBy::custom(self)
    }
}

impl<T: KeyExtractor + ?Sized> KeyExtractor for Arc<T> {
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
        (**self).extract(head)
    }

    fn describe(&self) -> Cow<'static, str> {
        (**self).describe()
    }

    fn is_total(&self) -> bool {
        (**self).is_total()
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }
}

/// Counts all requests together; cannot miss.
///
/// The key of a rule that names none, for places where a key has to be named:
///
/// ```
/// use tower_sluice::key;
///
/// // Per user, and all requests without a user together.
/// let key = key::header("x-user-id").or(key::global());
/// assert_eq!(format!("{key:?}"), "KeyBy(header x-user-id or global)");
/// ```
pub fn global() -> KeyBy {
    KeyBy::global()
}

/// Counts per value of the header `name`; missing where there is none.
///
/// Of a repeated header the first line counts, without surrounding blanks; the bytes need not be
/// text. A name that is none is an error when the rule is built.
///
/// A header is an identity only where something in front of the service sets it.
///
/// ```
/// use tower_sluice::{Missing, Rule, TokenBucket, key};
///
/// let rule = Rule::new("per-key", TokenBucket::per_second(10))
///     .key(key::header("x-api-key"))
///     .missing(Missing::Skip);
/// # let _ = rule;
/// ```
pub fn header(name: impl AsRef<str>) -> KeyBy {
    match header_name("key.header", name.as_ref()) {
        Ok(name) => KeyBy::header(name),
        Err(error) => KeyBy::invalid(error),
    }
}

/// Counts per value of the cookie `name`; missing where there is none.
///
/// Reads what axum's `CookieJar` shows to a handler: percent-encoding undone, and the last of
/// several cookies of one name. A pair of double quotes around the value is dropped.
///
/// A cookie that is not signed is chosen by the caller.
///
/// ```
/// use tower_sluice::{Missing, Rule, TokenBucket, key};
///
/// let rule = Rule::new("per-session", TokenBucket::per_second(10))
///     .key(key::cookie("session"))
///     .missing(Missing::Skip);
/// # let _ = rule;
/// ```
pub fn cookie(name: impl AsRef<str>) -> KeyBy {
    let name = name.as_ref();
    let strange = |c: char| c.is_whitespace() || c.is_control() || "=;,\"".contains(c);
    if name.is_empty() || name.contains(strange) {
        return KeyBy::invalid(ConfigError::new(
            "key.cookie",
            format_args!("{name:?}"),
            "is no name of a cookie, so that no request would have it",
        ));
    }
    KeyBy::cookie(name)
}

/// Counts per route pattern, such as `/users/{id}`; cannot miss.
///
/// Reads axum's `MatchedPath`, and nothing else. Requests that no route matched share one key.
/// Around a router, where nothing is matched yet, all requests share one key too: put the layer on
/// the router with `Router::layer` or `Router::route_layer`.
///
/// ```
/// use tower_sluice::{Rule, TokenBucket, key};
///
/// let rule = Rule::new("per-route", TokenBucket::per_second(10)).key(key::route());
/// # let _ = rule;
/// ```
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub fn route() -> KeyBy {
    KeyBy::route()
}

/// Counts per value of the path parameter `name`, without braces; missing where the route has none.
///
/// The value is cut out of the path as the client sent it by the pattern that axum matched, nested
/// routers included, and percent-encoding is undone. Of `{*rest}`, the name is `rest`.
///
/// ```
/// use tower_sluice::{Missing, Rule, TokenBucket, key};
///
/// // With the route "/tenants/{tenant}/orders".
/// let rule = Rule::new("per-tenant", TokenBucket::per_second(10))
///     .key(key::path_param("tenant"))
///     .missing(Missing::Skip);
/// # let _ = rule;
/// ```
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub fn path_param(name: impl AsRef<str>) -> KeyBy {
    let name = name.as_ref();
    if name.is_empty() || name.contains(['{', '}', '*', '/']) {
        return KeyBy::invalid(ConfigError::new(
            "key.path_param",
            format_args!("{name:?}"),
            "write the parameter's name alone: \"id\" for \"/users/{id}\", \"rest\" for \"/{*rest}\"",
        ));
    }
    KeyBy::path_param(name)
}

/// Counts per what `key` reads from the extension of type `T`; missing where the request has none.
///
/// The one to prefer: an auth layer in front puts the caller into the request's extensions, and
/// nobody can invent it.
///
/// ```
/// use tower_sluice::{Key, Missing, Rule, TokenBucket, key};
///
/// #[derive(Clone)]
/// struct Caller { account: u64 }
///
/// let rule = Rule::new("per-account", TokenBucket::per_second(10))
///     .key(key::extension(|caller: &Caller| Key::from(caller.account)))
///     .missing(Missing::Skip);
/// # let _ = rule;
/// ```
pub fn extension<T, F>(key: F) -> KeyBy
where
    T: Send + Sync + 'static,
    F: for<'a> Fn(&'a T) -> Key<'a> + Send + Sync + 'static,
{
    KeyBy::custom(closure::Extension::new(key))
}

/// Counts per client address; cannot miss.
///
/// Without settings: per peer address, IPv6 by /64. See [`ClientIp`] for services behind a proxy.
///
/// ```
/// use tower_sluice::{Rule, TokenBucket, key};
///
/// let rule = Rule::new("per-address", TokenBucket::per_second(10)).key(key::client_ip());
/// # let _ = rule;
/// ```
pub fn client_ip() -> ClientIp {
    ClientIp::new()
}

/// Counts per key that `extract` borrows from the head; missing where it returns `None`.
///
/// ```
/// use tower_sluice::{Key, Missing, Rule, TokenBucket, key};
///
/// let rule = Rule::new("per-host", TokenBucket::per_second(10))
///     .key(key::from_fn(|head| head.uri().host().map(Key::from)))
///     .missing(Missing::Skip);
/// # let _ = rule;
/// ```
pub fn from_fn<F>(extract: F) -> KeyBy
where
    F: for<'a> Fn(&Head<'a>) -> Option<Key<'a>> + Send + Sync + 'static,
{
    KeyBy::custom(closure::Borrows(extract))
}

/// Counts per value that `extract` makes from the head; missing where it returns `None`.
///
/// For keys that are computed: a `String`, a `u64`, an `IpAddr`.
///
/// ```
/// use tower_sluice::{Missing, Rule, TokenBucket, key};
///
/// let rule = Rule::new("per-tenant", TokenBucket::per_second(10))
///     .key(key::from_owned(|head| head.header_str("x-tenant").map(str::to_lowercase)))
///     .missing(Missing::Skip);
/// # let _ = rule;
/// ```
pub fn from_owned<F, K>(extract: F) -> KeyBy
where
    F: Fn(&Head<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key<'static>>,
{
    from_fn(move |head| extract(head).map(Into::into))
}

/// Counts per key that `extract` borrows from the head; cannot miss, since it always returns one.
///
/// An empty key is a key like any other here.
///
/// ```
/// use tower_sluice::{Key, Rule, TokenBucket, key};
///
/// let rule = Rule::new("per-method", TokenBucket::per_second(10))
///     .key(key::always(|head| Key::from(head.method().as_str())));
/// # let _ = rule;
/// ```
pub fn always<F>(extract: F) -> KeyBy
where
    F: for<'a> Fn(&Head<'a>) -> Key<'a> + Send + Sync + 'static,
{
    KeyBy::custom(closure::Always(extract))
}

/// `name` as a header name, or what is wrong with it.
pub(crate) fn header_name(field: &'static str, name: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        ConfigError::new(
            field,
            format_args!("{name:?}"),
            "not a header name: letters, digits and -_.",
        )
    })
}

/// Whether nothing but ASCII blanks is left, which counts as missing.
#[inline]
fn is_blank(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().is_empty()
}
