//! IF: what is in flight, one request at a time.

use std::{
    future::pending,
    panic::resume_unwind,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router, body::Body, extract::Request, handler::Handler, response::Response, routing::get,
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Interval, interval, sleep},
};
use tower::{Layer, Service, ServiceExt, util::BoxCloneService};
use tower_http::{catch_panic::CatchPanicLayer, timeout::TimeoutLayer};
use tower_sluice::{
    Decision, FixedWindow, InFlight, RateLimitLayer, RejectionPolicy, Rule, TokioClock,
    testing::ScriptedBackend,
};

use crate::{
    support::{ask, request, serve},
    support_core::scaled,
    support_wire::{Client, Held, until},
};

fn limit(slots: &InFlight) -> RateLimitLayer {
    RateLimitLayer::builder().in_flight(slots.clone()).build().unwrap()
}

/// Fifty chunks, 100 ms apart, and trailers right behind the last.
struct Ticks {
    left: u64,
    trailers: bool,
    interval: Interval,
}

impl Ticks {
    fn new() -> Self {
        Self { left: 50, trailers: true, interval: interval(Duration::from_millis(100)) }
    }

    fn trailers() -> HeaderMap {
        [("x-chunks".parse().unwrap(), "50".parse().unwrap())].into_iter().collect()
    }
}

impl http_body::Body for Ticks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left > 0 {
            ready!(self.interval.poll_tick(cx));
            self.left -= 1;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"tick")))));
        }
        let trailers = std::mem::take(&mut self.trailers).then(Self::trailers);
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && !self.trailers
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(4 * self.left)
    }
}

#[tokio::test(start_paused = true)]
async fn if_01_permit_is_held_until_the_body_ends() {
    let slots = InFlight::new("streams", 8);
    let layer = RateLimitLayer::builder()
        .in_flight(slots.clone().spread(false))
        .clock(TokioClock)
        .build()
        .unwrap();
    let handler = || async { Response::new(Body::new(Ticks::new())) };
    let app = Router::new().route("/", get(handler)).layer(layer);
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        clients.spawn(async move {
            let answer = app.oneshot(request("GET", "/", None)).await.unwrap();
            let (status, body) = (answer.status(), answer.into_body());
            let hint = http_body::Body::size_hint(&body).exact();
            let read = body.collect().await.unwrap();
            (status, hint, read.trailers().cloned(), read.to_bytes())
        });
    }
    // The first chunk comes at once, the last at 4.9 s.
    for n in 0..49 {
        sleep(Duration::from_millis(if n == 0 { 50 } else { 100 })).await;
        assert_eq!(slots.in_flight(), 8, "chunk {n}");
        if n == 20 {
            let shed = ask(&app, request("GET", "/", None)).await;
            assert_eq!(shed.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(shed.retry_after(), Some(1));
        }
    }
    sleep(Duration::from_millis(100)).await;
    assert_eq!(slots.in_flight(), 0);
    let answers = clients.join_all().await;
    let (served, shed): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|(status, ..)| *status == StatusCode::OK);
    assert_eq!((served.len(), shed.len()), (8, 12));
    for (_, hint, trailers, body) in served {
        assert_eq!((hint, trailers), (Some(200), Some(Ticks::trailers())));
        assert_eq!(body, "tick".repeat(50));
    }
    assert!(shed.iter().all(|(status, ..)| *status == StatusCode::SERVICE_UNAVAILABLE));
    sleep(Duration::from_millis(550)).await;
    assert!(ask(&app, request("GET", "/", None)).await.is_ok());
    assert_eq!(slots.in_flight(), 0);
}

/// A body that has given some of what it has, and gives no more.
struct Stalled(bool);

impl http_body::Body for Stalled {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match std::mem::replace(&mut self.0, true) {
            false => Poll::Ready(Some(Ok(Frame::data("some".into())))),
            true => Poll::Pending,
        }
    }
}

/// Asks and goes once the handler has begun.
async fn leave_early(mut client: Client, started: Arc<Semaphore>) {
    let mut asks = pin!(client.get("/waits"));
    tokio::select! {
        answer = &mut asks => panic!("{answer:?}"),
        begun = started.acquire() => begun.unwrap().forget(),
    }
}

/// Asks and goes once some of the body has come.
async fn leave_mid_body(mut client: Client) {
    let mut answer = client.get("/streams").await.unwrap();
    assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), "some");
}

async fn finish(mut client: Client, path: &str, status: StatusCode) {
    let answer = client.get(path).await.unwrap();
    assert_eq!(answer.status(), status, "{path}");
    answer.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn if_02_who_leaves_or_is_late_frees_his_permit() {
    let slots = InFlight::new("four", 4);
    let (held, started) = (Held::new(), Arc::new(Semaphore::new(0)));
    let (hold, begun) = (held.clone(), started.clone());
    // A twentieth of the case's time for each request.
    let timeout =
        TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(10));
    let quota = RateLimitLayer::builder().rule(Rule::new("one", FixedWindow::per_day(1)));
    let denied = Decision::denied(1, 0, Duration::from_secs(1), Duration::from_secs(1));
    let elsewhere = Rule::new("elsewhere", FixedWindow::per_day(1))
        .backend(ScriptedBackend::from_fn(move |_| denied));
    let asks_elsewhere =
        RateLimitLayer::builder().rule(elsewhere).in_flight(slots.clone()).build().unwrap();
    let app = Router::new()
        .route(
            "/waits",
            get(move || async move {
                begun.add_permits(1);
                pending::<()>().await;
            }),
        )
        .route("/streams", get(|| async { Response::new(Body::new(Stalled(false))) }))
        .route("/inner", get(pending::<()>.layer(timeout)))
        .route("/refused", get((|| async {}).layer(quota.build().unwrap())))
        .route("/held", get(move || async move { hold.wait().await }))
        .layer(limit(&slots))
        .route("/outer", get(pending::<()>.layer(limit(&slots)).layer(timeout)))
        .route("/elsewhere", get((|| async {}).layer(asks_elsewhere)));
    let address = serve(app.clone()).await;
    let first = Client::open(address, false).await;
    finish(first, "/refused", StatusCode::OK).await;

    for http2 in [false, true] {
        let client = Client::open(address, http2).await;
        for batch in ["early", "mid-body", "/outer", "/inner", "/refused", "/elsewhere"] {
            for _ in 0..scaled(1_000).div_ceil(4) {
                let mut four = JoinSet::new();
                for _ in 0..4 {
                    let client = client.another(address).await;
                    let started = started.clone();
                    four.spawn(async move {
                        match batch {
                            "early" => leave_early(client, started).await,
                            "mid-body" => leave_mid_body(client).await,
                            "/outer" | "/inner" => {
                                finish(client, batch, StatusCode::GATEWAY_TIMEOUT).await;
                            }
                            _ => finish(client, batch, StatusCode::TOO_MANY_REQUESTS).await,
                        }
                    });
                }
                four.join_all().await;
                until(|| slots.in_flight() == 0).await;
            }
            held.assert_exactly(4, &app, &slots).await;
        }
    }
}

/// What a service does that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    PanicsInCall,
    Panics,
    Errs,
    IsNeverReady,
    BodyErrs,
    BodyPanics,
}

const FAILS: [Fails; 6] = [
    Fails::PanicsInCall,
    Fails::Panics,
    Fails::Errs,
    Fails::IsNeverReady,
    Fails::BodyErrs,
    Fails::BodyPanics,
];

/// Panics as a handler does, without the message on the console.
fn panics() -> ! {
    resume_unwind(Box::new("as intended"))
}

impl Service<Request> for Fails {
    type Response = Response;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Response, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(if *self == Self::IsNeverReady { Err("not ready") } else { Ok(()) })
    }

    fn call(&mut self, _: Request) -> Self::Future {
        if *self == Self::PanicsInCall {
            panics();
        }
        let fails = *self;
        Box::pin(async move {
            tokio::task::yield_now().await;
            match fails {
                Self::Panics => panics(),
                Self::Errs => Err("failed"),
                _ => Ok(Response::new(Body::new(Broken(fails == Self::BodyPanics, true)))),
            }
        })
    }
}

/// A body that gives a little and then panics, or fails.
struct Broken(bool, bool);

impl http_body::Body for Broken {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if std::mem::take(&mut self.1) {
            return Poll::Ready(Some(Ok(Frame::data("a little".into()))));
        }
        if self.0 {
            panics();
        }
        Poll::Ready(Some(Err("broke off")))
    }
}

type Boxed = BoxCloneService<Request, Response, &'static str>;

/// The service without and with something that catches panics, inside and outside.
fn stacks(slots: &InFlight, fails: Fails) -> [(&'static str, Boxed); 3] {
    let caught = CatchPanicLayer::new();
    let outside = caught.clone().layer(limit(slots).layer(fails));
    [
        ("not caught", BoxCloneService::new(limit(slots).layer(fails))),
        ("caught inside", BoxCloneService::new(limit(slots).layer(caught.layer(fails)))),
        (
            "caught outside",
            BoxCloneService::new(
                outside.map_response(|response: http::Response<_>| response.map(Body::new)),
            ),
        ),
    ]
}

#[tokio::test]
async fn if_03_panics_and_errors_give_the_permit_back() {
    let slots = InFlight::new("two", 2);
    for fails in FAILS {
        for (place, service) in stacks(&slots, fails) {
            let ends = match (fails, place) {
                (Fails::Errs, _) => "failed",
                (Fails::IsNeverReady, _) => "not ready",
                (Fails::BodyErrs, _) => "broke off",
                (Fails::BodyPanics, _) | (_, "not caught") => "panicked",
                _ => "500",
            };
            for _ in 0..1_000 {
                let service = service.clone();
                let call = tokio::spawn(async move {
                    let response = service.oneshot(Request::default()).await?;
                    let status = response.status().as_u16().to_string();
                    let body = response.into_body().collect().await;
                    Ok::<_, String>(body.map_or_else(|error| error.to_string(), |_| status))
                });
                let ended = match call.await {
                    Ok(ended) => ended.unwrap_or_else(|error| error),
                    Err(error) => {
                        assert!(error.is_panic());
                        "panicked".to_owned()
                    }
                };
                assert_eq!(ended, ends, "{fails:?}, {place}");
                assert_eq!(slots.in_flight(), 0, "{fails:?}, {place}");
            }
            let both = [slots.try_acquire(), slots.try_acquire()];
            assert!(both.iter().all(Option::is_some), "{fails:?}, {place}");
            assert!(slots.try_acquire().is_none(), "{fails:?}, {place}");
        }
    }
}

/// Ready once, and broken when it is asked again; so are its clones.
#[derive(Clone)]
struct ReadyOnce(Arc<AtomicU64>);

impl Service<Request> for ReadyOnce {
    type Response = Response;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        let first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
        Poll::Ready(if first { Ok(()) } else { Err("broke meanwhile") })
    }

    fn call(&mut self, _: Request) -> Self::Future {
        panic!("called though it is broken")
    }
}

#[tokio::test]
async fn if_03_service_that_breaks_while_a_request_waits() {
    let slots =
        InFlight::new("two", 2).rejection(RejectionPolicy::queue(Duration::from_secs(3_600), 10));
    for _ in 0..1_000 {
        let both = [slots.try_acquire().unwrap(), slots.try_acquire().unwrap()];
        let mut service = limit(&slots).layer(ReadyOnce(Arc::default()));
        let call = service.ready().await.unwrap().call(Request::default());
        let call = tokio::spawn(call);
        while slots.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        drop(both);
        assert_eq!(call.await.unwrap().unwrap_err(), "broke meanwhile");
        assert_eq!((slots.in_flight(), slots.waiting()), (0, 0));
    }
}
