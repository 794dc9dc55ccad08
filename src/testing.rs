//! Doubles for tests of your own: backends with given answers, and an observer that remembers.
//!
//! Beside them tests want a [`ManualClock`](crate::ManualClock), or [`TokioClock`](crate::TokioClock)
//! where they pause tokio's time.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_sluice::{Decision, RateLimitLayer, Rule, TokenBucket};
//! use tower_sluice::testing::{Event, Recorder, ScriptedBackend};
//! use axum::body::Body;
//! use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let second = Duration::from_secs(1);
//! let shared = ScriptedBackend::decisions([Decision::denied(10, 0, second, second)]);
//! let seen = Recorder::new();
//! let layer = RateLimitLayer::builder()
//!     .rule(Rule::new("fleet", TokenBucket::per_second(10)).backend(shared.clone()))
//!     .observer(seen.clone())
//!     .build()?;
//! let service = layer.layer(service_fn(async |_: Request<Body>| {
//!     Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
//! }));
//!
//! let answer = service.oneshot(Request::new(Body::empty())).await.unwrap();
//! assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(shared.charges().len(), 1);
//! assert!(matches!(seen.events()[..], [Event::Rejected { status: 429, .. }]));
//! # Ok::<(), tower_sluice::ConfigError>(())
//! # }).unwrap();
//! ```

use std::{
    collections::VecDeque,
    fmt,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    BackendError, BackendErrorKind, ConfigError, Decision, Observer,
    backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts},
    clock::{Clock, Nanos},
    decision::RuleDecision,
    event::{Admitted, Fault, Finished, Left, Outcome, Reason, Rejected, SetupFault},
};

/// A backend that gives the decisions it was told to give, and remembers what it was asked.
///
/// Decisions come from a list, in order, one per charge, or from a closure. Once a list is used up every
/// charge is allowed. Clones are one backend.
///
/// It answers at once, or, with [`delay`](Self::delay), after a sleep on a clock. A charge counts as seen
/// when it is asked, not when it is answered.
///
/// ```
/// use tower_sluice::backend::{Backend, Charge, LimiterId};
/// use tower_sluice::{Decision, clock::Nanos, testing::ScriptedBackend};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let backend = ScriptedBackend::from_fn(|charge| {
///     if charge.key == b"mallory" {
///         Decision::never(10, 0, Default::default())
///     } else {
///         Decision::allowed(10, 9, Default::default())
///     }
/// });
/// let charge = Charge::new(LimiterId(0), 1).key(b"alice");
/// let verdicts = backend.check(Nanos::ZERO, &[charge]).resolve().await?;
/// assert!(verdicts.all_allowed());
/// backend.undo(Nanos::ZERO, &[verdicts.as_slice()[0].receipt()]);
/// assert_eq!(backend.undone()[0].key, b"alice");
/// # Ok::<(), tower_sluice::BackendError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ScriptedBackend {
    shared: Arc<Scripted>,
    delay: Option<(Arc<dyn Clock>, Duration)>,
}

struct Scripted {
    script: Script,
    seen: Mutex<Seen>,
}

enum Script {
    List(Mutex<VecDeque<Decision>>),
    Closure(Box<dyn Fn(&SeenCharge) -> Decision + Send + Sync>),
}

#[derive(Default)]
struct Seen {
    specs: Vec<LimiterSpec>,
    checks: Vec<Vec<SeenCharge>>,
    undone: Vec<SeenCharge>,
    peeks: Vec<SeenCharge>,
    resets: Vec<SeenCharge>,
    serial: u64,
}

/// A charge as a [`ScriptedBackend`] has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeenCharge {
    /// Counts all charges this backend has seen, from 0; tells two equal ones apart.
    pub serial: u64,
    /// When it was asked.
    pub now: Nanos,
    /// The limiter.
    pub limiter: LimiterId,
    /// The key's bytes, as [`Charge::key_bytes`] gives them.
    pub key: Vec<u8>,
    /// Which of the limiter's quotas.
    pub quota: usize,
    /// The permits.
    pub cost: u64,
}

impl ScriptedBackend {
    /// A backend that allows everything.
    #[must_use]
    pub fn new() -> Self {
        Self::decisions([])
    }

    /// A backend that gives these decisions, in order, then allows everything.
    #[must_use]
    pub fn decisions(decisions: impl IntoIterator<Item = Decision>) -> Self {
        Self::scripted(Script::List(Mutex::new(decisions.into_iter().collect())))
    }

    /// A backend that decides by a closure.
    #[must_use]
    pub fn from_fn(decide: impl Fn(&SeenCharge) -> Decision + Send + Sync + 'static) -> Self {
        Self::scripted(Script::Closure(Box::new(decide)))
    }

    fn scripted(script: Script) -> Self {
        let seen = Mutex::default();
        Self { shared: Arc::new(Scripted { script, seen }), delay: None }
    }

    /// Answers after `delay` by `clock`, which should be the layer's. Default: at once.
    #[must_use]
    pub fn delay(self, clock: impl Clock, delay: Duration) -> Self {
        Self { delay: Some((Arc::new(clock), delay)), ..self }
    }

    /// The limiters registered, in order; the id of each is its index.
    #[must_use]
    pub fn specs(&self) -> Vec<LimiterSpec> {
        self.seen().specs.clone()
    }

    /// The calls of [`check`](Backend::check), each with its charges.
    #[must_use]
    pub fn checks(&self) -> Vec<Vec<SeenCharge>> {
        self.seen().checks.clone()
    }

    /// The charges of all checks.
    #[must_use]
    pub fn charges(&self) -> Vec<SeenCharge> {
        self.seen().checks.concat()
    }

    /// The charges undone, in the order of their receipts; one undone twice is there twice.
    #[must_use]
    pub fn undone(&self) -> Vec<SeenCharge> {
        self.seen().undone.clone()
    }

    /// The charges peeked at.
    #[must_use]
    pub fn peeks(&self) -> Vec<SeenCharge> {
        self.seen().peeks.clone()
    }

    /// The charges whose keys were reset.
    #[must_use]
    pub fn resets(&self) -> Vec<SeenCharge> {
        self.seen().resets.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.shared.seen)
    }

    fn decide(&self, charge: &SeenCharge) -> Decision {
        let listed = match &self.shared.script {
            Script::List(list) => lock(list).pop_front(),
            Script::Closure(decide) => Some(decide(charge)),
        };
        listed.unwrap_or_else(|| Decision::allowed(u64::MAX, u64::MAX, Duration::ZERO))
    }

    fn answer<T: Send + 'static>(&self, now: Nanos, value: T) -> Answer<T> {
        let Some((clock, delay)) = &self.delay else { return Answer::Ready(Ok(value)) };
        let sleep = clock.sleep_until(now + *delay);
        Answer::Pending(Box::pin(async move {
            sleep.await;
            Ok(value)
        }))
    }
}

impl Default for ScriptedBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Seen {
    fn number(&mut self, now: Nanos, charge: &Charge<'_>) -> SeenCharge {
        let serial = self.serial;
        self.serial += 1;
        SeenCharge {
            serial,
            now,
            limiter: charge.limiter(),
            key: charge.key_bytes().to_vec(),
            quota: charge.quota(),
            cost: charge.cost(),
        }
    }
}

impl Backend for ScriptedBackend {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        let mut seen = self.seen();
        seen.specs.push(spec.clone());
        Ok(spec.replaces().unwrap_or(LimiterId(seen.specs.len() as u64 - 1)))
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        let check: Vec<_> = {
            let mut seen = self.seen();
            let check: Vec<_> = charges.iter().map(|charge| seen.number(now, charge)).collect();
            seen.checks.push(check.clone());
            check
        };
        // The closure runs unlocked, so that it may look at what was seen.
        let verdict = |charge: &SeenCharge| {
            let receipt = Receipt::new(charge.limiter, [charge.serial, 0, 0, 0]);
            Verdict::new(self.decide(charge), receipt)
        };
        let verdicts: Verdicts = check.iter().map(verdict).collect();
        self.answer(now, verdicts)
    }

    fn undo(&self, _: Nanos, receipts: &[Receipt]) {
        let mut seen = self.seen();
        for receipt in receipts {
            let [serial, ..] = receipt.words();
            let made = seen.checks.iter().flatten().find(|charge| charge.serial == serial);
            if let Some(made) = made.cloned() {
                seen.undone.push(made);
            }
        }
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        let charge = {
            let mut seen = self.seen();
            let charge = seen.number(now, charge);
            seen.peeks.push(charge.clone());
            charge
        };
        let decision = self.decide(&charge);
        self.answer(now, decision)
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        let known = {
            let mut seen = self.seen();
            let charge = seen.number(now, charge);
            let same = |c: &SeenCharge| c.limiter == charge.limiter && c.key == charge.key;
            let known = seen.checks.iter().flatten().any(same);
            seen.resets.push(charge);
            known
        };
        self.answer(now, known)
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }
}

impl fmt::Debug for ScriptedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedBackend")
            .field("checks", &self.seen().checks.len())
            .finish_non_exhaustive()
    }
}

/// A backend that is away: every question gets an error of one kind. Clones are one backend.
///
/// ```
/// use tower_sluice::backend::{Backend, Charge, LimiterId};
/// use tower_sluice::{BackendErrorKind, clock::Nanos, testing::FailingBackend};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let backend = FailingBackend::new(BackendErrorKind::Timeout);
/// let answer = backend.check(Nanos::ZERO, &[Charge::new(LimiterId(0), 1)]).resolve().await;
/// assert_eq!(answer.unwrap_err().kind(), BackendErrorKind::Timeout);
/// assert_eq!(backend.checks(), 1);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct FailingBackend {
    kind: BackendErrorKind,
    checks: Arc<AtomicU64>,
}

impl FailingBackend {
    /// A backend whose errors are of `kind`.
    #[must_use]
    pub fn new(kind: BackendErrorKind) -> Self {
        Self { kind, checks: Arc::default() }
    }

    /// How often it was asked to check.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }

    fn fail<T>(&self) -> Answer<T> {
        Answer::Ready(Err(BackendError::new(self.kind, "this backend always fails")))
    }
}

impl Backend for FailingBackend {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, _: Nanos, _: &[Charge<'_>]) -> Answer<Verdicts> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.fail()
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        self.fail()
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        self.fail()
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.checks).addr()
    }
}

/// A backend that never answers. Clones are one backend.
///
/// ```
/// use tower_sluice::backend::{Answer, Backend, Charge, LimiterId};
/// use tower_sluice::{clock::Nanos, testing::StalledBackend};
///
/// let backend = StalledBackend::new();
/// let answer = backend.check(Nanos::ZERO, &[Charge::new(LimiterId(0), 1)]);
/// assert!(matches!(answer, Answer::Pending(_)));
/// assert_eq!(backend.checks(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct StalledBackend {
    checks: Arc<AtomicU64>,
}

impl StalledBackend {
    /// A backend that never answers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How often it was asked to check.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }
}

impl Backend for StalledBackend {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, _: Nanos, _: &[Charge<'_>]) -> Answer<Verdicts> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        Answer::Pending(Box::pin(pending()))
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Pending(Box::pin(pending()))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Pending(Box::pin(pending()))
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.checks).addr()
    }
}

/// An [`Observer`] that keeps what it is told. Clones share it. The [module page](self) has an example.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
}

/// What a [`Recorder`] was told, as owned values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// See [`Observer::admitted`].
    #[non_exhaustive]
    Admitted {
        /// What each rule that applied decided.
        decisions: Vec<RuleDecision>,
        /// Whether no rule applied because the request was exempt.
        exempt: bool,
        /// How long it waited, where it did.
        waited: Option<Duration>,
    },
    /// See [`Observer::fault`].
    #[non_exhaustive]
    Fault {
        /// What kind.
        fault: Fault,
        /// The rule concerned.
        rule: Option<String>,
    },
    /// See [`Observer::finished`].
    #[non_exhaustive]
    Finished {
        /// From admission to the end.
        elapsed: Duration,
        /// How it ended.
        outcome: Outcome,
    },
    /// See [`Observer::left`].
    #[non_exhaustive]
    Left {
        /// What it waited for.
        limit: String,
        /// For how long.
        waited: Duration,
    },
    /// See [`Observer::rejected`].
    #[non_exhaustive]
    Rejected {
        /// Why.
        reason: Reason,
        /// The status of the answer.
        status: u16,
        /// The rules that refuse.
        rules: Vec<RuleDecision>,
        /// What kind of failure the backend had.
        error: Option<BackendErrorKind>,
        /// Whether a degrade handler has answered.
        degraded: bool,
    },
}

impl Recorder {
    /// A recorder that was told nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// All events since the last call; they are forgotten.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.events))
    }

    /// The set-up faults raised so far.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let fault = |event: &Event| match event {
            Event::Fault { fault, .. } => Some(*fault),
            _ => None,
        };
        lock(&self.events).iter().filter_map(fault).collect()
    }

    fn push(&self, event: Event) {
        lock(&self.events).push(event);
    }
}

impl Observer for Recorder {
    fn admitted(&self, admitted: &Admitted<'_>) {
        self.push(Event::Admitted {
            decisions: admitted.decisions().to_vec(),
            exempt: admitted.is_exempt(),
            waited: admitted.waited(),
        });
    }

    fn rejected(&self, rejected: &Rejected<'_>) {
        self.push(Event::Rejected {
            reason: rejected.reason(),
            status: rejected.status(),
            rules: rejected.rules().to_vec(),
            error: rejected.error().map(BackendError::kind),
            degraded: rejected.is_degraded(),
        });
    }

    fn finished(&self, finished: &Finished) {
        self.push(Event::Finished { elapsed: finished.elapsed(), outcome: finished.outcome() });
    }

    fn left(&self, left: &Left<'_>) {
        self.push(Event::Left { limit: left.limit().to_owned(), waited: left.waited() });
    }

    fn fault(&self, fault: &SetupFault) {
        let rule = fault.rule().map(str::to_owned);
        self.push(Event::Fault { fault: fault.fault(), rule });
    }
}

/// Locks; what these locks guard is valid at every step, so a panicking test spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
