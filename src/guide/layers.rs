//! Order of layers: which goes outside of which, and why.
//!
//! This page answers: Where does the limit stand among CORS, tracing, authentication, a timeout and the rest? Why can a
//! browser not read my 429? Does the timeout count the wait in the queue? And where does a circuit breaker go, so that
//! a limit that is met does not look like a failure?
//!
//! # The onion
//!
//! A request passes the layers from outside to inside, here from the top, and its answer passes them back. A layer
//! that answers by itself, as a limit does with a refusal, spares all layers inside of it the work, and those outside
//! of it see its answer. So of each pair ask two things: *shall this one see refusals?* Then it stands outside.
//! *Shall this one be spared the work?* Then it stands inside.
//!
//! ```text
//! +-- request id, tracing -------------------------------------------------------------------+
//! | +-- CORS ------------------------------------------------------------------------------+ |
//! | | +-- catch-panic -------------------------------------------------------------------+ | |
//! | | | +-- timeout: what the client waits --------------------------------------------+ | | |
//! | | | | +-- limit by address ------------------------------------------------------+ | | | |
//! | | | | | +-- authentication ----------------------------------------------------+ | | | | |
//! | | | | | | +-- limits by user, and in flight ---------------------------------+ | | | | | |
//! | | | | | | | +-- body limit, compression -----------------------------------+ | | | | | | |
//! | | | | | | | | handler                                                      | | | | | | | |
//! | | | | | | | |    \-- retry                                                 | | | | | | | |
//! | | | | | | | |          \-- circuit breaker                                 | | | | | | | |
//! | | | | | | | |                \-- timeout of one try                        | | | | | | | |
//! | | | | | | | |                      \-- downstream                          | | | | | | | |
//! | | | | | | | +--------------------------------------------------------------+ | | | | | | |
//! | | | | | | +------------------------------------------------------------------+ | | | | | |
//! | | | | | +----------------------------------------------------------------------+ | | | | |
//! | | | | +--------------------------------------------------------------------------+ | | | |
//! | | | +------------------------------------------------------------------------------+ | | |
//! | | +----------------------------------------------------------------------------------+ | |
//! | +--------------------------------------------------------------------------------------+ |
//! +------------------------------------------------------------------------------------------+
//! ```
//!
//! | outside | inside | since |
//! | --- | --- | --- |
//! | tracing | limits | [a refusal is an answer that you want to see](#tracing) |
//! | CORS | limits | [a browser cannot read a 429 without its fields](#cors) |
//! | a limit by address | authentication | [checking a token is work too](#authentication) |
//! | authentication | a limit by user | [the key comes from it](#authentication) |
//! | timeout | limits | [it covers the wait in a queue](#timeouts) |
//! | limits | body limit | [who sends too large a body spends his own permits](#bodies) |
//! | limits | compression | a refusal is not worth packing, and what is in flight covers the work |
//! | limits | circuit breaker | [refusals of yours are no failures of the downstream](#circuit-breakers) |
//!
//! # Which is outside
//!
//! In axum the layer that is added *last* is outermost. In a `ServiceBuilder` the *first* is. A layer holds for the
//! routes that were added before it, and for no others.
//!
//! ```
//! use axum::{Router, body::Body, extract::Request, middleware::{Next, from_fn}, routing::get};
//! use std::sync::{Arc, Mutex};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let passed: Arc<Mutex<Vec<&str>>> = Arc::default();
//! // A layer that writes down its name as a request passes.
//! macro_rules! named {
//!     ($name:literal) => {{
//!         let passed = passed.clone();
//!         from_fn(move |request: Request, next: Next| {
//!             passed.lock().unwrap().push($name);
//!             next.run(request)
//!         })
//!     }};
//! }
//! let ask = async |app: &Router, path: &str| {
//!     app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
//!     std::mem::take(&mut *passed.lock().unwrap())
//! };
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async {}))
//!     .layer(named!("added first"))
//!     .layer(named!("added last"))
//!     .route("/later", get(|| async {}));
//! assert_eq!(ask(&app, "/").await, ["added last", "added first"]);
//! assert!(ask(&app, "/later").await.is_empty()); // a limit would not be there either
//!
//! let stack = ServiceBuilder::new().layer(named!("built first")).layer(named!("built last"));
//! let app: Router = Router::new().route("/", get(|| async {})).layer(stack);
//! assert_eq!(ask(&app, "/").await, ["built first", "built last"]);
//! # });
//! ```
//!
//! `Router::layer` holds for fallbacks too, `Router::route_layer` only where a route matched. Behind the first a scan
//! for paths that do not exist is limited; behind the second it is answered with 404, as fast as it comes:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! let limit = || {
//!     RateLimitLayer::builder()
//!         .rule(Rule::new("all", TokenBucket::per_minute(10)))
//!         .clock(ManualClock::new())
//!         .build()
//! };
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let scan = async |app: Router| {
//!     let mut found = [0; 2];
//!     for path in 0..100 {
//!         let request = Request::get(format!("/backup-{path}.zip")).body(Body::empty()).unwrap();
//!         let status = app.clone().oneshot(request).await.unwrap().status();
//!         found[usize::from(status == 429)] += 1;
//!     }
//!     found
//! };
//! let app = || Router::new().route("/", get(|| async {}));
//! assert_eq!(scan(app().layer(limit()?)).await, [10, 90]);
//! assert_eq!(scan(app().route_layer(limit()?)).await, [100, 0]);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # CORS
//!
//! A browser shows a script an answer of another origin only if it carries the fields of CORS. A 429 without them is
//! not a 429 to the script but a network error, without status and without `Retry-After`. So CORS stands outside; and
//! it must expose the fields that the script shall read.
//!
//! Before many requests a browser asks for leave, with a *preflight*: an `OPTIONS` without any identity. If that is
//! refused, the page is broken. Outside, the CORS layer answers it, and it never comes to the limit. Where it does
//! come, true preflights are exempt by default.
//!
//! ```
//! use axum::{Router, body::Body, http::{Method, Request}, routing::get};
//! use tower::ServiceExt;
//! use tower_http::cors::{Any, CorsLayer};
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, exposed_headers};
//!
//! let limit = || {
//!     RateLimitLayer::builder()
//!         .rule(Rule::new("all", TokenBucket::per_minute(1)))
//!         .clock(ManualClock::new())
//!         .build()
//! };
//! let cors = || CorsLayer::new().allow_origin(Any).expose_headers(exposed_headers());
//! let app = || Router::new().route("/", get(|| async {}));
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let ask = async |app: &Router, method: Method| {
//!     let request = Request::builder()
//!         .method(method)
//!         .uri("/")
//!         .header("origin", "https://shop.example")
//!         .header("access-control-request-method", "GET");
//!     app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
//! };
//!
//! let outside: Router = app().layer(limit()?).layer(cors());
//! assert_eq!(ask(&outside, Method::GET).await.status(), 200);
//! let refused = ask(&outside, Method::GET).await;
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["access-control-allow-origin"], "*");
//! let exposed = refused.headers()["access-control-expose-headers"].to_str().unwrap();
//! assert!(exposed.contains("retry-after"));
//! assert_eq!(ask(&outside, Method::OPTIONS).await.status(), 200); // the preflight
//!
//! let inside: Router = app().layer(cors()).layer(limit()?);
//! assert_eq!(ask(&inside, Method::GET).await.status(), 200);
//! let refused = ask(&inside, Method::GET).await;
//! assert_eq!(refused.status(), 429);
//! assert!(!refused.headers().contains_key("access-control-allow-origin")); // "network error"
//! assert_eq!(ask(&inside, Method::OPTIONS).await.status(), 200); // exempt
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # Authentication
//!
//! A limit by user stands *inside* of authentication, since his name comes from there. But the check of a token is work
//! as well, and guessing tokens is an attack: that wants a limit by address *outside* of it. So make two layers. They
//! are two: what the outer one has charged stays spent if the inner one refuses, which is right here.
//!
//! With the limit outside, a hundred guesses of one address cost 20 checks. Inside, all hundred are checked, since a
//! guess never comes to the limit:
//!
//! ```
//! use axum::{
//!     Router, body::Body, extract::{ConnectInfo, Request}, http::StatusCode,
//!     middleware::{Next, from_fn}, routing::get,
//! };
//! use std::{net::SocketAddr, sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}}};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let checks: Arc<AtomicU32> = Arc::default();
//! // Stands for authentication: it knows nobody.
//! let authenticate = |checks: Arc<AtomicU32>| {
//!     from_fn(move |_: Request, _: Next| {
//!         checks.fetch_add(1, Relaxed);
//!         async { StatusCode::UNAUTHORIZED }
//!     })
//! };
//! let limit = || {
//!     RateLimitLayer::builder()
//!         .rule(Rule::new("per-address", TokenBucket::per_minute(20)).key(key::client_ip()))
//!         .clock(ManualClock::new())
//!         .build()
//! };
//! let guess = async |app: Router| {
//!     for _ in 0..100 {
//!         let peer = ConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4_711)));
//!         let request = Request::get("/").extension(peer).body(Body::empty()).unwrap();
//!         app.clone().oneshot(request).await.unwrap();
//!     }
//!     checks.swap(0, Relaxed)
//! };
//! let app = || Router::new().route("/", get(|| async {}));
//! assert_eq!(guess(app().layer(authenticate(checks.clone())).layer(limit()?)).await, 20);
//! assert_eq!(guess(app().layer(limit()?).layer(authenticate(checks.clone()))).await, 100);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! What makes a good key, and what does not, is on the page [identity](super::identity).
//!
//! # Timeouts
//!
//! A timeout *outside* of the limit covers all that the client waits for, the wait in a queue included. One *inside*
//! covers the handler alone, and bounds how long a permit of an in-flight limit is held. They answer two questions, and
//! you may have both.
//!
//! Outside, mind the queue: its longest wait belongs *below* the timeout, by what the handler needs. Else requests
//! wait, time out, and have waited for nothing. They hold a place meanwhile, and they get an answer without
//! `Retry-After`. Five calls at once for a partner who takes 10 a second, one of which passes at once:
//!
//! ```
//! use axum::{Router, body::Body, http::{Request, StatusCode}, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_http::timeout::TimeoutLayer;
//! use tower_sluice::{LeakyBucket, RateLimitLayer, RejectionPolicy, Rule, TokioClock};
//!
//! fn ms(millis: u64) -> Duration {
//!     Duration::from_millis(millis)
//! }
//!
//! fn limit(longest_wait: Duration) -> RateLimitLayer {
//!     RateLimitLayer::builder()
//!         .rule(Rule::new("partner", LeakyBucket::per_second(10)).spread(false))
//!         .rejection(RejectionPolicy::queue(longest_wait, 100))
//!         .clock(TokioClock)
//!         .build()
//!         .unwrap()
//! }
//!
//! /// Of five requests at once, each one's status and milliseconds.
//! async fn five(app: Router) -> [(u16, u128); 5] {
//!     let ask = async || {
//!         let came = tokio::time::Instant::now();
//!         let request = Request::get("/").body(Body::empty()).unwrap();
//!         let status = app.clone().oneshot(request).await.unwrap().status().as_u16();
//!         (status, came.elapsed().as_millis())
//!     };
//!     tokio::join!(ask(), ask(), ask(), ask(), ask()).into()
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let app = || Router::new().route("/", get(|| async {}));
//! let timeout = || TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, ms(250));
//!
//! // Timeout outside, a longest wait above it: two have waited for nothing.
//! let answers = five(app().layer(limit(ms(1_000))).layer(timeout())).await;
//! assert_eq!(answers, [(200, 0), (200, 100), (200, 200), (504, 250), (504, 250)]);
//!
//! // Timeout outside, a longest wait below it: they are told at once.
//! let answers = five(app().layer(limit(ms(200))).layer(timeout())).await;
//! assert_eq!(answers, [(200, 0), (200, 100), (200, 200), (429, 0), (429, 0)]);
//!
//! // Timeout inside: it does not know of the wait.
//! let answers = five(app().layer(timeout()).layer(limit(ms(1_000)))).await;
//! assert_eq!(answers, [(200, 0), (200, 100), (200, 200), (200, 300), (200, 400)]);
//! # });
//! ```
//!
//! How long the longest wait may be is on the page [sizing](super::sizing#the-longest-wait-and-the-depth). When a
//! timeout outside gives a request up, its permits in flight come back at once, as when a client goes away. Neither
//! timeout covers the body of the answer, which is still in flight when the head has gone: against clients that read
//! slowly tower-http has `ResponseBodyTimeoutLayer`.
//!
//! # Bodies
//!
//! The limit reads no body: it decides by the head. So a body limit may stand on either side. *Inside* is better: a
//! request that says that its body is too large is answered with 413 and has spent a permit of whoever sent it, and who
//! sends such requests in a loop comes to his limit. *Outside*, nobody counts them. axum's own `DefaultBodyLimit` is
//! inside of every layer, in the extractor.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::post};
//! use tower::ServiceExt;
//! use tower_http::limit::RequestBodyLimitLayer;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! let limit = || {
//!     RateLimitLayer::builder()
//!         .rule(Rule::new("uploads", TokenBucket::per_minute(3)))
//!         .clock(ManualClock::new())
//!         .build()
//! };
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let upload = async |app: Router| {
//!     let mut statuses = Vec::new();
//!     for _ in 0..5 {
//!         let request = Request::post("/").header("content-length", "5000");
//!         let answer = app.clone().oneshot(request.body(Body::from(vec![0; 5_000])).unwrap()).await;
//!         statuses.push(answer.unwrap().status().as_u16());
//!     }
//!     statuses
//! };
//! let app = || Router::new().route("/", post(|| async {}));
//! let body_limit = || RequestBodyLimitLayer::new(4_096);
//! assert_eq!(upload(app().layer(body_limit()).layer(limit()?)).await, [413, 413, 413, 429, 429]);
//! assert_eq!(upload(app().layer(limit()?).layer(body_limit())).await, [413, 413, 413, 413, 413]);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! An upload that comes slowly is what an in-flight limit is for: it is in flight while the handler reads.
//!
//! A refused request leaves its body unread. HTTP/2 ends that one stream; on HTTP/1.x the connection has to be closed behind
//! the answer, which says so. If many small requests are refused on connections that are dear to make, from a proxy of
//! yours say, let their bodies be read: [`UnreadBody::Drain`](crate::UnreadBody::Drain).
//!
//! # Panics
//!
//! A panic of a handler goes outwards through the limit, which gives back what was in flight. So catch-panic may stand
//! outside, where it catches what is in other layers too:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_http::catch_panic::CatchPanicLayer;
//! use tower_sluice::{InFlight, RateLimitLayer};
//!
//! async fn broken() {
//!     panic!("a mistake in the handler");
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let limit = InFlight::new("database", 1);
//! let layer = RateLimitLayer::builder().in_flight(limit.clone()).build()?;
//! let app: Router =
//!     Router::new().route("/", get(broken)).layer(layer).layer(CatchPanicLayer::new());
//! for _ in 0..3 {
//!     let request = Request::get("/").body(Body::empty())?;
//!     assert_eq!(app.clone().oneshot(request).await?.status(), 500); // never 503
//!     assert_eq!(limit.in_flight(), 0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Tracing
//!
//! Outside, tracing sees each refusal as an answer like others, with its status. What refused it is in the answer's
//! extensions, where [`expose_rejection`](RateLimitLayerBuilder::expose_rejection) asks for it.
//!
//! One thing to know of tower-http's `TraceLayer`: to it a 429 is a success and a 503 a failure, which by default is a
//! line of the level ERROR. Under overload that is a line for each refused request, at the worst time. So count
//! refusals with an [`Observer`], and let the log leave them out:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, response::Response, routing::get};
//! use std::{sync::{Arc, Mutex}, time::Duration};
//! use tower::ServiceExt;
//! use tower_http::{classify::ServerErrorsFailureClass, trace::TraceLayer};
//! use tower_sluice::{InFlight, ManualClock, RateLimitLayer, Rejection, Rule, TokenBucket};
//! use tracing::Span;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let log: Arc<Mutex<Vec<String>>> = Arc::default();
//! let (responses, failures) = (log.clone(), log.clone());
//! let trace = TraceLayer::new_for_http()
//!     .on_response(move |response: &Response, _: Duration, _: &Span| {
//!         if let Some(rejection) = response.extensions().get::<Rejection>() {
//!             let rule = rejection.rules()[0].rule();
//!             responses.lock().unwrap().push(format!("{} by {rule}", response.status().as_u16()));
//!         }
//!     })
//!     .on_failure(move |failure: ServerErrorsFailureClass, _: Duration, _: &Span| {
//!         failures.lock().unwrap().push(format!("ERROR {failure}"));
//!     });
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_minute(2)))
//!     .in_flight(InFlight::new("database", 1))
//!     .expose_rejection()
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async { "fresh" })).layer(layer).layer(trace);
//! let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
//!
//! let first = ask().await?; // its body is not read yet: it is in flight
//! ask().await?;
//! drop(first);
//! ask().await?;
//! ask().await?;
//! let log = log.lock().unwrap();
//! assert_eq!(log[..2], ["503 by database", "ERROR Status code: 503 Service Unavailable"]);
//! assert_eq!(log[2..], ["429 by all"]); // no failure
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Health checks
//!
//! A load balancer asks each instance whether it is well, and takes one out that says no. If your limit answers that
//! question with 503 because it is met, the instance goes, its callers come to the others, and theirs are met next. A
//! full service is not an ill one. So leave the check out of the limits, by path where the route cannot be seen:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{InFlight, RateLimitLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let limit = InFlight::new("database", 1);
//! let layer = RateLimitLayer::builder()
//!     .in_flight(limit.clone())
//!     .exempt(|head| head.path() == "/healthz")
//!     .build()?;
//! let app: Router = Router::new()
//!     .route("/", get(|| async {}))
//!     .route("/healthz", get(|| async { "ok" }))
//!     .layer(layer);
//! let ask = |path: &str| app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
//!
//! let _full = limit.try_acquire().expect("nothing is in flight");
//! assert_eq!(ask("/").await?.status(), 503);
//! assert_eq!(ask("/healthz").await?.status(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Circuit breakers
//!
//! A circuit breaker watches the calls to a downstream. When too many fail, or too many are under way, it *trips*: for
//! a while it lets none through, so that the downstream can recover. It stands around the call to the downstream,
//! *inside* of the limit, for one reason: a limit is met every day, and that must not look like a failure. Outside, it
//! takes your own refusals for failures of the downstream, and trips because you protected it:
//!
//! ```
//! use axum::{Router, body::Body, extract::Request, middleware::{Next, from_fn}, routing::get};
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}};
//! use tower::ServiceExt;
//! use tower_sluice::{InFlight, RateLimitLayer};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let failures: Arc<AtomicU32> = Arc::default();
//! // What a breaker does first of all: it counts failures.
//! macro_rules! breaker {
//!     () => {{
//!         let failures = failures.clone();
//!         from_fn(move |request: Request, next: Next| {
//!             let failures = failures.clone();
//!             async move {
//!                 let answer = next.run(request).await;
//!                 failures.fetch_add(u32::from(answer.status().is_server_error()), Relaxed);
//!                 answer
//!             }
//!         })
//!     }};
//! }
//! // Ten requests on a busy day, when the downstream is well and its one place is taken.
//! let busy = InFlight::new("database", 1);
//! let limit = || RateLimitLayer::builder().in_flight(busy.clone()).build();
//! let _taken = busy.try_acquire();
//! let ten = async |app: Router| {
//!     for _ in 0..10 {
//!         let request = Request::get("/").body(Body::empty()).unwrap();
//!         assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 503);
//!     }
//!     failures.swap(0, Relaxed)
//! };
//! let app = || Router::new().route("/", get(|| async {}));
//! assert_eq!(ten(app().layer(limit()?).layer(breaker!())).await, 10); // trips for nothing
//! assert_eq!(ten(app().layer(breaker!()).layer(limit()?)).await, 0);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! ## 20 to 30 % above
//!
//! Where a breaker trips by a number of calls, a second or at once, set that number **20 to 30 % above the most that
//! the limit lets through**. Then the limit always acts first, and the two say different things:
//!
//! | what happens | the limit | the breaker |
//! | --- | --- | --- |
//! | too much comes | refuses the rest: an ordinary day | sees the limit's number, and stays |
//! | the limit is wrong, or something calls past it | is silent | trips |
//! | the downstream takes longer | is silent, if it is a rate | trips |
//!
//! At the same number the breaker trips at every peak, and a peak that a limit handles well becomes an outage. A few
//! percent above, chance does it: calls are never spread quite evenly. At the double it acts when it is too late.
//!
//! Mind that *the most that passes* is more than the rate: a bucket lets through its burst besides. With 100 a second
//! and a burst of 20 it is 120 in a second, so the breaker stands at 150, a quarter above 120 and not above 100.
//!
//! ```
//! use std::{collections::VecDeque, time::Duration};
//! use tower_sluice::{ManualClock, Quota, TokenBucket};
//!
//! fn trips_at(most: u64) -> u64 {
//!     most * 125 / 100
//! }
//! let (rate, burst) = (100, 20);
//! let most = rate + burst; // in any second: see the page on algorithms
//! assert_eq!((most, trips_at(most)), (120, 150));
//!
//! // A thousand come each second, for ten seconds. How many calls does the downstream see in its busiest second?
//! let clock = ManualClock::new();
//! let limiter = TokenBucket::per_second(rate).burst(burst).limiter().clock(clock.clone()).build()?;
//! let busiest = || {
//!     let (mut last, mut busiest) = (VecDeque::new(), 0);
//!     for millis in 0..10_000_u64 {
//!         while last.front().is_some_and(|then| then + 1_000 <= millis) {
//!             last.pop_front();
//!         }
//!         if limiter.try_acquire().is_allowed() {
//!             last.push_back(millis);
//!         }
//!         busiest = busiest.max(last.len() as u64);
//!         clock.advance(Duration::from_millis(1));
//!     }
//!     busiest
//! };
//! let peak = busiest();
//! assert!((rate..=most).contains(&peak), "{peak}");
//! assert!(peak > trips_at(rate) * 9 / 10); // at a quarter above the rate alone it is close
//! assert!(peak < trips_at(most));
//!
//! // Somebody sets the limit to the double: now it is the breaker's turn.
//! limiter.set_limit(Quota::per_second(2 * rate).burst(burst))?;
//! assert!(busiest() > trips_at(most));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! For calls at once, where the limit is in flight, it is simple: with 64 in flight, and one call at a time for each, a
//! breaker at 80. Where the limit is a rate, [Little's law](super::rate_or_in_flight#littles-law) gives the number: 100
//! a second of 200 ms each are 20 at once, so the breaker stands at 25. It trips when the downstream takes more than a
//! quarter longer, which a rate does not notice:
//!
//! ```
//! use std::{collections::VecDeque, time::Duration};
//! use tower_sluice::{LeakyBucket, ManualClock};
//!
//! /// The most calls at once that a rate of 100 a second leads to, where each takes so long.
//! fn at_once(each: Duration) -> Result<usize, tower_sluice::ConfigError> {
//!     let clock = ManualClock::new();
//!     let limiter = LeakyBucket::per_second(100).limiter().clock(clock.clone()).build()?;
//!     let (mut ends, mut most) = (VecDeque::new(), 0);
//!     for millis in 0..5_000 {
//!         let now = Duration::from_millis(millis);
//!         while ends.front().is_some_and(|end| *end <= now) {
//!             ends.pop_front();
//!         }
//!         if limiter.try_acquire().is_allowed() {
//!             ends.push_back(now + each);
//!         }
//!         most = most.max(ends.len());
//!         clock.advance(Duration::from_millis(1));
//!     }
//!     Ok(most)
//! }
//! let trips_at = 20 * 125 / 100;
//! assert_eq!(trips_at, 25);
//! assert_eq!(at_once(Duration::from_millis(200))?, 20); // an ordinary day
//! assert_eq!(at_once(Duration::from_millis(240))?, 24); // a slow one
//! assert_eq!(at_once(Duration::from_millis(300))?, 30); // trips
//!
//! assert_eq!(64 * 125 / 100, 80);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! ## Retries
//!
//! Retries of a call stand *outside* of the breaker. Then each try is counted, and once it has tripped there are no
//! more of them. Inside, the breaker sees one failure where there were three calls, and trips three times as late. With
//! a downstream that is gone, three tries for each request, and a breaker that trips at three failures:
//!
//! ```
//! /// How many calls of a hundred requests reach the downstream, each of which fails.
//! fn calls(retries_outside: bool) -> u32 {
//!     const TRIES: u32 = 3;
//!     let (mut calls, mut failures) = (0, 0);
//!     for _ in 0..100 {
//!         if retries_outside {
//!             for _ in 0..TRIES {
//!                 if failures < 3 {
//!                     (calls, failures) = (calls + 1, failures + 1);
//!                 }
//!             }
//!         } else if failures < 3 {
//!             (calls, failures) = (calls + TRIES, failures + 1);
//!         }
//!     }
//!     calls
//! }
//! assert_eq!((calls(true), calls(false)), (3, 9));
//! ```
//!
//! They stand inside of the limit on requests, which does not see them: with two retries, 100 admitted requests a
//! second are up to 300 calls. If it is the calls that the downstream counts, limit the calls, with a
//! [`Limiter`](crate::Limiter) around each try; the example `paced_calls` does: `cargo run --example paced_calls`.
//! Retries of *clients* come from outside, as new requests: see [sizing](super::sizing#retries).
//!
//! # Layers that are not ready
//!
//! Some of tower's layers limit by not being *ready*: the request waits before it is handed over. Ours takes nothing in
//! `poll_ready`, decides in `call`, and passes on whether the inner service is ready. So where such a layer is inside
//! of ours, requests wait *in front of our decision*. Nobody counts them there, nobody refuses them, and there is no
//! bound.
//!
//! | tower's | does | beside ours |
//! | --- | --- | --- |
//! | `ConcurrencyLimit` | waits for a permit, without a bound; gives it back when the head of the answer is there | [`InFlight`] instead: it refuses or queues, and holds to the end of the body |
//! | `RateLimit` | counts for each service by itself, waits without a bound, cannot be cloned | a [`Rule`], with a [queue](crate::RejectionPolicy::queue) |
//! | `Buffer` | a queue in front of a service that one task owns; answers with an error when that has failed | not needed: our services can be cloned, and share one count |
//! | `LoadShed` | an *error* where the inner service is not ready | not needed: a refusal is a response |
//!
//! `ConcurrencyLimitLayer` has one count for each service that it makes. `Router::layer` makes one for each route, and
//! `axum::serve(listener, router)` all of them anew for each connection, so 64 are 64 for each of those. Ours is one.
//!
//! Here it stands inside of an in-flight limit of one. Alone, that limit refuses the second request at once. In one
//! stack with the other, the second waits until the first is done and is never refused. Added to a router apart, they
//! do not touch: between two layers axum puts a service that is always ready, so our decision comes first.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower::{ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer};
//! use tower_sluice::{InFlight, RateLimitLayer, TokioClock};
//!
//! async fn slow() {
//!     tokio::time::sleep(Duration::from_secs(1)).await;
//! }
//! /// What the second of two requests gets, and after how many milliseconds.
//! async fn second([first, second]: [Router; 2]) -> (u16, u128) {
//!     let ask = async |app: Router| {
//!         let came = tokio::time::Instant::now();
//!         let request = Request::get("/").body(Body::empty()).unwrap();
//!         let status = app.oneshot(request).await.unwrap().status().as_u16();
//!         (status, came.elapsed().as_millis())
//!     };
//!     tokio::join!(ask(first), ask(second)).1
//! }
//! /// On one connection. A server gives a router its state before it serves.
//! fn one(app: Router) -> [Router; 2] {
//!     let app: Router = app.with_state(());
//!     [app.clone(), app]
//! }
//! /// On two connections, as `axum::serve(listener, router)` makes them.
//! fn two(app: Router) -> [Router; 2] {
//!     [app.clone().with_state(()), app.with_state(())]
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let limit = || {
//!     let in_flight = InFlight::new("database", 1);
//!     RateLimitLayer::builder().in_flight(in_flight).clock(TokioClock).build()
//! };
//! let waits = || ConcurrencyLimitLayer::new(1);
//! let app = || Router::new().route("/", get(slow));
//! assert_eq!(second(one(app().layer(waits()))).await, (200, 2_000));
//! assert_eq!(second(two(app().layer(waits()))).await, (200, 1_000)); // another count
//! assert_eq!(second(one(app().layer(limit()?))).await, (503, 0));
//! assert_eq!(second(two(app().layer(limit()?))).await, (503, 0));
//!
//! let stack = ServiceBuilder::new().layer(limit()?).layer(waits());
//! assert_eq!(second(one(app().layer(stack))).await, (200, 2_000)); // never refused
//! assert_eq!(second(one(app().layer(waits()).layer(limit()?))).await, (503, 0));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! # All of it, as a router
//!
//! ```
//! use axum::{
//!     Router, body::Body, extract::{ConnectInfo, Request}, http::StatusCode, middleware::{Next, from_fn},
//!     response::Response, routing::post,
//! };
//! use std::{net::SocketAddr, time::Duration};
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_http::{
//!     catch_panic::CatchPanicLayer, cors::{Any, CorsLayer}, timeout::TimeoutLayer, trace::TraceLayer,
//! };
//! use tower_sluice::{
//!     InFlight, Key, ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, exposed_headers, key,
//! };
//!
//! #[derive(Clone)]
//! struct User(String);
//!
//! /// Stands for real authentication: the token is the name.
//! async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
//!     let token = request.headers().get("authorization").and_then(|token| token.to_str().ok());
//!     let user = User(token.ok_or(StatusCode::UNAUTHORIZED)?.to_owned());
//!     request.extensions_mut().insert(user);
//!     Ok(next.run(request).await)
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let addresses = RateLimitLayer::builder()
//!     .rule(Rule::new("per-address", TokenBucket::per_second(50).burst(100)).key(key::client_ip()))
//!     .exempt(|head| head.path() == "/healthz")
//!     .clock(clock.clone())
//!     .build()?;
//! let users = RateLimitLayer::builder()
//!     .rule(Rule::new("per-user", TokenBucket::per_minute(1))
//!         .key(key::extension(|user: &User| Key::from(&user.0)))
//!         .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)))
//!     .in_flight(InFlight::new("database", 64))
//!     .clock(clock)
//!     .build()?;
//!
//! let orders = Router::new()
//!     .route("/orders", post(|body: String| async move { body }))
//!     // The first is outermost.
//!     .layer(ServiceBuilder::new().layer(from_fn(authenticate)).layer(users));
//! let app: Router = orders.route("/healthz", axum::routing::get(|| async {})).layer(
//!     ServiceBuilder::new()
//!         .layer(TraceLayer::new_for_http())
//!         .layer(CorsLayer::new().allow_origin(Any).expose_headers(exposed_headers()))
//!         .layer(CatchPanicLayer::new())
//!         .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(10)))
//!         .layer(addresses),
//! );
//!
//! let ask = |method: &str, path: &str, token: Option<&str>| {
//!     let peer = ConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4_711)));
//!     let mut request = Request::builder().method(method).uri(path).extension(peer);
//!     if let Some(token) = token {
//!         request = request.header("authorization", token);
//!     }
//!     app.clone().oneshot(request.body(Body::empty()).unwrap())
//! };
//! assert_eq!(ask("POST", "/orders", None).await?.status(), 401);
//! assert_eq!(ask("POST", "/orders", Some("alice")).await?.status(), 200);
//! let refused = ask("POST", "/orders", Some("alice")).await?;
//! assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"60".parse()?));
//! assert_eq!(refused.headers()["access-control-allow-origin"], "*");
//! assert_eq!(ask("POST", "/orders", Some("bob")).await?.status(), 200);
//! assert_eq!(ask("GET", "/healthz", None).await?.status(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Next
//!
//! [Testing](super::testing): that the limit is there, and is the one you meant.
//!
//! Used on this page: [`RateLimitLayer`], [`Rule`], [`InFlight`], [`Observer`],
//! [`exposed_headers`](crate::exposed_headers), [`Rejection`](crate::Rejection), [`key`](crate::key).

#[cfg(doc)]
use crate::{InFlight, Observer, RateLimitLayer, RateLimitLayerBuilder, Rule};
