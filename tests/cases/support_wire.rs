//! What the cases about what is in flight share: clients on sockets, and handlers that wait to be let go.

use std::{net::SocketAddr, pin::Pin, sync::Arc, task::Poll, time::Duration};

use axum::Router;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, sync::Semaphore, task::JoinSet};
use tower_sluice::InFlight;

use crate::support::{ask, request};

/// Waits until something is so that a socket or another task brings about; panics where it never is.
#[track_caller]
pub(crate) fn until(holds: impl Fn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        for _ in 0..5_000 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("not after ten seconds, at {caller}");
    }
}

/// Whether `future` is not ready yet.
pub(crate) async fn is_pending<F: Future>(mut future: Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// One connection of a client.
pub(crate) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    pub(crate) async fn open(address: SocketAddr, http2: bool) -> Self {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            Self::Http1(sender)
        }
    }

    /// Another stream of this connection, or a connection of its own.
    pub(crate) async fn another(&self, address: SocketAddr) -> Self {
        match self {
            Self::Http1(_) => Self::open(address, false).await,
            Self::Http2(sender) => Self::Http2(sender.clone()),
        }
    }

    /// Sends a request; the answer's body is still to be read.
    pub(crate) async fn send(
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

    pub(crate) async fn get(&mut self, path: &str) -> hyper::Result<Response<Incoming>> {
        self.send(Request::get(path).body(Full::default()).unwrap()).await
    }
}

/// Keeps handlers inside until it lets them go.
#[derive(Clone)]
pub(crate) struct Held(Arc<Semaphore>);

impl Held {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// What a handler does that is held: waits for one of those let go.
    pub(crate) async fn wait(&self) {
        self.0.acquire().await.unwrap().forget();
    }

    pub(crate) fn let_go(&self, n: usize) {
        self.0.add_permits(n);
    }

    /// That `limit` requests for `/held`, where this holds them, are served at once, and one more is shed.
    pub(crate) async fn assert_exactly(&self, limit: u64, app: &Router, slots: &InFlight) {
        assert_eq!((slots.in_flight(), slots.waiting(), slots.tracked_keys()), (0, 0, 0));
        let mut served = JoinSet::new();
        for _ in 0..limit {
            let app = app.clone();
            served.spawn(async move { ask(&app, request("GET", "/held", None)).await.status });
        }
        until(|| slots.in_flight() == limit).await;
        let shed = ask(app, request("GET", "/held", None)).await;
        assert_eq!(shed.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(slots.in_flight(), limit);
        self.let_go(limit as usize);
        for status in served.join_all().await {
            assert_eq!(status, StatusCode::OK);
        }
        assert_eq!(slots.in_flight(), 0);
    }
}
