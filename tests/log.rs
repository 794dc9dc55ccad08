//! Set-up faults are told to `tracing` as well.
//!
//! One test, since whether anybody listens to an event is remembered for the whole process, and wrongly
//! where another thread comes upon it while the listener is installed.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex},
};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, event::Fault, key};
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
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((level, target, fields), expected) in told.into_iter().zip(expected) {
        assert_eq!((level, &*target), (Level::WARN, "tower_sluice"));
        assert_eq!(sorted(fields), sorted(expected));
    }
}
