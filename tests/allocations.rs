//! What a request allocates, counted: exact numbers, after the first 1,000 requests.
//!
//! One test, since the counting allocator is the whole process's.

use std::{
    alloc::System,
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::{Router, extract::ConnectInfo, routing::get};
use axum_core::body::Body;
use http::{Request, Response};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::{Layer, Service, service_fn};
use tower_sluice::{FixedWindow, Missing, RateLimitLayer, Rule, TokenBucket, key};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Long enough that nothing is refused, short enough that every key stays in force.
const PLENTY: TokenBucket = TokenBucket::per_second(1_000_000);

const USER: &str = "3f2c9a44-7b1e-4c0d-9e55-0123456789ab";

fn request() -> Request<Body> {
    assert_eq!(USER.len(), 36);
    let peer: SocketAddr = "192.0.2.7:4711".parse().unwrap();
    Request::get("/orders")
        .header("x-user-id", USER)
        .extension(ConnectInfo(peer))
        .body(Body::empty())
        .unwrap()
}

fn answer(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

/// Allocations of the `n`th request, the making of the request not counted.
fn allocations<S>(service: &mut S, n: usize) -> usize
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut last = 0;
    for _ in 0..n {
        let request = request();
        let region = Region::new(ALLOCATOR);
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut future = pin!(service.call(request));
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut cx) else {
            panic!("a ready service answers at once")
        };
        last = region.change().allocations;
        drop(response);
    }
    last
}

fn of_layer(rules: impl IntoIterator<Item = Rule>) -> usize {
    let layer = RateLimitLayer::builder().rules(rules).build().unwrap();
    allocations(&mut layer.layer(service_fn(answer)), 1_100)
}

fn by_header() -> Rule {
    Rule::new("user", PLENTY).key(key::header("x-user-id")).missing(Missing::Skip)
}

fn by_address() -> Rule {
    Rule::new("address", PLENTY).key(key::client_ip())
}

/// A layer that does nothing but what any layer must.
#[derive(Clone)]
struct PassThrough<S>(S);

impl<S: Service<Request<Body>>> Service<Request<Body>> for PassThrough<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        self.0.call(request)
    }
}

#[test]
fn requests_allocate_what_is_said_and_nothing_more() {
    // Admitted, on a ready service.
    assert_eq!(of_layer([Rule::new("all", PLENTY)]), 0, "one rule without a key");
    assert_eq!(of_layer([by_header()]), 0, "a header of 36 bytes");
    assert_eq!(of_layer([by_address()]), 0, "the client's address");
    assert_eq!(of_layer([Rule::new("route", PLENTY).key(key::route())]), 0, "the route");
    assert_eq!(
        of_layer([Rule::new("all", PLENTY), by_header(), by_address()]),
        0,
        "three rules with three keys"
    );
    assert_eq!(
        of_layer([Rule::new("pair", PLENTY)
            .key(key::header("x-user-id").and(key::client_ip()))
            .missing(Missing::Skip)]),
        0,
        "a combined key"
    );
    assert_eq!(
        of_layer([Rule::new("window", FixedWindow::per_second(1_000_000)).key(key::client_ip())]),
        0,
        "a window"
    );

    // Refused, on a ready service: the header map (2) and the body's box (1).
    let refused = [
        of_layer([Rule::new("all", TokenBucket::per_minute(1))]),
        of_layer([Rule::new("all", FixedWindow::per_hour(1)).key(key::client_ip())]),
        of_layer([Rule::new("all", PLENTY), Rule::new("second", TokenBucket::per_minute(1))]),
    ];
    assert_eq!(refused, [3, 3, 3]);

    // Under the router: what a pass-through layer costs there, and nothing more.
    let layer = RateLimitLayer::builder()
        .rules([Rule::new("all", PLENTY), by_header(), by_address()])
        .build()
        .unwrap();
    let app = || Router::new().route("/orders", get(|| async {}));
    let mut limited = app().layer(layer).with_state(());
    let mut passed = app().layer(tower::layer::layer_fn(PassThrough)).with_state(());
    let through = allocations(&mut passed, 1_100);
    assert!(through > 0, "the router itself allocates");
    assert_eq!(allocations(&mut limited, 1_100), through);
}
