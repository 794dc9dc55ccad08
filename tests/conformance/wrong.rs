//! [`Wrong`]: backends that each break one promise.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use tower_sluice::{
    Algorithm, ConfigError, Decision, FixedWindow, TokenBucket,
    backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdict, Verdicts},
    clock::Nanos,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    AllowsOneTooMany,
    AlwaysHasRoomWithoutKeys,
    ChargesBeforeTheOthers,
    ChargesDenials,
    ChargesForNothing,
    ChargesLater,
    CountsFromZeroUtc,
    CountsWindowsAlone,
    DepartsTooLate,
    DoublesAfterPauses,
    ForgetsWhereReplaced,
    GivesBackAfterResets,
    GivesBackMore,
    GivesBackTheKey,
    HasOneIdentity,
    KeepsTheOldQuota,
    KeepsTheOldSecond,
    LooksAtTheFirstQuota,
    LooksOneByOne,
    MixesKeys,
    MixesLimiters,
    NeverKnows,
    NeverSaysNever,
    PanicsFarOut,
    PeekCharges,
    PeekSaysYes,
    PeeksAtTheFirstQuota,
    RemainsBefore,
    ResetsTheFirstQuota,
    ReversesVerdicts,
    SaysTheLimitAndOne,
    StartsAnewInThePast,
    TakesNothingForOne,
    TellsTooFew,
    WaitsTooShort,
    WindowsForLogs,
}

/// Which check has to catch which.
pub(crate) const FAULTS: [(Fault, &str); 39] = [
    (Fault::AllowsOneTooMany, "allows the limit, then denies"),
    (Fault::AlwaysHasRoomWithoutKeys, "counts without keys"),
    (Fault::ChargesBeforeTheOthers, "all charges are made, or none"),
    (Fault::ChargesBeforeTheOthers, "checks at once are made whole"),
    (Fault::ChargesDenials, "a denied check changes nothing"),
    (Fault::ChargesForNothing, "a cost of zero changes nothing"),
    (Fault::ChargesLater, "checks at once stay within the limit"),
    (Fault::CountsFromZeroUtc, "windows are aligned in UTC"),
    (Fault::DepartsTooLate, "departs within the longest wait"),
    (Fault::DoublesAfterPauses, "idleness earns the limit at most"),
    (Fault::ForgetsWhereReplaced, "a new quota keeps what is spent"),
    (Fault::GivesBackAfterResets, "undo after a reset is no gift"),
    (Fault::GivesBackMore, "undo is no gift"),
    (Fault::GivesBackMore, "undo of two charges is no gift"),
    (Fault::GivesBackMore, "undo after a new quota is no gift"),
    (Fault::GivesBackTheKey, "undo after later charges is no gift"),
    (Fault::HasOneIdentity, "backends are told apart"),
    (Fault::KeepsTheOldQuota, "a new quota holds"),
    (Fault::KeepsTheOldSecond, "a new quota holds"),
    (Fault::LooksAtTheFirstQuota, "quotas are counted apart"),
    (Fault::LooksOneByOne, "charges on one key count together"),
    (Fault::MixesKeys, "keys are counted apart"),
    (Fault::MixesLimiters, "limiters are counted apart"),
    (Fault::NeverKnows, "reset forgets a key"),
    (Fault::NeverSaysNever, "a cost above the limit never fits"),
    (Fault::PanicsFarOut, "far instants do not overflow"),
    (Fault::PeekCharges, "peek changes nothing"),
    (Fault::PeekSaysYes, "peek says what a check would get"),
    (Fault::PeeksAtTheFirstQuota, "quotas are counted apart"),
    (Fault::RemainsBefore, "remaining counts the charge"),
    (Fault::ResetsTheFirstQuota, "quotas are counted apart"),
    (Fault::ReversesVerdicts, "a verdict for each charge, in order"),
    (Fault::SaysTheLimitAndOne, "says the limit of the quota"),
    (Fault::StartsAnewInThePast, "time that goes backwards gives nothing"),
    (Fault::TakesNothingForOne, "a quota of nothing is refused"),
    (Fault::TellsTooFew, "a verdict for each charge, in order"),
    (Fault::WaitsTooShort, "retry_after is exact"),
    (Fault::WindowsForLogs, "keeps to the definition"),
    (Fault::WindowsForLogs, "retry_after is exact"),
];

type Seat = (LimiterId, Vec<u8>);

/// `Local`, and a fault.
pub(crate) struct Wrong {
    fault: Fault,
    local: Local,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What this backend calls a limiter -> what `Local` does.
    ids: Vec<LimiterId>,
    /// Permits that a key has too many.
    gifts: HashMap<Seat, u64>,
    /// When a key was seen last.
    seen: HashMap<Seat, Nanos>,
    /// Who was charged by which receipt, and how much.
    receipts: Vec<(Seat, u64)>,
}

fn ready<T>(answer: Answer<T>) -> T {
    match answer {
        Answer::Ready(Ok(value)) => value,
        _ => unreachable!("`Local` knows at once, and is asked of what it has registered"),
    }
}

fn seat(charge: &Charge<'_>) -> Seat {
    (charge.limiter(), charge.key_bytes().to_vec())
}

/// The same decision with other numbers.
fn with(decision: &Decision, limit: u64, remaining: u64, wait: Option<Duration>) -> Decision {
    let reset = decision.reset_after();
    match wait {
        _ if decision.is_allowed() => Decision::allowed(limit, remaining, reset),
        Some(wait) => Decision::denied(limit, remaining, wait, reset),
        None => Decision::never(limit, remaining, reset),
    }
}

impl Wrong {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault, local: Local::new(), state: Mutex::default() }
    }

    /// The charge as `Local` is asked.
    fn altered<'c>(&self, charge: &Charge<'c>) -> Charge<'c> {
        let id = self.state.lock().unwrap().ids[charge.limiter().0 as usize];
        let (mut key, mut cost, mut quota) = (charge.key_bytes(), charge.cost(), charge.quota());
        let mut limiter = id;
        match self.fault {
            Fault::MixesKeys => key = &key[..key.len().min(100)],
            Fault::MixesLimiters => limiter = LimiterId(0),
            Fault::LooksAtTheFirstQuota => quota = 0,
            Fault::ChargesForNothing => cost = cost.max(1),
            _ => {}
        }
        Charge::new(limiter, cost).key(key).quota_index(quota)
    }

    /// As `Local` does it.
    fn ask(&self, now: Nanos, charges: &[Charge<'_>]) -> Vec<Verdict> {
        let charges: Vec<_> = charges.iter().map(|charge| self.altered(charge)).collect();
        ready(self.local.check(now, &charges)).as_slice().to_vec()
    }

    fn look(&self, now: Nanos, charge: &Charge<'_>) -> Decision {
        ready(self.local.peek(now, &self.altered(charge)))
    }

    fn forget(&self, now: Nanos, charge: &Charge<'_>) -> bool {
        ready(self.local.reset(now, &self.altered(charge)))
    }

    /// Makes each charge that fits by itself.
    fn one_by_one(&self, now: Nanos, charges: &[Charge<'_>]) -> Vec<Verdict> {
        charges.iter().flat_map(|charge| self.ask(now, &[*charge])).collect()
    }

    /// What happens before the charge.
    fn before(&self, now: Nanos, charge: &Charge<'_>) {
        let seat = seat(charge);
        let seen = self.state.lock().unwrap().seen.insert(seat.clone(), now);
        let Some(seen) = seen else { return };
        let long = Duration::from_secs(86_400).as_nanos() as u64;
        if self.fault == Fault::StartsAnewInThePast && now < seen {
            self.forget(now, charge);
        }
        if self.fault == Fault::DoublesAfterPauses && now.since(seen).get() > long {
            let limit = self.look(now, charge).limit();
            self.state.lock().unwrap().gifts.insert(seat, limit);
        }
    }

    /// What becomes of the verdict.
    fn after(&self, now: Nanos, charge: &Charge<'_>, verdict: Verdict) -> Verdict {
        let decision = verdict.decision();
        let (limit, remaining) = (decision.limit(), decision.remaining());
        let wait = decision.retry_after();
        let changed = |decision| Verdict::new(decision, verdict.receipt());
        let mut state = self.state.lock().unwrap();
        let gift = state.gifts.entry(seat(charge)).or_default();
        let allowed = Decision::allowed(limit, remaining, decision.reset_after());
        if wait.is_some() && *gift >= charge.cost() {
            *gift -= charge.cost();
            return changed(allowed);
        }
        match self.fault {
            // Once, to each key.
            Fault::AllowsOneTooMany if wait.is_some() && charge.cost() == 1 => {
                let seat = (charge.limiter(), [charge.key_bytes(), b" once"].concat());
                if state.gifts.insert(seat, 0).is_none() {
                    return changed(allowed);
                }
            }
            Fault::AlwaysHasRoomWithoutKeys if charge.key_bytes().is_empty() => {
                return changed(Decision::allowed(limit, remaining, decision.reset_after()));
            }
            Fault::ChargesDenials if wait.is_some() => {
                drop(state);
                let rest = Charge::new(charge.limiter(), remaining).key(charge.key_bytes());
                let _ = self.ask(now, &[rest]);
            }
            Fault::DepartsTooLate if !charge.longest_wait().is_zero() => {
                return verdict.depart_after(charge.longest_wait() + Duration::from_nanos(1));
            }
            Fault::NeverSaysNever if decision.is_never() => {
                let second = Duration::from_secs(1);
                return changed(Decision::denied(limit, remaining, second, second));
            }
            Fault::RemainsBefore if decision.is_allowed() => {
                return changed(with(&decision, limit, remaining + charge.cost(), wait));
            }
            Fault::SaysTheLimitAndOne => {
                return changed(with(&decision, limit + 1, remaining, wait));
            }
            Fault::WaitsTooShort => {
                let wait = wait.map(|wait| wait - Duration::from_nanos(1));
                return changed(with(&decision, limit, remaining, wait));
            }
            Fault::GivesBackTheKey | Fault::GivesBackMore | Fault::GivesBackAfterResets => {
                state.receipts.push((seat(charge), charge.cost()));
                let number = state.receipts.len() as u64 - 1;
                return Verdict::new(decision, Receipt::new(charge.limiter(), [number, 0, 0, 0]));
            }
            _ => {}
        }
        verdict
    }
}

impl Backend for Wrong {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        let algorithm = spec.algorithm();
        let quota = algorithm.quota();
        let anew = |algorithm: Algorithm| {
            let spec = LimiterSpec::new(spec.name(), algorithm);
            self.local.register(&spec.keyed(1_000))
        };
        let mut state = self.state.lock().unwrap();
        if let Some(old) = spec.replaces() {
            let at = old.0 as usize;
            match self.fault {
                Fault::KeepsTheOldQuota => {}
                Fault::KeepsTheOldSecond if spec.quotas().len() > 1 => {}
                Fault::ForgetsWhereReplaced => state.ids[at] = anew(algorithm)?,
                _ => {
                    let _ = self.local.register(spec)?;
                }
            }
            return Ok(old);
        }
        let id = match (self.fault, algorithm) {
            (Fault::CountsFromZeroUtc, _) => anew(algorithm)?,
            (Fault::CountsWindowsAlone, Algorithm::FixedWindow(_)) => self.local.register(spec)?,
            (Fault::CountsWindowsAlone, _) => {
                return Err(ConfigError::new("algorithm", "another", "counts fixed windows alone"));
            }
            (Fault::TakesNothingForOne, _) if quota.permits() == 0 || quota.period().is_zero() => {
                anew(TokenBucket::per_second(1).into())?
            }
            (Fault::WindowsForLogs, Algorithm::SlidingLog(_)) => {
                anew(FixedWindow::new(quota.permits(), quota.period()).into())?
            }
            _ => self.local.register(spec)?,
        };
        state.ids.push(id);
        Ok(LimiterId(state.ids.len() as u64 - 1))
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        let far_out = now > Nanos::from(Duration::from_secs(39 * 365 * 86_400));
        assert!(self.fault != Fault::PanicsFarOut || !far_out, "far out");
        for charge in charges {
            self.before(now, charge);
        }
        let looked = |charge: &Charge<'_>| self.look(now, charge).is_allowed();
        let verdicts = match self.fault {
            Fault::ChargesBeforeTheOthers => self.one_by_one(now, charges),
            Fault::LooksOneByOne if charges.iter().all(looked) => {
                let verdicts = self.one_by_one(now, charges);
                let yes = |verdict: Verdict| {
                    let decision = verdict.decision();
                    let yes = Decision::allowed(decision.limit(), 0, decision.reset_after());
                    let told = if decision.is_allowed() { decision } else { yes };
                    Verdict::new(told, verdict.receipt())
                };
                verdicts.into_iter().map(yes).collect()
            }
            Fault::ChargesLater if charges.len() == 1 && looked(&charges[0]) => {
                let charge = self.altered(&charges[0]);
                let (local, key) = (self.local.clone(), charge.key_bytes().to_vec());
                let (id, cost, quota) = (charge.limiter(), charge.cost(), charge.quota());
                let looked = self.look(now, &charges[0]);
                return Answer::Pending(Box::pin(async move {
                    tokio::task::yield_now().await;
                    let charge = Charge::new(id, cost).key(&key).quota_index(quota);
                    let made = ready(local.check(now, &[charge]));
                    let verdict = made.as_slice()[0];
                    let decision = verdict.decision();
                    let told = if decision.is_allowed() { decision } else { looked };
                    Ok([Verdict::new(told, verdict.receipt())].into_iter().collect())
                }));
            }
            _ => self.ask(now, charges),
        };
        let mut verdicts: Vec<_> = charges
            .iter()
            .zip(verdicts)
            .map(|(charge, verdict)| self.after(now, charge, verdict))
            .collect();
        match self.fault {
            Fault::ReversesVerdicts => verdicts.reverse(),
            Fault::TellsTooFew if verdicts.len() > 1 => {
                verdicts.pop();
            }
            _ => {}
        }
        Answer::Ready(Ok(verdicts.into_iter().collect()))
    }

    fn undo(&self, now: Nanos, receipts: &[Receipt]) {
        let is_numbered = matches!(
            self.fault,
            Fault::GivesBackTheKey | Fault::GivesBackMore | Fault::GivesBackAfterResets
        );
        if !is_numbered {
            return self.local.undo(now, receipts);
        }
        for receipt in receipts {
            let number = receipt.words()[0] as usize;
            let (seat, cost) = self.state.lock().unwrap().receipts[number].clone();
            let (id, key) = &seat;
            if self.fault == Fault::GivesBackTheKey {
                self.forget(now, &Charge::new(*id, 1).key(key));
            } else {
                // Whether it was forgotten meanwhile or not.
                let more = u64::from(self.fault == Fault::GivesBackMore);
                *self.state.lock().unwrap().gifts.entry(seat).or_default() += cost + more;
            }
        }
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        let decision = match self.fault {
            Fault::PeekCharges => self.ask(now, &[*charge])[0].decision(),
            Fault::PeeksAtTheFirstQuota => self.look(now, &charge.quota_index(0)),
            _ => self.look(now, charge),
        };
        let (limit, remaining) = (decision.limit(), decision.remaining());
        let decision = match self.fault {
            Fault::PeekSaysYes => Decision::allowed(limit, remaining, Duration::ZERO),
            _ => decision,
        };
        Answer::Ready(Ok(decision))
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        let known = match self.fault {
            Fault::ResetsTheFirstQuota => self.forget(now, &charge.quota_index(0)),
            _ => self.forget(now, charge),
        };
        Answer::Ready(Ok(known && self.fault != Fault::NeverKnows))
    }

    fn identity(&self) -> usize {
        if self.fault == Fault::HasOneIdentity {
            return 7;
        }
        self.local.identity()
    }
}
