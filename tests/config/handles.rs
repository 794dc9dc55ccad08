//! Keys named to a handle: what a request spent is found, and a key that cannot be the rule's is an error.

use std::{convert::Infallible, net::SocketAddr};

use axum::{body::Body, extract::ConnectInfo};
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    FixedWindow, Handle, HandleError, Key, ManualClock, Missing, RateLimitLayer, Rule, RuleKey,
    key::{self, KeyExtractor},
};

fn layer(key: impl KeyExtractor, missing: Option<Missing>) -> RateLimitLayer {
    let rule = Rule::new("r", FixedWindow::per_day(9)).key(key);
    let rule = match missing {
        Some(missing) => rule.missing(missing),
        None => rule,
    };
    RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap()
}

async fn send(layer: &RateLimitLayer, peer: Option<&str>, headers: &[(&str, &str)]) -> StatusCode {
    let mut request = headers
        .iter()
        .fold(Request::get("/"), |request, (name, value)| request.header(*name, *value))
        .body(Body::empty())
        .unwrap();
    if let Some(peer) = peer {
        let peer = SocketAddr::new(peer.parse().unwrap(), 4_711);
        request.extensions_mut().insert(ConnectInfo(peer));
    }
    let inner =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    layer.layer(inner).oneshot(request).await.unwrap().status()
}

fn address(text: &str) -> RuleKey<'static> {
    RuleKey::address(text.parse().unwrap())
}

async fn left(handle: &Handle, key: impl Into<RuleKey<'_>>) -> u64 {
    handle.peek("r", key, 0).await.unwrap().remaining()
}

#[tokio::test]
async fn an_address_finds_what_its_requests_spent() {
    let (v4, v6) = ("192.0.2.7", "2001:db8:1:2::7");
    let bare = || key::client_ip().boxed();
    let behind = || key::header("x-user-id").or(key::client_ip());
    let relaxed = || key::client_ip().relaxed(2);
    for (key, limit) in [(bare(), 9), (behind(), 9), (relaxed(), 18)] {
        let layer = layer(key.clone(), None);
        let handle = layer.handle();
        for _ in 0..2 {
            assert_eq!(send(&layer, Some(v4), &[]).await, 200);
        }
        for host in [v6, "2001:db8:1:2:ffff::1", "2001:db8:1:2::"] {
            assert_eq!(send(&layer, Some(host), &[]).await, 200);
        }
        assert_eq!(left(&handle, address(v4)).await, limit - 2, "{key:?}");
        assert_eq!(left(&handle, address("::ffff:192.0.2.7")).await, limit - 2, "{key:?}");
        assert_eq!(left(&handle, address("192.0.2.8")).await, limit, "{key:?}");
        // Any host of the /64.
        for host in [v6, "2001:db8:1:2::dead"] {
            assert_eq!(left(&handle, address(host)).await, limit - 3, "{key:?}");
        }
        assert_eq!(left(&handle, address("2001:db8:1:3::7")).await, limit, "{key:?}");
        assert!(handle.reset("r", address("2001:db8:1:2::1")).await.unwrap(), "{key:?}");
        assert_eq!(left(&handle, address(v6)).await, limit, "{key:?}");
        assert_eq!(left(&handle, address(v4)).await, limit - 2, "{key:?}");
    }
}

/// What `handle` says a key of rule `r` is.
async fn expected<'k>(handle: &Handle, key: impl Into<RuleKey<'k>>) -> String {
    let key = key.into();
    let error = handle.peek("r", key.clone(), 1).await.expect_err("not a key of this rule");
    let text = error.to_string();
    let HandleError::WrongKey { rule, expected, .. } = error else { panic!("{error:?}") };
    assert_eq!(rule, "r");
    assert_eq!(text, format!("the key of rule \"r\" is: {expected}"));
    let error = handle.reset("r", key).await.unwrap_err();
    assert_eq!(error.to_string(), text);
    expected
}

#[tokio::test]
async fn keys_that_cannot_be_the_rules_are_refused() {
    let two = || RuleKey::parts([Key::from("a"), Key::from("b")]);
    let none = || RuleKey::parts([]);
    let nth = |nth| RuleKey::from("a").alternative(nth);

    let by_address = layer(key::client_ip(), None).handle();
    let text = "client_ip; 1 part; name an address by RuleKey::address";
    let known = RuleKey::from(key::client_ip().key_of("192.0.2.7".parse().unwrap()));
    assert_eq!(left(&by_address, known.clone()).await, 9);
    for key in ["192.0.2.7".into(), "".into(), ().into(), two(), none(), nth(1), 7_u64.into()] {
        assert_eq!(expected(&by_address, key).await, text);
    }
    assert_eq!(expected(&by_address, known.alternative(1)).await, text);
    let pair =
        ["192.0.2.7", "192.0.2.8"].map(|host| key::client_ip().key_of(host.parse().unwrap()));
    assert_eq!(expected(&by_address, RuleKey::parts(pair)).await, text);

    let by_user = layer(key::header("x-user-id"), Some(Missing::Skip)).handle();
    for key in [().into(), "".into(), two(), none(), nth(1), nth(255), address("192.0.2.7")] {
        assert_eq!(expected(&by_user, key).await, "header x-user-id; 1 part");
    }

    let either = key::header("x-user-id").or(key::header("x-tenant").and(key::header("x-app")));
    let either = layer(either.or(key::client_ip()), None).handle();
    let text = "header x-user-id or (header x-tenant and header x-app) or client_ip; 1 part, \
                alternatives 0 to 2; name an address by RuleKey::address";
    assert_eq!(left(&either, "a").await, 9);
    assert_eq!(left(&either, two().alternative(1)).await, 9);
    assert_eq!(left(&either, address("192.0.2.7")).await, 9);
    for key in
        [two(), nth(1), nth(2), nth(3), two().alternative(2), two().alternative(16), ().into()]
    {
        assert_eq!(expected(&either, key).await, text);
    }

    let pair = layer(key::header("a").and(key::header("b")), Some(Missing::Skip)).handle();
    assert_eq!(left(&pair, two()).await, 9);
    for key in ["a".into(), none(), two().alternative(1), address("192.0.2.7")] {
        assert_eq!(expected(&pair, key).await, "header a and header b; 2 parts");
    }

    let rule = Rule::new("r", FixedWindow::per_day(9));
    let unkeyed = RateLimitLayer::builder().rule(rule).build().unwrap().handle();
    assert_eq!(left(&unkeyed, ()).await, 9);
    for key in ["a".into(), two(), nth(1), address("192.0.2.7"), RuleKey::missing()] {
        assert_eq!(expected(&unkeyed, key).await, "none; give ()");
    }
}

#[tokio::test]
async fn missing_is_a_key_where_such_requests_count_together() {
    let user = || key::header("x-user-id");
    let shared = layer(user(), Some(Missing::Shared));
    for _ in 0..4 {
        assert_eq!(send(&shared, None, &[]).await, 200);
    }
    assert_eq!(send(&shared, None, &[("x-user-id", "alice")]).await, 200);
    let handle = shared.handle();
    assert_eq!(left(&handle, RuleKey::missing()).await, 5);
    assert_eq!(left(&handle, "alice").await, 8);
    assert!(handle.reset("r", RuleKey::missing()).await.unwrap());
    assert_eq!(left(&handle, RuleKey::missing()).await, 9);
    assert_eq!(left(&handle, "alice").await, 8);

    for missing in [Missing::Skip, Missing::Refuse(StatusCode::UNAUTHORIZED)] {
        let apart = layer(user(), Some(missing)).handle();
        assert_eq!(expected(&apart, RuleKey::missing()).await, "header x-user-id; 1 part");
    }
    let total = layer(user().or(key::global()), None).handle();
    let text = "header x-user-id or global; 1 part, alternatives 0 to 1";
    assert_eq!(expected(&total, RuleKey::missing()).await, text);
}

/// A handle that is asked for a limit of the other kind says of which kind it is.
#[tokio::test]
async fn limits_of_the_other_kind_are_told_apart() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("orders", FixedWindow::per_day(5)))
        .in_flight(tower_sluice::InFlight::new("uploads", 4))
        .build()
        .unwrap();
    let handle = layer.handle();
    assert_eq!(handle.in_flight_names().collect::<Vec<_>>(), ["uploads"]);
    assert_eq!(handle.in_flight_limit("uploads").unwrap(), 4);
    assert_eq!(
        handle.peek("uploads", (), 1).await.unwrap_err().to_string(),
        "\"uploads\" is an in-flight limit, not a rule: see in_flight, waiting and set_in_flight"
    );
    assert_eq!(
        handle.set_in_flight("orders", 3).unwrap_err().to_string(),
        "the layer has no in-flight limit \"orders\""
    );
    assert_eq!(handle.waiting("other").unwrap_err().to_string(), "the layer has no rule \"other\"");
}
