//! [`RateLimit`]: the service.
//!
//! What keeps the admitted path as cheap as it is (the numbers are in `BENCHMARKS.md`):
//!
//! - Moving the request is the cost, not deciding: it is some 240 bytes, and each further hop by value
//!   takes as long as a rule. `call` moves it once, into `inner.call`; what is rare takes it in a function
//!   that is not inlined, and no helper on the hot path takes it by value.
//! - `judge` is generic over nothing, and its first case is one rule with nothing to remember.
//! - The future looks whether there is anything to add *before* it polls the inner future, so that the
//!   response is written straight to where it is wanted.

use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    Head,
    body::{AnyBody, BodyMode, Erased},
    core::Core,
    future::ResponseFuture,
    late::{Late, Settled, settle},
    verdict::{Judged, Pass, Verdict},
};

/// Limits what reaches `S`. Made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It decides inside `call`; `poll_ready` only asks the inner service and takes nothing, so a service that
/// is polled and dropped, or cloned, costs nobody a permit.
///
/// | when | what happens |
/// | --- | --- |
/// | allowed at once | the inner service that was polled ready is called |
/// | denied | the inner service is not called, and its readiness is given back; the answer is a response, by the [policy](crate::RejectionPolicy) |
/// | a backend answers later, or the request waits | the ready inner service is let go; once allowed, a clone of it is polled ready and called |
/// | a key is missing | as [`Missing`](crate::Missing) says |
/// | a backend fails | 503: fail closed |
/// | the future is dropped while deciding or waiting | what is charged in this process is given back, and the place; a call on its way to a backend stays spent |
/// | the future is dropped later, or the body early | permits of rates stay spent, those in flight are given back |
///
/// The inner service's error type is left as it is.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower::ServiceBuilder;
/// use tower_sluice::{RateLimit, RateLimitLayer, Rule, TokenBucket};
///
/// let layer = RateLimitLayer::builder().rule(Rule::new("all", TokenBucket::per_second(500))).build()?;
/// let routes: Router = Router::new().route("/", get(|| async {}));
/// let limited: RateLimit<Router> = ServiceBuilder::new().layer(layer).service(routes);
/// # let _ = limited;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
pub struct RateLimit<S, M = Erased> {
    inner: S,
    core: Arc<Core>,
    mode: PhantomData<fn() -> M>,
}

impl<S, M> RateLimit<S, M> {
    pub(crate) fn new(inner: S, core: Arc<Core>) -> Self {
        Self { inner, core, mode: PhantomData }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service. Calling it goes past the limits.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without the limits.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, M> Clone for RateLimit<S, M> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.core))
    }
}

impl<S: fmt::Debug, M> fmt::Debug for RateLimit<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, M, B, R> Service<Request<B>> for RateLimit<S, M>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: AnyBody,
    R: AnyBody,
    M: BodyMode,
{
    type Response = Response<M::Out<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, M>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.core.judge(&Head::of(&request)) {
            None => ResponseFuture::forward(self.inner.call(request)),
            Some(judged) => self.call_judged(request, judged),
        }
    }
}

impl<S: Clone, M> RateLimit<S, M> {
    /// All verdicts but the plain pass. Not inlined: with one call of the inner service in `call` its future is
    /// made where it is wanted, with two it is moved there.
    #[inline(never)]
    fn call_judged<B>(&mut self, request: Request<B>, judged: Judged) -> ResponseFuture<S, B, M>
    where
        S: Service<Request<B>>,
        B: AnyBody,
    {
        match judged {
            Judged::Now(Verdict::Pass(Pass::Held(permit))) => {
                ResponseFuture::held(self.inner.call(request), permit)
            }
            judged => self.call_rare(request, judged),
        }
    }

    /// All verdicts but a pass with nothing or a permit.
    #[cold]
    #[inline(never)]
    fn call_rare<B>(&mut self, mut request: Request<B>, judged: Judged) -> ResponseFuture<S, B, M>
    where
        S: Service<Request<B>>,
        B: AnyBody,
    {
        let Judged::Now(verdict) = judged else {
            self.core.mark(request.extensions_mut());
            return match self.core.judge_young(&Head::of(&request)) {
                None => ResponseFuture::forward(self.inner.call(request)),
                Some(judged) => self.call_rare(request, judged),
            };
        };
        match verdict {
            Verdict::Pass(pass) => {
                if let Pass::Escorted(escort) = &pass {
                    escort.join(&mut request);
                }
                ResponseFuture::escorted(self.inner.call(request), pass)
            }
            Verdict::Refuse(refused) => {
                let (inner, core) = (self.release_readiness(), Arc::clone(&self.core));
                match settle(refused, request, &core) {
                    Settled::Answer(refused) => ResponseFuture::refuse(core, refused),
                    Settled::Reading(read, refused) => {
                        ResponseFuture::later(Late::draining(read, refused, inner, core))
                    }
                }
            }
            Verdict::Later(later) => {
                let (inner, core) = (self.release_readiness(), Arc::clone(&self.core));
                ResponseFuture::later(Late::deciding(later, inner, request, core))
            }
            Verdict::Degrade(degradation) => {
                let (inner, core) = (self.release_readiness(), Arc::clone(&self.core));
                ResponseFuture::later(Late::degrading(*degradation, inner, request, core))
            }
        }
    }

    /// Lets the ready inner service go, and with it whatever it reserved; a clone takes its place. Gives
    /// another clone, not ready.
    fn release_readiness(&mut self) -> S {
        let fresh = self.inner.clone();
        self.inner = fresh.clone();
        fresh
    }
}
