//! [`admitted`]: how many of so many requests pass.

use std::{fmt, future::poll_fn};

use http::{Request, Response, StatusCode};
use tower_service::Service;

/// Sends `n` requests, one after the other, and says how many were admitted.
///
/// A request was refused where the answer is 429 or 503, or has `grpc-status` 8 or 14 in its headers, as a refused
/// gRPC call has. Everything else was admitted, a 404 or 500 too: the limit let it through. Where a limit
/// answers otherwise, by a [status](crate::Rule::status) of its own, that of a [missing key](crate::Missing::Refuse) or
/// a [`degrade`](crate::RejectionPolicy::degrade) handler, let the test look at the answers itself.
///
/// The service is an axum `Router`, a [`RateLimit`](crate::RateLimit), or any Tower service that can be cloned. Each
/// request has a clone of its own, which is polled ready and called; the body of the answer is dropped, so that
/// permits of an in-flight limit are back before the next request.
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
/// limit's, and a count that goes over it would hide it.
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
        match service.call(request()).await {
            Ok(response) => admitted += usize::from(!is_refused(&response)),
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

    use tower::{ServiceExt, service_fn};

    use super::*;

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
