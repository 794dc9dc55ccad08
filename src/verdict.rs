//! What becomes of a request: an [`Outcome`] of admission turned into what the service does.

use std::{sync::Arc, time::Duration};

use axum_core::body::Body;
use http::{Extensions, HeaderMap, Response, StatusCode, header};
use smallvec::SmallVec;

use crate::{
    BackendError, Decision, Head, Rejection,
    admission::{Decided, Outcome},
    clock::{BoxFuture, Nanos},
    core::Core,
    decision::RuleDecision,
    event::{self, Admitted, Fault, Finished, Reason, Rejected},
    plan::Planned,
    request::key::{RouteState, has_forwarding_header, route_state},
    response::{Refusal, problem, retry_after},
};

/// What the service does with a request, now or once it is known.
pub(crate) enum Judged {
    /// Not yet: it is one of the first requests, which are looked at more closely.
    Not,
    Now(Verdict),
    Later(BoxFuture<'static, Outcome>, Unmatched),
}

/// Whether a rule wants the route and no route matched, in a layer that still looks for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmatched(bool);

/// What the service does with a request.
pub(crate) enum Verdict {
    /// Forwards it; the escort, if any, goes with it.
    Pass(Option<Box<Escort>>),
    /// Answers it.
    Refuse(Refused),
}

/// An answer. The common one is numbers only and becomes a response when it is sent, so that a future
/// that may refuse is hardly larger than one that may not.
pub(crate) enum Refused {
    Plain { rule: u16, retry_after_secs: u64 },
    Built(Box<Response<Body>>),
}

/// Why a request is refused, and by which rule first.
struct Cause<'e> {
    first: u16,
    reason: Reason,
    status: StatusCode,
    wait: Option<Duration>,
    error: Option<&'e BackendError>,
}

/// What an admitted request takes along where somebody wants to know more. Dropped with the request, it
/// tells of that.
pub(crate) struct Escort {
    farewell: Farewell,
    /// For the extensions of request and response.
    pub(crate) decisions: Option<Decisions>,
    /// Whether an answer other than 404 shows that the route was hidden from the layer.
    unmatched: bool,
    /// Whether the answer has no body that could be cut short.
    bodiless: bool,
}

/// The decisions of all rules that applied to an admitted request; in the extensions of the request and
/// of its response where [`expose_decision`](crate::RateLimitLayerBuilder::expose_decision) asks for it.
/// Of stacked layers that ask, the outermost come first.
///
/// Admitted answers may say how much is left:
///
/// ```
/// use axum::{Router, body::Body, http::Request, middleware, response::Response, routing::get};
/// use tower::ServiceExt;
/// use tower_sluice::{Decisions, FixedWindow, ManualClock, RateLimitLayer, Rule};
///
/// /// Told of the rule with the least left.
/// async fn tell(mut response: Response) -> Response {
///     let decisions = response.extensions().get::<Decisions>();
///     let said = decisions.iter().flat_map(|said| said.as_slice()).filter_map(|said| said.decision());
///     if let Some(least) = said.min_by_key(|decision| decision.remaining()) {
///         let headers = response.headers_mut();
///         headers.insert("x-ratelimit-limit", least.limit().into());
///         headers.insert("x-ratelimit-remaining", least.remaining().into());
///         headers.insert("x-ratelimit-reset", least.reset_after().as_secs().into());
///     }
///     response
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("daily", FixedWindow::per_day(1_000)))
///     .expose_decision()
/// #     .clock(ManualClock::new())
///     .build()?;
/// let app: Router = Router::new()
///     .route("/", get(|| async {}))
///     .layer(layer)
///     .layer(middleware::map_response(tell)); // outside
///
/// let answer = app.oneshot(Request::get("/").body(Body::empty())?).await?;
/// assert_eq!(answer.headers()["x-ratelimit-remaining"], "999");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Decisions(SmallVec<[RuleDecision; 2]>);

impl Decisions {
    /// In the order the rules are written.
    #[must_use]
    pub fn as_slice(&self) -> &[RuleDecision] {
        &self.0
    }

    /// Puts them into a request's extensions, after those of layers outside.
    pub(crate) fn join_request(&self, extensions: &mut Extensions) {
        match extensions.get_mut::<Self>() {
            Some(outer) => outer.0.extend(self.0.iter().cloned()),
            None => {
                extensions.insert(self.clone());
            }
        }
    }

    /// Puts them into a response's extensions, before those of layers inside.
    fn join_response(self, extensions: &mut Extensions) {
        match extensions.get_mut::<Self>() {
            Some(inner) => inner.0.insert_many(0, self.0),
            None => {
                extensions.insert(self);
            }
        }
    }
}

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
        let refused = self.decide_here(head, now)?;
        Some(Judged::Now(self.conclude(head, refused, now, false)))
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
        let unmatched = young && self.look_at(head);
        let now = self.time.now();
        if self.is_careful() {
            return self.judge_carefully(head, now, unmatched);
        }
        match self.decide_here(head, now) {
            None if !unmatched => None,
            None => {
                let escort = self.escort(head, now, None, unmatched);
                Some(Judged::Now(Verdict::Pass(Some(escort))))
            }
            Some(outcome) => Some(Judged::Now(self.conclude(head, outcome, now, unmatched))),
        }
    }

    /// Decides where all rules count in this process and nobody wants to know more; `None` for a pass.
    #[inline]
    fn decide_here(&self, head: &Head<'_>, now: Nanos) -> Option<Outcome> {
        match &*self.plan.rules {
            [rule] => self.decide_one(rule, head, now),
            _ => self.decide_several(head, now),
        }
    }

    #[inline(never)]
    fn judge_carefully(
        self: &Arc<Self>,
        head: &Head<'_>,
        now: Nanos,
        unmatched: bool,
    ) -> Option<Judged> {
        match self.decide_all(head, now) {
            Decided::Now(outcome) => match self.conclude(head, outcome, now, unmatched) {
                Verdict::Pass(None) => None,
                verdict => Some(Judged::Now(verdict)),
            },
            Decided::Later(outcome) => Some(Judged::Later(outcome, Unmatched(unmatched))),
        }
    }

    /// Judges a request whose outcome has come.
    pub(crate) fn judge_late(
        self: &Arc<Self>,
        head: &Head<'_>,
        outcome: Outcome,
        unmatched: Unmatched,
    ) -> Verdict {
        self.conclude(head, outcome, self.time.now(), unmatched.0)
    }

    /// Whether more than the verdict of rules in this process is wanted.
    #[inline]
    fn is_careful(&self) -> bool {
        self.plan.has_remote || self.is_curious()
    }

    #[cold]
    fn exempted(&self) {
        self.watch.admitted(&Admitted { decisions: &[], exempt: true });
    }

    /// Looks for set-up faults that one of the first requests shows; says whether the route is wanted and
    /// nothing matched.
    #[cold]
    fn look_at(&self, head: &Head<'_>) -> bool {
        self.watch.grow();
        if self.lacks_waiting && !self.watch.is_done(Fault::Leaky) {
            self.watch.raise_once(Fault::Leaky, self.plan.first_that(Planned::lacks_waiting));
        }
        if self.wants_peer {
            let exempt = self.exempt.iter().any(|exempt| exempt.lacks_peer(head));
            if let Some(name) = self.plan.first_that(|rule| rule.lacks_peer(head)) {
                self.watch.raise_once(Fault::Peer, Some(name));
            } else if exempt {
                self.watch.raise_once(Fault::Peer, None);
            }
            if !self.knows_proxy && has_forwarding_header(head) {
                self.watch.raise_once(Fault::Proxy, self.plan.first_that(Planned::wants_peer));
            }
        }
        if self.wants_route {
            match route_state(head) {
                RouteState::Matched => {}
                RouteState::Unmatched => return !self.watch.is_done(Fault::Route),
                RouteState::Outside => {
                    self.watch.raise_once(Fault::Route, self.plan.first_that(Planned::wants_route));
                }
            }
        }
        false
    }

    /// Whether this layer has seen the request before; marks it.
    #[cold]
    pub(crate) fn mark(self: &Arc<Self>, extensions: &mut Extensions) {
        let id = Arc::as_ptr(self).addr();
        match extensions.get_mut::<Passed>() {
            Some(passed) if passed.0.contains(&id) => self.watch.raise_once(Fault::Twice, None),
            Some(passed) => passed.0.push(id),
            None => {
                extensions.insert(Passed(smallvec::smallvec![id]));
            }
        }
    }

    #[inline]
    fn conclude(
        self: &Arc<Self>,
        head: &Head<'_>,
        outcome: Outcome,
        now: Nanos,
        unmatched: bool,
    ) -> Verdict {
        match outcome {
            Outcome::Admitted(_) if !unmatched && !self.is_curious() => Verdict::Pass(None),
            Outcome::Admitted(mut said) => {
                said.sort_by_key(|(rule, _)| *rule);
                let decision = |(rule, decision)| self.said_by(rule, Some(decision));
                let decisions = Decisions(said.into_iter().map(decision).collect());
                self.watch.admitted(&Admitted { decisions: &decisions.0, exempt: false });
                let decisions = self.expose_decision.then_some(decisions);
                Verdict::Pass(Some(self.escort(head, now, decisions, unmatched)))
            }
            Outcome::Denied(denied) => Verdict::Refuse(self.denied(head, &denied)),
            Outcome::Keyless(rule, status) => Verdict::Refuse(self.refuse(
                head,
                &Cause { first: rule, reason: Reason::MissingKey, status, wait: None, error: None },
                &[],
            )),
            Outcome::Failed(rule, error) => Verdict::Refuse(self.refuse(
                head,
                &Cause {
                    first: rule,
                    reason: Reason::Backend,
                    // Nothing becomes unlimited because its counter is away.
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    wait: Some(Duration::from_secs(1)),
                    error: Some(&error),
                },
                &[],
            )),
        }
    }

    fn escort(
        self: &Arc<Self>,
        head: &Head<'_>,
        started: Nanos,
        decisions: Option<Decisions>,
        unmatched: bool,
    ) -> Box<Escort> {
        let bodiless = head.method() == http::Method::HEAD;
        let farewell = Farewell {
            core: Arc::clone(self),
            started,
            status: 0,
            left: None,
            outcome: event::Outcome::Dropped,
        };
        Box::new(Escort { farewell, decisions, unmatched, bodiless })
    }

    fn said_by(&self, rule: u16, decision: Option<Decision>) -> RuleDecision {
        RuleDecision::new(Arc::clone(&self.plan.rules[usize::from(rule)].name), decision)
    }

    #[cold]
    #[inline(never)]
    fn denied(&self, head: &Head<'_>, denied: &[(u16, Decision)]) -> Refused {
        let first = denied.first().map_or(0, |(rule, _)| *rule);
        let rule = &self.plan.rules[usize::from(first)];
        let never = denied.iter().any(|(_, decision)| decision.is_never());
        let reason = if never { Reason::Never } else { Reason::Quota };
        // The longest wait is the hint, so that who obeys is not refused by the next rule.
        let wait = denied.iter().filter_map(|(_, decision)| decision.retry_after()).max();
        let wait = wait.filter(|_| !never);
        if let ([_], Some(wait)) = (denied, wait)
            && rule.policy.is_default()
            && !self.expose_rejection
            && !self.watch.is_observed()
        {
            return Refused::Plain {
                rule: first,
                retry_after_secs: self.seconds(rule.spread, wait),
            };
        }
        let status = rule.status;
        self.refuse(head, &Cause { first, reason, status, wait, error: None }, denied)
    }

    fn seconds(&self, spread: bool, wait: Duration) -> u64 {
        let seconds = retry_after::seconds(wait);
        if !spread {
            return seconds;
        }
        retry_after::spread(seconds, self.random.hash_one(self.time.now()))
    }

    /// The whole rejection, told to whoever wants it.
    #[cold]
    fn refuse(&self, head: &Head<'_>, cause: &Cause<'_>, denied: &[(u16, Decision)]) -> Refused {
        let Cause { first, reason, status, wait, error } = *cause;
        let rule = &self.plan.rules[usize::from(first)];
        let rules = if denied.is_empty() {
            smallvec::smallvec![self.said_by(first, None)]
        } else {
            denied.iter().map(|(rule, decision)| self.said_by(*rule, Some(*decision))).collect()
        };
        let spread = rule.spread || reason == Reason::Backend;
        let retry_after_secs = wait.map(|wait| self.seconds(spread, wait));
        let rejection = Rejection { reason, status, retry_after: wait, retry_after_secs, rules };
        let mut response = rule.policy.answer(&rejection, head).unwrap_or_else(|| {
            let names = rejection.rules.iter().map(RuleDecision::rule);
            Refusal { status, retry_after_secs, body: problem::body(status, reason, names) }
                .into_response()
        });
        self.watch.rejected(&Rejected {
            decisions: &rejection.rules,
            reason,
            status: response.status().as_u16(),
            error,
        });
        if self.expose_rejection {
            response.extensions_mut().insert(rejection);
        }
        Refused::Built(Box::new(response))
    }
}

impl Refused {
    pub(crate) fn into_response(self, core: &Core) -> Response<Body> {
        match self {
            Self::Plain { rule, retry_after_secs } => {
                let rule = &core.plan.rules[usize::from(rule)];
                Refusal {
                    status: rule.status,
                    retry_after_secs: Some(retry_after_secs),
                    body: rule.body.clone(),
                }
                .into_response()
            }
            Self::Built(response) => *response,
        }
    }
}

impl Escort {
    /// The inner service has answered with this head; what is left waits for the body's end.
    pub(crate) fn answered<R>(self, response: &mut Response<R>) -> Option<Farewell> {
        let Self { mut farewell, decisions, unmatched, bodiless } = self;
        if unmatched && response.status() != StatusCode::NOT_FOUND {
            let core = &farewell.core;
            core.watch.raise_once(Fault::Route, core.plan.first_that(Planned::wants_route));
        }
        farewell.status = response.status().as_u16();
        if bodiless {
            farewell.completed();
        } else if let Some(length) = content_length(response.headers()) {
            farewell.left = Some(length);
            farewell.passed(0);
        }
        if let Some(decisions) = decisions {
            decisions.join_response(response.extensions_mut());
        }
        farewell.core.watch.is_observed().then_some(farewell)
    }

    /// The inner service has failed.
    pub(crate) fn failed(mut self) {
        self.farewell.failed();
    }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Tells observers, when it is dropped, how an admitted request ended.
#[derive(Debug)]
pub(crate) struct Farewell {
    core: Arc<Core>,
    started: Nanos,
    status: u16,
    /// Bytes the body has still to give, where its length was announced.
    left: Option<u64>,
    outcome: event::Outcome,
}

impl Farewell {
    pub(crate) fn completed(&mut self) {
        self.outcome = event::Outcome::Completed(self.status);
    }

    pub(crate) fn failed(&mut self) {
        self.outcome = event::Outcome::Failed;
    }

    /// The body gave so many bytes. A server asks no more of it than was announced.
    pub(crate) fn passed(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
            if *left == 0 {
                self.completed();
            }
        }
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if self.core.watch.is_observed() {
            let elapsed = self.core.time.now().since(self.started).into();
            self.core.watch.finished(&Finished { elapsed, outcome: self.outcome });
        }
    }
}

/// The layers a request has passed, by address; in the extensions of the first requests only.
#[derive(Clone)]
struct Passed(SmallVec<[usize; 2]>);
