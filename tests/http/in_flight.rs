//! A permit in flight is held to the end of the answer, however it ends, and is given back once.

use std::{future::pending, panic::resume_unwind, sync::Mutex, time::Duration};

use axum::{
    Extension, Router,
    body::Body,
    extract::Request,
    handler::Handler,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};
use tower_http::timeout::TimeoutLayer;
use tower_sluice::{InFlight, RateLimitLayer, event::Outcome, in_flight::Permits};

use crate::{
    support::{BOTH, Connection, Record, Wire, get as request, serve},
    support_in_flight::{Frames, Hold, until},
};

/// A limit of two, what it tells of its permits, and its layer.
fn two() -> (InFlight, Record, RateLimitLayer) {
    let record = Record::default();
    let slots = InFlight::new("two", 2).observer(record.clone());
    let layer = RateLimitLayer::builder().in_flight(slots.clone().spread(false)).build().unwrap();
    (slots, record, layer)
}

#[tokio::test]
async fn a_streaming_answer_holds_its_permit_until_its_last_byte() {
    for wire in BOTH {
        let (slots, record, layer) = two();
        let (frames, body) = Frames::new();
        let body = std::sync::Arc::new(Mutex::new(Some(Body::new(body))));
        let handler = move || std::future::ready(body.lock().unwrap().take().unwrap());
        let address = serve(Router::new().route("/", get(handler)).layer(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        frames.send("first").unwrap();
        let mut answer = connection.begin(request("/")).await;
        assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
        for chunk in ["second", "last"] {
            assert_eq!((slots.in_flight(), record.told().finished), (1, vec![]), "{wire:?}");
            frames.send(chunk).unwrap();
            assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), chunk);
        }
        assert_eq!(slots.in_flight(), 1, "{wire:?}: its end has not come");
        drop(frames);
        assert_eq!(answer.collect().await.unwrap().to_bytes(), "");
        assert_eq!(record.endings(1).await, [Outcome::Completed(200)], "{wire:?}");
        assert_eq!(slots.in_flight(), 0, "{wire:?}");
    }
}

#[tokio::test]
async fn who_does_not_fit_is_told_503_and_to_try_again_in_a_second() {
    for wire in BOTH {
        let (slots, record, layer) = two();
        let hold = Hold::default();
        let held = hold.clone();
        let handler = move || async move { held.wait().await };
        let address = serve(Router::new().route("/", get(handler)).layer(layer)).await;
        let ask = || async move { Connection::open(address, wire).await.get("/").await };
        let busy = [tokio::spawn(ask()), tokio::spawn(ask())];
        until(|| slots.in_flight() == 2).await;
        let shed = ask().await;
        assert_eq!(shed.status, StatusCode::SERVICE_UNAVAILABLE, "{wire:?}");
        assert_eq!(shed.headers[header::RETRY_AFTER], "1");
        assert_eq!(shed.headers[header::CACHE_CONTROL], "no-store");
        assert_eq!(shed.headers[header::CONTENT_TYPE], "application/problem+json");
        let body = std::str::from_utf8(&shed.body).unwrap();
        assert!(body.contains(r#""status":503"#), "{body}");
        assert!(body.ends_with(r#""violated-policies":["two"]}"#), "{body}");
        hold.let_go(2);
        for answer in busy {
            assert_eq!(answer.await.unwrap().status, StatusCode::OK);
        }
        assert_eq!(record.endings(2).await, [Outcome::Completed(200); 2], "{wire:?}");
        assert_eq!(slots.in_flight(), 0);
    }
}

/// What ends in ways of its own.
fn app(layer: RateLimitLayer, begun: mpsc::UnboundedSender<()>) -> Router {
    let panics = async || {
        if true {
            resume_unwind(Box::new("as intended"));
        }
    };
    let waits = move || {
        begun.send(()).unwrap();
        pending::<()>()
    };
    let stalls = async || {
        let (frames, body) = Frames::new();
        frames.send("some").unwrap();
        // What comes after that never comes.
        Response::new(Body::new(body.with(frames)))
    };
    let late =
        TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(5));
    Router::new()
        .route("/text", get(|| async { "text" }))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
        .route("/panics", get(panics))
        .route("/late", get(pending::<()>.layer(late)))
        .route("/waits", get(waits))
        .route("/stalls", get(stalls))
        .layer(layer)
}

#[tokio::test]
async fn every_ending_gives_one_permit_back() {
    for wire in BOTH {
        let (slots, record, layer) = two();
        let (begin, mut begun) = mpsc::unbounded_channel();
        let address = serve(app(layer, begin)).await;
        let mut told = 0;
        // One permit is given back, once, with this outcome.
        let mut freed = async |ended, what: &str| {
            told += 1;
            let endings = record.endings(told).await;
            assert_eq!(endings[told - 1], ended, "{wire:?}, {what}");
            assert_eq!(slots.in_flight(), 0, "{wire:?}, {what}");
        };
        let mut connection = Connection::open(address, wire).await;
        for (path, status) in [("/text", 200), ("/empty", 204), ("/none", 404), ("/late", 504)] {
            assert_eq!(connection.get(path).await.status.as_u16(), status);
            freed(Outcome::Completed(status), path).await;
        }
        for path in ["/text", "/stalls"] {
            let mut head = request(path);
            *head.method_mut() = Method::HEAD;
            assert_eq!(connection.send(head).await.status, StatusCode::OK);
            freed(Outcome::Completed(200), "HEAD").await;
        }

        // The client leaves, before the answer or in the midst of it.
        let mut early = Connection::open(address, wire).await;
        let leaves = tokio::spawn(async move { early.get("/waits").await.status });
        begun.recv().await.unwrap();
        assert_eq!(slots.in_flight(), 1);
        leaves.abort();
        freed(Outcome::Dropped, "left early").await;
        let mut midway = Connection::open(address, wire).await;
        let mut answer = midway.begin(request("/stalls")).await;
        assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), "some");
        assert_eq!(slots.in_flight(), 1);
        drop((answer, midway));
        freed(Outcome::Dropped, "left midway").await;

        // A panic ends the connection.
        let mut panics = Connection::open(address, wire).await;
        assert!(panics.try_begin(request("/panics")).await.is_err());
        freed(Outcome::Dropped, "panic").await;
        assert_eq!(connection.get("/text").await.status, StatusCode::OK);
        freed(Outcome::Completed(200), "afterwards").await;
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_frees_its_permit_and_the_connection_goes_on() {
    let (slots, record, layer) = two();
    let (begin, mut begun) = mpsc::unbounded_channel();
    let address = serve(app(layer, begin)).await;
    let mut connection = Connection::open(address, Wire::Http2).await;
    {
        let mut stream = std::pin::pin!(connection.try_begin(request("/waits")));
        tokio::select! {
            answer = &mut stream => panic!("{answer:?}"),
            _ = begun.recv() => assert_eq!(slots.in_flight(), 1),
        }
    }
    assert_eq!(record.endings(1).await, [Outcome::Dropped]);
    let answer = connection.begin(request("/stalls")).await;
    assert_eq!(slots.in_flight(), 1);
    drop(answer);
    assert_eq!(record.endings(2).await, [Outcome::Dropped; 2]);
    assert_eq!((connection.get("/text").await.status, slots.limit()), (StatusCode::OK, 2));
    assert_eq!(record.endings(3).await[2], Outcome::Completed(200));
    assert_eq!(slots.in_flight(), 0);
}

/// Opens a tunnel whose two ends echo, and says the status.
async fn tunnel(address: std::net::SocketAddr, path: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let ask = format!(
        "GET {path} HTTP/1.1\r\nhost: example\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

#[tokio::test]
async fn an_upgrade_that_keeps_its_permits_counts_until_it_is_closed() {
    let (slots, record, layer) = two();
    let outer = InFlight::new("outer", 9);
    let outside = RateLimitLayer::builder().in_flight(outer.clone()).build().unwrap();
    let keeps = async |Extension(permits): Extension<Permits>, mut request: Request| {
        assert_eq!(permits.names(), ["outer", "two"]);
        tokio::spawn(async move {
            let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
            // The request has them too.
            drop(request);
            let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
            // The client may close whenever it likes.
            let _ = tokio::io::copy(&mut read, &mut write).await;
            drop(permits);
        });
        ([("upgrade", "echo"), ("connection", "upgrade")], ()).into_response()
    };
    let switches = move |permits, request| async move {
        let mut response = keeps(permits, request).await;
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response
    };
    let app = Router::new().route("/", get(switches)).layer(layer).layer(outside);
    let address = serve(app).await;
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let (head, mut stream) = tunnel(address, "/").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        stream.write_all(b"echo").await.unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"echo");
        tunnels.push(stream);
    }
    assert_eq!((slots.in_flight(), outer.in_flight()), (2, 2));
    assert!(tunnel(address, "/").await.0.starts_with("HTTP/1.1 503 "));
    for left in [1, 0] {
        drop(tunnels.pop());
        until(|| (slots.in_flight(), outer.in_flight()) == (left, left)).await;
    }
    assert_eq!(record.endings(2).await.len(), 2);
}
