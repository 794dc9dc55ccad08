//! Tiers that make no sense.

use tower_sluice::{
    ConfigError, FixedWindow, HandleError, LeakyBucket, Missing, Quota, RateLimitLayer, Rule,
    TokenBucket, key, testing::ScriptedBackend,
};

use crate::support::{assert_refused, error_of, right, rule};

/// In which tier everybody is.
fn picking(rule: Rule) -> Rule {
    rule.tiers(|_| Some("pro"))
}

/// A rule named `r` with this quota for its one tier.
fn pro(quota: impl Into<Quota>) -> Rule {
    picking(right("r")).tier("pro", quota)
}

/// Asserts that the tier `pro` of a rule named `r` is what is wrong.
#[track_caller]
fn assert_tier(error: &ConfigError, field: &str, value: &str) {
    let named = (error.rule(), error.tier(), error.field(), error.value());
    assert_eq!(named, (Some("r"), Some("pro"), field, value), "{error}");
    let reason = error.reason();
    let said = format!("rule \"r\": tier \"pro\": {field} = {value}: {reason}");
    assert_eq!(error.to_string(), said);
    assert!(reason.len() > 10, "{error}");
}

#[test]
fn tiers_and_what_picks_one_need_each_other() {
    let rule = right("r").tier("pro", Quota::per_second(1)).tier("partner", Quota::per_second(2));
    assert_refused(rule.clone(), "tiers", "not set");
    assert!(error_of([rule]).reason().contains("pro, partner"));
    assert_refused(picking(right("r")), "tier", "not set");
}

#[test]
fn names_of_tiers_are_names_and_occur_once() {
    let long = "x".repeat(65);
    for name in ["", " ", "1a", "-a", "a b", "a/b", "a\"", "\u{e4}", &long] {
        let rule = picking(right("r")).tier(name, Quota::per_second(1));
        assert_refused(rule, "tier", &format!("{name:?}"));
    }
    let longest = "x".repeat(64);
    for name in ["a", "A", "pro-2", "a.b_c-9", &longest] {
        let rule = picking(right("r")).tier(name, Quota::per_second(1));
        assert!(RateLimitLayer::builder().rule(rule).build().is_ok(), "{name}");
    }
    let twice = pro(Quota::per_second(1)).tier("partner", Quota::per_second(1));
    assert_refused(twice.tier("pro", Quota::per_second(1)), "tier", "\"pro\"");
    // Of another rule it is another tier.
    let other = Rule::new("other", TokenBucket::per_second(1)).tier("pro", Quota::per_second(1));
    let rules = [pro(Quota::per_second(1)), picking(other)];
    assert!(RateLimitLayer::builder().rules(rules).build().is_ok());
}

#[test]
fn a_rule_has_at_most_sixteen_tiers_and_256_quotas() {
    let tiers = |rule: Rule, n: u64| {
        (0..n).fold(picking(rule), |rule, n| rule.tier(format!("t{n}"), Quota::per_second(n + 1)))
    };
    assert!(RateLimitLayer::builder().rule(tiers(right("r"), 16)).build().is_ok());
    assert_refused(tiers(right("r"), 17), "tier", "17");
    // As many factors as there are alternatives.
    let relaxed = |n: u64| {
        let first = key::header("h1");
        let or = |key: key::KeyBy, n| key.or(key::header(format!("h{n}")).relaxed(n));
        right("r").key((2..=n).fold(first, or)).missing(Missing::Skip).max_keys(1)
    };
    for (factors, count) in [(15, 16), (16, 15)] {
        let layer = RateLimitLayer::builder().rule(tiers(relaxed(factors), count)).build().unwrap();
        let last = tower_sluice::RuleKey::from("a").alternative(factors as u8 - 1);
        let peeked = std::pin::pin!(layer.handle().peek("r", last.tier("t14"), 1))
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        let std::task::Poll::Ready(Ok(decision)) = peeked else { panic!("in this process") };
        assert_eq!(decision.limit(), 15 * factors);
    }
    assert_refused(tiers(relaxed(16), 16), "tier", "16");
    assert!(error_of([tiers(relaxed(16), 16)]).reason().contains("272 quotas"));
    // One factor many times is one.
    let same = (2..=16).fold(key::header("h1"), |key, n| key.or(key::header(format!("h{n}"))));
    let rule = right("r").key(same).missing(Missing::Skip).max_keys(1);
    assert!(RateLimitLayer::builder().rule(tiers(rule, 16)).build().is_ok());
}

#[test]
fn quotas_of_tiers_are_checked_as_the_rules_own_and_name_the_tier() {
    let own = |rule: Rule, quota: Quota| picking(rule).tier("pro", quota);
    let century = std::time::Duration::from_secs(200 * 365 * 86_400);
    for (rule, field, value) in [
        (pro(Quota::per_second(0)), "permits", "0"),
        (pro(Quota::new(1, std::time::Duration::ZERO)), "period", "0s"),
        (pro(Quota::per_second(1).burst(0)), "burst", "0"),
        (pro(Quota::per_second(2_000_000_000)), "permits", "2000000000"),
        (own(rule(FixedWindow::per_day(1)), Quota::per_day(5).burst(6)), "burst", "6"),
        (own(rule(FixedWindow::per_day(1)), Quota::new(5, century)), "period", "6307200000s"),
        (own(rule(LeakyBucket::per_second(1)), Quota::per_second(5).burst(6)), "burst", "6"),
        (
            pro(Quota::per_second(u64::MAX / 2)).key(key::global().relaxed(3)),
            "permits",
            "9223372036854775807",
        ),
    ] {
        assert_tier(&error_of([rule]), field, value);
    }
    // What only this process cannot count another backend may.
    let rule = pro(Quota::per_second(2_000_000_000)).backend(ScriptedBackend::new());
    assert!(RateLimitLayer::builder().rule(rule).build().is_ok());
    let rule = pro(Quota::per_second(0)).backend(ScriptedBackend::new());
    assert_tier(&error_of([rule]), "permits", "0");
}

#[test]
fn a_fixed_cost_above_a_tiers_limit_names_the_tier() {
    let rule = pro(Quota::per_second(5)).cost(6);
    let error = error_of([rule.clone()]);
    assert_tier(&error, "cost", "6");
    assert!(error.reason().contains("limit (5)"), "{error}");
    assert!(RateLimitLayer::builder().rule(rule.clone().cost(5)).build().is_ok());
    assert!(RateLimitLayer::builder().rule(rule.cost_fn(|_| 6)).build().is_ok());
    // Above the rule's own too: that is said of the rule.
    assert_eq!(error_of([pro(Quota::per_second(5)).cost(11)]).tier(), None);

    let rule = pro(Quota::per_second(8)).cost(6);
    let handle = RateLimitLayer::builder().rule(rule).build().unwrap().handle();
    match handle.set_tier_limit("r", "pro", Quota::per_second(5)).unwrap_err() {
        HandleError::Config(error) => assert_tier(&error, "cost", "6"),
        error => panic!("{error:?}"),
    }
    match handle.set_tier_limit("r", "pro", Quota::per_second(0)).unwrap_err() {
        HandleError::Config(error) => assert_tier(&error, "permits", "0"),
        error => panic!("{error:?}"),
    }
}

#[test]
fn a_limit_that_is_shared_has_no_tiers() {
    let limiter = TokenBucket::per_second(10).limiter().name("r").build().unwrap();
    let rule = || Rule::on(limiter.clone());
    assert_refused(rule().tier("pro", Quota::per_second(1)), "tiers", "pro");
    assert_refused(picking(rule()), "tiers", "set");
    assert_refused(picking(rule()).tier("pro", Quota::per_second(1)), "tiers", "pro");
}
