//! [`Recorder`]: an observer that remembers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::lock;
use crate::{
    BackendError, BackendErrorKind, Observer,
    decision::RuleDecision,
    event::{Admitted, Fault, Finished, Left, Outcome, Reason, Rejected, SetupFault},
};

/// An [`Observer`] that keeps what it is told. Clones share it.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, key};
/// use tower_sluice::testing::{Event, Recorder, admitted};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let seen = Recorder::new();
/// let limit = RateLimitLayer::builder()
///     .rule(Rule::new("per-address", TokenBucket::per_second(2)).key(key::client_ip()))
///     .observer(seen.clone())
///     .clock(ManualClock::new())
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
/// assert_eq!(admitted(&app, 3, || Request::get("/").body(Body::empty()).unwrap()).await, 2);
///
/// // The requests of this test have no address, and the limit says so.
/// let refused = seen.events().iter().filter(|event| matches!(event, Event::Rejected { .. })).count();
/// assert_eq!(refused, 1);
/// assert_eq!(seen.faults()[0].code(), "SL-PEER");
/// # Ok::<(), tower_sluice::ConfigError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    events: Arc<Mutex<Vec<Event>>>,
}

/// What a [`Recorder`] was told, as owned values.
///
/// ```
/// use tower_sluice::testing::Event;
///
/// fn line(event: &Event) -> String {
///     match event {
///         Event::Rejected { status, rules, .. } => format!("{status} by {} rules", rules.len()),
///         Event::Admitted { waited: Some(waited), .. } => format!("admitted after {waited:?}"),
///         // Events and their fields may be added.
///         other => format!("{other:?}"),
///     }
/// }
/// # let _ = line;
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// See [`Observer::admitted`].
    #[non_exhaustive]
    Admitted {
        /// What each rule that applied decided.
        decisions: Vec<RuleDecision>,
        /// Whether no limit applied because the request was exempt.
        exempt: bool,
        /// How long it waited, where it had to.
        waited: Option<Duration>,
    },
    /// See [`Observer::fault`].
    #[non_exhaustive]
    Fault {
        /// What kind.
        fault: Fault,
        /// The rule concerned.
        rule: Option<String>,
    },
    /// See [`Observer::finished`].
    #[non_exhaustive]
    Finished {
        /// From admission to the end.
        elapsed: Duration,
        /// How it ended.
        outcome: Outcome,
    },
    /// See [`Observer::left`].
    #[non_exhaustive]
    Left {
        /// The limit it waited for.
        limit: String,
        /// For how long.
        waited: Duration,
    },
    /// See [`Observer::rejected`].
    #[non_exhaustive]
    Rejected {
        /// Why.
        reason: Reason,
        /// The status of the answer.
        status: u16,
        /// The rules that refuse.
        rules: Vec<RuleDecision>,
        /// What kind of failure the backend had.
        error: Option<BackendErrorKind>,
        /// Whether a degrade handler answered.
        degraded: bool,
    },
}

impl Recorder {
    /// A recorder that was told nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// All events since the last call; they are forgotten.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.events))
    }

    /// The set-up faults raised so far.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let fault = |event: &Event| match event {
            Event::Fault { fault, .. } => Some(*fault),
            _ => None,
        };
        lock(&self.events).iter().filter_map(fault).collect()
    }

    fn push(&self, event: Event) {
        lock(&self.events).push(event);
    }
}

impl Observer for Recorder {
    fn admitted(&self, admitted: &Admitted<'_>) {
        self.push(Event::Admitted {
            decisions: admitted.decisions().to_vec(),
            exempt: admitted.is_exempt(),
            waited: admitted.waited(),
        });
    }

    fn rejected(&self, rejected: &Rejected<'_>) {
        self.push(Event::Rejected {
            reason: rejected.reason(),
            status: rejected.status(),
            rules: rejected.rules().to_vec(),
            error: rejected.error().map(BackendError::kind),
            degraded: rejected.is_degraded(),
        });
    }

    fn finished(&self, finished: &Finished) {
        self.push(Event::Finished { elapsed: finished.elapsed(), outcome: finished.outcome() });
    }

    fn left(&self, left: &Left<'_>) {
        self.push(Event::Left { limit: left.limit().to_owned(), waited: left.waited() });
    }

    fn fault(&self, fault: &SetupFault) {
        let rule = fault.rule().map(str::to_owned);
        self.push(Event::Fault { fault: fault.fault(), rule });
    }
}
