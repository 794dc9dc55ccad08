//! Admission control for axum routers and Tower services: it decides, before a request reaches a
//! handler, whether the service can afford it, and gives a decent answer to what it cannot afford.
//!
//! ```no_run
//! use axum::{Router, routing::{get, post}};
//! use std::{net::SocketAddr, time::Duration};
//! use tower_sluice::{
//!     InFlight, LeakyBucket, Missing, RateLimitLayer, RejectionPolicy, Rule, TokenBucket, key,
//! };
//!
//! # async fn create_order() {}
//! # async fn feed() {}
//! # async fn hot_list() {}
//! # async fn submit() {}
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! // Writes: 500/s in all, 10/s per user, and ten times that per address,
//! // which may be a whole office. What does not fit gets a 429 with Retry-After.
//! let writes = RateLimitLayer::builder()
//!     .rule(Rule::new("orders", TokenBucket::per_second(500).burst(750)))
//!     .rule(Rule::new("per-user", TokenBucket::per_second(10).burst(20))
//!         .key(key::header("x-user-id")).missing(Missing::Skip))
//!     .rule(Rule::new("per-address", TokenBucket::per_second(10).burst(20))
//!         .key(key::client_ip().relaxed(10)))
//!     .build()?;
//!
//! // Reads wait on a database: at most 64 in flight; when full, a cached list is better than an error.
//! let reads = RateLimitLayer::builder()
//!     .in_flight(InFlight::new("feed", 64))
//!     .rejection(RejectionPolicy::degrade(hot_list)) // any axum handler
//!     .build()?;
//!
//! // Jobs feed a partner that takes 20/s and no more: 50 ms apart, up to 150 ms of waiting, 100 at most.
//! let jobs = RateLimitLayer::builder()
//!     .rule(Rule::new("partner", LeakyBucket::per_second(20)))
//!     .rejection(RejectionPolicy::queue(Duration::from_millis(150), 100))
//!     .build()?;
//!
//! let app = Router::new()
//!     .route("/orders", post(create_order).layer(writes))
//!     .route("/feed", get(feed).layer(reads))
//!     .route("/jobs", post(submit).layer(jobs));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(()) }
//! ```
//!
//! A header is an identity only where something in front of you sets it; prefer
//! [`key::extension`] behind an authentication layer, and always add a rule by address. The example
//! `service` is a whole service with authentication, a proxy in front, CORS and an admin page.
//!
//! # I want to limit by ..
//!
//! | .. | look at |
//! | --- | --- |
//! | everything together | a [`Rule`] without a key |
//! | user, account, tenant | [`key::extension`] behind authentication; [`key::header`] where a gateway sets it; [`key::cookie`] |
//! | client address | [`key::client_ip`]; behind a proxy [`ClientIp`](key::ClientIp) |
//! | route | [`key::route`] for all; the layer on one route, or [`matcher::path`], for one |
//! | path parameter, as `/tenants/{id}` | [`key::path_param`] |
//! | plan: free, pro, partner | [`Rule::tiers`] |
//! | two things together, or the first there is | [`KeyBy::and`](key::KeyBy::and), [`KeyBy::or`](key::KeyBy::or) |
//! | anything else in the head | [`key::from_fn`], [`key::from_owned`] |
//! | something in the body, as a login name | [`Rejection::of`], in the handler; for logins read [login names](guide::identity#login-names) |
//! | only some requests | [`Rule::when`], [`matcher`]; all but some: [`RateLimitLayerBuilder::exempt`] |
//! | pace: no two closer than so much | [`LeakyBucket`] |
//! | so many in any minute, whatever the edges | [`SlidingWindow`], [`SlidingLog`] |
//! | so many per day or month of the calendar | [`FixedWindow::calendar`] |
//! | a cold service, as after a start | [`WarmUp`], [`StartLevel`] |
//! | how much work a request is | [`Rule::cost`], [`Rule::cost_fn`] |
//! | how many are under way at once | [`InFlight`] |
//! | open WebSockets | [`InFlight`], with [`Permits`](in_flight::Permits) kept in the socket's task |
//! | an even pace | [`LeakyBucket`], with a [queue](RejectionPolicy::queue) |
//! | one quota over several layers, jobs, clients | [`Rule::on`], [`limiter`], a clone of an [`InFlight`] |
//! | one quota over several processes | `backend::Redis`, with the feature `redis`; or a [`Backend`] of your own |
//!
//! # The guide
//!
//! Which limit, on what, how high: the [`guide`] is a small book for those who never set one.
//!
//! - [Choosing an algorithm](guide::algorithms): the most that each lets through, drawn and computed.
//! - [Warm-up](guide::warm_up): limits that start low and grow.
//! - [Requests per second or in flight](guide::rate_or_in_flight), and whether to refuse or to let wait.
//! - [Sizing](guide::sizing): from what a database bears to rate, burst, queue and cost.
//! - [Choosing a rejection policy](guide::rejection): writes refuse, reads degrade, jobs queue.
//! - [Identity](guide::identity): what to count by, and what an attacker can choose.
//! - [Behind a proxy](guide::proxy): whose address it is, and whom to believe.
//! - [Order of layers](guide::layers): which goes outside of which.
#![cfg_attr(
    feature = "redis",
    doc = "- [A quota for a fleet](guide::redis): what holds, and what while the store is away."
)]
//! - [Testing your limits](guide::testing): that they refuse, whom, and until when; queues, faults and stores.
//!
//! # The parts
//!
//! - A [`RateLimitLayer`] holds rules and all their state. It can be stored, cloned and returned; clones
//!   and the services it makes share one count.
//! - A [`Rule`] is an [`algorithm`] with a quota, counted per [`key`], for the requests that a
//!   [`matcher`] picks, at a [cost](Cost).
//! - Its tiers, if it has any, are named quotas for those who may have more, or less: [`Rule::tier`].
//! - An [`InFlight`] limits what is admitted and not finished; its permit is lent, to the end of the response body.
//! - A request is charged by all rules of a layer that apply, or by none. Two layers are two: what the
//!   outer one has charged stays spent when the inner one refuses. Rules that belong together go into one.
//! - What does not fit is refused, waits, or is answered otherwise: see [`RejectionPolicy`]. A refusal is a
//!   response, never an error.
//! - A [`Handle`] looks at the counts and changes limits while the layer serves.
//! - A [`Limiter`](limiter) limits what is no HTTP request: outgoing calls, jobs, consumers.
//! - Counting is done in this process, or by a [`Backend`] of your own.
//!
//! # Where to put the layer
//!
//! Anywhere a Tower layer goes, and the count is one in every place: `MethodRouter::layer` for a route,
//! `Router::route_layer` for all matched routes, `Router::layer` for fallbacks too, `ServiceBuilder`,
//! around the whole router, or around a Tower service that is not axum's.
//!
//! - **After** the routes it is for: as axum has it, routes that are added to a router after
//!   `Router::layer` are not inside the layer, so they are not limited.
//! - **Behind** authentication, if a key comes from it.
//! - **Inside** the CORS layer, so that a browser can read the refusal: see [`exposed_headers`].
//! - **Inside** the router, if a rule reads the route: outside it there is none, a route pattern then
//!   applies to every request rather than to none, and the fault SL-ROUTE says so.
//! - **Preflights** (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) and gRPC health checks are
//!   exempt, since a browser cannot wait and a refused probe is an outage. Where such an `OPTIONS` reaches a
//!   handler that does work, turn that off: [`RateLimitLayerBuilder::exempt_by_default`].
//! - `route_layer` does not run for requests that match no route; `Router::layer` does, and
//!   [`key::route`] counts all of them under one key.
//!
//! The guide has the whole stack, with timeouts and circuit breakers: [order of layers](guide::layers).
//!
//! # What a refused caller gets
//!
//! | refused by | status | `Retry-After` | a gRPC client sees |
//! | --- | --- | --- | --- |
//! | a spent quota | 429, or [`Rule::status`] | the longest wait of all rules that refuse, in whole seconds, rounded up, at least 1 | RESOURCE_EXHAUSTED |
//! | a cost above the limit | the same, reason `never` | none: waiting does not help | the same, without a retry |
//! | as many in flight as may be | 503, or [`InFlight::status`] | 1, or [`InFlight::retry_after`], spread | UNAVAILABLE |
//! | a missing key, [`Missing::Refuse`] | the status it names | none | UNAUTHENTICATED for 401, else PERMISSION_DENIED |
//! | a backend that cannot answer | 503 | 1, spread | UNAVAILABLE |
//!
//! The body is problem details (RFC 9457), and `Cache-Control` is `no-store`. The wait itself is exact,
//! [`Rejection::retry_after`]: refused a nanosecond before, the same request passes at it if nothing else
//! came. Where many callers hear the same answer `Retry-After` is spread, which is made longer at random:
//! [`Rule::spread`].
//!
//! Requests with a content type of gRPC or gRPC-Web get an answer that such clients read: trailers only, with the wait in
//! `google.rpc.RetryInfo`, `grpc-retry-pushback-ms` and `retry-after`. A [responder](RejectionPolicy::respond_with) is not
//! asked then.
//!
//! On HTTP/1.x a refusal of a request whose body has not been read says `Connection: close`: see [`UnreadBody`].
//!
//! How much is left is told by [`headers`](RateLimitLayerBuilder::headers), on admitted answers too: in fields of the
//! [`RateLimit` draft or `X-RateLimit-*`](Headers). By default there are none.
//!
//! # Memory
//!
//! Each keyed rule keeps at most 131,072 keys, a bucket or fixed window in a table of some 4 MiB; nothing runs in
//! the background. Only a key that is indistinguishable from one never seen makes room for another. When all
//! are live, newcomers share overflow buckets and SL-KEYS is raised: nobody can grow the memory, nor get
//! a full bucket by inventing keys. Keys are kept as 64-bit hashes with a random secret, never as text.
//!
//! # Set-up faults
//!
//! What makes limits useless or unjust without an error is looked for while requests are served, and told
//! once, as a `tracing` warning and to [`Observer::fault`]: [`event::Fault`] lists the codes.
//!
//! # Testing your service
//!
//! Give the layer a [`ManualClock`] and move it, or a [`TokioClock`] in tests that pause tokio's time:
//!
//! ```
//! use axum::{Router, body::Body, http::{Request, StatusCode}, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let limit = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_minute(1)).spread(false))
//!     .clock(clock.clone())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
//!
//! assert_eq!(ask().await?.status(), StatusCode::OK);
//! let refused = ask().await?;
//! assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(refused.headers()["retry-after"], "60");
//! clock.advance(Duration::from_secs(60));
//! assert_eq!(ask().await?.status(), StatusCode::OK);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! A request that waits is a task beside the test's: let it come to its place, then move the clock.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_sluice::{LeakyBucket, ManualClock, RateLimitLayer, RejectionPolicy, Rule};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let limit = RateLimitLayer::builder()
//!     .rule(Rule::new("pace", LeakyBucket::per_second(1)))
//!     .rejection(RejectionPolicy::queue(Duration::from_secs(5), 10))
//!     .clock(clock.clone())
//!     .build()?;
//! let handle = limit.handle();
//! let app: Router = Router::new().route("/", get(|| async {}).layer(limit));
//! let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
//!
//! assert_eq!(ask().await?.status(), 200);
//! let second = tokio::spawn(ask());
//! while handle.waiting("pace")? == 0 {
//!     tokio::task::yield_now().await;
//! }
//! clock.advance(Duration::from_secs(1));
//! assert_eq!(second.await??.status(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! If a test pauses tokio's time and its waits are refused at once, a layer or limiter reads another clock: the fault
//! SL-CLOCK says so, to an observer or a `tracing` subscriber.
//!
//! Requests that no socket brought have no address: add axum's `MockConnectInfo` where a rule counts by
//! it. [`SetupFault`](event::SetupFault) shows a test that the set-up is right. More is in
//! [`guide::testing`], and the example `testing` is a small service with its tests.
//!
//! # Supported targets
//!
//! 64-bit targets, and 32-bit ones with 64-bit atomics, where all numbers are the same. `wasm32-unknown-unknown` is
//! not supported, since tokio's timer and the clocks need an operating system.
//!
//! # Features
//!
//! | feature | adds | default |
//! | --- | --- | --- |
//! | `axum` | `key::route`, `key::path_param`, `matcher::path`, the peer from axum's connect info | yes |
//! | `tracing` | set-up faults as warnings | yes |
//! | `redis` | `backend::Redis`: a quota for a fleet | no |
//! | `redis-cluster` | the same in a Redis Cluster | no |
//! | `test-util` | the `testing` module | no |
//! | `full` | all of these | no |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc(test(attr(deny(warnings), allow(dead_code))))]

mod adapt;
mod admission;
pub mod algorithm;
pub mod backend;
pub mod body;
pub mod clock;
mod core;
mod decision;
mod error;
pub mod event;
mod extract;
mod future;
pub mod guide;
mod handle;
mod identity;
pub mod in_flight;
mod late;
mod layer;
pub mod limiter;
mod observe;
mod plan;
mod quota;
mod rejection;
mod request;
mod response;
mod rule;
mod service;
mod sync;
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub mod testing;
mod verdict;
mod waiting;

/// What the loom models use: the counting core, and those who wait.
#[cfg(sluice_loom)]
#[doc(hidden)]
pub mod models {
    pub use crate::{backend::local::models::*, in_flight::models::*, waiting::models::*};
}

#[doc(inline)]
pub use crate::{
    algorithm::{
        Algorithm, Calendar, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, StartLevel,
        TokenBucket, WarmUp,
    },
    backend::Backend,
    clock::{ManualClock, TokioClock},
    event::Observer,
    in_flight::Permit,
    limiter::{KeyedLimiter, Limiter},
};
pub use crate::{
    decision::{Decision, RuleDecision},
    error::{BackendError, BackendErrorKind, ConfigError},
    extract::NotExposed,
    future::ResponseFuture,
    handle::{Handle, HandleError, RuleKey},
    identity::Key,
    layer::{KeepBodyLayer, RateLimitLayer, RateLimitLayerBuilder},
    quota::Quota,
    rejection::{Decline, Rejection, RejectionPolicy},
    request::{cost::Cost, head::Head, key, matcher},
    response::{Headers, Reset, UnreadBody, exposed_headers},
    rule::{InFlight, Missing, Rule, SharedLimiter},
    service::RateLimit,
    verdict::Decisions,
};

/// The README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
