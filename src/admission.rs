//! One decision over all rules of a layer.
//!
//! The order is the contract: (1) read every rule in this process, so that a refusal names each that
//! refuses, and stop if any does: nothing has been written; (2) charge them, newest undone first if one
//! refuses after all; (3) where a rule counts on another backend, hold instead of charging, ask, and
//! turn the holds into charges at the answer. A refusal leaves nothing charged in this process.

use std::{mem, sync::Arc};

use http::StatusCode;
use smallvec::SmallVec;

use crate::{
    BackendError, Decision, Head,
    backend::{
        Answer, Backend, Charge, LimiterId, Receipt, Verdicts,
        local::{Counter, Hold, Made, Seat},
    },
    clock::{BoxFuture, Nanos},
    core::Core,
    plan::{Count, Encoded, Planned, Remote, Whose},
};

/// What the rules decided. Rules are told by their index in the plan.
pub(crate) enum Outcome {
    /// All that applied are charged; what they decided, in no order, where somebody wants to know.
    Admitted(Vec<(u16, Decision)>),
    /// These refuse, in the order written; nothing is charged.
    Denied(SmallVec<[(u16, Decision); 1]>),
    /// The request has no key for this rule, which refuses it with this status.
    Keyless(u16, StatusCode),
    /// The backend of this rule could not answer; nothing is charged here.
    Failed(u16, BackendError),
}

/// An outcome, or the promise of one.
pub(crate) enum Decided {
    Now(Outcome),
    Later(BoxFuture<'static, Outcome>),
}

/// What one rule is asked: sixteen bytes beside the key's hash, so that eight fit in an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) rule: u16,
    pub(crate) seat: Seat,
    cost: u64,
}

/// One rule of several, and the charge on it: what it would do, then what it did.
struct Foreseen<'c> {
    asked: Asked,
    counter: &'c Counter,
    /// None where a charge must find out for itself, or is none.
    charge: Option<Made>,
}

type AllAsked = SmallVec<[Asked; 8]>;

impl Core {
    /// Decides over rules of this process alone, where there is just one: read and charge are one step.
    #[inline]
    pub(crate) fn decide_one(
        &self,
        rule: &Planned,
        head: &Head<'_>,
        now: Nanos,
    ) -> Option<Outcome> {
        let Count::Local(counter) = &rule.count else { return None };
        let seat = match self.whose(rule, head) {
            Whose::Of(seat) => seat,
            Whose::Nobodys => return None,
            Whose::Refused(status) => return Some(Outcome::Keyless(0, status)),
        };
        let cost = rule.cost(head);
        let charged = if cost == 0 { Ok(()) } else { counter.charge(seat, now, cost) };
        self.saw(rule, seat, now);
        match charged {
            Ok(()) => None,
            Err(denied) => {
                let decision = counter.explain(seat, denied, now, cost);
                Some(Outcome::Denied(smallvec::smallvec![(0, decision)]))
            }
        }
    }

    /// Decides over several rules of this process where nobody wants to know more than the verdict. Each is
    /// looked up once: what is read of it says what will be written if all allow.
    #[inline(never)]
    pub(crate) fn decide_several(&self, head: &Head<'_>, now: Nanos) -> Option<Outcome> {
        let mut all = SmallVec::<[Foreseen<'_>; 8]>::new();
        let mut fit = true;
        for (index, rule) in (0_u16..).zip(&self.plan.rules) {
            let Count::Local(counter) = &rule.count else { continue };
            let seat = match self.whose(rule, head) {
                Whose::Of(seat) => seat,
                Whose::Nobodys => continue,
                Whose::Refused(status) => return Some(Outcome::Keyless(index, status)),
            };
            let asked = Asked { rule: index, seat, cost: rule.cost(head) };
            self.saw(rule, seat, now);
            let charge = counter.foresee(seat, now, asked.cost);
            fit &= charge.is_ok();
            all.push(Foreseen { asked, counter, charge: charge.ok().flatten() });
        }
        if !fit {
            let asked: AllAsked = all.iter().map(|foreseen| foreseen.asked).collect();
            if let Some(denied) = self.refusals(&asked, now) {
                return Some(denied);
            }
        }
        for index in 0..all.len() {
            let Foreseen { asked, counter, charge } = &all[index];
            let made = match charge {
                Some(charge) if counter.make(asked.seat.quota, charge) => continue,
                _ if asked.cost == 0 => continue,
                _ => counter.charge(asked.seat, now, asked.cost),
            };
            match made {
                Ok(made) => all[index].charge = Some(made),
                Err(denied) => {
                    let decision = counter.explain(asked.seat, denied, now, asked.cost);
                    let denied = smallvec::smallvec![(asked.rule, decision)];
                    for Foreseen { asked, counter, charge } in all[..index].iter().rev() {
                        if let Some(made) = charge {
                            counter.undo(asked.seat.quota, made, now);
                        }
                    }
                    return Some(Outcome::Denied(denied));
                }
            }
        }
        None
    }

    /// Decides over all rules.
    pub(crate) fn decide_all(self: &Arc<Self>, head: &Head<'_>, now: Nanos) -> Decided {
        let (mut local, mut remote) = (AllAsked::new(), AllAsked::new());
        for (index, rule) in (0_u16..).zip(&self.plan.rules) {
            let seat = match self.whose(rule, head) {
                Whose::Of(seat) => seat,
                Whose::Nobodys => continue,
                Whose::Refused(status) => return Decided::Now(Outcome::Keyless(index, status)),
            };
            let asked = Asked { rule: index, seat, cost: rule.cost(head) };
            self.saw(rule, seat, now);
            match &rule.count {
                Count::Local(_) => local.push(asked),
                Count::Remote(_) => remote.push(asked),
            }
        }
        if let Some(denied) = self.read(&local, now) {
            return Decided::Now(denied);
        }
        if remote.is_empty() {
            return Decided::Now(self.charge(&local, now));
        }
        self.ask(local, &remote, head, now)
    }

    /// Whose permits the request spends on a rule; nobody's where the rule does not apply.
    #[inline(always)]
    fn whose(&self, rule: &Planned, head: &Head<'_>) -> Whose {
        if !rule.applies(head) {
            return Whose::Nobodys;
        }
        let whose = rule.whose(head);
        if !matches!(whose, Whose::Of(_)) {
            self.missed(rule);
        }
        whose
    }

    /// The counter of a rule in this process.
    fn counter(&self, asked: &Asked) -> Option<&Arc<Counter>> {
        match &self.plan.rules[usize::from(asked.rule)].count {
            Count::Local(counter) => Some(counter),
            Count::Remote(_) => None,
        }
    }

    /// Step 1: whether any refuses. Writes nothing.
    fn read(&self, local: &[Asked], now: Nanos) -> Option<Outcome> {
        let fits = |asked: &Asked| {
            self.counter(asked).is_none_or(|counter| counter.fits(asked.seat, now, asked.cost))
        };
        if local.iter().all(fits) { None } else { self.refusals(local, now) }
    }

    #[cold]
    fn refusals(&self, local: &[Asked], now: Nanos) -> Option<Outcome> {
        let denied: SmallVec<[_; 1]> = local
            .iter()
            .filter_map(|asked| {
                let decision = self.counter(asked)?.peek(asked.seat, now, asked.cost);
                (!decision.is_allowed()).then_some((asked.rule, decision))
            })
            .collect();
        // Empty where another thread gave permits back meanwhile: then the charge will tell.
        (!denied.is_empty()).then_some(Outcome::Denied(denied))
    }

    /// Step 2: charges all, or none.
    fn charge(&self, local: &[Asked], now: Nanos) -> Outcome {
        let mut made = SmallVec::<[(&Counter, usize, Made); 8]>::new();
        for asked in local {
            let Some(counter) = self.counter(asked).filter(|_| asked.cost > 0) else { continue };
            match counter.charge(asked.seat, now, asked.cost) {
                Ok(charge) => made.push((counter, asked.seat.quota, charge)),
                Err(denied) => {
                    let decision = counter.explain(asked.seat, denied, now, asked.cost);
                    for (counter, quota, charge) in made.iter().rev() {
                        counter.undo(*quota, charge, now);
                    }
                    return Outcome::Denied(smallvec::smallvec![(asked.rule, decision)]);
                }
            }
        }
        Outcome::Admitted(self.tell(local, now))
    }

    /// What the rules in this process decided, after their charges.
    fn tell(&self, local: &[Asked], now: Nanos) -> Vec<(u16, Decision)> {
        if !self.is_curious() {
            return Vec::new();
        }
        let decision = |asked: &Asked| {
            self.counter(asked).map(|counter| (asked.rule, counter.peek(asked.seat, now, 0)))
        };
        local.iter().filter_map(decision).collect()
    }

    /// Step 3: holds in this process, and asks the other backends, one call each.
    #[inline(never)]
    fn ask(
        self: &Arc<Self>,
        local: AllAsked,
        remote: &[Asked],
        head: &Head<'_>,
        now: Nanos,
    ) -> Decided {
        let mut held = Held {
            holds: SmallVec::new(),
            calls: Vec::new(),
            said: Vec::new(),
            core: Arc::clone(self),
        };
        for asked in &local {
            let Some(counter) = self.counter(asked) else { continue };
            match counter.hold(asked.seat, now, asked.cost) {
                Ok(hold) => held.holds.push((Arc::clone(counter), hold)),
                Err(decision) => {
                    return Decided::Now(Outcome::Denied(smallvec::smallvec![(
                        asked.rule, decision
                    )]));
                }
            }
        }
        for asked in remote {
            let rule = &self.plan.rules[usize::from(asked.rule)];
            let Count::Remote(Remote { backend, identity, id, .. }) = &rule.count else { continue };
            let item = CallItem { asked: *asked, limiter: *id, key: rule.key_bytes(head) };
            match held.calls.iter_mut().find(|call| call.identity == *identity) {
                Some(call) => call.items.push(item),
                None => held.calls.push(Call {
                    backend: Arc::clone(backend),
                    identity: *identity,
                    items: smallvec::smallvec![item],
                    receipts: SmallVec::new(),
                }),
            }
        }
        for index in 0..held.calls.len() {
            match held.calls[index].check(now) {
                Answer::Ready(answer) => {
                    if let Some(refusal) = held.settle(index, answer) {
                        return Decided::Now(refusal);
                    }
                }
                Answer::Pending(answer) => {
                    return Decided::Later(Box::pin(held.rest(index, answer, local)));
                }
            }
        }
        Decided::Now(held.admit(&local))
    }

    #[inline]
    fn saw(&self, rule: &Planned, seat: Seat, now: Nanos) {
        if rule.key.is_none() {
            return;
        }
        let fault = rule.watch.saw(seat.hash, now);
        let fault = match &rule.count {
            Count::Local(counter) if counter.has_overflowed(seat.quota) => {
                rule.watch.overflowed().or(fault)
            }
            _ => fault,
        };
        if let Some(fault) = fault {
            self.watch.raise(fault, Some(&rule.name));
        }
    }

    #[cold]
    fn missed(&self, rule: &Planned) {
        if let Some(fault) = rule.watch.missed() {
            self.watch.raise(fault, Some(&rule.name));
        }
    }
}

/// What one request has set aside and charged elsewhere, until all is decided. Dropped before that, it
/// gives back what it can: that is all there is to cancel safety.
struct Held {
    holds: SmallVec<[(Arc<Counter>, Hold); 4]>,
    calls: Vec<Call>,
    /// What the backends decided that allow the request.
    said: Vec<(u16, Decision)>,
    core: Arc<Core>,
}

/// One call on one backend: all charges of the request there.
struct Call {
    backend: Arc<dyn Backend>,
    identity: usize,
    items: SmallVec<[CallItem; 4]>,
    /// Of an allowed check, until the request is admitted.
    receipts: SmallVec<[Receipt; 4]>,
}

struct CallItem {
    asked: Asked,
    limiter: LimiterId,
    key: Encoded,
}

impl Call {
    fn check(&self, now: Nanos) -> Answer<Verdicts> {
        let charges: SmallVec<[Charge<'_>; 8]> = self
            .items
            .iter()
            .map(|item| {
                Charge::new(item.limiter, item.asked.cost)
                    .key(item.key.as_bytes())
                    .quota_index(item.asked.seat.quota)
            })
            .collect();
        self.backend.check(now, &charges)
    }
}

impl Held {
    /// Takes a backend's answer; an outcome where it refuses.
    fn settle(&mut self, index: usize, answer: Result<Verdicts, BackendError>) -> Option<Outcome> {
        let call = &mut self.calls[index];
        let first = call.items.first().map_or(0, |item| item.asked.rule);
        let verdicts = match answer {
            Ok(verdicts) => verdicts,
            Err(error) => return Some(Outcome::Failed(first, error)),
        };
        let verdicts = verdicts.as_slice();
        if verdicts.len() != call.items.len() {
            let text = format!("{} charges got {} verdicts", call.items.len(), verdicts.len());
            let kind = crate::BackendErrorKind::Protocol;
            return Some(Outcome::Failed(first, BackendError::new(kind, text)));
        }
        let decided = call.items.iter().zip(verdicts);
        let decided = decided.map(|(item, verdict)| (item.asked.rule, verdict.decision()));
        let denied: SmallVec<[_; 1]> =
            decided.clone().filter(|(_, decision)| !decision.is_allowed()).collect();
        if !denied.is_empty() {
            return Some(Outcome::Denied(denied));
        }
        self.said.extend(decided);
        call.receipts = verdicts.iter().map(|verdict| verdict.receipt()).collect();
        None
    }

    /// Waits for the answer of one call, then makes the others.
    async fn rest(
        mut self,
        index: usize,
        answer: BoxFuture<'static, Result<Verdicts, BackendError>>,
        local: AllAsked,
    ) -> Outcome {
        if let Some(refusal) = self.settle(index, answer.await) {
            return refusal;
        }
        for next in index + 1..self.calls.len() {
            let answer = self.calls[next].check(self.core.time.now());
            if let Some(refusal) = self.settle(next, answer.resolve().await) {
                return refusal;
            }
        }
        self.admit(&local)
    }

    /// Turns holds into charges. From here on nothing is given back.
    fn admit(mut self, local: &[Asked]) -> Outcome {
        let now = self.core.time.now();
        for (counter, hold) in self.holds.drain(..) {
            counter.commit(&hold, now);
        }
        self.calls.clear();
        let mut said = mem::take(&mut self.said);
        said.extend(self.core.tell(local, now));
        Outcome::Admitted(said)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let now = self.core.time.now();
        for (counter, hold) in self.holds.drain(..).rev() {
            counter.release(&hold);
        }
        for call in self.calls.iter().rev().filter(|call| !call.receipts.is_empty()) {
            call.backend.undo(now, &call.receipts);
        }
    }
}
