//! Matchers: which requests a rule applies to.
//!
//! A rule takes a closure: `.when(|head| ..)`. The functions here make matchers that can be stored,
//! combined and described.
//!
//! ```
//! use http::{Method, Request};
//! use tower_sluice::{Head, matcher::{self, Matcher}};
//!
//! // Writes that do not come from our own network.
//! let foreign_writes = matcher::method(Method::POST)
//!     .or(matcher::method(Method::PUT))
//!     .and(matcher::network(["10.0.0.0/8"]).not());
//!
//! let request = Request::post("/orders").body(()).unwrap();
//! assert!(foreign_writes.matches(&Head::of(&request)));
//! ```

use std::{borrow::Cow, fmt, sync::Arc};

use http::{
    HeaderName, Method,
    header::{ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, ORIGIN},
};

#[cfg(feature = "axum")]
use super::key::{RouteState, route};
use super::key::{header_name, peer, trust::Networks};
use crate::{ConfigError, Head};

/// Says whether a request is concerned; implemented for closures over a [`Head`].
///
/// ```
/// use tower_sluice::{Rule, TokenBucket};
///
/// let rule = Rule::new("exports", TokenBucket::per_second(1))
///     .when(|head| head.path().ends_with("/export"));
/// # let _ = rule;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a matcher",
    note = "for a route write `matcher::path(\"/orders/{{id}}\")`, for a closure `matcher::from_fn(|head| ..)`"
)]
pub trait Matcher: Send + Sync + 'static {
    /// Whether the request with this head is concerned.
    ///
    /// Should be a pure function of the head; it runs on the request path.
    fn matches(&self, head: &Head<'_>) -> bool;

    /// What this asks, in a few words, for warnings and errors. Default: `custom`.
    fn describe(&self) -> Cow<'static, str> {
        "custom".into()
    }

    /// The same matcher as the one type that rules hold.
    fn boxed(self) -> Match
    where
        Self: Sized,
    {
        Match { kind: Kind::Custom(Arc::new(self)) }
    }
}

impl<F> Matcher for F
where
    F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
{
    fn matches(&self, head: &Head<'_>) -> bool {
        self(head)
    }

    fn describe(&self) -> Cow<'static, str> {
        "closure".into()
    }
}

/// A matcher of any kind, erased; the functions of [this module](self) return it.
///
/// Clones are cheap.
///
/// ```
/// use http::{Method, Request};
/// use tower_sluice::{Head, matcher::{self, Matcher}};
///
/// let reads = matcher::method(Method::GET).or(matcher::method(Method::HEAD));
/// let request = Request::get("/").body(()).unwrap();
/// assert!(reads.matches(&Head::of(&request)));
/// assert_eq!(format!("{reads:?}"), "Match(method GET or method HEAD)");
/// ```
#[derive(Clone)]
#[must_use]
pub struct Match {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Method(Method),
    #[cfg(feature = "axum")]
    Path(Arc<Pattern>),
    Header(Arc<(HeaderName, Box<[u8]>)>),
    Network(Arc<(Networks, String)>),
    Custom(Arc<dyn Matcher>),
    And(Arc<(Match, Match)>),
    Or(Arc<(Match, Match)>),
    Not(Arc<Match>),
    /// A mistake, reported when the rule is built.
    Invalid(Arc<ConfigError>),
}

#[cfg(feature = "axum")]
struct Pattern {
    text: String,
    /// The text before `{*rest}`, where the pattern ends in one.
    prefix: Option<String>,
}

/// Requests with this method.
///
/// ```
/// use http::Method;
/// use tower_sluice::{Rule, TokenBucket, matcher};
///
/// // Everything but reads.
/// let reads = matcher::method(Method::GET).or(matcher::method(Method::HEAD));
/// let writes = Rule::new("writes", TokenBucket::per_second(50)).matching(reads.not());
/// # let _ = writes;
/// ```
pub fn method(method: Method) -> Match {
    Match { kind: Kind::Method(method) }
}

/// Requests that axum matched to the route `pattern`, written as in the router: `/users/{id}`.
///
/// A pattern that ends in `{*rest}` stands for all patterns that start like it: `/api/{*rest}` for
/// `/api/users/{id}`. Inside nested routers, write the whole pattern, prefix included.
///
/// Reads axum's `MatchedPath`, and nothing else. A request that no route matched is not concerned.
/// Around a router, where nothing is matched yet, the matcher cannot tell: a rule with it applies
/// to every request rather than to none. Put the layer on the router with `Router::layer` or
/// `Router::route_layer`.
///
/// A pattern that no route can have (without a leading slash, say) is an error when the rule is
/// built.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_sluice::{FixedWindow, RateLimitLayer, Rule, matcher};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let exports = Rule::new("exports", FixedWindow::per_day(1)).matching(matcher::path("/export/{id}"));
/// let app: Router = Router::new()
///     .route("/export/{id}", get(|| async {}))
///     .route("/orders", get(|| async {}))
///     .layer(RateLimitLayer::builder().rule(exports).build()?); // inside the router
///
/// for (path, expected) in [("/export/1", 200), ("/export/2", 429), ("/orders", 200)] {
///     let answer = app.clone().oneshot(Request::get(path).body(Body::empty())?).await?;
///     assert_eq!(answer.status(), expected, "{path}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub fn path(pattern: impl Into<String>) -> Match {
    let text = pattern.into();
    let kind = match mistake_in(&text) {
        Some(reason) => Kind::Invalid(Arc::new(ConfigError::new(
            "matcher.path",
            format_args!("{text:?}"),
            reason,
        ))),
        None => {
            let start = text.rfind("{*").filter(|at| is_parameter(&text, *at));
            let prefix = start.map(|at| text[..at].to_owned());
            Kind::Path(Arc::new(Pattern { text, prefix }))
        }
    };
    Match { kind }
}

/// Requests whose header `name` is `value`, byte by byte and without surrounding blanks.
///
/// Of a repeated header the first line counts. A name that is none is an error when the rule is
/// built.
///
/// ```
/// use tower_sluice::{Rule, TokenBucket, matcher};
///
/// let batch = Rule::new("batch", TokenBucket::per_minute(10))
///     .matching(matcher::header("x-priority", "batch"));
/// # let _ = batch;
/// ```
pub fn header(name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Match {
    let kind = match header_name("matcher.header", name.as_ref()) {
        Ok(name) => Kind::Header(Arc::new((name, value.as_ref().trim_ascii().into()))),
        Err(error) => Kind::Invalid(Arc::new(error)),
    };
    Match { kind }
}

/// Requests whose peer address is in one of these networks: CIDRs, or single addresses.
///
/// The peer is who connects to us; behind a proxy, that is the proxy, and no header changes it. A
/// request without a peer address is in no network. Text that is no network is an error when the
/// rule is built.
///
/// So do not exempt the network that your proxy stands in: that exempts everybody behind it.
///
/// ```
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, matcher};
///
/// // Nothing forwards to us; our own machines are not limited.
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("all", TokenBucket::per_second(500)))
///     .exempt_matching(matcher::network(["10.0.0.0/8", "fd00::/8", "192.0.2.7"]))
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
pub fn network<I>(networks: I) -> Match
where
    I: IntoIterator<Item: AsRef<str>>,
{
    let mut text = Vec::new();
    let networks = networks.into_iter().inspect(|network| text.push(network.as_ref().to_owned()));
    let kind = match Networks::parse("matcher.network", networks) {
        Ok(networks) => Kind::Network(Arc::new((networks, text.join(", ")))),
        Err(error) => Kind::Invalid(Arc::new(error)),
    };
    Match { kind }
}

/// Requests for which `matches` returns `true`.
///
/// ```
/// use tower_sluice::matcher;
///
/// let large = matcher::from_fn(|head| head.uri().query().is_some_and(|query| query.len() > 1000));
/// # let _ = large;
/// ```
pub fn from_fn<F>(matches: F) -> Match
where
    F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
{
    matches.boxed()
}

impl Match {
    /// Requests that both this and `other` concern.
    pub fn and(self, other: impl Matcher) -> Self {
        self.combined(other, Kind::And)
    }

    /// Requests that this or `other` concerns.
    pub fn or(self, other: impl Matcher) -> Self {
        self.combined(other, Kind::Or)
    }

    /// Requests that this does not concern.
    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> Self {
        match self.kind {
            Kind::Invalid(_) => self,
            _ => Self { kind: Kind::Not(Arc::new(self)) },
        }
    }

    /// Whether the request is concerned; `None` where a path pattern would have to decide and the
    /// layer stands around the router, or a network and there is no peer address.
    ///
    /// A rule takes `None` for yes, so that a limit which cannot tell does not vanish. What takes
    /// requests *out* of limits has to take it for no.
    pub(crate) fn decide(&self, head: &Head<'_>) -> Option<bool> {
        match &self.kind {
            Kind::Method(method) => Some(head.method() == method),
            #[cfg(feature = "axum")]
            Kind::Path(pattern) => pattern.decide(head),
            Kind::Header(pair) => Some(
                head.headers()
                    .get(&pair.0)
                    .is_some_and(|value| value.as_bytes().trim_ascii() == &*pair.1),
            ),
            // Without a peer nobody can tell.
            Kind::Network(networks) => peer(head).map(|address| networks.0.contain(address)),
            Kind::Custom(matcher) => Some(matcher.matches(head)),
            // Kleene's logic: what one side settles, the other need not know.
            Kind::And(both) => match both.0.decide(head) {
                Some(false) => Some(false),
                Some(true) => both.1.decide(head),
                None => both.1.decide(head).filter(|second| !second),
            },
            Kind::Or(both) => match both.0.decide(head) {
                Some(true) => Some(true),
                Some(false) => both.1.decide(head),
                None => both.1.decide(head).filter(|second| *second),
            },
            Kind::Not(inner) => inner.decide(head).map(|matches| !matches),
            Kind::Invalid(_) => None,
        }
    }

    /// What is wrong with this matcher, if anything.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match &self.kind {
            Kind::Invalid(error) => Err((**error).clone()),
            _ => Ok(()),
        }
    }

    /// Whether this is about the peer address, and the request has none.
    pub(crate) fn lacks_peer(&self, head: &Head<'_>) -> bool {
        self.wants_peer() && peer(head).is_none()
    }

    /// Whether the peer address matters.
    pub(crate) fn wants_peer(&self) -> bool {
        match &self.kind {
            Kind::Network(_) => true,
            Kind::And(both) | Kind::Or(both) => both.0.wants_peer() || both.1.wants_peer(),
            Kind::Not(inner) => inner.wants_peer(),
            _ => false,
        }
    }

    /// Whether the route that axum matched matters.
    pub(crate) fn wants_route(&self) -> bool {
        match &self.kind {
            #[cfg(feature = "axum")]
            Kind::Path(_) => true,
            Kind::And(both) | Kind::Or(both) => both.0.wants_route() || both.1.wants_route(),
            Kind::Not(inner) => inner.wants_route(),
            _ => false,
        }
    }

    fn combined(self, other: impl Matcher, kind: fn(Arc<(Self, Self)>) -> Kind) -> Self {
        let other = other.boxed();
        match (&self.kind, &other.kind) {
            (Kind::Invalid(_), _) => self,
            (_, Kind::Invalid(_)) => other,
            _ => Self { kind: kind(Arc::new((self, other))) },
        }
    }

    /// `describe`, in parentheses where it needs them inside another matcher.
    fn nested(&self) -> Cow<'static, str> {
        match &self.kind {
            Kind::And(_) | Kind::Or(_) => format!("({})", self.describe()).into(),
            _ => self.describe(),
        }
    }
}

impl Matcher for Match {
    #[inline]
    fn matches(&self, head: &Head<'_>) -> bool {
        self.decide(head) != Some(false)
    }

    fn describe(&self) -> Cow<'static, str> {
        match &self.kind {
            Kind::Method(method) => format!("method {method}").into(),
            #[cfg(feature = "axum")]
            Kind::Path(pattern) => format!("path {}", pattern.text).into(),
            // The value may be a secret.
            Kind::Header(pair) => format!("header {}", pair.0).into(),
            Kind::Network(networks) => format!("network {}", networks.1).into(),
            Kind::Custom(matcher) => matcher.describe(),
            Kind::And(both) => format!("{} and {}", both.0.nested(), both.1.nested()).into(),
            Kind::Or(both) => format!("{} or {}", both.0.nested(), both.1.nested()).into(),
            Kind::Not(inner) => format!("not {}", inner.nested()).into(),
            Kind::Invalid(_) => "invalid".into(),
        }
    }

    fn boxed(self) -> Match {
        self
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Match({})", self.describe())
    }
}

#[cfg(feature = "axum")]
impl Pattern {
    fn decide(&self, head: &Head<'_>) -> Option<bool> {
        match (route::pattern(head), &self.prefix) {
            (Some(matched), Some(prefix)) => Some(matched.starts_with(prefix)),
            (Some(matched), None) => Some(matched == self.text),
            (None, _) if route::route_state(head) == RouteState::Unmatched => Some(false),
            (None, _) => None,
        }
    }
}

/// Why no route of axum 0.8 can have this pattern, if so.
#[cfg(feature = "axum")]
fn mistake_in(pattern: &str) -> Option<&'static str> {
    if !pattern.starts_with('/') {
        return Some("must start with a slash, as in the router: \"/users/{id}\"");
    }
    if pattern.contains(['?', '#']) {
        return Some("the path alone: a route has neither query nor fragment");
    }
    if pattern.split('/').any(|segment| segment.starts_with([':', '*'])) {
        return Some("write parameters as axum 0.8 does: \"{id}\", \"{*rest}\"");
    }
    let mut rest = pattern;
    while let Some(brace) = rest.find(['{', '}']) {
        rest = &rest[brace..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            rest = &rest[2..];
            continue;
        }
        let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        else {
            return Some("braces do not close; double those that mean themselves");
        };
        let plain = name.strip_prefix('*').unwrap_or(name);
        if plain.is_empty() || plain.contains(['{', '*', '/']) {
            return Some("a parameter has a name: \"{id}\", \"{*rest}\"");
        }
        if name.starts_with('*') && !after.is_empty() {
            return Some("nothing can follow {*rest}");
        }
        rest = after;
    }
    None
}

/// Whether the brace at `at` opens a parameter: one that means itself is doubled.
#[cfg(feature = "axum")]
fn is_parameter(pattern: &str, at: usize) -> bool {
    pattern[..at].bytes().rev().take_while(|byte| *byte == b'{').count() % 2 == 0
}

/// Whether this is a true preflight or a health check of gRPC. By the method first: most requests are
/// neither OPTIONS nor POST, the only one that gRPC has.
#[inline]
pub(crate) fn is_exempt_by_default(head: &Head<'_>) -> bool {
    match *head.method() {
        Method::OPTIONS => is_preflight(head),
        Method::POST => is_grpc_health(head),
        _ => false,
    }
}

/// Whether this is a CORS preflight, which a browser sends before the request it is about.
fn is_preflight(head: &Head<'_>) -> bool {
    head.headers().contains_key(ORIGIN)
        && head.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Whether this is a health check of gRPC.
fn is_grpc_health(head: &Head<'_>) -> bool {
    matches!(head.path(), "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/Watch")
        && head
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::Request;

    use super::*;

    #[test]
    fn methods_headers_and_networks_match() {
        let mut request = Request::post("/").header("x-kind", "bulk").body(()).unwrap();
        request.headers_mut().append("x-kind", "other".parse().unwrap());
        let matches = |request: &Request<()>, matcher: Match| matcher.matches(&Head::of(request));
        assert!(matches(&request, method(Method::POST)) && !matches(&request, method(Method::GET)));
        assert!(matches(&request, header("X-Kind", " bulk")));
        assert!(!matches(&request, header("x-kind", "other")), "the first line counts");
        assert!(!matches(&request, header("x-none", "")));
        let local = network(["10.0.0.0/8", "::1"]);
        assert_eq!(local.decide(&Head::of(&request)), None, "without a peer nobody can tell");
        assert_eq!(local.clone().not().decide(&Head::of(&request)), None);
        assert!(local.lacks_peer(&Head::of(&request)));
        request.extensions_mut().insert(SocketAddr::from(([10, 1, 1, 1], 1)));
        assert!(matches(&request, local.clone()));
        assert!(!matches(&request, local.clone().not()));
        assert!(matches(&request, local.clone().and(|head: &Head<'_>| head.path() == "/")));
        assert!(matches(&request, method(Method::GET).or(local)));
        let shared: Arc<dyn Matcher> = Arc::new(from_fn(|_| false));
        assert!(!matches(&request, from_fn(move |head| shared.matches(head))));
    }

    #[test]
    fn mistakes_come_out_of_any_combination() {
        for (matcher, field) in [
            (header("no name", ""), "matcher.header"),
            (network(["10.0.0.0/33"]), "matcher.network"),
            (network([""; 0]), "matcher.network"),
        ] {
            assert_eq!(matcher.validate().unwrap_err().field(), field);
            let inside = method(Method::GET).and(matcher.not()).or(header("no name either", ""));
            assert_eq!(inside.validate().unwrap_err().field(), field);
        }
        assert!(method(Method::GET).validate().is_ok());
    }

    #[test]
    fn preflights_and_health_checks_are_recognised() {
        let mut request = Request::options("/grpc.health.v1.Health/Check").body(()).unwrap();
        assert!(!is_exempt_by_default(&Head::of(&request)));
        request.headers_mut().insert(ORIGIN, "https://a.example".parse().unwrap());
        assert!(!is_exempt_by_default(&Head::of(&request)));
        request.headers_mut().insert(ACCESS_CONTROL_REQUEST_METHOD, "PUT".parse().unwrap());
        assert!(is_exempt_by_default(&Head::of(&request)));
        *request.method_mut() = Method::GET;
        assert!(!is_exempt_by_default(&Head::of(&request)));
        *request.method_mut() = Method::POST;
        assert!(!is_exempt_by_default(&Head::of(&request)), "not of gRPC");
        request.headers_mut().insert(CONTENT_TYPE, "application/grpc+proto".parse().unwrap());
        assert!(is_exempt_by_default(&Head::of(&request)));
        for path in ["/health", "/grpc.health.v1.Health/Login", "/grpc.health.v1.Health/../x"] {
            *request.uri_mut() = path.parse().unwrap();
            assert!(!is_exempt_by_default(&Head::of(&request)), "{path}");
        }
    }

    #[cfg(feature = "axum")]
    #[tokio::test]
    async fn paths_match_by_pattern_alone() {
        use axum::{Router, body::Body, extract::Request, middleware, routing::get};
        use tower::ServiceExt;

        // What each matcher decides on `uri`, on a layer inside the router or around it.
        async fn decided(uri: &str, inside: bool) -> Vec<Option<bool>> {
            let see = |request: Request, _: middleware::Next| async move {
                let decisions =
                    ["/api/users/{id}", "/api/{*rest}", "/{*rest}", "/api/users/{user}"]
                        .map(|pattern| path(pattern).decide(&Head::of(&request)));
                let one =
                    path("/health").not().and(method(Method::GET)).decide(&Head::of(&request));
                axum::response::Response::new(Body::from(format!("{decisions:?}{one:?}")))
            };
            let see = middleware::from_fn(see);
            let routes = Router::new().route("/users/{id}", get(|| async {}));
            let app = Router::new().nest("/api", routes);
            let request = Request::get(uri).body(Body::empty()).unwrap();
            let response = if inside {
                app.layer(see).oneshot(request).await.unwrap()
            } else {
                tower::Layer::layer(&see, app).oneshot(request).await.unwrap()
            };
            let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap().replace(['[', ']'], " ");
            let words = text.replace(',', " ");
            words
                .split_whitespace()
                .map(|word| match word {
                    "None" => None,
                    word => Some(word == "Some(true)"),
                })
                .collect()
        }
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(decided("/api/users/7", true).await, [yes, yes, yes, no, yes]);
        assert_eq!(decided("/api/other", true).await, [no, no, no, no, yes]);
        assert_eq!(decided("/api/users/7", false).await, [None; 5]);
        let request = http::Request::get("/").body(()).unwrap();
        assert!(path("/a").matches(&Head::of(&request)) && path("/a").wants_route());
        assert!(path("/a").not().matches(&Head::of(&request)), "a limit does not vanish");
    }

    #[cfg(feature = "axum")]
    #[test]
    fn patterns_that_no_route_has_are_errors() {
        for wrong in [
            "",
            "api",
            "/a?b",
            "/:id",
            "/*rest",
            "/{id",
            "/id}",
            "/{}",
            "/{*}",
            "/{*rest}/a",
            "/{a/b}",
            "/{*rest}x",
            "/{{{id}}",
            "/{{}",
        ] {
            let error = path(wrong).validate().unwrap_err();
            assert_eq!(error.field(), "matcher.path", "{wrong}");
        }
        for right in ["/", "/a:b", "/{id}", "/a/{id}/", "/{*rest}", "/{{id}}", "/{{{id}", "/x{*r}"]
        {
            assert!(path(right).validate().is_ok(), "{right}");
        }
    }
}
