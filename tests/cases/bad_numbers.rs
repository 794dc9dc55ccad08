//! Area AR: bad numbers in warm-ups and in quotas that are written as text.

use std::time::Duration;

use tower_sluice::{
    Algorithm, ManualClock, Quota, RateLimitLayer, Rule, SlidingLog, SlidingWindow, WarmUp,
};

use crate::support_core::{HOUR, SECOND, Three, YEAR, every, warmed};

const NANO: Duration = Duration::from_nanos(1);

#[test]
fn ar_28_bad_warm_up_names_rule_and_field() {
    let ten = WarmUp::over(SECOND * 10);
    let numbers = [f64::NAN, f64::NEG_INFINITY, -2.0, -f64::MIN_POSITIVE, 0.0, f64::INFINITY];
    let mut bad = Vec::new();
    for number in numbers.into_iter().chain([1.5, 1.0 + f64::EPSILON]) {
        bad.push((ten.start_factor(number), "start_factor"));
        bad.push((ten.linear().start_factor(number), "start_factor"));
    }
    for number in numbers.into_iter().chain([0.5, 1.0 - f64::EPSILON, 1_000.5, f64::MAX]) {
        bad.push((ten.cold_factor(number), "cold_factor"));
    }
    bad.extend([0, 17, u32::MAX].map(|exponent| (ten.power(exponent), "power")));
    bad.extend([(WarmUp::over(Duration::MAX), "warm_up"), (ten.after_idle(SECOND), "after_idle")]);
    bad.push((ten.after_idle(Duration::ZERO), "after_idle"));
    // A number is bad even where it is of no consequence.
    bad.push((WarmUp::over(Duration::ZERO).start_factor(f64::NAN), "start_factor"));
    for algorithm in every(Quota::per_second(5)) {
        for (warm_up, field) in &bad {
            let rule = Rule::new("r", warmed(algorithm, *warm_up));
            let error = RateLimitLayer::builder().rule(rule).build().expect_err(field);
            assert_eq!((error.rule(), error.field()), (Some("r"), *field), "{error}");
            assert!(!error.value().is_empty() && !error.reason().is_empty(), "{error}");
        }
        let good = [
            ten.start_factor(f64::MIN_POSITIVE),
            ten.start_factor(1.0),
            ten.power(16),
            ten.cold_factor(1.0),
            ten.cold_factor(1_000.0),
            ten.after_idle(Duration::MAX),
            WarmUp::over(NANO),
            WarmUp::over(YEAR * 584),
        ];
        for warm_up in good {
            let three = Three::new(warmed(algorithm, warm_up));
            assert!(three.ask(Duration::ZERO, 1).is_allowed(), "{algorithm:?}, {warm_up:?}");
        }
    }

    // Idleness is at least the ramp and the time in which the quota is whole again.
    let quota = Quota::new(10, HOUR);
    let minutes = [60, 60, 60, 66, 60, 6].map(|minutes| SECOND * 60 * minutes);
    for (algorithm, whole) in every(quota).zip(minutes) {
        let build = |idle| {
            let rule = Rule::new("r", warmed(algorithm, ten.after_idle(idle)));
            RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build()
        };
        let least = SECOND * 10 + whole;
        assert!(build(least).is_ok(), "{algorithm:?}");
        let error = build(least - NANO).expect_err("too short");
        assert_eq!((error.rule(), error.field()), (Some("r"), "after_idle"), "{algorithm:?}");
        assert!(error.reason().contains(&format!("{least:?}")), "{error}");
    }
}

#[test]
fn ar_28_quotas_in_words_on_every_algorithm() {
    let minute: Quota = "5/min".parse().expect("a quota");
    for algorithm in every(Quota::per_second(1)) {
        let three = Three::new(algorithm.with_quota(minute));
        let limit = three.one.peek(0).limit();
        assert_eq!(limit, if matches!(algorithm, Algorithm::LeakyBucket(_)) { 1 } else { 5 });
        assert_eq!(three.admitted(Duration::ZERO, 6), limit);
    }
    // A burst is for buckets, and is not read over.
    let burst: Quota = "5/min burst 10".parse().expect("a quota");
    let zero: Quota = "5/min burst 0".parse().expect("a quota");
    for algorithm in every(Quota::per_second(1)) {
        for quota in [burst, zero] {
            let rule = Rule::new("r", algorithm.with_quota(quota));
            let built = RateLimitLayer::builder().rule(rule).build();
            if quota == burst && matches!(algorithm, Algorithm::TokenBucket(_)) {
                assert!(built.is_ok());
                continue;
            }
            let error = built.expect_err("a burst");
            assert_eq!((error.rule(), error.field()), (Some("r"), "burst"), "{algorithm:?}");
        }
    }
    // The same by `set_limit`, and the old quota stays in force.
    for algorithm in [SlidingLog::per_second(3).into(), SlidingWindow::per_second(3).into()] {
        let three = Three::new(algorithm);
        for quota in [burst, zero, Quota::per_second(u64::MAX), Quota::new(3, Duration::MAX)] {
            assert!(three.one.set_limit(quota).is_err(), "{algorithm:?}: {quota}");
            assert!(three.many.set_limit(quota).is_err(), "{algorithm:?}: {quota}");
            assert!(three.layer.handle().set_limit("three", quota).is_err(), "{algorithm:?}");
        }
        assert_eq!(three.admitted(Duration::ZERO, 4), 3, "{algorithm:?}");
    }
}
