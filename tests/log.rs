//! Set-up faults are told to `tracing` as well.
//!
//! One test, since whether anybody listens to an event is remembered for the whole process, and wrongly
//! where another thread comes upon it while the listener is installed.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    InFlight, ManualClock, RateLimitLayer, RejectionPolicy, Rule, TokenBucket, clock::StdClock,
    event::Fault, key,
};
use tracing::{Level, Subscriber, field, span};

/// One event: level, target, and its fields in order.
type Event = (Level, String, Vec<(String, String)>);

/// A subscriber that keeps what it is told.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Event>>>);

struct Fields(Vec<(String, String)>);

impl field::Visit for Fields {
    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "tower_sluice"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_owned());
        self.0.lock().unwrap().push((level, target, fields.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Waits that end without an admission. Only those are told of whose timer is another clock's: each by a limiter
/// or in-flight limit, which has nobody else to tell; once by a layer.
async fn wait_in_vain() {
    let minute = Duration::from_secs(60);
    let slow = TokenBucket::new(1, Duration::from_secs(10));
    let partner = slow.limiter().name("partner").clock(StdClock).build().unwrap();
    for allowed in [true, false, false] {
        assert_eq!(partner.acquire(minute).await.is_allowed(), allowed);
    }
    let calls = InFlight::new("calls", 1).clock(StdClock);
    let held = calls.acquire(minute).await;
    assert!(held.is_some() && calls.acquire(minute).await.is_none());

    let builder = || {
        let builder = RateLimitLayer::builder().rule(Rule::new("slow", slow));
        builder.rejection(RejectionPolicy::queue(minute, 10))
    };
    let ask = |layer: &RateLimitLayer| {
        let inner = service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        layer.layer(inner).oneshot(Request::get("/a").body(Body::empty()).unwrap())
    };
    let wrong = builder().clock(StdClock).build().unwrap();
    for status in [200, 429, 429] {
        assert_eq!(ask(&wrong).await.unwrap().status(), status);
    }
    // Nothing is told of those who leave, or for whom it would be too long.
    let right = builder().clock(ManualClock::new()).build().unwrap();
    let mut requests: Vec<_> = (0..8).map(|_| Box::pin(ask(&right))).collect();
    let mut pending = 0;
    for request in &mut requests {
        let polled = poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await;
        pending += usize::from(polled.is_pending());
    }
    assert_eq!(pending, 6, "of eight one passes, and one has no place within a minute");
    drop(requests);
}

#[test]
fn faults_are_tracing_warnings() {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rule = Rule::new("user", TokenBucket::per_second(1_000_000))
                .key(key::header("x-user-id").or(key::client_ip()))
                .max_keys(1);
            let layer =
                RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap();
            let send = async |request: http::request::Builder| {
                let inner = service_fn(|_: Request<Body>| async {
                    Ok::<_, Infallible>(Response::new(Body::empty()))
                });
                let request = request.body(Body::empty()).unwrap();
                assert_eq!(layer.layer(inner).oneshot(request).await.unwrap().status(), 200);
            };
            for _ in 0..3 {
                send(Request::get("/a")).await;
            }
            for n in 0..500 {
                send(Request::get("/a").header("x-user-id", format!("secret-{n}"))).await;
            }
            let twice = layer.layer(layer.layer(service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            })));
            twice.oneshot(Request::get("/a").body(Body::empty()).unwrap()).await.unwrap();
        });
        let mut paused = tokio::runtime::Builder::new_current_thread();
        let paused = paused.enable_time().start_paused(true).build().unwrap();
        paused.block_on(wait_in_vain());
    });
    let told = log.0.lock().unwrap().clone();
    let text = |fault: Fault, rule: Option<&str>| {
        let field = |name: &str, value: String| (name.to_owned(), value);
        let rule = rule.map(|rule| field("rule", format!("{rule:?}")));
        let message = field("message", fault.advice().to_owned());
        [message, field("code", format!("{:?}", fault.code()))].into_iter().chain(rule).collect()
    };
    let sorted = |mut fields: Vec<(String, String)>| {
        fields.sort();
        fields
    };
    let expected = [
        text(Fault::Peer, Some("user")),
        text(Fault::Keys, Some("user")),
        text(Fault::Twice, None),
        text(Fault::Clock, Some("partner")),
        text(Fault::Clock, Some("partner")),
        text(Fault::Clock, Some("calls")),
        text(Fault::Clock, None),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((level, target, fields), expected) in told.into_iter().zip(expected) {
        assert_eq!((level, &*target), (Level::WARN, "tower_sluice"));
        assert_eq!(sorted(fields), sorted(expected));
    }
}
