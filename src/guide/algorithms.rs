//! Choosing an algorithm: what each lets through at most, and when a burst is right.
//!
//! This page answers: Which algorithm do I take? What is the worst that it lets through? What does it cost? When is a
//! burst right, and when is it not? And why does a bucket of 17 per 30 s let 33 through in 30 s?
//!
//! # Which one
//!
//! Go through the questions from the top, and take the first that is yours.
//!
//! | question | take |
//! | --- | --- |
//! | Does what is behind break if two requests come at once? | [`LeakyBucket`], with a [queue] |
//! | Is each permit dear, and there are few: codes, login attempts? | [`SlidingLog`] |
//! | Have you promised somebody "never more than so many in any minute", and may an evenly paced caller get a tenth less? | [`SlidingWindow`] |
//! | The same, and he must get all of it? | [`SlidingLog`] |
//! | Is the rate sold: a caller must get all of it, and not nearly the double at once? | [`TokenBucket`] with a burst of a tenth: [see below](#a-rate-that-is-sold) |
//! | Do people count it, as "1,000 a day, new at midnight UTC"? | [`FixedWindow`], [aligned] |
//! | Do people count it by the calendar, as "100,000 a month"? | [`FixedWindow::calendar`] |
//! | Do people count it, each from his own first request? | [`FixedWindow`] |
//! | Anything else: an API, a page, a search | [`TokenBucket`] |
//!
//! If it is not the rate that hurts but how many are under way, you want no algorithm of this page: see
//! [`rate_or_in_flight`]. If a limit should start low and grow, take any of them with a [warm-up](super::warm_up).
//!
//! [queue]: crate::RejectionPolicy::queue
//! [aligned]: FixedWindow::aligned
//!
//! # The same quota, six ways
//!
//! All drawings below are of one quota, 10 permits per 10 seconds, and of a caller who asks for as much as he can get.
//! They are to scale: in a drawing each second has the same width.
//!
//! ## Token bucket
//!
//! A bucket of permits. It starts full, with the burst in it. Permits come back evenly, here one each second, until it
//! is full again. So a caller who has paused gets the burst at once, and from then on the rate.
//!
//! ```text
//! second    0   1   2   3   4   5   6   7   8   9   10  11  12
//! allowed   10  1   1   1   1   1   1   1   1   1   1   1   1
//!           |---------------------------------------| 20 in 10 s
//! ```
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket, clock::Nanos};
//!
//! let clock = ManualClock::new();
//! let limiter =
//!     TokenBucket::new(10, Duration::from_secs(10)).limiter().clock(clock.clone()).build()?;
//! // How many of 20 requests are allowed at this second.
//! let allowed_at = |second| {
//!     clock.set(Nanos::from(Duration::from_secs(second)));
//!     (0..20).filter(|_| limiter.try_acquire().is_allowed()).count()
//! };
//!
//! assert_eq!(allowed_at(0), 10);
//! let rest: usize = (1..=10).map(allowed_at).sum();
//! assert_eq!(10 + rest, 20);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **At most** burst + rate x L in any stretch of time L: here 10 + 1/s x 10 s = 20. In the long run it is the rate,
//! whatever the burst.
//!
//! The burst is a number of its own. By default it is the permits of one period; [`TokenBucket::burst`] sets another.
//! The rate says what a caller gets in an hour, the burst what he gets in an instant.
//!
//! ## Fixed window, from the first request
//!
//! A key's window starts with its first request. It ends after 10 seconds, and the next request starts the next. A
//! caller who opens a window with one request, waits, and uses the rest at its end gets the next limit just behind.
//!
//! ```text
//! second    0   1   2   3   4   5   6   7   8   9   10  11  12
//! allowed   1                                   9   10
//! window    [--------------------------------------)[--------
//!                                               |---| 19 in 1 s
//! ```
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{FixedWindow, ManualClock, clock::Nanos};
//!
//! let clock = ManualClock::new();
//! let limiter =
//!     FixedWindow::new(10, Duration::from_secs(10)).limiter().clock(clock.clone()).build()?;
//! let allowed_at = |second, asked: u32| {
//!     clock.set(Nanos::from(Duration::from_secs(second)));
//!     (0..asked).filter(|_| limiter.try_acquire().is_allowed()).count()
//! };
//!
//! assert_eq!(allowed_at(0, 1), 1);
//! assert_eq!(allowed_at(9, 20), 9);
//! // Refused now, and told the end of the window.
//! assert_eq!(limiter.peek(1).retry_after(), Some(Duration::from_secs(1)));
//! assert_eq!(allowed_at(10, 20), 10);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **At most** the limit per window. Across the edge of two windows it is nearly twice that, in as short a time as you
//! like: 19 here, since the first request was spent long before the edge.
//!
//! ## Fixed window, aligned
//!
//! Windows start at multiples of their length in UTC, for all keys: days at midnight, minutes when the minute begins.
//! Nothing has to be spent to open one, so across the edge it is the whole limit twice.
//!
//! ```text
//! second    0   1   2   3   4   5   6   7   8   9   10  11  12
//! allowed                                       10  10
//! window    [--------------------------------------)[--------
//!                                               |---| 20 in 1 s
//! ```
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{FixedWindow, ManualClock, clock::Nanos};
//!
//! let clock = ManualClock::new(); // its zero is midnight UTC
//! let window = FixedWindow::new(10, Duration::from_secs(10)).aligned();
//! let limiter = window.limiter().clock(clock.clone()).build()?;
//! let allowed_at = |second| {
//!     clock.set(Nanos::from(Duration::from_secs(second)));
//!     (0..20).filter(|_| limiter.try_acquire().is_allowed()).count()
//! };
//!
//! assert_eq!(allowed_at(9), 10);
//! assert_eq!(allowed_at(10), 10);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **At most** the limit per window, and 2 x limit across an edge, as close together as you like. All keys start anew
//! at the same instant, so callers who wait come back together. In return everybody can say when that is.
//!
//! ## Fixed window, by the calendar
//!
//! Aligned windows are all of one length; months are not. [`FixedWindow::calendar`] has days, ISO weeks from Monday, and
//! months, in UTC. What holds for aligned windows holds for these: at most the limit in each, twice that across an edge.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{Calendar, FixedWindow, ManualClock};
//!
//! const HOUR: Duration = Duration::from_secs(3_600);
//! let clock = ManualClock::with_utc(HOUR * 24 * 30 + HOUR * 23); // 31 January 1970, 23:00
//! let plan = FixedWindow::calendar(10, Calendar::Month).limiter().clock(clock.clone()).build()?;
//! assert!(plan.try_acquire_many(10).is_allowed());
//! assert_eq!(plan.try_acquire().retry_after(), Some(HOUR));
//! clock.advance(HOUR); // 1 February
//! assert!(plan.try_acquire_many(10).is_allowed());
//! assert_eq!(plan.try_acquire().retry_after(), Some(HOUR * 24 * 28));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! ## Sliding window
//!
//! The window moves with the time. It is cut into ten cells, here of a second each; what is spent counts until its
//! cell lies a whole window back. So a permit comes back up to one cell late: after 10 to 11 seconds.
//!
//! ```text
//! second    0   2   4   6   8   10  12  14  16  18  20  22
//! allowed                     10                    10
//! cell                        [)                    [)
//!                             |---------------------| 11 s
//! ```
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, SlidingWindow, clock::Nanos};
//!
//! let clock = ManualClock::new();
//! let limiter =
//!     SlidingWindow::new(10, Duration::from_secs(10)).limiter().clock(clock.clone()).build()?;
//! let allowed_at = |second| {
//!     clock.set(Nanos::from(Duration::from_secs(second)));
//!     (0..20).filter(|_| limiter.try_acquire().is_allowed()).count()
//! };
//!
//! // At the very start of a cell: the caller waits longest.
//! assert_eq!(allowed_at(9), 10);
//! assert_eq!((10..20).map(allowed_at).sum::<usize>(), 0);
//! assert_eq!(allowed_at(20), 10);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **At most** the limit in any stretch as long as the window, wherever it starts. The price: under constant load a
//! caller gets at least nine tenths of the limit, and not always all of it: 600 a minute asked for one by one, each 100
//! ms, are some 545 a minute in the long run.
//!
//! ## Sliding log
//!
//! The instant of every permit is kept. A permit comes back exactly one window after it was spent.
//!
//! ```text
//! second    0   2   4   6   8   10  12  14  16  18  20  22
//! allowed                     10                  10
//!                             |-------------------| 10 s
//! ```
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, SlidingLog};
//!
//! let clock = ManualClock::new();
//! let limiter =
//!     SlidingLog::new(10, Duration::from_secs(10)).limiter().clock(clock.clone()).build()?;
//! let allowed = || (0..20).filter(|_| limiter.try_acquire().is_allowed()).count();
//!
//! clock.advance(Duration::from_secs(9));
//! assert_eq!(allowed(), 10);
//! // Nothing one nanosecond before 19 s, everything at 19 s.
//! clock.advance(Duration::from_secs(10) - Duration::from_nanos(1));
//! assert_eq!(allowed(), 0);
//! clock.advance(Duration::from_nanos(1));
//! assert_eq!(allowed(), 10);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **At most** the limit in any stretch as long as the window; the start of the stretch counts to it, its end does
//! not. Nothing is rounded.
//!
//! ## Leaky bucket
//!
//! One permit per interval, the period divided by its permits: here a second. There is no burst, not even after an
//! hour of silence.
//!
//! ```text
//! second    0   1   2   3   4   5   6   7   8   9   10  11  12
//! allowed   1   1   1   1   1   1   1   1   1   1   1   1   1
//! ```
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{LeakyBucket, ManualClock, clock::Nanos};
//!
//! let clock = ManualClock::new();
//! let limiter =
//!     LeakyBucket::new(10, Duration::from_secs(10)).limiter().clock(clock.clone()).build()?;
//! let allowed_at = |second| {
//!     clock.set(Nanos::from(Duration::from_secs(second)));
//!     (0..20).filter(|_| limiter.try_acquire().is_allowed()).count()
//! };
//!
//! assert!((0..=12).map(allowed_at).all(|allowed| allowed == 1));
//! // An hour later it is still one at a time.
//! assert_eq!(allowed_at(3_612), 1);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **At most** one per interval: two admissions are never closer. Ordinary callers do come two at once, so without a
//! [queue] it refuses a good part of them. With a queue they wait for their turn: see
//! [`rate_or_in_flight`](super::rate_or_in_flight#refuse-or-let-wait).
//!
//! ## Side by side
//!
//! Quota: 10 per 10 s. The second column of numbers is the most in any 10 s, their end not included: a token bucket
//! gives its 20th just then. The last column is what a caller gets who asks every 100 ms for 110 s.
//!
//! | algorithm | most at one instant | most in 10 s | in 110 s |
//! | --- | ---: | ---: | ---: |
//! | [`TokenBucket`] | 10 | 19 | 119 |
//! | [`FixedWindow`], from the first request | 10 | 19 | 110 |
//! | [`FixedWindow`], aligned | 10 | 20 | 110 |
//! | [`SlidingWindow`] | 10 | 10 | 100 |
//! | [`SlidingLog`] | 10 | 10 | 110 |
//! | [`LeakyBucket`] | 1 | 10 | 110 |
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{
//!     ConfigError, FixedWindow, LeakyBucket, Limiter, ManualClock, SlidingLog, SlidingWindow,
//!     TokenBucket,
//! };
//!
//! fn limiters(clock: &ManualClock) -> Result<[Limiter; 6], ConfigError> {
//!     let period = Duration::from_secs(10);
//!     Ok([
//!         TokenBucket::new(10, period).limiter().clock(clock.clone()).build()?,
//!         FixedWindow::new(10, period).limiter().clock(clock.clone()).build()?,
//!         FixedWindow::new(10, period).aligned().limiter().clock(clock.clone()).build()?,
//!         SlidingWindow::new(10, period).limiter().clock(clock.clone()).build()?,
//!         SlidingLog::new(10, period).limiter().clock(clock.clone()).build()?,
//!         LeakyBucket::new(10, period).limiter().clock(clock.clone()).build()?,
//!     ])
//! }
//!
//! /// When requests are allowed, in tenths of a second: so many come at second `from`, then each tenth.
//! fn allowed(first: u32, from: u64, each: u32) -> Result<[Vec<u64>; 6], ConfigError> {
//!     let clock = ManualClock::new();
//!     let limiters = limiters(&clock)?;
//!     let mut allowed: [Vec<u64>; 6] = Default::default();
//!     for tenth in 0..1_100 {
//!         let asked = if tenth == 0 { first } else if tenth < from * 10 { 0 } else { each };
//!         for (allowed, limiter) in allowed.iter_mut().zip(&limiters) {
//!             let now = (0..asked).filter(|_| limiter.try_acquire().is_allowed()).count();
//!             allowed.extend(vec![tenth; now]);
//!         }
//!         clock.advance(Duration::from_millis(100));
//!     }
//!     Ok(allowed)
//! }
//!
//! /// The most of these within so many tenths of a second.
//! fn most(allowed: &[u64], tenths: u64) -> usize {
//!     let within = |start: u64| allowed.iter().filter(|at| (start..start + tenths).contains(at)).count();
//!     allowed.iter().map(|start| within(*start)).max().unwrap_or(0)
//! }
//!
//! // One request or none at second 0, and 20 each tenth from second 9 on: the worst of the drawings.
//! let (one, none) = (allowed(1, 9, 20)?, allowed(0, 9, 20)?);
//! let worst = |tenths| [0, 1, 2, 3, 4, 5].map(|i| most(&one[i], tenths).max(most(&none[i], tenths)));
//! assert_eq!(worst(1), [10, 10, 10, 10, 10, 1]);
//! assert_eq!(worst(100), [19, 19, 20, 10, 10, 10]);
//!
//! // One each tenth.
//! assert_eq!(allowed(1, 0, 1)?.map(|allowed| allowed.len()), [119, 110, 110, 100, 110, 110]);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # Restarts and instances
//!
//! What is counted here is counted in one process, from its start to its end. A restart forgets it: a month's quota, or
//! three codes, can be had anew after each deploy, and once in each instance. So all "at most" on this page are of
//! one process between two restarts. Where that matters, count in a [`Backend`](crate::Backend) that keeps its state,
//! and for bursts after a restart see [`StartLevel`](crate::StartLevel).
//!
//! # A rate that is sold
//!
//! An API sells 600 requests a minute, and customers complain if one of them gets 1,100 in 60 s. A bucket of 600 lets
//! through 600 at once and 600 more within the minute; a sliding window of 600 withholds a tenth from the customer who
//! comes evenly. A bucket of the full rate with a *burst of a tenth* does neither: all 600, and at most 660 in any
//! minute.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, SlidingWindow, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let sold = TokenBucket::per_minute(600).burst(60).limiter().clock(clock.clone()).build()?;
//! let window = SlidingWindow::per_minute(600).limiter().clock(clock.clone()).build()?;
//!
//! // Ten minutes of one request each 100 ms: the honest customer.
//! let mut passed = [0, 0];
//! for _ in 0..6_000 {
//!     passed[0] += u32::from(sold.admits(1));
//!     passed[1] += u32::from(window.admits(1));
//!     clock.advance(Duration::from_millis(100));
//! }
//! assert_eq!(passed[0], 6_000);
//! assert!((5_400..5_520).contains(&passed[1]));
//!
//! // A minute of as many as pass, after a pause.
//! clock.advance(Duration::from_secs(60));
//! let mut flood = 0;
//! for _ in 0..60_000 {
//!     flood += u32::from(sold.admits(1));
//!     clock.advance(Duration::from_millis(1));
//! }
//! assert!((655..=660).contains(&flood));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # Memory and speed
//!
//! - **Buckets and fixed windows** keep one word per key. A check is one atomic step, and a denied check only reads.
//!   The table of a keyed rule takes 32 bytes for each key that may be kept:
//!   [`max_keys`](crate::limiter::KeyedLimiterBuilder::max_keys).
//! - **A sliding window** keeps 16 bytes for each cell in which something was allowed, at most eleven, and some 150
//!   bytes besides. A check holds a lock while it counts.
//! - **A sliding log** keeps 16 bytes for each allowed request of the last window, and some 150 bytes besides. A check
//!   holds a lock while it counts.
//!
//! So the limit of a log is also its memory, and the callers decide how much of it is used. With all keys that are
//! kept by default in use, a log of 1,000 needs 2.1 GB; a sliding window needs 43 MB, whatever its limit; a bucket 4
//! MB:
//!
//! ```
//! use tower_sluice::limiter::DEFAULT_MAX_KEYS;
//!
//! /// Megabytes of a rule, all of whose keys are in use.
//! fn megabytes(bytes_per_key: u64) -> f64 {
//!     (DEFAULT_MAX_KEYS * bytes_per_key) as f64 / 1_000_000.0
//! }
//! fn sliding_log(limit: u64) -> u64 {
//!     limit * 16 + 150
//! }
//!
//! assert_eq!(megabytes(32).round(), 4.0); // a bucket, a fixed window
//! assert_eq!(megabytes(11 * 16 + 150).round(), 43.0); // a sliding window
//! assert_eq!(megabytes(sliding_log(5)).round(), 30.0);
//! assert_eq!(megabytes(sliding_log(1_000)).round(), 2_117.0);
//! ```
//!
//! # When a burst is right
//!
//! A burst is right where honest callers come in groups, and what is behind can take a group. Three cases:
//!
//! **A page load.** A page brings 12 requests at once and then nothing for some seconds. With 2 per second and a burst
//! of 12 each page load passes whole. Without a burst of its own the same rate breaks every page.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let small = TokenBucket::per_second(2).limiter().clock(clock.clone()).build()?; // burst 2
//! let large = TokenBucket::per_second(2).burst(12).limiter().clock(clock.clone()).build()?;
//! let page = |limiter: &tower_sluice::Limiter| {
//!     (0..12).filter(|_| limiter.try_acquire().is_allowed()).count()
//! };
//!
//! assert_eq!((page(&small), page(&large)), (2, 12));
//! // The next page after 6 s, when 12 permits are back.
//! clock.advance(Duration::from_secs(6));
//! assert_eq!((page(&small), page(&large)), (2, 12));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! **A batch client.** It wakes each minute and sends what has come together, 100 requests. Let the burst be the
//! batch, and the rate one batch a minute. An even pace, a request each 600 ms, would make it take a minute for
//! nothing.
//!
//! **A retry after an outage.** A client was cut off and comes back with what it could not send. The burst is what it
//! may send at once; the rest comes at the rate. However long it was away, it does not get more:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{LeakyBucket, ManualClock, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let limiter = TokenBucket::per_minute(100).limiter().clock(clock.clone()).build()?;
//! let allowed = |asked: u32| (0..asked).filter(|_| limiter.try_acquire().is_allowed()).count();
//!
//! // A batch each minute.
//! for _ in 0..3 {
//!     assert_eq!(allowed(100), 100);
//!     clock.advance(Duration::from_secs(60));
//! }
//! // At an even pace a batch would take a minute: 100 times 600 ms.
//! let even = LeakyBucket::per_minute(100).limiter().clock(clock.clone()).build()?;
//! assert!(even.try_acquire().is_allowed());
//! assert_eq!(even.try_acquire().retry_after(), Some(Duration::from_millis(600)));
//!
//! // An outage of an hour, and 6,000 requests waiting: 100 now, 100 in the next minute.
//! clock.advance(Duration::from_secs(3_600));
//! assert_eq!(allowed(6_000), 100);
//! clock.advance(Duration::from_secs(60));
//! assert_eq!(allowed(5_900), 100);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # When a burst is wrong
//!
//! **Login attempts and reset codes.** Here every permit is a guess, and it is the total that matters. "5 per minute"
//! as a bucket sounds strict: it is 7,204 guesses in the first day. What you mean is that five mistakes are human, and
//! that the next five must wait long. A log of 5 per 15 minutes says so: 480 guesses a day. With a reset code of six
//! digits take 3 per hour: who guesses all day finds it with a chance of 0.0072 %.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{ManualClock, SlidingLog, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let bucket = TokenBucket::per_minute(5).limiter().clock(clock.clone()).build()?;
//! let quarter = Duration::from_secs(15 * 60);
//! let log = SlidingLog::new(5, quarter).limiter().clock(clock.clone()).build()?;
//!
//! // Somebody guesses every second of a day.
//! let mut guesses = (0, 0);
//! for _ in 0..86_400 {
//!     guesses.0 += u32::from(bucket.try_acquire().is_allowed());
//!     guesses.1 += u32::from(log.try_acquire().is_allowed());
//!     clock.advance(Duration::from_secs(1));
//! }
//! assert_eq!(guesses, (7_204, 480));
//!
//! // Somebody tries reset codes, every second of a day.
//! let codes = 1_000_000;
//! let hour = Duration::from_secs(3_600);
//! let resets = SlidingLog::new(3, hour).limiter().clock(clock.clone()).build()?;
//! let mut tried = 0;
//! for _ in 0..86_400 {
//!     tried += u64::from(resets.try_acquire().is_allowed());
//!     clock.advance(Duration::from_secs(1));
//! }
//! assert_eq!(tried, 72);
//! assert_eq!(tried as f64 * 100.0 / f64::from(codes), 0.0072);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! Count logins by address and by account name both. The name is in the body, so the handler asks that limit. Above it
//! ask for more, a code say, rather than refuse: else anybody can lock the owner out. See
//! [login names](super::identity#login-names).
//!
//! **A partner who cannot take two at once.** The contract says 20 a second, and the partner's server has one worker.
//! A bucket of 20 per second sends him 20 at one instant. Here you want the distance between two calls, and that is a
//! leaky bucket:
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{LeakyBucket, ManualClock, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let bucket = TokenBucket::per_second(20).limiter().clock(clock.clone()).build()?;
//! let leaky = LeakyBucket::per_second(20).limiter().clock(clock.clone()).build()?;
//!
//! assert_eq!((0..20).filter(|_| bucket.try_acquire().is_allowed()).count(), 20);
//! assert_eq!((0..20).filter(|_| leaky.try_acquire().is_allowed()).count(), 1);
//! assert_eq!(leaky.try_acquire().retry_after(), Some(Duration::from_millis(50)));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # 17 per 30 seconds, and 33 come through
//!
//! A question that comes up with every token bucket. The quota is 17 per 30 s, and a test counts 33 in 30 s. The
//! bucket is right: 17 are the burst, and while the 30 seconds go by, the rate brings 17 more. The last of these comes
//! exactly at their end. So before the end it is 17 + 16 = 33, and at the end 34, which is burst + rate x L = 17 +
//! 17/30 s x 30 s.
//!
//! ```text
//! second    0         5         10        15        20        25        30
//! allowed   17 1  1   1  1   1  1   1  1   1  1   1  1   1  1   1  1   1
//!           |-----------------------------------------------------------| 17 + 16, and 1 at the end
//! ```
//!
//! If you mean "17 in any 30 s", there are two ways. A [`SlidingLog`] or a [`SlidingWindow`] counts that. Or make a
//! bucket whose burst and 30 s of rate are 17 *together*, as 12 per 30 s with a burst of 5: it takes less memory and
//! time, and it keeps the promise too, but gives 12 per 30 s in the long run and not 17.
//!
//! ```
//! use std::time::Duration;
//! use tower_sluice::{Limiter, ManualClock, SlidingLog, TokenBucket};
//!
//! let clock = ManualClock::new();
//! let period = Duration::from_secs(30);
//! let bucket = TokenBucket::new(17, period).limiter().clock(clock.clone()).build()?;
//! let log = SlidingLog::new(17, period).limiter().clock(clock.clone()).build()?;
//! let smaller = TokenBucket::new(12, period).burst(5).limiter().clock(clock.clone()).build()?;
//! let ask = |limiter: &Limiter| (0..20).filter(|_| limiter.try_acquire().is_allowed()).count();
//!
//! // Each 10 ms as many as are allowed, for 30 s without their end.
//! let mut allowed = [0; 3];
//! for _ in 0..3_000 {
//!     allowed[0] += ask(&bucket);
//!     allowed[1] += ask(&log);
//!     allowed[2] += ask(&smaller);
//!     clock.advance(Duration::from_millis(10));
//! }
//! assert_eq!(allowed, [33, 17, 16]);
//! // At the end each bucket has one more. The log starts its second 30 seconds.
//! assert_eq!([ask(&bucket), ask(&log), ask(&smaller)], [1, 17, 1]);
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # Next
//!
//! [Warm-up](super::warm_up): a limit that starts low and grows.
//!
//! Used on this page: [`TokenBucket`], [`FixedWindow`], [`SlidingWindow`], [`SlidingLog`], [`LeakyBucket`],
//! [`Limiter`], [`ManualClock`], [`RejectionPolicy`]. How each counts is told in the module
//! [`algorithm`](crate::algorithm).
//!
//! [`rate_or_in_flight`]: super::rate_or_in_flight

#[cfg(doc)]
use crate::{
    FixedWindow, LeakyBucket, Limiter, ManualClock, RejectionPolicy, SlidingLog, SlidingWindow,
    TokenBucket,
};
