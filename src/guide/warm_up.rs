//! Warm-up: a limit that starts low and grows.
//!
//! This page answers: Why should a limit start low? Which curve do I want, and how much does each let through? What
//! happens after a pause? How do I choose the period?
//!
//! # Why
//!
//! A service that has just started is slower than it will be: its cache is empty, its connections are not open, its
//! files are not in memory. At full load it may fail in its first minute, be restarted, and fail again. A [`WarmUp`]
//! multiplies a quota by a *share*, which grows over a *period* from a *start factor* to 1:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket, WarmUp};
//!
//! let clock = ManualClock::new();
//! let limiter = TokenBucket::per_second(2_000)
//!     .burst(200)
//!     .warm_up(WarmUp::over(Duration::from_secs(40)))
//!     .limiter()
//!     .clock(clock.clone())
//!     .build()?;
//!
//! // At the start it is a tenth, in rate and burst.
//! let decision = limiter.try_acquire_many(20);
//! assert_eq!((decision.is_allowed(), decision.remaining()), (true, 0));
//! let wait = limiter.peek(1).retry_after().expect("none remains");
//! assert!((4_999..=5_000).contains(&wait.as_micros())); // 5 ms: 200 a second
//!
//! // After 40 s it is whole.
//! clock.advance(Duration::from_secs(40));
//! assert!(limiter.try_acquire_many(200).is_allowed());
//! assert_eq!(limiter.peek(1).retry_after(), Some(Duration::from_micros(500))); // 2,000 a second
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! It is the rule that warms up, not each key: a key that comes later has the full quota at once.
//!
//! # The curves
//!
//! The share in percent, at so much of the period. The first three start at a tenth, the default
//! [`start_factor`](WarmUp::start_factor). A [`cold_factor`](WarmUp::cold_factor) of `k` starts at `1 / k`.
//!
//! | curve | 0 % | 10 % | 20 % | 50 % | 80 % | 95 % | 100 % | passes during the period |
//! | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
//! | [`linear()`](WarmUp::linear) | 10.0 | 19.0 | 28.0 | 55.0 | 82.0 | 95.5 | 100 | 55.0 |
//! | [`power(2)`](WarmUp::power), the default | 10.0 | 10.9 | 13.6 | 32.5 | 67.6 | 91.2 | 100 | 40.0 |
//! | [`power(3)`](WarmUp::power) | 10.0 | 10.1 | 10.7 | 21.3 | 56.1 | 87.2 | 100 | 32.5 |
//! | [`cold_factor(3.0)`](WarmUp::cold_factor) | 33.3 | 34.9 | 36.8 | 44.7 | 62.0 | 84.5 | 100 | 50.0 |
//! | [`cold_factor(10.0)`](WarmUp::cold_factor) | 10.0 | 10.5 | 11.2 | 14.1 | 21.9 | 41.0 | 100 | 18.2 |
//!
//! The last column is the mean of the share: of the permits that a warm rule would give in that time, so many percent
//! are given. The table is read off limiters like this:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{FixedWindow, ManualClock, TokenBucket, WarmUp};
//!
//! /// The shares at 0, 10, 20, 50, 80, 95 and 100 s of a warm-up of 100 s, then their mean: in percent.
//! fn row(warm_up: WarmUp) -> Result<[f64; 8], tower_sluice::ConfigError> {
//!     let clock = ManualClock::new();
//!     // A window's limit is the share of a million.
//!     let window = FixedWindow::per_minute(1_000_000).warm_up(warm_up);
//!     let window = window.limiter().clock(clock.clone()).build()?;
//!     // A bucket that is emptied at the start holds at the end what came back meanwhile.
//!     let bucket = TokenBucket::new(1_000_000, Duration::from_secs(100)).warm_up(warm_up);
//!     let bucket = bucket.limiter().clock(clock.clone()).build()?;
//!     assert!(bucket.try_acquire_many(bucket.peek(1).remaining()).is_allowed());
//!
//!     let mut row = [0; 8];
//!     let (mut now, instants) = (0, [0, 10, 20, 50, 80, 95, 100]);
//!     for (share, instant) in row.iter_mut().zip(instants) {
//!         clock.advance(Duration::from_secs(instant - now));
//!         now = instant;
//!         *share = window.peek(1).remaining();
//!     }
//!     row[7] = bucket.peek(1).remaining();
//!     // Of a million, in percent with one digit behind the point.
//!     Ok(row.map(|share| (share as f64 / 1_000.0).round() / 10.0))
//! }
//!
//! let over = WarmUp::over(Duration::from_secs(100));
//! assert_eq!(row(over.linear())?, [10.0, 19.0, 28.0, 55.0, 82.0, 95.5, 100.0, 55.0]);
//! assert_eq!(row(over)?, [10.0, 10.9, 13.6, 32.5, 67.6, 91.2, 100.0, 40.0]);
//! assert_eq!(row(over.power(2))?, row(over)?);
//! assert_eq!(row(over.power(3))?, [10.0, 10.1, 10.7, 21.3, 56.1, 87.2, 100.0, 32.5]);
//! assert_eq!(row(over.cold_factor(3.0))?, [33.3, 34.9, 36.8, 44.7, 62.0, 84.5, 100.0, 50.0]);
//! assert_eq!(row(over.cold_factor(10.0))?, [10.0, 10.5, 11.2, 14.1, 21.9, 41.0, 100.0, 18.2]);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! Three of them drawn; a column is 2 % of the period, a line 10 % of the quota:
//!
//! ```text
//! 100 % |                                                lll
//!  90 % |                                          llllll2
//!  80 % |                                     lllll 222
//!  70 % |                               llllll   222
//!  60 % |                         llllll     2222         k
//!  50 % |                    lllll       2222
//!  40 % |              llllll       22222               kk
//!  30 % |         lllll       222222                kkkk
//!  20 % |   llllll   222222222        kkkkkkkkkkkkkk
//!  10 % |lll222222222kkkkkkkkkkkkkkkkk
//!   0 % +---------------------------------------------------
//!        0        20        40        60        80        100 % of the period
//!        l = linear, 2 = power(2), k = cold_factor(10.0); where two meet, the first is drawn
//! ```
//!
//! # Which curve
//!
//! | what gets warm | curve |
//! | --- | --- |
//! | connections, threads: each request opens one and the next ones use it | [`linear`](WarmUp::linear) |
//! | a cache whose popular entries come first, so that it helps early | [`power(2)`](WarmUp::power), the default |
//! | several of these at once, so that the first seconds are the worst | [`power(3)`](WarmUp::power) |
//! | a cache whose hits grow in a line | [`cold_factor(k)`](WarmUp::cold_factor), `k` = warm rate / cold rate |
//! | a service that you move from Guava's `RateLimiter` | [`cold_factor(3.0)`](WarmUp::cold_factor) |
//!
//! `cold_factor` is named after the setting of Guava's `SmoothWarmingUp` (Google, `SmoothRateLimiter.java`, where the
//! factor is 3): the curve here is what that limiter does under load, written as a function of time.
//!
//! If you do not know, keep the default and measure.
//!
//! # A square root is the fast one
//!
//! A square root of the time is sometimes called the gentle ramp. It is the contrary: it is steepest at its start. Of
//! the full rate it lets through 30 % on average in the first fifth of the period. The square lets through 1.3 %. Both
//! start at zero here, to show the curves alone:
//!
//! ```
//! /// The mean of a curve over the first `part` of the period, by adding up a thousand slices.
//! fn mean(curve: fn(f64) -> f64, part: f64) -> f64 {
//!     (0..1_000).map(|slice| curve(part * (f64::from(slice) + 0.5) / 1_000.0)).sum::<f64>() / 1_000.0
//! }
//!
//! let percent = |share: f64| (share * 1_000.0).round() / 10.0;
//! assert_eq!(percent(mean(f64::sqrt, 0.2)), 29.8);
//! assert_eq!(percent(mean(|x| x, 0.2)), 10.0);
//! assert_eq!(percent(mean(|x| x * x, 0.2)), 1.3);
//! // Over the whole period.
//! assert_eq!([percent(mean(f64::sqrt, 1.0)), percent(mean(|x| x * x, 1.0))], [66.7, 33.3]);
//! ```
//!
//! So there is no square root among the curves. Where you want a fast start, raise the start factor of the
//! [`linear`](WarmUp::linear) one.
//!
//! # The burst grows too
//!
//! A cold cache cannot take a burst either. So the burst is multiplied by the same share, and is at least 1. A request
//! whose cost is above the present burst but within the full one is not refused for good: it has to wait for the ramp,
//! and `retry_after` says how long. Here half the burst is there after 17.8 s, when the share of a line from 0.1 is
//! 0.5:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket, WarmUp};
//!
//! let clock = ManualClock::new();
//! let limiter = TokenBucket::per_second(100)
//!     .warm_up(WarmUp::over(Duration::from_secs(40)).linear())
//!     .limiter()
//!     .clock(clock.clone())
//!     .build()?;
//!
//! assert_eq!(limiter.peek(1).remaining(), 10);
//! let wait = limiter.peek(50).retry_after().expect("not yet");
//! assert_eq!(wait.as_millis(), 17_777); // 40 s x (0.5 - 0.1) / 0.9
//! clock.advance(wait);
//! assert!(limiter.try_acquire_many(50).is_allowed());
//! // Above the full burst nothing helps.
//! assert!(limiter.peek(101).is_never());
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! A window or a log compares what is spent with its limit times the share, rounded down, at least 1.
//!
//! # After a pause
//!
//! Caches empty and connections close while nobody comes. With [`after_idle`](WarmUp::after_idle) the rule warms up
//! again after so long without an admission. Requests that are refused do not count as one. Without it a rule warms up
//! once, from when it is built.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket, WarmUp};
//!
//! let clock = ManualClock::new();
//! let warm_up = WarmUp::over(Duration::from_secs(40)).after_idle(Duration::from_secs(60));
//! let limiter =
//!     TokenBucket::per_second(100).warm_up(warm_up).limiter().clock(clock.clone()).build()?;
//!
//! clock.advance(Duration::from_secs(40));
//! assert!(limiter.try_acquire_many(100).is_allowed()); // warm
//! clock.advance(Duration::from_secs(59));
//! assert_eq!(limiter.peek(1).remaining(), 100);
//! clock.advance(Duration::from_secs(1));
//! assert_eq!(limiter.peek(1).remaining(), 10); // cold again
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! It must be at least the period and the time in which an empty quota is whole again, here 40 s + 1 s. The reason is
//! a promise: who was refused and told to come back in some seconds must find what he was told. Nobody waits longer
//! than the two together. So if the rule could go cold sooner, it might go cold just before he comes.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{TokenBucket, WarmUp};
//!
//! let built = |idle| {
//!     let warm_up = WarmUp::over(Duration::from_secs(40)).after_idle(Duration::from_secs(idle));
//!     TokenBucket::per_second(100).warm_up(warm_up).limiter().build()
//! };
//! assert!(built(41).is_ok());
//! assert!(built(40).unwrap_err().to_string().contains("after_idle"));
//! ```
//!
//! # A cache that is warm after 40 s
//!
//! **What you know.** Warm, nine of ten reads come from the cache. The database bears 200 reads a second. So the
//! service takes 2,000 a second when it is warm, and 200 when it is cold. Measured after a restart: the cache needs 40
//! s.
//!
//! **The period** is 40 s. **The start factor** is 200 / 2,000 = 0.1: what misses when all misses.
//!
//! **The curve** follows from how the share of hits grows. If `h` of the reads hit, the database sees `1 - h` of them,
//! so `200 / (1 - h)` reads fit. Two cases:
//!
//! - *The hits grow in a line*, from 0 to 90 % in 40 s. The database then helps itself late: after half the time only
//!   364 reads fit, 18 %. The default curve is at 32.5 % then; at its worst instant the database sees 400 reads a
//!   second. With `cold_factor(10.0)` it never sees more than 200. So it is for any `k`, where the hits grow in a line
//!   to `1 - 1 / k`.
//! - *The popular entries come first*, so that hits grow fast and then slowly: 50 % after a fifth of the time, 79 %
//!   after a half. With the default curve the database never sees more than 200; with a line it sees 277.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{FixedWindow, ManualClock, WarmUp};
//!
//! /// The most reads a second that the database sees, if as many come as are admitted.
//! fn most_misses(warm_up: WarmUp, hits: fn(f64) -> f64) -> Result<f64, tower_sluice::ConfigError> {
//!     let clock = ManualClock::new();
//!     let reads = FixedWindow::per_second(2_000).warm_up(warm_up).limiter().clock(clock.clone()).build()?;
//!     let mut most = 0.0_f64;
//!     for percent in 0..=100 {
//!         let admitted = reads.peek(1).remaining() as f64;
//!         most = most.max(admitted * (1.0 - hits(f64::from(percent) / 100.0)));
//!         clock.advance(Duration::from_millis(400)); // a hundredth of 40 s
//!     }
//!     Ok(most)
//! }
//!
//! /// From 0 to 90 % in a line.
//! fn in_a_line(x: f64) -> f64 {
//!     0.9 * x
//! }
//! /// From 0 to 90 %, fast and then slowly.
//! fn popular_first(x: f64) -> f64 {
//!     0.9 * (1.0 - (-4.0 * x).exp()) / (1.0 - (-4.0_f64).exp())
//! }
//! assert_eq!((200.0 / (1.0 - in_a_line(0.5))).round(), 364.0);
//! assert_eq!([0.2, 0.5].map(|x| (popular_first(x) * 100.0).round()), [50.0, 79.0]);
//!
//! let over = WarmUp::over(Duration::from_secs(40));
//! assert_eq!(most_misses(over.cold_factor(10.0), in_a_line)?.round(), 200.0);
//! assert_eq!(most_misses(over, in_a_line)?.round(), 400.0);
//! assert_eq!(most_misses(over, popular_first)?.round(), 200.0);
//! assert_eq!(most_misses(over.linear(), popular_first)?.round(), 277.0);
//!
//! // Any cold factor: share x misses is at most what the database bears, 1 / k.
//! for k in [1.5_f64, 3.0, 10.0, 100.0] {
//!     for x in (0..=100).map(|percent| f64::from(percent) / 100.0) {
//!         let share = 1.0 / (k * k - (k * k - 1.0) * x).sqrt();
//!         let misses = 1.0 - (1.0 - 1.0 / k) * x;
//!         assert!(share * misses <= 1.0 / k + 1e-9);
//!     }
//! }
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **After a pause.** Entries of the cache live for 5 minutes. After 5 minutes without a read it is cold again, so
//! that is the time for [`after_idle`](WarmUp::after_idle). **The burst** is what the database bears at once: a tenth
//! of a second is 200 reads warm and 20 cold. The settings, as a layer:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, WarmUp};
//!
//! let warm_up = WarmUp::over(Duration::from_secs(40)) // slow at first, from a tenth
//!     .after_idle(Duration::from_secs(300));
//! let reads = TokenBucket::per_second(2_000).burst(200).warm_up(warm_up);
//! let layer = RateLimitLayer::builder().rule(Rule::new("reads", reads)).build()?;
//! # let _ = layer;
//!
//! // What it admits in its first 40 s, if as much as possible is asked.
//! let clock = ManualClock::new();
//! let limiter = reads.limiter().clock(clock.clone()).build()?;
//! let mut admitted = 0;
//! for _ in 0..4_000 {
//!     while limiter.try_acquire().is_allowed() {
//!         admitted += 1;
//!     }
//!     clock.advance(Duration::from_millis(10));
//! }
//! // 40 % of 80,000, and the burst of the start.
//! assert!((32_000..=32_020).contains(&admitted), "{admitted}");
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! So a careful start costs something: in its first 40 s the service admits 32,000 reads, where a warm one admits
//! 80,000. With `cold_factor(10.0)` it would be 18.2 % of them. Take the careful curve only where you need it.
//!
//! # Next
//!
//! [Requests per second or in flight](super::rate_or_in_flight).
//!
//! Used on this page: [`WarmUp`], [`TokenBucket`], [`FixedWindow`], [`RateLimitLayer`], [`Rule`].

#[cfg(doc)]
use crate::{FixedWindow, RateLimitLayer, Rule, TokenBucket, WarmUp};
