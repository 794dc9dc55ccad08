//! SL-CLOCK: a timer rings and the clock stands still.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::Router;
use tower_sluice::{
    InFlight, RateLimitLayer, RateLimitLayerBuilder, RejectionPolicy, Rule, TokenBucket,
    TokioClock,
    clock::{BoxFuture, Clock, FastClock, Nanos, StdClock},
    event::Fault,
};

use crate::{Record, alone, request, routes, send};

const SECOND: Duration = Duration::from_secs(1);

/// One in ten seconds, and a minute to wait in.
fn slow() -> RateLimitLayerBuilder {
    RateLimitLayer::builder()
        .rule(Rule::new("slow", TokenBucket::new(1, SECOND * 10)))
        .rejection(RejectionPolicy::queue(SECOND * 60, 10))
}

/// Stands still; its timer rings at once.
#[derive(Clone, Default)]
struct Still {
    rang: Arc<AtomicU64>,
}

impl Clock for Still {
    fn now(&self) -> Nanos {
        Nanos::new(1)
    }

    fn sleep_until(&self, _: Nanos) -> BoxFuture<'static, ()> {
        self.rang.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn utc_at_zero(&self) -> Duration {
        Duration::ZERO
    }
}

fn watched(builder: RateLimitLayerBuilder) -> (Router, Record) {
    let record = Record::default();
    let layer = builder.observer(record.clone()).build().unwrap();
    (routes().layer(layer), record)
}

#[tokio::test(start_paused = true)]
async fn sl_clock_where_time_is_paused_and_the_clock_is_another() {
    let layers = [
        slow(),
        slow().clock(FastClock::new()),
        slow().clock(StdClock),
        slow().clock(Still::default()),
    ];
    for layer in layers {
        let (app, record) = watched(layer);
        assert_eq!(send(&app, request("/a")).await, 200);
        assert_eq!(*record.0.lock().unwrap(), [], "nobody has waited yet");
        // Refused instead of admitted early, or never.
        for _ in 0..3 {
            assert_eq!(send(&app, request("/a")).await, 429);
        }
        assert_eq!(*record.0.lock().unwrap(), alone(Fault::Clock));
    }

    let (app, record) = watched(slow().clock(StdClock).silence(Fault::Clock));
    for expected in [200, 429, 429] {
        assert_eq!(send(&app, request("/a")).await, expected);
    }
    assert_eq!(*record.0.lock().unwrap(), []);

    let (app, record) = watched(slow().clock(TokioClock));
    for _ in 0..3 {
        assert_eq!(send(&app, request("/a")).await, 200);
    }
    assert_eq!(*record.0.lock().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn sl_clock_in_line_for_a_permit() {
    let layer = |calls: &InFlight| {
        let builder = RateLimitLayer::builder().in_flight(calls.clone());
        builder.rejection(RejectionPolicy::queue(SECOND * 60, 10))
    };
    let calls = InFlight::new("calls", 1).clock(StdClock);
    let held = calls.try_acquire().unwrap();
    let (app, record) = watched(layer(&calls).clock(StdClock));
    for _ in 0..3 {
        assert_eq!(send(&app, request("/a")).await, 503);
    }
    assert_eq!(*record.0.lock().unwrap(), alone(Fault::Clock));
    let (app, record) = watched(layer(&calls).clock(StdClock).silence(Fault::Clock));
    assert_eq!(send(&app, request("/a")).await, 503);
    assert_eq!(*record.0.lock().unwrap(), []);
    // By itself it has no observers to tell; what `tracing` is told is in `log.rs`.
    assert!(calls.acquire(SECOND * 60).await.is_none());
    assert_eq!((calls.waiting(), calls.in_flight()), (0, 1));
    drop(held);
    assert!(calls.acquire(SECOND * 60).await.is_some());

    let calls = InFlight::new("calls", 1).clock(TokioClock);
    let held = calls.try_acquire().unwrap();
    let (app, record) = watched(layer(&calls).clock(TokioClock));
    let (status, ()) = tokio::join!(send(&app, request("/a")), async {
        tokio::time::advance(SECOND * 59).await;
        drop(held);
    });
    assert_eq!(status, 200);
    assert_eq!(*record.0.lock().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn sl_clock_of_a_limiter_by_itself() {
    let still = Still::default();
    let slow = || TokenBucket::new(1, SECOND * 10);
    let limiters = [
        slow().limiter().clock(StdClock).build().unwrap(),
        slow().limiter().clock(still.clone()).build().unwrap(),
    ];
    for limiter in limiters {
        let minute = SECOND * 60;
        assert!(limiter.acquire(minute).await.is_allowed());
        for _ in 0..3 {
            let denied = limiter.acquire(minute).await;
            // It is told as if it had not waited.
            let wait = denied.retry_after().unwrap();
            assert!(wait <= SECOND * 10 && wait > SECOND * 9, "{wait:?}");
        }
        assert_eq!(limiter.waiting(), 0, "the place is free");
    }
    // Three rings each, and not one more.
    assert_eq!(still.rang.load(Ordering::Relaxed), 9);
}

#[tokio::test]
async fn a_timer_that_is_a_little_early_is_no_fault() {
    /// Rings a quarter of the way early, each time.
    struct Early(tower_sluice::ManualClock, Arc<AtomicU64>);

    impl Clock for Early {
        fn now(&self) -> Nanos {
            self.0.now()
        }

        fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let left = deadline.get() - self.0.now().get();
            self.0.set(Nanos::new(deadline.get() - left / 4));
            Box::pin(std::future::ready(()))
        }

        fn utc_at_zero(&self) -> Duration {
            Duration::ZERO
        }
    }

    let (clock, rang) = (tower_sluice::ManualClock::new(), Arc::new(AtomicU64::new(0)));
    let (app, record) = watched(slow().clock(Early(clock.clone(), Arc::clone(&rang))));
    for _ in 0..2 {
        assert_eq!(send(&app, request("/a")).await, 200);
    }
    assert_eq!(clock.now().get(), 10_000_000_000, "and not before");
    assert!(rang.load(Ordering::Relaxed) > 3);
    assert_eq!(*record.0.lock().unwrap(), []);
}
