//! Counting: the [`Backend`] trait, what goes in and out of it, and the backend in this process.
//!
//! A backend keeps the state of limiters and changes it atomically. [`Local`] is the default; a backend
//! of your own implements [`Backend`] and nothing else, and goes to
//! [`Rule::backend`](crate::Rule::backend) or
//! [`RateLimitLayerBuilder::backend`](crate::RateLimitLayerBuilder::backend). The example
//! `own_backend` is a whole one. Whether it keeps what the trait promises is checked by
//! `testing::Conformance`, under the feature `test-util`.
//!
//! ```
//! use tower_sluice::{ConfigError, FixedWindow, RateLimitLayer, Rule, TokenBucket, backend::{Backend, Local}};
//!
//! /// A quota of the fleet's, counted on a backend of its own, and one of this process.
//! fn limits(shared: impl Backend) -> Result<RateLimitLayer, ConfigError> {
//!     RateLimitLayer::builder()
//!         .backend(shared)
//!         .rule(Rule::new("fleet", FixedWindow::per_minute(10_000)))
//!         .rule(Rule::new("here", TokenBucket::per_second(500)).backend(Local::new()))
//!         .build()
//! }
//! # let _ = limits(Local::new());
//! ```

pub(crate) mod local;
#[cfg(feature = "redis")]
mod redis;

use std::{fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;

pub use self::local::Local;
#[cfg(feature = "redis")]
pub use self::redis::Redis;
use crate::{
    Algorithm, BackendError, ConfigError, Decision, Quota,
    clock::{BoxFuture, Nanos},
};

/// Where counting is done.
///
/// [`check`](Self::check) gets all charges that one request makes on this backend, together: either
/// all are made or none. It may answer at once or later; a later answer holds no lock and no readiness
/// of the service, and the request waits for it. A denied check changes nothing.
///
/// An error is answered with 503: nothing becomes unlimited because its counter is away.
///
/// The example `own_backend` counts windows in a map of its own and answers later. A backend may also
/// wrap another:
///
/// ```
/// use tower_sluice::{
///     ConfigError, Decision, FixedWindow,
///     backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdicts},
///     clock::Nanos,
/// };
///
/// /// Says what it is asked, and counts as `Local` does.
/// struct Logged(Local);
///
/// impl Backend for Logged {
///     fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
///         println!("counting {} for {}", spec.algorithm().quota(), spec.name());
///         self.0.register(spec)
///     }
///
///     fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
///         self.0.check(now, charges)
///     }
///
///     fn undo(&self, now: Nanos, receipts: &[Receipt]) {
///         self.0.undo(now, receipts);
///     }
///
///     fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
///         self.0.peek(now, charge)
///     }
///
///     fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
///         self.0.reset(now, charge)
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let backend = Logged(Local::new());
/// let one = backend.register(&LimiterSpec::new("one", FixedWindow::per_minute(1)))?;
/// let verdicts = backend.check(Nanos::ZERO, &[Charge::new(one, 1)]).resolve().await?;
/// assert!(verdicts.all_allowed());
/// let verdicts = backend.check(Nanos::ZERO, &[Charge::new(one, 1)]).resolve().await?;
/// assert!(!verdicts.all_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait Backend: Send + Sync + 'static {
    /// Takes a limiter on, when a layer is built and when its quota changes
    /// ([`LimiterSpec::replaces`]).
    ///
    /// # Errors
    ///
    /// Refuses what it cannot count, naming field and value: an algorithm, a
    /// [warm-up](Algorithm::warm_up), a [start level](crate::TokenBucket::start_level), windows
    /// [of the calendar](crate::FixedWindow::calendar_unit). What it let pass and did not count would be a limit that is
    /// silently another.
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError>;

    /// Makes all `charges`, or none, and says what each got. The verdicts are in the order of the
    /// charges. Charges on one key count together. `now` may lie before that of an earlier call, which gives
    /// nothing back.
    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts>;

    /// Takes back what an earlier check charged, as far as that is no gift: never more may be admitted
    /// than if the request had never come, and where that cannot be known the permits stay spent.
    /// Called at most once per receipt, best effort, and must not block.
    fn undo(&self, now: Nanos, receipts: &[Receipt]);

    /// What `charge` would get; changes nothing.
    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision>;

    /// Forgets the key of `charge`; says whether anything was known of it. Of a key that was never charged nothing
    /// is. An undo of what was charged before a reset must not give to those who come after it.
    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool>;

    /// How many keys of a limiter hold state now, if that can be told at once.
    fn tracked_keys(&self, now: Nanos, limiter: LimiterId) -> Option<u64> {
        let _ = (now, limiter);
        None
    }

    /// Which backend this is: rules whose backends say the same are asked about in one call.
    ///
    /// Default: the address of the value, so that clones of an `Arc` are one backend. A backend whose
    /// clones share their state gives the address of what they share.
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        (**self).register(spec)
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        (**self).check(now, charges)
    }

    fn undo(&self, now: Nanos, receipts: &[Receipt]) {
        (**self).undo(now, receipts);
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        (**self).peek(now, charge)
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        (**self).reset(now, charge)
    }

    fn tracked_keys(&self, now: Nanos, limiter: LimiterId) -> Option<u64> {
        (**self).tracked_keys(now, limiter)
    }

    fn identity(&self) -> usize {
        (**self).identity()
    }
}

/// An answer, now or later. Exhaustive on purpose: a third state would change what callers must do.
///
/// ```
/// use tower_sluice::{BackendError, BackendErrorKind, backend::Answer};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let known = Answer::Ready(Ok(true));
/// assert!(known.resolve().await.unwrap());
///
/// // A client of the store's goes here; its error becomes the backend's.
/// let asked: Answer<bool> = Answer::Pending(Box::pin(async {
///     Err(BackendError::new(BackendErrorKind::Unavailable, "connection refused"))
/// }));
/// assert_eq!(asked.resolve().await.unwrap_err().kind(), BackendErrorKind::Unavailable);
/// # });
/// ```
#[must_use = "a pending answer does nothing unless awaited"]
pub enum Answer<T> {
    /// The backend knows.
    Ready(Result<T, BackendError>),
    /// It has to ask. Dropping the future is allowed at any time; what was charged by then stays spent.
    Pending(BoxFuture<'static, Result<T, BackendError>>),
}

impl<T> Answer<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// The backend's own.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the answer; a charge on its way stays spent.
    pub async fn resolve(self) -> Result<T, BackendError> {
        match self {
            Self::Ready(answer) => answer,
            Self::Pending(answer) => answer.await,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(answer) => f.debug_tuple("Ready").field(answer).finish(),
            Self::Pending(_) => f.write_str("Pending(..)"),
        }
    }
}

/// How many keys a keyed limiter or rule keeps at most, unless told otherwise: about 4 MiB.
///
/// ```
/// use tower_sluice::{Rule, TokenBucket, backend::DEFAULT_MAX_KEYS, key};
///
/// let rule = Rule::new("per-address", TokenBucket::per_second(10))
///     .key(key::client_ip())
///     .max_keys(8 * DEFAULT_MAX_KEYS);
/// # let _ = rule;
/// ```
pub const DEFAULT_MAX_KEYS: u64 = 131_072;

/// What a backend is told of a limiter.
///
/// Layers make it of their rules. Tests of a backend's [`register`](Backend::register) make their own:
///
/// ```
/// use tower_sluice::{FixedWindow, Quota, backend::{Backend, LimiterSpec, Local}};
///
/// let backend = Local::new();
/// let spec = LimiterSpec::new("per-user", FixedWindow::per_minute(3)).keyed(1_000);
/// let id = backend.register(&spec)?;
/// let stricter = LimiterSpec::new("per-user", FixedWindow::per_minute(2)).keyed(1_000);
/// assert_eq!(backend.register(&stricter.replacing(id))?, id);
///
/// let error = backend.register(&LimiterSpec::new("none", Quota::per_second(0))).unwrap_err();
/// assert_eq!(error.field(), "permits");
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LimiterSpec {
    pub(crate) name: Arc<str>,
    pub(crate) algorithm: Algorithm,
    pub(crate) quotas: Vec<Quota>,
    /// What a quota is multiplied by: so many of `quotas` are the algorithm's own, as many each tier's.
    pub(crate) factors: Vec<u64>,
    pub(crate) keyed: bool,
    pub(crate) max_keys: u64,
    pub(crate) utc_at_zero: Duration,
    pub(crate) now: Nanos,
    pub(crate) replaces: Option<LimiterId>,
}

impl LimiterSpec {
    /// A limiter without keys, with one quota, the algorithm's own, registered at the clock's zero, which
    /// is 1970-01-01 00:00 UTC.
    #[must_use]
    pub fn new(name: impl Into<String>, algorithm: impl Into<Algorithm>) -> Self {
        let algorithm = algorithm.into();
        Self {
            name: Arc::from(name.into()),
            algorithm,
            quotas: vec![algorithm.quota()],
            factors: vec![1],
            keyed: false,
            max_keys: DEFAULT_MAX_KEYS,
            utc_at_zero: Duration::ZERO,
            now: Nanos::ZERO,
            replaces: None,
        }
    }

    /// The same limiter with keys, of which at most `max_keys` are kept.
    #[must_use]
    pub fn keyed(self, max_keys: u64) -> Self {
        Self { keyed: true, max_keys, ..self }
    }

    /// The same limiter in place of `old`, as where a quota changes.
    #[must_use]
    pub fn replacing(self, old: LimiterId) -> Self {
        Self { replaces: Some(old), ..self }
    }

    /// The same limiter, registered at `now`: what is spent is carried over to a new quota as it stands then.
    #[must_use]
    pub fn at(self, now: Nanos) -> Self {
        Self { now, ..self }
    }

    /// The same limiter with another quota of a tier, or its own for 0, at `now`, in place of the limiter
    /// `replaces`.
    pub(crate) fn renewed(
        &self,
        tier: usize,
        quota: Quota,
        now: Nanos,
        replaces: Option<LimiterId>,
    ) -> Result<Self, ConfigError> {
        let algorithm = self.algorithm.with_quota(quota);
        let mut quotas = self.quotas.clone();
        let of_tier = quotas.iter_mut().skip(tier * self.factors.len());
        for (renewed, factor) in of_tier.zip(&self.factors) {
            *renewed = algorithm.relaxed(*factor)?;
            renewed.checked()?;
        }
        let algorithm = if tier == 0 { algorithm } else { self.algorithm };
        Ok(Self { algorithm, quotas, now, replaces, ..self.clone() })
    }

    /// The algorithm, and the quota that a charge names by this index.
    pub(crate) fn quota(&self, index: usize) -> (Algorithm, Quota) {
        let quota = self.quotas.get(index).copied().unwrap_or_else(|| self.algorithm.quota());
        (self.algorithm, quota)
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The algorithm, with the quota as the rule writes it.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The quotas a charge may name by [`Charge::quota`], at most 256: what each of the key's `relaxed` factors
    /// makes of the rule's own quota, then of the quota of each [tier](crate::Rule::tier), in the order written.
    ///
    /// All charges of a key name the same one, since the key's bytes differ by alternative and tier.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// Whether charges come with a key: the rule has one, or tiers, whose names are in the bytes.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// The most keys whose state may be kept.
    #[must_use]
    pub fn max_keys(&self) -> u64 {
        self.max_keys
    }

    /// The wall clock's time (UTC since 1970) at zero of the clock that `now` is read from.
    #[must_use]
    pub fn utc_at_zero(&self) -> Duration {
        self.utc_at_zero
    }

    /// When it is registered, by the clock that `now` is read from.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The limiter this spec replaces: its keys keep what they spent. The same id must be returned.
    #[must_use]
    pub fn replaces(&self) -> Option<LimiterId> {
        self.replaces
    }
}

/// What a backend calls a limiter; it means something to that backend only.
///
/// ```
/// use tower_sluice::backend::LimiterId;
///
/// // The index of what `register` has pushed, say.
/// assert_ne!(LimiterId(0), LimiterId(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimiterId(pub u64);

/// What one request asks of one limiter.
///
/// ```
/// use tower_sluice::backend::{Charge, LimiterId};
///
/// let charge = Charge::new(LimiterId(3), 5).key(b"alice");
/// assert_eq!((charge.limiter(), charge.cost()), (LimiterId(3), 5));
/// assert_eq!((charge.key_bytes(), charge.quota()), (&b"alice"[..], 0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    pub(crate) limiter: LimiterId,
    pub(crate) key: &'a [u8],
    pub(crate) quota: usize,
    pub(crate) cost: u64,
    pub(crate) longest_wait: Duration,
}

impl<'a> Charge<'a> {
    /// A charge of `cost` permits on `limiter`, without a key, on its first quota, to be decided now.
    #[must_use]
    pub fn new(limiter: LimiterId, cost: u64) -> Self {
        Self { limiter, key: &[], quota: 0, cost, longest_wait: Duration::ZERO }
    }

    /// Sets the key. Default: empty, as for a limiter without keys.
    #[must_use]
    pub fn key(self, key: &'a [u8]) -> Self {
        Self { key, ..self }
    }

    /// Sets which quota of the limiter. Default: 0.
    #[must_use]
    pub fn quota_index(self, quota: usize) -> Self {
        Self { quota, ..self }
    }

    /// Sets the longest that the request may wait. Default: zero.
    #[must_use]
    pub fn waiting_at_most(self, longest_wait: Duration) -> Self {
        Self { longest_wait, ..self }
    }

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> LimiterId {
        self.limiter
    }

    /// The key's bytes: parts, alternative and tier encoded unambiguously. Empty for a limiter without keys.
    #[must_use]
    pub fn key_bytes(&self) -> &'a [u8] {
        self.key
    }

    /// Which of [`LimiterSpec::quotas`].
    #[must_use]
    pub fn quota(&self) -> usize {
        self.quota
    }

    /// The permits. Zero is always allowed, changes nothing, and reports.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Zero: decide now. Else an allowed verdict may say when to depart, no later than this. It is what is left
    /// of the longest wait where the rule's [`queue`](crate::RejectionPolicy::queue) lets requests wait.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        self.longest_wait
    }
}

/// What a charge got, and the receipt to undo it by.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{Decision, backend::{LimiterId, Receipt, Verdict, Verdicts}};
///
/// let minute = Duration::from_secs(60);
/// let receipt = Receipt::new(LimiterId(0), [7, 0, 0, 0]);
/// let allowed = Verdict::new(Decision::allowed(5, 4, minute), receipt);
/// let denied = Verdict::new(Decision::denied(5, 0, minute, minute), receipt);
/// let verdicts: Verdicts = [allowed, denied].into_iter().collect();
/// assert!(!verdicts.all_allowed());
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Verdict {
    decision: Decision,
    receipt: Receipt,
    depart_after: Duration,
}

impl Verdict {
    /// A verdict; the receipt of a denied one is never used.
    pub fn new(decision: Decision, receipt: Receipt) -> Self {
        Self { decision, receipt, depart_after: Duration::ZERO }
    }

    /// Sets how long the request must wait although it is allowed: its departure is reserved, and stays spent
    /// unless [`undo`](Backend::undo) can take it back. Default: not at all. Only for a charge with a
    /// [`longest_wait`](Charge::longest_wait), and no longer than that.
    pub fn depart_after(self, wait: Duration) -> Self {
        Self { depart_after: wait, ..self }
    }

    /// The decision.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// The receipt.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// How long the request must wait although it is allowed.
    #[must_use]
    pub fn departure(&self) -> Duration {
        self.depart_after
    }
}

/// What undoes one charge: the limiter, and four words that mean something to the backend that made it.
///
/// ```
/// use tower_sluice::backend::{LimiterId, Receipt};
///
/// // Which window of which key was charged, and how much.
/// let receipt = Receipt::new(LimiterId(1), [0x5ca1_ab1e, 29, 2, 0]);
/// assert_eq!(receipt.words()[2], 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    limiter: LimiterId,
    words: [u64; 4],
}

impl Receipt {
    /// A receipt of a charge on `limiter`.
    #[must_use]
    pub fn new(limiter: LimiterId, words: [u64; 4]) -> Self {
        Self { limiter, words }
    }

    /// Of no charge: there is nothing to undo.
    pub(crate) fn nothing(limiter: LimiterId) -> Self {
        Self::new(limiter, [0; 4])
    }

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> LimiterId {
        self.limiter
    }

    /// The backend's own words.
    #[must_use]
    pub fn words(&self) -> [u64; 4] {
        self.words
    }
}

/// One verdict per charge, in their order; inline for eight. Collected from an iterator.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{Decision, backend::{LimiterId, Receipt, Verdict, Verdicts}};
///
/// let verdict = |n| {
///     let decision = Decision::allowed(10, n, Duration::from_secs(1));
///     Verdict::new(decision, Receipt::new(LimiterId(n), [0; 4]))
/// };
/// let verdicts: Verdicts = (0..3).map(verdict).collect();
/// assert!(verdicts.all_allowed());
/// assert_eq!(verdicts.as_slice()[2].decision().remaining(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Verdicts(SmallVec<[Verdict; 8]>);

impl Verdicts {
    /// Whether all charges are allowed.
    #[must_use]
    pub fn all_allowed(&self) -> bool {
        self.0.iter().all(|verdict| verdict.decision.is_allowed())
    }

    /// The verdicts.
    pub fn as_slice(&self) -> &[Verdict] {
        &self.0
    }
}

impl FromIterator<Verdict> for Verdicts {
    fn from_iter<I: IntoIterator<Item = Verdict>>(verdicts: I) -> Self {
        Self(verdicts.into_iter().collect())
    }
}
