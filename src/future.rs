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
    Head,
    admission::Outcome,
    body::{AnyBody, BodyMode},
    clock::BoxFuture,
    core::Core,
    verdict::{Escort, Refused, Unmatched, Verdict},
};

pin_project! {
    /// The answer of [`RateLimit`](crate::RateLimit): the inner service's, or a refusal.
    ///
    /// # Cancel safety
    ///
    /// Dropping it while a backend is asked gives back what is charged in this process; once the request is
    /// admitted its permits stay spent.
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
        /// The inner service has the request.
        Forward { #[pin] inner: S::Future, escort: Option<Box<Escort>> },
        /// A backend is asked; or, after that, the inner service is not ready yet.
        Later { late: Option<Box<Late<S, B>>> },
        /// The answer is ours.
        Refuse { core: Arc<Core>, refused: Option<Refused> },
    }
}

/// A request that waits for its verdict, then for the inner service.
struct Late<S, B> {
    /// Until it has come.
    outcome: Option<BoxFuture<'static, Outcome>>,
    unmatched: Unmatched,
    escort: Option<Box<Escort>>,
    inner: S,
    request: Request<B>,
    core: Arc<Core>,
}

impl<S, B, M> ResponseFuture<S, B, M>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) fn forward(inner: S::Future, escort: Option<Box<Escort>>) -> Self {
        Self { state: State::Forward { inner, escort }, mode: PhantomData }
    }

    pub(crate) fn refuse(core: Arc<Core>, refused: Refused) -> Self {
        Self { state: State::Refuse { core, refused: Some(refused) }, mode: PhantomData }
    }

    pub(crate) fn later(
        outcome: BoxFuture<'static, Outcome>,
        unmatched: Unmatched,
        inner: S,
        request: Request<B>,
        core: Arc<Core>,
    ) -> Self {
        let late = Late { outcome: Some(outcome), unmatched, escort: None, inner, request, core };
        Self { state: State::Later { late: Some(Box::new(late)) }, mode: PhantomData }
    }
}

impl<S, B, R, M> Future for ResponseFuture<S, B, M>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: AnyBody,
    M: BodyMode,
{
    type Output = Result<Response<M::Out<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // Before anything is looked at, so that the response is written straight to where it is wanted.
        if let StateProj::Forward { inner, escort: None } = this.state.as_mut().project() {
            return inner.poll(cx).map_ok(|response| response.map(|body| M::theirs(body, None)));
        }
        this.state.poll_rare::<R, M>(cx)
    }
}

impl<S, B> State<S, B>
where
    S: Service<Request<B>>,
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
                StateProj::Forward { inner, escort } => {
                    let answer = ready!(inner.poll(cx));
                    return Poll::Ready(see_off::<R, M, S::Error>(answer, escort.take()));
                }
                StateProj::Later { late } => {
                    // Taken when the request moves on; a future that is polled after that is misused.
                    let Some(waiting) = late else { return Poll::Pending };
                    match ready!(waiting.poll(cx))? {
                        Verdict::Refuse(refused) => {
                            Self::Refuse { core: Arc::clone(&waiting.core), refused: Some(refused) }
                        }
                        Verdict::Pass(escort) => {
                            let Some(late) = late.take() else { return Poll::Pending };
                            let Late { mut inner, request, .. } = *late;
                            Self::Forward { inner: inner.call(request), escort }
                        }
                    }
                }
                StateProj::Refuse { core, refused } => {
                    let Some(refused) = refused.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(refused.into_response(core).map(M::ours)));
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
            Ok(response.map(|body| M::theirs(body, farewell)))
        }
        Err(error) => {
            if let Some(escort) = escort {
                escort.failed();
            }
            Err(error)
        }
    }
}

impl<S, B> Late<S, B>
where
    S: Service<Request<B>>,
{
    /// Waits for the verdict, and after a pass for the inner service to be ready.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Verdict, S::Error>> {
        if let Some(outcome) = &mut self.outcome {
            let outcome = ready!(outcome.as_mut().poll(cx));
            self.outcome = None;
            match self.core.judge_late(&Head::of(&self.request), outcome, self.unmatched) {
                Verdict::Pass(escort) => self.escort = escort,
                refuse @ Verdict::Refuse(_) => return Poll::Ready(Ok(refuse)),
            }
            if let Some(decisions) = self.escort.as_ref().and_then(|e| e.decisions.as_ref()) {
                decisions.join_request(self.request.extensions_mut());
            }
        }
        let ready = ready!(self.inner.poll_ready(cx));
        let escort = self.escort.take();
        match ready {
            Ok(()) => Poll::Ready(Ok(Verdict::Pass(escort))),
            Err(error) => {
                if let Some(escort) = escort {
                    escort.failed();
                }
                Poll::Ready(Err(error))
            }
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
