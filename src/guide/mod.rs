//! The guide: which limit to set, on what, and how high.
//!
//! The other pages of this crate say what each item does. This one is a small book: it says which of them you want,
//! and which numbers to give them. It asks for no knowledge of rate limiting. Its pages are best read in this order:
//!
//! | page | answers |
//! | --- | --- |
//! | [`algorithms`] | Which algorithm? What is the most that it lets through, and when is a burst right? |
//! | [`warm_up`] | How does a limit grow after a start, and which curve do I want? |
//! | [`rate_or_in_flight`] | Requests per second, or requests at once? Refuse, or let wait? |
//! | [`sizing`] | From what my database bears: which rate, burst, queue and cost? |
//! | [`rejection`] | What becomes of what does not fit, and what does the caller see? |
//! | [`identity`] | What do I count by, and which of it can an attacker choose? |
//! | [`proxy`] | Whose address is it, behind proxies, load balancers and CDNs? |
//! | [`layers`] | Which layer goes outside of which? |
#![cfg_attr(
    feature = "redis",
    doc = "| [`redis`](mod@redis) | How do several processes share a limit, and what if their store is away? |"
)]
//! | [`testing`] | Does it refuse, whom, and until when? How does time pass in a test? |
//!
//! # The words
//!
//! | word | meaning |
//! | --- | --- |
//! | quota | how many permits there are per period, plus the burst: "10 per second, burst 20" |
//! | limit | the number in a quota |
//! | permit | one unit of allowance; a request spends one, or as many as its cost |
//! | cost | how many permits a request needs; 1 unless set |
//! | period, window | the time that a quota speaks of; a stretch of time in which an algorithm counts |
//! | burst | the most permits that may be spent at one instant, after a pause |
//! | key | what a quota is counted per: a user, an address |
//! | rule | a quota with its algorithm and key, for some requests |
//! | tier | a quota of a rule for some of its callers, as those with a larger plan |
//! | allowed, denied | what a limit says to a request |
//! | admitted, refused | handed to the handler; answered by us instead |
//! | in flight | admitted and not finished, the response body included |
//! | exempt | outside of all limits: no rule looks at such a request |
//! | policy | what becomes of a request that does not fit: it is refused, waits in a queue, or is degraded |
//! | degraded | answered by another handler of yours, as from a cache |
//! | spread | made longer at random, so that those who were refused together do not come back together |
//! | live key | a key with something spent that has not come back; the others are idle |
//! | overflow bucket | what new keys share while a rule keeps as many live ones as it may |
//! | peer | whoever opened the connection: the client, or a proxy |
//! | backend | where counting is done: in this process, unless you give another |
//! | fault | what makes limits useless or unjust without an error; told once, with a code as SL-PEER |
//! | downstream | what your handlers wait on: a database, a partner's service |
//! | `retry_after` | the shortest wait after which the same request could be allowed |
//!
//! The [crate page](crate) shows where these stand in an axum router.
//!
//! # How to read the pages
//!
//! Every number is computed by the example below it, and the examples are run as tests. Most look like this one: a
//! [`Limiter`](crate::Limiter), which is a limit without HTTP, on a [`ManualClock`](crate::ManualClock), which stands
//! still until it is moved. So no example takes any time, and you can try each with numbers of your own.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let limiter = TokenBucket::per_second(10).burst(2).limiter().clock(clock.clone()).build()?;
//!
//! // Two pass at one instant. The third is told when to come back.
//! assert!(limiter.try_acquire().is_allowed());
//! assert!(limiter.try_acquire().is_allowed());
//! let denied = limiter.try_acquire();
//! assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
//!
//! // It is allowed then.
//! clock.advance(Duration::from_millis(100));
//! assert!(limiter.try_acquire().is_allowed());
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! Drawings are to scale, time from left to right. A number in the line `allowed` is how many requests are allowed at
//! that instant:
//!
//! ```text
//! second    0         1         2         3
//! allowed   2         1         1         1
//! ```
//!
//! Next: [choosing an algorithm](algorithms).

pub mod algorithms;
pub mod identity;
pub mod layers;
pub mod proxy;
pub mod rate_or_in_flight;
#[cfg(feature = "redis")]
pub mod redis;
pub mod rejection;
pub mod sizing;
pub mod testing;
pub mod warm_up;
