//! Layers as a whole, and limiters that rules share.

use tower_sluice::{
    Backend, BackendError, ConfigError, Decision, FixedWindow, Limiter, ManualClock, Missing,
    RateLimitLayer, Rule, TokenBucket,
    backend::{Answer, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdicts},
    clock::{Nanos, StdClock},
    key, matcher,
};

use crate::support::{assert_names, assert_refused, error_of, right};

#[test]
fn a_layer_has_from_one_to_64_rules() {
    let error = error_of([]);
    assert_eq!((error.rule(), error.field(), error.value()), (None, "rules", "0"));
    let many = |n: usize| (0..n).map(|i| right(&format!("r{i}")));
    assert!(RateLimitLayer::builder().rules(many(64)).build().is_ok());
    let error = error_of(many(65));
    assert_eq!((error.rule(), error.field(), error.value()), (None, "rules", "65"));
}

#[test]
fn exemptions_are_checked_and_belong_to_no_rule() {
    for (exempt, field, value) in [
        (matcher::path("healthz"), "matcher.path", "\"healthz\""),
        (matcher::network(["10.0.0.0/33"]), "matcher.network", "\"10.0.0.0/33\""),
        (matcher::header("", "x").not(), "matcher.header", "\"\""),
    ] {
        let builder = RateLimitLayer::builder().rule(right("r")).exempt_matching(exempt);
        let error = builder.build().unwrap_err();
        assert_eq!((error.rule(), error.field(), error.value()), (None, field, value));
    }
}

fn limiter(clock: &ManualClock) -> Limiter {
    TokenBucket::per_second(10).limiter().name("r").clock(clock.clone()).build().unwrap()
}

#[test]
fn rules_on_limiters_must_fit_them() {
    let clock = ManualClock::new();
    let build =
        |rule: Rule| RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().map(|_| ());
    let refused = |rule: Rule, field: &str, value: &str| {
        assert_names(&build(rule).unwrap_err(), "r", field, value);
    };
    let shared = || limiter(&clock);
    let keyed = || {
        TokenBucket::per_second(10).keyed_limiter().name("r").clock(clock.clone()).build().unwrap()
    };

    assert_eq!(build(Rule::on(shared()).cost(5)), Ok(()));
    assert_eq!(build(Rule::on(keyed()).key(key::client_ip())), Ok(()));
    assert_eq!(build(Rule::on(keyed()).key(key::header("a")).missing(Missing::Skip)), Ok(()));

    refused(Rule::on(keyed()), "key", "not set");
    refused(Rule::on(shared()).key(key::client_ip()), "key", "set");
    refused(Rule::on(keyed()).key(key::client_ip().relaxed(10)), "key", "relaxed(..)");
    let either = key::header("a").or(key::client_ip().relaxed(10));
    refused(Rule::on(keyed()).key(either), "key", "relaxed(..)");
    refused(Rule::on(shared()).backend(Local::new()), "backend", "set");
    refused(
        Rule::on(keyed()).key(key::header("a")),
        "missing",
        "not set, and the key (header a) can be missing",
    );
}

#[test]
fn rules_on_limiters_must_read_their_clock() {
    let clock = ManualClock::new();
    // Where the layer has none, the limiter brings it; but a second limiter may have another.
    assert!(RateLimitLayer::builder().rule(Rule::on(limiter(&clock))).build().is_ok());
    let other = TokenBucket::per_second(10).limiter().name("other").build().unwrap();
    let two = RateLimitLayer::builder().rule(Rule::on(limiter(&clock))).rule(Rule::on(other));
    assert_names(&two.build().unwrap_err(), "other", "clock", "ManualClock");
    for (builder, value) in [
        (RateLimitLayer::builder().clock(ManualClock::new()), "ManualClock"),
        (RateLimitLayer::builder().clock(StdClock), "StdClock"),
    ] {
        let error = builder.rule(Rule::on(limiter(&clock))).build().unwrap_err();
        assert_names(&error, "r", "clock", value);
        assert!(error.reason().contains("ManualClock"), "{error}");
    }
    let same = RateLimitLayer::builder().clock(clock.clone()).rule(Rule::on(limiter(&clock)));
    assert!(same.build().is_ok());
    let both = TokenBucket::per_second(10).limiter().name("r").build().unwrap();
    assert!(RateLimitLayer::builder().rule(Rule::on(both)).build().is_ok());
}

/// A backend that counts nothing.
struct Picky;

impl Backend for Picky {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        let quota = spec.algorithm().quota();
        Err(ConfigError::new("permits", quota.permits(), "are not for this backend to count"))
    }

    fn check(&self, _: Nanos, _: &[Charge<'_>]) -> Answer<Verdicts> {
        Answer::Ready(Ok(Verdicts::default()))
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Ready(Err(BackendError::new(
            tower_sluice::BackendErrorKind::Protocol,
            "never asked",
        )))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[test]
fn what_a_backend_refuses_is_said_of_the_rule() {
    assert_refused(right("r").backend(Picky), "permits", "10");
    let of_layer = RateLimitLayer::builder().backend(Picky);
    let error = of_layer.rule(Rule::new("w", FixedWindow::per_day(7))).build().unwrap_err();
    assert_names(&error, "w", "permits", "7");
    // A local backend that is named counts as the default one does.
    let named = RateLimitLayer::builder().backend(Local::new());
    assert!(named.clone().rule(right("r")).build().is_ok());
    let error = named.rule(Rule::new("w", FixedWindow::per_day(0))).build().unwrap_err();
    assert_names(&error, "w", "permits", "0");
}
