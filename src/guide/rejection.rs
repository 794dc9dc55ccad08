//! Choosing a rejection policy: refuse, let wait, or answer otherwise.
//!
//! This page answers: What do I do with a request that does not fit? What does the caller see, and what does it cost
//! him and me? Can I have an answer of my own? May he try again?
//!
//! # Which one
//!
//! Ask who waits for the answer, and what he does if there is none.
//!
//! | the request is | take | since |
//! | --- | --- | --- |
//! | a write: an order, a comment | [refuse](#writes-refuse) | he must know whether it was done; a fast no is an answer |
//! | a payment | refuse, and nothing else | a doubtful answer costs money |
//! | a login, a code | refuse, or ask for more | the wait is the protection: see [identity](super::identity#login-names) |
//! | a read, and an old answer is worth something | [degrade](#reads-degrade) | he would rather have yesterday's list than an error |
//! | a read, and an old answer is wrong: a balance | refuse | a wrong number is worse than none |
//! | a job: mail, an import, a call to a partner | [queue](#jobs-queue) | nobody looks at the clock, and it would come again at once |
//! | a stream, a WebSocket | refuse | it is refused before it begins; a client that is told when to come back does so |
//!
//! The short form: **writes refuse, reads degrade, jobs queue.** If you are not sure, refuse: it is the default, it is
//! the cheapest, and it is the only one that is never a lie.
//!
//! | | the caller pays | you pay |
//! | --- | --- | --- |
//! | refuse | a round trip, and a wait that he spends as he likes | a short answer; nothing of the downstream |
//! | degrade | an answer that is older or smaller | a handler that runs, a place of [`max_degraded`]; nothing of the downstream, if you do it right |
//! | queue | time, in which he cannot tell what goes on | a connection, a request in memory, a place in the queue; and all of the downstream, later |
//!
//! None of the three spends a permit before the request is admitted.
//!
//! [`max_degraded`]: RejectionPolicy::max_degraded
//!
//! # What the caller sees
//!
//! | what became of it | status | `Retry-After` | body |
//! | --- | --- | --- | --- |
//! | refused by a rate | 429, or [`Rule::status`] | the wait, in whole seconds, rounded up | problem details |
//! | refused by an in-flight limit | 503, or [`InFlight::status`] | 1, or [`InFlight::retry_after`]; spread | problem details |
//! | refused for good: it costs more than the limit | as by a rate | none: no waiting helps | problem details, reason `never` |
//! | answered by a degrade handler | the handler's | the handler's | the handler's |
//! | has waited, and had its turn | the inner handler's | | |
//! | would wait too long, or the queue is full | as refused, or what is next in the chain | | |
//!
//! Problem details (RFC 9457, M. Nottingham, E. Wilde, S. Dalal, 2023) are JSON with a type, a title and a status that
//! programs can read. `Cache-Control: no-store` is with every refusal: nobody else shall be served it. A gRPC client gets
//! its own form, and no body: the table on the [crate page](crate#what-a-refused-caller-gets) has the codes. How much is left
//! is told on request, by [`headers`](crate::RateLimitLayerBuilder::headers).
//!
//! ```
//! use axum::{Router, body::{Body, to_bytes}, http::Request, routing::post};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("orders", TokenBucket::per_minute(4).burst(1)).spread(false))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", post(|| async { "taken" }).layer(layer));
//! let ask = || app.clone().oneshot(Request::post("/").body(Body::empty()).unwrap());
//!
//! assert_eq!(ask().await?.status(), 200);
//! let refused = ask().await?;
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["retry-after"], "15");
//! assert_eq!(refused.headers()["cache-control"], "no-store");
//! assert_eq!(refused.headers()["content-type"], "application/problem+json");
//! let body = to_bytes(refused.into_body(), 1_000).await?;
//! assert_eq!(
//!     std::str::from_utf8(&body)?,
//!     concat!(
//!         r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
//!         r#""title":"Too Many Requests","status":429,"#,
//!         r#""detail":"The quota is spent for now; try again after the time in Retry-After.","#,
//!         r#""reason":"quota","violated-policies":["orders"]}"#,
//!     )
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! By default a refusal does not read the request's body. If there is one, that costs the connection on HTTP/1.x: a
//! server must read the body to its end or close (RFC 9112, section 9.3), and closing is cheaper. To choose otherwise:
//! [`UnreadBody`](crate::UnreadBody).
//!
//! # Writes refuse
//!
//! A refusal says one thing for sure: *nothing was done*. The request never reached the handler, and no permit of the
//! layer's rules was spent. So a refused write can be sent again. (A 503 of the handler's own may mean something else;
//! `reason` and `violated-policies` in the body tell ours.)
//!
//! That cannot be said of a timeout. A caller who gives up after two seconds does not know whether his request was
//! still in a queue or already in the handler. So do not queue what must not be done twice; and since timeouts happen
//! all the same, let such writes carry a key of their own, by which the handler knows that it has done this one
//! already. Here a payment is refused, tried again, and tried once more by a client that missed the answer. It is
//! charged once:
//!
//! ```
//! use axum::{Router, body::Body, http::{HeaderMap, Request, StatusCode}, routing::post};
//! use std::{collections::HashSet, sync::{Arc, Mutex}, time::Duration};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let charged: Arc<Mutex<HashSet<String>>> = Arc::default();
//! let ledger = charged.clone();
//! let pay = move |headers: HeaderMap| async move {
//!     let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
//!         return StatusCode::BAD_REQUEST;
//!     };
//!     // A real one keeps the first answer beside the key, in one transaction with the payment.
//!     if ledger.lock().unwrap().insert(key.to_owned()) {
//!         StatusCode::CREATED
//!     } else {
//!         StatusCode::OK
//!     }
//! };
//!
//! let clock = ManualClock::new();
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("payments", TokenBucket::per_second(1)))
//!     .clock(clock.clone())
//!     .build()?;
//! let app: Router = Router::new().route("/payments", post(pay).layer(layer));
//! let ask = async |key: &str| {
//!     let request = Request::post("/payments").header("idempotency-key", key);
//!     app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
//! };
//!
//! assert_eq!(ask("a-1").await, 201);
//! assert_eq!(ask("b-2").await, 429);
//! assert!(!charged.lock().unwrap().contains("b-2")); // refused: nothing was done
//! clock.advance(Duration::from_secs(1));
//! assert_eq!(ask("b-2").await, 201);
//! clock.advance(Duration::from_secs(1));
//! assert_eq!(ask("b-2").await, 200); // the answer was lost; the payment is there
//! assert_eq!(charged.lock().unwrap().len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! How often a client may try again, and what a thousand of them do, is on the page [sizing](super::sizing#retries).
//!
//! # Reads degrade
//!
//! [`degrade`](RejectionPolicy::degrade) lets another handler answer. Three things make it right:
//!
//! - **The answer is worth something.** A list of a minute ago is; a page that says "sorry" is a refusal with the
//!   wrong status. A balance, a stock level or a permission is not: who acts on it acts wrongly. Say how old is too
//!   old, and [`Decline`] what is older; the chain then goes on.
//! - **It is made of something else.** A degrade handler that asks the same database is not a way around the limit but
//!   a hole in it.
//! - **It can be told from a fresh one.** The answer is sent as the handler makes it, mostly with 200. Put a field into
//!   it that programs can see, and keep it out of caches, or a minute's shortage is served for an hour.
//!
//! ```
//! use axum::{Extension, Router, body::Body, extract::State, http::Request, response::IntoResponse, routing::get};
//! use std::{sync::{Arc, Mutex}, time::Duration};
//! use tower::ServiceExt;
//! use tower_sluice::{
//!     Decline, ManualClock, RateLimitLayer, Rejection, RejectionPolicy, Rule, TokenBucket,
//!     clock::{Clock, Nanos},
//! };
//!
//! const TOO_OLD: Duration = Duration::from_secs(60);
//!
//! /// When the list was last read, and by which clock.
//! #[derive(Clone)]
//! struct Cache { at: Arc<Mutex<Option<Nanos>>>, clock: ManualClock }
//!
//! async fn fresh(State(cache): State<Cache>) -> &'static str {
//!     *cache.at.lock().unwrap() = Some(cache.clock.now());
//!     "the list"
//! }
//!
//! async fn cached(
//!     State(cache): State<Cache>,
//!     Extension(rejection): Extension<Rejection>,
//! ) -> Result<impl IntoResponse, Decline> {
//!     let at = cache.at.lock().unwrap().ok_or(Decline)?;
//!     let age = Duration::from(cache.clock.now()) - Duration::from(at);
//!     if age > TOO_OLD {
//!         return Err(Decline);
//!     }
//!     let headers = [("x-degraded", rejection.reason().as_str()), ("cache-control", "no-store")];
//!     Ok((headers, "the list"))
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let cache = Cache { at: Arc::default(), clock: clock.clone() };
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("list", TokenBucket::per_hour(1)))
//!     .rejection(RejectionPolicy::degrade_with_state(cache.clone(), cached))
//!     .clock(clock.clone())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(fresh).layer(layer)).with_state(cache);
//! let ask = async || {
//!     let request = Request::get("/").body(Body::empty()).unwrap();
//!     let answer = app.clone().oneshot(request).await.unwrap();
//!     (answer.status().as_u16(), answer.headers().contains_key("x-degraded"))
//! };
//!
//! assert_eq!(ask().await, (200, false));
//! assert_eq!(ask().await, (200, true));
//! clock.advance(TOO_OLD);
//! assert_eq!(ask().await, (200, true));
//! // Too old now: the handler declines, and the chain ends in a refusal.
//! clock.advance(Duration::from_secs(1));
//! assert_eq!(ask().await, (429, false));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Degraded answers spend no permits, so no rule bounds them; [`max_degraded`] does, at 256 at once. And a write can
//! be degraded too, where "taken, and done later" (202) is true: [`taking_body`](RejectionPolicy::taking_body). The
//! place where it is kept needs a bound of its own. The example `degraded` has both: `cargo run --example degraded`.
//!
//! # Jobs queue
//!
//! A queue is for bursts. It makes nothing faster, and against what is too much for minutes it does not help:
//! [refuse or let wait](super::rate_or_in_flight#refuse-or-let-wait) shows it in numbers, and
//! [sizing](super::sizing#the-longest-wait-and-the-depth) tells how long and how deep. Its longest wait belongs below
//! every timeout that stands around it: see [layers](super::layers#timeouts).
//!
//! A policy can be that of one rule. Then a request waits for what is short for all, and not for a quota that its own
//! caller has used up: letting him wait would only fill the queue with his requests. If several limits refuse it, and
//! the policy of one of them neither queues nor degrades, that one answers.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::post};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_sluice::{
//!     LeakyBucket, Missing, RateLimitLayer, RejectionPolicy, Rule, TokenBucket, TokioClock, key,
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     // Each tenant has his own quota; who has used it up is refused at once, by the layer's policy.
//!     .rule(Rule::new("per-tenant", TokenBucket::per_minute(2))
//!         .key(key::header("x-tenant")).missing(Missing::Skip))
//!     // The partner takes one each 100 ms; for him a request may wait.
//!     .rule(Rule::new("partner", LeakyBucket::per_second(10))
//!         .rejection(RejectionPolicy::queue(Duration::from_millis(300), 10)))
//!     .clock(TokioClock)
//!     .build()?;
//! let app: Router = Router::new().route("/jobs", post(|| async {}).layer(layer));
//! let ask = async |tenant: &str| {
//!     let came = tokio::time::Instant::now();
//!     let request = Request::post("/jobs").header("x-tenant", tenant).body(Body::empty()).unwrap();
//!     let status = app.clone().oneshot(request).await.unwrap().status().as_u16();
//!     (status, came.elapsed().as_millis())
//! };
//!
//! assert_eq!(ask("acme").await, (200, 0));
//! assert_eq!(ask("acme").await, (200, 100)); // waited for the partner
//! assert_eq!(ask("acme").await, (429, 0)); // not let wait: his own quota
//! assert_eq!(ask("other").await, (200, 100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Chains
//!
//! Steps are joined by [`or`](RejectionPolicy::or) and tried in the order written; a chain that does not say how it
//! ends, ends with the default refusal. The order says what you value more:
//!
//! - `queue(..).or(degrade(..))`: **fresh before fast.** First a short wait, and the old answer only if that does not
//!   help.
//! - `degrade(..).or(queue(..))`: **fast before fresh.** The old answer at once; a wait only where there is none.
//!
//! Two requests for a list that takes 50 ms to read, one at a time:
//!
//! ```
//! use axum::{Router, body::{Body, to_bytes}, http::Request, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_sluice::{InFlight, RateLimitLayer, RejectionPolicy, TokioClock};
//!
//! async fn read() -> &'static str {
//!     tokio::time::sleep(Duration::from_millis(50)).await;
//!     "fresh"
//! }
//! async fn cached() -> &'static str {
//!     "cached"
//! }
//!
//! /// What the second of two requests gets, and after how many milliseconds.
//! async fn second(policy: RejectionPolicy) -> (String, u128) {
//!     let layer = RateLimitLayer::builder()
//!         .in_flight(InFlight::new("list", 1))
//!         .rejection(policy)
//!         .clock(TokioClock)
//!         .build()
//!         .unwrap();
//!     let app: Router = Router::new().route("/", get(read).layer(layer));
//!     let ask = async || {
//!         let came = tokio::time::Instant::now();
//!         let request = Request::get("/").body(Body::empty()).unwrap();
//!         let body = app.clone().oneshot(request).await.unwrap().into_body();
//!         let body = to_bytes(body, 100).await.unwrap();
//!         (String::from_utf8(body.to_vec()).unwrap(), came.elapsed().as_millis())
//!     };
//!     tokio::join!(ask(), ask()).1
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let queue = || RejectionPolicy::queue(Duration::from_millis(200), 10);
//! let degrade = || RejectionPolicy::degrade(cached);
//! assert_eq!(second(queue().or(degrade())).await, ("fresh".to_owned(), 100));
//! assert_eq!(second(degrade().or(queue())).await, ("cached".to_owned(), 0));
//! # });
//! ```
//!
//! Some requests no chain helps: one that costs more than the limit, and one whose key is missing where the rule says
//! [`Missing::Refuse`](crate::Missing). They are refused at once.
//!
//! # An answer of your own
//!
//! [`respond_with`](RejectionPolicy::respond_with) makes a refusal in the words of your service. The limit's status,
//! `Retry-After` and `Cache-Control` are added where you leave them out, so an answer of your own cannot forget them.
//! It is given the request's head too: here a program gets JSON, and a browser a page.
//!
//! ```
//! use axum::{Json, Router, body::{Body, to_bytes}, http::Request, response::{Html, IntoResponse}, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{Head, ManualClock, RateLimitLayer, Rejection, RejectionPolicy, Rule, TokenBucket};
//!
//! #[derive(serde::Serialize)]
//! struct Refused { error: &'static str, wait_seconds: Option<u64> }
//!
//! fn in_our_words(rejection: &Rejection, head: &Head<'_>) -> axum::response::Response {
//!     let browser = head.header_str("accept").is_some_and(|accept| accept.contains("text/html"));
//!     if browser {
//!         return Html("<p>Many are here just now. Please try again in a moment.</p>").into_response();
//!     }
//!     Json(Refused { error: "slow down", wait_seconds: rejection.retry_after_secs() }).into_response()
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("api", TokenBucket::per_minute(1)).spread(false))
//!     .rejection(RejectionPolicy::respond_with(in_our_words))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! let ask = |accept: &str| {
//!     app.clone().oneshot(Request::get("/").header("accept", accept).body(Body::empty()).unwrap())
//! };
//!
//! assert_eq!(ask("*/*").await?.status(), 200);
//! let refused = ask("application/json").await?;
//! assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"60".parse()?));
//! assert_eq!(refused.headers()["cache-control"], "no-store");
//! let body = to_bytes(refused.into_body(), 1_000).await?;
//! assert_eq!(body, r#"{"error":"slow down","wait_seconds":60}"#);
//! assert_eq!(ask("text/html,*/*").await?.headers()["content-type"], "text/html; charset=utf-8");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Keep out of it what helps only an attacker: the key he was counted under, and the limits of others.
//!
//! # Watch it
//!
//! An [`Observer`] hears of each refusal with its reason, of degraded answers
//! ([`is_degraded`](crate::event::Rejected::is_degraded)), of the wait of those who had their turn
//! ([`waited`](crate::event::Admitted::waited)) and of those who left the queue before
//! ([`left`](Observer::left)). Many who leave mean that the longest wait is longer than their patience. Many degraded
//! answers mean that the limit is met all day: then it is not a shortage but the size of the service.
//!
//! # Next
//!
//! [Identity](super::identity): what to count by, and what an attacker can choose.
//!
//! Used on this page: [`RejectionPolicy`], [`Rejection`], [`Decline`], [`Rule`], [`InFlight`], [`RateLimitLayer`],
//! [`Observer`], [`Head`].

#[cfg(doc)]
use crate::{Decline, Head, InFlight, Observer, RateLimitLayer, Rejection, RejectionPolicy, Rule};
