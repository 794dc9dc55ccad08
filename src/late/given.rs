//! [`Given`]: the body that a degrade handler gets, which tells whether it was read.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::body::AnyBody;

pin_project! {
    /// A body, and who wants to know of its end.
    pub(super) struct Given<B> {
        #[pin]
        body: B,
        is_read: IsRead,
    }
}

/// Whether a body was read to its end.
#[derive(Clone)]
pub(super) struct IsRead(Arc<AtomicBool>);

impl IsRead {
    pub(super) fn get(&self) -> bool {
        // Relaxed, as below: a yes or no, and whoever answers for the handler has waited for it.
        self.0.load(Ordering::Relaxed)
    }
}

impl<B> Given<B> {
    pub(super) fn new(body: B) -> (Self, IsRead) {
        let is_read = IsRead(Arc::default());
        (Self { body, is_read: is_read.clone() }, is_read)
    }
}

impl<B: AnyBody> Body for Given<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if frame.is_none() || this.body.is_end_stream() {
            this.is_read.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
