//! [`ScriptedBackend`]: a backend with given answers.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::lock;
use crate::{
    ConfigError, Decision,
    backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts},
    clock::{Clock, Nanos},
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
    departing: Duration,
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
///
/// ```
/// use tower_sluice::backend::{Backend, Charge, LimiterId};
/// use tower_sluice::{clock::Nanos, testing::ScriptedBackend};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let backend = ScriptedBackend::new();
/// backend.check(Nanos::ZERO, &[Charge::new(LimiterId(0), 5).key(b"alice")]).resolve().await?;
/// let charges = backend.charges();
/// assert_eq!((charges[0].key.as_slice(), charges[0].cost), (&b"alice"[..], 5));
/// # Ok::<(), tower_sluice::BackendError>(())
/// # }).unwrap();
/// ```
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
    /// How long the request may wait.
    pub longest_wait: Duration,
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
        Self { shared: Arc::new(Scripted { script, seen }), delay: None, departing: Duration::ZERO }
    }

    /// Answers after `delay` by `clock`, which should be the layer's. Default: at once.
    #[must_use]
    pub fn delay(self, clock: impl Clock, delay: Duration) -> Self {
        Self { delay: Some((Arc::new(clock), delay)), ..self }
    }

    /// Lets allowed requests that may wait depart after `wait`, or after their longest wait if that is less.
    /// Default: at once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::backend::{Backend, Charge, LimiterId};
    /// use tower_sluice::{clock::Nanos, testing::ScriptedBackend};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let second = Duration::from_secs(1);
    /// let backend = ScriptedBackend::new().departing(second);
    /// let charge = Charge::new(LimiterId(0), 1).waiting_at_most(2 * second);
    /// let verdicts = backend.check(Nanos::ZERO, &[charge]).resolve().await?;
    /// assert_eq!(verdicts.as_slice()[0].departure(), second);
    /// # Ok::<(), tower_sluice::BackendError>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn departing(self, wait: Duration) -> Self {
        Self { departing: wait, ..self }
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
            longest_wait: charge.longest_wait(),
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
            let departure = self.departing.min(charge.longest_wait);
            Verdict::new(self.decide(charge), receipt).depart_after(departure)
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
