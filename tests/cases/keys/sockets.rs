//! What only a real connection shows.

use std::net::SocketAddr;

use axum::{Router, extract::Request, routing::post};
use http::Version;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::Layer;
use tower_http::normalize_path::NormalizePathLayer;

use super::*;

/// The status a server answers this request line and these header lines with.
async fn status(address: SocketAddr, line: &str, headers: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nhost: example\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with(&format!("{:?} ", Version::HTTP_11)), "{answer}");
    answer[9..12].parse().unwrap()
}

pub(super) async fn no_connect_info() {
    let (app, layer, faults) = limited(5, key::client_ip());
    let address = serve(app).await;
    let mut statuses = vec![status(address, "GET /", "").await];
    for n in 0..20 {
        let header = format!("{XFF}: 203.0.113.{n}\r\n");
        statuses.push(status(address, "GET /", &header).await);
    }
    assert_eq!(statuses[..5], [200; 5]);
    assert_eq!(statuses[5..], [429; 16], "rotating the header mints no buckets");
    assert_eq!(tracked(&layer), 1);
    assert_eq!(faults.raised()[0], Fault::Peer);
    assert_eq!(faults.raised().iter().filter(|fault| **fault == Fault::Peer).count(), 1);
    assert!(Fault::Peer.advice().contains("into_make_service_with_connect_info"));
}

pub(super) async fn spellings() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("r", window(3, 60)).key(key::route().and(key::client_ip())))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = runs.clone();
    let login = move || {
        counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::ready(())
    };
    let router = Router::new().route("/login", post(login)).layer(layer.clone());
    let app = NormalizePathLayer::trim_trailing_slash().layer(router);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let make = axum::ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(app);
    tokio::spawn(async move { axum::serve(listener, make).await });
    let post = async |target: &str| {
        status(address, &format!("POST {target}"), "content-length: 0\r\n").await
    };
    // Those that route share one bucket of three; those that do not share another.
    assert_eq!(post("/LOGIN").await, 404);
    assert_eq!(post("/login?x=1").await, 200);
    assert_eq!(post("/login/").await, 200);
    assert_eq!(post("/%6Cogin").await, 404);
    assert_eq!(post("http://example/login").await, 200);
    for routed in ["/login", "/login?x=2", "/login/", "http://example/login", "/login//"] {
        assert_eq!(post(routed).await, 429, "{routed}");
    }
    assert_eq!(post("/./login").await, 404);
    for unmatched in ["/./login", "/LOGIN", "/%6Cogin", "/login/x"] {
        assert_eq!(post(unmatched).await, 429, "{unmatched}");
    }
    // Both are exhausted, so whichever of them this one belongs to, no handler runs.
    assert_eq!(post("//login").await, 429);
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 3, "handler runs");
    assert_eq!(tracked(&layer), 2);
}
