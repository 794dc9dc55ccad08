//! Limits without HTTP: [`Limiter`] and [`KeyedLimiter`], for outgoing calls, jobs and consumers.
//!
//! Both are handles: clones share the count, and one limiter can stand in several places, a layer's
//! [`Rule::on`](crate::Rule::on) among them. They count in this process: one pace for several is a layer with a shared
//! [backend](crate::backend) around the client, as in the example `shared_pace`.
//!
//! ```
//! use tower_sluice::{ManualClock, TokenBucket};
//!
//! let mails = TokenBucket::per_minute(5).keyed_limiter().clock(ManualClock::new()).build()?;
//! for _ in 0..5 {
//!     assert!(mails.try_acquire("alice").is_allowed());
//! }
//! assert!(!mails.try_acquire("alice").is_allowed());
//! assert!(mails.try_acquire("bob").is_allowed());
//! # Ok::<(), tower_sluice::ConfigError>(())
//! ```
//!
//! # Inside a handler
//!
//! A layer sees the head of a request. Where the key is in the body, the handler asks a limiter itself,
//! and answers as a layer would with [`Rejection::of`](crate::Rejection::of), which has the example.

use std::{fmt, hash::BuildHasher, sync::Arc, time::Duration};

use ahash::RandomState;

use crate::{
    Algorithm, ConfigError, Decision, FixedWindow, Key, LeakyBucket, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
    backend::{
        LimiterSpec,
        local::{Counter, Seat},
    },
    clock::{Clock, Nanos, Time},
    event::Fault,
    observe,
    waiting::{Limit, Stuck},
};

pub use crate::backend::DEFAULT_MAX_KEYS;

macro_rules! limiters_of {
    ($($algorithm:ty),*) => {$(
        impl $algorithm {
            /// A limiter that counts all its callers together, to be used without HTTP.
            pub fn limiter(self) -> LimiterBuilder {
                LimiterBuilder(Spec::new(self.into()))
            }

            /// A limiter that counts per key, to be used without HTTP.
            pub fn keyed_limiter(self) -> KeyedLimiterBuilder {
                KeyedLimiterBuilder { spec: Spec::new(self.into()), max_keys: DEFAULT_MAX_KEYS }
            }
        }
    )*};
}

limiters_of!(FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket);

/// Settings of a [`Limiter`].
///
/// | setting | default |
/// | --- | --- |
/// | [`name`](Self::name) | `limiter` |
/// | [`clock`](Self::clock) | [`FastClock`](crate::clock::FastClock) |
///
/// ```
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket};
///
/// // One count for a route and for what the service does by itself.
/// let database = TokenBucket::per_second(200).limiter().name("database").build()?;
/// let reads = RateLimitLayer::builder().rule(Rule::on(database.clone())).build()?;
/// assert!(database.try_acquire_many(20).is_allowed());
/// # let _ = reads;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterBuilder(Spec);

/// Settings of a [`KeyedLimiter`].
///
/// | setting | default |
/// | --- | --- |
/// | [`name`](Self::name) | `limiter` |
/// | [`clock`](Self::clock) | [`FastClock`](crate::clock::FastClock) |
/// | [`max_keys`](Self::max_keys) | 131,072 |
///
/// ```
/// use tower_sluice::{FixedWindow, ManualClock};
///
/// let exports = FixedWindow::per_day(3)
///     .keyed_limiter()
///     .name("exports")
///     .max_keys(10_000)
///     .clock(ManualClock::new())
///     .build()?;
/// assert_eq!(exports.try_acquire(7_u64).remaining(), 2);
/// assert_eq!(exports.tracked_keys(), 1);
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct KeyedLimiterBuilder {
    spec: Spec,
    max_keys: u64,
}

#[derive(Clone, Debug)]
struct Spec {
    name: Arc<str>,
    algorithm: Algorithm,
    time: Option<Time>,
}

impl Spec {
    fn new(algorithm: Algorithm) -> Self {
        Self { name: "limiter".into(), algorithm, time: None }
    }

    fn build(self, keyed: bool, max_keys: u64) -> Result<(Shared, Time), ConfigError> {
        check_name(&self.name).map_err(|error| error.of_rule(&self.name))?;
        let time = self.time.unwrap_or_default();
        let spec = LimiterSpec {
            name: Arc::clone(&self.name),
            algorithm: self.algorithm,
            quotas: vec![self.algorithm.quota()],
            factors: vec![1],
            keyed,
            max_keys,
            utc_at_zero: time.utc_at_zero(),
            now: time.now(),
            replaces: None,
        };
        let counter = Counter::new(&spec).map_err(|error| error.of_rule(&self.name))?;
        Ok((Shared { name: self.name, limit: Arc::new(Limit::new(counter)) }, time))
    }
}

impl LimiterBuilder {
    /// Sets the name, which a rule on this limiter has too: `[A-Za-z][A-Za-z0-9_.-]{0,63}`, checked by
    /// `build`. Default: `limiter`.
    pub fn name(mut self, name: &str) -> Self {
        self.0.name = name.into();
        self
    }

    /// Sets the clock. Default: [`FastClock`](crate::clock::FastClock).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.0.time = Some(Time::of(clock));
        self
    }

    /// Builds it.
    ///
    /// # Errors
    ///
    /// If the quota cannot be counted (zero, or too large for the algorithm), or the name is not allowed.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let (shared, time) = self.0.build(false, DEFAULT_MAX_KEYS)?;
        Ok(Limiter { shared, time })
    }
}

impl KeyedLimiterBuilder {
    /// Sets the name, which a rule on this limiter has too: `[A-Za-z][A-Za-z0-9_.-]{0,63}`, checked by
    /// `build`. Default: `limiter`.
    pub fn name(mut self, name: &str) -> Self {
        self.spec.name = name.into();
        self
    }

    /// Sets the clock. Default: [`FastClock`](crate::clock::FastClock).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.spec.time = Some(Time::of(clock));
        self
    }

    /// Sets how many keys are kept at most. Default: 131,072. A bucket or fixed window takes 32 bytes for each that
    /// may be kept; a sliding window or log takes more, for each that is in use: see
    /// [memory](crate::guide::algorithms#memory-and-speed).
    ///
    /// When all are live, newcomers share overflow buckets.
    pub fn max_keys(mut self, keys: u64) -> Self {
        self.max_keys = keys;
        self
    }

    /// Builds it.
    ///
    /// # Errors
    ///
    /// If the quota cannot be counted, `max_keys` is zero, or the name is not allowed.
    pub fn build(self) -> Result<KeyedLimiter, ConfigError> {
        let (shared, time) = self.spec.build(true, self.max_keys)?;
        Ok(KeyedLimiter { shared, time, hasher: RandomState::new() })
    }
}

/// A limit on all its callers together. A handle: clones share the count.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, TokenBucket};
///
/// let clock = ManualClock::new();
/// let partner = TokenBucket::per_second(20).burst(1).limiter().clock(clock.clone()).build()?;
/// assert!(partner.try_acquire().is_allowed());
/// assert_eq!(partner.try_acquire().retry_after(), Some(Duration::from_millis(50)));
/// clock.advance(Duration::from_millis(50));
/// assert!(partner.try_acquire().is_allowed());
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(crate) shared: Shared,
    pub(crate) time: Time,
}

/// A limit per key. A handle: clones share the counts.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, TokenBucket};
///
/// let clock = ManualClock::new();
/// let logins = TokenBucket::per_minute(2).keyed_limiter().clock(clock.clone()).build()?;
/// assert!(logins.try_acquire("alice").is_allowed());
/// assert_eq!(logins.peek("alice", 2).retry_after(), Some(Duration::from_secs(30)));
/// // She has logged in: what she mistyped is forgotten.
/// assert!(logins.reset("alice"));
/// assert_eq!(logins.peek("alice", 2).retry_after(), None);
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct KeyedLimiter {
    pub(crate) shared: Shared,
    pub(crate) time: Time,
    pub(crate) hasher: RandomState,
}

/// What clones share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    pub(crate) limit: Arc<Limit>,
}

impl Shared {
    fn quota(&self) -> Quota {
        self.limit.counter.algorithm().quota()
    }

    async fn acquire(&self, seat: Seat, cost: u64, time: &Time, longest: Duration) -> Decision {
        match self.limit.acquire(seat, cost, time, longest).await {
            Ok(decision) => decision,
            Err(Stuck) => {
                observe::warn(Fault::Clock, Some(&self.name));
                self.limit.peek_refused(seat, time.now(), cost)
            }
        }
    }

    fn set_limit(&self, quota: Quota, now: Nanos) -> Result<(), ConfigError> {
        self.limit.set_limit(0, quota, now).map_err(|error| error.of_rule(&self.name))
    }
}

const ALL: Seat = Seat { quota: 0, hash: 0 };

impl Limiter {
    /// The quota in force.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.shared.quota()
    }

    /// Takes one permit, or none.
    pub fn try_acquire(&self) -> Decision {
        self.try_acquire_many(1)
    }

    /// Takes `cost` permits, or none. Zero is always allowed and reports.
    pub fn try_acquire_many(&self, cost: u64) -> Decision {
        self.shared.limit.try_acquire(ALL, self.time.now(), cost)
    }

    /// Takes `cost` permits, or none, and says only whether: what is left, and how long it takes, is not worked out.
    /// For loops that ask millions of times a second.
    ///
    /// ```
    /// use tower_sluice::TokenBucket;
    ///
    /// let traces = TokenBucket::per_second(1_000).limiter().build()?;
    /// let mut kept = 0;
    /// for _ in 0..1_200 {
    ///     kept += u32::from(traces.admits(1));
    /// }
    /// assert!((1_000..1_200).contains(&kept));
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn admits(&self, cost: u64) -> bool {
        self.admits_at(self.time.now(), cost)
    }

    /// The same at an instant of the limiter's clock that the caller has read: once for many limiters, or for many
    /// items that came together. An instant that is ahead of the clock's counts as the present until the clock is there.
    ///
    /// ```
    /// use tower_sluice::{ManualClock, TokenBucket, clock::Clock};
    ///
    /// let clock = ManualClock::new();
    /// let small = TokenBucket::per_second(2).limiter().clock(clock.clone()).build()?;
    /// let large = TokenBucket::per_second(5).limiter().clock(clock.clone()).build()?;
    /// let now = clock.now();
    /// assert!(small.admits_at(now, 2) && large.admits_at(now, 2));
    /// assert!(!small.admits_at(now, 1) && large.admits_at(now, 1));
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    #[must_use]
    #[inline(always)]
    pub fn admits_at(&self, now: Nanos, cost: u64) -> bool {
        self.shared.limit.admits(ALL, now, cost)
    }

    /// Takes one permit as soon as there is one, waiting at most `longest_wait`, behind all who wait already.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::LeakyBucket;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    /// #     .block_on(async {
    /// // A partner takes 20 calls a second, 50 ms apart.
    /// let partner = LeakyBucket::per_second(20).limiter();
    /// # let partner = partner.clock(tower_sluice::TokioClock);
    /// let partner = partner.build()?;
    /// for _ in 0..3 {
    ///     let decision = partner.acquire(Duration::from_secs(1)).await;
    ///     assert!(decision.is_allowed());
    ///     // .. the call
    /// }
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// If the wait would be longer it is denied at once, with that wait as
    /// [`retry_after`](Decision::retry_after). Who waits has spent nothing: the permit is taken when it is
    /// this one's turn. Nobody overtakes, whichever way he comes: [`try_acquire`](Self::try_acquire) and layers
    /// on this limiter deny while somebody waits.
    ///
    /// Turns come by the timer, which may be a millisecond or so late each time. By as much as those ahead were late a
    /// wait may pass `longest_wait`: nobody is refused because a timer was late. Put a timeout around it if the
    /// bound is hard.
    ///
    /// The place is taken when the future is first polled. A future that is kept and not polled keeps those behind it
    /// waiting, at most for twice their own longest wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place and spends nothing; those behind are sooner.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its timer enabled, where it has to wait by a clock of tokio's.
    pub async fn acquire(&self, longest_wait: Duration) -> Decision {
        self.acquire_many(1, longest_wait).await
    }

    /// Takes `cost` permits together, as [`acquire`](Self::acquire) takes one.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), and so are its panics.
    pub async fn acquire_many(&self, cost: u64, longest_wait: Duration) -> Decision {
        self.shared.acquire(ALL, cost, &self.time, longest_wait).await
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.shared.limit.waiting()
    }

    /// What [`try_acquire_many`](Self::try_acquire_many) would say; takes nothing.
    pub fn peek(&self, cost: u64) -> Decision {
        self.shared.limit.peek(ALL, self.time.now(), cost)
    }

    /// Forgets what was spent; says whether anything was.
    #[allow(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn reset(&self) -> bool {
        self.shared.limit.reset(ALL, self.time.now())
    }

    /// Puts another quota in force. What is spent stays spent: a token or leaky bucket's debt is counted in
    /// permits of the new quota, at most its burst; a window keeps its count.
    ///
    /// # Errors
    ///
    /// If the quota cannot be counted, or has a burst where the algorithm has none; the old one stays.
    pub fn set_limit(&self, quota: impl Into<Quota>) -> Result<(), ConfigError> {
        self.shared.set_limit(quota.into(), self.time.now())
    }
}

impl KeyedLimiter {
    #[inline]
    fn seat(&self, key: &Key<'_>) -> Seat {
        Seat { quota: 0, hash: hash_of(&self.hasher, 0, [key.as_bytes()]) }
    }

    /// The quota in force.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.shared.quota()
    }

    /// Takes one permit of `key`, or none.
    pub fn try_acquire<'k>(&self, key: impl Into<Key<'k>>) -> Decision {
        self.try_acquire_many(key, 1)
    }

    /// Takes `cost` permits of `key`, or none. Zero is always allowed and reports.
    #[inline]
    pub fn try_acquire_many<'k>(&self, key: impl Into<Key<'k>>, cost: u64) -> Decision {
        self.shared.limit.try_acquire(self.seat(&key.into()), self.time.now(), cost)
    }

    /// Takes one permit of `key` as soon as there is one, waiting at most `longest_wait`, behind all who wait
    /// for that key. As [`Limiter::acquire`], for each key on its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::TokenBucket;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    /// #     .block_on(async {
    /// let hooks = TokenBucket::per_second(1).keyed_limiter();
    /// # let hooks = hooks.clock(tower_sluice::TokioClock);
    /// let hooks = hooks.build()?;
    /// let wait = Duration::from_secs(5);
    /// assert!(hooks.acquire("acme", wait).await.is_allowed());
    /// assert!(hooks.acquire("acme", wait).await.is_allowed()); // a second later
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place and spends nothing; those behind are sooner.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its timer enabled, where it has to wait by a clock of tokio's.
    pub async fn acquire<'k>(&self, key: impl Into<Key<'k>>, longest_wait: Duration) -> Decision {
        self.acquire_many(key, 1, longest_wait).await
    }

    /// Takes `cost` permits of `key` together, as [`acquire`](Self::acquire) takes one.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), and so are its panics.
    pub async fn acquire_many<'k>(
        &self,
        key: impl Into<Key<'k>>,
        cost: u64,
        longest_wait: Duration,
    ) -> Decision {
        let seat = self.seat(&key.into());
        self.shared.acquire(seat, cost, &self.time, longest_wait).await
    }

    /// How many wait, over all keys.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.shared.limit.waiting()
    }

    /// What [`try_acquire_many`](Self::try_acquire_many) would say; takes nothing.
    pub fn peek<'k>(&self, key: impl Into<Key<'k>>, cost: u64) -> Decision {
        self.shared.limit.peek(self.seat(&key.into()), self.time.now(), cost)
    }

    /// Forgets what `key` spent; says whether anything was known of it.
    pub fn reset<'k>(&self, key: impl Into<Key<'k>>) -> bool {
        self.shared.limit.reset(self.seat(&key.into()), self.time.now())
    }

    /// Puts another quota in force, for every key. What is spent stays spent, as with
    /// [`Limiter::set_limit`]. Walks through all keys kept.
    ///
    /// # Errors
    ///
    /// If the quota cannot be counted, or has a burst where the algorithm has none; the old one stays.
    pub fn set_limit(&self, quota: impl Into<Quota>) -> Result<(), ConfigError> {
        self.shared.set_limit(quota.into(), self.time.now())
    }

    /// How many keys hold state now; those that are idle do not. Walks through all keys kept.
    #[must_use]
    pub fn tracked_keys(&self) -> u64 {
        self.shared.limit.counter.tracked(self.time.now())
    }
}

/// What a rule or a limiter may be called: it is told to callers, logs and metrics as it is.
pub(crate) fn check_name(name: &str) -> Result<(), ConfigError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic());
    if starts && name.len() <= 64 && name.bytes().all(legal) {
        return Ok(());
    }
    Err(ConfigError::new(
        "name",
        format!("{name:?}"),
        "must be a letter followed by at most 63 letters, digits, '_', '.' or '-'",
    ))
}

/// The seeded hash of a key: its parts, lengths first, so that no two keys read the same; then which
/// alternative of the rule's key yielded it.
#[inline]
pub(crate) fn hash_of<'p>(
    hasher: &RandomState,
    alternative: u8,
    parts: impl IntoIterator<Item = &'p [u8]>,
) -> u64 {
    use std::hash::Hasher;
    let mut state = hasher.build_hasher();
    for part in parts {
        state.write_u64(part.len() as u64);
        state.write(part);
    }
    state.write_u8(alternative);
    state.finish()
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter").field("name", &self.shared.name).finish_non_exhaustive()
    }
}
