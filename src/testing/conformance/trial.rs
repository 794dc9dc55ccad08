//! [`Trial`]: one check's own backend, asked so that each answer is looked at.

use std::{
    any::Any,
    fmt::Display,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use super::model::{DAY, Expected, History, Model};
use crate::{
    Algorithm, BackendError, ConfigError, Decision, Quota,
    backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts},
    clock::{BoxFuture, Nanos},
};

/// Makes a backend that shares nothing with another.
pub(super) type Make = dyn Fn() -> Arc<dyn Backend> + Send + Sync;

/// Why a check did not come to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// A promise is broken.
    Broken(String),
    /// The backend does not count this.
    Refused(ConfigError),
    /// There is nothing to check for this algorithm.
    Pointless,
}

pub(super) type Tried<T = ()> = Result<T, Stop>;

/// Ends a check unless the first holds; the rest says what is wrong.
macro_rules! demand {
    ($holds:expr, $($said:tt)+) => {
        if !$holds {
            return Err($crate::testing::conformance::trial::Stop::Broken(format!($($said)+)));
        }
    };
}
pub(super) use demand;

impl From<ConfigError> for Stop {
    fn from(error: ConfigError) -> Self {
        Self::Refused(error)
    }
}

pub(super) fn failed(error: &BackendError) -> Stop {
    let cause = std::error::Error::source(error).map(|cause| format!(" ({cause})"));
    Stop::Broken(format!("expected an answer, got an error: {error}{}", cause.unwrap_or_default()))
}

/// What a check is tried on.
pub(super) struct Trial<'a> {
    pub(super) make: &'a Make,
    pub(super) algorithm: Algorithm,
    /// In nanoseconds.
    pub(super) tick: u64,
}

/// A limiter on a backend of its own, or on one that others share; with keys, unless its spec says otherwise.
#[derive(Clone)]
pub(super) struct Limited {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) id: LimiterId,
    pub(super) model: Model,
}

/// Ten years: windows may lie before it.
const BASE: u64 = 3_650 * DAY;

/// What a limiter with keys is, for a backend.
pub(super) fn keyed(name: &str, algorithm: Algorithm) -> LimiterSpec {
    LimiterSpec::new(name, algorithm).keyed(1_000)
}

impl Trial<'_> {
    pub(super) fn spec(&self, name: &str) -> LimiterSpec {
        keyed(name, self.algorithm)
    }

    /// A new limiter on a new backend.
    pub(super) fn limited(&self) -> Tried<Limited> {
        self.with(&self.spec("tried"))
    }

    /// The same by a spec.
    pub(super) fn with(&self, spec: &LimiterSpec) -> Tried<Limited> {
        self.on(&(self.make)(), spec)
    }

    /// A new limiter on this backend.
    pub(super) fn on(&self, backend: &Arc<dyn Backend>, spec: &LimiterSpec) -> Tried<Limited> {
        let id = backend.register(spec)?;
        let utc = u64::try_from(spec.utc_at_zero.as_nanos()).unwrap_or(0);
        let model = Model::new(&spec.algorithm, utc, self.tick);
        Ok(Limited { backend: backend.clone(), id, model })
    }

    /// Two limiters on one backend.
    pub(super) fn two(&self) -> Tried<[Limited; 2]> {
        let one = self.with(&self.spec("one"))?;
        let other = self.on(&one.backend, &self.spec("other"))?;
        demand!(one.id != other.id, "expected an id for each limiter, got {:?} twice", one.id);
        Ok([one, other])
    }

    /// The limit of the same algorithm with another quota.
    pub(super) fn limit_of(&self, quota: Quota) -> u64 {
        Model::new(&self.of(quota), 0, self.tick).limit
    }

    /// The same algorithm with another quota.
    pub(super) fn of(&self, quota: Quota) -> Algorithm {
        self.algorithm.with_quota(quota)
    }

    /// An instant for a check to begin at: within a window, wherever windows are.
    pub(super) fn base(&self) -> u64 {
        self.whole_ticks(BASE + self.part(1, 3))
    }

    /// So much of the period, in whole ticks.
    pub(super) fn part(&self, numerator: u64, denominator: u64) -> u64 {
        let period = self.algorithm.quota().period().as_nanos();
        let part = period * u128::from(numerator) / u128::from(denominator);
        self.whole_ticks(u64::try_from(part).unwrap_or(u64::MAX / 4))
    }

    fn whole_ticks(&self, nanos: u64) -> u64 {
        nanos / self.tick * self.tick
    }
}

impl Limited {
    pub(super) fn limit(&self) -> u64 {
        self.model.limit
    }

    pub(super) fn charge<'k>(&self, key: &'k [u8], cost: u64) -> Charge<'k> {
        Charge::new(self.id, cost).key(key)
    }

    /// Checks these charges, which may be of other limiters too.
    pub(super) async fn check(&self, now: u64, charges: &[Charge<'_>]) -> Tried<Verdicts> {
        let answer = self.backend.check(Nanos::new(now), charges).resolve().await;
        looked_at(charges, answer)
    }

    /// Checks one charge.
    pub(super) async fn take(&self, now: u64, charge: Charge<'_>) -> Tried<Verdict> {
        let verdicts = self.check(now, &[charge]).await?;
        // `check` has seen that there is one.
        verdicts.as_slice().first().copied().ok_or(Stop::Pointless)
    }

    /// Checks one charge that must be allowed.
    pub(super) async fn granted(&self, now: u64, key: &[u8], cost: u64) -> Tried<Verdict> {
        let verdict = self.take(now, self.charge(key, cost)).await?;
        let decision = verdict.decision();
        demand!(
            decision.is_allowed(),
            "a new key, a charge of {cost}: expected allowed, got {}",
            said(&decision)
        );
        Ok(verdict)
    }

    pub(super) async fn ask(&self, now: u64, key: &[u8], cost: u64) -> Tried<Decision> {
        Ok(self.take(now, self.charge(key, cost)).await?.decision())
    }

    pub(super) async fn peek(&self, now: u64, charge: Charge<'_>) -> Tried<Decision> {
        let answer = self.backend.peek(Nanos::new(now), &charge);
        answer.resolve().await.map_err(|error| failed(&error))
    }

    pub(super) async fn reset(&self, now: u64, charge: Charge<'_>) -> Tried<bool> {
        let answer = self.backend.reset(Nanos::new(now), &charge);
        answer.resolve().await.map_err(|error| failed(&error))
    }

    pub(super) fn undo(&self, now: u64, receipt: Receipt) {
        self.backend.undo(Nanos::new(now), &[receipt]);
    }

    /// Spends all that can be spent, and says how much that was.
    pub(super) async fn drain(&self, now: u64, key: &[u8]) -> Tried<u64> {
        let (limit, mut spent) = (self.limit(), 0_u64);
        // One by one, save where that would take all day.
        let mut cost = if limit <= 100 { 1 } else { 1 << limit.ilog2() };
        loop {
            let decision = self.ask(now, key, cost).await?;
            if decision.is_allowed() {
                spent = spent.saturating_add(cost);
                let gone = spent > limit.saturating_mul(2).saturating_add(1);
                demand!(!gone, "expected {limit} permits at one instant and no more, got no end");
            } else if cost > 1 {
                cost /= 2;
            } else {
                return Ok(spent);
            }
        }
    }

    /// Drains, and demands that it is `expected`.
    pub(super) async fn drains(
        &self,
        now: u64,
        key: &[u8],
        expected: u64,
        when: impl Display,
    ) -> Tried {
        let got = self.drain(now, key).await?;
        demand!(got == expected, "{when}: expected {expected} permits to be had, got {got}");
        Ok(())
    }

    /// Demands that a backend's answer is the model's.
    pub(super) fn agrees(&self, expected: Expected, got: &Decision, when: impl Display) -> Tried {
        let wait = got.retry_after().map(|wait| wait.as_nanos());
        let agrees = match expected {
            Expected::Allowed => got.is_allowed(),
            Expected::Never => got.is_never(),
            // Finer than a tick is as good.
            Expected::Denied(expected) => {
                wait.is_some_and(|wait| self.model.ticks_up(wait) == u128::from(expected))
            }
        };
        let expected = match expected {
            Expected::Allowed => "allowed".to_owned(),
            Expected::Never => "denied as never".to_owned(),
            Expected::Denied(wait) => format!("denied for {:?}", Duration::from_nanos(wait)),
        };
        demand!(agrees, "{when}: expected {expected}, got {}", said(got));
        Ok(())
    }
}

/// A decision in words.
pub(super) fn said(decision: &Decision) -> String {
    match decision.retry_after() {
        _ if decision.is_allowed() => "allowed".to_owned(),
        Some(wait) => format!("denied for {wait:?}"),
        None => "denied as never".to_owned(),
    }
}

/// A key's history beside the backend's own.
pub(super) struct Beside<'a> {
    pub(super) limited: &'a Limited,
    pub(super) key: Vec<u8>,
    pub(super) history: History,
}

impl<'a> Beside<'a> {
    pub(super) fn new(limited: &'a Limited, key: impl Into<Vec<u8>>) -> Self {
        Self { limited, key: key.into(), history: History::default() }
    }

    /// Asks both, and demands that they agree, on what is left too.
    pub(super) async fn ask(&mut self, now: u64, cost: u64, when: &str) -> Tried {
        let model = &self.limited.model;
        let expected = model.decide(&self.history, now, cost);
        let got = self.limited.ask(now, &self.key, cost).await?;
        self.limited.agrees(expected, &got, format_args!("{when}, a charge of {cost}"))?;
        if expected == Expected::Allowed {
            self.history.spend(now, cost);
        }
        let (left, remaining) = (model.free(&self.history, now), got.remaining());
        demand!(
            left == remaining,
            "{when}, after a charge of {cost}: expected remaining {left}, got {remaining}"
        );
        Ok(())
    }
}

/// What holds for every answer of a check.
fn looked_at(charges: &[Charge<'_>], answer: Result<Verdicts, BackendError>) -> Tried<Verdicts> {
    let verdicts = answer.map_err(|error| failed(&error))?;
    let (asked, got) = (charges.len(), verdicts.as_slice().len());
    demand!(asked == got, "expected a verdict for each charge, {asked} in all, got {got}");
    for (charge, verdict) in charges.iter().zip(verdicts.as_slice()) {
        let decision = verdict.decision();
        let (limit, remaining) = (decision.limit(), decision.remaining());
        demand!(remaining <= limit, "expected remaining in 0..={limit}, got {remaining}");
        demand!(
            decision.retry_after() != Some(Duration::ZERO),
            "expected a wait above zero where a charge is denied, got a denial for no time"
        );
        let (departure, longest) = (verdict.departure(), charge.longest_wait());
        demand!(
            !decision.is_allowed() || departure <= longest,
            "expected a departure within the longest wait, {longest:?}, got {departure:?}"
        );
    }
    Ok(verdicts)
}

/// Polls many answers, turn and turn about from either end, until all are there.
pub(super) async fn interleaved(
    charges: &[Charge<'_>],
    answers: Vec<Answer<Verdicts>>,
) -> Tried<Vec<Verdicts>> {
    type Pending = Pin<Box<dyn Future<Output = Result<Verdicts, BackendError>> + Send>>;
    let mut pending: Vec<Pending> = Vec::new();
    for answer in answers {
        pending.push(Box::pin(answer.resolve()));
    }
    let mut done: Vec<Option<Result<Verdicts, BackendError>>> = Vec::new();
    done.resize_with(pending.len(), || None);
    let mut backwards = false;
    let all = poll_fn(move |cx| {
        backwards = !backwards;
        for step in 0..pending.len() {
            let turn = if backwards { pending.len() - 1 - step } else { step };
            if done[turn].is_none()
                && let Poll::Ready(answer) = pending[turn].as_mut().poll(cx)
            {
                done[turn] = Some(answer);
            }
        }
        if done.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(done.iter_mut().filter_map(Option::take).collect::<Vec<_>>())
    });
    all.await.into_iter().map(|answer| looked_at(charges, answer)).collect()
}

/// Runs a check; a panic under it is the backend's, and ends this check alone.
pub(super) async fn caught(mut check: BoxFuture<'_, Tried>) -> Tried {
    poll_fn(move |cx| {
        catch_unwind(AssertUnwindSafe(|| check.as_mut().poll(cx))).unwrap_or_else(|panic| {
            let text = said_by(&*panic);
            Poll::Ready(Err(Stop::Broken(format!("expected an answer, got a panic: {text}"))))
        })
    })
    .await
}

fn said_by(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of another kind")
}
