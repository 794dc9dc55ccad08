//! A small executor: one thread, and only tasks that were woken are polled, so that a lost wake-up shows.

use std::{
    collections::BTreeMap,
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

/// Tasks by number; a higher number came later.
pub(crate) struct Tasks<T>(BTreeMap<usize, Task<T>>);

struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Who is polled first of several that were woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Oldest,
    Newest,
}

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Tasks<T> {
    /// Adds a task, to be polled at the next occasion.
    pub(crate) fn spawn(&mut self, id: usize, future: impl Future<Output = T> + 'static) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.0.insert(id, Task { future: Box::pin(future), woken });
    }

    /// Polls one task, woken or not; what it gives, if it is done.
    pub(crate) fn poll(&mut self, id: usize) -> Option<T> {
        let task = self.0.get_mut(&id)?;
        task.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&task.woken));
        match task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(output) => {
                self.0.remove(&id);
                Some(output)
            }
        }
    }

    /// Polls whoever is woken until nobody is; who is done, in that order.
    #[track_caller]
    pub(crate) fn run(&mut self, first: First) -> Vec<(usize, T)> {
        let mut done = Vec::new();
        for _ in 0..10_000 {
            let mut woken = self.0.iter().filter(|(_, t)| t.woken.0.load(Ordering::SeqCst));
            let next = if first == First::Oldest { woken.next() } else { woken.next_back() };
            let Some(id) = next.map(|(id, _)| *id) else { return done };
            done.extend(self.poll(id).map(|output| (id, output)));
        }
        panic!("tasks wake one another without an end");
    }

    /// Drops a task, as a client's disconnect does.
    pub(crate) fn drop_task(&mut self, id: usize) {
        self.0.remove(&id);
    }

    /// Who is not done, the oldest first.
    pub(crate) fn ids(&self) -> Vec<usize> {
        self.0.keys().copied().collect()
    }
}

/// A `ManualClock` that knows when its sleepers are to be woken.
#[derive(Clone)]
pub(crate) struct Alarms {
    clock: ManualClock,
    set: Arc<Mutex<Vec<u64>>>,
}

impl Alarms {
    pub(crate) fn of(clock: ManualClock) -> Self {
        Self { clock, set: Arc::default() }
    }

    pub(crate) fn get(&self) -> u64 {
        self.clock.now().get()
    }

    /// When the next alarm after now rings; those of sleeps that were given up too.
    pub(crate) fn next(&self) -> Option<u64> {
        let now = self.get();
        let mut set = self.set.lock().unwrap();
        set.retain(|at| *at > now);
        set.iter().min().copied()
    }

    pub(crate) fn set(&self, now: u64) {
        self.clock.set(Nanos::new(now));
    }
}

impl Clock for Alarms {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        self.set.lock().unwrap().push(deadline.get());
        self.clock.sleep_until(deadline)
    }

    fn utc_at_zero(&self) -> Duration {
        self.clock.utc_at_zero()
    }
}
