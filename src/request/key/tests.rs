//! How keys are found and combined.

use http::Request;

use super::*;

/// Parts one after the other, with their lengths.
#[derive(Default)]
struct Parts(Vec<Vec<u8>>);

impl KeySink for Parts {
    fn part(&mut self, bytes: &[u8]) {
        self.0.push(bytes.to_vec());
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Alternative, factor and parts of `key` in a request with these headers.
fn fed(key: &KeyBy, headers: &[(&str, &[u8])]) -> Option<(u8, u64, Vec<String>)> {
    key.validate().unwrap();
    let mut request = Request::get("/path").body(()).unwrap();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, http::HeaderValue::from_bytes(value).unwrap());
    }
    let head = Head::of(&request);
    let mut parts = Parts::default();
    let found = key.feed(&head, &mut parts);
    assert_eq!(key.extract(&head).is_some(), found.is_some(), "extract agrees");
    assert!(found.is_some() || parts.0.is_empty(), "missing leaves nothing behind");
    let text = parts.0.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    found.map(|found| (found.alternative, found.factor, text))
}

fn some(alternative: u8, factor: u64, parts: &[&str]) -> Option<(u8, u64, Vec<String>)> {
    Some((alternative, factor, parts.iter().map(|part| (*part).to_owned()).collect()))
}

#[test]
fn headers_count_by_their_first_line_and_blank_is_missing() {
    let key = header("X-User");
    assert_eq!(fed(&key, &[("x-user", b"ann"), ("x-user", b"bob")]), some(0, 1, &["ann"]));
    assert_eq!(fed(&key, &[("x-user", b" ann\t")]), some(0, 1, &["ann"]));
    assert!(fed(&key, &[("x-user", b"\xff\xfe")]).is_some());
    assert_eq!(fed(&key, &[("x-user", b""), ("x-user", b"bob")]), None);
    assert_eq!(fed(&key, &[("x-user", b"  \t")]), None);
    assert_eq!(fed(&key, &[]), None);
}

#[test]
fn closures_and_extensions_are_keys() {
    #[derive(Clone)]
    struct User(String);
    let mut request = Request::get("/path").body(()).unwrap();
    let by_user = extension(|user: &User| Key::from(&user.0));
    assert_eq!(by_user.extract(&Head::of(&request)), None);
    request.extensions_mut().insert(User("ann".into()));
    assert_eq!(by_user.extract(&Head::of(&request)), Some(Key::from("ann")));
    request.extensions_mut().insert(User(" ".into()));
    assert_eq!(by_user.extract(&Head::of(&request)), None);

    assert_eq!(fed(&from_fn(|head| Some(Key::from(head.path()))), &[]), some(0, 1, &["/path"]));
    assert_eq!(fed(&from_fn(|_| Some(Key::from(" "))), &[]), None);
    assert_eq!(fed(&from_owned(|head| Some(head.path().len() as u64)), &[]).unwrap().1, 1);
    assert_eq!(fed(&from_owned(|_| Some(String::new())), &[]), None);
    // What cannot miss does not.
    assert_eq!(fed(&always(|_| Key::GLOBAL), &[]), some(0, 1, &[""]));
    assert_eq!(fed(&global(), &[]), some(0, 1, &[""]));
}

#[test]
fn alternatives_are_numbered_over_the_whole_tree() {
    let a = || header("a");
    let key = a().or(header("b").or(header("c")).relaxed(2)).or(global().relaxed(3)).relaxed(5);
    assert_eq!(key.factors(), [5, 10, 10, 15]);
    assert_eq!(fed(&key, &[("a", b"x"), ("b", b"y")]), some(0, 5, &["x"]));
    assert_eq!(fed(&key, &[("b", b"x")]), some(1, 10, &["x"]));
    assert_eq!(fed(&key, &[("c", b"x")]), some(2, 10, &["x"]));
    assert_eq!(fed(&key, &[]), some(3, 15, &[""]));
}

#[test]
fn combinations_have_their_own_numbers_and_factors() {
    let key = header("a").or(header("b").relaxed(2)).and(header("c").or(header("d").relaxed(3)));
    assert_eq!(key.factors(), [1, 3, 2, 6]);
    for (first, second, alternative, factor) in
        [("a", "c", 0, 1), ("a", "d", 1, 3), ("b", "c", 2, 2), ("b", "d", 3, 6)]
    {
        let expected = some(alternative, factor, &["x", "y"]);
        assert_eq!(fed(&key, &[(first, b"x"), (second, b"y")]), expected);
    }
    assert_eq!(fed(&key, &[("a", b"x")]), None);
    assert_eq!(fed(&key, &[("c", b"x")]), None);
}

#[test]
fn an_alternative_that_fails_half_way_leaves_no_part() {
    let pair = || header("a").and(header("b"));
    assert_eq!(fed(&pair().or(header("c")), &[("a", b"x"), ("c", b"z")]), some(1, 1, &["z"]));
    let inner = header("t").and(pair().relaxed(2).or(header("c")));
    assert_eq!(fed(&inner, &[("t", b"t"), ("a", b"x"), ("c", b"z")]), some(1, 1, &["t", "z"]));
    let all: &[(&str, &[u8])] = &[("t", b"t"), ("a", b"x"), ("b", b"y"), ("c", b"z")];
    assert_eq!(fed(&inner, all), some(0, 2, &["t", "x", "y"]));
    assert_eq!(fed(&inner.or(global()), &[("t", b"t"), ("a", b"x")]), some(2, 1, &[""]));
}

#[test]
fn joined_keys_do_not_collide() {
    let mut request = Request::get("/").header("a", "1").header("b", "23").body(()).unwrap();
    let key = header("a").and(header("b"));
    let one = key.extract(&Head::of(&request)).unwrap().into_owned();
    request.headers_mut().insert("a", "12".parse().unwrap());
    request.headers_mut().insert("b", "3".parse().unwrap());
    assert_ne!(key.extract(&Head::of(&request)).unwrap(), one);
}

#[test]
fn totality_follows_the_combination() {
    assert!(global().is_total() && always(|_| Key::GLOBAL).is_total());
    assert!(KeyExtractor::is_total(&client_ip()) && client_ip().boxed().is_total());
    assert!(!header("a").is_total() && !from_fn(|_| None).is_total());
    assert!(header("a").or(client_ip()).relaxed(2).is_total());
    assert!(!header("a").and(client_ip()).is_total());
    assert!(client_ip().and(global()).is_total());
    let shared: Arc<dyn KeyExtractor> = Arc::new(client_ip());
    assert!(shared.boxed().is_total());
}

#[test]
fn what_cannot_miss_does_not() {
    struct Forgetful;
    impl KeyExtractor for Forgetful {
        fn extract<'a>(&'a self, _: &Head<'a>) -> Option<Key<'a>> {
            None
        }

        fn is_total(&self) -> bool {
            true
        }
    }
    assert_eq!(fed(&Forgetful.boxed(), &[]), some(0, 1, &[""]));
}

#[test]
fn keys_know_what_they_need() {
    assert!(header("a").or(client_ip().relaxed(2)).wants_peer());
    assert!(!header("a").wants_peer());
    assert!(!client_ip().boxed().proxy_configured());
    assert!(client_ip().x_forwarded_for().trusted_hops(1).and(global()).proxy_configured());
    assert!(!header("a").wants_route());
    #[cfg(feature = "axum")]
    assert!(header("a").and(route()).wants_route() && path_param("id").wants_route());
}

#[test]
fn mistakes_come_out_of_any_combination() {
    for (key, field) in [
        (header("no name"), "key.header"),
        (cookie(" "), "key.cookie"),
        (global().relaxed(0), "key.relaxed"),
        (global().relaxed(u64::MAX).relaxed(2), "key.relaxed"),
        (global().relaxed(u64::MAX).and(global().relaxed(2)), "key.relaxed"),
        (global().or(header("a").relaxed(u64::MAX)).relaxed(2), "key.relaxed"),
        (client_ip().x_forwarded_for().boxed(), "client_ip.header"),
        (Arc::new(client_ip().x_forwarded_for()).boxed(), "client_ip.header"),
        ((0..16).fold(header("a"), |key, _| key.or(header("b"))), "key.or"),
        ((0..9).fold(global(), |key, _| key.and(header("a").or(global()))), "key.or"),
        ((0..300).fold(global(), |key, _| key.or(global())), "key.or"),
    ] {
        assert_eq!(key.validate().unwrap_err().field(), field);
        let inside = header("a").and(key).relaxed(2).or(header("b"));
        assert_eq!(inside.validate().unwrap_err().field(), field);
        let first = inside.or(header("no name either")).validate().unwrap_err();
        assert_eq!(first.field(), field, "the first mistake is told");
    }
    assert!((0..15).fold(header("a"), |key, _| key.or(header("b"))).validate().is_ok());
    #[cfg(feature = "axum")]
    for name in ["", "{id}", "*rest", "a/b"] {
        assert_eq!(path_param(name).validate().unwrap_err().field(), "key.path_param");
    }
}

#[test]
fn keys_describe_themselves() {
    let key = header("a").or(cookie("b")).and(client_ip().relaxed(2)).relaxed(3);
    assert_eq!(
        key.describe(),
        "((header a or cookie b) and client_ip relaxed 2 times) relaxed 3 times"
    );
}
