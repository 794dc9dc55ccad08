//! Area AR: arithmetic of quotas and costs.

use std::time::Duration;

use tower_sluice::{
    Algorithm, ConfigError, FixedWindow, LeakyBucket, ManualClock, Quota, RateLimitLayer, Rule,
    SlidingLog, SlidingWindow, StartLevel, TokenBucket,
    clock::{Clock, Nanos},
    key,
};

use crate::support_core::{
    MILLI, SECOND, YEAR, admitted, algorithms, at, every, keyed, limiter, ready, request,
    retry_secs, send, status,
};

#[test]
fn ar_04_huge_idle_gap() {
    let bucket = Quota::per_second(1_000_000).burst(5);
    let windows = algorithms(Quota::per_second(5)).into_iter().skip(1);
    for algorithm in windows.chain([TokenBucket::from(bucket).into()]) {
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
    // One at a time: a permit each nanosecond; each second one; and each second one as well where a
    // permit takes 1.000000063 of them, since the next tick is a hair too early.
    for (permits, passes) in [(1_000_000_000, 1_000), (500_000_000, 500), (999_999_937, 500)] {
        let clock = ManualClock::new();
        let limiter =
            self::limiter(TokenBucket::per_second(permits).burst(1).into(), clock.clone());
        let passed = (0..1_000).map(|nanos| {
            at(&clock, nanos);
            admitted(&limiter, 2)
        });
        assert_eq!(passed.sum::<u64>(), passes, "{permits}");
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
                let leaky = LeakyBucket::new(permits, period);
                let slides = SlidingWindow::new(permits, period);
                let log = SlidingLog::new(permits, period);
                for algorithm in [
                    bucket.into(),
                    window.into(),
                    window.aligned().into(),
                    leaky.into(),
                    slides.into(),
                    log.into(),
                ] {
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

fn build_extreme(algorithm: Algorithm, factor: u64) -> Result<RateLimitLayer, ConfigError> {
    let rule = Rule::new("extreme", algorithm)
        .key(key::from_fn(|_| Some("one".into())).or(key::global()).relaxed(factor))
        .max_keys(4);
    RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build()
}

/// The layer's one key neither passes for ever nor never.
fn assert_limits(layer: &RateLimitLayer, what: &str) {
    let handle = layer.handle();
    let peek = |cost| ready(handle.peek("extreme", "one", cost)).expect(what);
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
    for algorithm in every(Quota::per_second(0)) {
        let error =
            RateLimitLayer::builder().rule(Rule::new("none", algorithm)).build().unwrap_err();
        assert_eq!((error.rule(), error.field()), (Some("none"), "permits"));
    }
    let error = TokenBucket::per_second(1).burst(0).limiter().build().unwrap_err();
    assert_eq!((error.field(), error.value()), ("burst", "0"));
    assert!("0/s".parse::<Quota>().is_err());

    // At run time the old quota stays in force.
    for algorithm in every(Quota::per_second(3)) {
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
        // Three a second for ten seconds, and the burst where it is a bucket: 3 + 9.99 s x 3/s. The
        // leaky one passes each 340 ms, as a call comes only every ten; the sliding window three each 1.1 s,
        // ten times.
        let expected = if matches!(algorithm, Algorithm::TokenBucket(_)) { 32 } else { 30 };
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
    let sent = request(&[("x-cost", "11")]);
    let response = ready(send(&layer, sent));
    assert_eq!(response.status(), 429);
    assert!(!response.headers().contains_key("retry-after"));
    let body = axum::body::to_bytes(response.into_body(), 4_096);
    let body = ready(body).expect("a body");
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
        let wait = if matches!(algorithm, Algorithm::SlidingWindow(_)) { 2 } else { 1 };
        assert_eq!(retry_secs(&denied), Some(wait), "{algorithm:?}");
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
    for algorithm in [
        TokenBucket::new(1, tick).into(),
        FixedWindow::new(1, tick).into(),
        SlidingLog::new(1, tick).into(),
    ] {
        let clock = ManualClock::new();
        let limiter = limiter(algorithm, clock.clone());
        for _ in 0..2_000 {
            assert!(limiter.try_acquire().is_allowed());
            assert_eq!(limiter.try_acquire().retry_after(), Some(tick));
            clock.advance(tick);
        }
    }
    // A cell is no shorter than a tick either, and a window is as long as it and the cell.
    let clock = ManualClock::new();
    let cells = limiter(SlidingWindow::new(1, tick).into(), clock.clone());
    for _ in 0..2_000 {
        assert!(cells.try_acquire().is_allowed());
        assert_eq!(cells.try_acquire().retry_after(), Some(tick * 2));
        clock.advance(tick * 2);
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
        (Rule::new("r", LeakyBucket::per_second(0)), "permits"),
        (Rule::new("r", LeakyBucket::new(5, Duration::MAX)), "period"),
        (Rule::new("r", LeakyBucket::from(Quota::per_second(5).burst(5))), "burst"),
        (Rule::new("r", FixedWindow::per_second(0)), "permits"),
        (Rule::new("r", FixedWindow::new(5, Duration::ZERO)), "period"),
        (Rule::new("r", FixedWindow::new(5, Duration::MAX)), "period"),
        (Rule::new("r", FixedWindow::per_second(u64::MAX)), "permits"),
        (Rule::new("r", SlidingWindow::per_second(0)), "permits"),
        (Rule::new("r", SlidingWindow::new(5, Duration::ZERO)), "period"),
        (Rule::new("r", SlidingWindow::new(5, Duration::MAX)), "period"),
        (Rule::new("r", SlidingWindow::per_second(u64::MAX)), "permits"),
        (Rule::new("r", SlidingLog::per_second(0)), "permits"),
        (Rule::new("r", SlidingLog::new(5, Duration::ZERO)), "period"),
        (Rule::new("r", SlidingLog::new(5, Duration::MAX)), "period"),
        (Rule::new("r", SlidingLog::per_day(65_537)), "permits"),
        (Rule::new("r", bucket).key(key::client_ip().relaxed(0)), "key.relaxed"),
        (Rule::new("r", SlidingLog::per_day(66)).key(key::client_ip().relaxed(1_000)), "permits"),
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
