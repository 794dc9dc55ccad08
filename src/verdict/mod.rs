//! What becomes of a request: an [`Outcome`] of admission turned into what the service does.
//!
//! What is where: `pursuit` goes along a rejection policy's chain, `refusal` makes the answer at its end;
//! `escort` goes with an admitted request, `decisions` is what it tells; `young` looks for set-up faults.

mod decisions;
mod escort;
mod pursuit;
mod refusal;
mod young;

use std::sync::Arc;

pub use self::decisions::Decisions;
#[cfg(feature = "test-util")]
pub(crate) use self::refusal::answers;
pub(crate) use self::{
    escort::{End, Escort, Extras},
    pursuit::{Degradation, Degrade, Reached},
    refusal::Refused,
};
use crate::{
    Decision, Head,
    admission::{Admission, Decided, Outcome},
    clock::{BoxFuture, Nanos},
    core::Core,
    decision::RuleDecision,
    event::Admitted,
    in_flight::Permit,
    plan::Told,
};

/// What the service does with a request, now or once it is known.
pub(crate) enum Judged {
    /// Not yet: it is one of the first requests, which are looked at more closely.
    Not,
    Now(Verdict),
}

/// What the service does with a request.
pub(crate) enum Verdict {
    /// Forwards it.
    Pass(Pass),
    /// Answers it.
    Refuse(Refused),
    /// Waits for what will be decided.
    Later(Later),
    /// Lets a degrade handler answer it.
    Degrade(Box<Degradation>),
}

/// What goes along with an admitted request.
pub(crate) enum Pass {
    Plain,
    /// The one permit it holds, where that is all.
    Held(Permit),
    /// What its answer will tell, and the one permit it may hold.
    Told(Told, Option<Permit>),
    Escorted(Box<Escort>),
}

/// An outcome that is still to come.
pub(crate) struct Later {
    pub(crate) outcome: BoxFuture<'static, Outcome>,
    pub(crate) unmatched: Unmatched,
    /// How far along which chain it has come, where that lets it wait.
    pub(crate) reached: Option<Reached>,
}

/// Whether a rule wants the route and no route matched, in a layer that still looks for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmatched(bool);

impl Core {
    /// Judges a request; `None` where it is to be forwarded and nothing else. Apart from the body, nothing
    /// here depends on the inner service.
    #[inline]
    pub(crate) fn judge(self: &Arc<Self>, head: &Head<'_>) -> Option<Judged> {
        if self.watch.is_young() {
            return Some(Judged::Not);
        }
        if !self.is_plain {
            return self.judge_any(head, false);
        }
        if self.is_exempt_by_default(head) {
            return None;
        }
        let now = self.time.now();
        let outcome = self.decide_here(head, now)?;
        Some(Judged::Now(self.conclude(head, outcome, now, Unmatched(false), None)))
    }

    /// Judges one of the first requests, which are looked at more closely.
    pub(crate) fn judge_young(self: &Arc<Self>, head: &Head<'_>) -> Option<Judged> {
        self.judge_any(head, true)
    }

    #[inline(never)]
    fn judge_any(self: &Arc<Self>, head: &Head<'_>, young: bool) -> Option<Judged> {
        if self.is_exempt(head) {
            self.exempted();
            return None;
        }
        let unmatched = Unmatched(young && self.look_at(head));
        let now = self.time.now();
        let outcome = if self.is_careful() {
            match self.decide_all(head, now) {
                Decided::Now(outcome) => outcome,
                Decided::Later(outcome) => {
                    let later = Later { outcome, unmatched, reached: None };
                    return Some(Judged::Now(Verdict::Later(later)));
                }
            }
        } else {
            self.decide_here(head, now).unwrap_or_else(|| Outcome::Admitted(Admission::default()))
        };
        match self.conclude(head, outcome, now, unmatched, None) {
            Verdict::Pass(Pass::Plain) => None,
            verdict => Some(Judged::Now(verdict)),
        }
    }

    /// Whether a permit is all that goes along with an admitted request.
    #[inline]
    fn is_all(&self, permit: &Permit, head: &Head<'_>, unmatched: Unmatched) -> bool {
        !unmatched.0
            && !self.is_curious()
            && !permit.wants_outcome()
            && !escort::wants_upgrade(head)
    }

    /// Judges a request whose outcome has come.
    pub(crate) fn judge_late(
        self: &Arc<Self>,
        head: &Head<'_>,
        outcome: Outcome,
        unmatched: Unmatched,
        reached: Option<Reached>,
    ) -> Verdict {
        self.conclude(head, outcome, self.time.now(), unmatched, reached)
    }

    /// Whether more than the verdict of limits in this process is wanted.
    #[inline]
    fn is_careful(&self) -> bool {
        self.plan.has_remote || self.is_curious()
    }

    #[cold]
    fn exempted(&self) {
        self.watch.admitted(&Admitted { decisions: &[], exempt: true, waited: None });
    }

    #[inline]
    fn conclude(
        self: &Arc<Self>,
        head: &Head<'_>,
        outcome: Outcome,
        now: Nanos,
        unmatched: Unmatched,
        reached: Option<Reached>,
    ) -> Verdict {
        match outcome {
            Outcome::Lent(permit)
                if self.shown.is_none() && self.is_all(&permit, head, unmatched) =>
            {
                Verdict::Pass(Pass::Held(permit))
            }
            Outcome::Lent(permit) => {
                let lent = smallvec::smallvec![permit];
                let admission = Admission { lent, ..Admission::default() };
                Verdict::Pass(self.pass(head, admission, now, unmatched))
            }
            Outcome::Admitted(admission) => {
                Verdict::Pass(self.pass(head, admission, now, unmatched))
            }
            refusal => self.refuse_or_pursue(head, refusal, now, unmatched, reached),
        }
    }

    #[inline(never)]
    fn pass(
        self: &Arc<Self>,
        head: &Head<'_>,
        mut admission: Admission,
        now: Nanos,
        unmatched: Unmatched,
    ) -> Pass {
        let shown = self.shown.as_ref().filter(|shown| shown.to_admitted);
        let told = shown.and_then(|shown| shown.admitted(&self.plan, head, now, &admission.said));
        if !unmatched.0 && !self.is_curious() && admission.lent.is_empty() {
            return told.map_or(Pass::Plain, |told| Pass::Told(told, None));
        }
        if let [permit] = &*admission.lent
            && self.is_all(permit, head, unmatched)
            && let Some(permit) = admission.lent.pop()
        {
            return match told {
                None => Pass::Held(permit),
                Some(told) => Pass::Told(told, Some(permit)),
            };
        }
        Pass::Escorted(self.escorted(head, admission, now, unmatched, told))
    }

    #[cold]
    #[inline(never)]
    fn escorted(
        self: &Arc<Self>,
        head: &Head<'_>,
        admission: Admission,
        now: Nanos,
        unmatched: Unmatched,
        told: Option<Told>,
    ) -> Box<Escort> {
        let Admission { mut said, lent, waited } = admission;
        said.sort_by_key(|(rule, _)| *rule);
        let decision = |(rule, decision)| self.said_by(rule, Some(decision));
        let decisions = Decisions(said.into_iter().map(decision).collect());
        self.watch.admitted(&Admitted {
            decisions: decisions.as_slice(),
            exempt: false,
            waited: waited.map(Into::into),
        });
        let decisions = self.expose_decision.then_some(decisions);
        Box::new(Escort::new(self, head, now, Extras { decisions, told }, unmatched.0, lent))
    }

    fn said_by(&self, number: u16, decision: Option<Decision>) -> RuleDecision {
        RuleDecision::new(Arc::clone(&self.plan.refuser(number).name), decision)
    }
}
