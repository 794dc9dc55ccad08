//! Handlers that wait to be let go, and bodies that are given piece by piece.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::{Semaphore, mpsc};

/// Waits until something is so that a socket or another task brings about; panics where it never is.
#[track_caller]
pub(crate) fn until(holds: impl Fn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        for _ in 0..5_000 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("not after ten seconds, at {caller}");
    }
}

/// Keeps handlers inside until it lets them go.
#[derive(Clone)]
pub(crate) struct Hold(Arc<Semaphore>);

impl Default for Hold {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Hold {
    /// Waits for one of those let go.
    pub(crate) async fn wait(&self) {
        self.0.acquire().await.unwrap().forget();
    }

    pub(crate) fn let_go(&self, n: usize) {
        self.0.add_permits(n);
    }
}

type Sender = mpsc::UnboundedSender<&'static str>;

/// A body that gives what is sent to it, and ends when nobody can send any more.
pub(crate) struct Frames {
    sent: mpsc::UnboundedReceiver<&'static str>,
    /// Its own sender, where it is never to end.
    _kept: Option<Sender>,
}

impl Frames {
    pub(crate) fn new() -> (Sender, Self) {
        let (sender, sent) = mpsc::unbounded_channel();
        (sender, Self { sent, _kept: None })
    }

    /// Keeps its own sender, so that it never ends.
    pub(crate) fn with(self, sender: Sender) -> Self {
        Self { _kept: Some(sender), ..self }
    }
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let sent = self.sent.poll_recv(cx);
        sent.map(|sent| sent.map(|text| Ok(Frame::data(Bytes::from(text)))))
    }
}
