//! Sizing: from what the downstream bears to rate, burst, queue and cost.
//!
//! This page answers: My database does 4,000 requests a second in a load test; which limit do I set? How much of it
//! has each of my four instances? How large is the burst, how long the queue, what may one user have? How do I count
//! requests that are not alike?
//!
//! Each section has a small function that computes the number, and a limiter that is built of it. The *downstream* is
//! what your handlers wait on.
//!
//! | number | is |
//! | --- | --- |
//! | rate | what a load test showed x 70 to 80 % |
//! | rate in requests | rate of the downstream / calls per request; or that as their cost |
//! | share of an instance | rate / instances |
//! | burst | the smaller of: what the downstream can queue; spare rate x the time it may take to drain |
//! | limit of a user | what an honest heavy user needs x 2 |
//! | limit of an address | ten times that of a user |
//! | longest wait | the client's timeout - the handler's time |
//! | depth of the queue | rate of this instance, in requests, x longest wait |
//! | cost | time of this request / time of the cheapest |
//!
//! # Headroom
//!
//! A load test shows where the downstream breaks. Do not set the limit there. Backups run, caches are cold, one
//! request is more work than another. And the closer to the full rate, the longer everybody waits: where requests come
//! at random to one server, the mean time in it is that of the work alone divided by 1 - load (L. Kleinrock, *Queueing
//! Systems*, volume 1, 1975). That is 4 times as long at 75 %, 10 times at 90 %, 20 times at 95 %. So take 70 to 80 %
//! of what the test showed.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket};
//!
//! fn rate(measured: u64, percent: u64) -> u64 {
//!     measured * percent / 100
//! }
//! let rate = rate(4_000, 75);
//! assert_eq!(rate, 3_000);
//!
//! fn times_as_long(load: f64) -> f64 {
//!     1.0 / (1.0 - load)
//! }
//! assert_eq!([0.75, 0.9, 0.95].map(|load| times_as_long(load).round()), [4.0, 10.0, 20.0]);
//!
//! // However much is asked, 3,000 a second are admitted, and the burst once.
//! let clock = ManualClock::new();
//! let limiter = TokenBucket::per_second(rate).burst(125).limiter().clock(clock.clone()).build()?;
//! let mut admitted = 0;
//! for _ in 0..=1_000 {
//!     admitted += (0..20).filter(|_| limiter.try_acquire().is_allowed()).count();
//!     clock.advance(Duration::from_millis(1));
//! }
//! assert_eq!(admitted, 3_000 + 125);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! If the load test told you connections instead of requests per second, use an in-flight limit, or Little's law:
//! [`rate_or_in_flight`](super::rate_or_in_flight#littles-law).
//!
//! # Instances
//!
//! Each process counts for itself, unless you give it a [`Backend`] that all share. So give each instance its share:
//! the total, divided by how many there are.
//!
//! ```
//! fn share(total: u64, instances: u64) -> u64 {
//!     total / instances // rounded down: together never more than the total
//! }
//! assert_eq!(share(3_000, 4), 750);
//! // One of four dies, and its callers go to the other three.
//! assert_eq!(3 * share(3_000, 4), 2_250);
//! // Shares for three, and the fourth comes back.
//! assert_eq!(4 * share(3_000, 3), 4_000);
//! ```
//!
//! - **When an instance dies** the others go on with their shares. A quarter of the total is unused, and its callers
//!   are refused. That is safe. If you give the others a larger share ([`Handle::set_limit`] does it while they
//!   serve), take it back *before* the fourth returns: else it is 4,000 a second, and that was where the test broke.
//! - **When instances are added** by themselves, as under autoscaling, divide by the most there can be.
//! - **Uneven load wastes.** If one instance gets 40 % of the callers, it refuses, while permits remain to the others.
//!   Here 3,000 a second come, just the total, and only 2,550 are admitted:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{Limiter, ManualClock, TokenBucket};
//!
//! /// What passes per second of an offered load that is spread so.
//! fn passes(offered: [u64; 4], share: u64) -> u64 {
//!     offered.map(|load| load.min(share)).iter().sum()
//! }
//! assert_eq!(passes([750, 750, 750, 750], 750), 3_000);
//! assert_eq!(passes([1_200, 600, 600, 600], 750), 2_550);
//!
//! // The same with limiters, over 10 s: one step is 5 ms, in which 6, 3, 3 and 3 requests come.
//! let clock = ManualClock::new();
//! let limiter =
//!     || TokenBucket::per_second(750).burst(10).limiter().clock(clock.clone()).build().unwrap();
//! let instances: [(Limiter, u32); 4] =
//!     [(limiter(), 6), (limiter(), 3), (limiter(), 3), (limiter(), 3)];
//! let mut admitted = 0;
//! for _ in 0..2_000 {
//!     for (limiter, load) in &instances {
//!         admitted += (0..*load).filter(|_| limiter.try_acquire().is_allowed()).count();
//!     }
//!     clock.advance(Duration::from_millis(5));
//! }
//! // 25,500, and the burst of the first once.
//! assert!((25_500..=25_510).contains(&admitted), "{admitted}");
//! ```
//!
//! Limits per user divide badly. Divided by four, a user who always comes to the same instance has a quarter of his
//! limit. Undivided, one who comes to all four has it four times. Route each user to one instance, if you can; else
//! leave them undivided: the total, which protects the downstream, holds all the same.
//!
//! # The burst
//!
//! The downstream can buffer a burst only as far as it can queue it. Two numbers bound it:
//!
//! - **The queue** it bears: how many requests may wait there, without a timeout or an error.
//! - **The time to drain.** A burst goes away at the *spare* rate, what the downstream does beyond your limit. With
//!   4,000 done and 3,000 admitted, 1,000 a second are spare. If the downstream shall be as fast as before after 125
//!   ms, the burst is at most 1,000/s x 125 ms = 125.
//!
//! Both are the downstream's own numbers: how many connections or threads it lets wait, and how long its other users
//! bear it to be slower. If you know neither, take a tenth of a second of the spare rate. Take the smaller one. In the
//! example the queue bears 200:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket};
//!
//! fn burst(queue: u64, spare_per_second: u64, drain: Duration) -> u64 {
//!     queue.min(spare_per_second * drain.as_millis() as u64 / 1_000)
//! }
//! let burst = burst(200, 4_000 - 3_000, Duration::from_millis(125));
//! assert_eq!(burst, 125);
//!
//! // A caller takes all he can get, from the first instant on. The downstream does 4 requests in 1 ms.
//! let clock = ManualClock::new();
//! let limiter =
//!     TokenBucket::per_second(3_000).burst(burst).limiter().clock(clock.clone()).build()?;
//! let mut queued = (0..1_000).filter(|_| limiter.try_acquire().is_allowed()).count();
//! assert_eq!(queued, 125);
//! let mut millis = 0;
//! while queued > 0 {
//!     clock.advance(Duration::from_millis(1));
//!     millis += 1;
//!     let came = (0..1_000).filter(|_| limiter.try_acquire().is_allowed()).count();
//!     queued = (queued + came).saturating_sub(4);
//!     assert!(queued <= 125);
//! }
//! assert!((120..=125).contains(&millis), "{millis}");
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! A burst per user is another matter: it is what *he* does at once, as a page load. See [when a burst is
//! right](super::algorithms#when-a-burst-is-right). Only the rule without a key bounds what reaches the downstream at
//! one instant, so have one besides.
//!
//! # Retries
//!
//! A client that is refused comes again. If each request is tried again up to `r` times and all are refused, `1 + r`
//! times as much is asked. If half are refused, three retries make it 1.9 times. And retries of services that stand
//! one behind the other multiply: where three of them retry three times each, one click is up to 64 requests at the
//! last (the same count as in "Addressing Cascading Failures" by Mike Ulrich, in *Site Reliability Engineering*,
//! 2016).
//!
//! ```
//! /// How many times the load is asked, if this part is refused each time.
//! fn asked(retries: u32, refused: f64) -> f64 {
//!     (0..=retries).map(|nth| refused.powi(nth as i32)).sum()
//! }
//! assert_eq!(asked(3, 1.0), 4.0);
//! assert_eq!(asked(3, 0.5), 1.875);
//! assert_eq!(asked(3, 1.0).powi(3), 64.0);
//! ```
//!
//! A denied check changes nothing, so retries do not make it worse for the caller himself: he is not punished, and not
//! rewarded either. But each costs you the work of refusing it. So tell clients when to come:
//!
//! - **`Retry-After`** is in every refusal that waiting helps. Let your clients obey it, and give up after two or
//!   three tries.
//! - **Spread.** If a thousand callers hear "60 s" in the same second, they come back in the same second. So where
//!   many hear the same answer, 0 to a fifth is added at random: 60 to 72 s, thirteen different seconds, so some 77
//!   callers come in each. It is on for rules without a key, and off for rules with one: [`Rule::spread`].
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::{collections::BTreeMap, time::Duration};
//! use tower::ServiceExt;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_minute(1)))
//!     .clock(clock.clone())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
//!
//! assert_eq!(ask().await?.status(), 200);
//! let mut told = BTreeMap::new();
//! for _ in 0..1_000 {
//!     // No two come at the very same instant; chance is drawn from it.
//!     clock.advance(Duration::from_micros(1));
//!     let wait: u64 = ask().await?.headers()["retry-after"].to_str()?.parse()?;
//!     *told.entry(wait).or_insert(0) += 1;
//! }
//! assert!(told.keys().all(|wait| (60..=72).contains(wait)));
//! assert_eq!((1_000.0_f64 / 13.0).round(), 77.0);
//! // Chance decides; 150 in one second of thirteen is far beyond what it does.
//! assert!(told.len() == 13 && told.values().all(|callers| *callers < 150));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! So retries change neither rate nor burst, since what is refused never reaches the downstream. They change how much you
//! must refuse: where each client retries twice, up to three times as much comes.
//!
//! # Per user, per address
//!
//! The total protects the downstream. Limits by caller decide who gets it. They need not add up to the total: not all
//! users come at once.
//!
//! - **A user.** Look up what your heaviest honest users do in their busiest second, and double it. If that is 5 a
//!   second, a user may have 10. Then ask: how many who take all they can fill the total? 3,000 / 10 = 300. If so many
//!   could plot against you, set it lower.
//! - **An address.** Behind one address may stand an office or a mobile network, so give it ten times as much:
//!   [`relaxed(10)`](crate::key::KeyBy::relaxed) multiplies the limit and the burst. 3,000 / 100 = 30 such addresses
//!   fill the total.
//! - **Both**, always, where users can be invented: a header that nobody checks is no identity.
//!
//! ```
//! use tower_sluice::{Missing, RateLimitLayer, Rule, RuleKey, TokenBucket, key};
//!
//! fn per_user(honest: u64) -> u64 {
//!     honest * 2
//! }
//! fn who_fill(total: u64, each: u64) -> u64 {
//!     total / each
//! }
//! let user = per_user(5);
//! assert_eq!((user, who_fill(3_000, user), who_fill(3_000, 10 * user)), (10, 300, 30));
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_second(3_000).burst(125)))
//!     .rule(Rule::new("per-user", TokenBucket::per_second(user).burst(2 * user))
//!         .key(key::header("x-user-id")).missing(Missing::Skip))
//!     .rule(Rule::new("per-address", TokenBucket::per_second(user).burst(2 * user))
//!         .key(key::client_ip().relaxed(10)))
//!     .build()?;
//!
//! let office = RuleKey::address("203.0.113.7".parse()?);
//! assert_eq!(layer.handle().peek("per-user", "alice", 1).await?.limit(), 20);
//! assert_eq!(layer.handle().peek("per-address", office, 1).await?.limit(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # The longest wait, and the depth
//!
//! A request that waits until its client has gone was work for nobody. So the longest wait is the client's timeout
//! minus the time that the handler needs, measured at its slow end, as the time that 99 of 100 requests stay below. A
//! client gives up after 2 s, the handler needs 500 ms: 1.5 s are left.
//!
//! The depth follows: at a rate of 20 a second, 20/s x 1.5 s = 30 requests leave the queue within the longest wait. A
//! larger depth changes nothing, since the wait is known beforehand: who would wait longer is refused at once. A
//! smaller one refuses sooner.
//!
//! Here 32 requests come at once. One is admitted, 30 wait, and one is refused: it would have to wait 1.55 s.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_sluice::{LeakyBucket, ManualClock, RateLimitLayer, RejectionPolicy, Rule};
//!
//! fn longest_wait(client_timeout: Duration, handler: Duration) -> Duration {
//!     client_timeout.saturating_sub(handler)
//! }
//! fn depth(rate: u64, longest_wait: Duration) -> u64 {
//!     rate * longest_wait.as_millis() as u64 / 1_000
//! }
//! let longest = longest_wait(Duration::from_secs(2), Duration::from_millis(500));
//! assert_eq!(depth(3_200, Duration::from_millis(200)), 640); // see below
//! let depth = depth(20, longest);
//! assert_eq!((longest, depth), (Duration::from_millis(1_500), 30));
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let clock = ManualClock::new();
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("partner", LeakyBucket::per_second(20)).spread(false))
//!     .rejection(RejectionPolicy::queue(longest, depth))
//!     .clock(clock.clone())
//!     .build()?;
//! let handle = layer.handle();
//! let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
//! let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
//!
//! assert_eq!(ask().await?.status(), 200);
//! let mut waiting = Vec::new();
//! for place in 1..=30 {
//!     waiting.push(tokio::spawn(ask()));
//!     while handle.waiting("partner")? < place {
//!         tokio::task::yield_now().await;
//!     }
//! }
//! let refused = ask().await?;
//! assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"2".parse()?));
//!
//! // The others have their turn, 50 ms apart; the last at 1.5 s.
//! for request in waiting {
//!     clock.advance(Duration::from_millis(50));
//!     assert_eq!(request.await??.status(), 200);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! An in-flight limit cannot know a wait beforehand. There the depth bounds it: with 64 in flight of 20 ms each, 3,200
//! leave in a second, so 640 who wait are served within 200 ms. And a queue of a rule with keys gives one key at most
//! half of the places.
//!
//! # Costs
//!
//! If some requests are a hundred times as much work as others, a limit that counts requests counts the wrong thing.
//! Measure how long each kind keeps the downstream busy, take the cheapest as 1, and round the others up.
//!
//! | request | busy | cost |
//! | --- | ---: | ---: |
//! | read | 2 ms | 1 |
//! | search | 9 ms | 5 |
//! | export | 200 ms | 100 |
//!
//! The rate is then counted in the cheapest kind: four cores are busy for 4,000 ms in each second; 75 % of that is
//! 3,000 ms, or 1,500 reads. The burst must be at least the dearest cost. Else that request is refused for good,
//! without `Retry-After`, since waiting would not help; where the cost is a plain number, building the layer is an
//! error.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! fn cost(busy: Duration, cheapest: Duration) -> u64 {
//!     busy.as_micros().div_ceil(cheapest.as_micros()) as u64
//! }
//! let ms = Duration::from_millis;
//! let (search, export) = (cost(ms(9), ms(2)), cost(ms(200), ms(2)));
//! assert_eq!((search, export), (5, 100));
//! let rate = 4 * 1_000 * 75 / 100 / 2;
//! assert_eq!(rate, 1_500);
//!
//! let clock = ManualClock::new();
//! let quota = TokenBucket::per_second(rate).burst(100);
//! let limiter = quota.limiter().clock(clock.clone()).build()?;
//! assert!(limiter.try_acquire_many(export).is_allowed());
//! // After it, the next search waits until 5 permits are back.
//! let wait = limiter.try_acquire_many(search).retry_after().expect("none remains");
//! assert_eq!(wait.as_micros(), 3_333); // 5 / 1,500 of a second
//! // With a smaller burst an export never passes.
//! let smaller = TokenBucket::per_second(rate).burst(50);
//! assert!(smaller.limiter().build()?.peek(export).is_never());
//! let layer = RateLimitLayer::builder().rule(Rule::new("exports", smaller).cost(export));
//! assert!(layer.build().is_err());
//!
//! // In a layer the cost is read from the request's head.
//! let rule = Rule::new("database", quota).cost_fn(|head| match head.path() {
//!     "/search" => 5,
//!     "/export" => 100,
//!     _ => 1,
//! });
//! # let _ = rule;
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # All of it, as a layer
//!
//! ```
//! use tower_sluice::{InFlight, Missing, RateLimitLayer, Rule, TokenBucket, key};
//!
//! // 4,000/s in a load test, 75 % of it, four instances; a burst of 125 in all, as above.
//! let (rate, burst) = (4_000 * 75 / 100 / 4, 125 / 4);
//! assert_eq!((rate, burst), (750, 31));
//!
//! let user = TokenBucket::per_second(10).burst(20);
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_second(rate).burst(burst)))
//!     .rule(Rule::new("per-user", user).key(key::header("x-user-id")).missing(Missing::Skip))
//!     .rule(Rule::new("per-address", user).key(key::client_ip().relaxed(10)))
//!     // 64 connections of the database, 16 for each instance.
//!     .in_flight(InFlight::new("database", 64 / 4))
//!     .build()?;
//! # let _ = layer;
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! Then watch. [`Observer`] is told of every refusal; a limit that nobody meets for weeks protects nobody, and one
//! that honest callers meet each day is too low. [`Handle::set_limit`] changes it while the service runs.
//!
//! # Next
//!
//! [Testing](super::testing): that the limit is there, and is the one you meant.
//!
//! Used on this page: [`TokenBucket`], [`LeakyBucket`], [`InFlight`], [`Rule`], [`RateLimitLayer`],
//! [`RejectionPolicy`], [`Handle`], [`Backend`], [`Observer`], [`key`](crate::key).

#[cfg(doc)]
use crate::{
    Backend, Handle, InFlight, LeakyBucket, Observer, RateLimitLayer, RejectionPolicy, Rule,
    TokenBucket,
};
