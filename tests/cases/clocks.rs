//! Area AR: clocks, real and injected, and time that does not behave.

#![allow(clippy::disallowed_methods, reason = "load cases compare with the system's own clock")]

use std::{
    env,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tower_sluice::{
    FixedWindow, LeakyBucket, ManualClock, Quota, RateLimitLayer, Rule, SlidingLog, SlidingWindow,
    TokenBucket, TokioClock,
    clock::{BoxFuture, Clock, Nanos},
};

use crate::support_core::{
    HOUR, MILLI, SECOND, admitted, algorithms, at, counts_for, every, keyed, leaky, limiter,
    retry_secs, scaled, status,
};

#[test]
fn ar_01_clock_stepped_backwards() {
    // The case's 17 s and 106 s speak of the buckets. A window is over a minute after it began at 100 s,
    // or by the clock at 120 s; no wait is longer than a window. A cell of the sliding one has 6 s: that of 100 s
    // began at 96 s, and no wait is longer than a window and a cell.
    let ten = Quota::per_minute(10);
    let expected = [(17, 106), (60, 160), (31, 120), (62, 162), (60, 160), (17, 106)];
    for (algorithm, (wait, passes)) in every(ten).zip(expected) {
        let clock = ManualClock::new();
        let one = limiter(algorithm, clock.clone());
        let many = keyed(algorithm, clock.clone(), None);
        let call = |second: u32| {
            clock.set(Nanos::ZERO + second * SECOND);
            let decision = one.try_acquire();
            assert_eq!(many.try_acquire("k"), decision);
            let longest = counts_for(algorithm).as_secs();
            assert!(retry_secs(&decision).unwrap_or(1) <= longest, "{algorithm:?}: {decision:?}");
            decision
        };
        for _ in 0..one.peek(0).limit() {
            assert!(call(100).is_allowed());
        }
        assert!(!call(100).is_allowed());
        let denied = call(89);
        assert_eq!((retry_secs(&denied), denied.remaining()), (Some(wait), 0), "{algorithm:?}");
        let first = (90..=162).find(|second| call(*second).is_allowed());
        assert_eq!(first, Some(passes), "{algorithm:?}");
    }
}

/// A clock that reads differently on each call by up to a microsecond, so that instants arrive out of
/// order.
struct Jumpy {
    zero: Instant,
    calls: AtomicU64,
}

impl Clock for Jumpy {
    fn now(&self) -> Nanos {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let now = self.zero.elapsed() + HOUR;
        Nanos::from(now - Duration::from_nanos(call.wrapping_mul(0x9e37_79b9) % 1_000))
    }

    fn sleep_until(&self, _: Nanos) -> BoxFuture<'static, ()> {
        unreachable!("nothing sleeps here")
    }

    fn utc_at_zero(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn ar_02_instants_out_of_order() {
    const THREADS: u64 = 16;
    let quota = Quota::new(100, Duration::from_millis(10));
    for algorithm in every(quota) {
        let jumpy = Jumpy { zero: Instant::now(), calls: AtomicU64::new(0) };
        let (one, many) = (limiter(algorithm, jumpy), keyed(algorithm, TokioClock, None));
        let began = Instant::now();
        let calls = scaled(2_000_000) / THREADS / 2;
        let passed: (u64, u64) = thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut of_one, mut of_many) = (0, 0);
                        for _ in 0..calls {
                            of_one += u64::from(one.try_acquire().is_allowed());
                            of_many += u64::from(many.try_acquire("key").is_allowed());
                        }
                        (of_one, of_many)
                    })
                })
                .collect();
            let counts = workers.into_iter().map(|worker| worker.join().expect("no panic"));
            counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
        });
        // INV-1: burst and rate for a bucket, twice the limit across an edge for a window. The readings
        // of the jumpy clock differ by up to a microsecond.
        let periods = (began.elapsed().as_secs_f64() + 1e-6) / 0.01;
        let limit = one.peek(0).limit();
        let edges = if limit == 1 { 1 } else { 2 * limit };
        let most = (100.0 * periods).ceil() as u64 + edges;
        for passed in [passed.0, passed.1] {
            assert!((limit..=most).contains(&passed), "{algorithm:?}: {passed} of at most {most}");
        }
    }

    // Single steps: what an older instant charges counts as at the latest one seen. Its own answer is
    // as good for a window; a bucket's one word does not tell the latest instant, so to a call that is
    // an hour back the bucket is an hour emptier, and never fuller.
    for (n, algorithm) in algorithms(Quota::per_minute(10)).into_iter().enumerate() {
        let clock = ManualClock::new();
        let (one, many) =
            (limiter(algorithm, clock.clone()), keyed(algorithm, clock.clone(), None));
        let call = |back: Duration, cost| {
            at(&clock, (2 * HOUR - back).as_nanos() as u64);
            let decision = one.try_acquire_many(cost);
            assert_eq!(many.try_acquire_many("key", cost), decision);
            decision
        };
        assert_eq!(call(Duration::ZERO, 4).remaining(), 6);
        let tick = Duration::from_nanos(1);
        assert!(call(tick, 3).is_allowed());
        assert_eq!(call(Duration::ZERO, 0).remaining(), 3, "{algorithm:?}");
        let hour = call(HOUR, 3);
        assert_eq!((hour.is_allowed(), hour.remaining()), (n > 0, 0), "{algorithm:?}");
        assert_eq!(call(Duration::ZERO, 3).is_allowed(), n == 0, "{algorithm:?}");
        assert_eq!(call(Duration::ZERO, 0).remaining(), 0, "{algorithm:?}");
        // Near the clock's origin.
        assert!(!call(2 * HOUR - tick, 1).is_allowed());
    }
    // A leaky bucket has one permit: an older instant is too early by the time that it lies back.
    let clock = ManualClock::new();
    let (one, many) = (
        limiter(leaky(Quota::per_minute(10)), clock.clone()),
        keyed(leaky(Quota::per_minute(10)), clock.clone(), None),
    );
    let interval = 6 * SECOND;
    let call = |instant: Duration| {
        at(&clock, instant.as_nanos() as u64);
        let decision = one.try_acquire();
        assert_eq!(many.try_acquire("key"), decision);
        decision.retry_after()
    };
    assert_eq!(call(2 * HOUR), None);
    for back in [Duration::ZERO, Duration::from_nanos(1), HOUR, 2 * HOUR - Duration::from_nanos(1)]
    {
        assert_eq!(call(2 * HOUR - back), Some(interval + back));
    }
    assert_eq!(call(2 * HOUR + interval - Duration::from_nanos(1)), Some(Duration::from_nanos(1)));
    assert_eq!(call(2 * HOUR + interval), None);
    let endless = [
        LeakyBucket::new(10, Duration::MAX).limiter().build(),
        TokenBucket::new(10, Duration::MAX).limiter().build(),
        FixedWindow::new(10, Duration::MAX).limiter().build(),
        FixedWindow::new(10, Duration::MAX).aligned().limiter().build(),
        SlidingWindow::new(10, Duration::MAX).limiter().build(),
        SlidingLog::new(10, Duration::MAX).limiter().build(),
    ];
    for built in endless {
        assert_eq!(built.expect_err("too long").field(), "period");
    }
}

#[test]
fn ar_20_refill_needs_no_timer() {
    let clock = ManualClock::new();
    let fine = limiter(TokenBucket::new(1, Duration::from_micros(500)).into(), clock.clone());
    let passed = (0..=1_000).filter(|call| {
        at(&clock, call * MILLI);
        fine.try_acquire().is_allowed()
    });
    assert_eq!(passed.count(), 1_001);

    // 100 per window and twice as many offered, over six windows of the real clock; window and offer
    // scaled alike, so that the counts are the case's own.
    let window = Duration::from_millis(scaled(10_000));
    for window in [FixedWindow::new(100, window), FixedWindow::new(100, window).aligned()] {
        let (limiter, length) =
            (window.limiter().build().expect("a window"), window.quota().period());
        let began = Instant::now();
        let (mut passed, mut offered, mut stalled, mut last) = (0_u32, 0_u32, 0_u32, began);
        while offered < 1_200 {
            let due = began + length * offered / 200;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // A machine that stands still for half a window offers too little in it, and no limiter
            // could make up for it.
            stalled += u32::from(last.elapsed() > length / 3);
            last = Instant::now();
            passed += u32::from(limiter.try_acquire().is_allowed());
            offered += 1;
        }
        // Every window that began counts a hundred: six, or seven if they do not begin with the test.
        let stretched = (began.elapsed().as_nanos() / length.as_nanos()) as u32;
        let most = 700 + 100 * stretched.saturating_sub(6);
        assert!((594 - 200 * stalled.min(2)..=most).contains(&passed), "{window:?}: {passed}");
    }
}

#[test]
fn ar_22_default_clock_against_the_system() {
    // Whole, a minute: 60 or 61 pass.
    let length = Duration::from_secs(scaled(60));
    let limiter = TokenBucket::per_second(1).limiter().build().expect("a bucket");
    let began = Instant::now();
    let (mut passed, mut longest, mut last) = (Vec::new(), Duration::ZERO, began);
    while began.elapsed() < length {
        let before = Instant::now();
        if limiter.try_acquire().is_allowed() {
            passed.push((before, Instant::now()));
        }
        longest = longest.max(before - last);
        last = before;
        thread::sleep(Duration::from_millis(10));
    }
    for pair in passed.windows(2) {
        // From before the one to after the next: never less than a second by a clock that keeps time.
        let apart = pair[1].1 - pair[0].0;
        assert!(apart >= Duration::from_millis(990), "{apart:?} apart");
    }
    // Each is late by one poll at most; polls are late where the machine is busy.
    let least = (length.as_secs_f64() / (1.01 + longest.as_secs_f64())) as usize;
    let most = length.as_secs() as usize + 1;
    assert!((least..=most).contains(&passed.len()), "{} of {least} to {most}", passed.len());
}

#[test]
fn ar_22_first_check_is_quick() {
    // Only the first clock of a process calibrates, when a limiter or layer is built; a check finds it
    // done. So a process of its own, and a second and third where the machine was busy just then.
    const CHILD: &str = "SLUICE_FIRST_CHECK";
    if env::var_os(CHILD).is_some() {
        let limiter = TokenBucket::per_second(1).limiter().build().expect("a bucket");
        let began = Instant::now();
        let allowed = limiter.try_acquire().is_allowed();
        let took = began.elapsed();
        assert!(allowed && took < Duration::from_millis(5), "the first check took {took:?}");
        return;
    }
    let child = || {
        let this = env::current_exe().expect("this test");
        let mut child = Command::new(this);
        child.args(["--exact", "clocks::ar_22_first_check_is_quick", "--nocapture"]);
        let output = child.env(CHILD, "1").output().expect("a child");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success() && said.contains("1 passed"), said)
    };
    let said: Vec<_> = (0..3).map(|_| child()).take_while(|(passed, _)| !passed).collect();
    assert!(said.len() < 3, "{said:?}");
}

/// A monotonic clock that stops while the machine sleeps, and a wall clock that does not.
#[derive(Clone)]
struct Suspendable {
    monotonic: ManualClock,
    asleep: Arc<AtomicU64>,
}

impl Clock for Suspendable {
    fn now(&self) -> Nanos {
        self.monotonic.now()
    }

    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        self.monotonic.sleep_until(deadline)
    }

    fn utc_at_zero(&self) -> Duration {
        Duration::from_nanos(self.asleep.load(Ordering::Relaxed))
    }
}

#[test]
fn ar_23_suspend_and_resume() {
    for algorithm in algorithms(Quota::new(10, HOUR)) {
        let clock =
            Suspendable { monotonic: ManualClock::new(), asleep: Arc::new(AtomicU64::new(0)) };
        let limiter = limiter(algorithm, clock.clone());
        let rule = Rule::new("hourly", algorithm);
        let layer =
            RateLimitLayer::builder().clock(clock.clone()).rule(rule).build().expect("a layer");
        assert_eq!(admitted(&limiter, 10), 10);
        (0..10).for_each(|_| assert_eq!(status(&layer, &[]).0, 200));
        // Ten hours of sleep: quota is conservative, as the monotonic clock says nothing of them.
        clock.asleep.fetch_add((10 * HOUR).as_nanos() as u64, Ordering::Relaxed);
        assert!(!limiter.try_acquire().is_allowed());
        assert_eq!(status(&layer, &[]).0, 429);
        clock.monotonic.advance(counts_for(algorithm));
        assert!(limiter.try_acquire().is_allowed());
        assert_eq!(status(&layer, &[]).0, 200);
    }
}

#[test]
fn ar_24_injected_clock_never_reads_the_system() {
    // Time stands still on a clock of the caller's own. The least glance at a real clock would
    // refill a billion a second, or turn a window of a nanosecond.
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Nanos {
            Nanos::new(1_234_567_891)
        }

        fn sleep_until(&self, _: Nanos) -> BoxFuture<'static, ()> {
            unreachable!("nothing sleeps here")
        }

        fn utc_at_zero(&self) -> Duration {
            Duration::ZERO
        }
    }

    let bucket = TokenBucket::per_second(1_000_000_000).burst(1);
    let window = FixedWindow::new(1, Duration::from_micros(1));
    let slides = SlidingWindow::new(1, Duration::from_micros(1));
    let log = SlidingLog::new(1, Duration::from_micros(1));
    for algorithm in
        [bucket.into(), window.into(), window.aligned().into(), slides.into(), log.into()]
    {
        let (one, many) = (limiter(algorithm, Still), keyed(algorithm, Still, Some(16)));
        let rule = Rule::new("still", algorithm);
        let layer = RateLimitLayer::builder().clock(Still).rule(rule).build().expect("a layer");
        assert!(one.try_acquire().is_allowed() && many.try_acquire("key").is_allowed());
        assert_eq!(status(&layer, &[]).0, 200);
        let denied = one.try_acquire();
        assert!(denied.retry_after().is_some());
        for _ in 0..1_000 {
            assert_eq!((one.try_acquire(), many.try_acquire("key")), (denied, denied));
            assert_eq!(status(&layer, &[]).0, 429);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ar_25_tokio_clock_follows_paused_time() {
    let began = Instant::now();
    for algorithm in algorithms(Quota::new(1, 10 * SECOND)) {
        // Aligned windows, and cells, of a clock whose zero is some odd instant: begin with one.
        let window = FixedWindow::new(1, 10 * SECOND).aligned();
        let cells = SlidingWindow::new(1, 10 * SECOND);
        if [window.into(), cells.into()].contains(&algorithm) {
            let limiter = limiter(algorithm, TokioClock);
            let _ = limiter.try_acquire();
            let wait = limiter.try_acquire().retry_after().expect("denied");
            tokio::time::advance(wait).await;
        }
        let limiter = limiter(algorithm, TokioClock);
        let rule = Rule::new("slow", algorithm).spread(false);
        let layer =
            RateLimitLayer::builder().clock(TokioClock).rule(rule).build().expect("a layer");
        assert!(limiter.try_acquire().is_allowed());
        let wait = counts_for(algorithm);
        assert_eq!(status(&layer, &[]), (200, None));
        assert_eq!(status(&layer, &[]), (429, Some(wait.as_secs())));
        tokio::time::advance(wait - Duration::from_millis(1)).await;
        assert_eq!(retry_secs(&limiter.try_acquire()), Some(1));
        assert_eq!(status(&layer, &[]), (429, Some(1)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(limiter.try_acquire().is_allowed());
        assert_eq!(status(&layer, &[]), (200, None));
        tokio::time::advance(wait).await;
    }

    // The same with a clock of the caller's own.
    let clock = Suspendable { monotonic: ManualClock::new(), asleep: Arc::default() };
    for algorithm in algorithms(Quota::new(1, 10 * SECOND)) {
        let limiter = limiter(algorithm, clock.clone());
        let wait = counts_for(algorithm);
        assert!(limiter.try_acquire().is_allowed());
        clock.monotonic.advance(wait - Duration::from_millis(1));
        assert!(!limiter.try_acquire().is_allowed());
        clock.monotonic.advance(Duration::from_millis(1));
        assert!(limiter.try_acquire().is_allowed());
        // To where a cell begins, as at first.
        clock.monotonic.advance(wait);
    }
    // The case's second is ten here.
    assert!(began.elapsed() < 10 * SECOND);
}
