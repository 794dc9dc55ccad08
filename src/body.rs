//! The bodies of answers: one boxed body for axum, or the inner body kept.
//!
//! Named in signatures only: [`KeepBodyLayer`](crate::KeepBodyLayer) has an example.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum_core::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::verdict::Farewell;

/// A boxed error, as bodies here end with.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Any body this crate can forward: axum's, hyper's, tonic's.
pub trait AnyBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

impl<R> AnyBody for R where R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static {}

/// Which body answers have: [`Erased`] or [`Kept`]. Sealed.
pub trait BodyMode: sealed::Sealed + 'static {
    /// The body of an answer around an inner body `R`.
    type Out<R: AnyBody>: AnyBody;
}

/// Answers have axum's body, whatever the inner body is. Under axum this adds no box: its body is left
/// as it is, and the router would box any other.
#[derive(Clone, Copy, Debug)]
pub struct Erased;

/// Answers have a [`ResponseBody`] around the inner body, unboxed; see
/// [`keep_body`](crate::RateLimitLayer::keep_body).
#[derive(Clone, Copy, Debug)]
pub struct Kept;

impl BodyMode for Erased {
    type Out<R: AnyBody> = Body;
}

impl BodyMode for Kept {
    type Out<R: AnyBody> = ResponseBody<R>;
}

pub(crate) mod sealed {
    use super::{AnyBody, Body, BodyMode, Erased, Farewell, Kept, ResponseBody};

    /// How bodies become the mode's own.
    #[allow(unnameable_types, reason = "that is what seals it")]
    pub trait Sealed {
        #[allow(private_interfaces)]
        #[doc(hidden)]
        fn theirs<R: AnyBody>(body: R, end: Option<Farewell>) -> <Self as BodyMode>::Out<R>
        where
            Self: BodyMode;

        #[doc(hidden)]
        fn ours<R: AnyBody>(body: Body) -> <Self as BodyMode>::Out<R>
        where
            Self: BodyMode;
    }

    impl Sealed for Erased {
        #[allow(private_interfaces)]
        #[inline]
        fn theirs<R: AnyBody>(body: R, end: Option<Farewell>) -> Body {
            match end {
                None => Body::new(body),
                Some(_) => Body::new(ResponseBody::theirs(body, end)),
            }
        }

        fn ours<R: AnyBody>(body: Body) -> Body {
            body
        }
    }

    impl Sealed for Kept {
        #[allow(private_interfaces)]
        #[inline]
        fn theirs<R: AnyBody>(body: R, end: Option<Farewell>) -> ResponseBody<R> {
            ResponseBody::theirs(body, end)
        }

        fn ours<R: AnyBody>(body: Body) -> ResponseBody<R> {
            ResponseBody::ours(body)
        }
    }
}

pin_project! {
    /// The inner body, or a refusal's. Frames, trailers and size are forwarded as they are.
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        inner: Inner<R>,
        end: Option<Farewell>,
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
    fn theirs(body: R, mut end: Option<Farewell>) -> Self {
        if body.is_end_stream()
            && let Some(end) = &mut end
        {
            end.completed();
        }
        Self { inner: Inner::Theirs { body }, end }
    }

    fn ours(body: Body) -> Self {
        Self { inner: Inner::Ours { body }, end: None }
    }
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
        if let Some(end) = this.end {
            match &frame {
                Some(Err(_)) => end.failed(),
                // Who knows its length is dropped at its end without being asked once more.
                Some(Ok(_)) if this.inner.is_end_stream() => end.completed(),
                Some(Ok(frame)) => end.passed(frame.data_ref().map_or(0, Bytes::len)),
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
