//! Identity: what to count by, and what an attacker can choose.
//!
//! This page answers: Is this header, cookie or address a good key? What does somebody gain who makes one up? How do I
//! protect a login without locking its owner out? What of requests that nobody signed? And what if they come from ten
//! thousand addresses?
//!
//! # Two questions
//!
//! Whoever chooses the key, chooses the bucket. So ask two questions of each key:
//!
//! - Can he **invent** one? Then he has a new bucket for each request, and there is no limit.
//! - Can he **borrow** another's? Then he can use it up, and its owner is refused.
//!
//! | key | who chooses it | what an attacker gains | what to do |
//! | --- | --- | --- | --- |
//! | a header that nobody checks | the caller, anew each time | no limit at all; or another's quota used up | [a rule by address beside it](#a-header-alone) |
//! | a header that a gateway sets | the gateway, if it *overwrites* what came | nothing, unless he can reach you past it | let nobody reach you past it; a rule by address all the same |
//! | an API key, a session, a token | you, once it is checked | as many quotas as accounts he can open | [`key::extension`] behind the check; limit the opening of accounts |
//! | the same, not yet checked | the caller | as a header | [check first](#accounts) |
//! | a cookie | the caller, unless it is signed; and he can leave it out | a new bucket with each visit | [count by whom the session names](#accounts) |
//! | the address, IPv4 | his network | one bucket for each address he can rent | [a wide limit](#addresses): many honest people may share one |
//! | the address, IPv6 | he, among 2^64 at least | nothing, counted by /64 | the default; a wider rule by /48 beside it |
//! | a path parameter, `/tenants/{id}` | the caller | [another's quota](#borrowed-keys) used up | behind the check that it is his |
//! | a login name in the body | the caller | guesses, and [a locked account](#login-names) | by account and by address, and no lock |
//! | the plan he pays for | whoever writes it | the large quota for nothing | [from authentication only](#tiers) |
//! | `User-Agent`, `Referer`, a fingerprint | the caller | no limit at all | no key |
//! | the route | nobody: there are as many as you wrote | nothing | good, and says nothing of who it is |
//!
//! # A header alone
//!
//! One caller, a hundred requests, a new name in each. A rule by header lets all of them through; so does one with
//! `or`, which asks for the address only where the header is *missing*. `or` is for callers without an identity, it is
//! no defence against invented ones. The rule by address *beside* it is.
//!
//! ```
//! use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! use std::net::SocketAddr;
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key};
//!
//! /// How many of a hundred requests pass, each of which invents a user.
//! async fn pass(rules: Vec<Rule>) -> usize {
//!     let layer = RateLimitLayer::builder().rules(rules).clock(ManualClock::new()).build().unwrap();
//!     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//!     let mut passed = 0;
//!     for name in 0..100 {
//!         let request = Request::get("/")
//!             .header("x-user-id", name)
//!             .extension(ConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4_711))));
//!         let answer = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//!         passed += usize::from(answer.status() == 200);
//!     }
//!     passed
//! }
//! let user = || TokenBucket::per_second(10).burst(20);
//! let by_header =
//!     || Rule::new("per-user", user()).key(key::header("x-user-id")).missing(Missing::Skip);
//! let by_either =
//!     Rule::new("callers", user()).key(key::header("x-user-id").or(key::client_ip()));
//! let by_address = Rule::new("per-address", user()).key(key::client_ip());
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! assert_eq!(pass(vec![by_header()]).await, 100);
//! assert_eq!(pass(vec![by_either]).await, 100);
//! assert_eq!(pass(vec![by_header(), by_address]).await, 20);
//! # });
//! ```
//!
//! # Borrowed keys
//!
//! A quota of a tenant, counted by the name in the path: whoever writes that name spends it. Mallory, who is no user
//! of the tenant, asks until its quota is gone. It does not help that each of her requests is answered with 403: the
//! handler says so, and the layer has charged by then. Put the check outside of the limit, and she spends nothing of
//! it:
//!
//! ```
//! use axum::{
//!     Router, body::Body, extract::{Path, Request}, http::StatusCode, middleware::{Next, from_fn},
//!     response::{IntoResponse, Response}, routing::get,
//! };
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key};
//!
//! /// Stands for real authorization: each user may see the tenant of his own name.
//! async fn authorize(Path(tenant): Path<String>, request: Request, next: Next) -> Response {
//!     match request.headers().get("x-user").map(|user| user.as_bytes() == tenant.as_bytes()) {
//!         Some(true) => next.run(request).await,
//!         _ => StatusCode::FORBIDDEN.into_response(),
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = || {
//!     RateLimitLayer::builder()
//!         .rule(Rule::new("per-tenant", TokenBucket::per_minute(60))
//!             .key(key::path_param("tenant")).missing(Missing::Skip))
//!         .clock(ManualClock::new())
//!         .build()
//! };
//! let (outside, inside) = (layer()?, layer()?);
//! let path = "/tenants/{tenant}/orders";
//! // The layer added last is the outer one.
//! let limit_first: Router =
//!     Router::new().route(path, get(|| async {})).layer(from_fn(authorize)).layer(outside.clone());
//! let check_first: Router =
//!     Router::new().route(path, get(|| async {})).layer(inside.clone()).layer(from_fn(authorize));
//!
//! for app in [limit_first, check_first] {
//!     for _ in 0..60 {
//!         let request = Request::get("/tenants/acme/orders").header("x-user", "mallory");
//!         let answer = app.clone().oneshot(request.body(Body::empty())?).await?;
//!         assert_eq!(answer.status(), 403);
//!     }
//! }
//! assert_eq!(outside.handle().peek("per-tenant", "acme", 1).await?.remaining(), 0);
//! assert_eq!(inside.handle().peek("per-tenant", "acme", 1).await?.remaining(), 60);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Accounts
//!
//! The best key is the one that authentication found: it puts the user into the request's extensions, and
//! [`key::extension`] reads him there. Nobody can invent it, nor borrow another's without his password. Count by the
//! *user*, not by the session or the token: those are had anew with each login.
//!
//! What is left to an attacker is to open accounts. So limit that, by address and in all; or give new accounts less, as
//! a tier. And the check itself is work that anybody can ask for, so a rule by address stands *outside* of it: see
//! [layers](super::layers#authentication). The example `service` has both: `cargo run --example service`.
//!
//! A cookie is a header too: the caller sends it, changes it, or leaves it out. Signed, it cannot be invented, but a new
//! one can be had with each visit, and then it is as if it were. Here one user logs in anew before each request. By his
//! session he has no limit, by his name he has one:
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{Key, ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key, key::KeyBy};
//!
//! /// What authentication has found behind the session.
//! #[derive(Clone)]
//! struct User(&'static str);
//!
//! /// How many of a hundred requests pass.
//! async fn pass(by: KeyBy) -> usize {
//!     let layer = RateLimitLayer::builder()
//!         .rule(Rule::new("users", TokenBucket::per_minute(5)).key(by).missing(Missing::Skip))
//!         .clock(ManualClock::new())
//!         .build()
//!         .unwrap();
//!     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//!     let mut passed = 0;
//!     for session in 0..100 {
//!         let request = Request::get("/")
//!             .header("cookie", format!("session=signed-{session}"))
//!             .extension(User("mallory"));
//!         let answer = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//!         passed += usize::from(answer.status() == 200);
//!     }
//!     passed
//! }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! assert_eq!(pass(key::cookie("session")).await, 100);
//! assert_eq!(pass(key::extension(|user: &User| Key::from(user.0))).await, 5);
//! # });
//! ```
//!
//! # Addresses
//!
//! **IPv6.** Whoever has one address has at least a /64 of them, which is 2^64. So addresses count by their /64: he
//! may use another for each request, and it is one key. Many have more: a home often a /56, a company a /48. A second
//! rule with a wider quota bounds those:
//!
//! ```
//! use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! use std::net::{Ipv6Addr, SocketAddr};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("per-address", TokenBucket::per_second(10)).key(key::client_ip()))
//!     .rule(Rule::new("per-site", TokenBucket::per_second(100)).key(key::client_ip().ipv6_prefix(48)))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! let ask = async |network: u16, host: u16| {
//!     let address = Ipv6Addr::from([0x2001, 0xdb8, 1, network, 0, 0, 0, host]);
//!     let peer = ConnectInfo(SocketAddr::from((address, 4_711)));
//!     let request = Request::get("/").extension(peer).body(Body::empty()).unwrap();
//!     app.clone().oneshot(request).await.unwrap().status() == 200
//! };
//!
//! // A thousand addresses of one /64 are one caller.
//! let mut passed = 0;
//! for host in 0..1_000 {
//!     passed += u32::from(ask(0, host).await);
//! }
//! assert_eq!(passed, 10);
//! // A thousand /64 of one /48 are as much as the site may have, and of that 10 are spent.
//! for network in 1..=1_000 {
//!     passed += u32::from(ask(network, 1).await);
//! }
//! assert_eq!(passed, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! **IPv4.** Here it is the other way round: an office, a school or a mobile network stands behind one address. A limit
//! that is right for one person refuses all of them. So make the rule by address wide,
//! [`relaxed(10)`](crate::key::KeyBy::relaxed), and let a rule by user be the strict one. Where there is no user, the
//! address is all you have: take what a small office needs, and look at who is refused.
//!
//! Behind a proxy the address is a chapter of its own: [behind a proxy](super::proxy).
//!
//! # Login names
//!
//! Who logs in is nobody yet. Two things are known: his address, and the *name he claims*, which is in the body. Each
//! stops another attack:
//!
//! | attack | seen by account | seen by address |
//! | --- | --- | --- |
//! | one account, all passwords, from one address | yes | yes |
//! | one account, all passwords, from many addresses | **yes** | no |
//! | all accounts, one password each, from one address | no | **yes** |
//! | all accounts, from many addresses | no | no: [the last line](#many-addresses) |
//!
//! So count by both. But the name is a borrowed key: five wrong passwords from anybody, and the *owner* is refused. A
//! limit by account that refuses is a lock that everybody can shut. So above the limit do not refuse: **ask for more**,
//! a code from his telephone or a link in his mail, and do not look at the password without it. The owner gets in, and
//! who guesses learns nothing.
//!
//! The rule by address is in the layer. The account is asked in the handler, which has read the body, with a
//! [`KeyedLimiter`]; where you do refuse there, [`Rejection::of`] makes the answer.
//!
//! ```
//! use axum::{
//!     Json, Router, body::Body, extract::{ConnectInfo, Request, State}, http::StatusCode, routing::post,
//! };
//! use std::{net::SocketAddr, time::Duration};
//! use tower::ServiceExt;
//! use tower_sluice::{KeyedLimiter, ManualClock, RateLimitLayer, Rule, SlidingLog, key};
//!
//! #[derive(serde::Deserialize)]
//! struct Login { name: String, password: String, code: Option<String> }
//!
//! async fn log_in(State(accounts): State<KeyedLimiter>, Json(login): Json<Login>) -> (StatusCode, &'static str) {
//!     let tried_often = !accounts.try_acquire(&login.name).is_allowed();
//!     // Asked before the password is looked at, and for names that do not exist too.
//!     if tried_often && login.code.as_deref() != Some("271828") {
//!         return (StatusCode::UNAUTHORIZED, "we have sent you a code");
//!     }
//!     if login.password != "correct horse" {
//!         return (StatusCode::UNAUTHORIZED, "no");
//!     }
//!     accounts.reset(&login.name);
//!     (StatusCode::OK, "welcome")
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let (clock, quarter) = (ManualClock::new(), Duration::from_secs(15 * 60));
//! let accounts = SlidingLog::new(5, quarter).keyed_limiter().clock(clock.clone()).build()?;
//! let addresses = RateLimitLayer::builder()
//!     .rule(Rule::new("logins", SlidingLog::new(20, quarter)).key(key::client_ip()))
//!     .clock(clock.clone())
//!     .build()?;
//! let app: Router =
//!     Router::new().route("/login", post(log_in).layer(addresses)).with_state(accounts);
//! let ask = async |from: [u8; 4], name: &str, password: &str, code: &str| {
//!     let body = format!(r#"{{"name": "{name}", "password": "{password}", "code": "{code}"}}"#);
//!     let request = Request::post("/login")
//!         .header("content-type", "application/json")
//!         .extension(ConnectInfo(SocketAddr::from((from, 4_711))));
//!     let answer = app.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
//!     let (status, body) = (answer.status().as_u16(), answer.into_body());
//!     let body = axum::body::to_bytes(body, 1_000).await.unwrap();
//!     (status, String::from_utf8(body.to_vec()).unwrap())
//! };
//! let (mallory, home) = ([203, 0, 113, 7], [198, 51, 100, 1]);
//!
//! // Five passwords are looked at. The right one is the seventh, and she does not learn that.
//! for guess in 1..=5 {
//!     assert_eq!(ask(mallory, "alice", &format!("guess {guess}"), "").await.1, "no");
//! }
//! for guess in ["guess 6", "correct horse"] {
//!     assert_eq!(ask(mallory, "alice", guess, "").await.1, "we have sent you a code");
//! }
//! // She turns to other accounts, one password each, until her address is refused.
//! for account in 8..=20 {
//!     assert_eq!(ask(mallory, &format!("user-{account}"), "123456", "").await.1, "no");
//! }
//! assert_eq!(ask(mallory, "user-21", "123456", "").await.0, 429);
//!
//! // Alice is not locked out.
//! assert_eq!(ask(home, "alice", "correct horse", "").await.1, "we have sent you a code");
//! assert_eq!(ask(home, "alice", "correct horse", "271828").await, (200, "welcome".to_owned()));
//! // And from now on no code is asked of her.
//! assert_eq!(ask(home, "alice", "correct horse", "").await, (200, "welcome".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! A [`SlidingLog`], since each permit is a guess: [when a burst is wrong](super::algorithms#when-a-burst-is-wrong) has
//! the numbers. Codes are guessed too, so a code that is checked has such a limit of its own, and is good for one login
//! and a few minutes. If you can ask for nothing more, let the owner wait rather than lock him out: a quarter of an
//! hour passes, and a lock has to be opened by somebody.
//!
//! # Tiers
//!
//! A tier is a larger quota for those who pay. Read it from what authentication found and never from the request: a
//! header `x-plan: pro` costs nothing. Users of an unknown tier have the rule's own quota, so nobody is unlimited by
//! mistake.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{Key, ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key};
//!
//! /// What authentication knows of a caller.
//! #[derive(Clone)]
//! struct User { id: u64, plan: &'static str }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("per-user", TokenBucket::per_minute(5))
//!         .key(key::extension(|user: &User| Key::from(user.id))).missing(Missing::Skip)
//!         .tier("pro", TokenBucket::per_minute(50))
//!         .tiers(|head| head.extension::<User>().map(|user| user.plan)))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! let pass = async |user: User| {
//!     let mut passed = 0;
//!     for _ in 0..100 {
//!         let request = Request::get("/").header("x-plan", "pro").extension(user.clone());
//!         let answer = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//!         passed += u32::from(answer.status() == 200);
//!     }
//!     passed
//! };
//! assert_eq!(pass(User { id: 1, plan: "pro" }).await, 50);
//! assert_eq!(pass(User { id: 2, plan: "free" }).await, 5); // whatever his header says
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Without a key
//!
//! A request without the key, and a rule that counts by it. There is no default, since each answer is wrong somewhere:
//!
//! | [`Missing`] | means | right where | wrong where |
//! | --- | --- | --- | --- |
//! | `Skip` | the rule does not apply | another rule counts such requests | it is the only rule: who leaves the header out has no limit |
//! | `Shared` | all such requests count together | they are few: machines of your own, old clients | anybody can send one: a stranger uses up the quota of all |
//! | `Refuse(401)` | refused, and nothing is charged | every honest caller has one | a page that everybody may see |
//! | no `Missing`, but [`or`](crate::key::KeyBy::or) an address | by address | pages with and without login | as a defence: [see above](#a-header-alone) |
//!
//! Ten requests of somebody who leaves the header out, with a quota of 5:
//!
//! ```
//! use axum::{Router, body::Body, http::{Request, StatusCode}, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, Missing, RateLimitLayer, Rule, TokenBucket, key};
//!
//! /// How many pass, and what the last is told.
//! async fn ten(missing: Missing) -> (u32, u16) {
//!     let layer = RateLimitLayer::builder()
//!         .rule(Rule::new("per-user", TokenBucket::per_minute(5))
//!             .key(key::header("x-user-id")).missing(missing))
//!         .clock(ManualClock::new())
//!         .build()
//!         .unwrap();
//!     let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//!     let (mut passed, mut last) = (0, 0);
//!     for _ in 0..10 {
//!         let request = Request::get("/").body(Body::empty()).unwrap();
//!         last = app.clone().oneshot(request).await.unwrap().status().as_u16();
//!         passed += u32::from(last == 200);
//!     }
//!     (passed, last)
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! assert_eq!(ten(Missing::Skip).await, (10, 200));
//! assert_eq!(ten(Missing::Shared).await, (5, 429));
//! assert_eq!(ten(Missing::Refuse(StatusCode::UNAUTHORIZED)).await, (0, 401));
//! # });
//! ```
//!
//! # Endpoints without a login
//!
//! Registration, a forgotten password, a contact form, a search: they are open to everybody, and each costs you
//! something that can be sent in a stranger's name. Give each:
//!
//! - a rule by address, as strict as an office bears;
//! - a rule without a key, at a few times what an honest day brings: mail to strangers goes out in your name;
//! - where something goes to a third party (a mail, a message), one by *his* address in the handler, as by account
//!   above: nobody wants a hundred codes;
//! - a cost, where some of them are dear: [costs](super::sizing#costs).
//!
//! # Invented keys cost nothing more
//!
//! Ten million invented names do not fill the memory. A rule keeps so many keys, 131,072 unless told otherwise; only a
//! key whose quota is whole again makes room. When all are in use, newcomers share 1,024 *overflow buckets*, the fault
//! SL-KEYS is raised once, and those who were there before keep their own. Newcomers are then refused sooner than they
//! should be, never later. So with 1,000 keys and 5 requests for each, a hundred thousand invented names get 5 from
//! each overflow bucket and one from each place in the table, and whoever was there before loses nothing:
//!
//! ```
//! use tower_sluice::{ManualClock, TokenBucket};
//!
//! let limiter = TokenBucket::per_minute(5).keyed_limiter().max_keys(1_000).clock(ManualClock::new()).build()?;
//! // Alice was here before, and has spent three.
//! assert!(limiter.try_acquire_many("alice", 3).is_allowed());
//! let mut passed = 0;
//! for name in 0..100_000_u64 {
//!     passed += u64::from(limiter.try_acquire(name).is_allowed());
//! }
//! // The table is full, a little above what was asked for; what did not fit shared the rest.
//! assert!(limiter.tracked_keys() <= 1_024, "{}", limiter.tracked_keys());
//! assert!(passed <= 1_024 + 1_024 * 5, "{passed}");
//! assert_eq!(limiter.peek("alice", 1).remaining(), 2);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # Many addresses
//!
//! Against an attacker with ten thousand machines no rule by caller helps: each of them is a modest caller. The last
//! line is a limit that asks nobody who he is: a rule without a key, or an [`InFlight`] limit. It does not tell friend
//! from foe. It keeps the service alive, and honest callers are refused with the others.
//!
//! So let those stand apart whom you know. Give strangers a part of the total, by a rule that applies to requests
//! without a user, and the rest is left to your users, however many strangers come:
//!
//! ```
//! use axum::{Router, body::Body, extract::ConnectInfo, http::Request, routing::get};
//! use std::net::SocketAddr;
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key};
//!
//! #[derive(Clone)]
//! struct User;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_second(300)))
//!     .rule(Rule::new("strangers", TokenBucket::per_second(200))
//!         .when(|head| head.extension::<User>().is_none()))
//!     .rule(Rule::new("per-address", TokenBucket::per_second(5)).key(key::client_ip()))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! let ask = async |from: [u8; 4], user: Option<User>| {
//!     let mut request = Request::get("/").extension(ConnectInfo(SocketAddr::from((from, 4_711))));
//!     if let Some(user) = user {
//!         request = request.extension(user);
//!     }
//!     let answer = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
//!     answer.status() == 200
//! };
//!
//! // A thousand machines, each with no more than its address may have.
//! let mut passed = 0;
//! for machine in 0..1_000_u16 {
//!     let [high, low] = machine.to_be_bytes();
//!     for _ in 0..5 {
//!         passed += u32::from(ask([10, 0, high, low], None).await);
//!     }
//! }
//! assert_eq!(passed, 200);
//! // A hundred requests of users still pass at that instant.
//! let mut users = 0;
//! for office in 0..40 {
//!     for _ in 0..5 {
//!         users += u32::from(ask([198, 51, 100, office], Some(User)).await);
//!     }
//! }
//! assert_eq!(users, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Against a flood that fills the line or the processor before a request is read, no layer in the service helps; that
//! is for the network in front of it.
//!
//! # Next
//!
//! [Behind a proxy](super::proxy): whose address it is.
//!
//! Used on this page: [`key`], [`Rule`], [`Missing`], [`KeyedLimiter`], [`Rejection`], [`SlidingLog`], [`TokenBucket`],
//! [`InFlight`], [`RateLimitLayer`].

#[cfg(doc)]
use crate::{
    InFlight, KeyedLimiter, Missing, RateLimitLayer, Rejection, Rule, SlidingLog, TokenBucket, key,
};
