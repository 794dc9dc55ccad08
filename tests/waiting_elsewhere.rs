//! Requests that wait while a backend elsewhere takes its time.

use std::{
    convert::Infallible,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Decision, LeakyBucket, RateLimitLayer, RejectionPolicy, Rule, TokenBucket,
    clock::{BoxFuture, Clock, Nanos},
    key,
    testing::ScriptedBackend,
};

#[path = "shared/tasks.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod tasks;

use tasks::{Steps, Tasks};

const MILLI: Duration = Duration::from_millis(1);

async fn ask(layer: RateLimitLayer) -> u16 {
    ask_as(layer, "alice").await
}

async fn ask_as(layer: RateLimitLayer, user: &str) -> u16 {
    let inner =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let request = Request::builder().header("x-user-id", user).body(Body::empty()).unwrap();
    let Ok(answer) = layer.layer(inner).oneshot(request).await;
    answer.status().as_u16()
}

fn denied() -> Decision {
    Decision::denied(1, 0, MILLI * 10, MILLI * 10)
}

/// A backend that takes as long as the longest wait does not prolong it.
#[test]
fn nobody_waits_longer_for_an_answer_than_he_may() {
    let clock = Steps::default();
    // Asked at once it denies; asked again it takes 200 ms to allow.
    let backend = ScriptedBackend::decisions([denied()]).delay(clock.clone(), MILLI * 200);
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("fleet", TokenBucket::per_second(5)).backend(backend.clone()))
        .rejection(RejectionPolicy::queue(MILLI * 100, 5))
        .clock(clock.clone())
        .build()
        .unwrap();
    let handle = layer.handle();
    let mut tasks = Tasks::new(clock);
    tasks.start("a", ask(layer));
    tasks.to(MILLI * 1_000);
    // Denied after 200 ms, asks again 10 ms later, and gives up at the end of its 100 ms.
    assert_eq!(tasks.ended(), [("a", MILLI * 300, 429)]);
    assert_eq!(backend.checks().len(), 2);
    assert_eq!(handle.waiting("fleet").unwrap(), 0);
}

/// A departure counts from the question, as the longest wait that came with it does.
#[test]
fn a_slow_answer_does_not_put_off_the_departure() {
    let clock = Steps::default();
    let backend = ScriptedBackend::new().delay(clock.clone(), MILLI * 30).departing(MILLI * 100);
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("fleet", TokenBucket::per_second(5)).backend(backend))
        .rejection(RejectionPolicy::queue(MILLI * 100, 5))
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut tasks = Tasks::new(clock);
    tasks.start("a", ask(layer));
    tasks.to(MILLI * 1_000);
    assert_eq!(tasks.ended(), [("a", MILLI * 100, 200)]);
}

/// While the first in a room asks elsewhere he is not late, and so those behind do not outstay their waits.
#[test]
fn a_slow_answer_does_not_prolong_the_waits_behind() {
    let clock = Steps::default();
    let backend = ScriptedBackend::new().delay(clock.clone(), MILLI * 500);
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("pace", LeakyBucket::per_second(20)))
        .rule(Rule::new("fleet", TokenBucket::per_second(5)).backend(backend))
        .rejection(RejectionPolicy::queue(MILLI * 150, 5))
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut tasks = Tasks::new(clock);
    // The first has gone by what is counted here before the others come.
    tasks.start("first", ask(layer.clone()));
    tasks.to(MILLI * 500);
    for name in ["second", "third", "fourth"] {
        tasks.start(name, ask(layer.clone()));
    }
    tasks.to(MILLI * 2_000);
    let ended = tasks.ended();
    assert_eq!(ended[0], ("first", MILLI * 500, 200));
    // The second is asked for at 550 ms, and nobody answers by 650 ms, the end of everybody's wait.
    for (name, instant, status) in &ended[1..] {
        assert!(*instant <= MILLI * 650 + Duration::from_nanos(1), "{name} at {instant:?}");
        assert_eq!(*status, 429, "{name}");
    }
    assert_eq!(layer.handle().waiting("pace").unwrap(), 0);
}

/// Who waits to ask again asks before those who come later; another key's are not held up.
#[test]
fn a_newcomer_does_not_ask_before_those_who_wait() {
    let clock = Steps::default();
    let backend = ScriptedBackend::decisions([denied()]);
    let layer = RateLimitLayer::builder()
        .rule(
            Rule::new("fleet", TokenBucket::per_second(5))
                .key(key::header("x-user-id").or(key::global()))
                .backend(backend.clone()),
        )
        .rejection(RejectionPolicy::queue(MILLI * 100, 6))
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut tasks = Tasks::new(clock);
    tasks.start("first", ask_as(layer.clone(), "alice"));
    tasks.to(MILLI * 4);
    tasks.start("second", ask_as(layer.clone(), "alice"));
    tasks.start("third", ask_as(layer.clone(), "alice"));
    // Half of six places are hers, and she is told when the last of them asks.
    tasks.start("fourth", ask_as(layer.clone(), "alice"));
    tasks.start("bob", ask_as(layer.clone(), "bob"));
    assert_eq!(layer.handle().waiting("fleet").unwrap(), 3);
    tasks.to(MILLI * 50);
    assert_eq!(
        tasks.ended(),
        [
            ("fourth", MILLI * 4, 429),
            ("bob", MILLI * 4, 200),
            ("first", MILLI * 10, 200),
            ("second", MILLI * 10, 200),
            ("third", MILLI * 10, 200),
        ]
    );
    let asked: Vec<_> = backend.charges().iter().map(|charge| charge.now.get()).collect();
    assert_eq!(asked, [0, 4_000_000, 10_000_000, 10_000_000, 10_000_000]);
    assert_eq!(layer.handle().waiting("fleet").unwrap(), 0);
}

/// A waker may run anything when it is dropped, so nothing is locked meanwhile.
#[test]
fn wakers_are_dropped_with_nothing_locked() {
    /// Stands still, and keeps no wakers.
    struct Mute;

    impl Clock for Mute {
        fn now(&self) -> Nanos {
            Nanos::ZERO
        }

        fn sleep_until(&self, _: Nanos) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }

        fn utc_at_zero(&self) -> Duration {
            Duration::ZERO
        }
    }

    struct OnDrop(Box<dyn Fn() + Send + Sync>);

    impl Wake for OnDrop {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for OnDrop {
        fn drop(&mut self) {
            (self.0)();
        }
    }

    let (done, is_done) = std::sync::mpsc::channel();
    let dropped = Arc::new(AtomicU64::new(0));
    // In a thread of its own: what is locked twice hangs.
    std::thread::spawn(move || {
        let layer = RateLimitLayer::builder()
            .rule(
                Rule::new("fleet", TokenBucket::per_second(5))
                    .backend(ScriptedBackend::decisions([denied(), denied(), denied()])),
            )
            .rejection(RejectionPolicy::queue(MILLI * 100, 1))
            .clock(Mute)
            .build()
            .unwrap();
        let mut waits = Box::pin(ask(layer.clone()));
        for _ in 0..2 {
            let (newcomer, count) = (layer.clone(), Arc::clone(&dropped));
            let waker = Waker::from(Arc::new(OnDrop(Box::new(move || {
                let mut newcomer = Box::pin(ask(newcomer.clone()));
                let _ = newcomer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                count.fetch_add(1, Ordering::Relaxed);
            }))));
            // The second takes the place of the first.
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(waits);
        let _ = done.send(dropped.load(Ordering::Relaxed));
    });
    let dropped = is_done.recv_timeout(Duration::from_secs(10));
    assert_eq!(dropped.expect("nobody locks what is locked already"), 2);
}
