//! [`Pursuit`]: the way of a request that does not fit along the chain of a rejection policy.

use std::sync::Arc;

use axum_core::body::Body;
use http::{Request, Response};

use super::{Later, Refused, Unmatched, Verdict};
use crate::{
    BackendError, Head, Rejection,
    admission::{Denied, Outcome, Waits},
    clock::{BoxFuture, Nanos},
    core::Core,
    in_flight::Permit,
    rejection::{Declined, Degrading, Step},
    response::grpc,
};

/// How far along which chain a request has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// The limit whose chain it is.
    number: u16,
    /// The next step.
    step: usize,
}

/// A request on its way along a chain, and why it is on it.
pub(crate) struct Pursuit {
    reached: Reached,
    denied: Denied,
    failed: Option<(u16, BackendError)>,
    unmatched: Unmatched,
    /// When the waits of those who deny were told.
    told: Nanos,
    /// While a degrade handler works.
    waits: Option<Waits>,
}

/// A request that a degrade handler is to answer.
pub(crate) struct Degradation {
    /// One of the degraded answers that may be under way.
    permit: Permit,
    degrading: Degrading,
    rejection: Rejection,
    pursuit: Box<Pursuit>,
}

/// A degrade handler at work. Dropped, it is given up.
pub(crate) struct Degrade {
    pub(crate) answer: BoxFuture<'static, Response<Body>>,
    pub(crate) rest: Rest,
}

/// What is kept while a degrade handler works.
pub(crate) struct Rest {
    permit: Permit,
    rejection: Rejection,
    pursuit: Box<Pursuit>,
}

impl Core {
    /// Turns a refusal into an answer, or into what its policy does before that.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_or_pursue(
        self: &Arc<Self>,
        head: &Head<'_>,
        refusal: Outcome,
        now: Nanos,
        unmatched: Unmatched,
        reached: Option<Reached>,
    ) -> Verdict {
        let (denied, failed) = match refusal {
            Outcome::Denied(denied) => (denied, None),
            Outcome::Failed(rule, error) => (Denied::new(), Some((rule, error))),
            Outcome::Keyless(number, status) => {
                return Verdict::Refuse(self.refuse_keyless(head, number, status));
            }
            // Handled where a request passes.
            Outcome::Admitted(_) | Outcome::Lent(_) => {
                return Verdict::Pass(super::Pass::Plain);
            }
        };
        let failed_rule = failed.as_ref().map(|(rule, _)| *rule);
        let has_own = |rule: u16| self.plan.refuser(rule).has_policy_while_away();
        let reached = match (failed_rule, reached) {
            // Also where it has waited: a policy of its own for that begins.
            (Some(number), _) if has_own(number) => Reached { number, step: 0 },
            (_, Some(reached)) => reached,
            (failed, None) => {
                Reached { number: failed.unwrap_or_else(|| self.acting(&denied)), step: 0 }
            }
        };
        let Reached { number, step } = reached;
        let steps = self.plan.refuser(number).policy_for(failed.is_some()).steps();
        let ends = steps.len() <= step;
        // What no waiting helps is refused at once, whatever the chain.
        let is_never = denied.iter().any(|denial| denial.decision.is_some_and(|d| d.is_never()));
        if ends || is_never {
            return Verdict::Refuse(self.denied(head, number, &denied, failed.as_ref()));
        }
        let pursuit =
            Box::new(Pursuit { reached, denied, failed, unmatched, told: now, waits: None });
        self.pursue(head, pursuit, now)
    }

    /// Whose policy answers: who has respond alone, else the first.
    fn acting(&self, denied: &Denied) -> u16 {
        let mut numbers = denied.iter().map(|denial| denial.number);
        let first = denied.first().map_or(0, |denial| denial.number);
        numbers.find(|number| self.plan.refuser(*number).policy.steps().is_empty()).unwrap_or(first)
    }

    /// Goes along the chain from its next step.
    fn pursue(self: &Arc<Self>, head: &Head<'_>, mut pursuit: Box<Pursuit>, now: Nanos) -> Verdict {
        let refuser = self.plan.refuser(pursuit.reached.number);
        let steps = refuser.policy_for(pursuit.failed.is_some()).steps();
        while let Some(step) = steps.get(pursuit.reached.step) {
            pursuit.reached.step += 1;
            match step {
                // There is nothing to wait for where a backend has failed.
                Step::Queue { .. } if pursuit.failed.is_some() => {}
                Step::Queue { longest, depth } => {
                    let asking = match self.asking(head, now, true) {
                        Ok(asking) => asking,
                        Err(keyless) => {
                            let unmatched = pursuit.unmatched;
                            return self.refuse_or_pursue(head, keyless, now, unmatched, None);
                        }
                    };
                    let denied = std::mem::take(&mut pursuit.denied);
                    // A turn after the caller's own deadline is no use to anybody.
                    let longest = grpc::timeout(head).map_or(*longest, |own| own.min(*longest));
                    match Self::queue(asking, denied, (longest, *depth), now) {
                        Ok(queue) => {
                            return Verdict::Later(Later {
                                outcome: Box::pin(queue.run()),
                                unmatched: pursuit.unmatched,
                                reached: Some(pursuit.reached),
                            });
                        }
                        Err(denied) => pursuit.denied = denied,
                    }
                }
                Step::Degrade(degrading) => {
                    let Some(permit) = degrading.slots.try_take(None) else { continue };
                    let cause = self.cause(&pursuit.denied, pursuit.failed.as_ref());
                    pursuit.waits = Some(Waits::for_answer(self, pursuit.reached.number, now));
                    return Verdict::Degrade(Box::new(Degradation {
                        permit,
                        degrading: degrading.clone(),
                        rejection: self.rejection(&cause, &pursuit.denied),
                        pursuit,
                    }));
                }
            }
        }
        let Pursuit { reached, denied, failed, .. } = *pursuit;
        Verdict::Refuse(self.denied(head, reached.number, &denied, failed.as_ref()))
    }

    /// A degrade handler has answered, or declined.
    pub(crate) fn degraded(
        self: &Arc<Self>,
        head: &Head<'_>,
        mut response: Response<Body>,
        Rest { permit, rejection, mut pursuit }: Rest,
    ) -> Verdict {
        if let Some(mut waits) = pursuit.waits.take() {
            waits.is_over();
        }
        if response.extensions().get::<Declined>().is_some() {
            drop(permit);
            let now = self.time.now();
            pursuit.age(now);
            return self.pursue(head, pursuit, now);
        }
        self.tell_degraded(head, &pursuit.denied, &rejection, &mut response);
        self.tell_rejected(&rejection, response.status(), pursuit.failed.as_ref(), true);
        if self.expose_rejection {
            response.extensions_mut().insert(rejection);
        }
        Verdict::Refuse(Refused::Degraded(Box::new((response, permit))))
    }
}

impl Pursuit {
    /// Takes the time that has passed off the waits that were told.
    fn age(&mut self, now: Nanos) {
        let passed = now.since(std::mem::replace(&mut self.told, now));
        for decision in self.denied.iter_mut().filter_map(|denial| denial.decision.as_mut()) {
            if let Some(wait) = decision.retry_after() {
                decision.deny(Nanos::from(wait).since(passed).max(Nanos::new(1)));
            }
        }
    }
}

impl Degradation {
    /// Whether the handler gets the body.
    pub(crate) fn takes_body(&self) -> bool {
        self.degrading.takes_body
    }

    /// Starts the handler on `request`, which is a copy of the head, with the body or an empty one.
    pub(crate) fn start(self, mut request: Request<Body>) -> Degrade {
        let Self { permit, degrading, rejection, pursuit } = self;
        request.extensions_mut().insert(rejection.clone());
        let answer = degrading.handler.answer(request);
        Degrade { answer, rest: Rest { permit, rejection, pursuit } }
    }
}
