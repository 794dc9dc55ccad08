//! Requests by hand, and servers on loopback.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request},
};
use http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_sluice::{
    Algorithm, Decisions, FixedWindow, Observer, RateLimitLayer, Rejection,
    event::{Fault, SetupFault},
};

/// `FW(n/period)` of the cases: a window aligned to multiples of its length.
pub(crate) fn window(limit: u64, seconds: u64) -> Algorithm {
    FixedWindow::new(limit, Duration::from_secs(seconds)).aligned().into()
}

/// The faults a layer raised.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Vec<Fault>>>);

impl Faults {
    pub(crate) fn raised(&self) -> Vec<Fault> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Faults {
    fn fault(&self, fault: &SetupFault) {
        self.0.lock().unwrap().push(fault.fault());
    }
}

/// A request, from this peer if one is named.
pub(crate) fn request(method: &str, uri: &str, peer: Option<&str>) -> Request {
    let mut request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
    if let Some(peer) = peer {
        let peer: IpAddr = peer.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer, 40_000)));
    }
    request
}

/// A GET with these headers, from this peer.
pub(crate) fn get_with(uri: &str, peer: Option<&str>, headers: &[(&'static str, &str)]) -> Request {
    let mut request = request("GET", uri, peer);
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// A GET by a user.
pub(crate) fn by_user(uri: &str, user: &str) -> Request {
    get_with(uri, None, &[("x-user-id", user)])
}

/// A GET from a peer.
pub(crate) fn from_peer(uri: &str, peer: &str) -> Request {
    get_with(uri, Some(peer), &[])
}

/// An answer, its body read.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) rejection: Option<Rejection>,
    pub(crate) decisions: Option<Decisions>,
}

impl Answer {
    pub(crate) fn is_ok(&self) -> bool {
        self.status == StatusCode::OK
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }

    /// `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        Some(self.headers.get("retry-after")?.to_str().unwrap().parse().unwrap())
    }

    /// The rules the body names as refusing.
    pub(crate) fn violated(&self) -> Vec<&str> {
        let Some((_, list)) = self.body.split_once(r#""violated-policies":["#) else {
            return Vec::new();
        };
        list.trim_end_matches("]}").split(',').map(|name| name.trim_matches('"')).collect()
    }
}

/// What `app` answers.
pub(crate) async fn ask(app: &Router, request: Request) -> Answer {
    let (mut head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    Answer {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
        rejection: head.extensions.remove(),
        decisions: head.extensions.remove(),
    }
}

/// How many of these requests `app` serves and refuses with 429, in this order; others panic.
#[track_caller]
pub(crate) fn tally(
    app: &Router,
    requests: impl IntoIterator<Item = Request>,
) -> impl Future<Output = (u64, u64)> {
    let requests: Vec<_> = requests.into_iter().collect();
    let caller = std::panic::Location::caller();
    async move {
        let (mut served, mut refused) = (0, 0);
        for request in requests {
            let answer = ask(app, request).await;
            if answer.is_ok() {
                served += 1;
            } else {
                assert!(answer.is_refused(), "{} at {caller}", answer.status);
                refused += 1;
            }
        }
        (served, refused)
    }
}

/// The permits `key` has left on `rule`.
pub(crate) async fn remaining(layer: &RateLimitLayer, rule: &str, key: &str) -> u64 {
    layer.handle().peek(rule, key, 0).await.unwrap().remaining()
}

/// Serves `app` on loopback as `axum::serve(listener, app)` does.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}
