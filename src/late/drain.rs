//! Bodies that nobody wants: read to their end, so that a connection can be used again, or so that an answer is not
//! cut off by the reset of its stream.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum_core::body::Body;
use bytes::{Buf, Bytes};
use http::Request;
use http_body::{Frame, SizeHint};

use crate::{
    body::{AnyBody, BoxError},
    clock::{BoxFuture, Time},
    core::Core,
    response::{Most, Unread},
    verdict::Refused,
    waiting::Timer,
};

/// How reading a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Whole,
    Failed,
    TooLong,
    TooSlow,
}

/// Reads `body` and throws it away, within these bounds.
async fn read<B: AnyBody>(mut body: Pin<&mut B>, most: Most, timer: &mut Timer) -> Read {
    let until = timer.now() + most.time;
    let mut left = most.bytes;
    poll_fn(|cx| {
        // Asked at each frame: a body that always has one would never let the timer be asked.
        while timer.now() < until {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(Read::Whole),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Read::Failed),
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                    match left.checked_sub(bytes) {
                        Some(rest) => left = rest,
                        None => return Poll::Ready(Read::TooLong),
                    }
                }
                // It is over too if the timer is not the clock's.
                Poll::Pending => return timer.poll_until(until, cx).map(|_| Read::TooSlow),
            }
        }
        Poll::Ready(Read::TooSlow)
    })
    .await
}

/// A refusal whose unread body was seen to.
pub(crate) enum Settled {
    /// It can be sent.
    Answer(Refused),
    /// The body is read first, which says whether it ended within bounds.
    Reading(BoxFuture<'static, bool>, Refused),
}

/// Sees to the body of a request that is refused without having been read.
#[inline(always)] // a call would move the refusal twice, each time one is sent
pub(crate) fn settle<B: AnyBody>(
    mut refused: Refused,
    request: Request<B>,
    core: &Core,
) -> Settled {
    match core.unread.of(&request) {
        Unread::Nothing => {}
        Unread::Close => refused.close(),
        Unread::Linger(most) => refused = linger(refused, core, request.into_body(), most),
        Unread::Drain(most) => {
            let read = drain(request.into_body(), most, core.time.clone());
            return Settled::Reading(read, refused);
        }
    }
    Settled::Answer(refused)
}

/// Reads `body` to its end; says whether it came, within what may be read of it.
fn drain<B: AnyBody>(body: B, most: Most, time: Time) -> BoxFuture<'static, bool> {
    Box::pin(async move {
        // An announced length that is too long need not be waited for.
        body.size_hint().lower() <= most.bytes
            && read(Box::pin(body).as_mut(), most, &mut Timer::new(time)).await == Read::Whole
    })
}

/// Lets an answer end when `unread` has, the body of its request, within these bounds. On a clock that only tests move
/// it ends as it is, or each test would have to know of it.
fn linger<B: AnyBody>(refused: Refused, core: &Core, unread: B, most: Most) -> Refused {
    if core.time.is_manual() {
        return refused;
    }
    refused.map_body(core, |answer| lingering(answer, unread, most, core.time.clone()))
}

fn lingering<B: AnyBody>(answer: Body, unread: B, most: Most, time: Time) -> Body {
    if http_body::Body::is_end_stream(&answer) {
        // There is no end to wait with: the head is the whole answer.
        return answer;
    }
    let ended = Box::pin(async move {
        let mut timer = Timer::new(time);
        let until = timer.now() + most.time;
        let mut unread = Box::pin(unread);
        // More is not read, and who sends it finds the window closed; but nor is the stream reset before the time.
        if read(unread.as_mut(), most, &mut timer).await == Read::TooLong {
            let _ = poll_fn(|cx| timer.poll_until(until, cx)).await;
        }
    });
    Body::new(Lingering { answer, ended: Some(ended) })
}

/// See [`linger`].
struct Lingering {
    answer: Body,
    ended: Option<BoxFuture<'static, ()>>,
}

impl http_body::Body for Lingering {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(frame) = ready!(Pin::new(&mut self.answer).poll_frame(cx)) {
            return Poll::Ready(Some(frame.map_err(Into::into)));
        }
        if let Some(ended) = &mut self.ended {
            ready!(ended.as_mut().poll(cx));
            self.ended = None;
        }
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use http_body_util::BodyExt;

    use super::*;
    use crate::{TokioClock, clock::Clock};

    const MOST: Most = Most { bytes: 10, time: Duration::from_millis(100) };

    /// Gives a byte at a time, so many, and then ends or is still to come; counts what was taken.
    struct Bytewise {
        left: u64,
        ends: bool,
        taken: Arc<AtomicU64>,
    }

    impl http_body::Body for Bytewise {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return if self.ends { Poll::Ready(None) } else { Poll::Pending };
            }
            self.left -= 1;
            self.taken.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    /// After how many milliseconds the answer's data is there, and its end; and how much of the request was read.
    async fn lingered(left: u64, ends: bool) -> (u128, u128, u64) {
        let taken = Arc::new(AtomicU64::new(0));
        let unread = Bytewise { left, ends, taken: taken.clone() };
        let clock = TokioClock;
        let start = clock.now();
        let since = |start| Duration::from(clock.now().since(start)).as_millis();
        let mut answer = lingering(Body::from("no"), unread, MOST, Time::of(TokioClock));
        assert_eq!(http_body::Body::size_hint(&answer).exact(), Some(2));
        let data = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(data, "no");
        let there = since(start);
        assert!(answer.frame().await.is_none());
        (there, since(start), taken.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_when_its_request_has_or_after_a_while() {
        assert_eq!(lingered(0, true).await, (0, 0, 0));
        assert_eq!(lingered(10, true).await, (0, 0, 10));
        // Still to come; and longer than is read, of which one frame is seen to be too much.
        assert_eq!(lingered(3, false).await, (0, 100, 3));
        assert_eq!(lingered(1_000, true).await, (0, 100, 11));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_a_body_ends_with_its_head() {
        let unread = Bytewise { left: 5, ends: false, taken: Arc::default() };
        let answer = lingering(Body::empty(), unread, MOST, Time::of(TokioClock));
        assert!(http_body::Body::is_end_stream(&answer));
    }
}
