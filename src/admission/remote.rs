//! Asking other backends, with what counts here set aside meanwhile.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use smallvec::SmallVec;

use super::{Admission, AllAsked, Asked, Decided, Denial, Denied, Outcome, place::Waits};
use crate::{
    BackendError, Decision,
    backend::{Answer, Backend, Charge, LimiterId, Receipt, Verdicts, local::Hold},
    clock::{BoxFuture, Nanos},
    core::Core,
    in_flight::Lent,
    plan::{Encoded, Remote},
    rejection::Step,
    waiting::{Limit, Sleeping, Timer},
};

/// One call on one backend: all charges of the request there.
pub(super) struct Call {
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
    /// Adds a charge, to the call on its backend if there is one already.
    pub(super) fn add(calls: &mut Vec<Self>, remote: &Remote, asked: Asked, key: Encoded) {
        let Remote { backend, identity, id, .. } = remote;
        let item = CallItem { asked, limiter: *id, key };
        match calls.iter_mut().find(|call| call.identity == *identity) {
            Some(call) => call.items.push(item),
            None => calls.push(Self {
                backend: Arc::clone(backend),
                identity: *identity,
                items: smallvec::smallvec![item],
                receipts: SmallVec::new(),
            }),
        }
    }

    /// What it asks of this rule.
    pub(super) fn asked(&self, rule: u16) -> Option<&Asked> {
        self.items.iter().map(|item| &item.asked).find(|asked| asked.rule == rule)
    }

    /// Who of its rules denies because others wait to ask again, before whom a newcomer must not ask.
    pub(super) fn waited_for(&self, core: &Core, now: Nanos) -> impl Iterator<Item = Denial> {
        self.items.iter().filter_map(move |CallItem { asked, .. }| {
            let remote = core.remote(asked.rule)?;
            let first = remote.waiting.first(asked.seat)?;
            Some(Denial::of(asked.rule, remote.denied(asked.seat.quota, first.since(now))))
        })
    }

    /// What one is told who waited for this rule in vain.
    pub(super) fn denied(&self, core: &Core, rule: u16, now: Nanos) -> Option<Decision> {
        let (asked, remote) = (self.asked(rule)?, core.remote(rule)?);
        let first = remote.waiting.first(asked.seat).unwrap_or(now);
        Some(remote.denied(asked.seat.quota, first.since(now)))
    }

    /// The rule that an error concerns: the first, unless it says which.
    fn rule_of(&self, error: &BackendError) -> u16 {
        let concerned = |item: &&CallItem| error.limiter() == Some(item.limiter.0);
        self.items.iter().find(concerned).map_or(self.first_rule(), |item| item.asked.rule)
    }

    fn first_rule(&self) -> u16 {
        self.items.first().map_or(0, |item| item.asked.rule)
    }

    fn check(&self, now: Nanos, longest: impl Fn(u16) -> Duration) -> Answer<Verdicts> {
        let charges: SmallVec<[Charge<'_>; 8]> = self
            .items
            .iter()
            .map(|item| {
                Charge::new(item.limiter, item.asked.cost)
                    .key(item.key.as_bytes())
                    .quota_index(item.asked.seat.quota)
                    .waiting_at_most(longest(item.asked.rule))
            })
            .collect();
        self.backend.check(now, &charges)
    }
}

/// What one request has set aside and charged elsewhere, until all is decided. Dropped before that, it
/// gives back what it can: that is all there is to cancel safety.
pub(super) struct Held {
    core: Arc<Core>,
    local: AllAsked,
    lent: Lent,
    holds: SmallVec<[(Arc<Limit>, Hold); 4]>,
    calls: Vec<Call>,
    /// What the backends decided that allow the request.
    said: Vec<(u16, Decision)>,
    /// The last instant that a backend wants it to wait for although it is allowed, and for which rule.
    departure: Option<(Nanos, u16)>,
}

impl Held {
    /// Sets aside what counts here, or says who refuses, with the calls.
    pub(super) fn new(
        core: &Arc<Core>,
        local: &[Asked],
        lent: Lent,
        calls: Vec<Call>,
        now: Nanos,
    ) -> Result<Self, (Denial, Vec<Call>)> {
        let mut held = Self {
            core: Arc::clone(core),
            local: local.into(),
            lent,
            holds: SmallVec::new(),
            calls,
            said: Vec::new(),
            departure: None,
        };
        for asked in local {
            let Some(limit) = core.limit(asked) else { continue };
            match limit.counter.hold(asked.seat, now, asked.cost) {
                Ok(hold) => held.holds.push((Arc::clone(limit), hold)),
                Err(decision) => {
                    return Err((Denial::of(asked.rule, decision), held.let_go()));
                }
            }
        }
        Ok(held)
    }

    /// Asks for a newcomer: at once as far as backends answer at once.
    pub(super) fn ask(mut self, now: Nanos) -> Decided {
        for index in 0..self.calls.len() {
            match self.calls[index].check(now, |rule| self.core.first_wait(rule)) {
                Answer::Ready(answer) => {
                    if let Some(refusal) = self.settle(index, now, answer) {
                        return Decided::Now(refusal);
                    }
                }
                Answer::Pending(answer) => {
                    return Decided::Later(Box::pin(self.rest(index, now, answer)));
                }
            }
        }
        if self.departure.is_some() {
            return Decided::Later(Box::pin(self.depart()));
        }
        Decided::Now(Outcome::Admitted(self.admit()))
    }

    /// Waits for the answer of one call, then makes the others.
    async fn rest(
        mut self,
        index: usize,
        asked: Nanos,
        answer: BoxFuture<'static, Result<Verdicts, BackendError>>,
    ) -> Outcome {
        let first = self.calls[index].first_rule();
        let mut waits = Waits::new(&self.core, first, None, asked);
        let refusal = self.answers(index, asked, answer).await;
        waits.is_over();
        match refusal {
            Some(refusal) => refusal,
            None => self.depart().await,
        }
    }

    /// The answers of this call and of those after it; an outcome where a backend refuses.
    async fn answers(
        &mut self,
        index: usize,
        asked: Nanos,
        answer: BoxFuture<'static, Result<Verdicts, BackendError>>,
    ) -> Option<Outcome> {
        let mut refusal = self.settle(index, asked, answer.await);
        for next in index + 1..self.calls.len() {
            if refusal.is_some() {
                break;
            }
            let (core, asked) = (Arc::clone(&self.core), self.core.time.now());
            let answer = self.calls[next].check(asked, |rule| core.first_wait(rule));
            refusal = self.settle(next, asked, answer.resolve().await);
        }
        refusal
    }

    /// Asks for one who waits, until then at the longest; an error with the outcome where a backend refuses, and
    /// without one where it does not answer in time.
    pub(super) async fn ask_waiting(&mut self, until: Nanos) -> Result<(), Option<Outcome>> {
        let mut timer = Timer::new(self.core.time.clone());
        for index in 0..self.calls.len() {
            let asked = self.core.time.now();
            let answer = self.calls[index].check(asked, |_| until.since(asked).into());
            let mut answer = pin!(answer.resolve());
            let in_time = poll_fn(|cx| match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                // Whether it is the end of the wait, or the timer is not the clock's.
                Poll::Pending => timer.poll_until(until, cx).map(|_| None),
            });
            let answer = in_time.await.ok_or(None)?;
            if let Some(refusal) = self.settle(index, asked, answer) {
                return Err(Some(refusal));
            }
        }
        Ok(())
    }

    /// Takes a backend's answer; an outcome where it refuses.
    fn settle(
        &mut self,
        index: usize,
        asked: Nanos,
        answer: Result<Verdicts, BackendError>,
    ) -> Option<Outcome> {
        let call = &mut self.calls[index];
        let first = call.first_rule();
        let verdicts = match answer {
            Ok(verdicts) => verdicts,
            Err(error) => return Some(Outcome::Failed(call.rule_of(&error), error)),
        };
        let verdicts = verdicts.as_slice();
        if verdicts.len() != call.items.len() {
            let text = format!("{} charges got {} verdicts", call.items.len(), verdicts.len());
            let kind = crate::BackendErrorKind::Protocol;
            return Some(Outcome::Failed(first, BackendError::new(kind, text)));
        }
        let decided = call.items.iter().zip(verdicts);
        let denied: Denied = decided
            .clone()
            .filter(|(_, verdict)| !verdict.decision().is_allowed())
            .map(|(item, verdict)| Denial::of(item.asked.rule, verdict.decision()))
            .collect();
        if !denied.is_empty() {
            return Some(Outcome::Denied(denied));
        }
        for (item, verdict) in decided {
            self.said.push((item.asked.rule, verdict.decision()));
            // Counted from when it was asked: that is what it was told of the longest wait.
            let departure = asked + verdict.departure();
            if departure > self.departure.map_or(asked, |(last, _)| last) {
                self.departure = Some((departure, item.asked.rule));
            }
        }
        call.receipts = verdicts.iter().map(|verdict| verdict.receipt()).collect();
        None
    }

    /// Waits for its departure, if a backend wants that, and goes.
    async fn depart(mut self) -> Outcome {
        let Some((departure, rule)) = self.departure else {
            return Outcome::Admitted(self.admit());
        };
        let now = self.core.time.now();
        let wait = departure.since(now);
        let place = self.core.first_queue(rule).and_then(|(_, depth)| self.place(rule, depth));
        let Some(place) = place else { return self.no_place(rule, wait) };
        let mut waits = Waits::new(&self.core, rule, Some(place), now);
        if !self.sleep(departure).await {
            waits.is_over();
            return self.no_place(rule, wait);
        }
        waits.is_over();
        let mut admission = self.admit();
        admission.waited = Some(self.core.time.now().since(now));
        Outcome::Admitted(admission)
    }

    pub(super) fn no_place(&self, rule: u16, wait: Nanos) -> Outcome {
        let said = self.said.iter().find(|(said, _)| *said == rule);
        let mut denial = Denial { number: rule, decision: said.map(|(_, decision)| *decision) };
        if let Some(decision) = &mut denial.decision {
            decision.deny(wait);
        }
        Outcome::denied(denial)
    }

    /// A place to wait in for a departure.
    pub(super) fn place(&self, rule: u16, depth: u64) -> Option<Sleeping> {
        let asked = self.calls.iter().find_map(|call| call.asked(rule))?;
        let remote = self.core.remote(rule)?;
        remote.waiting.depart(asked.seat, self.core.depth(rule, depth))
    }

    /// The last instant that a backend wants it to wait for although it is allowed, and for which rule.
    pub(super) fn departure(&self) -> Option<(Nanos, u16)> {
        self.departure
    }

    /// Sleeps until its departure; false where the timer is not the clock's.
    pub(super) async fn departed(&mut self) -> bool {
        match self.departure {
            Some((departure, _)) => self.sleep(departure).await,
            None => true,
        }
    }

    async fn sleep(&self, until: Nanos) -> bool {
        let mut timer = Timer::new(self.core.time.clone());
        let slept = poll_fn(|cx| timer.poll_until(until, cx)).await;
        if slept.is_err() {
            self.core.is_stuck();
        }
        slept.is_ok()
    }

    /// Turns holds into charges. From here on nothing is given back.
    pub(super) fn admit(&mut self) -> Admission {
        let now = self.core.time.now();
        for (limit, hold) in self.holds.drain(..) {
            limit.counter.commit(&hold, now);
        }
        self.calls.clear();
        let mut said = mem::take(&mut self.said);
        said.extend(self.core.tell(&self.local, now));
        Admission { said, lent: mem::take(&mut self.lent), waited: None }
    }

    /// Gives back what is held and charged; the calls, to make them again.
    pub(super) fn let_go(mut self) -> Vec<Call> {
        self.give_back();
        let mut calls = mem::take(&mut self.calls);
        for call in &mut calls {
            call.receipts.clear();
        }
        calls
    }

    fn give_back(&mut self) {
        let now = self.core.time.now();
        for (limit, hold) in self.holds.drain(..).rev() {
            limit.counter.release(&hold);
        }
        for call in self.calls.iter().rev().filter(|call| !call.receipts.is_empty()) {
            call.backend.undo(now, &call.receipts);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Core {
    /// How long a newcomer may be told to wait by the backend of this rule: as long as its chain begins with.
    fn first_wait(&self, rule: u16) -> Duration {
        self.first_queue(rule).map_or(Duration::ZERO, |(longest, _)| longest)
    }

    /// The longest wait for this rule and how many may wait, where its chain begins with a queue.
    fn first_queue(&self, rule: u16) -> Option<(Duration, u64)> {
        match self.plan.refuser(rule).policy.steps().first() {
            Some(Step::Queue { longest, depth }) => Some((*longest, *depth)),
            _ => None,
        }
    }
}
