//! [`RejectionPolicy`]: respond, queue, degrade, one after the other.

use std::{fmt, sync::Arc, time::Duration};

use axum_core::{body::Body, response::IntoResponse};
use http::{Response, StatusCode};

use super::{Degrading, Rejection};
use crate::{ConfigError, Head, in_flight::check_limit, response};

/// What becomes of a request that does not fit: a chain of steps, whose end is a refusal.
///
/// | step | what it does | when the chain goes on |
/// | --- | --- | --- |
/// | [`queue`](Self::queue) | lets the request wait for its turn | the wait would be too long, or no place is left |
/// | [`degrade`](Self::degrade) | lets another handler answer | it declines, or too many such answers are under way |
/// | [`respond`](Self::respond), [`respond_with`](Self::respond_with) | refuses | never |
///
/// A chain that does not end with one of the last two ends with the default refusal. Steps are joined by
/// [`or`](Self::or): a cached list first, then a short wait, then a refusal.
///
/// ```
/// use axum::Json;
/// use std::time::Duration;
/// use tower_sluice::{Decline, InFlight, RateLimitLayer, RejectionPolicy};
///
/// async fn cached_list() -> Result<Json<Vec<u64>>, Decline> {
/// #   let cached = None;
///     cached.map(Json).ok_or(Decline)
/// }
///
/// let policy = RejectionPolicy::degrade(cached_list)
///     .or(RejectionPolicy::queue(Duration::from_millis(200), 100))
///     .or(RejectionPolicy::respond_with(|rejection, head| {
///         format!("{}: try again in {:?}", head.path(), rejection.retry_after())
///     }));
/// let layer =
///     RateLimitLayer::builder().in_flight(InFlight::new("feed", 64)).rejection(policy).build()?;
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
///
/// What no waiting helps is refused at once, whatever the chain: a cost that never fits, a missing key. Where
/// a backend has failed there is no queueing either.
///
/// If several limits refuse a request and the policy of one of them neither queues nor degrades, that one answers;
/// else the chain of the first, rules before in-flight limits, each in the order written.
#[derive(Clone)]
#[must_use]
pub struct RejectionPolicy {
    steps: Vec<Step>,
    responder: Option<Arc<dyn Responder>>,
    /// Whether the end was written, so that nothing may follow.
    is_closed: bool,
    /// What was written that cannot be, told when the layer is built.
    wrong: Option<ConfigError>,
}

/// One step of a chain before its end.
#[derive(Clone)]
pub(crate) enum Step {
    Queue { longest: Duration, depth: u64 },
    Degrade(Degrading),
}

type Responded = Response<Body>;

trait Responder: Send + Sync {
    fn respond(&self, rejection: &Rejection, head: &Head<'_>) -> Responded;
}

impl<F, R> Responder for F
where
    F: Fn(&Rejection, &Head<'_>) -> R + Send + Sync,
    R: IntoResponse,
{
    fn respond(&self, rejection: &Rejection, head: &Head<'_>) -> Responded {
        self(rejection, head).into_response()
    }
}

impl RejectionPolicy {
    /// Answers with the limit's status (429; 503 of an in-flight limit), `Retry-After`,
    /// `Cache-Control: no-store` and problem details (RFC 9457). The default.
    pub fn respond() -> Self {
        Self { steps: Vec::new(), responder: None, is_closed: true, wrong: None }
    }

    /// Answers with what `responder` makes of the rejection. The limit's status stands unless the
    /// responder sets one other than 200; `Retry-After` and `Cache-Control` are added where absent.
    ///
    /// It runs on the request path, and should neither block nor wait. A panic of its own does to the request what one of
    /// the handler's would: the connection is dropped, unless a layer outside catches it. gRPC requests are answered
    /// without it.
    pub fn respond_with<F, R>(responder: F) -> Self
    where
        F: Fn(&Rejection, &Head<'_>) -> R + Send + Sync + 'static,
        R: IntoResponse,
    {
        Self { responder: Some(Arc::new(responder)), ..Self::respond() }
    }

    /// Lets the request wait for its turn: at most `longest_wait`, and at most `depth` requests at once.
    ///
    /// Each limit has a queue of this depth by itself, also where the policy is the layer's and holds for several. The
    /// depth is compared with all who wait for that limit, whoever let them: other layers on the same limit, and
    /// `acquire`, which is bounded by nothing but its callers.
    ///
    /// First come, first served, for each limit and key; nobody overtakes, newcomers least of all. Where
    /// a limit has keys or tiers, one of them may hold at most half of the places, but always one, so that nobody fills
    /// the queue alone. What waits has spent nothing. For a rate the wait is known beforehand, with all who are ahead
    /// counted: if it is above `longest_wait` the request is refused at once and told that wait. For what is in flight
    /// nobody can know it; depth and longest wait bound it.
    ///
    /// Who waits and leaves, by a disconnect say, frees his place and only makes the others sooner. The ready
    /// inner service is let go while a request waits, and a clone of it is polled ready after.
    ///
    /// The layer's timer decides how punctual turns are: tokio's has steps of a millisecond. A wait is never cut
    /// short; a request whose turn was within its longest wait is not refused because a timer was late. An interval
    /// of a few milliseconds is thus better kept by a token bucket with a small burst than by a leaky bucket.
    ///
    /// A gRPC caller whose `grpc-timeout` is shorter waits no longer than that.
    ///
    /// A longest wait or a depth of zero is an error at build; any longer wait is allowed, and clients' own
    /// timeouts end it first.
    pub fn queue(longest_wait: Duration, depth: u64) -> Self {
        Self::of(Step::Queue { longest: longest_wait, depth })
    }

    pub(crate) fn of(step: Step) -> Self {
        Self { steps: vec![step], responder: None, is_closed: false, wrong: None }
    }

    /// Goes on with `next` where this chain has come to its end.
    ///
    /// Tried in the order written: here a wait, then the cache, then an answer of one's own.
    ///
    /// ```
    /// use axum::http::StatusCode;
    /// use std::time::Duration;
    /// use tower_sluice::{Decline, RejectionPolicy};
    ///
    /// async fn cached() -> Result<&'static str, Decline> {
    ///     Err(Decline)
    /// }
    ///
    /// let policy = RejectionPolicy::queue(Duration::from_millis(300), 50)
    ///     .or(RejectionPolicy::degrade(cached))
    ///     .or(RejectionPolicy::respond_with(|_, _| (StatusCode::SERVICE_UNAVAILABLE, "busy")));
    /// # let _ = policy;
    /// ```
    ///
    /// At build it is an error if something follows respond, if a chain has two queues, or if a step follows
    /// one that [takes the body](Self::taking_body).
    pub fn or(mut self, next: Self) -> Self {
        if self.is_closed {
            let reason = "nothing can follow respond, which always answers; write it last";
            let written = format!("{self:?} or {next:?}");
            self.wrong.get_or_insert(ConfigError::new("rejection", written, reason));
        }
        self.wrong = self.wrong.or(next.wrong);
        self.steps.extend(next.steps);
        self.responder = next.responder;
        self.is_closed = next.is_closed;
        self
    }

    /// Gives the last degrade handler the request's body too. Then nothing but respond may follow: the request
    /// is used up, and if the handler declines it is refused.
    ///
    /// ```
    /// use axum::http::StatusCode;
    /// use tower_sluice::RejectionPolicy;
    ///
    /// /// Taken for later.
    /// async fn defer(order: String) -> StatusCode {
    /// #   drop(order);
    ///     StatusCode::ACCEPTED
    /// }
    ///
    /// let policy = RejectionPolicy::degrade(defer).taking_body();
    /// # let _ = policy;
    /// ```
    pub fn taking_body(self) -> Self {
        self.change("taking_body", |degrading| Degrading { takes_body: true, ..degrading })
    }

    /// Sets how many answers of the last degrade handler may be under way at once, their bodies included; above
    /// that the chain goes on. Clones of the policy share the count. At least 1; default: 256.
    pub fn max_degraded(self, answers: u32) -> Self {
        self.change("max_degraded", |degrading| degrading.at_most(answers))
    }

    fn change(mut self, field: &'static str, change: impl FnOnce(Degrading) -> Degrading) -> Self {
        if let Some(Step::Degrade(degrading)) = self.steps.last_mut().filter(|_| !self.is_closed) {
            *degrading = change(degrading.clone());
        } else {
            let value = format!("{self:?}");
            let reason = "belongs right behind degrade(..), whose handler it is for";
            self.wrong.get_or_insert(ConfigError::new(field, value, reason));
        }
        self
    }

    /// What is wrong with the chain.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let chain = || format!("{self:?}");
        let mut queues = 0;
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                Step::Queue { longest, .. } if longest.is_zero() => {
                    let reason = "must be above zero; for no waiting, leave the queue out";
                    return Err(ConfigError::new("longest_wait", "0s", reason));
                }
                Step::Queue { depth: 0, .. } => {
                    let reason = "must be at least 1; for no waiting, leave the queue out";
                    return Err(ConfigError::new("depth", 0, reason));
                }
                Step::Queue { .. } => queues += 1,
                Step::Degrade(degrading) => {
                    check_limit(degrading.most).map_err(|_| {
                        let reason = "must be from 1 to 2^31 - 1";
                        ConfigError::new("max_degraded", degrading.most, reason)
                    })?;
                    if degrading.takes_body && index + 1 < self.steps.len() {
                        let reason = "nothing but respond can follow a handler that takes the body; put other \
                                      steps before it";
                        return Err(ConfigError::new("rejection", chain(), reason));
                    }
                }
            }
        }
        if queues > 1 {
            return Err(ConfigError::new(
                "rejection",
                chain(),
                "a request waits in one queue; keep one of them",
            ));
        }
        Ok(())
    }

    /// The steps before the end.
    #[inline]
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether the end is the default answer, which needs nothing but numbers.
    pub(crate) fn is_default(&self) -> bool {
        self.responder.is_none()
    }

    /// Whether requests may wait.
    pub(crate) fn can_wait(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Queue { .. }))
    }

    /// The responder's answer with our fields; `None` where the default answer is wanted.
    pub(crate) fn answer(&self, rejection: &Rejection, head: &Head<'_>) -> Option<Responded> {
        let mut response = self.responder.as_ref()?.respond(rejection, head);
        if response.status() == StatusCode::OK {
            *response.status_mut() = rejection.status;
        }
        response::add_fields(&mut response, rejection.retry_after_secs);
        Some(response)
    }
}

impl Default for RejectionPolicy {
    fn default() -> Self {
        Self::respond()
    }
}

impl fmt::Debug for RejectionPolicy {
    /// The chain, as `queue(150ms, 100) or respond`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            match step {
                Step::Queue { longest, depth } => write!(f, "queue({longest:?}, {depth}) or ")?,
                Step::Degrade(Degrading { takes_body: false, .. }) => {
                    f.write_str("degrade(..) or ")?;
                }
                Step::Degrade(_) => f.write_str("degrade(..).taking_body() or ")?,
            }
        }
        f.write_str(if self.is_default() { "respond" } else { "respond_with(..)" })
    }
}
