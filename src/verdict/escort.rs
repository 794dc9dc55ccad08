//! [`Escort`]: what an admitted request takes along, up to the end of its response.

use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response, StatusCode, header};

use super::Decisions;
use crate::{
    Head,
    clock::Nanos,
    core::Core,
    event::{self, Fault, Finished},
    in_flight::{Lent, Permit, Permits},
    plan::{Scoped, Told},
};

/// What an admitted request takes along where somebody wants to know more, or several permits are lent.
/// Dropped with the request, it tells of that, and the permits are given back.
pub(crate) struct Escort {
    farewell: Farewell,
    extras: Extras,
    /// Whether an answer other than 404 shows that the route was hidden from the layer.
    unmatched: bool,
    /// Whether the request was a HEAD, and whether a CONNECT.
    is_head: bool,
    is_connect: bool,
}

/// What is added to the answer.
pub(crate) struct Extras {
    /// For the extensions of request and response.
    pub(super) decisions: Option<Decisions>,
    /// For the header.
    pub(super) told: Option<Told>,
}

/// Whether the request asks for a connection of its own, which outlives the answer.
#[inline]
pub(super) fn wants_upgrade(head: &Head<'_>) -> bool {
    let headers = head.headers();
    // Where there are few, comparing them is cheaper than to hash the one looked for.
    let has_upgrade = match headers.keys_len() {
        0..8 => headers.keys().any(|name| name == header::UPGRADE),
        _ => headers.contains_key(header::UPGRADE),
    };
    has_upgrade || head.method() == Method::CONNECT
}

impl Escort {
    pub(super) fn new(
        core: &Arc<Core>,
        head: &Head<'_>,
        started: Nanos,
        extras: Extras,
        unmatched: bool,
        lent: Lent,
    ) -> Self {
        let upgrades = !lent.is_empty() && wants_upgrade(head);
        let farewell = Farewell {
            core: Arc::clone(core),
            started,
            status: 0,
            left: None,
            outcome: event::Outcome::Dropped,
            lent: if upgrades { Lending::Shared(Arc::new(lent)) } else { Lending::Own(lent) },
        };
        let (is_head, is_connect) =
            (head.method() == Method::HEAD, head.method() == Method::CONNECT);
        Self { farewell, extras, unmatched, is_head, is_connect }
    }

    /// Puts what the request is to take along into its extensions.
    pub(crate) fn join<B>(&self, request: &mut Request<B>) {
        let extensions = request.extensions_mut();
        if let Some(decisions) = &self.extras.decisions {
            decisions.join_request(extensions);
        }
        if let Lending::Shared(lent) = &self.farewell.lent {
            let outer = extensions.remove::<Permits>();
            extensions.insert(Permits::new(Arc::clone(lent), outer));
        }
    }

    /// The inner service has answered with this head; what is left waits for the body's end.
    pub(crate) fn answered<R>(self, response: &mut Response<R>) -> Option<Farewell> {
        let Self { mut farewell, extras, unmatched, is_head, is_connect } = self;
        if unmatched && response.status() != StatusCode::NOT_FOUND {
            let core = &farewell.core;
            core.watch.raise_once(Fault::Route, core.plan.first_that(Scoped::wants_route));
        }
        farewell.status = response.status().as_u16();
        if is_upgraded(response.status(), is_connect) && farewell.lent.is_let_go() {
            farewell.core.watch.raise_once(Fault::Upgrade, None);
        }
        // Then there is no body that could be cut short: a server drops what is given as one.
        let is_bodiless = matches!(response.status().as_u16(), 100..200 | 204 | 304);
        if is_head || is_bodiless {
            farewell.completed();
        } else if let Some(length) = content_length(response.headers()) {
            farewell.left = Some(length);
            farewell.passed(0);
        }
        if let Some(told) = extras.told {
            told.tell(response);
        }
        if let Some(decisions) = extras.decisions {
            decisions.join_response(response.extensions_mut());
        }
        let is_wanted = farewell.core.watch.is_observed() || farewell.lent.is_any();
        is_wanted.then_some(farewell)
    }

    /// The inner service has failed.
    pub(crate) fn failed(mut self) {
        self.farewell.failed();
    }
}

/// Whether the answer makes a connection of the request.
fn is_upgraded(status: StatusCode, is_connect: bool) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success())
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What waits for the end of a response body.
#[derive(Debug)]
pub(crate) enum End {
    /// A permit, given back when this is dropped.
    Permit {
        _held: Permit,
    },
    Farewell(Farewell),
}

impl End {
    pub(crate) fn of(permit: Permit) -> Self {
        Self::Permit { _held: permit }
    }

    pub(crate) fn completed(&mut self) {
        if let Self::Farewell(farewell) = self {
            farewell.completed();
        }
    }

    pub(crate) fn failed(&mut self) {
        if let Self::Farewell(farewell) = self {
            farewell.failed();
        }
    }

    /// The body gave so many bytes.
    pub(crate) fn passed(&mut self, bytes: usize) {
        if let Self::Farewell(farewell) = self {
            farewell.passed(bytes);
        }
    }
}

/// Gives back the permits of an admitted request when it is dropped, and tells observers how it ended.
#[derive(Debug)]
pub(crate) struct Farewell {
    core: Arc<Core>,
    started: Nanos,
    status: u16,
    /// Bytes the body has still to give, where its length was announced.
    left: Option<u64>,
    outcome: event::Outcome,
    lent: Lending,
}

/// The permits of a request.
#[derive(Debug)]
enum Lending {
    Own(Lent),
    /// Shared with the connection that may come of the request.
    Shared(Arc<Lent>),
}

impl Lending {
    fn is_any(&self) -> bool {
        !matches!(self, Self::Own(lent) if lent.is_empty())
    }

    /// Whether the request could have kept them and has not.
    fn is_let_go(&self) -> bool {
        matches!(self, Self::Shared(lent) if Arc::strong_count(lent) == 1)
    }

    /// The request's own share ends; who keeps a shared one may still keep the permits.
    fn end(&mut self, outcome: event::Outcome) {
        let lent = match self {
            Self::Own(lent) => Some(lent),
            Self::Shared(lent) => Arc::get_mut(lent),
        };
        for permit in lent.into_iter().flat_map(|lent| lent.drain(..).rev()) {
            permit.finish(outcome);
        }
    }
}

impl Farewell {
    fn completed(&mut self) {
        self.outcome = event::Outcome::Completed(self.status);
    }

    fn failed(&mut self) {
        self.outcome = event::Outcome::Failed;
    }

    /// A server asks no more of a body than was announced.
    fn passed(&mut self, bytes: usize) {
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
        self.lent.end(self.outcome);
        if self.core.watch.is_observed() {
            let elapsed = self.core.time.now().since(self.started).into();
            self.core.watch.finished(&Finished { elapsed, outcome: self.outcome });
        }
    }
}
