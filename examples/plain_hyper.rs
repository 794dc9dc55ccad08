//! The layer without axum: around a service of hyper's types, under hyper's own server.
//!
//! `cargo run --example plain_hyper` serves it on loopback, asks it a few times and checks what comes.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(clippy::disallowed_methods, reason = "the server is a task of its own")]

use std::{convert::Infallible, net::IpAddr};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::net::TcpListener;
use tower::{Layer, ServiceBuilder, service_fn};
use tower_sluice::{ConfigError, FixedWindow, ManualClock, RateLimitLayer, Rule, RuleKey, key};

/// What this server knows of a connection. It is put into the extensions of each request.
#[derive(Clone, Copy)]
struct Connection {
    from: IpAddr,
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

fn limits() -> Result<RateLimitLayer, ConfigError> {
    let address = key::client_ip()
        .peer_from(|head| head.extension::<Connection>().map(|connection| connection.from));
    RateLimitLayer::builder()
        .rule(Rule::new("per-address", FixedWindow::per_minute(2)).key(address))
        .clock(ManualClock::new()) // stands still, so that the numbers below are exact
        .build()
}

async fn serve(listener: TcpListener, limits: RateLimitLayer) -> std::io::Result<()> {
    // `keep_body`: answers stay of the type that `hello` has, or are one of ours; nothing is boxed.
    let limited = limits.keep_body().layer(service_fn(hello));
    loop {
        let (stream, peer) = listener.accept().await?;
        let connection = Connection { from: peer.ip() };
        // Clones of a limited service share its counts, so that each connection may have one.
        let service = ServiceBuilder::new()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(connection);
                request
            })
            .service(limited.clone());
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service);
            // A client may go whenever it likes; that is no error of the server's.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (limits, listener) = (limits()?, TcpListener::bind("127.0.0.1:0").await?);
    let handle = limits.handle();
    let uri: http::Uri = format!("http://{}/", listener.local_addr()?).parse()?;
    tokio::spawn(serve(listener, limits));

    for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        // A client for each, and so a connection: it is the address that counts.
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let answer = client.get(uri.clone()).await?;
        assert_eq!(answer.status(), expected);
        let is_refused = expected != StatusCode::OK;
        assert_eq!(answer.headers().contains_key("retry-after"), is_refused);
        let body = answer.into_body().collect().await?.to_bytes();
        assert_eq!(body == "hello", !is_refused);
        println!("{expected} on a connection of its own");
    }

    // The count is of the address that the server gave.
    let address = RuleKey::address("127.0.0.1".parse()?);
    assert_eq!(handle.peek("per-address", address, 1).await?.remaining(), 0);
    Ok(())
}
