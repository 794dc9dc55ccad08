//! [`Late`]: a request of which it is not known yet what becomes.

mod drain;
mod given;

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum_core::body::Body;
use http::Request;
use tower_service::Service;

pub(crate) use self::drain::{Settled, settle};
use self::given::{Given, IsRead};
use crate::{
    Head, UnreadBody,
    body::AnyBody,
    clock::BoxFuture,
    core::Core,
    response::Unread,
    verdict::{Degradation, Degrade, Later, Pass, Refused, Verdict},
};

/// A request that waits for its verdict, for a degrade handler, then for the inner service.
pub(crate) struct Late<S, B> {
    stage: Stage,
    /// Not ready yet.
    inner: S,
    request: Parked<B>,
    core: Arc<Core>,
}

/// What it waits for.
enum Stage {
    Verdict(Later),
    Degrading(Degrade),
    /// It is refused, and its body is read to the end before the answer is sent.
    Draining(BoxFuture<'static, bool>, Option<Refused>),
    /// It is admitted, and the inner service is not ready yet.
    Inner(Option<Pass>),
    /// Nothing more.
    Over,
}

/// The request meanwhile.
enum Parked<B> {
    Whole(Request<B>),
    /// A degrade handler has the body. If it matters whether it reads that, whether it has.
    Head(Request<()>, Option<IsRead>),
    Gone,
}

/// What then becomes of the request.
pub(crate) enum Next {
    /// It is forwarded, to the inner service that is ready now.
    Pass(Pass),
    Refuse(Refused),
}

impl<B: AnyBody> Parked<B> {
    fn head(&self) -> Option<Head<'_>> {
        match self {
            Self::Whole(request) => Some(Head::of(request)),
            Self::Head(request, _) => Some(Head::of(request)),
            Self::Gone => None,
        }
    }

    /// A copy of the head for a degrade handler, with the body if it gets that.
    fn degraded(&mut self, takes_body: bool, unread: UnreadBody) -> Request<Body> {
        match std::mem::replace(self, Self::Gone) {
            Self::Whole(request) if takes_body => {
                let matters = unread.of(&request) != Unread::Nothing;
                let (parts, body) = request.into_parts();
                let (body, is_read) = if matters {
                    let (body, is_read) = Given::new(body);
                    (Body::new(body), Some(is_read))
                } else {
                    (Body::new(body), None)
                };
                *self = Self::Head(Request::from_parts(parts.clone(), ()), is_read);
                Request::from_parts(parts, body)
            }
            Self::Whole(request) => {
                let (parts, body) = request.into_parts();
                let copy = Request::from_parts(parts.clone(), Body::empty());
                *self = Self::Whole(Request::from_parts(parts, body));
                copy
            }
            Self::Head(request, is_read) => {
                let copy = Request::from_parts(request.clone().into_parts().0, Body::empty());
                *self = Self::Head(request, is_read);
                copy
            }
            Self::Gone => Request::new(Body::empty()),
        }
    }
}

impl<S, B: AnyBody> Late<S, B> {
    pub(crate) fn deciding(later: Later, inner: S, request: Request<B>, core: Arc<Core>) -> Self {
        Self { stage: Stage::Verdict(later), inner, request: Parked::Whole(request), core }
    }

    pub(crate) fn degrading(
        degradation: Degradation,
        inner: S,
        request: Request<B>,
        core: Arc<Core>,
    ) -> Self {
        let mut late = Self { stage: Stage::Over, inner, request: Parked::Whole(request), core };
        late.degrade(degradation);
        late
    }

    /// Refused, once the body is read to its end or is too long.
    pub(crate) fn draining(
        read: BoxFuture<'static, bool>,
        refused: Refused,
        inner: S,
        core: Arc<Core>,
    ) -> Self {
        let stage = Stage::Draining(read, Some(refused));
        Self { stage, inner, request: Parked::Gone, core }
    }

    /// Sees to the body of a request that is refused; the answer, unless it has to wait for that.
    fn refuse(&mut self, mut refused: Refused) -> Option<Refused> {
        self.stage = Stage::Over;
        match std::mem::replace(&mut self.request, Parked::Gone) {
            Parked::Whole(request) => match settle(refused, request, &self.core) {
                Settled::Answer(answer) => refused = answer,
                Settled::Reading(read, answer) => {
                    self.stage = Stage::Draining(read, Some(answer));
                    return None;
                }
            },
            // The handler has it, to read it or not as any handler; unless it declined, and the answer is ours.
            Parked::Head(_, is_read) => {
                if !refused.is_degraded() && is_read.is_some_and(|is_read| !is_read.get()) {
                    refused.close();
                }
            }
            Parked::Gone => {}
        }
        Some(refused)
    }

    fn degrade(&mut self, degradation: Degradation) {
        let request = self.request.degraded(degradation.takes_body(), self.core.unread);
        self.stage = Stage::Degrading(degradation.start(request));
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Forwards the request, which is whole where it is to pass.
    pub(crate) fn forward(mut self) -> Option<S::Future>
    where
        S: Service<Request<B>>,
    {
        match self.request {
            Parked::Whole(request) => Some(self.inner.call(request)),
            Parked::Head(..) | Parked::Gone => None,
        }
    }

    /// Waits for the verdict and goes by it, and after a pass waits for the inner service to be ready.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Next, S::Error>>
    where
        S: Service<Request<B>>,
    {
        loop {
            let verdict = match &mut self.stage {
                Stage::Verdict(later) => {
                    let outcome = ready!(later.outcome.as_mut().poll(cx));
                    let Later { unmatched, reached, .. } = *later;
                    let Some(head) = self.request.head() else { return Poll::Pending };
                    self.core.judge_late(&head, outcome, unmatched, reached)
                }
                Stage::Degrading(degrade) => {
                    let response = ready!(degrade.answer.as_mut().poll(cx));
                    let Stage::Degrading(Degrade { rest, .. }) =
                        std::mem::replace(&mut self.stage, Stage::Over)
                    else {
                        return Poll::Pending;
                    };
                    let Some(head) = self.request.head() else { return Poll::Pending };
                    self.core.degraded(&head, response, rest)
                }
                Stage::Draining(read, refused) => {
                    let has_ended = ready!(read.as_mut().poll(cx));
                    let refused = refused.take();
                    self.stage = Stage::Over;
                    let Some(mut refused) = refused else { return Poll::Pending };
                    if !has_ended {
                        refused.close();
                    }
                    return Poll::Ready(Ok(Next::Refuse(refused)));
                }
                Stage::Inner(pass) => {
                    let ready = ready!(self.inner.poll_ready(cx));
                    let pass = pass.take();
                    if let Err(error) = ready {
                        if let Some(Pass::Escorted(escort)) = pass {
                            escort.failed();
                        }
                        return Poll::Ready(Err(error));
                    }
                    let Some(pass) = pass else { return Poll::Pending };
                    return Poll::Ready(Ok(Next::Pass(pass)));
                }
                Stage::Over => return Poll::Pending,
            };
            match verdict {
                Verdict::Refuse(refused) => {
                    if let Some(refused) = self.refuse(refused) {
                        return Poll::Ready(Ok(Next::Refuse(refused)));
                    }
                }
                Verdict::Later(later) => self.stage = Stage::Verdict(later),
                Verdict::Degrade(degradation) => self.degrade(*degradation),
                Verdict::Pass(pass) => {
                    if let (Pass::Escorted(escort), Parked::Whole(request)) =
                        (&pass, &mut self.request)
                    {
                        escort.join(request);
                    }
                    self.stage = Stage::Inner(Some(pass));
                }
            }
        }
    }
}
