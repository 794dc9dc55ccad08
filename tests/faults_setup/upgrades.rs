//! SL-UPGRADE: a connection comes of a request, and nobody keeps its permits.

use std::{
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{InFlight, RateLimitLayer, event::Fault, in_flight::Permits, testing::Recorder};

#[tokio::test]
async fn sl_upgrade_where_nobody_keeps_the_permits() {
    for (keeps, status) in [
        (false, StatusCode::SWITCHING_PROTOCOLS),
        (true, StatusCode::SWITCHING_PROTOCOLS),
        (false, StatusCode::UPGRADE_REQUIRED),
    ] {
        let (recorder, kept) = (Recorder::new(), Arc::new(Mutex::new(None)));
        let layer = RateLimitLayer::builder()
            .in_flight(InFlight::new("sockets", 1))
            .observer(recorder.clone())
            .build()
            .unwrap();
        let keep = Arc::clone(&kept);
        let inner = service_fn(move |mut request: Request<Body>| {
            let permits = request.extensions_mut().remove::<Permits>();
            assert!(permits.is_some(), "it asks for an upgrade");
            *keep.lock().unwrap() = permits.filter(|_| keeps);
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = status;
            ready(Ok::<_, Infallible>(answer))
        });
        // Told once, of two.
        for _ in 0..2 {
            let request = Request::get("/").header("upgrade", "websocket");
            let request = request.body(Body::empty()).unwrap();
            let answer = layer.layer(inner.clone()).oneshot(request).await.unwrap();
            assert_eq!(answer.status(), status);
            drop(answer);
            assert_eq!(layer.handle().in_flight("sockets").unwrap(), u64::from(keeps));
            kept.lock().unwrap().take();
        }
        let is_fault = !keeps && status == StatusCode::SWITCHING_PROTOCOLS;
        let expected: &[Fault] = if is_fault { &[Fault::Upgrade] } else { &[] };
        assert_eq!(recorder.faults(), expected, "keeps: {keeps}, {status}");
    }
}
