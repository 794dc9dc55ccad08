//! The path of a request whose rules count on other backends: what is held meanwhile, what is undone,
//! when the inner service is asked, and what a failure looks like.

#![allow(clippy::disallowed_methods, reason = "tests on tokio's paused time sleep by it")]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_sluice::{
    Algorithm, Backend, BackendError, BackendErrorKind, ConfigError, Decision, FixedWindow,
    ManualClock, Missing, RateLimitLayer, RateLimitLayerBuilder, RejectionPolicy, Rule,
    TokenBucket, TokioClock,
    backend::{Answer, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdict, Verdicts},
    clock::Nanos,
    event::{Outcome, Reason},
    key,
    testing::{Event, FailingBackend, Recorder, ScriptedBackend, StalledBackend},
};

const MILLI: Duration = Duration::from_millis(1);

fn denied() -> Decision {
    Decision::denied(10, 0, Duration::from_secs(2), Duration::from_secs(2))
}

fn allowed() -> Decision {
    Decision::allowed(10, 9, Duration::ZERO)
}

/// A scripted backend that gives this decision whenever it is asked.
fn always(decision: Decision) -> ScriptedBackend {
    ScriptedBackend::from_fn(move |_| decision)
}

/// A local rule of burst 10 that earns next to nothing, without spread.
fn local(name: &str) -> Rule {
    Rule::new(name, TokenBucket::per_hour(1).burst(10)).spread(false)
}

fn remote(name: &str, backend: impl Backend) -> Rule {
    Rule::new(name, TokenBucket::per_second(10)).spread(false).backend(backend)
}

fn manual() -> RateLimitLayerBuilder {
    RateLimitLayer::builder().clock(ManualClock::new())
}

fn get() -> Request<Body> {
    Request::new(Body::empty())
}

fn by(user: &str) -> Request<Body> {
    Request::builder().header("x-user", user).body(Body::empty()).unwrap()
}

fn ok(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::from("done"))))
}

async fn status(layer: &RateLimitLayer, request: Request<Body>) -> StatusCode {
    layer.layer(service_fn(ok)).oneshot(request).await.unwrap().status()
}

async fn remaining(layer: &RateLimitLayer, rule: &str, key: &str) -> u64 {
    let handle = layer.handle();
    match key {
        "" => handle.peek(rule, (), 0).await,
        key => handle.peek(rule, key, 0).await,
    }
    .unwrap()
    .remaining()
}

/// Polls once.
macro_rules! poll {
    ($future:expr) => {
        std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut $future).poll(cx))).await
    };
}

// ---------------------------------------------------------------------------------------------
// The hold.

/// 400 honest requests a second for `seconds`, beside 1,000 a second that the backend refuses 1 ms
/// later; gives how many honest ones were refused, and how many of the others passed.
async fn honest_beside_refused(local: Rule, seconds: u64) -> (u64, u64) {
    let shared = ScriptedBackend::from_fn(|charge| {
        if charge.key.windows(7).any(|part| part == b"mallory") { denied() } else { allowed() }
    })
    .delay(TokioClock, MILLI);
    let per_user = remote("fleet", shared).key(key::header("x-user")).missing(Missing::Skip);
    let layer =
        RateLimitLayer::builder().clock(TokioClock).rule(local).rule(per_user).build().unwrap();
    let (mut honest, mut mallory) = (JoinSet::new(), JoinSet::new());
    for tick in 0..seconds * 1_000 {
        let send = |user| layer.layer(service_fn(ok)).oneshot(by(user));
        mallory.spawn(send("mallory"));
        if tick % 5 == 0 || tick % 5 == 2 {
            honest.spawn(send("alice"));
        }
        tokio::time::sleep(MILLI).await;
    }
    let is = |status: StatusCode| {
        move |answer: &Result<Response<Body>, Infallible>| {
            answer.as_ref().unwrap().status() == status
        }
    };
    let (honest, mallory) = (honest.join_all().await, mallory.join_all().await);
    assert_eq!(honest.len() as u64, 400 * seconds);
    assert_eq!(mallory.len() as u64, 1_000 * seconds);
    let refused = honest.iter().filter(|a| !is(StatusCode::OK)(a)).count();
    let passed = mallory.iter().filter(|a| !is(StatusCode::TOO_MANY_REQUESTS)(a)).count();
    (refused as u64, passed as u64)
}

#[tokio::test(start_paused = true)]
async fn one_caller_refused_elsewhere_a_thousand_times_a_second_starves_nobody() {
    let rule = Rule::new("all", TokenBucket::per_second(500));
    assert_eq!(honest_beside_refused(rule, 10).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nor_does_he_where_the_local_burst_is_hardly_more_than_what_is_under_way() {
    // At most two honest ones and two refused ones are under way or just admitted.
    let rule = Rule::new("all", TokenBucket::per_second(500).burst(5));
    assert_eq!(honest_beside_refused(rule, 10).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nor_does_he_in_a_window() {
    // 400 honest requests in each window, and two held ones at most.
    let rule = Rule::new("all", FixedWindow::per_second(410));
    assert_eq!(honest_beside_refused(rule, 10).await, (0, 0));
}

#[tokio::test]
async fn a_hold_counts_against_others_until_the_answer() {
    for (decision, left) in [(denied(), 1), (allowed(), 0)] {
        let clock = ManualClock::new();
        let shared = always(decision).delay(clock.clone(), MILLI);
        let layer = RateLimitLayer::builder()
            .clock(clock.clone())
            .rule(Rule::new("all", TokenBucket::per_hour(1).burst(1)))
            .rule(remote("fleet", shared).when(|head| head.header_str("x-user").is_some()))
            .build()
            .unwrap();
        let mut asking = layer.layer(service_fn(ok)).oneshot(by("alice"));
        assert!(poll!(asking).is_pending());
        assert_eq!(remaining(&layer, "all", "").await, 0);
        // Neither one that asks nobody nor one that would have to hold.
        assert_eq!(status(&layer, get()).await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(status(&layer, by("bob")).await, StatusCode::TOO_MANY_REQUESTS);
        clock.advance(MILLI);
        let admitted = asking.await.unwrap().status() == StatusCode::OK;
        assert_eq!(admitted, decision.is_allowed());
        assert_eq!(remaining(&layer, "all", "").await, left);
        let expected = if left == 0 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        assert_eq!(status(&layer, get()).await, expected);
    }
}

#[tokio::test]
async fn holds_are_per_key() {
    for algorithm in [
        Algorithm::from(TokenBucket::per_hour(1).burst(2)),
        FixedWindow::per_hour(2).into(),
        FixedWindow::per_hour(2).aligned().into(),
    ] {
        let clock = ManualClock::new();
        let shared = always(allowed()).delay(clock.clone(), MILLI);
        let layer = RateLimitLayer::builder()
            .clock(clock.clone())
            .rule(
                Rule::new("per-user", algorithm).key(key::header("x-user")).missing(Missing::Skip),
            )
            .rule(remote("fleet", shared))
            .build()
            .unwrap();
        let send = |user| layer.layer(service_fn(ok)).oneshot(by(user));
        let (mut first, mut second, mut other) = (send("alice"), send("alice"), send("bob"));
        assert!(poll!(first).is_pending());
        assert!(poll!(second).is_pending());
        assert!(poll!(other).is_pending());
        assert_eq!(remaining(&layer, "per-user", "alice").await, 0);
        assert_eq!(remaining(&layer, "per-user", "bob").await, 1);
        assert_eq!(status(&layer, by("alice")).await, StatusCode::TOO_MANY_REQUESTS);
        drop(second);
        assert_eq!(remaining(&layer, "per-user", "alice").await, 1);
        clock.advance(MILLI);
        assert_eq!(first.await.unwrap().status(), StatusCode::OK);
        assert_eq!(other.await.unwrap().status(), StatusCode::OK);
        assert_eq!(remaining(&layer, "per-user", "alice").await, 1);
        assert_eq!(remaining(&layer, "per-user", "bob").await, 1);
        assert_eq!(layer.handle().tracked_keys("per-user").unwrap(), Some(2));
    }
}

#[tokio::test]
async fn a_rule_on_local_by_name_holds_as_one_without_a_backend_does() {
    let clock = ManualClock::new();
    let fleet = || always(denied()).delay(clock.clone(), MILLI);
    let here = Local::new();
    let of_rule = RateLimitLayer::builder().rule(local("all").backend(here.clone()));
    let of_layer = RateLimitLayer::builder().rule(local("all")).backend(here.clone());
    let beside_one = RateLimitLayer::builder().rule(local("all").backend(here)).backend(fleet());
    for (builder, place) in [(of_rule, "rule"), (of_layer, "layer"), (beside_one, "beside")] {
        let layer = builder.clock(clock.clone()).rule(remote("fleet", fleet())).build().unwrap();
        let mut asking: Vec<_> =
            (0..8).map(|_| layer.layer(service_fn(ok)).oneshot(get())).collect();
        // All are under way before the first is refused, at its third poll.
        for _ in 0..2 {
            for asking in &mut asking {
                assert!(poll!(*asking).is_pending());
            }
        }
        assert_eq!(remaining(&layer, "all", "").await, 2, "{place}: held meanwhile");
        clock.advance(MILLI);
        for asking in asking {
            assert_eq!(asking.await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(remaining(&layer, "all", "").await, 10, "{place}");
    }
}

#[tokio::test]
async fn a_full_table_holds_in_its_overflow() {
    let clock = ManualClock::new();
    let shared = always(allowed()).delay(clock.clone(), MILLI);
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .rule(
            Rule::new("per-user", TokenBucket::per_hour(1).burst(2))
                .key(key::header("x-user"))
                .missing(Missing::Skip)
                .max_keys(1),
        )
        .rule(remote("fleet", shared))
        .build()
        .unwrap();
    let send = |user| layer.layer(service_fn(ok)).oneshot(by(user));
    let mut established = send("alice");
    assert!(poll!(established).is_pending());
    clock.advance(MILLI);
    assert_eq!(established.await.unwrap().status(), StatusCode::OK);

    // Alice has the only slot. Bob's permits come from the bucket his hash names, which holds two.
    let mut admitted = 0;
    for round in 0..10 {
        let mut held = Vec::new();
        let refused = loop {
            let mut asking = send("bob");
            match poll!(asking) {
                Poll::Pending => held.push(asking),
                Poll::Ready(answer) => break answer.unwrap().status(),
            }
        };
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(held.len(), 2 - admitted, "{admitted} admitted");
        assert_eq!(remaining(&layer, "per-user", "alice").await, 1, "she is untouched");
        // In the first round one leaves and gives its permit back; who stays spends it.
        if round == 0 {
            held.pop();
        }
        clock.advance(MILLI);
        for asking in held {
            assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
            admitted += 1;
        }
    }
    assert_eq!(admitted, 2);
}

#[tokio::test]
async fn a_hold_that_outlives_its_window_is_spent_in_the_next() {
    let clock = ManualClock::new();
    let shared = always(allowed()).delay(clock.clone(), Duration::from_secs(90));
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .rule(Rule::new("all", FixedWindow::per_minute(2).aligned()))
        .rule(remote("fleet", shared))
        .build()
        .unwrap();
    let mut asking = layer.layer(service_fn(ok)).oneshot(get());
    assert!(poll!(asking).is_pending());
    assert_eq!(remaining(&layer, "all", "").await, 1);
    clock.advance(Duration::from_secs(89));
    assert_eq!(remaining(&layer, "all", "").await, 1, "held, in whatever window");
    clock.advance(Duration::from_secs(1));
    assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
    assert_eq!(remaining(&layer, "all", "").await, 1, "spent in the window it was admitted in");
    clock.advance(Duration::from_secs(30));
    assert_eq!(remaining(&layer, "all", "").await, 2);
}

#[tokio::test]
async fn a_hold_is_a_charge_where_another_layer_shares_the_limiter() {
    let clock = ManualClock::new();
    let both = TokenBucket::per_hour(1).burst(2).limiter().clock(clock.clone()).build().unwrap();
    let shared = always(allowed()).delay(clock.clone(), MILLI);
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .rule(Rule::on(both.clone()))
        .rule(remote("fleet", shared))
        .build()
        .unwrap();
    let mut asking = layer.layer(service_fn(ok)).oneshot(get());
    assert!(poll!(asking).is_pending());
    assert_eq!(both.peek(1).remaining(), 1);
    assert!(both.try_acquire().is_allowed());
    assert!(!both.try_acquire().is_allowed());
    drop(asking);
    assert!(both.try_acquire().is_allowed());
    assert!(!both.try_acquire().is_allowed());
}

// ---------------------------------------------------------------------------------------------
// Refusals and failures.

#[tokio::test]
async fn a_refusal_elsewhere_leaves_nothing_charged_here() {
    let clock = ManualClock::new();
    for backend in [always(denied()), always(denied()).delay(clock.clone(), MILLI)] {
        let layer = RateLimitLayer::builder()
            .clock(clock.clone())
            .rule(local("all"))
            .rule(local("per-user").key(key::header("x-user")).missing(Missing::Shared))
            .rule(remote("fleet", backend.clone()))
            .build()
            .unwrap();
        let mut answer = layer.layer(service_fn(ok)).oneshot(by("alice"));
        let answer = match poll!(answer) {
            Poll::Ready(answer) => answer.unwrap(),
            Poll::Pending => {
                clock.advance(MILLI);
                answer.await.unwrap()
            }
        };
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()["retry-after"], "2");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.contains(r#""violated-policies":["fleet"]"#), "{body}");
        assert_eq!(remaining(&layer, "all", "").await, 10);
        assert_eq!(remaining(&layer, "per-user", "alice").await, 10);
        assert_eq!(layer.handle().tracked_keys("per-user").unwrap(), Some(0));
        assert!(backend.undone().is_empty(), "a refusal charged nothing there either");
    }
}

#[tokio::test]
async fn a_refusal_here_asks_nobody_elsewhere() {
    let backend = always(allowed());
    let layer = manual().rule(local("all").cost_fn(|_| 11)).rule(remote("fleet", backend.clone()));
    assert_eq!(status(&layer.build().unwrap(), get()).await, StatusCode::TOO_MANY_REQUESTS);
    assert!(backend.charges().is_empty());
}

#[tokio::test]
async fn dropping_a_pending_request_gives_its_hold_back() {
    let backend = StalledBackend::new();
    let layer =
        manual().rule(local("all").cost(3)).rule(remote("fleet", backend.clone())).build().unwrap();
    let mut asking = layer.layer(service_fn(ok)).oneshot(get());
    assert!(poll!(asking).is_pending());
    assert_eq!(backend.checks(), 1);
    assert_eq!(remaining(&layer, "all", "").await, 7);
    drop(asking);
    assert_eq!(remaining(&layer, "all", "").await, 10);
    // A future that was never polled has asked already: deciding is what `call` does.
    let mut service = layer.layer(service_fn(ok));
    let unpolled = service.ready().await.unwrap().call(get());
    assert_eq!(backend.checks(), 2);
    assert_eq!(remaining(&layer, "all", "").await, 7);
    drop(unpolled);
    assert_eq!(remaining(&layer, "all", "").await, 10);
}

#[tokio::test]
async fn a_refusal_by_the_second_backend_undoes_the_first_once() {
    let clock = ManualClock::new();
    let late = |backend: ScriptedBackend| backend.delay(clock.clone(), MILLI);
    for (first, second) in [
        (always(allowed()), always(denied())),
        (late(always(allowed())), always(denied())),
        (always(allowed()), late(always(denied()))),
        (late(always(allowed())), late(always(denied()))),
    ] {
        let layer = RateLimitLayer::builder()
            .clock(clock.clone())
            .rule(local("all"))
            .rule(remote("one", first.clone()))
            .rule(remote("two", second.clone()))
            .rule(remote("one-too", first.clone()).cost(2))
            .build()
            .unwrap();
        let mut asking = layer.layer(service_fn(ok)).oneshot(get());
        let answer = loop {
            match poll!(asking) {
                Poll::Ready(answer) => break answer.unwrap(),
                Poll::Pending => clock.advance(MILLI),
            }
        };
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(first.checks().len(), 1);
        assert_eq!(first.charges().len(), 2);
        assert_eq!(first.undone(), first.charges());
        assert_eq!(second.charges().len(), 1);
        assert!(second.undone().is_empty());
        assert_eq!(remaining(&layer, "all", "").await, 10);
    }
}

#[tokio::test]
async fn a_failure_or_a_drop_after_the_first_backend_undoes_it_once_too() {
    let first = always(allowed());
    let failing = FailingBackend::new(BackendErrorKind::Timeout);
    let layer =
        manual().rule(remote("one", first.clone())).rule(remote("two", failing)).build().unwrap();
    assert_eq!(status(&layer, get()).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(first.undone(), first.charges());
    assert_eq!(first.undone().len(), 1);

    let first = always(allowed());
    let layer = manual()
        .rule(remote("one", first.clone()))
        .rule(remote("two", StalledBackend::new()))
        .build()
        .unwrap();
    let mut asking = layer.layer(service_fn(ok)).oneshot(get());
    assert!(poll!(asking).is_pending());
    assert!(first.undone().is_empty());
    drop(asking);
    assert_eq!(first.undone(), first.charges());
    assert_eq!(first.undone().len(), 1);
}

/// Allows its first limiter, and has failed for the second.
struct FailsForOne;

impl Backend for FailsForOne {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(u64::from(spec.name() == "fails")))
    }

    fn check(&self, _: Nanos, _: &[Charge<'_>]) -> Answer<Verdicts> {
        Answer::Ready(Err(BackendError::new(BackendErrorKind::Unavailable, "away").on(1)))
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Ready(Ok(allowed()))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[tokio::test]
async fn a_failure_of_one_limiter_is_answered_as_its_rule_says() {
    let backend = Arc::new(FailsForOne);
    let degrade = |text: &'static str| RejectionPolicy::degrade(async move || text);
    let layer = manual()
        .rule(remote("works", Arc::clone(&backend)).while_away(degrade("of the first")))
        .rule(remote("fails", backend).while_away(degrade("of the second")))
        .build()
        .unwrap();
    let answer = layer.layer(service_fn(ok)).oneshot(get()).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "of the second");
}

#[tokio::test]
async fn while_a_backend_is_away_a_rule_has_a_policy_for_that() {
    let away = || FailingBackend::new(BackendErrorKind::Unavailable);
    let degrade = |text: &'static str| RejectionPolicy::degrade(async move || text);
    let body = async |layer: RateLimitLayer| {
        let answer = layer.layer(service_fn(ok)).oneshot(get()).await.unwrap();
        let status = answer.status();
        (status, answer.into_body().collect().await.unwrap().to_bytes())
    };
    // In place of the rule's own, of which a queue is skipped.
    let own = RejectionPolicy::queue(MILLI, 1).or(degrade("refused"));
    let rule = remote("fleet", away()).rejection(own);
    let both = manual().rule(rule.clone().while_away(degrade("away"))).build().unwrap();
    assert_eq!(body(both).await, (StatusCode::OK, "away".into()));
    let one = manual().rule(rule).build().unwrap();
    assert_eq!(body(one).await, (StatusCode::OK, "refused".into()));
    // A refusal is none.
    let denies = remote("fleet", always(denied())).while_away(degrade("away"));
    let layer = manual().rule(denies).build().unwrap();
    assert_eq!(body(layer).await.0, StatusCode::TOO_MANY_REQUESTS);
    // And respond is one of them.
    let plain = remote("fleet", away()).while_away(RejectionPolicy::respond_with(|_, _| "sorry"));
    let layer = manual().rule(plain).rejection(degrade("refused")).build().unwrap();
    assert_eq!(body(layer).await, (StatusCode::SERVICE_UNAVAILABLE, "sorry".into()));
}

#[tokio::test]
async fn what_is_admitted_is_never_undone() {
    let (first, second) = (always(allowed()), always(allowed()));
    let layer = manual()
        .rule(local("all"))
        .rule(remote("one", first.clone()))
        .rule(remote("two", second.clone()))
        .build()
        .unwrap();
    assert_eq!(status(&layer, get()).await, StatusCode::OK);
    assert_eq!((first.charges().len(), second.charges().len()), (1, 1));
    assert!(first.undone().is_empty() && second.undone().is_empty());
    assert_eq!(remaining(&layer, "all", "").await, 9);
}

#[tokio::test]
async fn a_backend_that_fails_is_a_503_and_nothing_is_charged() {
    for kind in
        [BackendErrorKind::Timeout, BackendErrorKind::Unavailable, BackendErrorKind::Protocol]
    {
        let (called, seen) = (Arc::new(AtomicBool::new(false)), Recorder::new());
        let layer = manual()
            .rule(local("all"))
            .rule(remote("fleet", FailingBackend::new(kind)))
            .observer(seen.clone())
            .build()
            .unwrap();
        let inner = {
            let called = Arc::clone(&called);
            service_fn(move |request| {
                called.store(true, Ordering::Relaxed);
                ok(request)
            })
        };
        let answer = layer.layer(inner).oneshot(get()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        // One second, and the spread that is on where everybody hears the same answer.
        let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=2).contains(&wait), "{wait} s");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(std::str::from_utf8(&body).unwrap().contains(r#""reason":"backend""#));
        assert!(!called.load(Ordering::Relaxed));
        assert_eq!(remaining(&layer, "all", "").await, 10);
        let [Event::Rejected { reason: Reason::Backend, status: 503, rules, error, .. }] =
            &seen.events()[..]
        else {
            panic!("{:?}", seen.events());
        };
        assert_eq!(*error, Some(kind));
        assert_eq!((rules[0].rule(), rules[0].decision()), ("fleet", None));
    }
}

/// Answers with this many verdicts, whatever it is asked.
struct Miscounting(usize);

impl Backend for Miscounting {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, _: Nanos, _: &[Charge<'_>]) -> Answer<Verdicts> {
        let verdict = Verdict::new(allowed(), Receipt::new(LimiterId(0), [0; 4]));
        Answer::Ready(Ok(std::iter::repeat_n(verdict, self.0).collect()))
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Ready(Ok(allowed()))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[tokio::test]
async fn an_answer_with_the_wrong_number_of_verdicts_is_a_503() {
    for verdicts in [0, 1, 3] {
        let backend = Arc::new(Miscounting(verdicts));
        let layer = manual()
            .rule(local("all"))
            .rule(remote("a", Arc::clone(&backend)))
            .rule(remote("b", backend))
            .build()
            .unwrap();
        let answer = status(&layer, get()).await;
        assert_eq!(answer, StatusCode::SERVICE_UNAVAILABLE, "{verdicts} verdicts of two");
        assert_eq!(remaining(&layer, "all", "").await, 10);
    }
}

// ---------------------------------------------------------------------------------------------
// Which calls are made.

#[tokio::test]
async fn all_rules_on_one_backend_go_in_one_call() {
    let (shared, other) = (always(allowed()), always(allowed()));
    let layer = manual()
        .backend(shared.clone())
        .rule(Rule::new("a", TokenBucket::per_second(10)))
        .rule(remote("b", shared.clone()).cost(2))
        .rule(remote("elsewhere", other.clone()))
        .rule(remote("c", shared.clone()).key(key::header("x-user")).missing(Missing::Skip))
        .rule(remote("not-asked", shared.clone()).when(|_| false))
        .build()
        .unwrap();
    assert_eq!(status(&layer, by("alice")).await, StatusCode::OK);
    let checks = shared.checks();
    assert_eq!(checks.len(), 1, "{checks:?}");
    let names: Vec<_> = shared.specs().iter().map(|spec| spec.name().to_owned()).collect();
    assert_eq!(names, ["a", "b", "c", "not-asked"]);
    let asked: Vec<_> = checks[0].iter().map(|charge| (charge.limiter.0, charge.cost)).collect();
    assert_eq!(asked, [(0, 1), (1, 2), (2, 1)]);
    assert!(checks[0][0].key.is_empty() && !checks[0][2].key.is_empty());
    assert_eq!(other.checks().len(), 1);
}

/// Counts its calls, then does what `Local` does.
struct Counted(Local, AtomicU64);

impl Backend for Counted {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        self.0.register(spec)
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.check(now, charges)
    }

    fn undo(&self, now: Nanos, receipts: &[Receipt]) {
        self.0.undo(now, receipts);
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        self.0.peek(now, charge)
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        self.0.reset(now, charge)
    }
}

#[tokio::test]
async fn clones_of_an_arc_are_one_backend_and_equal_values_are_two() {
    let one = Arc::new(Counted(Local::new(), AtomicU64::new(0)));
    let layer = manual()
        .rule(remote("a", Arc::clone(&one)))
        .rule(remote("b", Arc::clone(&one)).cost_fn(|_| 11))
        .rule(remote("c", Counted(Local::new(), AtomicU64::new(0))))
        .build()
        .unwrap();
    assert_eq!(status(&layer, get()).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(one.1.load(Ordering::Relaxed), 1);
    // All or nothing: the first of the two is not charged.
    assert_eq!(remaining(&layer, "a", "").await, 10);
}

#[tokio::test]
async fn a_check_with_an_unknown_limiter_charges_nothing() {
    let backend = Local::new();
    let layer = manual().rule(remote("a", backend.clone())).build().unwrap();
    let charges = [Charge::new(LimiterId(0), 1), Charge::new(LimiterId(7), 1)];
    let answer = backend.check(Nanos::ZERO, &charges).resolve().await;
    assert_eq!(answer.unwrap_err().kind(), BackendErrorKind::Protocol);
    assert_eq!(remaining(&layer, "a", "").await, 10);
}

#[tokio::test]
async fn a_handle_asks_the_rules_backend() {
    let backend = ScriptedBackend::decisions([Decision::allowed(10, 4, Duration::ZERO)]);
    let rule = remote("fleet", backend.clone()).key(key::header("x-user")).missing(Missing::Skip);
    let layer = manual().rule(rule).build().unwrap();
    assert_eq!(layer.handle().peek("fleet", "alice", 3).await.unwrap().remaining(), 4);
    assert_eq!(status(&layer, by("alice")).await, StatusCode::OK);
    assert!(layer.handle().reset("fleet", "alice").await.unwrap());
    assert!(!layer.handle().reset("fleet", "bob").await.unwrap());
    let key = &backend.charges()[0].key;
    assert_eq!((&backend.peeks()[0].key, backend.peeks()[0].cost), (key, 3));
    assert_eq!(&backend.resets()[0].key, key);
    assert_eq!(layer.handle().tracked_keys("fleet").unwrap(), None);
    layer.handle().set_limit("fleet", tower_sluice::Quota::per_second(3)).unwrap();
    assert_eq!(backend.specs()[1].replaces(), Some(LimiterId(0)));
    assert_eq!(backend.specs()[1].quotas(), [tower_sluice::Quota::per_second(3)]);
}

// ---------------------------------------------------------------------------------------------
// The inner service.

/// A service that tells what is done to it and to its clones, each by its number.
struct Probe {
    id: u64,
    ids: Arc<AtomicU64>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Probe {
    fn new() -> Self {
        Self { id: 0, ids: Arc::new(AtomicU64::new(1)), log: Arc::default() }
    }

    fn log(&self, what: &str) {
        self.log.lock().unwrap().push(format!("{what} {}", self.id));
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        Self { id, ids: Arc::clone(&self.ids), log: Arc::clone(&self.log) }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.log("drop");
    }
}

impl Service<Request<Body>> for Probe {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.log("ready");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.log("call");
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn the_service_polled_ready_is_dropped_while_asking_and_a_clone_is_polled_after_the_verdict()
{
    let clock = ManualClock::new();
    let shared = always(allowed()).delay(clock.clone(), MILLI);
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .rule(remote("fleet", shared))
        .build()
        .unwrap();
    let probe = Probe::new();
    let log = Arc::clone(&probe.log);
    let mut service = layer.layer(probe);
    let mut asking = service.ready().await.unwrap().call(get());
    assert!(poll!(asking).is_pending());
    assert_eq!(*log.lock().unwrap(), ["ready 0", "drop 0"]);
    log.lock().unwrap().clear();
    clock.advance(MILLI);
    assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
    let events = log.lock().unwrap().clone();
    let [ready, call, dropped] = &events[..] else { panic!("{events:?}") };
    let id = ready.strip_prefix("ready ").unwrap();
    assert_ne!(id, "0");
    assert_eq!((call, dropped), (&format!("call {id}"), &format!("drop {id}")));
}

#[tokio::test]
async fn a_waiter_holds_no_permit_of_a_concurrency_limit_inside() {
    let clock = ManualClock::new();
    let shared =
        ScriptedBackend::from_fn(|charge| if charge.cost == 2 { denied() } else { allowed() })
            .delay(clock.clone(), MILLI);
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .rule(
            remote("fleet", shared)
                .when(|head| head.header_str("x-user").is_some())
                .cost_fn(|head| 1 + u64::from(head.header_str("x-user").unwrap() == "mallory")),
        )
        .build()
        .unwrap();
    let mut service = layer.layer(ConcurrencyLimitLayer::new(1).layer(service_fn(ok)));
    let mut alice = service.ready().await.unwrap().call(by("alice"));
    assert!(poll!(alice).is_pending());
    let mut mallory = service.ready().await.unwrap().call(by("mallory"));
    assert!(poll!(mallory).is_pending());
    // The only permit is free although two wait.
    let through = service.ready().await.unwrap().call(get());
    assert_eq!(through.await.unwrap().status(), StatusCode::OK);
    clock.advance(MILLI);
    assert_eq!(mallory.await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    // Once admitted it waits for the permit like everybody.
    let busy = service.ready().await.unwrap().call(get());
    assert!(poll!(alice).is_pending());
    drop(busy);
    assert_eq!(alice.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn an_inner_error_while_getting_ready_passes_unchanged() {
    #[derive(Clone)]
    struct Broken(bool);
    impl Service<Request<Body>> for Broken {
        type Response = Response<Body>;
        type Error = &'static str;
        type Future = Ready<Result<Response<Body>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            let first = std::mem::replace(&mut self.0, true);
            Poll::Ready(if first { Err("worn out") } else { Ok(()) })
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            ready(Err("never called"))
        }
    }
    let (clock, seen) = (ManualClock::new(), Recorder::new());
    let shared = always(allowed()).delay(clock.clone(), MILLI);
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .rule(remote("fleet", shared))
        .observer(seen.clone())
        .build()
        .unwrap();
    let mut service = layer.layer(Broken(false));
    let asking = service.ready().await.unwrap().call(get());
    clock.advance(MILLI);
    assert_eq!(asking.await.unwrap_err(), "worn out");
    let events = seen.events();
    let [Event::Admitted { .. }, Event::Finished { outcome: Outcome::Failed, .. }] = &events[..]
    else {
        panic!("{events:?}");
    };
}

#[tokio::test]
async fn an_admitted_request_that_is_dropped_has_finished_dropped() {
    let clock = ManualClock::new();
    let late = always(allowed()).delay(clock.clone(), MILLI);
    for backend in [always(allowed()), late] {
        let seen = Recorder::new();
        let layer = RateLimitLayer::builder()
            .clock(clock.clone())
            .rule(remote("fleet", backend))
            .observer(seen.clone())
            .build()
            .unwrap();
        let stuck = service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let mut service = layer.layer(stuck);
        let mut asking = service.ready().await.unwrap().call(get());
        assert!(poll!(asking).is_pending());
        clock.advance(MILLI);
        assert!(poll!(asking).is_pending());
        clock.advance(MILLI);
        assert!(matches!(seen.take()[..], [Event::Admitted { .. }]));
        drop(asking);
        let events = seen.take();
        let [Event::Finished { elapsed, outcome: Outcome::Dropped, .. }] = events[..] else {
            panic!("{events:?}");
        };
        assert!(elapsed >= MILLI, "{elapsed:?}");
    }
}

#[tokio::test]
async fn observers_hear_of_a_late_verdict_when_it_has_come() {
    let (clock, seen) = (ManualClock::new(), Recorder::new());
    let shared = ScriptedBackend::decisions([allowed(), denied()]).delay(clock.clone(), MILLI);
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .rule(local("all"))
        .rule(remote("fleet", shared))
        .observer(seen.clone())
        .build()
        .unwrap();
    let mut service = layer.layer(service_fn(ok));
    let mut first = service.ready().await.unwrap().call(get());
    let mut second = service.ready().await.unwrap().call(get());
    assert!(poll!(first).is_pending() && poll!(second).is_pending());
    assert!(seen.events().is_empty());
    clock.advance(MILLI);
    let answer = first.await.unwrap();
    let events = seen.take();
    let [Event::Admitted { decisions, exempt: false, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(decisions[0].rule(), "all");
    assert_eq!(decisions[0].decision().unwrap().remaining(), 8, "its own permit, and one held");
    clock.advance(MILLI);
    answer.into_body().collect().await.unwrap();
    let events = seen.take();
    let [Event::Finished { elapsed: MILLI, outcome: Outcome::Completed(200), .. }] = events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(second.await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    let events = seen.take();
    let [Event::Rejected { reason: Reason::Quota, status: 429, rules, error: None, .. }] =
        &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((rules[0].rule(), rules[0].decision()), ("fleet", Some(denied())));
}
