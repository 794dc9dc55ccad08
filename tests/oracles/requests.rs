//! What takes a request: several rules, statuses, addresses.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    FixedWindow, Headers, ManualClock, RateLimitLayer, Rejection, RejectionPolicy, Rule,
    SlidingLog, TokenBucket,
    key::{self, ClientIp},
};

use crate::rig::{
    NANO, Rig, SECOND,
    Want::{Left, Retry},
    bucket, ready,
};

/// Sends a request from `peer` with these headers through `layer` to a handler that answers 200.
fn send(layer: &RateLimitLayer, peer: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let handler =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let request = Request::get("/");
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let mut request = request.body(Body::empty()).expect("a request");
    request.extensions_mut().insert(SocketAddr::new(address(peer), 3_384));
    let Ok(response) = ready(layer.layer(handler).oneshot(request));
    response
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn o_31_longest_wait_of_two_bands() {
    let clock = ManualClock::new();
    let build = |bucket: TokenBucket, name| {
        bucket.limiter().name(name).clock(clock.clone()).build().expect("a bucket")
    };
    let (wide, narrow) =
        (build(bucket(10, NANO * 100, 10), "wide"), build(bucket(5, NANO * 10, 5), "narrow"));
    assert!(wide.try_acquire_many(9).is_allowed() && narrow.try_acquire_many(3).is_allowed());
    let rules = [Rule::on(wide.clone()).cost(3), Rule::on(narrow.clone()).cost(3)];
    for order in [[0, 1], [1, 0]] {
        let layer = RateLimitLayer::builder()
            .clock(clock.clone())
            .rules(order.map(|n| rules[n].clone()))
            .expose_rejection()
            .build()
            .expect("a layer");
        let response = send(&layer, "192.0.2.1", &[]);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let rejection = response.extensions().get::<Rejection>().expect("a rejection");
        assert_eq!(rejection.retry_after(), Some(NANO * 20));
        let waits = rejection.rules().iter().map(|rule| rule.decision()?.retry_after());
        let expected = order.map(|n| Some(NANO * [20, 2][n]));
        assert_eq!(waits.collect::<Vec<_>>(), expected);
        // Neither was charged.
        assert_eq!((wide.peek(0).remaining(), narrow.peek(0).remaining()), (1, 2));
    }

    Rig::new(bucket(10, NANO * 100, 10)).run(NANO, &[(0, 6, Left(4)), (0, 7, Retry(30))]);
}

#[test]
fn o_52_custom_status() {
    let rule = || Rule::new("two", bucket(2, SECOND, 2)).status(StatusCode::SERVICE_UNAVAILABLE);
    let teapot = RejectionPolicy::respond_with(|_, _| StatusCode::IM_A_TEAPOT);
    for (rule, refused) in [(rule(), 503), (rule().rejection(teapot), 418)] {
        let layer = RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build();
        let layer = layer.expect("a layer");
        let statuses = [(); 4].map(|()| send(&layer, "192.0.2.1", &[]).status().as_u16());
        assert_eq!(statuses, [200, 200, refused, refused]);
    }
}

/// A layer that counts per address as `by` reads it, and what it has counted for an address.
fn counting(by: ClientIp) -> (RateLimitLayer, impl Fn(&RateLimitLayer, &str) -> u64) {
    let rule = Rule::new("per-address", TokenBucket::per_minute(5)).key(by.clone());
    let layer = RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build();
    let spent = move |layer: &RateLimitLayer, of: &str| {
        let peeked = layer.handle();
        let key = by.key_of(address(of));
        5 - ready(peeked.peek("per-address", key, 0)).expect("a decision").remaining()
    };
    (layer.expect("a layer"), spent)
}

const XFF: &str = "x-forwarded-for";

#[test]
fn o_130_trusted_ranges_walk() {
    let lines = [(XFF, "2.2.2.2:3384, 3.3.3.3"), (XFF, "4.4.4.4")];
    let trusting = |networks: &[&str]| key::client_ip().x_forwarded_for().trusted_proxies(networks);
    // Two lines are one list, and the peer is a hop too.
    let walk = |networks: &[&str], peer, lines: &[(&str, &str)], whose| {
        let (layer, spent) = counting(trusting(networks));
        assert_eq!(send(&layer, peer, lines).status(), StatusCode::OK);
        for of in ["1.2.3.4", "2.2.2.2", "3.3.3.3", "4.4.4.4", "9.9.9.9", "10.0.0.1", "10.0.0.3"] {
            assert_eq!(spent(&layer, of), u64::from(of == whose), "{networks:?}: {of}");
        }
    };
    walk(&["10.0.0.1"], "10.0.0.1", &lines, "4.4.4.4");
    walk(&["10.0.0.1", "4.4.4.0/24"], "10.0.0.1", &lines, "3.3.3.3");
    walk(&["10.0.0.1", "4.4.4.0/24", "3.3.3.3"], "10.0.0.1", &lines, "2.2.2.2");
    walk(&["10.0.0.0/8"], "9.9.9.9", &[(XFF, "1.2.3.4, 10.0.0.1")], "9.9.9.9");
    // Where all are trusted the other limiter has no key; here the leftmost stands in.
    walk(&["10.0.0.0/8"], "10.0.0.1", &[(XFF, "10.0.0.3, 10.0.0.2")], "10.0.0.3");

    // Where the other limiter has no key, requests count as unresolved behind the last hop known: all
    // together, and apart from that hop itself.
    let hops = key::client_ip().x_forwarded_for().trusted_hops(3);
    let unresolved: [(ClientIp, &[&str]); 2] = [
        (trusting(&["10.0.0.0/8"]), &["1.1.1.1, nobody", "0.0.0.0", "1.1.1.1, ::", "unknown"]),
        (hops, &["1.1.1.1, 2.2.2.2", "1.1.1.1", "3.3.3.3, 4.4.4.4"]),
    ];
    for (by, headers) in unresolved {
        let (layer, spent) = counting(by);
        for header in headers {
            assert_eq!(send(&layer, "10.0.0.1", &[(XFF, header)]).status(), StatusCode::OK);
            assert_eq!(layer.handle().tracked_keys("per-address").unwrap(), Some(1), "{header}");
        }
        for of in ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4", "10.0.0.1", "0.0.0.0", "::"] {
            assert_eq!(spent(&layer, of), 0, "{of}");
        }
        let left = (0..5)
            .filter(|_| send(&layer, "10.0.0.1", &[(XFF, headers[0])]).status() == StatusCode::OK);
        assert_eq!(left.count(), 5 - headers.len());
    }
}

#[test]
fn o_131_address_families() {
    let (layer, spent) = counting(key::client_ip());
    for peer in ["2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "::ffff:192.0.2.1", "192.0.2.1"] {
        assert_eq!(send(&layer, peer, &[]).status(), StatusCode::OK);
    }
    assert_eq!(spent(&layer, "2001:db8:0:1:1234::"), 2);
    assert_eq!(spent(&layer, "2001:db8:0:2::1"), 0);
    assert_eq!(spent(&layer, "192.0.2.1"), 2);
    assert_eq!(spent(&layer, "192.0.2.2"), 0);
    assert_eq!(layer.handle().tracked_keys("per-address").unwrap(), Some(2));
    // A /56, as others have it.
    let (layer, spent) = counting(key::client_ip().ipv6_prefix(56));
    for peer in ["2001:db8:0:1::1", "2001:db8:0:2::1"] {
        assert_eq!(send(&layer, peer, &[]).status(), StatusCode::OK);
    }
    assert_eq!(spent(&layer, "2001:db8:0:ff::"), 2);
}

/// A list of structured fields, and the numbers among the parameters of its members by their names.
fn list(
    response: &Response<Body>,
    name: &str,
) -> Vec<(String, std::collections::BTreeMap<String, i64>)> {
    let Some(field) = response.headers().get(name) else { return Vec::new() };
    let list = sfv::Parser::new(field.as_bytes()).parse::<sfv::List>().expect("a list");
    let member = |entry: &sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else { panic!("an inner list") };
        let sfv::BareItem::String(name) = &item.bare_item else { panic!("no name") };
        let number = |(key, value): (&sfv::Key, &sfv::BareItem)| {
            let sfv::BareItem::Integer(number) = value else { panic!("{key} is no integer") };
            (key.to_string(), i64::from(*number))
        };
        (name.as_str().to_owned(), item.params.iter().map(number).collect())
    };
    list.iter().map(member).collect()
}

#[test]
fn o_127_hints_and_fields_of_one_answer_agree() {
    let clock = ManualClock::new();
    let rule = |name, algorithm: tower_sluice::Algorithm| {
        Rule::new(name, algorithm).key(key::client_ip()).spread(name == "spread")
    };
    let layer = RateLimitLayer::builder()
        .rule(rule("spread", TokenBucket::per_second(1).burst(3).into()))
        .rule(rule("min", FixedWindow::per_minute(150).into()).cost_fn(|head| {
            head.header_str("x-cost").and_then(|cost| cost.parse().ok()).unwrap_or(1)
        }))
        .rule(rule("log", SlidingLog::new(11, NANO * 3_777_777_777).into()))
        .headers(Headers::Draft11)
        .clock(clock.clone())
        .build()
        .expect("a layer");
    let (mut seed, mut refused, mut both) = (0x0127_u64, 0, 0);
    for _ in 0..5_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        clock.advance(NANO * (seed % 400_000_000) as u32);
        let cost = (1 + seed % 5).to_string();
        let response = send(&layer, "192.0.2.1", &[("x-cost", &cost)]);
        let (policies, standings) =
            (list(&response, "ratelimit-policy"), list(&response, "ratelimit"));
        // Several policies in one list; one of them is told of.
        let names: Vec<_> = policies.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["spread", "min", "log"]);
        let [(told, standing)] = &standings[..] else { panic!("{standings:?}") };
        let (_, policy) = policies.iter().find(|(name, _)| name == told).expect("a policy");
        assert!((0..=policy["q"]).contains(&standing["r"]), "{standing:?} of {policy:?}");
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.map(|value| value.to_str().expect("text").parse::<i64>());
        let Some(retry_after) = retry_after else {
            assert_eq!(response.status(), StatusCode::OK);
            continue;
        };
        refused += 1;
        // Never earlier than `t`: the same.
        assert_eq!(standing["t"], retry_after.expect("an integer"));
        let body = ready(axum::body::to_bytes(response.into_body(), usize::MAX)).expect("a body");
        let body = String::from_utf8(body.to_vec()).expect("text");
        let (_, violated) = body.split_once("\"violated-policies\":[").expect("a list");
        assert!(violated.contains(&format!("\"{told}\"")), "{told} is not in {violated}");
        both += usize::from(violated.contains(','));
    }
    assert!(refused > 1_000 && both > 50, "{refused} refused, {both} by several");
}
