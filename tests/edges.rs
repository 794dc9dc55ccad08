//! What lies at the edges: of a clock, of a ramp, of a change while somebody was denied or waits.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tower_sluice::{
    Decision, Limiter, ManualClock, Quota, SlidingLog, SlidingWindow, StartLevel, TokenBucket,
    WarmUp,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn a_greater_quota_is_in_force_at_once_for_who_was_denied_from_an_empty_start() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_hour(1).start(StartLevel::Empty);
    let limiter = bucket.limiter().clock(clock.clone()).build().unwrap();
    assert!(!limiter.admits(1));
    limiter.set_limit(Quota::per_second(1_000)).unwrap();
    clock.advance(SECOND);
    assert!(limiter.peek(1).is_allowed());
    assert!(limiter.admits(1));
}

#[test]
fn a_greater_quota_is_in_force_at_once_for_who_was_denied_eight_quotas_before() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_hour(10);
    let limiter = bucket.limiter().clock(clock.clone()).build().unwrap();
    while limiter.admits(1) {}
    for change in 1..=8 {
        clock.advance(SECOND);
        limiter.set_limit(Quota::per_hour(10).burst(10 + change)).unwrap();
    }
    assert!(limiter.peek(1).is_allowed());
    assert!(limiter.admits(1));
}

#[test]
fn what_is_spent_on_a_ramp_stays_spent_under_another_quota() {
    let clock = ManualClock::new();
    let warm_up = WarmUp::over(HOUR).linear();
    let build = |n| {
        TokenBucket::per_second(n).warm_up(warm_up).limiter().clock(clock.clone()).build().unwrap()
    };
    // More.
    let limiter = build(100);
    assert_eq!(limiter.peek(0).remaining(), 10);
    assert!(limiter.try_acquire_many(10).is_allowed());
    limiter.set_limit(Quota::per_second(1_000)).unwrap();
    eprintln!("more: {}", limiter.peek(0).remaining());
    let more = limiter.peek(0).remaining();
    // Less.
    let limiter = build(1_000);
    assert_eq!(limiter.peek(0).remaining(), 100);
    assert!(limiter.try_acquire_many(1).is_allowed());
    limiter.set_limit(Quota::per_second(100)).unwrap();
    eprintln!("less: {}", limiter.peek(0).remaining());
    let less = limiter.peek(0).remaining();
    assert_eq!((more, less), (90, 9));
}

#[test]
fn a_text_without_a_burst_is_a_window() {
    for text in ["1.5/s", "2.5/s", "0.5/s", "0.75/s"] {
        let quota: Quota = text.parse().unwrap();
        let window = tower_sluice::FixedWindow::new(quota.permits(), quota.period());
        let limiter = window.limiter().build().unwrap();
        let set = limiter.set_limit(quota);
        assert!(set.is_ok(), "{text}: {}", set.unwrap_err());
    }
}

#[test]
fn what_is_wrong_with_a_text_is_said_of_what_is_wrong() {
    // Eleven digits, and a unit.
    let error = "5/20000000d".parse::<Quota>().unwrap_err();
    assert!(!error.reason().contains("must be a unit"), "{error}");
    // A whole number without decimals, too great.
    let error = "999999999999999999999999999999/s".parse::<Quota>().unwrap_err();
    assert!(!error.reason().contains("nine decimals"), "{error}");
    // As "+5/s" is no number, this is none.
    assert!("5/min burst +7".parse::<Quota>().is_err());
}

#[test]
fn who_would_wait_longer_than_a_clock_runs_is_refused_at_once() {
    let (sender, receiver) = std::sync::mpsc::channel();
    // One a year, and more at once than come back in a clock's 584 years.
    std::thread::spawn(move || {
        let bucket = TokenBucket::new(1, DAY * 365).burst(600);
        let limiter = bucket.limiter().clock(ManualClock::new()).build().unwrap();
        assert!(limiter.try_acquire_many(600).is_allowed());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        sender.send(runtime.block_on(limiter.acquire_many(600, SECOND))).unwrap();
    });
    let decision = receiver.recv_timeout(SECOND * 5).expect("an answer");
    assert!(!decision.is_allowed());
}

/// A log of three a second, all spent.
fn spent_log() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let limiter = SlidingLog::per_second(3).limiter().clock(clock.clone()).build().unwrap();
    assert!(limiter.try_acquire_many(3).is_allowed());
    (clock, limiter)
}

type Waits<'l> = Pin<Box<dyn Future<Output = Decision> + 'l>>;

/// Somebody who takes his place now, and waits.
fn waits(limiter: &Limiter, cost: u64) -> Waits<'_> {
    let mut waits: Waits<'_> = Box::pin(limiter.acquire_many(cost, HOUR));
    assert!(look(&mut waits).is_pending());
    waits
}

fn look(waits: &mut Waits<'_>) -> Poll<Decision> {
    waits.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn who_comes_after_a_changed_quota_is_told_when_to_come() {
    let (clock, limiter) = spent_log();
    let mut first = waits(&limiter, 3);
    let mut second = waits(&limiter, 2);
    limiter.set_limit(Quota::per_second(4)).unwrap();
    clock.advance(SECOND);
    assert!(matches!(look(&mut first), Poll::Ready(done) if done.is_allowed()));
    // Three of four are spent now; after another second two are, by the second, and there are two left.
    let told = limiter.peek(1).retry_after();
    let waits = look(&mut second);
    assert!(waits.is_pending(), "{waits:?}");
    assert_eq!(told, Some(SECOND));
}

#[test]
fn those_behind_a_changed_quota_keep_their_places() {
    let (clock, limiter) = spent_log();
    let mut first = waits(&limiter, 3);
    let _second = waits(&limiter, 2);
    let mut third = waits(&limiter, 2);
    limiter.set_limit(Quota::per_second(4)).unwrap();
    clock.advance(SECOND);
    assert!(matches!(look(&mut first), Poll::Ready(done) if done.is_allowed()));
    // Woken by the new quota, he looks again.
    let third = look(&mut third);
    assert!(third.is_pending(), "{third:?}");
}

#[test]
fn a_charge_taken_back_does_not_keep_a_rule_warm() {
    use tower_sluice::{
        backend::{Answer, Backend, Charge, Local},
        clock::Nanos,
    };
    let after_idle = |seconds| WarmUp::over(SECOND * 10).after_idle(SECOND * seconds);
    let algorithm: tower_sluice::Algorithm =
        TokenBucket::per_second(10).warm_up(after_idle(15)).into();
    let left = |undone: bool| {
        let local = Local::new();
        // A specification as a layer makes it.
        let scripted = tower_sluice::testing::ScriptedBackend::new();
        let rule = tower_sluice::Rule::new("spec", algorithm).backend(scripted.clone());
        let layer =
            tower_sluice::RateLimitLayer::builder().clock(ManualClock::new()).rule(rule).build();
        assert!(layer.is_ok());
        let spec = scripted.specs()[0].clone();
        let id = local.register(&spec).unwrap();
        let at = |seconds| Nanos::ZERO + SECOND * seconds;
        let check = |now, cost| match local.check(now, &[Charge::new(id, cost)]) {
            Answer::Ready(Ok(verdicts)) => verdicts,
            _ => panic!("the backend answers at once"),
        };
        assert!(check(at(12), 1).all_allowed());
        if undone {
            let made = check(at(20), 1);
            assert!(made.all_allowed());
            local.undo(at(20), &[made.as_slice()[0].receipt()]);
        }
        check(at(28), 10).all_allowed()
    };
    assert!(!left(false), "cold, as after any idleness");
    assert!(!left(true), "what is taken back never was");
}

#[test]
fn the_last_nanosecond_of_a_clock_admits_no_more_than_others() {
    use tower_sluice::clock::Nanos;
    let clock = ManualClock::new();
    let last = Nanos::new(u64::MAX);
    let admitted =
        |limiter: tower_sluice::Limiter| (0..50).filter(|_| limiter.admits_at(last, 1)).count();
    let window = SlidingWindow::per_second(10).limiter().clock(clock.clone()).build().unwrap();
    let log = SlidingLog::per_second(10).limiter().clock(clock).build().unwrap();
    assert_eq!((admitted(window), admitted(log)), (10, 10));
}

#[test]
fn a_bucket_of_one_a_nanosecond_says_when_it_is_good_at_the_end_of_its_ramp() {
    let clock = ManualClock::new();
    let nanos = Duration::from_nanos;
    for period in 1..40 {
        for cold in [1.1, 1.5, 3.0, 10.0] {
            let ramp = WarmUp::over(nanos(period)).cold_factor(cold);
            let bucket = TokenBucket::new(1, nanos(1)).burst(20).warm_up(ramp);
            let limiter = bucket.limiter().clock(clock.clone()).build().unwrap();
            for _ in 0..period + 5 {
                while limiter.try_acquire().is_allowed() {}
                let wait = limiter.peek(1).retry_after().unwrap();
                for _ in 1..wait.as_nanos() {
                    clock.advance(nanos(1));
                    let early = limiter.peek(1);
                    assert!(!early.is_allowed(), "period {period}, cold {cold}: told {wait:?}");
                }
                clock.advance(nanos(1));
                assert!(limiter.peek(1).is_allowed());
            }
        }
    }
}

#[test]
fn a_denial_changes_nothing_on_a_long_ramp() {
    let clock = ManualClock::new();
    let ramp = WarmUp::over(DAY * 30).start_factor(0.01);
    // A period with a large odd part, as that of a rate in a unit of its own.
    let bucket =
        TokenBucket::new(1_048_577, Duration::from_nanos(254_997_613)).burst(2_231).warm_up(ramp);
    let limiter = bucket.limiter().clock(clock.clone()).build().unwrap();
    clock.advance(DAY * 20);
    let mut first = None;
    while limiter.try_acquire().is_allowed() {}
    for _ in 0..100_000 {
        let denied = limiter.try_acquire_many(1_000);
        assert!(!denied.is_allowed());
        let told = *first.get_or_insert(denied.retry_after());
        assert_eq!(denied.retry_after(), told);
    }
}
