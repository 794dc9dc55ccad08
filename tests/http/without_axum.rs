//! Under hyper alone, bodies kept as they are.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_sluice::{FixedWindow, InFlight, Missing, RateLimitLayer, Rule, body::ResponseBody, key};

use crate::support::{BOTH, Connection, Hits, LIMIT, flood, get, limit, listen};

/// Serves a limited service of hyper's types, cloned for each connection.
async fn serve(layer: RateLimitLayer, hits: Hits) -> SocketAddr {
    let inner = service_fn(move |_: Request<Incoming>| {
        hits.add();
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("kept")))))
    });
    let limited = layer.keep_body().layer(inner);
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(limited.clone());
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                // The client may go whenever it likes.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn kept_bodies_under_hyper_admit_exactly_the_limit() {
    for wire in BOTH {
        let hits = Hits::default();
        let address = serve(limit(), hits.clone()).await;
        let first = Connection::open(address, wire).await.get("/").await;
        assert_eq!((first.status, &*first.body), (StatusCode::OK, &b"kept"[..]));
        let tally = flood(address, wire, "/").await;
        assert_eq!((tally.served, tally.other), (LIMIT - 1, 0), "{wire:?}");
        assert_eq!(hits.get(), LIMIT, "{wire:?}");
    }
}

#[tokio::test]
async fn one_layer_serves_axum_and_hyper_with_one_limit() {
    for wire in BOTH {
        let (hits, limit) = (Hits::default(), limit());
        let router = axum::Router::new()
            .route("/", axum::routing::get(hits.handler()))
            .layer(ServiceBuilder::new().layer(limit.clone()));
        let under_axum = crate::support::serve(router).await;
        let under_hyper = serve(limit, hits.clone()).await;
        let (one, two) = tokio::join!(flood(under_axum, wire, "/"), flood(under_hyper, wire, "/"));
        assert_eq!(one.served + two.served, LIMIT, "{wire:?}");
        assert_eq!((one.other, two.other, hits.get()), (0, 0, LIMIT), "{wire:?}");
    }
}

#[tokio::test]
async fn refusals_under_hyper_are_whole() {
    for wire in BOTH {
        let layer = RateLimitLayer::builder()
            .rule(
                Rule::new("per-user", FixedWindow::per_day(1))
                    .key(key::header("x-user-id"))
                    .missing(Missing::Shared),
            )
            .build()
            .unwrap();
        let hits = Hits::default();
        let address = serve(layer, hits.clone()).await;
        let mut connection = Connection::open(address, wire).await;
        assert_eq!(connection.get("/").await.status, StatusCode::OK);
        let refused = connection.get("/").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let text = std::str::from_utf8(&refused.body).unwrap();
        assert!(text.ends_with(r#""reason":"quota","violated-policies":["per-user"]}"#), "{text}");
        let mut named = get("/");
        named.headers_mut().insert("x-user-id", "alice".parse().unwrap());
        assert_eq!(connection.send(named).await.status, StatusCode::OK);
        assert_eq!(hits.get(), 2);
    }
}

#[test]
fn kept_bodies_have_a_type_that_can_be_named() {
    fn named<
        S: tower::Service<Request<Full<Bytes>>, Response = Response<ResponseBody<Full<Bytes>>>>,
    >(
        _: S,
    ) {
    }
    let inner = service_fn(|_: Request<Full<Bytes>>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    named(limit().keep_body().layer(inner));
}

/// A kept body holds its permit to its end, as a boxed one does.
#[tokio::test]
async fn kept_bodies_hold_their_permits() {
    let flight = InFlight::new("calls", 1);
    let layer = RateLimitLayer::builder().in_flight(flight.clone()).build().unwrap();
    let service = layer.keep_body().layer(service_fn(|_: Request<Full<Bytes>>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::from("text"))))
    }));
    let ask = || service.clone().oneshot(Request::new(Full::<Bytes>::default()));
    for read in [true, false] {
        let served = ask().await.unwrap();
        assert_eq!((served.status(), flight.in_flight()), (StatusCode::OK, 1));
        assert_eq!(ask().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        if read {
            let text = served.into_body().collect().await.unwrap();
            assert_eq!(text.to_bytes(), "text");
        } else {
            drop(served);
        }
        assert_eq!(flight.in_flight(), 0);
    }
}
