//! [`Head`]: what a rule sees of a request.

use http::{Extensions, HeaderMap, HeaderName, Method, Request, Uri, Version};

/// A borrowed view of a request's head: everything but the body.
///
/// Matchers, key extractors, cost functions and responders get one. It is `Copy`, and what its
/// accessors return lives as long as the request's head, not as long as the view.
///
/// ```
/// use http::Request;
/// use tower_sluice::Head;
///
/// let request = Request::get("/orders?page=2").header("x-tenant", "acme").body(()).unwrap();
/// let head = Head::of(&request);
/// assert_eq!(head.path(), "/orders");
/// assert_eq!(head.header_str("x-tenant"), Some("acme"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// The head of `request`.
    #[inline]
    #[must_use]
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The URI as this service sees it; inside `nest` axum has cut the prefix off.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The path of [`uri`](Self::uri), as sent: neither decoded nor normalised.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.uri.path()
    }

    /// The HTTP version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The first line of the header `name`, if it is visible ASCII.
    #[must_use]
    pub fn header_str(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The bytes of the first line of the header `name`, without surrounding blanks; `None` where
    /// nothing is left.
    pub(crate) fn header_bytes(&self, name: &HeaderName) -> Option<&'a [u8]> {
        let bytes = self.headers.get(name)?.as_bytes().trim_ascii();
        (!bytes.is_empty()).then_some(bytes)
    }

    /// The request's extensions.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The extension of type `T`.
    #[must_use]
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions.get()
    }
}
