//! Layers around a service that is always ready, each behind a virtual call: so the loop around
//! them is the same machine code, and what differs is the layer.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Request, Response},
};
use tower::{Layer, Service};
use tower_sluice::{InFlight, Missing, RateLimitLayer, Rule, TokenBucket, key};

use crate::{rivals, yardstick::Gcra};

pub const BARE: &str = "bare service";
pub const PASSTHROUGH: &str = "layer that does nothing";
pub const FLOOR: &str = "yardstick: one GCRA step";
pub const BORROWED: &str = "yardstick: one GCRA step, request looked at";
pub const GOVERNOR_GLOBAL: &str = "tower_governor, global";
pub const GOVERNOR_PEER: &str = "tower_governor, peer address";
pub const GOVERNOR_FORWARDED: &str = "tower_governor, X-Forwarded-For";
pub const OURS_NONE: &str = "**ours**, a rule that does not match";
pub const OURS_GLOBAL: &str = "**ours**, one global rule";
pub const OURS_PEER: &str = "**ours**, peer address";
pub const OURS_FORWARDED: &str = "**ours**, X-Forwarded-For";
pub const OURS_HEADER: &str = "**ours**, header of 36 bytes";
pub const OURS_THREE: &str = "**ours**, three global rules";
pub const OURS_IN_FLIGHT: &str = "**ours**, in flight alone";
pub const OURS_ALL: &str = "**ours**, three global rules and in flight";
pub const GOVERNOR_REFUSED: &str = "tower_governor, refused";
pub const OURS_REFUSED: &str = "**ours**, refused";

pub const ALL: [&str; 17] = [
    BARE,
    PASSTHROUGH,
    FLOOR,
    BORROWED,
    GOVERNOR_GLOBAL,
    GOVERNOR_PEER,
    GOVERNOR_FORWARDED,
    OURS_NONE,
    OURS_GLOBAL,
    OURS_PEER,
    OURS_FORWARDED,
    OURS_HEADER,
    OURS_THREE,
    OURS_IN_FLIGHT,
    OURS_ALL,
    GOVERNOR_REFUSED,
    OURS_REFUSED,
];

/// A service, whatever its layers.
pub trait Contender {
    fn serve(&mut self, request: Request<Body>, cx: &mut Context<'_>) -> Response<Body>;
}

impl<S> Contender for S
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    fn serve(&mut self, request: Request<Body>, cx: &mut Context<'_>) -> Response<Body> {
        let Poll::Ready(Ok(())) = self.poll_ready(cx) else { panic!("not ready") };
        match pin!(self.call(request)).poll(cx) {
            Poll::Ready(Ok(response)) => response,
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => panic!("the answer takes a while"),
        }
    }
}

/// The service inside.
#[derive(Clone)]
struct Bare;

impl Service<Request<Body>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    // A handler is never a part of the layer's own code.
    #[inline(never)]
    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(&request);
        ready(Ok(Response::new(Body::empty())))
    }
}

/// What every layer costs.
#[derive(Clone)]
struct Passthrough<S>(S);

impl<S: Service<Request<Body>>> Service<Request<Body>> for Passthrough<S> {
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

/// What every limiter costs at the least.
#[derive(Clone)]
struct Step<S> {
    inner: S,
    gcra: Arc<Gcra>,
    clock: quanta::Clock,
    looks: bool,
}

impl<S> Step<S> {
    fn new(inner: S, looks: bool) -> Self {
        Self { inner, gcra: Arc::new(Gcra::generous()), clock: quanta::Clock::new(), looks }
    }
}

impl<S> Service<Request<Body>> for Step<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.looks {
            // As a key does, though a key reads only a part.
            black_box(&request);
        }
        if self.gcra.allows(self.clock.raw()) {
            Either::Inner { inner: self.inner.call(request) }
        } else {
            Either::Refused
        }
    }
}

pin_project_lite::pin_project! {
    #[project = EitherProj]
    enum Either<F> {
        Inner { #[pin] inner: F },
        Refused,
    }
}

impl<F, E> Future for Either<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = F::Output;

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project() {
            EitherProj::Inner { inner } => inner.poll(cx),
            EitherProj::Refused => Poll::Ready(Ok(Response::new(Body::empty()))),
        }
    }
}

fn generous() -> TokenBucket {
    TokenBucket::per_second(1_000_000_000).burst(1_000_000_000)
}

fn ours(rules: impl IntoIterator<Item = Rule>) -> Box<dyn Contender> {
    let layer = RateLimitLayer::builder().rules(rules).build().expect("the rules are right");
    Box::new(layer.layer(Bare))
}

fn ours_in_flight(rules: impl IntoIterator<Item = Rule>) -> Box<dyn Contender> {
    let layer = RateLimitLayer::builder().rules(rules).in_flight(InFlight::new("db", 64));
    Box::new(layer.build().expect("the limits are right").layer(Bare))
}

fn three() -> [Rule; 3] {
    ["first", "second", "third"].map(|name| Rule::new(name, generous()))
}

/// A contender past its first requests, which are looked at more closely.
pub fn make(name: &str) -> Box<dyn Contender> {
    let per_user = Rule::new("per-user", generous());
    let mut contender: Box<dyn Contender> = match name {
        BARE => Box::new(Bare),
        PASSTHROUGH => Box::new(Passthrough(Bare)),
        FLOOR => Box::new(Step::new(Bare, false)),
        BORROWED => Box::new(Step::new(Bare, true)),
        GOVERNOR_GLOBAL => Box::new(rivals::global(true).layer(Bare)),
        GOVERNOR_PEER => Box::new(rivals::peer().layer(Bare)),
        GOVERNOR_FORWARDED => Box::new(rivals::forwarded().layer(Bare)),
        OURS_NONE => ours([Rule::new("elsewhere", generous()).when(|head| head.path() == "/x")]),
        OURS_GLOBAL => ours([Rule::new("orders", generous())]),
        OURS_PEER => ours([Rule::new("per-address", generous()).key(key::client_ip())]),
        OURS_FORWARDED => ours([Rule::new("per-address", generous())
            .key(key::client_ip().x_forwarded_for().trusted_hops(1))]),
        OURS_HEADER => ours([per_user.key(key::header("x-user-id")).missing(Missing::Skip)]),
        OURS_THREE => ours(three()),
        OURS_IN_FLIGHT => ours_in_flight([]),
        OURS_ALL => ours_in_flight(three()),
        GOVERNOR_REFUSED => Box::new(rivals::global(false).layer(Bare)),
        OURS_REFUSED => ours([Rule::new("orders", TokenBucket::per_hour(1))]),
        other => panic!("no contender {other:?}"),
    };
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..1_000 {
        // Two callers, so that it is seen that keys differ.
        contender.serve(request(0), &mut cx);
        contender.serve(request(1), &mut cx);
    }
    contender
}

/// A request as a browser's script might send it through a proxy.
#[inline(never)]
fn request(caller: u8) -> Request<Body> {
    let (address, user) = if caller == 0 {
        ("198.51.100.7", "a3bb189e-8bf9-3888-9912-ace4e6543002")
    } else {
        ("198.51.100.8", "7d444840-9dc0-11d1-b245-5ffdce74fad2")
    };
    Request::builder()
        .uri("/orders")
        .header("host", "shop.example")
        .header("x-user-id", user)
        .header("x-forwarded-for", address)
        .extension(ConnectInfo(SocketAddr::from((Ipv4Addr::new(192, 0, 2, caller), 4_711))))
        .body(Body::empty())
        .expect("a request")
}

/// Serves `n` requests.
#[inline(never)]
pub fn drive(contender: &mut dyn Contender, n: u64) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..n {
        let response = contender.serve(request(0), &mut cx);
        black_box(&response);
    }
}

/// The status that a contender answers with.
pub fn status(contender: &mut dyn Contender) -> u16 {
    contender.serve(request(0), &mut Context::from_waker(Waker::noop())).status().as_u16()
}
