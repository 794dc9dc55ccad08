//! [`ResponseFuture`]: the answer of [`RateLimit`](crate::RateLimit).

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    body::{AnyBody, BodyMode},
    core::Core,
    in_flight::Permit,
    late::{Late, Next},
    plan::Told,
    verdict::{End, Escort, Pass, Refused},
};

pin_project! {
    /// The answer of [`RateLimit`](crate::RateLimit): the inner service's, or a refusal.
    ///
    /// Named where a service around the layer names its future:
    ///
    /// ```
    /// use axum::{Router, body::Body, http::Request};
    /// use tower::Service;
    /// use tower_sluice::{RateLimit, ResponseFuture, body::Erased};
    ///
    /// struct Front(RateLimit<Router>);
    ///
    /// impl Front {
    ///     fn answer(&mut self, request: Request<Body>) -> ResponseFuture<Router, Body, Erased> {
    ///         self.0.call(request)
    ///     }
    /// }
    /// # let _ = Front::answer;
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping it while a backend is asked or the request waits gives back what is charged in this process, and
    /// its place; once the request is admitted, permits of rates stay spent, those in flight are given back.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<S, B, M>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
        mode: PhantomData<fn() -> M>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        /// The inner service has the request, with nothing to add to its answer.
        Forward { #[pin] inner: S::Future },
        /// The inner service has the request, with a permit.
        Held { #[pin] inner: S::Future, permit: Option<Permit> },
        /// The inner service has the request; its answer will tell something, and there may be a permit.
        Told { #[pin] inner: S::Future, told: Option<Told>, permit: Option<Permit> },
        /// The inner service has the request, with more.
        Escorted { #[pin] inner: S::Future, escort: Option<Box<Escort>> },
        /// It is not known yet what becomes of the request.
        Later { late: Option<Box<Late<S, B>>> },
        /// The answer is ours.
        Refuse { core: Arc<Core>, refused: Option<Refused> },
    }
}

impl<S, B> State<S, B>
where
    S: Service<Request<B>>,
{
    fn forward(inner: S::Future, pass: Pass) -> Self {
        match pass {
            Pass::Plain => Self::Forward { inner },
            Pass::Held(permit) => Self::Held { inner, permit: Some(permit) },
            Pass::Told(told, permit) => Self::Told { inner, told: Some(told), permit },
            Pass::Escorted(escort) => Self::Escorted { inner, escort: Some(escort) },
        }
    }
}

impl<S, B, M> ResponseFuture<S, B, M>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) fn forward(inner: S::Future) -> Self {
        Self { state: State::Forward { inner }, mode: PhantomData }
    }

    #[inline]
    pub(crate) fn held(inner: S::Future, permit: Permit) -> Self {
        Self { state: State::Held { inner, permit: Some(permit) }, mode: PhantomData }
    }

    pub(crate) fn escorted(inner: S::Future, pass: Pass) -> Self {
        Self { state: State::forward(inner, pass), mode: PhantomData }
    }

    pub(crate) fn refuse(core: Arc<Core>, refused: Refused) -> Self {
        Self { state: State::Refuse { core, refused: Some(refused) }, mode: PhantomData }
    }

    pub(crate) fn later(late: Late<S, B>) -> Self {
        Self { state: State::Later { late: Some(Box::new(late)) }, mode: PhantomData }
    }
}

impl<S, B, R, M> Future for ResponseFuture<S, B, M>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: AnyBody,
    R: AnyBody,
    M: BodyMode,
{
    type Output = Result<Response<M::Out<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // Before anything is looked at, so that the response is written straight to where it is wanted.
        if let StateProj::Forward { inner } = this.state.as_mut().project() {
            return inner.poll(cx).map_ok(|response| response.map(|body| M::theirs(body, None)));
        }
        this.state.poll_rare::<R, M>(cx)
    }
}

impl<S, B> State<S, B>
where
    S: Service<Request<B>>,
    B: AnyBody,
{
    /// All but an inner future with nothing to add to its answer.
    #[inline(never)]
    fn poll_rare<R, M>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Answer<M, R, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>>,
        R: AnyBody,
        M: BodyMode,
    {
        loop {
            let next = match self.as_mut().project() {
                StateProj::Forward { inner } => {
                    let answer = ready!(inner.poll(cx));
                    return Poll::Ready(
                        answer.map(|response| response.map(|body| M::theirs(body, None))),
                    );
                }
                StateProj::Held { inner, permit } => {
                    let answer = ready!(inner.poll(cx));
                    let end = permit.take().map(End::of);
                    return Poll::Ready(
                        answer.map(|response| response.map(|body| M::theirs(body, end))),
                    );
                }
                StateProj::Told { inner, told, permit } => {
                    let mut answer = ready!(inner.poll(cx));
                    if let (Ok(response), Some(told)) = (&mut answer, told.take()) {
                        told.tell(response);
                    }
                    let end = permit.take().map(End::of);
                    return Poll::Ready(
                        answer.map(|response| response.map(|body| M::theirs(body, end))),
                    );
                }
                StateProj::Escorted { inner, escort } => {
                    let answer = ready!(inner.poll(cx));
                    return Poll::Ready(see_off::<R, M, S::Error>(answer, escort.take()));
                }
                StateProj::Later { late } => {
                    // Taken when the request moves on; a future that is polled after that is misused.
                    let Some(waiting) = late else { return Poll::Pending };
                    match ready!(waiting.poll(cx))? {
                        Next::Refuse(refused) => {
                            let core = Arc::clone(waiting.core());
                            Self::Refuse { core, refused: Some(refused) }
                        }
                        Next::Pass(pass) => {
                            let inner = late.take().and_then(|late| late.forward());
                            let Some(inner) = inner else { return Poll::Pending };
                            Self::forward(inner, pass)
                        }
                    }
                }
                StateProj::Refuse { core, refused } => {
                    let Some(refused) = refused.take() else { return Poll::Pending };
                    let (response, end) = refused.into_response(core);
                    return Poll::Ready(Ok(response.map(|body| M::ours(body, end))));
                }
            };
            self.set(next);
        }
    }
}

/// What the future resolves to.
type Answer<M, R, E> = Result<Response<<M as BodyMode>::Out<R>>, E>;

#[cold]
fn see_off<R: AnyBody, M: BodyMode, E>(
    answer: Result<Response<R>, E>,
    escort: Option<Box<Escort>>,
) -> Answer<M, R, E> {
    match answer {
        Ok(mut response) => {
            let farewell = escort.and_then(|escort| escort.answered(&mut response));
            Ok(response.map(|body| M::theirs(body, farewell.map(End::Farewell))))
        }
        Err(error) => {
            if let Some(escort) = escort {
                escort.failed();
            }
            Err(error)
        }
    }
}

impl<S, B, M> fmt::Debug for ResponseFuture<S, B, M>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
