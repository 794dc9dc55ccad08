//! TW: Tower's and axum's mechanics.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, handler::Handler, routing::get};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, sync::Semaphore};
use tower::{
    Layer, Service, ServiceExt,
    buffer::Buffer,
    limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer},
    service_fn,
};
use tower_sluice::{ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key};

use crate::support::{serve, window};

/// `TB(5, 5/s)` by a clock that stands still.
fn five() -> RateLimitLayer {
    RateLimitLayer::builder()
        .rule(Rule::new("five", TokenBucket::per_second(5)))
        .clock(ManualClock::new())
        .build()
        .unwrap()
}

type Http2 = http2::SendRequest<Full<Bytes>>;

async fn connect_http2(address: std::net::SocketAddr) -> Http2 {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn stream(sender: &Http2, user: &str) -> StatusCode {
    let mut sender = sender.clone();
    let request = http::Request::get("http://example/").header("x-user-id", user);
    sender.ready().await.unwrap();
    sender.send_request(request.body(Full::default()).unwrap()).await.unwrap().status()
}

/// Ten requests on each of fifty connections, or five hundred streams of one, all at once.
async fn served(address: std::net::SocketAddr, http2: bool) -> usize {
    let mut tasks = Vec::new();
    if http2 {
        let sender = connect_http2(address).await;
        for _ in 0..500 {
            let sender = sender.clone();
            tasks.push(tokio::spawn(async move { vec![stream(&sender, "anybody").await] }));
        }
    } else {
        for _ in 0..50 {
            tasks.push(tokio::spawn(async move {
                let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
                let (mut sender, connection) = http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                let mut statuses = Vec::new();
                for _ in 0..10 {
                    let request = http::Request::get("/").header("host", "example");
                    sender.ready().await.unwrap();
                    let request = request.body(Full::<Bytes>::default()).unwrap();
                    let answer = sender.send_request(request).await.unwrap();
                    statuses.push(answer.status());
                    answer.into_body().collect().await.unwrap();
                }
                statuses
            }));
        }
    }
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.extend(task.await.unwrap());
    }
    assert_eq!(statuses.len(), 500);
    let served = |status: &&StatusCode| **status == StatusCode::OK;
    let refused = |status: &&StatusCode| **status == StatusCode::TOO_MANY_REQUESTS;
    let served = statuses.iter().filter(served).count();
    assert_eq!(served + statuses.iter().filter(refused).count(), 500);
    served
}

#[tokio::test]
async fn tw_01_one_quota_over_clones_and_placements() {
    fn handler() -> std::future::Ready<()> {
        std::future::ready(())
    }
    type Build = fn(RateLimitLayer) -> Router;
    let placements: [(&str, Build); 5] = [
        ("Router::layer", |l| Router::new().route("/", get(handler)).layer(l)),
        ("route_layer", |l| Router::new().route("/", get(handler)).route_layer(l)),
        ("MethodRouter::layer", |l| Router::new().route("/", get(handler).layer(l))),
        ("Handler::layer", |l| Router::new().route("/", get(handler.layer(l)))),
        ("around", |l| {
            Router::new().fallback_service(l.layer(Router::new().route("/", get(handler))))
        }),
    ];
    for (placement, build) in placements {
        for http2 in [false, true] {
            let address = serve(build(five())).await;
            // The clock stands still, so what the case bounds by 5 and 7 is 5.
            assert_eq!(served(address, http2).await, 5, "{placement}, HTTP/2: {http2}");
        }
    }
}

#[tokio::test]
async fn tw_01_building_twice_gives_two_quotas() {
    let builder = RateLimitLayer::builder()
        .rule(Rule::new("five", TokenBucket::per_second(5)))
        .clock(ManualClock::new());
    let (one, two) = (builder.clone().build().unwrap(), builder.build().unwrap());
    let inner =
        service_fn(|_: Request| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    for (layer, fresh) in [(&one, true), (&one.clone(), false), (&two, true)] {
        let mut served = 0;
        for _ in 0..10 {
            let answer = layer.layer(inner).oneshot(Request::new(Body::empty())).await.unwrap();
            served += u32::from(answer.status() == StatusCode::OK);
        }
        assert_eq!(served, if fresh { 5 } else { 0 });
    }
}

/// Panics when it is called without having been ready; a clone is not ready.
struct Strict {
    ready: bool,
    calls: Arc<AtomicU64>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, calls: self.calls.clone() }
    }
}

impl Service<Request> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called on an instance that was not ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

fn by(user: usize) -> Request {
    let request = Request::get("/").header("x-user-id", format!("u{user}"));
    request.body(Body::empty()).unwrap()
}

fn per_user(limit: u64) -> RateLimitLayer {
    RateLimitLayer::builder()
        .rule(
            Rule::new("user", window(limit, 60))
                .key(key::header("x-user-id"))
                .missing(Missing::Skip),
        )
        .clock(ManualClock::new())
        .build()
        .unwrap()
}

/// 1,000 cycles of ready and call, by eight tasks with a clone each; how many were served.
async fn cycles<S>(service: S) -> u64
where
    S: Service<Request, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: std::fmt::Debug + Send,
    S::Future: Send,
{
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let mut service = service.clone();
            tokio::spawn(async move {
                let mut served = 0;
                for n in 0..125 {
                    let answer = service.ready().await.unwrap().call(by((task + n) % 4));
                    served += u64::from(answer.await.unwrap().status() == StatusCode::OK);
                    if n % 10 == 0 {
                        service = service.clone();
                    }
                }
                served
            })
        })
        .collect();
    let mut served = 0;
    for task in tasks {
        served += task.await.unwrap();
    }
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tw_02_inner_called_only_when_ready() {
    let strict = || Strict { ready: false, calls: Arc::default() };
    let inner = strict();
    // Four users with 50 each.
    assert_eq!(cycles(per_user(50).layer(inner.clone())).await, 200);
    assert_eq!(inner.calls.load(Ordering::SeqCst), 200, "no call for a refused request");

    let inner = strict();
    let limited = ConcurrencyLimit::new(inner.clone(), 3);
    assert_eq!(cycles(per_user(50).layer(limited)).await, 200);
    assert_eq!(inner.calls.load(Ordering::SeqCst), 200);

    let inner = strict();
    let buffered = Buffer::new(inner.clone(), 3);
    assert_eq!(cycles(per_user(50).layer(buffered)).await, 200);
    assert_eq!(inner.calls.load(Ordering::SeqCst), 200);
}

#[tokio::test]
async fn tw_02_refusal_releases_readiness() {
    let permits = Arc::new(Semaphore::new(2));
    let inner = Strict { ready: false, calls: Arc::default() };
    let limited = GlobalConcurrencyLimitLayer::with_semaphore(permits.clone()).layer(inner.clone());
    let mut service = per_user(1).layer(limited);
    let served = service.ready().await.unwrap().call(by(0)).await.unwrap();
    assert_eq!(served.status(), StatusCode::OK);
    assert_eq!(permits.available_permits(), 2);
    service.ready().await.unwrap();
    assert_eq!(permits.available_permits(), 1, "readiness is the inner service's to reserve");
    let refused = service.call(by(0));
    assert_eq!(permits.available_permits(), 2, "given back before the answer is even polled");
    assert_eq!(refused.await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    // The service that refused goes on, and its clones.
    for user in 1..20 {
        let mut clone = service.clone();
        let served = clone.ready().await.unwrap().call(by(user)).await.unwrap();
        assert_eq!(served.status(), StatusCode::OK);
        let refused = service.ready().await.unwrap().call(by(user)).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(permits.available_permits(), 2);
    }
    assert_eq!(inner.calls.load(Ordering::SeqCst), 20);
}

#[tokio::test]
async fn tw_03_nothing_taken_in_poll_ready() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("five", TokenBucket::per_hour(1).burst(5)))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let handle = layer.handle();
    let remaining = async || handle.peek("five", (), 0).await.unwrap().remaining();
    let mut service = layer.layer(Strict { ready: false, calls: Arc::default() });
    for _ in 0..100 {
        service.ready().await.unwrap();
    }
    for _ in 0..100 {
        service.clone().ready().await.unwrap();
    }
    assert_eq!(remaining().await, 5);
    for _ in 0..5 {
        let answer = service.ready().await.unwrap().call(by(0)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(remaining().await, 0);
    // Fifty clones that were all ready while there was room for five.
    handle.reset("five", ()).await.unwrap();
    let mut clones: Vec<_> = (0..50).map(|_| service.clone()).collect();
    for clone in &mut clones {
        clone.ready().await.unwrap();
    }
    let mut served = 0;
    for clone in &mut clones {
        served += u32::from(clone.call(by(0)).await.unwrap().status() == StatusCode::OK);
    }
    assert_eq!(served, 5);
}

#[tokio::test]
async fn tw_06_one_stream_does_not_stall_another() {
    // Alice's only request does not end, and stays inside while the others come.
    let handler = |request: Request| async move {
        if request.headers()["x-user-id"] == "alice" {
            std::future::pending::<()>().await;
        }
    };
    let address = serve(Router::new().route("/", get(handler)).layer(per_user(1))).await;
    let connection = connect_http2(address).await;
    let sender = connection.clone();
    let mut first = tokio::spawn(async move { stream(&sender, "alice").await });
    let never = tokio::time::timeout(Duration::from_millis(200), &mut first).await;
    assert!(never.is_err(), "her first request is being served");
    let alice: Vec<_> = (0..5)
        .map(|_| {
            let sender = connection.clone();
            tokio::spawn(async move { stream(&sender, "alice").await })
        })
        .collect();
    // Ten times what the case allows.
    let bob = tokio::time::timeout(Duration::from_secs(1), stream(&connection, "bob")).await;
    assert_eq!(bob.unwrap(), StatusCode::OK);
    for refused in alice {
        let status = tokio::time::timeout(Duration::from_secs(1), refused).await;
        assert_eq!(status.unwrap().unwrap(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(!first.is_finished());
    first.abort();
}
