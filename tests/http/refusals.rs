//! What a refused caller reads.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, routing::get};
use http::{Method, Request, StatusCode, header};
use tower::ServiceExt;
use tower_sluice::{
    FixedWindow, ManualClock, Missing, RateLimitLayer, RejectionPolicy, Rule, TokenBucket, key,
};

use crate::support::{BOTH, Connection, Hits, Wire, get as request, listen, raw, raw_bytes, serve};

const BODY: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Too Many Requests","status":429,"#,
    r#""detail":"The quota is spent for now; try again after the time in Retry-After.","#,
    r#""reason":"quota","violated-policies":["hourly"]}"#,
);

/// One request an hour, by a clock that stands still.
fn one_an_hour() -> RateLimitLayer {
    let hourly = FixedWindow::new(1, Duration::from_secs(3_600));
    RateLimitLayer::builder()
        .rule(Rule::new("hourly", hourly).spread(false))
        .clock(ManualClock::new())
        .build()
        .unwrap()
}

/// The bytes of an answer without its `date` line, whose value is the server's.
fn without_date(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("date: ")).collect();
    assert_eq!(lines.len() + 1, head.split("\r\n").count(), "one date in {head}");
    format!("{}\r\n\r\n{body}", lines.join("\r\n"))
}

#[tokio::test]
async fn the_default_refusal_is_exactly_these_bytes() {
    let hits = Hits::default();
    let app = Router::new().route("/a", get(hits.handler()).post(hits.handler()));
    let address = serve(app.layer(one_an_hour())).await;
    let ask = "GET /a HTTP/1.1\r\nhost: example\r\nconnection: close\r\n\r\n";
    assert!(raw(address, ask).await.starts_with("HTTP/1.1 200 OK\r\n"));
    let expected = format!(
        "HTTP/1.1 429 Too Many Requests\r\n\
         content-type: application/problem+json\r\n\
         cache-control: no-store\r\n\
         retry-after: 3600\r\n\
         content-length: {}\r\n\
         connection: close\r\n\r\n{BODY}",
        BODY.len(),
    );
    assert_eq!(without_date(&raw(address, ask).await), expected);
    // With a body unread the layer says that it closes, whatever the client asked for.
    let post = "POST /a HTTP/1.1\r\nhost: example\r\ncontent-length: 4\r\n\r\nbody";
    let close = "connection: close\r\n";
    let expected = expected.replace(close, "");
    let expected = expected.replace("content-length", &format!("{close}content-length"));
    assert_eq!(without_date(&raw(address, post).await), expected);
    assert_eq!(hits.get(), 1);
}

#[tokio::test]
async fn a_refused_head_has_the_same_fields_and_no_body() {
    let app = Router::new().route("/a", get(|| async {}));
    let address = serve(app.layer(one_an_hour())).await;
    let ask = "HEAD /a HTTP/1.1\r\nhost: example\r\nconnection: close\r\n\r\n";
    assert!(raw(address, ask).await.starts_with("HTTP/1.1 200 OK\r\n"));
    let expected = format!(
        "HTTP/1.1 429 Too Many Requests\r\n\
         content-type: application/problem+json\r\n\
         cache-control: no-store\r\n\
         retry-after: 3600\r\n\
         content-length: {}\r\n\
         connection: close\r\n\r\n",
        BODY.len(),
    );
    assert_eq!(without_date(&raw(address, ask).await), expected);
}

/// A clock may stand still between two of them: what they read must differ all the same.
#[tokio::test]
async fn those_refused_at_one_instant_are_spread() {
    let rule = Rule::new("all", TokenBucket::per_minute(1));
    let layer = RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap();
    let app = Router::new().route("/a", get(|| async {})).layer(layer);
    let ask = || app.clone().oneshot(Request::get("/a").body(Body::empty()).unwrap());
    assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    let mut told = [0; 13];
    for _ in 0..1_000 {
        let answer = ask().await.unwrap();
        let seconds: usize = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        told[seconds - 60] += 1;
    }
    assert!(told.iter().all(|count| *count > 20), "about 77 each: {told:?}");
}

#[tokio::test]
async fn a_refusal_on_http2_says_the_same_and_leaves_the_connection_alive() {
    let app = Router::new()
        .route("/a", get(|| async {}).post(|| async {}))
        .route("/free", get(|| async {}));
    let limited = RateLimitLayer::builder()
        .rule(
            Rule::new("hourly", FixedWindow::new(1, Duration::from_secs(3_600)))
                .spread(false)
                .when(|head| head.path() == "/a"),
        )
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let address = serve(app.layer(limited)).await;
    let mut connection = Connection::open(address, Wire::Http2).await;
    assert_eq!(connection.get("/a").await.status, StatusCode::OK);
    for method in [Method::GET, Method::HEAD, Method::POST] {
        let mut refused = request("/a");
        *refused.method_mut() = method.clone();
        let answer = connection.send(refused).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert_eq!(answer.headers["retry-after"], "3600");
        assert_eq!(answer.headers["content-length"], BODY.len().to_string());
        let names: Vec<_> = answer.headers.keys().map(header::HeaderName::as_str).collect();
        assert_eq!(names.len(), 5, "with the server's date: {names:?}");
        assert_eq!(answer.body, if method == Method::HEAD { "" } else { BODY }, "{method}");
    }
    assert_eq!(connection.get("/free").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_answer_may_be_ones_own() {
    for wire in BOTH {
        let layer = RateLimitLayer::builder()
            .rule(
                Rule::new("one", TokenBucket::new(1, Duration::from_secs(90)))
                    .key(key::header("x-user-id"))
                    .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)),
            )
            .rejection(RejectionPolicy::respond_with(|rejection, head| {
                let wait = rejection.retry_after().map_or(0, |wait| wait.as_secs());
                format!("{} must wait {wait} s at {}", rejection.rules()[0].rule(), head.path())
            }))
            .clock(ManualClock::new())
            .build()
            .unwrap();
        let address = serve(Router::new().route("/a", get(|| async {})).layer(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        let mut by_alice = request("/a");
        by_alice.headers_mut().insert("x-user-id", "alice".parse().unwrap());
        assert_eq!(connection.send(by_alice.clone()).await.status, StatusCode::OK);
        let refused = connection.send(by_alice).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.body, "one must wait 90 s at /a");
        assert_eq!(refused.headers["retry-after"], "90");
        assert_eq!(refused.headers["cache-control"], "no-store");
        let nameless = connection.get("/a").await;
        assert_eq!(nameless.status, StatusCode::UNAUTHORIZED);
        assert!(!nameless.headers.contains_key("retry-after"), "no waiting helps");
    }
}

#[tokio::test]
async fn hostile_bytes_on_the_wire_get_a_decision() {
    let layer = RateLimitLayer::builder()
        .rule(
            Rule::new("two", FixedWindow::per_day(2))
                .key(key::header("x-user-id"))
                .missing(Missing::Shared),
        )
        .rule(
            Rule::new("address", FixedWindow::per_day(1_000))
                .key(key::client_ip().x_forwarded_for().trusted_proxies(["127.0.0.0/8"])),
        )
        .build()
        .unwrap();
    let app = Router::new().route("/a", get(|| async {})).layer(layer);
    let (listener, address) = listen().await;
    let make = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, make).await });
    let hops = vec!["127.0.0.9"; 1_000].join(", ");
    let long = "k".repeat(65_536);
    for value in [&b"\xff\xfe\x80"[..], b"caf\xe9", long.as_bytes(), b""] {
        for status in [200, 200, 429] {
            let head = format!("GET /a HTTP/1.1\r\nhost: example\r\nx-forwarded-for: {hops}\r\n");
            let mut request = head.into_bytes();
            request.extend(b"x-user-id: ");
            request.extend(value);
            request.extend(b"\r\nconnection: close\r\n\r\n");
            let answer = raw_bytes(address, &request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }
}
