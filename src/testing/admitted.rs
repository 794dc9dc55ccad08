//! [`admitted`]: how many of so many requests pass.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
};

use http::{Request, Response, StatusCode};
use tower_service::Service;

use crate::verdict::answers;

/// Sends `n` requests, one after the other, and says how many were admitted.
///
/// A request was admitted where no layer has answered it: refused, whatever the status, or
/// [degraded](crate::RejectionPolicy::degrade). An error of the handler's own, a 404 or 500, is admitted: the limit let it
/// through. A 401 of a [missing key](crate::Missing::Refuse) is not; so if a test finds that nobody is admitted, look
/// whether its requests have the key.
///
/// Answers with 429 or 503, or with `grpc-status` 8 or 14, count as refused wherever they come from: a layer may
/// stand behind a `Buffer`, whose worker answers on a thread of its own, where this function cannot see it.
///
/// The service is an axum `Router`, a [`RateLimit`](crate::RateLimit), or any Tower service that can be cloned. Each
/// request has a clone of its own, which is polled ready and called; the body of the answer is dropped, so that
/// permits of an in-flight limit are back before the next request: [how to test one](crate::guide::testing#in-flight).
///
/// The test that everybody should write first, the limit refuses:
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower_sluice::{ManualClock, RateLimitLayer, Rule, TokenBucket, testing::admitted};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let limit = RateLimitLayer::builder()
///     .rule(Rule::new("all", TokenBucket::per_second(10)))
///     .clock(ManualClock::new()) // stands still, so that nothing comes back meanwhile
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(limit);
///
/// let passed = admitted(&app, 12, || Request::get("/").body(Body::empty()).unwrap()).await;
/// assert_eq!(passed, 10);
/// # Ok::<(), tower_sluice::ConfigError>(())
/// # }).unwrap();
/// ```
///
/// A request that waits in a [queue](crate::RejectionPolicy::queue) makes this function wait, and on a clock that
/// stands still it waits for ever. Spawn it, and move the clock: see
/// [`guide::testing`](crate::guide::testing#a-queue).
///
/// # Panics
///
/// Where the service fails, with the number of the request. A refusal is a response, so an error is none of the
/// limit's, and a count that passed over it would hide it.
///
/// # Cancel safety
///
/// Dropping the future drops the request under way. Those before it stay counted by the limits.
pub async fn admitted<S, B, R>(
    service: &S,
    n: usize,
    mut request: impl FnMut() -> Request<B>,
) -> usize
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Error: fmt::Debug,
{
    let mut admitted = 0;
    for number in 1..=n {
        let mut service = service.clone();
        if let Err(error) = poll_fn(|cx| service.poll_ready(cx)).await {
            panic!("request {number} of {n}: the service did not become ready: {error:?}");
        }
        let mut future = pin!(service.call(request()));
        let mut answered = false;
        // Each poll is on one thread, and that is where a layer counts its answers.
        let answer = poll_fn(|cx| {
            let before = answers();
            let answer = future.as_mut().poll(cx);
            answered |= answers() != before;
            answer
        });
        match answer.await {
            Ok(response) => admitted += usize::from(!answered && !is_refused(&response)),
            Err(error) => panic!("request {number} of {n}: the service failed: {error:?}"),
        }
    }
    admitted
}

fn is_refused<R>(response: &Response<R>) -> bool {
    let status = response.status();
    // RESOURCE_EXHAUSTED and UNAVAILABLE.
    let grpc = response.headers().get("grpc-status");
    status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::SERVICE_UNAVAILABLE
        || grpc.is_some_and(|code| matches!(code.as_bytes(), b"8" | b"14"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum_core::body::Body;
    use tower::{Layer, ServiceExt, service_fn};

    use super::*;
    use crate::{ManualClock, Missing, RateLimitLayer, RejectionPolicy, Rule, TokenBucket, key};

    /// Answers with what stands in the request's header `answer`.
    async fn count(answer: &'static str) -> usize {
        let service = service_fn(async |request: Request<()>| {
            let answer = request.headers()["answer"].to_str().unwrap();
            let response = match answer.split_once(' ') {
                Some(("grpc", code)) => Response::builder().header("grpc-status", code),
                _ => Response::builder().status(answer),
            };
            Ok::<_, Infallible>(response.body(()).unwrap())
        });
        admitted(&service, 3, || Request::builder().header("answer", answer).body(()).unwrap())
            .await
    }

    #[tokio::test]
    async fn refusals_are_429_503_and_their_like_in_grpc() {
        for refused in ["429", "503", "grpc 8", "grpc 14"] {
            assert_eq!(count(refused).await, 0, "{refused}");
        }
        for admitted in ["200", "404", "500", "401", "grpc 0", "grpc 7", "grpc 80"] {
            assert_eq!(count(admitted).await, 3, "{admitted}");
        }
    }

    /// Of ten requests through a layer around a handler that answers 404.
    async fn through(rule: Rule) -> usize {
        let layer = RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap();
        let handler = service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::builder().status(404).body(Body::empty()).unwrap())
        });
        admitted(&layer.layer(handler), 10, || Request::new(Body::empty())).await
    }

    #[tokio::test]
    async fn what_a_layer_answers_is_not_admitted_whatever_the_status() {
        let three = || Rule::new("three", TokenBucket::per_minute(3));
        assert_eq!(through(three()).await, 3);
        assert_eq!(through(three().status(StatusCode::FORBIDDEN)).await, 3);
        let teapot = RejectionPolicy::respond_with(|_, _| StatusCode::IM_A_TEAPOT);
        assert_eq!(through(three().rejection(teapot)).await, 3);
        let cached = RejectionPolicy::degrade_service(service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::new(Body::from("cached")))
        }));
        assert_eq!(through(three().rejection(cached)).await, 3);
        let keyed = three().key(key::header("x-user"));
        assert_eq!(through(keyed.missing(Missing::Refuse(StatusCode::UNAUTHORIZED))).await, 0);
    }

    #[tokio::test]
    #[should_panic(expected = "request 1 of 2: the service failed: \"broken\"")]
    async fn a_service_that_fails_is_no_count() {
        let service = service_fn(async |_: Request<()>| Err::<Response<()>, _>("broken"));
        admitted(&service, 2, || Request::new(())).await;
    }

    #[tokio::test]
    #[should_panic(expected = "request 1 of 2: the service did not become ready: ")]
    async fn a_service_that_is_never_ready_is_no_count() {
        let (gone, worker) = tower::buffer::Buffer::<Request<()>, _>::pair(
            service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(()))).boxed(),
            1,
        );
        drop(worker);
        admitted(&gone, 2, || Request::new(())).await;
    }
}
