//! Uploads that are made as they are sent, and what a client library sees of their answers.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::{Sleep, sleep};

pub(crate) const MEGABYTE: u64 = 1_000_000;

/// A body that is made as it is sent: so many bytes, by the megabyte, with a pause before each.
pub(crate) struct Upload {
    left: u64,
    pause: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether its length is announced.
    sized: bool,
}

impl Upload {
    pub(crate) fn of(bytes: u64) -> Self {
        Self { left: bytes, pause: Duration::ZERO, sleep: None, sized: true }
    }

    pub(crate) fn slowly(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    pub(crate) fn chunked(self) -> Self {
        Self { sized: false, ..self }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if !self.pause.is_zero() {
            let pause = self.pause;
            let pausing = self.sleep.get_or_insert_with(|| Box::pin(sleep(pause)));
            ready!(pausing.as_mut().poll(cx));
            self.sleep = None;
        }
        let part = self.left.min(MEGABYTE);
        self.left -= part;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; part as usize])))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.sized { SizeHint::with_exact(self.left) } else { SizeHint::new() }
    }
}

/// What a client library sees who sends this on a connection of its own.
pub(crate) async fn send(
    address: SocketAddr,
    version: Version,
    upload: Upload,
) -> (StatusCode, HeaderMap) {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.timer(TokioTimer::new()).http2_only(version == Version::HTTP_2);
    let client = builder.build_http();
    let request = Request::post(format!("http://{address}/")).version(version).body(upload);
    let answer = client.request(request.unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    assert_eq!(head.version, version);
    body.collect().await.unwrap();
    (head.status, head.headers)
}
