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
    time::Duration,
};

use axum::{Router, extract::ConnectInfo, routing::get};
use axum_core::body::Body;
use http::{Request, Response};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::{Layer, Service, service_fn};
use tower_sluice::{
    FixedWindow, Headers, InFlight, LeakyBucket, ManualClock, Missing, RateLimitLayer,
    RejectionPolicy, Rule, SlidingLog, SlidingWindow, TokenBucket, WarmUp, key,
};

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

type Answer = Ready<Result<Response<Body>, Infallible>>;

/// A body that has not ended when the head is there.
fn answer_text(_: Request<Body>) -> Answer {
    ready(Ok(Response::new(Body::from("text"))))
}

fn answer(_: Request<Body>) -> Answer {
    ready(Ok(Response::new(Body::empty())))
}

/// With a field, as nearly every answer of a handler has one.
fn answer_field(_: Request<Body>) -> Answer {
    let mut response = Response::new(Body::empty());
    let value = http::HeaderValue::from_static("text/plain");
    response.headers_mut().insert(http::header::CONTENT_TYPE, value);
    ready(Ok(response))
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

/// What limits on what is in flight allocate: where the answer's body has ended, and where it has not, beside
/// what the answer itself allocates.
fn of_limits(limits: impl IntoIterator<Item = InFlight>) -> (usize, usize) {
    let layer = RateLimitLayer::builder().rules([Rule::new("all", PLENTY)]);
    let layer = limits.into_iter().fold(layer, |layer, limit| layer.in_flight(limit)).build();
    let layer = layer.unwrap();
    let text = allocations(&mut PassThrough(service_fn(answer_text)), 1_100);
    (
        allocations(&mut layer.layer(service_fn(answer)), 1_100),
        allocations(&mut layer.layer(service_fn(answer_text)), 1_100) - text,
    )
}

fn one(name: &str) -> InFlight {
    InFlight::new(name, 1)
}

fn one_by_header(name: &str) -> InFlight {
    one(name).key(key::header("x-user-id")).missing(Missing::Skip)
}

/// Allocations of a request that waits, after 1,000 others: up to its place, while the wait is ended, and from
/// its turn to the answer.
/// `block` makes it wait, `unblock` ends the wait.
fn while_waiting<S, G>(
    service: &mut S,
    mut block: impl FnMut() -> G,
    mut unblock: impl FnMut(G),
) -> (usize, usize, usize)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut last = (0, 0, 0);
    for _ in 0..1_100 {
        let (request, blocked) = (request(), block());
        let region = Region::new(ALLOCATOR);
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut future = pin!(service.call(request));
        assert!(future.as_mut().poll(&mut cx).is_pending(), "it has to wait");
        let joined = region.change().allocations;
        unblock(blocked);
        let unblocked = region.change().allocations - joined;
        let region = Region::new(ALLOCATOR);
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut cx) else {
            panic!("its turn has come")
        };
        assert_eq!(response.status(), 200);
        last = (joined, unblocked, region.change().allocations);
    }
    last
}

fn queue() -> RejectionPolicy {
    RejectionPolicy::queue(Duration::from_secs(1), 10)
}

/// Each request waits for the next permit.
fn of_a_rate_queue(rule: Rule) -> (usize, usize) {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::builder().rule(rule.rejection(queue())).clock(clock.clone());
    let mut service = layer.build().unwrap().layer(service_fn(answer));
    let _first_does_not_wait = allocations(&mut service, 1);
    // What the clock allocates to move is its own.
    let (joined, _, answered) =
        while_waiting(&mut service, || (), |()| clock.advance(Duration::from_secs(1)));
    (joined, answered)
}

/// Each request waits for the permit that is out.
fn of_an_in_flight_queue(limit: InFlight) -> (usize, usize, usize) {
    let limit = limit.clock(ManualClock::new());
    let layer = RateLimitLayer::builder().in_flight(limit.clone().rejection(queue()));
    let mut service = layer.build().unwrap().layer(service_fn(answer));
    // Of all, and of the key.
    let block = || (limit.try_acquire().unwrap(), limit.try_acquire_by(USER).unwrap());
    while_waiting(&mut service, block, drop)
}

/// A degraded answer, of a service that allocates nothing.
fn of_a_degraded_answer() -> usize {
    let policy = RejectionPolicy::degrade_service(service_fn(answer));
    let rule = Rule::new("all", TokenBucket::per_hour(1)).rejection(policy);
    of_layer([rule])
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
    // What slides has room for as many cells, or requests, as it had before.
    let slides = SlidingWindow::per_second(1_000_000);
    assert_eq!(of_layer([Rule::new("all", slides)]), 0, "a sliding window");
    assert_eq!(of_layer([Rule::new("address", slides).key(key::client_ip())]), 0, "with a key");
    let log = SlidingLog::per_hour(60_000);
    assert_eq!(of_layer([Rule::new("address", log).key(key::client_ip())]), 0, "a log");
    let ramp = WarmUp::over(Duration::from_secs(600)).after_idle(Duration::from_secs(3_600));
    assert_eq!(of_layer([Rule::new("all", PLENTY.warm_up(ramp))]), 0, "while it warms up");

    let tiers =
        by_header().tier("pro", PLENTY).tiers(|head| head.header_str("x-user-id").map(|_| "pro"));
    assert_eq!(of_layer([tiers]), 0, "a tier");

    // In flight: the box of the body that holds the permit, none where the body has ended with the head. From
    // the second limit on two more, for all together: the list of permits, and what goes with the request.
    assert_eq!(of_limits([one("a")]), (0, 1), "one limit");
    assert_eq!(of_limits([one_by_header("a")]), (0, 1), "one limit with a key");
    assert_eq!(of_limits([one("a"), one_by_header("b")]), (2, 3), "two limits");
    // The third makes the list of what is asked for too long for its place.
    assert_eq!(of_limits([one("a"), one("b"), one_by_header("c")]), (3, 4), "three limits");

    // Waiting: the request put by (1), how far its chain is (1), what waits (1), the sleep (1), and a room or a
    // key's line (1), which are there only while somebody is in them. Handing a permit over takes the list of
    // whom to wake (1), and in a key's line that of who may take one (1).
    let pace = || Rule::new("pace", LeakyBucket::per_second(1));
    assert_eq!(of_a_rate_queue(pace()), (5, 0), "for a rate");
    assert_eq!(of_a_rate_queue(pace().key(key::client_ip())), (5, 0), "for a rate with a key");
    assert_eq!(of_an_in_flight_queue(one("a")), (4, 1, 0), "for a permit");
    assert_eq!(of_an_in_flight_queue(one_by_header("a")), (5, 2, 0), "for a permit of a key");

    // Degraded: the copy of the head, the rejection, the handler's future, the body and what keeps them.
    assert_eq!(of_a_degraded_answer(), 14);

    // Refused, on a ready service: the header map (2) and the body's box (1).
    let refused = [
        of_layer([Rule::new("all", TokenBucket::per_minute(1))]),
        of_layer([Rule::new("all", FixedWindow::per_hour(1)).key(key::client_ip())]),
        of_layer([Rule::new("all", PLENTY), Rule::new("second", TokenBucket::per_minute(1))]),
    ];
    assert_eq!(refused, [3, 3, 3]);

    // Told how they stand: the text of what is left. The header map is the answer's own.
    let told = |rules: Vec<Rule>, answer: fn(Request<Body>) -> Answer| {
        let layer = RateLimitLayer::builder().rules(rules).headers(Headers::Draft11);
        allocations(&mut layer.build().unwrap().layer(service_fn(answer)), 1_100)
    };
    let own = allocations(&mut PassThrough(service_fn(answer_field)), 1_100);
    assert_eq!(told(vec![by_header()], answer_field) - own, 1, "with one rule");
    let three = || vec![Rule::new("all", PLENTY).advertise(), by_header(), by_address()];
    assert_eq!(told(three(), answer_field) - own, 1, "with three");
    let layer = RateLimitLayer::builder().rule(by_header()).in_flight(one("a"));
    let layer = layer.headers(Headers::Draft11).build().unwrap();
    let held = allocations(&mut layer.layer(service_fn(answer_field)), 1_100);
    assert_eq!(held - own, 1, "with a permit, where the body has ended");
    let window = || FixedWindow::per_hour(1);
    let refused = told(vec![Rule::new("all", window()).key(key::client_ip())], answer);
    assert_eq!(refused, 3 + 1, "refused");

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
