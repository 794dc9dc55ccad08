//! [`Timer`]: sleeps by the clock that says what time it is.

use std::{
    fmt,
    task::{Context, Poll, ready},
};

use crate::clock::{BoxFuture, Nanos, Time};

/// A sleep that can be set to another instant, and that notices when its clock stands still.
pub(crate) struct Timer {
    time: Time,
    sleep: Option<Sleep>,
    /// How often in a row it rang long before its time.
    early: u8,
}

struct Sleep {
    until: Nanos,
    since: Nanos,
    rings: BoxFuture<'static, ()>,
}

/// The timer rings, and the clock does not move: they are not of one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stuck;

/// How often a timer may ring early before it is believed to be another clock's.
const PATIENCE: u8 = 3;

impl Timer {
    pub(crate) fn new(time: Time) -> Self {
        Self { time, sleep: None, early: 0 }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.time.now()
    }

    /// Ready at `until`, or when it shows that the timer is not the clock's own.
    pub(crate) fn poll_until(
        &mut self,
        until: Nanos,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Stuck>> {
        loop {
            let now = self.time.now();
            if now >= until {
                self.early = 0;
                return Poll::Ready(Ok(()));
            }
            if self.sleep.as_ref().is_none_or(|sleep| sleep.until != until) {
                let rings = self.time.sleep_until(until);
                self.sleep = Some(Sleep { until, since: now, rings });
            }
            let Some(sleep) = &mut self.sleep else { return Poll::Pending };
            ready!(sleep.rings.as_mut().poll(cx));
            let (asked, since) = (until.since(sleep.since), sleep.since);
            self.sleep = None;
            // A little early is a matter of rounding, and it sleeps once more.
            if self.time.now().since(since).get() < asked.get() / 2 {
                self.early += 1;
                if self.early >= PATIENCE {
                    return Poll::Ready(Err(Stuck));
                }
            } else {
                self.early = 0;
            }
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.sleep.as_ref().map(|sleep| sleep.until);
        f.debug_struct("Timer").field("until", &until).finish_non_exhaustive()
    }
}
