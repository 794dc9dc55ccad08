//! Area AR where requests and callers wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tower_sluice::{
    FixedWindow, InFlight, Limiter, ManualClock, Quota, RateLimitLayer, RejectionPolicy, Rule,
    TokenBucket, TokioClock,
    clock::{BoxFuture, Clock, Nanos},
};

use crate::{
    support_core::{SECOND, admitted, every, limiter, ready, request, send, status},
    tasks::{Steps, Tasks},
};

const MILLI: Duration = Duration::from_millis(1);

fn queue(longest: Duration, depth: u64) -> RejectionPolicy {
    RejectionPolicy::queue(longest, depth)
}

#[test]
fn ar_09_limit_and_depth_of_zero_are_refused() {
    let error = RateLimitLayer::builder().in_flight(InFlight::new("none", 0)).build().unwrap_err();
    assert_eq!((error.rule(), error.field(), error.value()), (Some("none"), "limit", "0"));
    // Used by itself it blocks all.
    let none = InFlight::new("none", 0);
    assert!((0..1_000).all(|_| none.try_acquire().is_none()));

    // At run time the old limit stays in force.
    let two = InFlight::new("two", 2);
    assert_eq!(two.set_limit(0).unwrap_err().field(), "limit");
    assert_eq!(two.limit(), 2);
    let held: Vec<_> = (0..1_000).map_while(|_| two.try_acquire()).collect();
    assert_eq!(held.len(), 2);

    let rule = || Rule::new("rule", TokenBucket::per_second(1));
    let builder = RateLimitLayer::builder().rule(rule()).rejection(queue(SECOND, 0));
    assert_eq!(builder.build().unwrap_err().field(), "depth");
    // A limiter whose quota is raised to nothing at all keeps those who wait, and their turns.
    let clock = Steps::default();
    let shared = limiter(TokenBucket::per_second(1).into(), clock.clone());
    let mut tasks = Tasks::new(clock);
    for caller in 0..2 {
        tasks.start(caller, acquire(&shared, SECOND * 10));
    }
    assert!(shared.set_limit(Quota::per_second(0)).is_err());
    tasks.to(SECOND * 10);
    assert_eq!(tasks.ended(), [(0, Duration::ZERO, true), (1, SECOND, true)]);
}

/// Neither does he wait for ever whose cost a new quota is below, and nobody behind him.
#[test]
fn ar_11_cost_above_a_lowered_burst_ends_the_longest_wait_there_is() {
    let clock = Steps::default();
    let shared = limiter(TokenBucket::per_second(1).burst(10).into(), clock.clone());
    assert!(shared.try_acquire_many(10).is_allowed());
    let mut tasks = Tasks::new(clock);
    for cost in [10, 1] {
        let shared = shared.clone();
        tasks.start(cost, async move { shared.acquire_many(cost, Duration::MAX).await });
    }
    shared.set_limit(Quota::per_second(1).burst(5)).unwrap();
    tasks.to(SECOND);
    let ended = tasks.ended();
    assert_eq!((ended[0].0, ended[0].1, ended[0].2.is_never()), (10, Duration::ZERO, true));
    assert_eq!((ended[1].0, ended[1].1, ended[1].2.is_allowed()), (1, SECOND, true));
}

/// Whether one permit was had within `longest`.
fn acquire(limiter: &Limiter, longest: Duration) -> impl Future<Output = bool> + use<> {
    let limiter = limiter.clone();
    async move { limiter.acquire(longest).await.is_allowed() }
}

#[test]
fn ar_11_cost_above_the_burst_neither_waits_nor_degrades() {
    let degraded = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&degraded);
    let degrade = RejectionPolicy::degrade(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        std::future::ready("degraded")
    });
    for (policy, waits) in [(queue(SECOND * 5, 100), true), (degrade, false)] {
        let clock = Steps::default();
        let rule = Rule::new("ten", TokenBucket::per_second(10)).spread(false).cost_fn(|head| {
            head.headers().get("x-cost").and_then(|c| c.to_str().ok()?.parse().ok()).unwrap_or(1)
        });
        let builder = RateLimitLayer::builder().rule(rule).rejection(policy).clock(clock.clone());
        let layer = builder.build().expect("a layer");
        // At once: nothing is awaited, and nobody is behind it.
        let refused = ready(send(&layer, request(&[("x-cost", "11")])));
        assert_eq!(refused.status(), 429);
        assert!(!refused.headers().contains_key("retry-after"));
        let body = ready(axum::body::to_bytes(refused.into_body(), 4_096)).expect("a body");
        let body = std::str::from_utf8(&body).expect("text").to_owned();
        assert!(body.contains(r#""reason":"never""#), "{body}");
        assert_eq!(degraded.load(Ordering::Relaxed), 0);

        assert_eq!(status(&layer, &[("x-cost", "10")]), (200, None));
        let mut tasks = Tasks::new(clock);
        for cost in ["1", "11"] {
            let layer = layer.clone();
            tasks.start(cost, async move {
                send(&layer, request(&[("x-cost", cost)])).await.status().as_u16()
            });
        }
        tasks.to(SECOND);
        // Who is refused for good does not wait for who waits.
        let (one, eleven) = (("1", MILLI * 100, 200), ("11", Duration::ZERO, 429));
        let expected = if waits { [eleven, one] } else { [("1", Duration::ZERO, 200), eleven] };
        assert_eq!(tasks.ended(), expected);
    }
    assert_eq!(degraded.load(Ordering::Relaxed), 1, "the request of cost 1");
}

/// Sends `n` requests at once through a queue on a window of one per `length`; when each was served.
async fn through_windows(n: u32, length: Duration, clock: impl Clock) -> Vec<Duration> {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("one", FixedWindow::new(1, length)))
        .rejection(queue(length * 2 * n, 100))
        .clock(clock)
        .build()
        .expect("a layer");
    let began = tokio::time::Instant::now();
    let mut requests = JoinSet::new();
    for _ in 0..n {
        let layer = layer.clone();
        requests.spawn(async move {
            assert_eq!(send(&layer, request(&[])).await.status(), 200);
            began.elapsed()
        });
    }
    let mut served = requests.join_all().await;
    served.sort_unstable();
    served
}

#[tokio::test(start_paused = true)]
async fn ar_20_queue_is_served_on_time() {
    let served = through_windows(25, SECOND, TokioClock).await;
    for (n, instant) in (0_u32..).zip(served) {
        // Tokio's timer has steps of a millisecond, each window may begin so much later.
        assert!((SECOND * n..=(SECOND + MILLI) * n).contains(&instant), "{n}: {instant:?}");
    }
}

#[tokio::test]
async fn ar_20_queue_is_served_on_time_by_the_real_clock() {
    // The case's windows of a second, fifty times as fast; ten times their time at most.
    let length = MILLI * 20;
    let served = through_windows(25, length, tower_sluice::clock::FastClock::new()).await;
    assert_eq!(served.len(), 25);
    assert!(served[24] >= length * 24 - MILLI, "{served:?}");
    assert!(served[24] <= length * 240, "{served:?}");
}

#[tokio::test(start_paused = true)]
async fn ar_25_queued_request_follows_paused_time() {
    let began = Instant::now();
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("slow", TokenBucket::new(1, SECOND * 10)))
        .rejection(queue(SECOND * 15, 10))
        .clock(TokioClock)
        .build()
        .expect("a layer");
    assert_eq!(status(&layer, &[]), (200, None));
    let mut queued = Box::pin(async { send(&layer, request(&[])).await.status().as_u16() });
    let mut poll =
        async || std::future::poll_fn(|cx| std::task::Poll::Ready(queued.as_mut().poll(cx))).await;
    assert!(poll().await.is_pending());
    tokio::time::advance(MILLI * 9_999).await;
    assert!(poll().await.is_pending());
    tokio::time::advance(MILLI).await;
    assert_eq!(poll().await, std::task::Poll::Ready(200));

    // The same with a clock of the caller's own.
    let clock = Steps::default();
    let slow = limiter(TokenBucket::new(1, SECOND * 10).into(), clock.clone());
    let mut tasks = Tasks::new(clock);
    assert_eq!(admitted(&slow, 1), 1);
    tasks.start(2, acquire(&slow, SECOND * 15));
    tasks.to(MILLI * 9_999);
    assert!(tasks.ended().is_empty());
    tasks.to(SECOND * 10);
    assert_eq!(tasks.ended(), [(2, SECOND * 10, true)]);
    // The case's second is ten here.
    assert!(began.elapsed() < 10 * SECOND);
}

/// Acquires one after the other.
async fn in_turn(limiter: &Limiter, n: u64) {
    for _ in 0..n {
        assert!(limiter.acquire(SECOND * 2).await.is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn ar_26_awaited_acquires_never_hang() {
    let fine = Quota::per_second(1_024);
    for algorithm in every(fine) {
        let clock = Steps::default();
        let exact = limiter(algorithm, clock.clone());
        let mut tasks = Tasks::new(clock.clone());
        tasks.start((), async move { in_turn(&exact, 2_000).await });
        tasks.to(SECOND * 3);
        let [(_, took, ())] = tasks.ended() else { panic!("{algorithm:?} hangs") };
        assert!((900..=2_100).contains(&took.as_millis()), "{algorithm:?}: {took:?}");

        // By a timer that has steps of a millisecond, which is longer than a permit takes. A window by the
        // clock may be half over.
        let coarse = limiter(algorithm, TokioClock);
        let began = tokio::time::Instant::now();
        in_turn(&coarse, 2_000).await;
        let took = began.elapsed();
        assert!(took <= MILLI * 2_100, "{algorithm:?}: {took:?}");
    }
}

/// A clock whose timers never ring and keep no waker, as tokio's after they have rung.
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

/// A task that is dropped with its last waker, and asks then.
struct LastAsks<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for LastAsks<F> {
    fn wake(self: Arc<Self>) {}
}

impl<F: Fn() + Send + Sync> Drop for LastAsks<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Polls with a waker that asks the limit when it is dropped, once to be replaced and once to leave.
fn wait_with<T>(wait: impl Future<Output = T>, asks: impl Fn() + Clone + Send + Sync + 'static) {
    let mut wait = Box::pin(wait);
    for _ in 0..2 {
        let waker = Waker::from(Arc::new(LastAsks(asks.clone())));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
}

#[test]
fn wakers_are_dropped_with_nothing_locked() {
    let asked = Arc::new(AtomicU64::new(0));
    let (done, is_done) = std::sync::mpsc::channel();
    let count = Arc::clone(&asked);
    // In a thread of its own: what is locked twice hangs.
    std::thread::spawn(move || {
        let rate = limiter(TokenBucket::per_second(1).into(), Arc::new(Mute));
        let calls = InFlight::new("calls", 1).clock(Mute);
        let _held = (rate.try_acquire(), calls.try_acquire(), calls.try_acquire_by("key"));
        let (limiter, counted) = (rate.clone(), Arc::clone(&count));
        wait_with(rate.acquire(SECOND * 5), move || {
            assert!(!limiter.try_acquire().is_allowed());
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let (limit, counted) = (calls.clone(), Arc::clone(&count));
        wait_with(calls.acquire(SECOND), move || {
            assert!(limit.waiting() <= 1);
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let limit = calls.clone();
        wait_with(calls.acquire_by("key", SECOND), move || {
            assert!(limit.try_acquire_by("key").is_none());
            count.fetch_add(1, Ordering::Relaxed);
        });
        let _ = done.send(());
    });
    is_done.recv_timeout(SECOND * 10).expect("nobody locks what is locked already");
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[test]
fn ar_28_wait_and_depth_of_zero_name_rule_and_field() {
    let rule = || Rule::new("r", TokenBucket::per_second(5));
    let calls = || InFlight::new("f", 5);
    for (policy, field, value) in [
        (queue(Duration::ZERO, 5), "longest_wait", "0s"),
        (queue(SECOND, 0), "depth", "0"),
        (queue(Duration::ZERO, 0), "longest_wait", "0s"),
    ] {
        // Not to queue is said by leaving the queue out.
        let built = [
            RateLimitLayer::builder().rule(rule().rejection(policy.clone())).build(),
            RateLimitLayer::builder().in_flight(calls().rejection(policy.clone())).build(),
            RateLimitLayer::builder().rule(rule()).rejection(policy).build(),
        ];
        for (built, whose) in built.into_iter().zip([Some("r"), Some("f"), None]) {
            let error = built.unwrap_err();
            assert_eq!((error.rule(), error.field(), error.value()), (whose, field, value));
            assert!(error.reason().contains("leave the queue out"), "{error}");
        }
    }
    // The longest there is means as long as the client does.
    let endless = queue(Duration::MAX, u64::MAX);
    let layer = RateLimitLayer::builder().rule(rule()).rejection(endless).clock(ManualClock::new());
    assert_eq!(status(&layer.build().expect("a layer"), &[]), (200, None));
    // By itself a wait of zero is none.
    let limiter = limiter(TokenBucket::per_second(1).into(), ManualClock::new());
    assert!(ready(limiter.acquire(Duration::ZERO)).is_allowed());
    assert_eq!(ready(limiter.acquire(Duration::ZERO)).retry_after(), Some(SECOND));
    assert_eq!(limiter.waiting(), 0);
}
