//! Quotas, in code and as text.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use tower_sluice::{
    Algorithm, FixedWindow, HandleError, LeakyBucket, Quota, RateLimitLayer, Rule, StartLevel,
    TokenBucket, key, testing::ScriptedBackend,
};

use crate::support::{assert_names, assert_refused, error_of, rule};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[test]
fn quotas_that_cannot_be_counted_name_field_and_value() {
    let second = Duration::from_secs(1);
    let nano = Duration::from_nanos(1);
    let bucket = |permits, period| Algorithm::from(TokenBucket::new(permits, period));
    let window = |permits, period| Algorithm::from(FixedWindow::new(permits, period));
    let leaky = |permits, period| Algorithm::from(LeakyBucket::new(permits, period));
    let too_long = format!("{:?}", Duration::MAX);
    for (algorithm, field, value) in [
        (bucket(0, second), "permits", "0"),
        (window(0, second), "permits", "0"),
        (FixedWindow::per_day(0).aligned().into(), "permits", "0"),
        (TokenBucket::per_second(0).burst(5).into(), "permits", "0"),
        (bucket(5, Duration::ZERO), "period", "0s"),
        (window(5, Duration::ZERO), "period", "0s"),
        (bucket(5, Duration::MAX), "period", too_long.as_str()),
        (window(5, Duration::MAX), "period", too_long.as_str()),
        (bucket(1, 100 * YEAR), "period", "3153600000s"),
        (TokenBucket::per_second(5).burst(0).into(), "burst", "0"),
        (TokenBucket::per_second(5).burst(u64::MAX).into(), "burst", "18446744073709551615"),
        (bucket(2, nano), "permits", "2"),
        (bucket(u64::MAX, second), "permits", "18446744073709551615"),
        (bucket(5_000_000_000, second), "permits", "5000000000"),
        (window(u64::MAX, second), "permits", "18446744073709551615"),
        (FixedWindow::new(u64::MAX, second).aligned().into(), "permits", "18446744073709551615"),
        (window(1_000_000_000, Duration::from_micros(1)), "permits", "1000000000"),
        (window(5, second).with_quota(Quota::per_second(5).burst(6)), "burst", "6"),
        (leaky(0, second), "permits", "0"),
        (leaky(5, Duration::ZERO), "period", "0s"),
        (leaky(5, Duration::MAX), "period", too_long.as_str()),
        (leaky(1, 100 * YEAR), "period", "3153600000s"),
        (leaky(2, nano), "permits", "2"),
        (leaky(5, second).with_quota(Quota::per_second(5).burst(5)), "burst", "5"),
        (leaky(5, second).with_quota(Quota::per_second(5).burst(0)), "burst", "0"),
        (TokenBucket::per_second(5).start(StartLevel::Fraction(1.5)).into(), "start", "1.5"),
        (TokenBucket::per_second(5).start(StartLevel::Fraction(-0.5)).into(), "start", "-0.5"),
        (TokenBucket::per_second(5).start(StartLevel::Fraction(f64::NAN)).into(), "start", "NaN"),
    ] {
        assert_refused(rule(algorithm), field, value);
        // Keyed or not, with HTTP or without.
        assert_refused(rule(algorithm).key(key::client_ip()), field, value);
        match algorithm {
            Algorithm::TokenBucket(bucket) => {
                let error = bucket.limiter().name("r").build().unwrap_err();
                assert_names(&error, "r", field, value);
                let error = bucket.keyed_limiter().name("r").build().unwrap_err();
                assert_names(&error, "r", field, value);
            }
            Algorithm::FixedWindow(window) => {
                let error = window.limiter().name("r").build().unwrap_err();
                assert_names(&error, "r", field, value);
            }
            Algorithm::LeakyBucket(bucket) => {
                let error = bucket.limiter().name("r").build().unwrap_err();
                assert_names(&error, "r", field, value);
                let error = bucket.keyed_limiter().name("r").build().unwrap_err();
                assert_names(&error, "r", field, value);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn quotas_at_the_edges_can_be_counted() {
    for algorithm in [
        Algorithm::from(TokenBucket::new(1, Duration::from_nanos(1))),
        TokenBucket::per_second(1_000_000_000).into(),
        TokenBucket::per_second(1).burst(1 << 59).into(),
        TokenBucket::new(1, 36 * YEAR).into(),
        TokenBucket::new(1_000, 500 * YEAR).into(),
        TokenBucket::per_second(1).start(StartLevel::Fraction(0.0)).into(),
        TokenBucket::per_second(1).start(StartLevel::Fraction(1.0)).into(),
        LeakyBucket::new(1, Duration::from_nanos(1)).into(),
        LeakyBucket::new(1_000, 500 * YEAR).into(),
        FixedWindow::new(1, 100 * YEAR).into(),
        FixedWindow::new(1, Duration::from_nanos(64)).into(),
        FixedWindow::per_day(1_000_000_000).aligned().into(),
    ] {
        let built = RateLimitLayer::builder().rule(rule(algorithm)).build();
        assert!(built.is_ok(), "{algorithm:?}: {}", built.unwrap_err());
    }
}

#[test]
fn a_leaky_bucket_takes_a_quota_without_a_burst() {
    let text = |text: &str| text.parse::<Quota>().unwrap();
    for quota in [Quota::per_second(40), text("40/s"), text("40/s burst 1"), text("80/2s")] {
        assert_eq!(LeakyBucket::from(quota).quota().max_burst(), 1, "{quota}");
    }
    // The default of a text with a fraction is no burst that anybody wrote.
    assert_eq!(LeakyBucket::from(text("2.5/s")), LeakyBucket::new(1, Duration::from_millis(400)));

    let limiter = || LeakyBucket::per_second(20).limiter().name("r").build().unwrap();
    let rules = || {
        let one = || Rule::new("r", LeakyBucket::per_second(20));
        let keyed = LeakyBucket::per_second(20).keyed_limiter().name("r").build().unwrap();
        [
            one(),
            one().key(key::client_ip().relaxed(10)),
            one().backend(ScriptedBackend::new()),
            Rule::on(limiter()),
            Rule::on(keyed).key(key::client_ip()),
        ]
    };
    for rule in rules() {
        let layer = RateLimitLayer::builder().rule(rule).build().unwrap();
        let handle = layer.handle();
        handle.set_limit("r", text("40/s")).unwrap();
        handle.set_limit("r", text("2.5/s")).unwrap();
        handle.set_limit("r", Quota::per_minute(7)).unwrap();
        for (quota, value) in [(text("40/s burst 5"), "5"), (Quota::per_second(3).burst(3), "3")] {
            match handle.set_limit("r", quota).unwrap_err() {
                HandleError::Config(error) => {
                    assert_names(&error, "r", "burst", value);
                    assert!(error.reason().contains("leaky bucket has none"), "{error}");
                    assert!(error.reason().contains("TokenBucket"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let limiter = limiter();
    limiter.set_limit(text("40/s")).unwrap();
    assert_eq!(limiter.quota(), Quota::per_second(40).burst(1));
    assert_names(&limiter.set_limit(text("9/s burst 5")).unwrap_err(), "r", "burst", "5");
    assert_eq!(limiter.quota(), Quota::per_second(40).burst(1));
}

#[test]
fn quotas_that_allow_the_same_are_equal() {
    let five = Quota::per_second(5);
    let hash = |quota: Quota| {
        let mut state = DefaultHasher::new();
        quota.hash(&mut state);
        state.finish()
    };
    for same in [five.burst(5), "5/s".parse().unwrap(), "5/s burst 5".parse().unwrap()] {
        assert_eq!(same, five);
        assert_eq!(hash(same), hash(five));
    }
    assert_ne!(five.burst(4), five);
    assert_ne!(Quota::new(10, Duration::from_secs(2)), five);
}

#[test]
fn relaxed_quotas_must_not_overflow() {
    let ten = || rule(TokenBucket::per_second(10));
    let max = u64::MAX;
    assert_refused(ten().key(key::client_ip().relaxed(max)), "permits", "10");
    assert_refused(
        rule(TokenBucket::per_second(1).burst(20)).key(key::client_ip().relaxed(max)),
        "burst",
        "20",
    );
    // The product fits 64 bits, and is more than can be counted.
    assert_refused(ten().key(key::client_ip().relaxed(1 << 40)), "permits", "10995116277760");
    assert_refused(ten().key(key::client_ip().relaxed(0)), "key.relaxed", "0");
    let leaky = || rule(LeakyBucket::per_second(10));
    assert_refused(leaky().key(key::client_ip().relaxed(max)), "permits", "10");
    assert_refused(leaky().key(key::client_ip().relaxed(1 << 40)), "permits", "10995116277760");
    let twice = key::client_ip().relaxed(max).relaxed(2);
    assert_refused(ten().key(twice), "key.relaxed", "2");
}

#[test]
fn texts_that_are_no_quota_are_quoted() {
    for text in [
        "",
        " ",
        "10",
        "/s",
        "10/",
        "NaN/s",
        "inf/s",
        "-1/s",
        "+1/s",
        "0/s",
        "0.0/s",
        "1/0s",
        "1/-1s",
        "1e9/s",
        "1_000/s",
        "1,5/s",
        "0x10/s",
        ".5/s",
        "5./s",
        "1.2.3/s",
        "0.0000000001/s",
        "18446744073709551616/s",
        "1.8446744073709551616/s",
        "99999999999999999999999/s",
        "1/1.5s",
        "5/fortnight",
        "5/S",
        "5/10",
        "5/ s",
        "5 /s",
        "5/min burst",
        "5/min burst x",
        "5/min burst -1",
        "5/min burst 1.5",
        "5/min burst 99999999999999999999",
        "5/min bursts 5",
        "5/min burst 5 6",
        "5/min 5",
        "5/min/h",
        "1/99999999999999999999s",
        "1/18446744073709551615d",
        "0.000000001/18446744073s",
        "\u{0665}/s",
        "5/s\u{0}",
    ] {
        let error = text.parse::<Quota>().unwrap_err();
        let named = (error.rule(), error.field(), error.value());
        assert_eq!(named, (None, "quota", &*format!("{text:?}")), "{error}");
        assert!(error.reason().len() > 10, "{error}");
    }
}

#[test]
fn texts_that_are_quotas_are_read_exactly() {
    let seconds = Duration::from_secs;
    let quota = |permits, period, burst| Quota::new(permits, period).burst(burst);
    for (text, expected) in [
        ("100/s", quota(100, seconds(1), 100)),
        ("100/10s", quota(100, seconds(10), 100)),
        ("5/min", quota(5, seconds(60), 5)),
        ("5/min burst 10", quota(5, seconds(60), 10)),
        ("  5/min   burst  10 ", quota(5, seconds(60), 10)),
        ("0.2/s", quota(1, seconds(5), 1)),
        ("1.5/s", quota(3, seconds(2), 1)),
        ("2.50/s", quota(1, Duration::from_millis(400), 2)),
        ("0.000000001/s", quota(1, seconds(1_000_000_000), 1)),
        ("1/500us", quota(1, Duration::from_micros(500), 1)),
        ("7/250ms", quota(7, Duration::from_millis(250), 7)),
        ("1/3ns", quota(1, Duration::from_nanos(3), 1)),
        ("1000/hour", quota(1_000, seconds(3_600), 1_000)),
        ("1/2d burst 3", quota(1, seconds(172_800), 3)),
        ("10/second", quota(10, seconds(1), 10)),
        ("007/s", quota(7, seconds(1), 7)),
        ("18446744073709551615/d", quota(u64::MAX, seconds(86_400), u64::MAX)),
    ] {
        assert_eq!(text.parse::<Quota>().unwrap(), expected, "{text:?}");
    }
}

#[test]
fn texts_that_parse_but_cannot_be_counted_are_refused_at_build() {
    for (text, field, value) in [
        ("18446744073709551615/s", "permits", "18446744073709551615"),
        ("1/ns burst 0", "burst", "0"),
        ("5000000000/s", "permits", "5000000000"),
        ("1/20000d", "period", "1728000000s"),
        ("1/s burst 18446744073709551615", "burst", "18446744073709551615"),
    ] {
        let quota: Quota = text.parse().unwrap();
        assert_names(&error_of([rule(quota)]), "r", field, value);
    }
}

#[test]
fn quotas_put_in_force_later_are_checked_too() {
    let layer = RateLimitLayer::builder().rule(rule(TokenBucket::per_second(10))).build().unwrap();
    let limiter = TokenBucket::per_second(10).limiter().name("r").build().unwrap();
    let keyed = TokenBucket::per_second(10).keyed_limiter().name("r").build().unwrap();
    let window = FixedWindow::per_second(10).limiter().name("r").build().unwrap();
    for (quota, field, value) in [
        (Quota::per_second(0), "permits", "0"),
        (Quota::per_second(5).burst(0), "burst", "0"),
        (Quota::new(5, Duration::ZERO), "period", "0s"),
        (Quota::per_second(u64::MAX), "permits", "18446744073709551615"),
    ] {
        assert_names(&limiter.set_limit(quota).unwrap_err(), "r", field, value);
        assert_names(&keyed.set_limit(quota).unwrap_err(), "r", field, value);
        assert_names(&window.set_limit(quota).unwrap_err(), "r", field, value);
        match layer.handle().set_limit("r", quota).unwrap_err() {
            HandleError::Config(error) => assert_names(&error, "r", field, value),
            other => panic!("{other:?}"),
        }
    }
    // The old quotas stay.
    assert_eq!(limiter.peek(0).limit(), 10);
    assert_eq!(keyed.peek("k", 0).limit(), 10);
    assert_eq!(window.peek(0).limit(), 10);
    let unknown = layer.handle().set_limit("other", Quota::per_second(5)).unwrap_err();
    assert_eq!(unknown.to_string(), "the layer has no rule \"other\"");
}
