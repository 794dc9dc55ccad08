//! [`ManualClock`]: a clock that moves when told.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{BoxFuture, Clock, Nanos};

/// A clock for tests: it stands still until it is told to move, and its sleepers wake exactly then.
///
/// Clones share the time. Its zero is 1970-01-01 00:00 UTC unless [`with_utc`](Self::with_utc) says
/// otherwise.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, clock::Clock};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_millis(1_500));
/// assert_eq!(clock.clone().now().get(), 1_500_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<State>);

#[derive(Debug, Default)]
struct State {
    now: AtomicU64,
    utc_at_zero: Duration,
    /// Deadlines and whom to wake; a sleeper removes nothing, waking twice is harmless.
    sleepers: Mutex<Vec<(Nanos, Waker)>>,
}

impl ManualClock {
    /// A clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock at zero, whose zero is `utc` after 1970-01-01.
    #[must_use]
    pub fn with_utc(utc: Duration) -> Self {
        Self(Arc::new(State { utc_at_zero: utc, ..State::default() }))
    }

    /// Moves forward by `step` and wakes who slept until then.
    pub fn advance(&self, step: Duration) {
        self.set(Nanos::new(self.0.now.load(Ordering::SeqCst)) + step);
    }

    /// Sets the time; backwards too, since clocks do that.
    pub fn set(&self, now: Nanos) {
        self.0.now.store(now.get(), Ordering::SeqCst);
        let mut sleepers = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let due: Vec<_> = sleepers.extract_if(.., |(deadline, _)| *deadline <= now).collect();
        // Waking may run code that asks this clock to sleep.
        drop(sleepers);
        for (_, waker) in due {
            waker.wake();
        }
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> Nanos {
        Nanos::new(self.0.now.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { clock: self.clone(), deadline })
    }

    fn utc_at_zero(&self) -> Duration {
        self.0.utc_at_zero
    }
}

struct Sleep {
    clock: ManualClock,
    deadline: Nanos,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The lock is taken before time is read, so that a step cannot fall between the two.
        let mut sleepers = self.clock.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.clock.now() >= self.deadline {
            return Poll::Ready(());
        }
        sleepers.push((self.deadline, cx.waker().clone()));
        Poll::Pending
    }
}
