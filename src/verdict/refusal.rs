//! [`Refused`]: the answer at the end of a chain.

use std::{cell::Cell, time::Duration};

use axum_core::body::Body;
use http::{HeaderValue, Response, StatusCode};

use super::End;
use crate::{
    BackendError, Head, Rejection,
    admission::{Denial, Denied},
    core::Core,
    decision::RuleDecision,
    event::{Reason, Rejected},
    in_flight::Permit,
    plan::Told,
    response::{self, Refusal, grpc, problem, retry_after},
};

/// An answer. The common one is numbers only and becomes a response when it is sent, so that a future
/// that may refuse is hardly larger than one that may not.
pub(crate) enum Refused {
    Plain {
        number: u16,
        retry_after_secs: u64,
        told: Option<Told>,
        closes: bool,
    },
    Built(Box<Response<Body>>),
    /// A degrade handler's, under way until its body has ended.
    Degraded(Box<(Response<Body>, Permit)>),
}

/// Why a request is refused, and by which limit first.
pub(super) struct Cause {
    first: u16,
    reason: Reason,
    status: StatusCode,
    wait: Option<Duration>,
}

impl Cause {
    pub(super) fn keyless(number: u16, status: StatusCode) -> Self {
        Self { first: number, reason: Reason::MissingKey, status, wait: None }
    }
}

impl Core {
    /// Why these refuse, or why the backend that failed does.
    pub(super) fn cause(&self, denied: &[Denial], failed: Option<&(u16, BackendError)>) -> Cause {
        if let Some((rule, _)) = failed {
            // Nothing becomes unlimited because its counter is away.
            let (status, wait) = (StatusCode::SERVICE_UNAVAILABLE, Some(Duration::from_secs(1)));
            return Cause { first: *rule, reason: Reason::Backend, status, wait };
        }
        // Rules come first, so it is an in-flight limit only where no rule refuses.
        let first = denied.first().map_or(0, |denial| denial.number);
        let status = self.plan.refuser(first).status;
        if let Some(slots) = self.plan.slots_of(first) {
            let hint = |denial: &Denial| self.plan.slots_of(denial.number).map(|s| s.retry_after);
            let wait = denied.iter().filter_map(hint).max().unwrap_or(slots.retry_after);
            return Cause { first, reason: Reason::InFlight, status, wait: Some(wait) };
        }
        let decisions = || denied.iter().filter_map(|denial| denial.decision);
        if decisions().any(|decision| decision.is_never()) {
            return Cause { first, reason: Reason::Never, status, wait: None };
        }
        // The longest wait is the hint, so that who obeys is not refused by the next rule.
        let wait = decisions().filter_map(|decision| decision.retry_after()).max();
        Cause { first, reason: Reason::Quota, status, wait }
    }

    /// The answer of the policy of `acting` to what these refuse.
    #[cold]
    #[inline(never)]
    pub(super) fn denied(
        &self,
        head: &Head<'_>,
        acting: u16,
        denied: &Denied,
        failed: Option<&(u16, BackendError)>,
    ) -> Refused {
        let cause = self.cause(denied, failed);
        let grpc = grpc::content_type(head);
        if let ([_], Some(wait), None) = (&**denied, cause.wait, &grpc)
            && self.plan.refuser(acting).policy.is_default()
            && !self.expose_rejection
            && !self.watch.is_observed()
        {
            let by = self.plan.refuser(cause.first);
            let retry_after_secs = self.seconds(by.spread, wait);
            let told = self.told_refused(head, denied, Some(retry_after_secs));
            return Refused::Plain { number: cause.first, retry_after_secs, told, closes: false };
        }
        self.answer(head, acting, &cause, denied, failed, grpc)
    }

    /// What a caller is told of the limits that refuse him.
    fn told_refused(
        &self,
        head: &Head<'_>,
        denied: &[Denial],
        retry_after_secs: Option<u64>,
    ) -> Option<Told> {
        let denied = denied.iter().map(|denial| (denial.number, denial.decision));
        self.shown.as_ref()?.refused(&self.plan, head, denied, retry_after_secs)
    }

    /// The same of a degraded answer, which gets it.
    pub(super) fn tell_degraded(
        &self,
        head: &Head<'_>,
        denied: &[Denial],
        rejection: &Rejection,
        response: &mut Response<Body>,
    ) {
        if let Some(told) = self.told_refused(head, denied, rejection.retry_after_secs) {
            told.tell_refused(response);
        }
    }

    fn seconds(&self, spread: bool, wait: Duration) -> u64 {
        let seconds = retry_after::seconds(wait);
        if spread { retry_after::spread(seconds, self.draw()) } else { seconds }
    }

    /// The same for a client that waits exactly as long as it is told.
    fn delay(&self, spread: bool, wait: Duration) -> Duration {
        if spread { retry_after::spread_finely(wait, self.draw()) } else { wait }
    }

    /// A random number: another for each of those who are refused at one instant, too.
    fn draw(&self) -> u64 {
        thread_local!(static REFUSED: Cell<u64> = const { Cell::new(0) });
        let turn = REFUSED.replace(REFUSED.get().wrapping_add(1));
        self.random.hash_one((self.time.now(), turn))
    }

    /// Whether those who hear this are many.
    fn is_spread(&self, cause: &Cause) -> bool {
        self.plan.refuser(cause.first).spread || cause.reason == Reason::Backend
    }

    pub(super) fn rejection(&self, cause: &Cause, denied: &[Denial]) -> Rejection {
        let Cause { first, reason, status, wait } = *cause;
        let rules = if denied.is_empty() {
            smallvec::smallvec![self.said_by(first, None)]
        } else {
            denied.iter().map(|denial| self.said_by(denial.number, denial.decision)).collect()
        };
        let spread = self.is_spread(cause);
        let retry_after_secs = wait.map(|wait| self.seconds(spread, wait));
        Rejection { reason, status, retry_after: wait, retry_after_secs, rules }
    }

    /// The answer to a request without the key that a limit demands.
    #[cold]
    pub(super) fn refuse_keyless(
        &self,
        head: &Head<'_>,
        number: u16,
        status: StatusCode,
    ) -> Refused {
        let cause = Cause::keyless(number, status);
        self.answer(head, number, &cause, &[], None, grpc::content_type(head))
    }

    /// The whole answer, told to whoever wants it.
    #[cold]
    fn answer(
        &self,
        head: &Head<'_>,
        acting: u16,
        cause: &Cause,
        denied: &[Denial],
        failed: Option<&(u16, BackendError)>,
        grpc: Option<HeaderValue>,
    ) -> Refused {
        let is_grpc = grpc.is_some();
        let mut rejection = self.rejection(cause, denied);
        let Rejection { reason, status, retry_after_secs, .. } = rejection;
        let policy = self.plan.refuser(acting).policy_for(failed.is_some());
        let mut response = match grpc {
            Some(content_type) => {
                let delay = cause.wait.map(|wait| self.delay(self.is_spread(cause), wait));
                rejection.retry_after_secs = delay.map(retry_after::seconds);
                let code = grpc::Code::of(reason, status);
                grpc::answer(content_type, code, problem::detail(reason), delay)
            }
            None => policy.answer(&rejection, head).unwrap_or_else(|| {
                let names = rejection.rules.iter().map(RuleDecision::rule);
                Refusal { status, retry_after_secs, body: problem::body(status, reason, names) }
                    .into_response()
            }),
        };
        if let Some(told) = self.told_refused(head, denied, rejection.retry_after_secs) {
            told.tell_refused(&mut response);
        }
        // A gRPC answer's own says nothing.
        let status = if is_grpc { status } else { response.status() };
        self.tell_rejected(&rejection, status, failed, false);
        if self.expose_rejection {
            response.extensions_mut().insert(rejection);
        }
        Refused::Built(Box::new(response))
    }

    pub(super) fn tell_rejected(
        &self,
        rejection: &Rejection,
        status: StatusCode,
        failed: Option<&(u16, BackendError)>,
        degraded: bool,
    ) {
        self.watch.rejected(&Rejected {
            decisions: &rejection.rules,
            reason: rejection.reason,
            status: status.as_u16(),
            error: failed.map(|(_, error)| error),
            degraded,
        });
    }
}

#[cfg(feature = "test-util")]
thread_local!(static ANSWERS: Cell<u64> = const { Cell::new(0) });

/// How many requests layers have answered themselves on this thread, refused and degraded.
#[cfg(feature = "test-util")]
pub(crate) fn answers() -> u64 {
    ANSWERS.get()
}

impl Refused {
    /// Whether a degrade handler made it.
    pub(crate) fn is_degraded(&self) -> bool {
        matches!(self, Self::Degraded(_))
    }

    /// Lets the connection end with this answer.
    pub(crate) fn close(&mut self) {
        let response = match self {
            Self::Plain { closes, .. } => {
                *closes = true;
                return;
            }
            Self::Built(response) => response,
            Self::Degraded(answer) => &mut answer.0,
        };
        response::close(response.headers_mut());
    }

    /// The same answer with another body.
    pub(crate) fn map_body(self, core: &Core, change: impl FnOnce(Body) -> Body) -> Self {
        let (response, permit) = self.into_parts(core);
        let response = response.map(change);
        match permit {
            None => Self::Built(Box::new(response)),
            Some(permit) => Self::Degraded(Box::new((response, permit))),
        }
    }

    /// The response, and what waits for the end of its body.
    pub(crate) fn into_response(self, core: &Core) -> (Response<Body>, Option<End>) {
        #[cfg(feature = "test-util")]
        ANSWERS.set(ANSWERS.get().wrapping_add(1));
        let (response, permit) = self.into_parts(core);
        (response, permit.map(End::of))
    }

    /// The response, and the permit of a degraded one.
    fn into_parts(self, core: &Core) -> (Response<Body>, Option<Permit>) {
        match self {
            Self::Plain { number, retry_after_secs, told, closes } => {
                let by = core.plan.refuser(number);
                let refusal = Refusal {
                    status: by.status,
                    retry_after_secs: Some(retry_after_secs),
                    body: by.body.clone(),
                };
                let mut response = refusal.into_response();
                if let Some(told) = told {
                    told.tell_refused(&mut response);
                }
                if closes {
                    response::close(response.headers_mut());
                }
                (response, None)
            }
            Self::Built(response) => (*response, None),
            Self::Degraded(answer) => {
                let (response, permit) = *answer;
                (response, Some(permit))
            }
        }
    }
}
