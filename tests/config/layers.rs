//! Layers as a whole, and limiters that rules share.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Backend, BackendError, ConfigError, Decision, FixedWindow, HandleError, InFlight, Limiter,
    ManualClock, Missing, Quota, RateLimitLayer, Rule, TokenBucket,
    backend::{Answer, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdicts},
    clock::{BoxFuture, Clock, Nanos, StdClock},
    key, matcher,
    testing::ScriptedBackend,
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

#[test]
fn a_failing_rule_leaves_the_backends_of_the_others_without_a_registration() {
    for wrong in [
        right("second").status(StatusCode::OK),
        right("second").cost(11),
        right("second").key(key::header("a")),
        right("second").key(key::client_ip()).max_keys(1 << 33),
        right("first"),
        Rule::new("second", TokenBucket::per_second(0)),
        Rule::new("second", TokenBucket::per_second(u64::MAX)),
        Rule::new("second", FixedWindow::per_day(1).aligned()).key(key::client_ip().relaxed(0)),
        Rule::new("second", TokenBucket::per_second(0)).backend(ScriptedBackend::new()),
        Rule::new("second", TokenBucket::per_second(1).burst(0)).backend(ScriptedBackend::new()),
        right("second").key(key::client_ip().relaxed(u64::MAX)).backend(ScriptedBackend::new()),
    ] {
        let own = ScriptedBackend::new();
        let layer = RateLimitLayer::builder()
            .rule(right("first").backend(own.clone()))
            .rule(wrong)
            .rule(right("third").backend(own.clone()))
            .build();
        let error = layer.unwrap_err();
        assert!(own.specs().is_empty(), "told of {:?} before {error}", own.specs());
    }
    let own = ScriptedBackend::new();
    let right = [right("first"), right("second")].map(|rule| rule.backend(own.clone()));
    assert!(RateLimitLayer::builder().rules(right).build().is_ok());
    assert_eq!(own.specs().len(), 2);
}

#[test]
fn no_backend_is_asked_to_count_what_cannot_be_counted() {
    for (quota, field, value) in [
        (Quota::per_second(0), "permits", "0"),
        (Quota::new(1, Duration::ZERO), "period", "0s"),
        (Quota::per_second(1).burst(0), "burst", "0"),
    ] {
        let own = ScriptedBackend::new();
        let rule = Rule::new("r", TokenBucket::from(quota));
        assert_refused(rule.clone().backend(own.clone()), field, value);
        let by_key = rule.clone().key(key::client_ip().relaxed(3));
        assert_refused(by_key.backend(own.clone()), field, value);
        let of_layer = RateLimitLayer::builder().backend(own.clone()).rule(rule);
        assert_names(&of_layer.build().unwrap_err(), "r", field, value);
        assert!(own.specs().is_empty());
        // Nor later.
        let layer =
            RateLimitLayer::builder().rule(right("r").backend(own.clone())).build().unwrap();
        match layer.handle().set_limit("r", quota).unwrap_err() {
            HandleError::Config(error) => assert_names(&error, "r", field, value),
            other => panic!("{other:?}"),
        }
        assert_eq!(own.specs().len(), 1);
    }
}

#[test]
fn a_limit_below_a_fixed_cost_is_not_put_in_force() {
    let own = ScriptedBackend::new();
    for rule in [right("r"), right("r").backend(own.clone())] {
        let handle = RateLimitLayer::builder().rule(rule.cost(5)).build().unwrap().handle();
        for quota in [Quota::per_second(4), Quota::per_second(100).burst(4)] {
            match handle.set_limit("r", quota).unwrap_err() {
                HandleError::Config(error) => assert_names(&error, "r", "cost", "5"),
                other => panic!("{other:?}"),
            }
        }
        assert!(handle.set_limit("r", Quota::per_second(5)).is_ok());
    }
    assert_eq!(own.specs().len(), 2, "told of the first and of the last");
}

/// A clock of one's own.
#[derive(Clone)]
struct Own(ManualClock);

impl Clock for Own {
    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
        self.0.sleep_until(deadline)
    }

    fn utc_at_zero(&self) -> Duration {
        self.0.utc_at_zero()
    }
}

#[tokio::test]
async fn a_layer_without_a_clock_takes_that_of_the_limiter_its_rule_shares() {
    let manual = ManualClock::new();
    let bucket = TokenBucket::per_hour(1);
    let name = |n: usize| if n == 0 { "manual" } else { "own" };
    let limiters = [
        bucket.limiter().name(name(0)).clock(manual.clone()).build().unwrap(),
        bucket.limiter().name(name(1)).clock(Own(manual.clone())).build().unwrap(),
    ];
    for (n, limiter) in limiters.iter().enumerate() {
        // Not the first of the rules, and not the only one.
        let layer = RateLimitLayer::builder()
            .rule(Rule::new("private", bucket))
            .rule(Rule::on(limiter.clone()))
            .build()
            .unwrap();
        let handle = layer.handle();
        let left = async |rule: &str| handle.peek(rule, (), 0).await.unwrap().remaining();
        let ask = async || {
            let inner = service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            });
            layer.layer(inner).oneshot(Request::new(Body::empty())).await.unwrap().status()
        };
        assert_eq!(ask().await, 200);
        assert_eq!((left("private").await, left(name(n)).await), (0, 0));
        assert_eq!(ask().await, 429);
        // Both go by it: an hour of any other clock would not be over.
        manual.advance(Duration::from_secs(3_600));
        assert_eq!((left("private").await, left(name(n)).await), (1, 1));
        assert!(limiter.try_acquire().is_allowed());
        assert_eq!(ask().await, 429);
    }
    // Two limiters of two clocks have none in common.
    let [manual, own] = limiters;
    let error = error_of([Rule::on(manual), Rule::on(own)]);
    assert_names(&error, "own", "clock", "ManualClock");
}

/// The first clock of an in-flight limit stays, so that a second is an error and not another time.
#[test]
fn in_flight_limits_have_one_clock() {
    let (one, other) = (ManualClock::new(), ManualClock::new());
    let limit = InFlight::new("feed", 2).clock(one.clone());
    let build = |limit: InFlight| RateLimitLayer::builder().in_flight(limit).build();
    assert!(build(limit.clone()).is_ok());
    assert!(build(limit.clone().clock(one)).is_ok());
    let error = build(limit.clock(other)).unwrap_err();
    assert_eq!((error.rule(), error.field()), (Some("feed"), "clock"));
}

/// A clock of one's own, given twice, is one clock: by an `Arc`, or by what it says it is.
#[test]
fn a_clock_of_ones_own_can_be_shared() {
    struct Shared(std::sync::Arc<ManualClock>);

    impl Clock for Shared {
        fn now(&self) -> Nanos {
            self.0.now()
        }

        fn sleep_until(&self, deadline: Nanos) -> BoxFuture<'static, ()> {
            self.0.sleep_until(deadline)
        }

        fn utc_at_zero(&self) -> Duration {
            self.0.utc_at_zero()
        }

        fn identity(&self) -> usize {
            std::sync::Arc::as_ptr(&self.0).addr()
        }
    }

    fn limiter(name: &str, clock: impl Clock) -> Limiter {
        TokenBucket::per_second(5).limiter().name(name).clock(clock).build().unwrap()
    }

    fn both(one: Limiter, other: Limiter) -> Result<RateLimitLayer, ConfigError> {
        RateLimitLayer::builder().rule(Rule::on(one)).rule(Rule::on(other)).build()
    }

    let time = std::sync::Arc::new(ManualClock::new());
    let clone = || Shared(time.clone());
    assert!(both(limiter("a", clone()), limiter("b", clone())).is_ok());
    let boxed = std::sync::Arc::new(clone());
    assert!(both(limiter("a", boxed.clone()), limiter("b", boxed)).is_ok());
    let another = Shared(std::sync::Arc::new(ManualClock::new()));
    let error = both(limiter("a", clone()), limiter("b", another)).unwrap_err();
    assert_eq!((error.rule(), error.field()), (Some("b"), "clock"));
}
