//! Area AR: arithmetic, clocks and time.

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
    ConfigError, FixedWindow, ManualClock, Quota, RateLimitLayer, Rule, StartLevel, TokenBucket,
    TokioClock,
    clock::{BoxFuture, Clock, Nanos},
    key,
};

use crate::support_core::{
    HOUR, SECOND, admitted, algorithms, at, keyed, limiter, retry_secs, scaled, status,
};

const MILLI: u64 = 1_000_000;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[test]
fn ar_01_clock_stepped_backwards() {
    // The case's 17 s and 106 s speak of the bucket. A window is over a minute after it began at 100 s,
    // or by the clock at 120 s; no wait is longer than a window.
    let expected = [(17, 106), (60, 160), (31, 120)];
    for (algorithm, (wait, passes)) in algorithms(Quota::per_minute(10)).into_iter().zip(expected) {
        let clock = ManualClock::new();
        let one = limiter(algorithm, clock.clone());
        let many = keyed(algorithm, clock.clone(), None);
        let call = |second: u32| {
            clock.set(Nanos::ZERO + second * SECOND);
            let decision = one.try_acquire();
            assert_eq!(many.try_acquire("k"), decision);
            assert!(retry_secs(&decision).unwrap_or(1) <= 60, "{algorithm:?}: {decision:?}");
            decision
        };
        for _ in 0..10 {
            assert!(call(100).is_allowed());
        }
        let denied = call(89);
        assert_eq!((retry_secs(&denied), denied.remaining()), (Some(wait), 0), "{algorithm:?}");
        let first = (90..=160).find(|second| call(*second).is_allowed());
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
    for algorithm in algorithms(quota) {
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
        // INV-1: burst and rate for a bucket, twice the limit across an edge for a window.
        let periods = began.elapsed().as_secs_f64() / 0.01;
        let most = (100.0 * (periods + 2.0)).ceil() as u64;
        for passed in [passed.0, passed.1] {
            assert!((100..=most).contains(&passed), "{algorithm:?}: {passed} of at most {most}");
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
    let endless = [
        TokenBucket::new(10, Duration::MAX).limiter().build(),
        FixedWindow::new(10, Duration::MAX).limiter().build(),
        FixedWindow::new(10, Duration::MAX).aligned().limiter().build(),
    ];
    for built in endless {
        assert_eq!(built.expect_err("too long").field(), "period");
    }
}

#[test]
fn ar_04_huge_idle_gap() {
    let bucket = Quota::per_second(1_000_000).burst(5);
    let window = algorithms(Quota::per_second(5));
    for algorithm in [TokenBucket::from(bucket).into(), window[1], window[2]] {
        let clock = ManualClock::new();
        let (one, many) =
            (limiter(algorithm, clock.clone()), keyed(algorithm, clock.clone(), None));
        for jump in [0, 1 << 62, (1 << 63) - 1] {
            clock.advance(Duration::from_nanos(jump));
            assert_eq!(admitted(&one, 6), 5, "{algorithm:?} after {jump}");
            let of_key = (0..6).filter(|_| many.try_acquire("key").is_allowed()).count();
            assert_eq!(of_key, 5, "{algorithm:?} after {jump}");
        }
    }
}

#[test]
fn ar_06_a_billion_per_second() {
    let clock = ManualClock::new();
    let limiter =
        limiter(TokenBucket::per_second(1_000_000_000).burst(1_000).into(), clock.clone());
    for _ in 0..2 {
        for n in 1..=1_001_u64 {
            let decision = limiter.try_acquire();
            assert_eq!(decision.is_allowed(), n <= 1_000, "{n}");
            assert_eq!(decision.remaining(), 1_000_u64.saturating_sub(n));
            assert!(
                decision.is_allowed() || decision.retry_after() == Some(Duration::from_nanos(1))
            );
        }
        clock.advance(Duration::from_micros(1));
    }
    // Half a billion is a permit every other nanosecond, 999,999,937 nearly one each.
    for (permits, nanos, expected) in [(500_000_000, 10, 5), (999_999_937, 1_000, 999)] {
        let clock = ManualClock::new();
        let bucket = TokenBucket::per_second(permits).burst(1);
        let limiter = self::limiter(bucket.into(), clock.clone());
        let mut passed = 0;
        for _ in 0..nanos {
            passed += admitted(&limiter, 2);
            clock.advance(Duration::from_nanos(1));
        }
        // 999,999,937 with a burst of 1 misses every other nanosecond, since the permit is not whole.
        let expected = if permits == 999_999_937 { expected.min(500) } else { expected };
        assert_eq!(passed, expected, "{permits}");
    }
    for burst in [1, 1_000] {
        let error = TokenBucket::per_second(5_000_000_000).burst(burst).limiter().build();
        assert_eq!(error.expect_err("more than one a nanosecond").field(), "permits");
    }
}

#[test]
fn ar_07_extreme_quotas_never_switch_off() {
    let huge = [u64::from(u32::MAX), i64::MAX as u64, u64::MAX];
    let numbers = [1, 10, huge[0], huge[1], huge[2]];
    let (mut built, mut refused) = (0, 0);
    for permits in numbers {
        for period in [Duration::from_nanos(1), YEAR] {
            for burst in numbers {
                let bucket = TokenBucket::new(permits, period).burst(burst);
                let window = FixedWindow::new(permits, period);
                for algorithm in [bucket.into(), window.into(), window.aligned().into()] {
                    for factor in [1, 1_000_000_000] {
                        match build_extreme(algorithm, factor) {
                            Ok(layer) => {
                                built += 1;
                                assert_limits(&layer, &format!("{algorithm:?} times {factor}"));
                            }
                            Err(error) => {
                                refused += 1;
                                let fields = ["permits", "period", "burst"];
                                assert!(fields.contains(&error.field()), "{error}");
                                assert_eq!(error.rule(), Some("extreme"));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(built > 50 && refused > 50, "{built} built, {refused} refused");
}

fn build_extreme(
    algorithm: tower_sluice::Algorithm,
    factor: u64,
) -> Result<RateLimitLayer, ConfigError> {
    let rule = Rule::new("extreme", algorithm)
        .key(key::from_fn(|_| Some("one".into())).or(key::global()).relaxed(factor))
        .max_keys(4);
    RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build()
}

/// The layer's one key neither passes for ever nor never.
fn assert_limits(layer: &RateLimitLayer, what: &str) {
    let handle = layer.handle();
    let peek = |cost| crate::support_core::ready(handle.peek("extreme", "one", cost)).expect(what);
    let limit = peek(0).limit();
    assert_eq!(peek(0).remaining(), limit, "{what}");
    assert!(peek(limit).is_allowed(), "{what}");
    if let Some(more) = limit.checked_add(1) {
        assert!(peek(more).is_never(), "{what}");
    }
    let calls = limit.min(20);
    for n in 1..=calls {
        assert_eq!(status(layer, &[]).0, 200, "{what}: {n} of {limit}");
        // Never above what is right; at most a unit per charge less where a burst is huge.
        let remaining = peek(0).remaining();
        assert!(remaining <= limit - n && remaining >= limit - n - u64::from(n < limit), "{what}");
    }
    assert!(!peek(limit).is_allowed(), "{what}");
    assert!(limit > calls || status(layer, &[]).0 == 429, "{what}");
}

#[test]
fn ar_09_zero_quota_is_refused() {
    for algorithm in algorithms(Quota::per_second(0)) {
        let error =
            RateLimitLayer::builder().rule(Rule::new("none", algorithm)).build().unwrap_err();
        assert_eq!((error.rule(), error.field()), (Some("none"), "permits"));
    }
    let error = TokenBucket::per_second(1).burst(0).limiter().build().unwrap_err();
    assert_eq!((error.field(), error.value()), ("burst", "0"));
    assert!("0/s".parse::<Quota>().is_err());

    // At run time the old quota stays in force.
    for algorithm in algorithms(Quota::per_second(3)) {
        let clock = ManualClock::new();
        let limiter = limiter(algorithm, clock.clone());
        let rule = Rule::new("rule", algorithm);
        let layer =
            RateLimitLayer::builder().clock(clock.clone()).rule(rule).build().expect("a layer");
        assert!(layer.handle().set_limit("rule", Quota::per_second(0)).is_err());
        assert!(limiter.set_limit(Quota::per_second(0)).is_err());
        assert!(limiter.set_limit(Quota::new(3, Duration::ZERO)).is_err());
        let mut passed = 0;
        for call in 0..1_000 {
            at(&clock, call * 10 * MILLI);
            let allowed = limiter.try_acquire().is_allowed();
            assert_eq!(status(&layer, &[]).0 == 200, allowed);
            passed += u64::from(allowed);
        }
        // Three a second for ten seconds, and the burst where it is a bucket: 3 + 9.99 s x 3/s.
        let expected = if algorithm == algorithms(Quota::per_second(3))[0] { 32 } else { 30 };
        assert_eq!(passed, expected, "{algorithm:?}");
    }
}

#[test]
fn ar_10_cost_never_gives_back() {
    // A cost is unsigned: negative and not-a-number cannot be said. What a closure makes of a header
    // is its own business; here what does not parse costs 1.
    let rule =
        Rule::new("paid", TokenBucket::per_second(1).burst(10)).spread(false).cost_fn(|head| {
            let cost = head.headers().get("x-cost").and_then(|cost| cost.to_str().ok());
            cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
        });
    let layer =
        RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build().expect("a layer");
    for _ in 0..10 {
        assert_eq!(status(&layer, &[("x-cost", "1")]).0, 200);
    }
    assert_eq!(status(&layer, &[("x-cost", "-5")]), (429, Some(1)));
    assert_eq!(status(&layer, &[("x-cost", "0")]), (200, None));
    assert_eq!(status(&layer, &[("x-cost", "NaN")]), (429, Some(1)));
    assert_eq!(status(&layer, &[("x-cost", "4294967295")]), (429, None));
    assert_eq!(status(&layer, &[("x-cost", "18446744073709551615")]), (429, None));
    assert_eq!(status(&layer, &[("x-cost", "1")]), (429, Some(1)));

    for algorithm in algorithms(Quota::new(10, 10 * SECOND)) {
        let limiter = limiter(algorithm, ManualClock::new());
        assert_eq!(admitted(&limiter, 10), 10);
        let before = limiter.peek(0);
        assert_eq!(before.remaining(), 0);
        assert_eq!(limiter.try_acquire_many(0), before);
        for cost in [u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
            assert!(limiter.try_acquire_many(cost).is_never());
        }
        assert_eq!(limiter.peek(0), before);
        assert!(!limiter.try_acquire().is_allowed());
    }
}

#[test]
fn ar_11_cost_above_the_burst_is_never() {
    let rule = Rule::new("ten", TokenBucket::per_second(10)).spread(false).cost_fn(|head| {
        head.headers().get("x-cost").and_then(|c| c.to_str().ok()?.parse().ok()).unwrap_or(1)
    });
    let layer =
        RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build().expect("a layer");
    let sent = crate::support_core::request(&[("x-cost", "11")]);
    let response = crate::support_core::ready(crate::support_core::send(&layer, sent));
    assert_eq!(response.status(), 429);
    assert!(!response.headers().contains_key("retry-after"));
    let body = axum::body::to_bytes(response.into_body(), 4_096);
    let body = crate::support_core::ready(body).expect("a body");
    let body = std::str::from_utf8(&body).expect("text");
    assert!(body.contains(r#""reason":"never""#), "{body}");
    assert_eq!(status(&layer, &[("x-cost", "10")]), (200, None));
    assert_eq!(status(&layer, &[("x-cost", "1")]), (429, Some(1)));

    for algorithm in algorithms(Quota::per_second(10)) {
        let limiter = limiter(algorithm, ManualClock::new());
        let never = limiter.try_acquire_many(11);
        assert!(never.is_never() && never.retry_after().is_none() && never.remaining() == 10);
        assert!(limiter.try_acquire_many(10).is_allowed());
        let denied = limiter.try_acquire();
        assert!(!denied.is_never());
        assert_eq!(retry_secs(&denied), Some(1));
    }
}

#[test]
fn ar_13_mixed_costs_are_summed() {
    // The log's timeline on fixed windows, which begin and end with it.
    let ten = FixedWindow::new(10, 60 * SECOND);
    for window in [ten, ten.aligned()] {
        let clock = ManualClock::new();
        let limiter = limiter(window.into(), clock.clone());
        let call = |second: u32, cost| {
            clock.set(Nanos::ZERO + second * SECOND);
            limiter.try_acquire_many(cost)
        };
        assert!(call(0, 8).is_allowed());
        assert!(call(1, 1).is_allowed());
        assert!(call(2, 1).is_allowed());
        assert_eq!(retry_secs(&call(3, 1)), Some(57));
        let dear = call(3, 11);
        assert!(dear.is_never() && dear.retry_after().is_none());
        assert!(call(60, 8).is_allowed());
    }
}

#[test]
fn ar_14_polling_does_not_starve_the_refill() {
    let clock = ManualClock::new();
    let one = limiter(TokenBucket::per_second(1).into(), clock.clone());
    let passed = (0..=100).filter(|call| {
        at(&clock, call * 100 * MILLI);
        one.try_acquire().is_allowed()
    });
    assert_eq!(passed.count(), 11);

    let many = || {
        let clock = ManualClock::new();
        (limiter(TokenBucket::per_second(5_000).into(), clock.clone()), clock)
    };
    let (limiter, clock) = many();
    // 40,000 instants from a generator, in order.
    let mut x = 1_u64;
    let mut instants: Vec<u64> = std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 20) % 10_000_000_000
    })
    .take(40_000)
    .collect();
    instants.sort_unstable();
    for instant in instants {
        at(&clock, instant);
        assert!(limiter.try_acquire().is_allowed(), "4,000/s at {instant}");
    }
    let (limiter, clock) = many();
    let passed = (0..60_000_u64).filter(|call| {
        at(&clock, call * 10_000_000_000 / 60_000);
        limiter.try_acquire().is_allowed()
    });
    assert!((54_999..=55_000).contains(&passed.count()));

    let clock = ManualClock::new();
    let slow = self::limiter(TokenBucket::new(10, 30 * SECOND).into(), clock.clone());
    for second in 0..11 {
        at(&clock, second * 1_000 * MILLI);
        let decision = slow.try_acquire();
        assert!(decision.is_allowed());
        assert_eq!(decision.remaining(), 9 + second / 3 - second, "{second} s");
    }
}

#[test]
fn ar_16_no_snap_back_to_full() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_second(3).into(), clock.clone());
    let mut passed = Vec::new();
    let mut seen = Vec::new();
    for call in 0..=30_usize {
        at(&clock, call as u64 * 100 * MILLI);
        if limiter.try_acquire().is_allowed() {
            passed.push(call);
        }
        seen.push(limiter.peek(0).remaining());
    }
    assert_eq!(passed, [0, 1, 2, 4, 7, 10, 14, 17, 20, 24, 27, 30]);
    for call in 0..=30 {
        let within = passed.iter().filter(|pass| (call..call + 10).contains(*pass));
        assert!(within.count() <= 5, "in the second from {call}");
    }
    for stretch in seen.windows(5) {
        assert!(!(stretch[0] == 0 && stretch.contains(&2)), "{seen:?}");
    }
}

#[test]
fn ar_18_intervals_below_a_second() {
    let clock = ManualClock::new();
    let limiter = limiter(TokenBucket::per_second(100).burst(11).into(), clock.clone());
    let passed = (0..=3_000).filter(|call| {
        at(&clock, call * MILLI);
        limiter.try_acquire().is_allowed()
    });
    assert_eq!(passed.count(), 311);
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
    let mut passed = Vec::new();
    while began.elapsed() < length {
        let before = Instant::now();
        if limiter.try_acquire().is_allowed() {
            passed.push((before, Instant::now()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    for pair in passed.windows(2) {
        // From before the one to after the next: never less than a second by a clock that keeps time.
        let apart = pair[1].1 - pair[0].0;
        assert!(apart >= Duration::from_millis(990), "{apart:?} apart");
    }
    // Each admission is late by as long as a poll takes; on a busy machine more than one may be lost.
    let seconds = length.as_secs() as usize;
    assert!((seconds - seconds / 3..=seconds + 1).contains(&passed.len()), "{}", passed.len());
}

#[test]
fn ar_22_first_check_is_quick() {
    // Only the first check of a process calibrates the clock, so a process of its own.
    const CHILD: &str = "SLUICE_FIRST_CHECK";
    if env::var_os(CHILD).is_some() {
        let bucket = TokenBucket::per_second(1);
        let began = Instant::now();
        let allowed = bucket.limiter().build().expect("a bucket").try_acquire().is_allowed();
        let took = began.elapsed();
        assert!(allowed);
        // Ten times the case's bound.
        assert!(took < Duration::from_millis(50), "build and first check took {took:?}");
        return;
    }
    let this = env::current_exe().expect("this test");
    let child = Command::new(this)
        .args(["--exact", "arithmetic::ar_22_first_check_is_quick", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success() && said.contains("1 passed"), "{said}{child:?}");
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
        clock.monotonic.advance(HOUR);
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
    for algorithm in [bucket.into(), window.into(), window.aligned().into()] {
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
        // Aligned windows of a clock whose zero is some odd instant: begin with one.
        let window = FixedWindow::new(1, 10 * SECOND).aligned();
        if algorithm == window.into() {
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
        assert_eq!(status(&layer, &[]), (200, None));
        assert_eq!(status(&layer, &[]), (429, Some(10)));
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(retry_secs(&limiter.try_acquire()), Some(1));
        assert_eq!(status(&layer, &[]), (429, Some(1)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(limiter.try_acquire().is_allowed());
        assert_eq!(status(&layer, &[]), (200, None));
        tokio::time::advance(10 * SECOND).await;
    }

    // The same with a clock of the caller's own.
    let clock = Suspendable { monotonic: ManualClock::new(), asleep: Arc::default() };
    for algorithm in algorithms(Quota::new(1, 10 * SECOND)) {
        let limiter = limiter(algorithm, clock.clone());
        assert!(limiter.try_acquire().is_allowed());
        clock.monotonic.advance(Duration::from_millis(9_999));
        assert!(!limiter.try_acquire().is_allowed());
        clock.monotonic.advance(Duration::from_millis(1));
        assert!(limiter.try_acquire().is_allowed());
        clock.monotonic.advance(10 * SECOND);
    }
    // The case's second is ten here.
    assert!(began.elapsed() < 10 * SECOND);
}

#[test]
fn ar_26_fine_grained_quota_never_hangs() {
    for algorithm in algorithms(Quota::per_second(1_024)) {
        let clock = ManualClock::new();
        let limiter = limiter(algorithm, clock.clone());
        let mut waits = 0;
        for _ in 0..2_000 {
            while let Some(wait) = limiter.try_acquire().retry_after() {
                waits += 1;
                assert!(waits <= 2_000 && !wait.is_zero(), "{algorithm:?}");
                clock.advance(wait);
            }
        }
        let took = Duration::from(clock.now());
        assert!((900..=2_100).contains(&took.as_millis()), "{algorithm:?}: {took:?}");
    }
    // One per tick of the clock, which is as fine as it gets.
    let tick = Duration::from_nanos(1);
    for algorithm in [TokenBucket::new(1, tick).into(), FixedWindow::new(1, tick).into()] {
        let clock = ManualClock::new();
        let limiter = limiter(algorithm, clock.clone());
        for _ in 0..2_000 {
            assert!(limiter.try_acquire().is_allowed());
            assert_eq!(limiter.try_acquire().retry_after(), Some(tick));
            clock.advance(tick);
        }
    }
    // Windows by the clock are numbered from 1970, which leaves no room to number nanoseconds.
    let error = FixedWindow::new(1, tick).aligned().limiter().build().unwrap_err();
    assert_eq!(error.field(), "permits");
}

#[test]
fn ar_28_bad_numbers_name_rule_and_field() {
    let build = |rule: Rule| RateLimitLayer::builder().rule(rule).build().unwrap_err();
    let bucket = TokenBucket::per_second(5);
    let bad = [
        (Rule::new("r", TokenBucket::per_second(0)), "permits"),
        (Rule::new("r", bucket.burst(0)), "burst"),
        (Rule::new("r", TokenBucket::new(5, Duration::ZERO)), "period"),
        (Rule::new("r", TokenBucket::new(5, Duration::MAX)), "period"),
        (Rule::new("r", TokenBucket::per_second(u64::MAX)), "permits"),
        (Rule::new("r", bucket.burst(u64::MAX)), "burst"),
        (Rule::new("r", bucket.start(StartLevel::Fraction(f64::NAN))), "start"),
        (Rule::new("r", bucket.start(StartLevel::Fraction(-0.5))), "start"),
        (Rule::new("r", bucket.start(StartLevel::Fraction(1.5))), "start"),
        (Rule::new("r", FixedWindow::per_second(0)), "permits"),
        (Rule::new("r", FixedWindow::new(5, Duration::ZERO)), "period"),
        (Rule::new("r", FixedWindow::new(5, Duration::MAX)), "period"),
        (Rule::new("r", FixedWindow::per_second(u64::MAX)), "permits"),
        (Rule::new("r", bucket).key(key::client_ip().relaxed(0)), "key.relaxed"),
        (Rule::new("r", bucket).key(key::client_ip().relaxed(u64::MAX)), "permits"),
        (Rule::new("r", bucket).key(key::client_ip()).max_keys(0), "max_keys"),
    ];
    for (rule, field) in bad {
        let error = build(rule);
        assert_eq!((error.rule(), error.field()), (Some("r"), field), "{error}");
        assert!(!error.value().is_empty() && !error.reason().is_empty(), "{error}");
    }
    let texts = [
        "",
        "5",
        "5/",
        "/s",
        "0/s",
        "-5/s",
        "5/-1s",
        "5/0s",
        "NaN/s",
        "inf/s",
        "1e9/s",
        "5/s burst",
        "5/s burst -2",
        "5/s burst NaN",
        "5/s times 2",
        "5/fortnight",
        "5,5/s",
        "18446744073709551616/s",
        "5/18446744073709551615d",
    ];
    for text in texts {
        let error = text.parse::<Quota>().unwrap_err();
        assert_eq!(error.field(), "quota", "{text}");
        assert!(error.value().contains(text), "{error}");
    }
    // A burst of 0 is a number; that it is none to limit by is said at build.
    let zero: Quota = "5/s burst 0".parse().expect("a quota");
    assert_eq!(build(Rule::new("r", zero)).field(), "burst");
}
