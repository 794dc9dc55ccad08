//! Reading a body that nobody wants, so that its connection can be used again.

use std::{future::poll_fn, task::Poll};

use bytes::Buf;
use http_body::Body;

use crate::{
    body::AnyBody,
    clock::{BoxFuture, Time},
    response::Most,
    waiting::Timer,
};

/// Reads `body` to its end; says whether it came, within what may be read of it.
pub(super) fn drain<B: AnyBody>(body: B, most: Most, time: Time) -> BoxFuture<'static, bool> {
    Box::pin(async move {
        let mut timer = Timer::new(time);
        let until = timer.now() + most.time;
        let mut body = Box::pin(body);
        let mut left = most.bytes;
        // An announced length that is too long need not be waited for.
        if body.size_hint().lower() > left {
            return false;
        }
        poll_fn(|cx| {
            // Asked at each frame: a body that always has one would never let the timer be asked.
            while timer.now() < until {
                match body.as_mut().poll_frame(cx) {
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                    Poll::Ready(Some(Ok(frame))) => {
                        let bytes = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                        match left.checked_sub(bytes) {
                            Some(rest) => left = rest,
                            None => return Poll::Ready(false),
                        }
                    }
                    // It is over too if the timer is not the clock's.
                    Poll::Pending => return timer.poll_until(until, cx).map(|_| false),
                }
            }
            Poll::Ready(false)
        })
        .await
    })
}
