//! The clocks, and the timer that each comes with.

#![allow(clippy::disallowed_methods, reason = "clocks are compared with those they wrap")]

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, SystemTime},
};

use tower_sluice::{
    ManualClock, TokenBucket, TokioClock,
    clock::{BoxFuture, Clock, FastClock, Nanos, StdClock},
};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn manual_sleepers_wake_at_their_deadline_and_not_before() {
    let clock = ManualClock::new();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let mut sleep = pin!(clock.sleep_until(Nanos::new(100)));
    assert!(sleep.as_mut().poll(&mut cx).is_pending());

    clock.advance(Duration::from_nanos(99));
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    assert!(sleep.as_mut().poll(&mut cx).is_pending());

    clock.advance(Duration::from_nanos(1));
    assert!(woken.0.load(Ordering::SeqCst) > 0);
    assert!(sleep.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn manual_clock_shares_its_time_with_clones_and_goes_back_when_told() {
    let clock = ManualClock::with_utc(Duration::from_secs(7));
    let clone = clock.clone();
    clone.advance(Duration::from_secs(5));
    assert_eq!(clock.now(), Nanos::ZERO + Duration::from_secs(5));
    clock.set(Nanos::new(3));
    assert_eq!(clone.now(), Nanos::new(3));
    assert_eq!(clone.utc_at_zero(), Duration::from_secs(7));
}

#[test]
fn a_sleeper_that_woke_may_sleep_again_on_the_same_clock() {
    struct Again(ManualClock, AtomicUsize);
    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            // Asks the clock for its time, and for a sleep, while the clock is waking.
            let mut cx = Context::from_waker(Waker::noop());
            let mut sleep = pin!(self.0.sleep_until(self.0.now() + Duration::from_secs(1)));
            assert!(sleep.as_mut().poll(&mut cx).is_pending());
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let clock = ManualClock::new();
    let again = Arc::new(Again(clock.clone(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&again));
    let mut sleep = pin!(clock.sleep_until(Nanos::new(1)));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(again.1.load(Ordering::SeqCst), 1);
}

#[test]
fn real_clocks_go_forward_and_agree_with_the_system() {
    fn check(clock: &impl Clock) {
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let told = clock.utc_at_zero() + Duration::from(clock.now());
        // The wall clock may be stepped or slewed while tests run; a wrong unit is off by far more.
        assert!(wall.abs_diff(told) < Duration::from_secs(600), "{wall:?} told as {told:?}");
    }
    check(&StdClock);
    check(&FastClock::new());
    check(&TokioClock);
}

#[tokio::test(start_paused = true)]
async fn tokio_clock_stands_and_jumps_with_the_runtime() {
    let before = TokioClock.now();
    tokio::time::advance(Duration::from_secs(86_400)).await;
    assert_eq!(TokioClock.now().since(before), Nanos::ZERO + Duration::from_secs(86_400));

    let deadline = TokioClock.now() + Duration::from_millis(250);
    TokioClock.sleep_until(deadline).await;
    assert_eq!(TokioClock.now(), deadline);
}

/// Every runtime that pauses has its own time; a clock whose zero lay after it would stand still.
#[test]
fn tokio_clock_moves_in_a_runtime_that_paused_before_the_clock_was_used() {
    let paused = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let (earlier, later) = (paused(), paused());
    later.block_on(async { TokioClock.now() });
    earlier.block_on(async {
        let before = TokioClock.now();
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(TokioClock.now().since(before).get(), 1_000_000);
    });
}

#[tokio::test(start_paused = true)]
async fn std_and_fast_clocks_sleep_on_the_runtime_s_timer() {
    // Paused time flies by: neither of these waits an hour.
    StdClock.sleep_until(StdClock.now() + Duration::from_secs(3_600)).await;
    let fast = FastClock::new();
    fast.sleep_until(fast.now() + Duration::from_secs(3_600)).await;
}

/// A clock of one's own is read, and nothing else is.
#[test]
fn an_own_clock_is_the_only_one_asked() {
    struct Own(AtomicUsize);
    impl Clock for Own {
        fn now(&self) -> Nanos {
            Nanos::new(self.0.fetch_add(1, Ordering::SeqCst) as u64)
        }
        fn sleep_until(&self, _: Nanos) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
        fn utc_at_zero(&self) -> Duration {
            Duration::ZERO
        }
    }
    let limiter =
        TokenBucket::per_second(1).limiter().clock(Own(AtomicUsize::new(0))).build().unwrap();
    assert!(limiter.try_acquire().is_allowed());
    // Nanoseconds pass with each reading, a second does not.
    for _ in 0..1_000 {
        assert!(!limiter.try_acquire().is_allowed());
    }
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(
        pin!(Own(AtomicUsize::new(0)).sleep_until(Nanos::ZERO)).as_mut().poll(&mut cx),
        Poll::Ready(())
    ));
}
