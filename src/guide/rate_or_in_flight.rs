//! Requests per second, or requests at once: what each protects from, and whether to refuse or to let wait.
//!
//! This page answers: Do I limit a rate or what is in flight? What happens when my database gets slow? Why is one
//! answered with 429 and the other with 503? Do I refuse what does not fit, or let it wait?
//!
//! # Two questions
//!
//! - A **rate** asks: how many came in the last second? It is about the *caller*: his fair part, his contract, his
//!   mistakes. It does not know how you are.
//! - **In flight** asks: how many are under way now? It is about *you*: connections, memory, threads. It does not know
//!   who asks.
//!
//! | it protects from | rate | in flight |
//! | --- | --- | --- |
//! | one caller who takes everything | yes, with a key | with a key, and only if his requests take long |
//! | a client that retries in a loop | yes | only when it fills all places |
//! | guessing: logins, codes | yes | no |
//! | a bill: calls that cost money each | yes | no |
//! | a database that gets slow | no | yes |
//! | slow requests, large uploads, long answers | no | yes |
//! | too many connections, too much memory | no | yes |
//!
//! Permits of a rate are *spent*: they come back with time. Permits of an [`InFlight`] are *lent*: they come back when
//! the response body ends.
//!
//! # Little's law
//!
//! One sentence of arithmetic joins the two: the number in flight is the rate times the time that each takes.
//!
//! ```text
//! in flight  =  rate  x  time each takes
//!        64  =  3,200/s  x  20 ms
//! ```
//!
//! All three are means over a long time. The law holds for every system in which what comes also leaves, in whatever
//! order (J. D. C. Little, "A Proof for the Queuing Formula: L = lambda W", Operations Research 9, 1961). Say a pool
//! has 64 connections to the database, and each request holds one for 20 ms. Then 3,200 requests a second fill the
//! pool. More cannot be done, whatever the limit says.
//!
//! ```
//! use std::time::Duration;
//!
//! fn in_flight(rate: f64, each: Duration) -> f64 {
//!     rate * each.as_secs_f64()
//! }
//! fn rate(in_flight: f64, each: Duration) -> f64 {
//!     in_flight / each.as_secs_f64()
//! }
//!
//! assert_eq!(rate(64.0, Duration::from_millis(20)).round(), 3_200.0);
//! // The database gets twice as slow.
//! assert_eq!(in_flight(3_200.0, Duration::from_millis(40)).round(), 128.0);
//! assert_eq!(rate(64.0, Duration::from_millis(40)).round(), 1_600.0);
//! ```
//!
//! # When the database gets slow
//!
//! Now let each request take 40 ms. A rate of 3,200 a second is still kept to, and twice as many requests pile up:
//! 128, of which 64 wait for a connection. If that makes the database still slower, still more pile up, and nothing
//! stops it. With at most 64 in flight, the rate halves by itself. Nobody had to change a number.
//!
//! | each takes | with a limit of 3,200/s | with 64 in flight |
//! | --- | --- | --- |
//! | 20 ms | 3,200/s, 64 in flight | 3,200/s, 64 in flight |
//! | 40 ms | 3,200/s, **128** in flight | **1,600**/s, 64 in flight |
//!
//! ```
//! use std::{collections::VecDeque, time::Duration};
//! use tower_sluice::{InFlight, LeakyBucket, ManualClock};
//!
//! const STEP: Duration = Duration::from_nanos(312_500); // 3,200 requests come each second
//!
//! /// How many are admitted in a second, and the most in flight.
//! fn by_rate(each: Duration) -> Result<(usize, usize), tower_sluice::ConfigError> {
//!     let clock = ManualClock::new();
//!     let limiter = LeakyBucket::per_second(3_200).limiter().clock(clock.clone()).build()?;
//!     let (mut admitted, mut most, mut ends) = (0, 0, VecDeque::new());
//!     for step in 0..3_200 {
//!         let now = STEP * step;
//!         while ends.front().is_some_and(|end| *end <= now) {
//!             ends.pop_front();
//!         }
//!         if limiter.try_acquire().is_allowed() {
//!             admitted += 1;
//!             ends.push_back(now + each);
//!         }
//!         most = most.max(ends.len());
//!         clock.advance(STEP);
//!     }
//!     Ok((admitted, most))
//! }
//!
//! /// The same with a limit on what is in flight.
//! fn by_in_flight(each: Duration) -> (usize, usize) {
//!     let limit = InFlight::new("database", 64);
//!     let (mut admitted, mut most, mut ends) = (0, 0, VecDeque::new());
//!     for step in 0..3_200 {
//!         let now = STEP * step;
//!         while ends.front().is_some_and(|(end, _)| *end <= now) {
//!             ends.pop_front(); // gives the permit back
//!         }
//!         if let Some(permit) = limit.try_acquire() {
//!             admitted += 1;
//!             ends.push_back((now + each, permit));
//!         }
//!         most = most.max(ends.len());
//!     }
//!     (admitted, most)
//! }
//!
//! let (fast, slow) = (Duration::from_millis(20), Duration::from_millis(40));
//! assert_eq!((by_rate(fast)?, by_in_flight(fast)), ((3_200, 64), (3_200, 64)));
//! assert_eq!((by_rate(slow)?, by_in_flight(slow)), ((3_200, 128), (1_600, 64)));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # Both together
//!
//! Most services want both: an in-flight limit in front of what is scarce, and rates by caller, so that one of them
//! does not take all the places. Put them into one layer. Then a request that is refused by one spends nothing of the
//! others.
//!
//! | refused by | status | says | `Retry-After` |
//! | --- | --- | --- | --- |
//! | a rate | 429 Too Many Requests | "*you* have sent too much" | the wait, in whole seconds, rounded up |
//! | in flight | 503 Service Unavailable | "*we* are overloaded, whoever asks" | 1 s: nobody can know |
//!
//! 429 is defined in RFC 6585 (M. Nottingham, R. Fielding, 2012), section 4, and 503 in RFC 9110 (R. Fielding, M.
//! Nottingham, J. Reschke, 2022), section 15.6.4. The difference is for machines. A client that reads 429 must slow
//! down, and another server would not help it. A proxy that reads 503 may try another instance, and an alarm on 5xx
//! should ring, since it is the service that has too little. Do not answer with 503 what a caller has done: his loop
//! would ring your alarm. If both refuse, the answer is that of the rate.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_sluice::{InFlight, ManualClock, RateLimitLayer, Rule, TokenBucket};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("all", TokenBucket::per_minute(2)).spread(false))
//!     .in_flight(InFlight::new("feed", 1).spread(false))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async { "fresh" }).layer(layer));
//! let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
//!
//! // The body of the first answer is not read yet, so it is in flight.
//! let first = ask().await?;
//! assert_eq!(first.status(), 200);
//! let second = ask().await?;
//! assert_eq!((second.status().as_u16(), &second.headers()["retry-after"]), (503, &"1".parse()?));
//! drop(first);
//!
//! // The 503 has spent nothing: this is the second permit of the minute. The next comes after 30 s.
//! assert_eq!(ask().await?.status(), 200);
//! let fourth = ask().await?;
//! assert_eq!((fourth.status().as_u16(), &fourth.headers()["retry-after"]), (429, &"30".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Refuse or let wait
//!
//! What does not fit can be refused at once, or wait in a [queue](crate::RejectionPolicy::queue). A queue helps with
//! *short* bursts: more than fits comes at one instant, and soon it is quiet again. Then nobody is refused, and the
//! wait is short. Four calls come at once for a partner who takes 20 a second; without a queue three are refused, with
//! one the last of them waits 150 ms.
//!
//! A queue does not help when too much comes *all the time*. It fills, and from then on everybody who is admitted has
//! waited as long as it lets him, while as many are refused as without it. Of 400 calls in 10 s, 40 a second, 200 pass
//! without a queue. With up to 150 ms of waiting it is 203, and from the eighth on everybody has waited for 125 ms or
//! longer.
//!
//! ```
//! use std::time::Duration;
//! use tokio::time::{Instant, sleep};
//! use tower_sluice::{LeakyBucket, TokioClock};
//!
//! /// What those waited who were allowed, of so many calls, one each `gap`.
//! async fn waits(count: u32, gap: Duration, longest: Duration) -> Vec<Duration> {
//!     let partner = LeakyBucket::per_second(20).limiter().clock(TokioClock).build().unwrap();
//!     let mut tasks = Vec::new();
//!     for _ in 0..count {
//!         let partner = partner.clone();
//!         tasks.push(tokio::spawn(async move {
//!             let came = Instant::now();
//!             let allowed = partner.acquire(longest).await.is_allowed();
//!             (allowed, came.elapsed())
//!         }));
//!         tokio::task::yield_now().await;
//!         sleep(gap).await;
//!     }
//!     let mut waits = Vec::new();
//!     for task in tasks {
//!         let (allowed, waited) = task.await.unwrap();
//!         if allowed {
//!             waits.push(waited);
//!         }
//!     }
//!     waits
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
//! #     .block_on(async {
//! let ms = Duration::from_millis;
//! // Four at once, then quiet.
//! assert_eq!(waits(4, ms(0), ms(0)).await, [ms(0)]);
//! assert_eq!(waits(4, ms(0), ms(150)).await, [0, 50, 100, 150].map(ms));
//! // Twice as many as fit, for 10 s.
//! assert_eq!(waits(400, ms(25), ms(0)).await.len(), 200);
//! let queued = waits(400, ms(25), ms(150)).await;
//! assert_eq!(queued.len(), 203);
//! assert!(queued.iter().skip(7).all(|wait| *wait >= ms(125)));
//! # });
//! ```
//!
//! | let wait | refuse at once |
//! | --- | --- |
//! | bursts are short, and what is behind wants an even pace | too much comes for minutes |
//! | the caller is a job, and a second is nothing | the caller is a person, or a client with a short timeout |
//! | the caller would come again at once if refused | the caller can go elsewhere, or do without |
//!
//! Who waits has spent nothing, and who goes away frees his place. Still, each who waits holds his connection and his
//! request in memory. So keep queues short; [sizing](super::sizing#the-longest-wait-and-the-depth) tells how short.
//!
//! There is a third way: a cheaper answer, as a cached list, with [`degrade`](crate::RejectionPolicy::degrade). The
//! ways can be chained: first a wait, then the cache, then a refusal.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{InFlight, RateLimitLayer, RejectionPolicy};
//!
//! async fn hot_list() -> &'static str {
//!     "the list of a minute ago"
//! }
//!
//! let feed = RateLimitLayer::builder()
//!     .in_flight(InFlight::new("feed", 64))
//!     .rejection(
//!         RejectionPolicy::queue(Duration::from_millis(200), 100)
//!             .or(RejectionPolicy::degrade(hot_list)),
//!     )
//!     .build()?;
//! # let _ = feed;
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # Next
//!
//! [Sizing](super::sizing): which numbers.
//!
//! Used on this page: [`InFlight`], [`Rule`], [`RateLimitLayer`], [`RejectionPolicy`], [`LeakyBucket`],
//! [`TokenBucket`], [`Limiter::acquire`].

#[cfg(doc)]
use crate::{InFlight, LeakyBucket, Limiter, RateLimitLayer, RejectionPolicy, Rule, TokenBucket};
