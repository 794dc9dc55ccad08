//! IF: connections that come of a request and outlive its answer.

use std::net::SocketAddr;

use axum::{Extension, Router, extract::ws, routing::get};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower_sluice::{InFlight, RateLimitLayer, in_flight::Permits};

use crate::{
    support::serve,
    support_wire::{Client, until},
};

async fn echo(mut socket: ws::WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, ws::Message::Text(_)) && socket.send(message).await.is_err() {
            break;
        }
    }
}

/// Sockets that echo: `/kept` counts as long as the connection lives, `/ignored` up to the 101.
fn sockets(slots: &InFlight) -> Router {
    let kept = async |upgrade: ws::WebSocketUpgrade, permits: Extension<Permits>| {
        assert_eq!(permits.names(), ["sockets"]);
        upgrade.on_upgrade(async move |socket| {
            echo(socket).await;
            drop(permits);
        })
    };
    let ignored = async |upgrade: ws::WebSocketUpgrade| upgrade.on_upgrade(echo);
    Router::new()
        .route("/kept", get(kept))
        .route("/ignored", get(ignored))
        .layer(RateLimitLayer::builder().in_flight(slots.clone()).build().unwrap())
}

/// Opens a socket by hand.
async fn open(address: SocketAddr, path: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let ask = format!(
        "GET {path} HTTP/1.1\r\nhost: example\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let status = std::str::from_utf8(&head).unwrap()["HTTP/1.1 ".len()..][..3].parse().unwrap();
    (status, stream)
}

/// Sends a text, masked with zeros, and reads it back.
async fn assert_echoes(stream: &mut TcpStream) {
    stream.write_all(b"\x81\x82\0\0\0\0hi").await.unwrap();
    let mut frame = [0; 4];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame, b"\x81\x02hi");
}

async fn open_five(address: SocketAddr, path: &str) -> Vec<(u16, TcpStream)> {
    let mut five = Vec::new();
    for _ in 0..5 {
        five.push(open(address, path).await);
    }
    for (_, stream) in five.iter_mut().filter(|(status, _)| *status == 101) {
        assert_echoes(stream).await;
    }
    five
}

#[tokio::test]
async fn if_05_kept_permits_count_the_connection() {
    let slots = InFlight::new("sockets", 2);
    let address = serve(sockets(&slots)).await;
    for _ in 0..3 {
        let mut five = open_five(address, "/kept").await;
        let statuses: Vec<_> = five.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [101, 101, 503, 503, 503]);
        assert_eq!(slots.in_flight(), 2);
        // One closes, and one place is free.
        drop(five.remove(0));
        until(|| slots.in_flight() == 1).await;
        let (status, again) = open(address, "/kept").await;
        assert_eq!((status, slots.in_flight()), (101, 2));
        assert_eq!(open(address, "/kept").await.0, 503);
        drop((five, again));
        until(|| slots.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn if_05_ignored_permits_go_with_the_answer() {
    let slots = InFlight::new("sockets", 2);
    let address = serve(sockets(&slots)).await;
    let mut kept = Vec::new();
    for n in 0..5 {
        let (status, mut stream) = open(address, "/ignored").await;
        assert_eq!(status, 101, "socket {n}");
        until(|| slots.in_flight() == 0).await;
        assert_echoes(&mut stream).await;
        kept.push(stream);
    }
    for stream in &mut kept {
        assert_echoes(stream).await;
    }
    assert_eq!(slots.in_flight(), 0);
}

#[tokio::test]
async fn if_05_failed_upgrades_free_their_permits() {
    let slots = InFlight::new("sockets", 2);
    let address = serve(sockets(&slots)).await;
    let mut client = Client::open(address, false).await;
    for n in 0..1_000 {
        let (path, status) = [
            ("/none", StatusCode::NOT_FOUND),
            ("/kept", StatusCode::BAD_REQUEST),
            ("/ignored", StatusCode::BAD_REQUEST),
        ][n % 3];
        // Without a key of the handshake.
        let asks = Request::get(path)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13");
        let answer = client.send(asks.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        answer.into_body().collect().await.unwrap();
    }
    until(|| slots.in_flight() == 0).await;
    let both = [slots.try_acquire(), slots.try_acquire()];
    assert!(both.iter().all(Option::is_some) && slots.try_acquire().is_none());
}
