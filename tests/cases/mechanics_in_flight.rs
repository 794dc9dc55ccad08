//! TW: Tower's and axum's mechanics, of what is in flight, waits, or is answered degraded.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    Router, body::Body, extract::Request, handler::Handler, response::Response, routing::get,
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use tokio::{sync::Semaphore, task::JoinSet};
use tower::{
    Layer, Service, ServiceExt,
    buffer::Buffer,
    limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer},
};
use tower_sluice::{
    FixedWindow, InFlight, ManualClock, Missing, Observer, RateLimitLayer, RejectionPolicy, Rule,
    TokenBucket, event::Admitted, key,
};

use crate::{
    support::{by_user, request, serve},
    support_core::{HOUR, SECOND},
    support_wire::{Client, Held, is_pending, until},
};

fn limit(slots: &InFlight) -> RateLimitLayer {
    RateLimitLayer::builder().in_flight(slots.clone()).build().unwrap()
}

/// A handler that knows how many of its kind are at work.
#[derive(Clone)]
struct Gauge {
    held: Held,
    running: Arc<AtomicU64>,
    peak: Arc<AtomicU64>,
}

impl Gauge {
    fn new() -> Self {
        Self { held: Held::new(), running: Arc::default(), peak: Arc::default() }
    }

    async fn run(self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(running, Ordering::SeqCst);
        self.held.wait().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }
}

/// Asks `n` times, one after the other; how often it was served.
async fn ask_many(mut client: Client, n: u64, refused: Arc<AtomicU64>) -> u64 {
    let mut served = 0;
    for _ in 0..n {
        let answer = client.get("/").await.unwrap();
        match answer.status() {
            StatusCode::OK => served += 1,
            StatusCode::SERVICE_UNAVAILABLE => {
                refused.fetch_add(1, Ordering::SeqCst);
            }
            other => panic!("{other}"),
        }
        answer.into_body().collect().await.unwrap();
    }
    served
}

/// Ten requests on each of fifty connections, or five hundred streams of one; statuses as they come.
fn five_hundred(address: SocketAddr, http2: bool, refused: &Arc<AtomicU64>) -> JoinSet<u64> {
    let mut clients = JoinSet::new();
    let (clients_of, each) = if http2 { (1, 500) } else { (50, 10) };
    for _ in 0..clients_of {
        let refused = refused.clone();
        clients.spawn(async move {
            let client = Client::open(address, http2).await;
            let mut asked = JoinSet::new();
            if !http2 {
                return ask_many(client, each, refused).await;
            }
            for _ in 0..each {
                asked.spawn(ask_many(client.another(address).await, 1, refused.clone()));
            }
            asked.join_all().await.into_iter().sum()
        });
    }
    clients
}

#[tokio::test]
async fn tw_01_one_in_flight_limit_over_clones_and_placements() {
    type Build = fn(RateLimitLayer, Gauge) -> Router;
    let placements: [(&str, Build); 5] = [
        ("Router::layer", |l, g| Router::new().route("/", get(|| g.run())).layer(l)),
        ("route_layer", |l, g| Router::new().route("/", get(|| g.run())).route_layer(l)),
        ("MethodRouter::layer", |l, g| Router::new().route("/", get(|| g.run()).layer(l))),
        ("Handler::layer", |l, g| Router::new().route("/", get((|| g.run()).layer(l)))),
        ("around", |l, g| {
            Router::new().fallback_service(l.layer(Router::new().route("/", get(|| g.run()))))
        }),
    ];
    for (placement, build) in placements {
        for http2 in [false, true] {
            let (slots, gauge) = (InFlight::new("five", 5), Gauge::new());
            let address = serve(build(limit(&slots), gauge.clone())).await;
            let refused = Arc::new(AtomicU64::new(0));
            let clients = five_hundred(address, http2, &refused);
            // Five are at work and stay so; whoever else comes is shed.
            until(|| refused.load(Ordering::SeqCst) >= 450).await;
            assert_eq!((slots.in_flight(), gauge.peak()), (5, 5), "{placement}, HTTP/2: {http2}");
            gauge.held.let_go(500);
            let served: u64 = clients.join_all().await.into_iter().sum();
            assert_eq!(served + refused.load(Ordering::SeqCst), 500);
            assert!(served >= 5, "{placement}, HTTP/2: {http2}");
            assert_eq!(gauge.peak(), 5, "{placement}, HTTP/2: {http2}");
            until(|| slots.in_flight() == 0).await;
        }
    }
}

/// Panics when it is called without having been ready; a clone is not ready. Answers a little later.
struct Strict {
    ready: bool,
    calls: Arc<AtomicU64>,
}

impl Strict {
    fn new() -> Self {
        Self { ready: false, calls: Arc::default() }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, calls: self.calls.clone() }
    }
}

impl Service<Request> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called on an instance that was not ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            Ok(Response::new(Body::empty()))
        })
    }
}

const DEGRADED: StatusCode = StatusCode::NON_AUTHORITATIVE_INFORMATION;

/// Fifty a day for each user, two at once; who comes too soon waits, who is too many is answered degraded.
fn waits_or_degrades(waited: &Waited, two: &InFlight) -> RateLimitLayer {
    let degrade = RejectionPolicy::degrade(|| async { DEGRADED });
    let per_user = Rule::new("user", FixedWindow::per_day(50))
        .key(key::header("x-user-id"))
        .missing(Missing::Skip)
        .rejection(degrade.clone());
    RateLimitLayer::builder()
        .rule(per_user)
        .in_flight(two.clone().rejection(RejectionPolicy::queue(HOUR, 100).or(degrade)))
        .observer(waited.clone())
        .clock(ManualClock::new())
        .build()
        .unwrap()
}

/// How many were admitted after they had waited.
#[derive(Clone, Default)]
struct Waited(Arc<AtomicU64>);

impl Observer for Waited {
    fn admitted(&self, admitted: &Admitted<'_>) {
        self.0.fetch_add(u64::from(admitted.waited().is_some()), Ordering::SeqCst);
    }
}

/// 1,000 cycles of ready and call, by eight tasks with a clone each; how many were served and degraded.
async fn cycles<S>(service: S) -> (u64, u64)
where
    S: Service<Request, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: std::fmt::Debug + Send,
    S::Future: Send,
{
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let mut service = service.clone();
        tasks.spawn(async move {
            let mut counts = (0, 0);
            for n in 0..125 {
                let asks = by_user("/", &format!("u{}", (task + n) % 4));
                let answer = service.ready().await.unwrap().call(asks).await.unwrap();
                match answer.status() {
                    StatusCode::OK => counts.0 += 1,
                    DEGRADED => counts.1 += 1,
                    other => panic!("{other}"),
                }
                if n % 10 == 0 {
                    service = service.clone();
                }
            }
            counts
        });
    }
    let counts = tasks.join_all().await;
    counts.into_iter().fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
}

/// The same, inside of the layer. Both permits are out until somebody waits for one.
async fn cycles_with_waits<S>(inner: S) -> (u64, u64)
where
    S: Service<Request, Response = Response<Body>> + Clone + Send + Sync + 'static,
    S::Error: std::fmt::Debug + Send,
    S::Future: Send,
{
    let (waited, two) = (Waited::default(), InFlight::new("two", 2));
    let layer = waits_or_degrades(&waited, &two);
    let out = [two.try_acquire().unwrap(), two.try_acquire().unwrap()];
    let running = tokio::spawn(cycles(layer.layer(inner)));
    until(|| two.waiting() > 0).await;
    drop(out);
    let counts = running.await.unwrap();
    assert!(waited.0.load(Ordering::SeqCst) > 0, "somebody waited");
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tw_02_queued_and_degraded_inner_called_only_when_ready() {
    // Four users with 50 each.
    let inner = Strict::new();
    assert_eq!(cycles_with_waits(inner.clone()).await, (200, 800));
    assert_eq!(inner.calls(), 200, "no call for a degraded request");

    let inner = Strict::new();
    assert_eq!(cycles_with_waits(ConcurrencyLimit::new(inner.clone(), 3)).await, (200, 800));
    assert_eq!(inner.calls(), 200);

    let inner = Strict::new();
    assert_eq!(cycles_with_waits(Buffer::new(inner.clone(), 3)).await, (200, 800));
    assert_eq!(inner.calls(), 200);
}

#[tokio::test]
async fn tw_02_queued_and_degraded_release_readiness() {
    let permits = Arc::new(Semaphore::new(2));
    let inner = Strict::new();
    let limited = GlobalConcurrencyLimitLayer::with_semaphore(permits.clone()).layer(inner.clone());
    let slots = InFlight::new("one", 1);
    let queue = RejectionPolicy::queue(HOUR, 1);
    let degrade = RejectionPolicy::degrade(|| async { DEGRADED });
    let layer = limit(&slots.clone().rejection(queue.or(degrade)));
    let mut service = layer.layer(limited);

    let other = slots.try_acquire().unwrap();
    service.ready().await.unwrap();
    assert_eq!(permits.available_permits(), 1);
    let mut queued = Box::pin(service.call(by_user("/", "a")));
    assert_eq!(permits.available_permits(), 2, "given back before the answer is even polled");
    assert!(is_pending(queued.as_mut()).await);
    assert_eq!((slots.waiting(), permits.available_permits()), (1, 2), "a waiter holds none");

    service.ready().await.unwrap();
    let degraded = service.call(by_user("/", "b"));
    assert_eq!(permits.available_permits(), 2);
    assert_eq!(degraded.await.unwrap().status(), DEGRADED);
    assert_eq!(inner.calls(), 0);

    drop(other);
    assert_eq!(queued.await.unwrap().status(), StatusCode::OK);
    assert_eq!((inner.calls(), permits.available_permits(), slots.in_flight()), (1, 2, 0));
}

#[tokio::test]
async fn tw_03_no_in_flight_permit_taken_in_poll_ready() {
    let (slots, gauge) = (InFlight::new("five", 5), Gauge::new());
    let run = gauge.clone();
    let app = get(move || run.clone().run());
    let mut service = limit(&slots).layer(app);
    let ready = async |service: &mut _| {
        let _: &mut _ = ServiceExt::<Request>::ready(service).await.unwrap();
    };
    for _ in 0..100 {
        ready(&mut service).await;
    }
    for _ in 0..100 {
        ready(&mut service.clone()).await;
    }
    assert_eq!(slots.in_flight(), 0);

    let answered = Arc::new(Mutex::new(Vec::new()));
    for (round, n) in [5, 50].into_iter().enumerate() {
        let mut clones: Vec<_> = (0..n).map(|_| service.clone()).collect();
        for clone in &mut clones {
            ready(clone).await;
        }
        assert_eq!(slots.in_flight(), 0);
        let mut calls = JoinSet::new();
        for clone in &mut clones {
            let (call, answered) = (clone.call(request("GET", "/", None)), answered.clone());
            calls.spawn(async move {
                let status = call.await.unwrap().status();
                answered.lock().unwrap().push(status);
            });
        }
        until(|| {
            gauge.running.load(Ordering::SeqCst) == 5 && answered.lock().unwrap().len() == n - 5
        })
        .await;
        assert_eq!((slots.in_flight(), gauge.peak()), (5, 5), "round {round}");
        gauge.held.let_go(5);
        calls.join_all().await;
        let statuses = std::mem::take(&mut *answered.lock().unwrap());
        let served = statuses.iter().filter(|status| **status == StatusCode::OK).count();
        assert_eq!((served, statuses.len()), (5, n));
        assert_eq!(slots.in_flight(), 0);
    }
}

#[tokio::test]
async fn tw_06_queued_stream_does_not_stall_another() {
    let clock = ManualClock::new();
    let per_user = Rule::new("user", TokenBucket::new(1, 5 * SECOND).burst(1))
        .key(key::header("x-user-id"))
        .missing(Missing::Skip);
    let layer = RateLimitLayer::builder()
        .rule(per_user)
        .rejection(RejectionPolicy::queue(10 * SECOND, 100))
        .clock(clock.clone())
        .build()
        .unwrap();
    let address = serve(Router::new().route("/", get(|| async {})).layer(layer)).await;
    let connection = Client::open(address, true).await;
    let answered = Arc::new(Mutex::new(Vec::new()));
    let mut alice = JoinSet::new();
    for _ in 0..5 {
        let (mut client, answered) = (connection.another(address).await, answered.clone());
        alice.spawn(async move {
            let asks = http::Request::get("/").header("x-user-id", "alice");
            let answer = client.send(asks.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
            answered.lock().unwrap().push(answer.status().as_u16());
        });
    }
    // One is served, those whose turn would be after 15 and 20 s are refused, two wait.
    let statuses = || {
        let mut statuses = answered.lock().unwrap().clone();
        statuses.sort_unstable();
        statuses
    };
    until(|| statuses() == [200, 429, 429]).await;
    let mut bob = connection.another(address).await;
    let asks = http::Request::get("/").header("x-user-id", "bob").body(Full::default()).unwrap();
    // Ten times what the case allows.
    let answer = tokio::time::timeout(SECOND, bob.send(asks)).await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    for served in 2..=3 {
        assert_eq!(statuses().len(), served + 1);
        clock.advance(5 * SECOND);
        until(|| statuses().iter().filter(|status| **status == 200).count() == served).await;
    }
    alice.join_all().await;
}
