//! Handlers and services as degrade steps of a [`RejectionPolicy`].

use std::{convert::Infallible, future::poll_fn};

use axum_core::{body::Body, response::IntoResponse};
use http::{Request, Response};
use tower_service::Service;

use crate::{
    RejectionPolicy,
    clock::BoxFuture,
    rejection::{Degrade, Degrading, Step},
};

impl RejectionPolicy {
    /// Lets `handler` answer: any axum handler, with extractors and all. A handler with `State` goes to
    /// [`degrade_with_state`](Self::degrade_with_state); here the compiler says that `Handler<_, ()>` is not
    /// implemented.
    ///
    /// It gets a copy of the head, an empty body, and the [`Rejection`](crate::Rejection) as an extension, which is an
    /// extractor too. **A handler
    /// that extracts the body (`String`, `Json`, `Form`, `Bytes`) needs [`taking_body`](Self::taking_body)**: without it
    /// there is nothing to read, and `Json` would answer 400. The request itself is kept: if the handler
    /// returns `Err(`[`Decline`](crate::Decline)`)` the next step gets it.
    ///
    /// ```
    /// use axum::{Json, http::HeaderMap};
    /// use tower_sluice::{Rejection, RejectionPolicy};
    ///
    /// async fn hot_list(rejection: Rejection) -> (HeaderMap, Json<Vec<u64>>) {
    ///     let mut headers = HeaderMap::new();
    ///     headers.insert("x-degraded", rejection.reason().as_str().parse().unwrap());
    ///     (headers, Json(vec![1, 2, 3]))
    /// }
    ///
    /// let policy = RejectionPolicy::degrade(hot_list);
    /// # let _ = policy;
    /// ```
    ///
    /// The answer is sent as the handler makes it, its status too, and to gRPC callers as well: give those a service
    /// that speaks gRPC ([`degrade_service`](Self::degrade_service)), or have no degrade step for them.
    ///
    /// At most 256 such answers are under way at once ([`max_degraded`](Self::max_degraded)). A handler that never ends
    /// holds one of them until the request is dropped, so put a timeout outside; one that panics does to the request what
    /// the inner handler would.
    #[cfg(feature = "axum")]
    pub fn degrade<H, T>(handler: H) -> Self
    where
        H: axum::handler::Handler<T, ()> + Sync,
        T: 'static,
    {
        Self::degrade_with_state((), handler)
    }

    /// Lets `handler` answer, with its state. As [`degrade`](Self::degrade).
    ///
    /// ```
    /// use axum::extract::State;
    /// use std::sync::{Arc, RwLock};
    /// use tower_sluice::{Decline, RejectionPolicy};
    ///
    /// type Cache = Arc<RwLock<Option<String>>>;
    ///
    /// async fn cached(State(cache): State<Cache>) -> Result<String, Decline> {
    ///     cache.read().unwrap().clone().ok_or(Decline)
    /// }
    ///
    /// let policy = RejectionPolicy::degrade_with_state(Cache::default(), cached);
    /// # let _ = policy;
    /// ```
    #[cfg(feature = "axum")]
    pub fn degrade_with_state<H, T, S>(state: S, handler: H) -> Self
    where
        H: axum::handler::Handler<T, S> + Sync,
        S: Clone + Send + Sync + 'static,
        T: 'static,
    {
        struct Handled<H, S, T>(H, S, std::marker::PhantomData<fn() -> T>);

        impl<H, T, S> Degrade for Handled<H, S, T>
        where
            H: axum::handler::Handler<T, S> + Sync,
            S: Clone + Send + Sync + 'static,
            T: 'static,
        {
            fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
                Box::pin(self.0.clone().call(request, self.1.clone()))
            }
        }

        Self::of(Step::Degrade(Degrading::new(Handled(handler, state, std::marker::PhantomData))))
    }

    /// Lets a Tower service answer that cannot fail: a `Router`, a `MethodRouter`, a `service_fn`. As
    /// `degrade`.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_sluice::RejectionPolicy;
    ///
    /// let cached: Router = Router::new()
    ///     .route("/feed", get(|| async { "the list of an hour ago" }))
    ///     .route("/news", get(|| async { "nothing new" }));
    /// let policy = RejectionPolicy::degrade_service(cached);
    /// # let _ = policy;
    /// ```
    pub fn degrade_service<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Response: IntoResponse,
        S::Future: Send,
    {
        struct Served<S>(S);

        impl<S> Degrade for Served<S>
        where
            S: Service<Request<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
            S::Response: IntoResponse,
            S::Future: Send,
        {
            fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
                let mut service = self.0.clone();
                Box::pin(async move {
                    let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
                    let Ok(response) = service.call(request).await;
                    response.into_response()
                })
            }
        }

        Self::of(Step::Degrade(Degrading::new(Served(service))))
    }
}
