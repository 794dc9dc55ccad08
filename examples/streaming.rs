//! What is in flight until its end: an answer that is streamed, and a WebSocket.
//!
//! `cargo run --example streaming` serves both on loopback, tries them and checks what is counted.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(clippy::disallowed_methods, reason = "the server is a task of its own")]

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::ws::{WebSocket, WebSocketUpgrade},
    response::Response,
    routing::any,
};
use http_body::Frame;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_sluice::{ConfigError, InFlight, RateLimitLayer, in_flight::Permits};

/// Ticks until the client goes. The permit goes with the body: nothing is to be done for it.
async fn ticks() -> Body {
    struct Ticks;

    impl http_body::Body for Ticks {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"tick\n")))))
        }
    }

    Body::new(Ticks)
}

/// Says back what it hears. A WebSocket outlives its answer, so the task keeps the permits.
async fn echo(Extension(permits): Extension<Permits>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async move |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
        drop(permits);
    })
}

fn app(streams: &InFlight, sockets: &InFlight) -> Result<Router, ConfigError> {
    let streams = RateLimitLayer::builder().in_flight(streams.clone()).build()?;
    let sockets = RateLimitLayer::builder().in_flight(sockets.clone()).build()?;
    Ok(Router::new()
        .route("/ticks", any(ticks).layer(streams))
        .route("/echo", any(echo).layer(sockets)))
}

const UPGRADE: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends a request and reads the status; the connection stays open.
async fn open(at: SocketAddr, path: &str, fields: &str) -> std::io::Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok((stream, String::from_utf8_lossy(&status[9..]).into_owned()))
}

/// Waits until so many are in flight.
async fn until(limit: &InFlight, in_flight: u64) {
    while limit.in_flight() != in_flight {
        tokio::task::yield_now().await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (streams, sockets) = (InFlight::new("streams", 1), InFlight::new("sockets", 1));
    let app = app(&streams, &sockets)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });

    let check = async {
        for (path, fields, limit, status) in
            [("/ticks", "", &streams, "200"), ("/echo", UPGRADE, &sockets, "101")]
        {
            // The first is in flight though its answer has long begun; the next is told to come again.
            let (first, got) = open(at, path, fields).await?;
            assert_eq!((got.as_str(), limit.in_flight()), (status, 1));
            let (_second, got) = open(at, path, fields).await?;
            assert_eq!(got, "503");
            // The client goes, and its place is free.
            drop(first);
            until(limit, 0).await;
            let (_third, got) = open(at, path, fields).await?;
            assert_eq!(got, status);
        }
        Ok::<(), std::io::Error>(())
    };
    tokio::time::timeout(Duration::from_secs(10), check).await??;
    println!(
        "a stream and a WebSocket were counted until their clients went; others met 503 meanwhile"
    );
    Ok(())
}
