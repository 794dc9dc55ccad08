//! Futures driven by hand on a clock that moves from one timer to the next.
//!
//! A future is polled when it was woken, and at no other time: one that nobody wakes stays where it is.
//! So what happens when is known to the nanosecond, and a lost wake-up shows.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tower_sluice::{
    ManualClock,
    clock::{BoxFuture, Clock, Nanos},
};

/// A manual clock that knows which instants somebody sleeps to.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    clock: ManualClock,
    timers: Arc<Mutex<BTreeSet<Nanos>>>,
}

impl Steps {
    pub(crate) fn instant(&self) -> Duration {
        self.clock.now().into()
    }

    /// Moves on with nobody polled.
    pub(crate) fn set(&self, instant: Duration) {
        self.clock.set(instant.into());
    }

    /// The first instant after now that somebody sleeps to, up to `end`.
    fn next(&self, end: Nanos) -> Option<Nanos> {
        let mut timers = self.timers.lock().unwrap();
        let now = self.clock.now();
        timers.retain(|timer| *timer > now);
        timers.first().copied().filter(|timer| *timer <= end)
    }
}

impl Clock for Steps {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        self.timers.lock().unwrap().insert(deadline);
        self.clock.sleep_until(deadline)
    }

    fn utc_at_zero(&self) -> Duration {
        self.clock.utc_at_zero()
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Task<N, T> {
    name: N,
    woken: Arc<Woken>,
    future: Pin<Box<dyn Future<Output = T>>>,
}

/// Futures by name, and what has come of them.
pub(crate) struct Tasks<N, T> {
    pub(crate) clock: Steps,
    running: Vec<Task<N, T>>,
    ended: Vec<(N, Duration, T)>,
    /// Whether who came last is polled first.
    newest_first: bool,
}

impl<N: Copy + PartialEq, T> Tasks<N, T> {
    pub(crate) fn new(clock: Steps) -> Self {
        Self { clock, running: Vec::new(), ended: Vec::new(), newest_first: false }
    }

    /// The order in which those are polled that wake at one instant, which must not matter.
    pub(crate) fn newest_first(mut self, newest_first: bool) -> Self {
        self.newest_first = newest_first;
        self
    }

    /// Polls a future for the first time, and then whoever that wakes.
    pub(crate) fn start(&mut self, name: N, future: impl Future<Output = T> + 'static) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.running.push(Task { name, woken, future: Box::pin(future) });
        self.settle();
    }

    /// Drops a future that runs, and polls whoever that wakes; false where it does not run.
    pub(crate) fn give_up(&mut self, name: N) -> bool {
        let place = self.running.iter().position(|task| task.name == name);
        let task = place.map(|place| self.running.remove(place));
        let ran = task.is_some();
        drop(task);
        self.settle();
        ran
    }

    /// Polls those that were woken, until nobody is.
    pub(crate) fn settle(&mut self) {
        let is_woken = |task: &Task<N, T>| task.woken.0.load(Ordering::SeqCst);
        loop {
            let woken = match self.newest_first {
                true => self.running.iter().rposition(is_woken),
                false => self.running.iter().position(is_woken),
            };
            let Some(place) = woken else { return };
            let task = &mut self.running[place];
            task.woken.0.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&task.woken));
            if let Poll::Ready(value) = task.future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                let task = self.running.remove(place);
                self.ended.push((task.name, self.clock.instant(), value));
            }
        }
    }

    /// Moves on to `end`, by way of each instant that somebody sleeps to.
    pub(crate) fn to(&mut self, end: Duration) {
        self.settle();
        while let Some(next) = self.clock.next(end.into()) {
            self.clock.set(next.into());
            self.settle();
        }
        self.clock.set(end);
        self.settle();
    }

    /// How many have neither ended nor been given up.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Names, instants and values of those that have ended, in the order they did.
    pub(crate) fn ended(&self) -> &[(N, Duration, T)] {
        &self.ended
    }
}
