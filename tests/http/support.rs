//! Servers and clients on loopback, and observers that remember.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::Service;
use tower_sluice::{
    Backend, ConfigError, Decision, FixedWindow, Observer, RateLimitLayer, Rule,
    backend::{Answer as Verdict, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdicts},
    clock::Nanos,
    event::{Admitted, Fault, Finished, Outcome, Rejected, SetupFault},
};

/// How many requests the limits here admit.
pub(crate) const LIMIT: u64 = 20;

/// A layer that admits [`LIMIT`] requests a day.
pub(crate) fn limit() -> RateLimitLayer {
    RateLimitLayer::builder().rule(Rule::new("all", FixedWindow::per_day(LIMIT))).build().unwrap()
}

/// Counts calls of a handler.
#[derive(Clone, Default)]
pub(crate) struct Hits(Arc<AtomicU64>);

impl Hits {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// A handler that counts itself.
    pub(crate) fn handler(
        &self,
    ) -> impl Fn() -> std::future::Ready<&'static str> + Clone + Send + Sync + 'static {
        let hits = self.clone();
        move || {
            hits.add();
            std::future::ready("served")
        }
    }
}

/// What an observer of this type was told.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Told>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) admitted: u64,
    pub(crate) rejected: Vec<u16>,
    pub(crate) finished: Vec<Outcome>,
    pub(crate) faults: Vec<Fault>,
}

impl Record {
    pub(crate) fn told(&self) -> Told {
        self.0.lock().unwrap().clone()
    }

    /// How the first `n` requests ended, once all have; panics if that takes too long.
    #[track_caller]
    pub(crate) fn endings(&self, n: usize) -> impl Future<Output = Vec<Outcome>> {
        let record = self.clone();
        let caller = std::panic::Location::caller();
        async move {
            for _ in 0..500 {
                if record.told().finished.len() >= n {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // Whatever would be told twice has been by now.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let finished = record.told().finished;
            assert_eq!(finished.len(), n, "endings told, at {caller}: {finished:?}");
            finished
        }
    }
}

impl Observer for Record {
    fn admitted(&self, _: &Admitted<'_>) {
        self.0.lock().unwrap().admitted += 1;
    }

    fn rejected(&self, rejected: &Rejected<'_>) {
        self.0.lock().unwrap().rejected.push(rejected.status());
    }

    fn finished(&self, finished: &Finished) {
        self.0.lock().unwrap().finished.push(finished.outcome());
    }

    fn fault(&self, fault: &SetupFault) {
        self.0.lock().unwrap().faults.push(fault.fault());
    }
}

/// Counts in this process, and answers when it is polled a second time.
#[derive(Default)]
pub(crate) struct Later(Local);

impl Backend for Later {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        self.0.register(spec)
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Verdict<Verdicts> {
        let answer = self.0.check(now, charges);
        Verdict::Pending(Box::pin(async {
            tokio::task::yield_now().await;
            answer.resolve().await
        }))
    }

    fn undo(&self, now: Nanos, receipts: &[Receipt]) {
        self.0.undo(now, receipts);
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Verdict<Decision> {
        self.0.peek(now, charge)
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Verdict<bool> {
        self.0.reset(now, charge)
    }
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Serves as `axum::serve(listener, router)` does.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Serves a service that stands around a router, cloned for each connection.
pub(crate) async fn serve_around<S>(service: S) -> SocketAddr
where
    S: Service<Request, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let (listener, address) = listen().await;
    let make = axum::ServiceExt::<Request>::into_make_service(service);
    tokio::spawn(async move { axum::serve(listener, make).await });
    address
}

/// The version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wire {
    Http1,
    /// With prior knowledge.
    Http2,
}

pub(crate) const BOTH: [Wire; 2] = [Wire::Http1, Wire::Http2];

/// An answer, its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// One connection, kept alive.
pub(crate) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, wire: Wire) -> Self {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        match wire {
            Wire::Http1 => {
                let (sender, connection) = http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            Wire::Http2 => {
                let (sender, connection) =
                    http2::handshake(TokioExecutor::new(), io).await.unwrap();
                tokio::spawn(connection);
                Self::Http2(sender)
            }
        }
    }

    /// Sends a request and gives the answer's head, its body still to be read.
    pub(crate) async fn begin(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.try_begin(request).await.unwrap()
    }

    pub(crate) async fn try_begin(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                request.headers_mut().insert("host", "example".parse().unwrap());
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                let uri = format!("http://example{}", request.uri());
                *request.uri_mut() = uri.parse().unwrap();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        let (head, body) = self.begin(request).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(get(path)).await
    }

    /// Sends `n` requests: one after the other on HTTP/1.1, all at once on HTTP/2.
    pub(crate) async fn get_many(self, path: &str, n: usize) -> Vec<StatusCode> {
        match self {
            Self::Http1(sender) => {
                let mut connection = Self::Http1(sender);
                let mut statuses = Vec::new();
                for _ in 0..n {
                    statuses.push(connection.get(path).await.status);
                }
                statuses
            }
            Self::Http2(sender) => {
                let streams: Vec<_> = (0..n)
                    .map(|_| {
                        let mut connection = Self::Http2(sender.clone());
                        let path = path.to_owned();
                        tokio::spawn(async move { connection.get(&path).await.status })
                    })
                    .collect();
                let mut statuses = Vec::new();
                for stream in streams {
                    statuses.push(stream.await.unwrap());
                }
                statuses
            }
        }
    }
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path).body(Full::default()).unwrap()
}

/// How many requests were answered how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) other: u64,
}

impl FromIterator<StatusCode> for Tally {
    fn from_iter<I: IntoIterator<Item = StatusCode>>(statuses: I) -> Self {
        let mut tally = Self::default();
        for status in statuses {
            match status {
                StatusCode::OK => tally.served += 1,
                StatusCode::TOO_MANY_REQUESTS => tally.refused += 1,
                _ => tally.other += 1,
            }
        }
        tally
    }
}

/// Eight connections at once, ten requests on each.
pub(crate) async fn flood(address: SocketAddr, wire: Wire, path: &'static str) -> Tally {
    let connections: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(
                async move { Connection::open(address, wire).await.get_many(path, 10).await },
            )
        })
        .collect();
    let mut statuses = Vec::new();
    for connection in connections {
        statuses.extend(connection.await.unwrap());
    }
    statuses.into_iter().collect()
}

/// What is asserted of a flood: the limit and no more, and no handler for who was refused.
#[track_caller]
pub(crate) fn assert_exact(tally: Tally, hits: &Hits, what: impl std::fmt::Debug) {
    let refused = 80 - LIMIT;
    assert_eq!(tally, Tally { served: LIMIT, refused, other: 0 }, "{what:?}");
    assert_eq!(hits.get(), LIMIT, "handler runs, {what:?}");
}

/// Sends `request` as it is, and gives what comes until the server closes.
pub(crate) async fn raw(address: SocketAddr, request: &str) -> String {
    raw_bytes(address, request.as_bytes()).await
}

/// The same of a request that need not be text.
pub(crate) async fn raw_bytes(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}
