//! Testing your limits: that they refuse, whom they refuse, and until when.
//!
//! This page answers: What is the first test? How does time pass in it? How do I test a wait, a queue, a caller's
//! address, a store that is away? How do I know that my set-up is right? And what need I not test?
//!
//! The test doubles are in the module [`testing`](crate::testing), under the feature `test-util`. Let only your tests
//! have it:
//!
//! ```toml
//! [dev-dependencies]
//! tower-sluice = { path = "../tower-sluice", features = ["test-util"] }
//! ```
//!
//! # The limit refuses
//!
//! A limit that is not there looks like one that nobody has met. So the first test sends more than may pass, to the
//! whole service and by the route that you mean, and counts. [`admitted`] does that:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, testing::admitted};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let limit = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_second(10)))
//!     .clock(ManualClock::new())
//!     .build()?;
//! // `/late` is added after the layer, so it is not inside of it.
//! let app: Router = Router::new()
//!     .route("/", get(|| async {}))
//!     .layer(limit)
//!     .route("/late", get(|| async {}));
//!
//! assert_eq!(admitted(&app, 12, || Request::get("/").body(Body::empty()).unwrap()).await, 10);
//! // What the test is for: nobody had meant this.
//! assert_eq!(admitted(&app, 12, || Request::get("/late").body(Body::empty()).unwrap()).await, 12);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! Let the service be made by a function that takes the layer's builder, or gives it: production builds it as it is,
//! a test adds a clock and an observer first. The example `testing` is such a service with its tests.
//!
//! # In flight
//!
//! A permit is back when the body of the answer has ended or is dropped, and [`admitted`] drops each: of requests that
//! come one after the other none is refused by an in-flight limit. Keep the answers, and they keep their permits:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{InFlight, RateLimitLayer, testing::admitted};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let limit = RateLimitLayer::builder().in_flight(InFlight::new("exports", 3)).build()?;
//! let app: Router = Router::new().route("/", get(|| async { "rows" })).layer(limit);
//! let request = || Request::get("/").body(Body::empty()).unwrap();
//!
//! let mut under_way = Vec::new();
//! for _ in 0..3 {
//!     under_way.push(app.clone().oneshot(request()).await.unwrap());
//! }
//! assert_eq!(admitted(&app, 1, request).await, 0);
//! under_way.pop();
//! assert_eq!(admitted(&app, 1, request).await, 1);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! Or take the permits from the limit itself: `limit.try_acquire()`, on a clone of the [`InFlight`](crate::InFlight).
//!
//! # Time
//!
//! With the system's clock a test is at the mercy of the machine: of ten a second one may come back while the test
//! still counts. A [`ManualClock`] stands still until it is moved. Nothing sleeps, and every number is exact.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, testing::admitted};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let limit = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_second(10)))
//!     .clock(clock.clone())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! let request = || Request::get("/").body(Body::empty()).unwrap();
//!
//! assert_eq!(admitted(&app, 12, request).await, 10);
//! clock.advance(Duration::from_millis(299)); // two, and nearly a third
//! assert_eq!(admitted(&app, 12, request).await, 2);
//! clock.advance(Duration::from_millis(1));
//! assert_eq!(admitted(&app, 12, request).await, 1);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! Where the rest of the test runs on tokio's time, paused, give the layer a [`TokioClock`]: then handlers, timeouts
//! and limits share one time.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower_sluice::{RateLimitLayer, Rule, TokenBucket, TokioClock, testing::admitted};
//!
//! // As `#[tokio::test(start_paused = true)]` has it.
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
//! #     .block_on(async {
//! let limit = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_minute(1)))
//!     .clock(TokioClock)
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! let request = || Request::get("/").body(Body::empty()).unwrap();
//!
//! assert_eq!(admitted(&app, 3, request).await, 1);
//! tokio::time::advance(Duration::from_secs(60)).await;
//! assert_eq!(admitted(&app, 3, request).await, 1);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # Two users do not share
//!
//! A key that is always the same makes one quota for everybody, and a key that a caller can vary makes none. So test
//! both: another user is not refused, and the same user is, whatever else changes in his request.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower_sluice::{ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key, testing::admitted};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let per_user = Rule::new("per-user", TokenBucket::per_second(3))
//!     .key(key::header("x-user"))
//!     .missing(Missing::Shared);
//! let limit = RateLimitLayer::builder().rule(per_user).clock(ManualClock::new()).build()?;
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! let mut page = 0;
//! let mut of = |user| {
//!     page += 1;
//!     Request::get(format!("/?page={page}")).header("x-user", user).body(Body::empty()).unwrap()
//! };
//!
//! assert_eq!(admitted(&app, 5, || of("alice")).await, 3);
//! assert_eq!(admitted(&app, 5, || of("bob")).await, 3);
//! // Those who do not say who they are have one quota together.
//! assert_eq!(admitted(&app, 5, || Request::get("/").body(Body::empty()).unwrap()).await, 3);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # Addresses
//!
//! Requests that no socket brought have no address. A rule by [`client_ip`](crate::key::client_ip) then counts all of
//! them together and raises [SL-PEER](crate::event::Fault::Peer). Axum's `MockConnectInfo` gives them one:
//!
//! ```
//! use axum::{Router, body::Body, extract::connect_info::MockConnectInfo, http::Request, routing::get};
//! use std::net::SocketAddr;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key, testing::admitted};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let per_address = Rule::new("per-address", TokenBucket::per_second(3)).key(key::client_ip());
//! let limit = RateLimitLayer::builder().rule(per_address).clock(ManualClock::new()).build()?;
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! let request = || Request::get("/").body(Body::empty()).unwrap();
//! let seen_from = |address: [u8; 4]| app.clone().layer(MockConnectInfo(SocketAddr::from((address, 50_000))));
//!
//! assert_eq!(admitted(&seen_from([192, 0, 2, 1]), 5, request).await, 3);
//! assert_eq!(admitted(&seen_from([192, 0, 2, 2]), 5, request).await, 3);
//!
//! // Nobody named a proxy, so a caller gains nothing by inventing one.
//! let forwarded = || Request::get("/").header("x-forwarded-for", "198.51.100.7").body(Body::empty()).unwrap();
//! assert_eq!(admitted(&seen_from([192, 0, 2, 1]), 5, forwarded).await, 0);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # The wait is exact
//!
//! What a refused caller is told can be tested to the nanosecond, where a handler or a limiter tells it:
//! [`Decision::retry_after`]. The field `Retry-After` is in whole seconds, rounded up; of a rule without a key it is
//! spread besides, so turn that off in the test, or compare with a range.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let limit = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::new(2, Duration::from_secs(3))).spread(false))
//!     .clock(clock.clone())
//!     .build()?;
//! let handle = limit.handle();
//! let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
//! let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
//!
//! assert_eq!([ask().await?.status(), ask().await?.status()], [200, 200]);
//! let refused = ask().await?;
//! assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"2".parse()?));
//!
//! // It is 1.5 s in truth: refused a nanosecond before, and admitted then.
//! let wait = handle.peek("all", (), 1).await?.retry_after().unwrap();
//! assert_eq!(wait, Duration::from_millis(1_500));
//! clock.advance(wait - Duration::from_nanos(1));
//! assert_eq!(ask().await?.status(), 429);
//! clock.advance(Duration::from_nanos(1));
//! assert_eq!(ask().await?.status(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # A queue
//!
//! A request that waits is a task beside the test's. Spawn it, let it come to its place, and then move the clock. Were
//! it awaited where the clock is moved, nobody would move the clock.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower_sluice::{
//!     LeakyBucket, ManualClock, RateLimitLayer, RejectionPolicy, Rule, testing::admitted,
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let limit = RateLimitLayer::builder()
//!     .rule(Rule::new("pace", LeakyBucket::per_second(1)))
//!     .rejection(RejectionPolicy::queue(Duration::from_secs(2), 10))
//!     .clock(clock.clone())
//!     .build()?;
//! let handle = limit.handle();
//! let app: Router = Router::new().route("/", get(|| async {}).layer(limit));
//! let request = || Request::get("/").body(Body::empty()).unwrap();
//!
//! // One passes. Two wait, a second each. The next would wait longer than he may, and is refused at once.
//! assert_eq!(admitted(&app, 1, request).await, 1);
//! let mut waiting = Vec::new();
//! for place in 1..=2 {
//!     let app = app.clone();
//!     waiting.push(tokio::spawn(async move { admitted(&app, 1, request).await }));
//!     while handle.waiting("pace")? < place {
//!         tokio::task::yield_now().await;
//!     }
//! }
//! assert_eq!(admitted(&app, 1, request).await, 0);
//!
//! for waiter in waiting {
//!     clock.advance(Duration::from_secs(1));
//!     assert_eq!(waiter.await?, 1);
//! }
//! assert_eq!(handle.waiting("pace")?, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # The set-up is right
//!
//! What makes limits useless without an error, a key that never comes or an address that nobody tells, is a
//! [set-up fault](crate::event::Fault). A [`Recorder`] hears of each. Send some ordinary requests and demand that there
//! is none.
//!
//! ```
//! use axum::{Router, body::Body, extract::connect_info::MockConnectInfo, http::Request, routing::get};
//! use std::net::SocketAddr;
//! use tower_sluice::{
//!     ConfigError, RateLimitLayer, Rule, TokenBucket, event::Fault, key,
//!     testing::{Recorder, admitted},
//! };
//!
//! fn app(told: &Recorder) -> Result<Router, ConfigError> {
//!     let limit = RateLimitLayer::builder()
//!         .rule(Rule::new("per-address", TokenBucket::per_second(10)).key(key::client_ip()))
//!         .observer(told.clone())
//!         .build()?;
//!     Ok(Router::new().route("/", get(|| async {})).layer(limit))
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let request = || Request::get("/").body(Body::empty()).unwrap();
//! let told = Recorder::new();
//! let served = app(&told)?.layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 1], 50_000))));
//! admitted(&served, 3, request).await;
//! assert_eq!(told.faults(), []);
//!
//! // What it hears if the service is served without connect info.
//! let told = Recorder::new();
//! admitted(&app(&told)?, 3, request).await;
//! assert_eq!(told.faults(), [Fault::Peer]);
//! # Ok::<(), ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # A store that fails, or is slow
//!
//! Where counting is done elsewhere, test what your callers see when that is away. [`FailingBackend`] fails,
//! [`StalledBackend`] never answers, and a [`ScriptedBackend`] gives the answers that you write, at once or, with
//! [`delay`](crate::testing::ScriptedBackend::delay), late.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_sluice::{
//!     Backend, BackendErrorKind, ConfigError, Decision, RateLimitLayer, Rule, TokenBucket, TokioClock,
//!     testing::{FailingBackend, ScriptedBackend, StalledBackend},
//! };
//!
//! fn app(backend: impl Backend) -> Result<Router, ConfigError> {
//!     let fleet = Rule::new("fleet", TokenBucket::per_second(10)).backend(backend);
//!     let limit = RateLimitLayer::builder().rule(fleet).clock(TokioClock).build()?;
//!     Ok(Router::new().route("/", get(|| async {})).layer(limit))
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
//! #     .block_on(async {
//! let request = || Request::get("/").body(Body::empty()).unwrap();
//! let away = app(FailingBackend::new(BackendErrorKind::Unavailable))?;
//! assert_eq!(away.oneshot(request()).await?.status(), 503);
//!
//! // It says no, and takes 40 ms for it.
//! let second = Duration::from_secs(1);
//! let no = ScriptedBackend::decisions([Decision::denied(10, 0, second, second)]);
//! let slow = app(no.delay(TokioClock, Duration::from_millis(40)))?;
//! let asked = tokio::time::timeout(Duration::from_millis(39), slow.clone().oneshot(request()));
//! assert!(asked.await.is_err());
//! // The script is used up by then, so that the next is allowed.
//! assert_eq!(slow.oneshot(request()).await?.status(), 200);
//!
//! // It never answers: what does your timeout do?
//! let silent = app(StalledBackend::new())?;
//! assert!(tokio::time::timeout(second, silent.oneshot(request())).await.is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # A backend of your own
//!
//! [`Conformance`] holds it to what [`Backend`] promises, with every algorithm that it counts: some thirty checks
//! each, of the limit, waits, several charges at once, undo, time and change. No check takes time. The example
//! `own_backend` runs it.
//!
//! ```
//! use tower_sluice::{backend::Local, testing::Conformance};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! // Yours in place of `Local`: a new one each time.
//! let report = Conformance::of(Local::new).run().await;
//! assert!(report.is_passed(), "{report}");
//! # });
//! ```
//!
//! # What not to test
//!
//! - **That an algorithm counts right.** That is tested here. Test that your limit is the one you meant: its number,
//!   its key, its routes.
//! - **With real time.** A test that sleeps is slow on a good day and wrong on a bad one.
//! - **How much passes under load.** A test's machine is not your service's. Sizes come from a load test: see
//!   [`sizing`](super::sizing).
//! - **A `Retry-After` that is spread**, to the second. It is chosen at random.
//! - **The words of the refusal's body.** Its status and fields are the contract.
//!
//! # Next
//!
//! This is the last page. Back to [the guide](super), or on to the [crate page](crate): where to put the layer, and
//! what a refused caller gets.
//!
//! Used on this page: [`admitted`], [`ManualClock`], [`TokioClock`], [`Recorder`], [`FailingBackend`],
//! [`StalledBackend`], [`ScriptedBackend`], [`Conformance`], [`RateLimitLayer`](crate::RateLimitLayer),
//! [`Rule`](crate::Rule), [`Handle`](crate::Handle).

// The doubles are there with their feature alone; the page is there always.
#![cfg_attr(not(feature = "test-util"), allow(rustdoc::broken_intra_doc_links))]

#[cfg(all(doc, feature = "test-util"))]
use crate::testing::{
    Conformance, FailingBackend, Recorder, ScriptedBackend, StalledBackend, admitted,
};
#[cfg(doc)]
use crate::{Backend, Decision, ManualClock, TokioClock};
