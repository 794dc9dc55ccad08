//! Requests that are refused while their bodies are still on their way.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    routing::{any, post},
};
use http::{HeaderMap, Request, StatusCode, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;
use tower_http::timeout::RequestBodyTimeoutLayer;
use tower_sluice::{
    Decline, FixedWindow, InFlight, LeakyBucket, ManualClock, RateLimitLayer,
    RateLimitLayerBuilder, RejectionPolicy, Rule, UnreadBody, clock::Clock,
};

use crate::upload::{MEGABYTE, Upload, send};

/// A limit that is spent by its first request.
fn spent() -> RateLimitLayerBuilder {
    RateLimitLayer::builder().rule(Rule::new("uploads", FixedWindow::per_hour(1)).spread(false))
}

/// Serves on a port of its own.
async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Serves an upload inside of the layer, and spends its one permit.
async fn serve(layer: RateLimitLayerBuilder) -> SocketAddr {
    let app = Router::new()
        .route(
            "/",
            post(|body: Body| async move { body.collect().await.map(drop).is_ok().to_string() }),
        )
        .layer(layer.build().unwrap());
    let address = listen(app).await;
    let first = send(address, Version::HTTP_11, Upload::of(1)).await;
    assert_eq!(first.0, StatusCode::OK);
    address
}

fn closes(headers: &HeaderMap) -> bool {
    headers.get("connection").is_some_and(|value| value == "close")
}

#[tokio::test]
async fn a_large_upload_is_told_that_it_is_refused() {
    let address = serve(spent()).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for upload in [
            || Upload::of(5 * MEGABYTE),
            || Upload::of(5 * MEGABYTE).chunked(),
            || Upload::of(5 * MEGABYTE).slowly(Duration::from_millis(5)),
        ] {
            for _ in 0..10 {
                let (status, headers) = send(address, version, upload()).await;
                assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
                assert!(headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 3_000);
                // On HTTP/2 there is no such field, and no need of one.
                assert_eq!(closes(&headers), version == Version::HTTP_11);
            }
        }
    }
}

/// One connection by hand.
struct Raw(TcpStream);

impl Raw {
    async fn open(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Writes, as far as the other side takes it; says whether it took all.
    async fn write(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Reads one answer whose length is announced; its head.
    async fn answer(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.expect("an answer"));
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let (_, length) = head.split_once("content-length: ").expect("a length");
        let length = length.lines().next().unwrap().parse().unwrap();
        self.0.read_exact(&mut vec![0; length]).await.unwrap();
        head
    }

    /// Whether the other side closes without another word.
    async fn is_closed(&mut self) -> bool {
        !matches!(self.0.read(&mut [0]).await, Ok(1))
    }
}

fn head(length: usize, more: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nhost: example\r\ncontent-length: {length}\r\n{more}\r\n").into()
}

/// A request with a small body, at once.
fn small() -> Vec<u8> {
    [head(5, ""), b"five!".to_vec()].concat()
}

#[tokio::test]
async fn who_reads_only_after_he_has_sent_is_told_too() {
    let address = serve(spent()).await;
    for _ in 0..20 {
        let mut client = Raw::open(address).await;
        client.write(&head(5_000_000, "")).await;
        for _ in 0..50 {
            if !client.write(&[0; 100_000]).await {
                break;
            }
        }
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 429"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn who_asks_before_he_sends_need_not_send() {
    for layer in [spent(), drained(65_536)] {
        let address = serve(layer).await;
        let mut client = Raw::open(address).await;
        client.write(&head(5_000_000, "expect: 100-continue\r\n")).await;
        // Not "100 Continue", which would ask for the body.
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 429"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn a_connection_without_a_body_is_kept() {
    let address = serve(spent()).await;
    let mut client = Raw::open(address).await;
    for _ in 0..3 {
        client.write(b"POST / HTTP/1.1\r\nhost: example\r\n\r\n").await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 429") && !answer.contains("connection"), "{answer}");
    }
    client.write(&small()).await;
    assert!(client.answer().await.contains("connection: close"));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_stream_that_is_refused_leaves_its_connection_alone() {
    let address = serve(spent()).await;
    let mut builder = Client::builder(TokioExecutor::new());
    let client = builder.http2_only(true).build_http::<Upload>();
    let ask = async |upload| {
        let request = Request::post(format!("http://{address}/")).version(Version::HTTP_2);
        client.request(request.body(upload).unwrap()).await.unwrap().status()
    };
    for _ in 0..10 {
        assert_eq!(ask(Upload::of(5 * MEGABYTE)).await, StatusCode::TOO_MANY_REQUESTS);
    }
}

fn drained(max_bytes: u64) -> RateLimitLayerBuilder {
    spent().unread_body(UnreadBody::Drain { max_bytes, longest: Duration::from_millis(500) })
}

#[tokio::test]
async fn a_drained_connection_is_used_again() {
    let address = serve(drained(10)).await;
    let mut client = Raw::open(address).await;
    for _ in 0..3 {
        client.write(&small()).await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 429") && !answer.contains("connection"), "{answer}");
    }
    // In parts, and to the last byte that may be read.
    client.write(&head(10, "")).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        client.write(b"five!").await;
    }
    assert!(!client.answer().await.contains("connection"));
    client.write(b"POST / HTTP/1.1\r\nhost: example\r\ntransfer-encoding: chunked\r\n\r\n").await;
    client.write(b"5\r\nfive!\r\n5\r\nfive!\r\n0\r\n\r\n").await;
    assert!(!client.answer().await.contains("connection"));

    // Announced longer, found longer, and too slow.
    let announced = [head(11, ""), b"five!".to_vec()].concat();
    let found = b"POST / HTTP/1.1\r\nhost: example\r\ntransfer-encoding: chunked\r\n\r\n\
                  5\r\nfive!\r\n6\r\nfive!!\r\n";
    let slow = [head(9, ""), b"five!".to_vec()].concat();
    for request in [&announced[..], found, &slow] {
        let mut client = Raw::open(address).await;
        client.write(request).await;
        let answer = client.answer().await;
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn who_leaves_it_alone_says_nothing() {
    let address = serve(spent().unread_body(UnreadBody::Leave)).await;
    let mut client = Raw::open(address).await;
    client.write(&head(5_000_000, "")).await;
    let answer = client.answer().await;
    assert!(answer.starts_with("http/1.1 429") && !answer.contains("connection"), "{answer}");
}

#[tokio::test]
async fn answers_that_come_later_close_too() {
    let pace = || Rule::new("uploads", LeakyBucket::per_hour(1)).spread(false);
    let first = Duration::from_millis(10);
    // The wait is too long from the start, or another handler answers without the body.
    let policies = [
        (RejectionPolicy::queue(first, 5), "http/1.1 429", true),
        (RejectionPolicy::degrade(|| async { "cached" }), "http/1.1 200", true),
        (
            RejectionPolicy::degrade(|body: String| async { body }).taking_body(),
            "http/1.1 200",
            false,
        ),
    ];
    for (policy, status, closes) in policies {
        let layer = RateLimitLayer::builder().rule(pace()).rejection(policy);
        let address = serve(layer).await;
        let mut client = Raw::open(address).await;
        client.write(&small()).await;
        let answer = client.answer().await;
        assert!(answer.starts_with(status), "{answer}");
        assert_eq!(answer.contains("connection: close"), closes, "{answer}");
    }
}

#[tokio::test]
async fn a_handler_that_declines_with_the_body_closes_unless_it_read_it() {
    let unread = |_: Body| async { Err::<(), _>(Decline) };
    let read = |body: String| async move {
        drop(body);
        Err::<(), _>(Decline)
    };
    for (policy, closes) in
        [(RejectionPolicy::degrade(unread), true), (RejectionPolicy::degrade(read), false)]
    {
        let address = serve(spent().rejection(policy.taking_body())).await;
        let mut client = Raw::open(address).await;
        client.write(&small()).await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 429"), "{answer}");
        assert_eq!(answer.contains("connection: close"), closes, "{answer}");
        client.write(b"POST / HTTP/1.1\r\nhost: example\r\n\r\n").await;
        assert_eq!(client.is_closed().await, closes);
    }
}

#[tokio::test]
async fn who_waited_in_vain_is_closed_or_drained() {
    for (unread, closes) in [
        (UnreadBody::Close, true),
        (UnreadBody::Drain { max_bytes: 10, longest: Duration::from_millis(500) }, false),
    ] {
        let limit = InFlight::new("uploads", 1);
        let queue = RejectionPolicy::queue(Duration::from_millis(20), 5);
        let layer = RateLimitLayer::builder().in_flight(limit.clone()).rejection(queue);
        let address = serve(layer.unread_body(unread)).await;
        let _permit = limit.acquire(Duration::from_secs(5)).await.unwrap();
        let mut client = Raw::open(address).await;
        client.write(&small()).await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 503"), "{answer}");
        assert_eq!(answer.contains("connection: close"), closes, "{answer}");
    }
}

#[tokio::test]
async fn whatever_a_responder_says_of_the_connection_it_closes() {
    for (said, expected) in [
        ("keep-alive", "connection: keep-alive, close"),
        ("x-hop", "connection: x-hop, close"),
        ("Close", "connection: close"),
    ] {
        let policy = RejectionPolicy::respond_with(move |_, _| [("connection", said)]);
        let address = serve(spent().rejection(policy)).await;
        let mut client = Raw::open(address).await;
        client.write(&small()).await;
        let answer = client.answer().await;
        assert!(answer.contains(&format!("{expected}\r\n")), "{answer}");
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn a_layer_outside_that_wraps_bodies_makes_none_of_nothing() {
    // Its body does not say that it has ended.
    let outside = RequestBodyTimeoutLayer::new(Duration::from_secs(5));
    let app = Router::new().route("/", any(|| async {})).layer(spent().build().unwrap());
    let address = listen(app.layer(outside)).await;
    let mut client = Raw::open(address).await;
    client.write(b"GET / HTTP/1.1\r\nhost: example\r\n\r\n").await;
    assert!(client.answer().await.starts_with("http/1.1 200"));
    for bodiless in ["GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\ncontent-length: 0\r\n"] {
        client.write(format!("{bodiless}host: example\r\n\r\n").as_bytes()).await;
        let answer = client.answer().await;
        assert!(answer.starts_with("http/1.1 429"), "{answer}");
        assert!(!answer.contains("connection"), "{answer}");
    }
    for body in ["content-length: 5\r\n\r\nfive!", "transfer-encoding: chunked\r\n\r\n5\r\n"] {
        let mut client = Raw::open(address).await;
        client.write(format!("GET / HTTP/1.1\r\nhost: example\r\n{body}").as_bytes()).await;
        let answer = client.answer().await;
        assert!(answer.contains("connection: close"), "{answer}");
    }
}

/// A body that always has a frame: its clock moves by a millisecond with each.
struct Ceaseless {
    clock: ManualClock,
    frame: &'static [u8],
    left: usize,
}

impl http_body::Body for Ceaseless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.clock.advance(Duration::from_millis(1));
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        self.left = left;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.frame)))))
    }
}

#[tokio::test]
async fn a_body_that_never_pauses_is_drained_no_longer_either() {
    for frame in [&b""[..], b"five!"] {
        let clock = ManualClock::new();
        let longest = Duration::from_millis(100);
        let layer = spent().unread_body(UnreadBody::Drain { max_bytes: u64::MAX, longest });
        let layer = layer.clock(clock.clone()).build().unwrap();
        let app = Router::new().route("/", any(|| async {})).layer(layer);
        let ask = |left| {
            let body = Body::new(Ceaseless { clock: clock.clone(), frame, left });
            app.clone().oneshot(Request::post("/").body(body).unwrap())
        };
        assert_eq!(ask(0).await.unwrap().status(), StatusCode::OK);
        for (left, closes_it) in [(90, false), (10_000, true)] {
            let before = clock.now();
            let refused = ask(left).await.unwrap();
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(closes(refused.headers()), closes_it);
            assert!(Duration::from(clock.now().since(before)) <= longest);
        }
    }
}
