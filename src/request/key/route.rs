//! What axum says about the route of a request: its pattern, and its parameters' values.

#[cfg(feature = "axum")]
use std::borrow::Cow;

#[cfg(feature = "axum")]
use axum::extract::{MatchedPath, OriginalUri};
#[cfg(feature = "axum")]
use percent_encoding::percent_decode;

use crate::Head;

/// Where in a router a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "axum"), allow(dead_code))]
pub(crate) enum RouteState {
    /// A route matched; there is a pattern.
    Matched,
    /// Inside a router, and no route matched, or `nest_service` hides its pattern.
    Unmatched,
    /// Not inside a router, or in none that we know of.
    Outside,
}

/// Where in a router the request with this head is. Without the feature `axum`: always outside.
#[inline]
pub(crate) fn route_state(head: &Head<'_>) -> RouteState {
    #[cfg(feature = "axum")]
    {
        if head.extensions().get::<MatchedPath>().is_some() {
            return RouteState::Matched;
        }
        // The router sets it before it looks for a route.
        if head.extensions().get::<OriginalUri>().is_some() {
            return RouteState::Unmatched;
        }
    }
    let _ = head;
    RouteState::Outside
}

/// The pattern that axum matched.
#[cfg(feature = "axum")]
#[inline]
pub(crate) fn pattern<'a>(head: &Head<'a>) -> Option<&'a str> {
    head.extensions().get::<MatchedPath>().map(MatchedPath::as_str)
}

/// The key of `key::route`. Patterns start with a slash, and the other two keys do not.
#[cfg(feature = "axum")]
#[inline]
pub(super) fn key<'a>(head: &Head<'a>) -> &'a [u8] {
    match pattern(head) {
        Some(pattern) => pattern.as_bytes(),
        None if route_state(head) == RouteState::Unmatched => b"unmatched",
        None => b"outside",
    }
}

/// The decoded value of the path parameter `name`, unless it is blank.
///
/// axum keeps its parsed parameters to itself, so the value is cut out of the path once more.
#[cfg(feature = "axum")]
pub(super) fn param<'a>(name: &str, head: &Head<'a>) -> Option<Cow<'a, [u8]>> {
    let pattern = pattern(head)?;
    // Inside nested routers the URI has lost its prefix, while the pattern is whole.
    let path = head.extensions().get::<OriginalUri>().map_or(head.path(), |uri| uri.path());
    let value = Cow::from(percent_decode(cut(pattern, path, name)?.as_bytes()));
    (!super::is_blank(&value)).then_some(value)
}

/// The text that `{name}` or `{*name}` in `pattern` stands for in `path`.
#[cfg(feature = "axum")]
fn cut<'a>(pattern: &str, path: &'a str, name: &str) -> Option<&'a str> {
    let (mut pattern, mut path) = (pattern, path);
    loop {
        // Text up to the parameter; braces that mean themselves are doubled.
        let brace = pattern.find(['{', '}'])?;
        let (text, rest) = pattern.split_at(brace);
        path = path.strip_prefix(text)?;
        if rest.starts_with("{{") || rest.starts_with("}}") {
            path = path.strip_prefix(&rest[..1])?;
            pattern = &rest[2..];
            continue;
        }
        let (parameter, rest) = rest.strip_prefix('{')?.split_once('}')?;
        if let Some(parameter) = parameter.strip_prefix('*') {
            return (parameter == name).then_some(path);
        }
        // A parameter reaches to the end of its segment: matchit 0.8 knows no suffixes.
        let (value, after) = path.split_at(path.find('/').unwrap_or(path.len()));
        if parameter == name {
            return Some(value);
        }
        (pattern, path) = (rest, after);
    }
}

#[cfg(all(test, feature = "axum"))]
mod tests {
    use axum::{Router, body::Body, middleware, routing::get};
    use http::Request;
    use tower::ServiceExt;

    use super::*;

    #[test]
    fn parameters_are_cut_out_by_the_pattern() {
        for (pattern, path, name, value) in [
            ("/users/{id}", "/users/7", "id", Some("7")),
            ("/users/{id}/posts/{post}", "/users/7/posts/8", "id", Some("7")),
            ("/users/{id}/posts/{post}", "/users/7/posts/8", "post", Some("8")),
            ("/users/{id}/", "/users/7/", "id", Some("7")),
            ("/files/{*rest}", "/files/a/b.txt", "rest", Some("a/b.txt")),
            ("/{tenant}/files/{*rest}", "/t/files/a/b", "rest", Some("a/b")),
            ("/user_{name}", "/user_ann", "name", Some("ann")),
            ("/{{id}}/{id}", "/{id}/7", "id", Some("7")),
            ("/a}}b{{/{id}", "/a}b{/7", "id", Some("7")),
            ("/users/{id}", "/users/7", "user", None),
            ("/users/{id}", "/other/7", "id", None),
            ("/users", "/users", "id", None),
            ("/users/{id", "/users/7", "id", None),
            ("", "", "id", None),
        ] {
            assert_eq!(cut(pattern, path, name), value, "{name} in {pattern} of {path}");
        }
    }

    /// What `key` and the parameter `id` are behind `app`, as a layer on the route sees them.
    async fn seen(app: Router, path: &str) -> String {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        response.headers()["x-seen"].to_str().unwrap().to_owned()
    }

    async fn see(
        request: axum::extract::Request,
        next: middleware::Next,
    ) -> axum::response::Response {
        let head = Head::of(&request);
        let key = String::from_utf8_lossy(key(&head)).into_owned();
        let id = param("id", &head).map(|value| String::from_utf8_lossy(&value).into_owned());
        let mut response = next.run(request).await;
        let seen = format!("{key} {}", id.unwrap_or_default());
        response.headers_mut().insert("x-seen", seen.parse().unwrap());
        response
    }

    #[tokio::test]
    async fn nested_routers_have_the_whole_pattern_and_path() {
        let inner = Router::new().route("/{id}", get(|| async {})).layer(middleware::from_fn(see));
        let nested = Router::new().nest("/{tenant}/users", inner.clone());
        assert_eq!(seen(nested, "/t/users/a%2Fb?x=1").await, "/{tenant}/users/{id} a/b");
        let service = Router::new().nest_service("/api/{tenant}", inner.clone());
        assert_eq!(seen(service, "/api/t/7").await, "/api/{tenant}/{id} 7");
        assert_eq!(seen(inner.clone(), "/%20").await, "/{id} ");
        assert_eq!(seen(inner, "/a/b/c").await, "unmatched ");
    }

    #[tokio::test]
    async fn around_the_router_all_requests_are_outside() {
        let inner = Router::new().route("/{id}", get(|| async {}));
        let around = tower::Layer::layer(&middleware::from_fn(see), inner);
        let request = Request::get("/7").body(Body::empty()).unwrap();
        let response = around.oneshot(request).await.unwrap();
        assert_eq!(response.headers()["x-seen"], "outside ");
    }
}
