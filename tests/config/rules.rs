//! Names, keys, matchers and statuses.

use http::StatusCode;
use tower_sluice::{
    FixedWindow, Key, LeakyBucket, ManualClock, Missing, RateLimitLayer, Rule, TokenBucket,
    key::{self, KeyExtractor},
    matcher,
    testing::ScriptedBackend,
};

use crate::support::{assert_names, assert_refused, error_of, right, rule};

#[test]
fn names_that_are_none_are_quoted() {
    let long = "x".repeat(65);
    for name in
        ["", " ", "1a", "-a", "_a", "a b", "a/b", "a\"", "a\n", "\u{e4}", "a\u{e4}", "a,b", &long]
    {
        let error = error_of([right(name)]);
        assert_eq!((error.rule(), error.field()), (Some(name), "name"));
        assert_eq!(error.value(), format!("{name:?}"));
        assert_eq!(TokenBucket::per_second(10).limiter().name(name).build().unwrap_err(), error);
        let keyed = TokenBucket::per_second(10).keyed_limiter();
        assert_eq!(keyed.name(name).build().unwrap_err(), error);
    }
    let longest = "x".repeat(64);
    for name in ["a", "A", "per-user", "a.b_c-9", &longest] {
        assert!(RateLimitLayer::builder().rule(right(name)).build().is_ok(), "{name}");
        assert!(TokenBucket::per_second(10).limiter().name(name).build().is_ok(), "{name}");
    }
}

#[test]
fn names_that_occur_twice_are_refused() {
    let error = error_of([right("a"), right("b"), right("a").cost(5)]);
    assert_names(&error, "a", "name", "\"a\"");
    let limiter = TokenBucket::per_second(10).limiter().name("shared").build().unwrap();
    let error = error_of([Rule::on(limiter.clone()), Rule::on(limiter)]);
    assert_names(&error, "shared", "name", "\"shared\"");
}

#[test]
fn keys_that_can_be_missing_need_a_word_on_it() {
    #[derive(Clone)]
    struct User(String);

    for (key, described) in [
        (key::header("x-user-id"), "header x-user-id"),
        (key::cookie("session"), "cookie session"),
        (key::path_param("id"), "path parameter id"),
        (key::extension(|user: &User| Key::from(&user.0)), "extension"),
        (key::from_fn(|head| head.uri().host().map(Key::from)), "custom"),
        (key::from_owned(|head| head.uri().port_u16().map(u64::from)), "custom"),
        (key::header("a").or(key::header("b")), "header a or header b"),
        (key::header("a").and(key::client_ip()), "header a and client_ip"),
        (key::header("a").relaxed(3), "header a relaxed 3 times"),
    ] {
        let error = error_of([right("r").key(key.clone())]);
        assert_eq!((error.rule(), error.field()), (Some("r"), "missing"));
        let value = error.value();
        assert!(value.starts_with("not set, and the key ("), "{value}");
        assert!(value.contains(described) || described == "custom" || described == "extension");
        for choice in [".or(", "Missing::Skip", "Missing::Shared", "Missing::Refuse"] {
            assert!(error.reason().contains(choice), "{error}");
        }
        for missing in [Missing::Skip, Missing::Shared, Missing::Refuse(StatusCode::FORBIDDEN)] {
            let rule = right("r").key(key.clone()).missing(missing);
            assert!(RateLimitLayer::builder().rule(rule).build().is_ok());
        }
    }
    for key in [
        key::global(),
        key::route(),
        key::client_ip().boxed(),
        key::always(|head| Key::from(head.path())),
        key::header("a").or(key::client_ip()),
        key::route().and(key::client_ip()),
    ] {
        assert!(RateLimitLayer::builder().rule(right("r").key(key)).build().is_ok());
    }
}

#[test]
fn a_missing_key_needs_a_key_and_an_error_status() {
    assert_refused(right("r").missing(Missing::Skip), "missing", "Skip");
    for (status, shown) in [(200, "Refuse(200 OK)"), (301, "Refuse(301 Moved Permanently)")] {
        let refuse = Missing::Refuse(StatusCode::from_u16(status).unwrap());
        assert_refused(right("r").key(key::header("a")).missing(refuse), "missing", shown);
    }
}

#[test]
fn keys_that_make_no_sense_name_their_setting() {
    let ip = key::client_ip;
    let or =
        |n: usize| (1..n).fold(key::header("h0"), |key, i| key.or(key::header(format!("h{i}"))));
    for (key, field, value) in [
        (key::header("no name"), "key.header", "\"no name\""),
        (key::header(""), "key.header", "\"\""),
        (key::cookie(" "), "key.cookie", "\" \""),
        (key::path_param("{id}"), "key.path_param", "\"{id}\""),
        (key::path_param(""), "key.path_param", "\"\""),
        (ip().x_forwarded_for().boxed(), "client_ip.header", "x-forwarded-for"),
        (ip().trusted_hops(1).boxed(), "client_ip.header", "none"),
        (ip().x_forwarded_for().trusted_hops(0).boxed(), "client_ip.trusted_hops", "0"),
        (ip().ipv6_prefix(129).boxed(), "client_ip.ipv6_prefix", "129"),
    ] {
        let skip = |key| right("r").key(key).missing(Missing::Skip);
        assert_refused(skip(key.clone()), field, value);
        // However deep it lies.
        assert_refused(skip(key::header("a").and(key.clone())), field, value);
        assert_refused(skip(key.or(key::global()).relaxed(2)), field, value);
    }
    for network in
        ["10.0.0.0/33", "10.0.0.256", "", "localhost", "2001:db8::/129", "10.0.0.0/-1", "::/0"]
    {
        let key = ip().x_forwarded_for().trusted_proxies([network]);
        let shown = format!("{network:?}");
        assert_refused(right("r").key(key), "client_ip.trusted_proxies", &shown);
    }
    assert!(
        RateLimitLayer::builder().rule(right("r").key(or(16).or(key::global()))).build().is_err()
    );
    let error = error_of([right("r").key(or(17)).missing(Missing::Skip)]);
    assert_eq!((error.rule(), error.field()), (Some("r"), "key.or"));
    assert!(error.value().starts_with("header h0 or header h1 or "), "{error}");
}

#[test]
fn matchers_that_can_match_nothing_name_their_pattern() {
    for pattern in ["", "orders", "/a?b", "/a#b", "/:id", "/*rest", "/{id", "/{}", "/{*rest}/a"] {
        let shown = format!("{pattern:?}");
        assert_refused(right("r").matching(matcher::path(pattern)), "matcher.path", &shown);
        // However deep it lies, and beside another condition.
        let deep = matcher::method(http::Method::GET).and(matcher::path(pattern).not());
        assert_refused(right("r").when(|_| true).matching(deep), "matcher.path", &shown);
    }
    for network in ["10.0.0.0/33", "", "example", "10.0.0.0/8,10.1.0.0/16"] {
        let rule = right("r").matching(matcher::network([network]));
        assert_refused(rule, "matcher.network", &format!("{network:?}"));
    }
    assert_refused(right("r").matching(matcher::network([""; 0])), "matcher.network", "[]");
    let rule = right("r").matching(matcher::header("no name", "x"));
    assert_refused(rule, "matcher.header", "\"no name\"");
}

#[test]
fn statuses_must_be_errors() {
    for (status, shown) in [
        (100, "100 Continue"),
        (200, "200 OK"),
        (204, "204 No Content"),
        (302, "302 Found"),
        (600, "600 <unknown status code>"),
    ] {
        assert_refused(right("r").status(StatusCode::from_u16(status).unwrap()), "status", shown);
    }
    for status in [400, 403, 429, 499, 500, 503, 599] {
        let rule = right("r").status(StatusCode::from_u16(status).unwrap());
        assert!(RateLimitLayer::builder().rule(rule).build().is_ok(), "{status}");
    }
}

#[test]
fn tables_for_no_key_and_for_too_many_are_refused() {
    let keyed = |keys| right("r").key(key::client_ip()).max_keys(keys);
    assert_refused(keyed(0), "max_keys", "0");
    assert_refused(keyed((1 << 32) + 1), "max_keys", "4294967297");
    assert_refused(keyed(u64::MAX), "max_keys", "18446744073709551615");
    let limiter = TokenBucket::per_second(10).keyed_limiter().name("r");
    assert_names(&limiter.clone().max_keys(0).build().unwrap_err(), "r", "max_keys", "0");
    // The most there can be takes 128 GiB: what is not there is an error, not an abort.
    if let Err(error) = limiter.max_keys(1 << 32).build() {
        assert_names(&error, "r", "max_keys", "4294967296");
    }
}

#[test]
fn a_number_of_keys_needs_keys_to_keep() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_second(10);
    let unkeyed = bucket.limiter().name("r").clock(clock.clone()).build().unwrap();
    let keyed = bucket.keyed_limiter().name("r").clock(clock).build().unwrap();
    for keys in [0, 1, 4_000] {
        let shown = keys.to_string();
        for rule in [
            right("r").max_keys(keys),
            right("r").backend(ScriptedBackend::new()).max_keys(keys),
            Rule::on(unkeyed.clone()).max_keys(keys),
            Rule::on(keyed.clone()).key(key::client_ip()).max_keys(keys),
        ] {
            assert_refused(rule, "max_keys", &shown);
        }
    }
    // Nothing is kept in none, wherever that would be.
    for backend in [ScriptedBackend::new(), ScriptedBackend::decisions([])] {
        let rule = right("r").key(key::client_ip()).max_keys(0).backend(backend.clone());
        assert_refused(rule, "max_keys", "0");
        assert!(backend.specs().is_empty());
    }
}

#[test]
fn cookie_names_that_no_request_can_have_are_refused() {
    for name in ["a=b; c", "a=b", "a;b", "a,b", "a b", " a", "a ", "a\t", "\"a\"", "a\n", ""] {
        let rule = right("r").key(key::cookie(name)).missing(Missing::Skip);
        assert_refused(rule, "key.cookie", &format!("{name:?}"));
    }
    for name in ["session", "__Host-id", "a.b", "a[0]", "a%20b", "s:id", "\u{e9}"] {
        let rule = right("r").key(key::cookie(name)).missing(Missing::Skip);
        assert!(RateLimitLayer::builder().rule(rule).build().is_ok(), "{name}");
    }
}

#[test]
fn costs_that_limit_nobody_or_everybody_are_refused() {
    let bucket = TokenBucket::per_second(10).burst(20);
    let limiter = bucket.limiter().name("r").build().unwrap();
    for cost in [0, 21, u64::MAX] {
        let shown = cost.to_string();
        assert_refused(rule(bucket).cost(cost), "cost", &shown);
        assert_refused(rule(bucket).cost(cost).key(key::client_ip()), "cost", &shown);
        assert_refused(rule(bucket).cost(cost).backend(ScriptedBackend::new()), "cost", &shown);
        assert_refused(rule(FixedWindow::per_day(20)).cost(cost), "cost", &shown);
        assert_refused(Rule::on(limiter.clone()).cost(cost), "cost", &shown);
    }
    let leaky = LeakyBucket::per_second(20);
    let shared = leaky.limiter().name("r").build().unwrap();
    for cost in [0, 2, 20] {
        assert_refused(rule(leaky).cost(cost), "cost", &cost.to_string());
        assert_refused(
            rule(leaky).key(key::client_ip().relaxed(9)).cost(cost),
            "cost",
            &cost.to_string(),
        );
        assert_refused(Rule::on(shared.clone()).cost(cost), "cost", &cost.to_string());
    }
    let advice = |rule: Rule| error_of([rule.cost(21)]).reason().to_owned();
    assert!(advice(rule(leaky)).ends_with("use a TokenBucket, which has a burst"));
    assert!(advice(rule(bucket)).ends_with("raise the burst"));
    assert!(
        advice(rule(FixedWindow::per_day(20)))
            .ends_with("(20), so every request would be refused; raise it")
    );
    for cost in [1, 20] {
        assert!(RateLimitLayer::builder().rule(rule(bucket).cost(cost)).build().is_ok());
        assert!(
            RateLimitLayer::builder().rule(Rule::on(limiter.clone()).cost(cost)).build().is_ok()
        );
    }
}

#[test]
fn alternatives_to_a_key_that_cannot_be_missing_are_refused() {
    for total in [
        key::client_ip().boxed(),
        key::global(),
        key::route(),
        key::always(|head| Key::from(head.path())),
        key::client_ip().relaxed(5),
        key::header("a").or(key::client_ip()),
        key::client_ip().and(key::route()),
    ] {
        let error = error_of([right("r").key(total.or(key::header("x-user-id")))]);
        assert_eq!((error.rule(), error.field()), (Some("r"), "key.or"));
        assert!(error.value().ends_with(" or header x-user-id"), "{error}");
        assert!(error.reason().contains("is never asked"), "{error}");
    }
}

#[test]
fn the_first_mistake_of_the_first_wrong_rule_is_named() {
    let wrong = right("second").status(StatusCode::OK).key(key::header("no name"));
    let error = error_of([right("first"), wrong, right("third").missing(Missing::Skip)]);
    assert_eq!((error.rule(), error.field()), (Some("second"), "status"));
}

#[test]
fn errors_read_well() {
    let user = right("per-user").key(key::header("x-user-id"));
    for (error, text) in [
        (
            error_of([Rule::new("orders", TokenBucket::per_second(0))]),
            "rule \"orders\": permits = 0: must be at least 1",
        ),
        (
            error_of([user]),
            "rule \"per-user\": missing = not set, and the key (header x-user-id) can be missing: \
             choose .or(another key), .missing(Missing::Skip), .missing(Missing::Shared) or \
             .missing(Missing::Refuse(status))",
        ),
        (
            error_of([right("a"), right("a")]),
            "rule \"a\": name = \"a\": two limits of one layer have this name, which tells them apart; rename one",
        ),
        (error_of([]), "rules = 0: a layer needs at least one .rule(..) or .in_flight(..)"),
        (
            error_of([right("api").matching(matcher::path("/users/:id"))]),
            "rule \"api\": matcher.path = \"/users/:id\": write parameters as axum 0.8 does: \
             \"{id}\", \"{*rest}\"",
        ),
        (
            error_of([right("ip").key(key::client_ip().x_forwarded_for())]),
            "rule \"ip\": client_ip.header = x-forwarded-for: anybody can send this header: add \
             .trusted_proxies([..]) with the networks of your proxies, or .trusted_hops(n)",
        ),
        (
            "10".parse::<tower_sluice::Quota>().unwrap_err(),
            "quota = \"10\": has no period; write \"100/s\" or \"5/min\"",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
