//! [`InFlight`]: how many may be admitted and not finished.

use std::{fmt, num::NonZeroU64, sync::Arc, time::Duration};

use http::StatusCode;

use super::{Missing, Scope};
use crate::{
    ConfigError, Key, RejectionPolicy,
    clock::{Clock, Time},
    event::{Fault, Observer},
    in_flight::{Joined, Permit, Slots},
    limiter::hash_of,
    observe,
    request::{
        head::Head,
        key::KeyExtractor,
        matcher::{self, Matcher},
    },
    waiting::{Depth, Timer},
};

/// A limit on what is in flight: admitted and not finished, the response body included.
///
/// For what waits on something that is scarce, as a database: there it is not requests per second that
/// hurt, but how many are under way at once. It goes to
/// [`RateLimitLayerBuilder::in_flight`](crate::RateLimitLayerBuilder::in_flight), or is used by itself.
///
/// | setting | default |
/// | --- | --- |
/// | [`key`](Self::key) | none: all its requests count together |
/// | [`missing`](Self::missing) | none: a key that can be missing needs it |
/// | [`when`](Self::when), [`matching`](Self::matching) | every request |
/// | [`status`](Self::status) | 503 |
/// | [`retry_after`](Self::retry_after) | 1 s |
/// | [`rejection`](Self::rejection) | the layer's |
/// | [`spread`](Self::spread) | on without a key, off with one |
/// | [`advertise`](Self::advertise) | shown to callers with a key, not without |
/// | [`clock`](Self::clock) | the layer's, without one [`FastClock`](crate::clock::FastClock) |
/// | [`observer`](Self::observer) | none |
///
/// It is a handle: clones share the count, the limit and who waits; the settings are each clone's own. So one
/// limit may stand in several layers with different answers:
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{InFlight, RateLimitLayer, RejectionPolicy};
///
/// let database = InFlight::new("database", 64);
/// // People wait a little, crawlers do not.
/// let pages = RateLimitLayer::builder()
///     .in_flight(database.clone().rejection(RejectionPolicy::queue(Duration::from_millis(200), 100)))
///     .build()?;
/// let sitemap = RateLimitLayer::builder()
///     .in_flight(database.clone().retry_after(Duration::from_secs(60)))
///     .build()?;
/// assert_eq!(database.in_flight(), 0);
/// database.set_limit(32)?;
/// # let _ = (pages, sitemap);
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
///
/// # What a permit covers
///
/// From admission to the end of the response body: its last frame, an error, or its drop, whichever comes
/// first; so also to a client's disconnect, a timeout, or a panic. A permit is given back exactly once.
///
/// A request that passes two layers with clones of one limit takes two permits, and where it waits for the second it waits
/// for itself too: put a limit in its way once.
///
/// Where a request asks for an upgrade (`Upgrade`, or `CONNECT`), [`Permits`](crate::in_flight::Permits) is
/// put into its extensions too: what keeps it keeps the permit. A handler that ignores it lets it go with
/// the answer, since a 101 has no body.
#[derive(Clone)]
#[must_use]
pub struct InFlight {
    pub(crate) slots: Arc<Slots>,
    pub(crate) limit: u32,
    pub(crate) scope: Scope,
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Duration,
    pub(crate) policy: Option<RejectionPolicy>,
    pub(crate) spread: Option<bool>,
    pub(crate) advertised: bool,
    clock: Option<Time>,
}

impl InFlight {
    /// At most `limit` in flight. The name is told to callers, logs and metrics, and is checked when a
    /// layer is built, as everything else: `[A-Za-z][A-Za-z0-9_.-]{0,63}`.
    ///
    /// A limit of 0, or above 2^31 - 1, is an error at build; used by itself it admits nobody, or 2^31 - 1.
    pub fn new(name: impl Into<String>, limit: u32) -> Self {
        Self {
            slots: Arc::new(Slots::new(Arc::from(name.into()), limit)),
            limit,
            scope: Scope::default(),
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Duration::from_secs(1),
            policy: None,
            spread: None,
            advertised: false,
            clock: None,
        }
    }

    /// Counts per key: at most so many of each. A key is known while something of it is in flight or waits,
    /// and no longer, so that no keys of clients can grow the memory. It is then the caller who has too much under
    /// way, so `.status(StatusCode::TOO_MANY_REQUESTS)` may tell him more than 503.
    ///
    /// ```
    /// use tower_sluice::{InFlight, Missing, RateLimitLayer, key};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .in_flight(InFlight::new("uploads", 4).key(key::header("x-user-id")).missing(Missing::Shared))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.scope.key = Some(key.boxed());
        self
    }

    /// Sets what becomes of a request without a key.
    pub fn missing(mut self, missing: Missing) -> Self {
        self.scope.missing = Some(missing);
        self
    }

    /// Applies the limit only to requests for which `applies` is true. Several conditions must all hold.
    pub fn when(self, applies: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.matching(matcher::from_fn(applies))
    }

    /// Applies the limit only to requests that match. Several conditions must all hold.
    pub fn matching(mut self, matcher: impl Matcher) -> Self {
        self.scope.narrow(matcher.boxed());
        self
    }

    /// Sets the status of refusals: an error status. Default: 503, since it is we who are overloaded.
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets the hint to refused callers; nobody can know when a permit is free. Above zero; in the header
    /// in whole seconds, rounded up. Default: 1 s.
    pub fn retry_after(mut self, hint: Duration) -> Self {
        self.retry_after = hint;
        self
    }

    /// Sets how refusals are answered. Default: as the layer says.
    pub fn rejection(mut self, policy: RejectionPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Shows the limit to callers where the layer tells them how they stand, as [`Rule::advertise`](crate::Rule::advertise).
    /// Default: limits with a key are shown, others are not.
    ///
    /// ```
    /// use tower_sluice::{Headers, InFlight, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .in_flight(InFlight::new("feed", 64).advertise())
    ///     .headers(Headers::Draft11)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    pub fn advertise(mut self) -> Self {
        self.advertised = true;
        self
    }

    /// Sets whether `Retry-After` is spread, as [`Rule::spread`](crate::Rule::spread). Default: on without a key,
    /// off with one.
    pub fn spread(mut self, on: bool) -> Self {
        self.spread = Some(on);
        self
    }

    /// Sets the clock that [`acquire`](Self::acquire) waits by and observers are told times of. It is one for
    /// all clones: the first that is set, or used, stays, and a layer with another is refused. Default: that of the first layer, or without one
    /// [`FastClock`](crate::clock::FastClock).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        let time = Time::of(clock);
        self.slots.set_time(time.clone());
        self.clock = Some(time);
        self
    }

    /// Adds an observer, which is told how each permit taken from now on has ended, of all clones:
    /// [`Observer::finished`]. For measuring what a permit is held for. An observer that takes a permit of the same
    /// limit is told of that one as well, and so on.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// use tower_sluice::{InFlight, Observer, event::{Finished, Outcome}};
    ///
    /// #[derive(Default)]
    /// struct Failures(AtomicU64);
    ///
    /// impl Observer for Failures {
    ///     fn finished(&self, finished: &Finished) {
    ///         if finished.outcome() == Outcome::Failed {
    ///             self.0.fetch_add(1, Relaxed);
    ///         }
    ///     }
    /// }
    ///
    /// let failures = Arc::new(Failures::default());
    /// let calls = InFlight::new("calls", 8).observer(failures.clone());
    /// calls.try_acquire().expect("nothing is in flight").finish(Outcome::Failed);
    /// assert_eq!(failures.0.load(Relaxed), 1);
    /// ```
    pub fn observer(self, observer: impl Observer) -> Self {
        self.slots.observe(Arc::new(observer));
        self
    }

    /// The clock that was set here, else the one that is in force already.
    pub(crate) fn own_clock(&self) -> Option<&Time> {
        self.clock.as_ref().or_else(|| self.slots.known_time())
    }

    /// Takes a permit; `None` where all are taken, or somebody waits for one. Keep it by name: `let _ = ..` gives it
    /// back at once. It has no key, and is counted apart from permits of keys, even where a [key](Self::key) is set.
    #[inline]
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        self.slots.try_take(None)
    }

    /// Takes a permit of `key`, counted together with a layer's requests of that key, where its [key](Self::key) is a
    /// single one.
    #[must_use]
    pub fn try_acquire_by<'k>(&self, key: impl Into<Key<'k>>) -> Option<Permit> {
        self.slots.try_take(Some(self.hash(&key.into())))
    }

    /// Takes a permit as soon as one is free, waiting at most `longest_wait`, behind all who wait already.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::InFlight;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let exports = InFlight::new("exports", 2);
    /// let Some(permit) = exports.acquire(Duration::from_secs(5)).await else {
    ///     return; // still busy
    /// };
    /// // .. the work; then
    /// drop(permit);
    /// # });
    /// ```
    ///
    /// The place is taken when the future is first polled. How many may wait so is for the caller to bound:
    /// [`waiting`](Self::waiting) tells.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place; a permit that had just come goes to the next.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its timer enabled, where it has to wait by a clock of tokio's.
    #[must_use]
    pub async fn acquire(&self, longest_wait: Duration) -> Option<Permit> {
        self.acquire_as(None, longest_wait).await
    }

    /// Takes a permit of `key` as soon as one is free, as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place; a permit that had just come goes to the next.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its timer enabled, where it has to wait by a clock of tokio's.
    #[must_use]
    pub async fn acquire_by<'k>(
        &self,
        key: impl Into<Key<'k>>,
        longest_wait: Duration,
    ) -> Option<Permit> {
        let hash = self.hash(&key.into());
        self.acquire_as(Some(hash), longest_wait).await
    }

    async fn acquire_as(&self, key: Option<NonZeroU64>, longest: Duration) -> Option<Permit> {
        let waiting = match self.slots.join(key, Depth::UNBOUNDED) {
            Ok(Joined::Permit(permit)) => return Some(permit),
            Ok(Joined::Waiting(waiting)) => waiting,
            Err(_) => return None,
        };
        let mut timer = Timer::new(self.slots.time().clone());
        let until = timer.now() + longest;
        let permit = waiting.permit(until, &mut timer).await;
        permit.unwrap_or_else(|_| {
            observe::warn(Fault::Clock, Some(self.slots.name()));
            None
        })
    }

    fn hash(&self, key: &Key<'_>) -> NonZeroU64 {
        Slots::key(hash_of(self.slots.hasher(), 0, [key.as_bytes()]))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.slots.name()
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.slots.limit()
    }

    /// How many are in flight, over all keys.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.slots.count()
    }

    /// How many of `key` are in flight.
    #[must_use]
    pub fn in_flight_by<'k>(&self, key: impl Into<Key<'k>>) -> u64 {
        self.slots.count_of(self.hash(&key.into()))
    }

    /// How many wait for a permit, over all keys.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.slots.waiting()
    }

    /// How many keys are known: those with something in flight or waiting.
    #[must_use]
    pub fn tracked_keys(&self) -> u64 {
        self.slots.keys()
    }

    /// Puts another limit in force, of all clones. What is in flight stays so; a lower limit holds as permits
    /// come back, a higher one lets those who wait go at once.
    ///
    /// # Errors
    ///
    /// If it is 0, or above 2^31 - 1; the old one stays.
    pub fn set_limit(&self, limit: u32) -> Result<(), ConfigError> {
        self.slots.set_limit(limit)
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight")
            .field("name", &self.name())
            .field("limit", &self.limit())
            .field("in_flight", &self.in_flight())
            .field("waiting", &self.waiting())
            .field("key", &self.scope.key)
            .finish_non_exhaustive()
    }
}
