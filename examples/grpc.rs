//! A gRPC service behind the layer: who has spent his quota is answered RESOURCE_EXHAUSTED, with the time to wait.
//!
//! `cargo run --example grpc` serves it with tonic on loopback, calls it and checks what comes.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(clippy::disallowed_methods, reason = "the server is a task of its own")]

use std::{convert::Infallible, future::Future, pin::Pin, task, time::Duration};

use http::{Request, Response, uri::PathAndQuery};
use tokio::net::TcpListener;
use tonic::{
    Code, Status,
    body::Body,
    server::NamedService,
    transport::{
        Channel, Server,
        server::{TcpConnectInfo, TcpIncoming},
    },
};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;
use tower::{Service, service_fn};
use tower_sluice::{ConfigError, FixedWindow, ManualClock, RateLimitLayer, Rule, key};

/// Stands for what tonic generates from a .proto file: one method, from a string to a string.
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "example.Greeter";
}

impl Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let greet = service_fn(async |name: tonic::Request<String>| {
            Ok::<_, Status>(tonic::Response::new(format!("hello {}", name.into_inner())))
        });
        let mut grpc = tonic::server::Grpc::new(ProstCodec::<String, String>::default());
        Box::pin(async move { Ok(grpc.unary(greet, request).await) })
    }
}

/// Two calls a minute from each address.
fn limits() -> Result<RateLimitLayer, ConfigError> {
    // Tonic has connect info of its own.
    let address = key::client_ip().peer_from(|head| {
        head.extension::<TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
    });
    RateLimitLayer::builder()
        .rule(Rule::new("per-address", FixedWindow::per_minute(2)).key(address))
        .clock(ManualClock::new()) // stands still, so that the numbers below are exact
        .build()
}

async fn greet(channel: &Channel, name: &str) -> Result<String, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = PathAndQuery::from_static("/example.Greeter/Greet");
    let codec = ProstCodec::<String, String>::default();
    let answer = client.unary(tonic::Request::new(name.to_owned()), path, codec).await?;
    Ok(answer.into_inner())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}", listener.local_addr()?);
    // One layer around all services of the server.
    let server = Server::builder().layer(limits()?).add_service(Greeter);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(uri)?.connect().await?;
    assert_eq!(greet(&channel, "alice").await?, "hello alice");
    assert_eq!(greet(&channel, "bob").await?, "hello bob");

    // A client with a retry policy waits as long as it is told: RetryInfo is what such clients read.
    let refused = greet(&channel, "carol").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let wait = refused.get_details_retry_info().and_then(|retry| retry.retry_delay);
    assert_eq!(wait, Some(Duration::from_secs(60)));
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "60");

    println!("two calls were answered, the third {:?}: again in {wait:?}", refused.code());
    Ok(())
}
