//! The bodies of answers: one boxed body for axum, or the inner body kept.
//!
//! Named in signatures only, where a service is generic over what it wraps:
//!
//! ```
//! use axum_core::body::Body;
//! use http::{Request, Response};
//! use tower::{Layer, Service};
//! use tower_sluice::{RateLimit, RateLimitLayer, body::AnyBody};
//!
//! /// Any service with HTTP in and out, whatever its body, with axum's body outside.
//! fn limited<S, R>(limit: &RateLimitLayer, service: S) -> RateLimit<S>
//! where
//!     S: Service<Request<Body>, Response = Response<R>> + Clone,
//!     R: AnyBody,
//! {
//!     limit.layer(service)
//! }
//! # let _ = limited::<axum::Router, Body>;
//! ```

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum_core::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::verdict::End;

/// A boxed error, as bodies here end with.
///
/// ```
/// use tower_sluice::body::BoxError;
///
/// let error: BoxError = "the connection was lost".into();
/// assert_eq!(error.to_string(), "the connection was lost");
/// ```
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Any body this crate can forward: axum's, hyper's, tonic's.
///
/// ```
/// use tower_sluice::body::AnyBody;
///
/// fn is_any<R: AnyBody>() {}
/// is_any::<axum::body::Body>();
/// is_any::<http_body_util::Full<bytes::Bytes>>();
/// is_any::<tonic::body::Body>();
/// ```
pub trait AnyBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

impl<R> AnyBody for R where R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

/// Which body answers have: [`Erased`] or [`Kept`]. Sealed.
///
/// ```
/// use tower_sluice::{RateLimit, body::BodyMode};
///
/// /// The service inside, in either mode.
/// fn inner<S, M: BodyMode>(limited: RateLimit<S, M>) -> S {
///     limited.into_inner()
/// }
/// # let _ = inner::<axum::Router, tower_sluice::body::Kept>;
/// ```
pub trait BodyMode: sealed::Sealed + 'static {
    /// The body of an answer around an inner body `R`.
    type Out<R: AnyBody>: AnyBody;
}

/// Answers have axum's body, whatever the inner body is. Under axum this adds no box: its body is left
/// as it is, and the router would box any other.
///
/// ```
/// use tower::Layer;
/// use tower_sluice::{FixedWindow, RateLimit, RateLimitLayer, Rule, body::Erased};
///
/// let limit = RateLimitLayer::builder().rule(Rule::new("daily", FixedWindow::per_day(1))).build()?;
/// let limited: RateLimit<axum::Router, Erased> = limit.layer(axum::Router::new());
/// # let _ = limited;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Erased;

/// Answers have a [`ResponseBody`] around the inner body, unboxed; see
/// [`keep_body`](crate::RateLimitLayer::keep_body).
///
/// ```
/// use tower::Layer;
/// use tower_sluice::{FixedWindow, RateLimit, RateLimitLayer, Rule, body::Kept};
///
/// let limit = RateLimitLayer::builder().rule(Rule::new("daily", FixedWindow::per_day(1))).build()?;
/// let limited: RateLimit<axum::Router, Kept> = limit.keep_body().layer(axum::Router::new());
/// # let _ = limited;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Kept;

impl BodyMode for Erased {
    type Out<R: AnyBody> = Body;
}

impl BodyMode for Kept {
    type Out<R: AnyBody> = ResponseBody<R>;
}

pub(crate) mod sealed {
    use super::{AnyBody, Body, BodyMode, End, Erased, Kept, ResponseBody};

    /// How bodies become the mode's own.
    #[allow(unnameable_types, reason = "that is what seals it")]
    pub trait Sealed {
        #[allow(private_interfaces)]
        #[doc(hidden)]
        fn theirs<R: AnyBody>(body: R, end: Option<End>) -> <Self as BodyMode>::Out<R>
        where
            Self: BodyMode;

        #[allow(private_interfaces)]
        #[doc(hidden)]
        fn ours<R: AnyBody>(body: Body, end: Option<End>) -> <Self as BodyMode>::Out<R>
        where
            Self: BodyMode;
    }

    impl Sealed for Erased {
        #[allow(private_interfaces)]
        #[inline]
        fn theirs<R: AnyBody>(body: R, end: Option<End>) -> Body {
            match end {
                None => Body::new(body),
                Some(end) => ResponseBody::boxed(body, end),
            }
        }

        #[allow(private_interfaces)]
        fn ours<R: AnyBody>(body: Body, end: Option<End>) -> Body {
            Self::theirs(body, end)
        }
    }

    impl Sealed for Kept {
        #[allow(private_interfaces)]
        #[inline]
        fn theirs<R: AnyBody>(body: R, end: Option<End>) -> ResponseBody<R> {
            ResponseBody::theirs(body, end)
        }

        #[allow(private_interfaces)]
        fn ours<R: AnyBody>(body: Body, end: Option<End>) -> ResponseBody<R> {
            ResponseBody::ours(body, end)
        }
    }
}

pin_project! {
    /// The inner body, or a refusal's. Frames, trailers and size are forwarded as they are.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use http_body_util::{BodyExt, Full};
    /// use tower_sluice::body::{BoxError, ResponseBody};
    ///
    /// async fn read(answer: Response<ResponseBody<Full<Bytes>>>) -> Result<Bytes, BoxError> {
    ///     Ok(answer.into_body().collect().await?.to_bytes())
    /// }
    /// # let _ = read;
    /// ```
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        inner: Inner<R>,
        end: Option<End>,
    }
}

pin_project! {
    #[project = InnerProj]
    #[derive(Debug)]
    enum Inner<R> {
        Theirs { #[pin] body: R },
        Ours { #[pin] body: Body },
    }
}

impl<R: AnyBody> ResponseBody<R> {
    fn theirs(body: R, end: Option<End>) -> Self {
        let end = end.and_then(|end| waits_for(&body, end));
        Self { inner: Inner::Theirs { body }, end }
    }

    /// As one boxed body; a body that has ended already needs no box to tell of its end.
    fn boxed(body: R, end: End) -> Body {
        match waits_for(&body, end) {
            None => Body::new(body),
            end @ Some(_) => Body::new(Self { inner: Inner::Theirs { body }, end }),
        }
    }

    fn ours(body: Body, end: Option<End>) -> Self {
        let end = end.and_then(|end| waits_for(&body, end));
        Self { inner: Inner::Ours { body }, end }
    }
}

/// What still waits for the end of this body.
fn waits_for<R: AnyBody>(body: &R, mut end: End) -> Option<End> {
    if !body.is_end_stream() {
        return Some(end);
    }
    end.completed();
    None
}

impl<R: AnyBody> http_body::Body for ResponseBody<R> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let frame = match this.inner.as_mut().project() {
            InnerProj::Theirs { body } => {
                ready!(body.poll_frame(cx)).map(|f| f.map_err(Into::into))
            }
            InnerProj::Ours { body } => ready!(body.poll_frame(cx)).map(|f| f.map_err(Into::into)),
        };
        if let Some(mut end) = this.end.take() {
            match &frame {
                Some(Err(_)) => end.failed(),
                // Who knows its length is dropped at its end without being asked once more.
                Some(Ok(_)) if this.inner.is_end_stream() => end.completed(),
                Some(Ok(frame)) => {
                    end.passed(frame.data_ref().map_or(0, Bytes::len));
                    *this.end = Some(end);
                }
                None => end.completed(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Theirs { body } => body.size_hint(),
            Inner::Ours { body } => body.size_hint(),
        }
    }
}

impl<R: AnyBody> Inner<R> {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Theirs { body } => body.is_end_stream(),
            Self::Ours { body } => http_body::Body::is_end_stream(body),
        }
    }
}
