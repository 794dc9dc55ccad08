//! Area QU: queues with a longest wait, on the manual clock.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Algorithm, FixedWindow, InFlight, LeakyBucket, Limiter, RateLimitLayer, RejectionPolicy, Rule,
    TokenBucket, clock::Clock,
};

use crate::{
    support_core::{SECOND, limiter, request, status},
    tasks::{Steps, Tasks},
};

const TENTH: Duration = Duration::from_millis(100);
const NOW: Duration = Duration::ZERO;

/// Status and `Retry-After`.
type Answer = (u16, Option<u64>);

const OK: Answer = (200, None);

/// A layer in use: who asks, when the handler ran, and what was answered when.
struct Site {
    layer: RateLimitLayer,
    tasks: Tasks<u32, Answer>,
    ran: Arc<Mutex<Vec<(u32, Duration)>>>,
    /// How long the handler takes.
    takes: Duration,
}

/// What a request costs, by its header `x-cost`.
fn costs(rule: Rule) -> Rule {
    rule.cost_fn(|head| {
        let cost = head.headers().get("x-cost").and_then(|cost| cost.to_str().ok());
        cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
    })
}

impl Site {
    /// One rule under a queue, that takes its costs from `x-cost`.
    fn new(algorithm: impl Into<Algorithm>, longest: Duration, depth: u64) -> Self {
        let clock = Steps::default();
        let rule = costs(Rule::new("rule", algorithm)).spread(false);
        let builder = RateLimitLayer::builder().rule(rule).clock(clock.clone());
        let layer = builder.rejection(RejectionPolicy::queue(longest, depth)).build();
        Self::of(layer.expect("a layer"), clock)
    }

    fn of(layer: RateLimitLayer, clock: Steps) -> Self {
        Self { layer, tasks: Tasks::new(clock), ran: Arc::default(), takes: NOW }
    }

    fn to(&mut self, instant: Duration) {
        self.tasks.to(instant);
    }

    fn ask(&mut self, name: u32) {
        self.ask_with(name, &[]);
    }

    fn ask_with(&mut self, name: u32, headers: &[(&str, &str)]) {
        let answer = self.answer(&self.layer, name, headers);
        self.tasks.start(name, answer);
    }

    /// The answer of `layer` around the site's handler.
    fn answer(
        &self,
        layer: &RateLimitLayer,
        name: u32,
        headers: &[(&str, &str)],
    ) -> impl Future<Output = Answer> + use<> {
        let (clock, ran, takes) = (self.tasks.clock.clone(), Arc::clone(&self.ran), self.takes);
        let handler = service_fn(move |_: Request<Body>| {
            let clock = clock.clone();
            ran.lock().unwrap().push((name, clock.instant()));
            async move {
                if !takes.is_zero() {
                    clock.sleep_until(clock.now() + takes).await;
                }
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        });
        let answer = layer.layer(handler).oneshot(request(headers));
        async {
            let Ok(answer) = answer.await;
            let retry = answer.headers().get("retry-after");
            let retry = retry.map(|value| value.to_str().unwrap().parse().unwrap());
            (answer.status().as_u16(), retry)
        }
    }

    /// When the handler ran for whom.
    fn ran(&self) -> Vec<(u32, Duration)> {
        self.ran.lock().unwrap().clone()
    }

    /// What was answered to those who were refused, and when.
    fn refused(&self) -> Vec<(Duration, Answer)> {
        let ended = self.tasks.ended().iter().filter(|(.., answer)| *answer != OK);
        ended.map(|(_, instant, answer)| (*instant, *answer)).collect()
    }
}

#[test]
fn qu_01_cancelled_waiters_free_their_places() {
    let mut site = Site::new(TokenBucket::new(1, SECOND * 10), SECOND * 60, 1);
    (0..2).for_each(|name| site.ask(name));
    assert!(site.tasks.give_up(1));
    site.ask(2);
    assert_eq!((site.tasks.ended().len(), site.tasks.running()), (1, 1), "the third waits");
    site.to(SECOND * 60);
    assert_eq!(site.ran(), [(0, NOW), (2, SECOND * 10)]);
}

#[test]
fn qu_02_cancelled_head_blocks_nobody() {
    let mut site = Site::new(TokenBucket::per_second(1).burst(2), SECOND * 60, 10);
    for (name, cost) in [(0, "2"), (1, "2"), (2, "1")] {
        site.ask_with(name, &[("x-cost", cost)]);
    }
    site.to(SECOND / 2);
    assert!(site.tasks.give_up(1));
    site.to(SECOND * 60);
    assert_eq!(site.ran(), [(0, NOW), (2, SECOND)]);
}

#[test]
fn qu_03_cancelled_wait_leaves_nothing() {
    let site = || Site::new(LeakyBucket::per_second(1), SECOND * 60, 10);

    let mut alone = site();
    (0..2).for_each(|name| alone.ask(name));
    alone.to(TENTH * 5);
    assert!(alone.tasks.give_up(1));
    alone.to(TENTH * 6);
    alone.ask(2);
    alone.to(SECOND * 60);
    assert_eq!(alone.ran(), [(0, NOW), (2, SECOND)]);

    // Whoever leaves, those behind move up and nobody else does.
    for leaves in 1..=3 {
        let mut among = site();
        (0..4).for_each(|name| among.ask(name));
        among.to(TENTH * 5);
        assert!(among.tasks.give_up(leaves));
        among.to(TENTH * 6);
        among.ask(4);
        among.to(SECOND * 60);
        let left = (0..=4).filter(|name| *name != leaves);
        let turns: Vec<_> = left.zip(0..).map(|(name, turn)| (name, SECOND * turn)).collect();
        assert_eq!(among.ran(), turns, "{leaves} left");
    }

    let mut many = site();
    many.ask(0);
    for name in 1..=10_000 {
        many.ask(name);
        assert!(many.tasks.give_up(name), "{name} waited");
    }
    many.ask(0);
    many.to(SECOND * 60);
    assert_eq!(many.ran(), [(0, NOW), (0, SECOND)]);

    // At the instant of admission: either it has gone, or all is as if it had never come.
    for polled in [false, true] {
        let mut at_once = site();
        (0..2).for_each(|name| at_once.ask(name));
        match polled {
            true => at_once.to(SECOND),
            false => at_once.tasks.clock.set(SECOND),
        }
        assert_eq!(at_once.tasks.give_up(1), !polled);
        at_once.ask(2);
        at_once.to(SECOND * 60);
        let next = match polled {
            true => [(1, SECOND), (2, SECOND * 2)].to_vec(),
            false => [(2, SECOND)].to_vec(),
        };
        assert_eq!(at_once.ran()[1..], next);
    }
}

#[test]
fn qu_05_too_long_is_told_at_once() {
    for window in [FixedWindow::new(3, SECOND * 10), FixedWindow::new(3, SECOND * 10).aligned()] {
        let mut site = Site::new(window, SECOND * 12, 100);
        (0..10).for_each(|name| site.ask(name));
        assert_eq!(site.refused(), [(NOW, (429, Some(20))); 4]);
        site.to(SECOND * 60);
        let turns = [NOW, NOW, NOW, SECOND * 10, SECOND * 10, SECOND * 10];
        assert_eq!(site.ran(), (0..).zip(turns).collect::<Vec<_>>());
        assert_eq!(site.refused().len(), 4);
    }
}

/// Twenty who wait, and two newcomers for each slot that comes free, for ten seconds.
fn steady(site: &mut Site) {
    (0..20).for_each(|name| site.ask(name));
    let mut newcomer = 100;
    for slot in 0..100 {
        for part in [30, 60] {
            site.to(TENTH * slot + Duration::from_millis(part));
            site.ask(newcomer);
            newcomer += 1;
        }
    }
    site.to(SECOND * 60);
    let ran = site.ran();
    assert!(ran.is_sorted(), "in the order they came, and each when his turn was: {ran:?}");
    let turns: Vec<_> = (0..20).zip(0..).map(|(name, turn)| (name, TENTH * turn)).collect();
    assert_eq!(ran[..20], turns);
    // One each tenth of a second without a gap, as long as somebody waits.
    assert!(ran.len() > 100 && ran.windows(2).all(|pair| pair[1].1 - pair[0].1 == TENTH));
    let answered =
        |status| site.tasks.ended().iter().filter(|(.., answer)| answer.0 == status).count();
    assert_eq!(answered(200), ran.len());
    assert_eq!(answered(200) + answered(429) + answered(503), 220);
}

#[test]
fn qu_06_newcomers_do_not_overtake() {
    for newest_first in [false, true] {
        let mut site = Site::new(TokenBucket::per_second(10).burst(1), SECOND * 10, 50);
        site.tasks = site.tasks.newest_first(newest_first);
        steady(&mut site);
        assert!(site.refused().iter().all(|(_, answer)| *answer == (429, Some(6))));

        let clock = Steps::default();
        let layer = RateLimitLayer::builder()
            .in_flight(InFlight::new("one", 1).spread(false))
            .rejection(RejectionPolicy::queue(SECOND * 10, 50))
            .clock(clock.clone());
        let mut site = Site { takes: TENTH, ..Site::of(layer.build().expect("a layer"), clock) };
        site.tasks = site.tasks.newest_first(newest_first);
        steady(&mut site);
        assert!(site.refused().iter().all(|(_, answer)| *answer == (503, Some(1))));
    }
}

#[test]
fn qu_06_nor_by_another_door() {
    // Those who do not wait, by a layer without a queue or by the limiter itself, get nothing as long as
    // somebody waits: also in the moment when a permit has come and the waiter has not been polled yet.
    let clock = Steps::default();
    let shared: Limiter = limiter(TokenBucket::per_second(10).burst(1).into(), clock.clone());
    let build = |policy| {
        let builder = RateLimitLayer::builder().rule(Rule::on(shared.clone()).spread(false));
        builder.rejection(policy).build().expect("a layer")
    };
    let impatient = build(RejectionPolicy::respond());
    let layer = build(RejectionPolicy::queue(SECOND * 10, 50));
    let mut site = Site::of(layer, clock.clone());
    (0..20).for_each(|name| site.ask(name));
    for slot in 1..20 {
        clock.set(TENTH * slot);
        assert!(!shared.try_acquire().is_allowed(), "at {slot}");
        assert_eq!(status(&impatient, &[]).0, 429, "at {slot}");
        site.tasks.settle();
        assert_eq!(site.ran().len(), slot as usize + 1);
    }
    clock.set(SECOND * 2);
    assert!(shared.try_acquire().is_allowed(), "nobody waits any more");

    let (clock, calls) = (Steps::default(), InFlight::new("one", 1));
    let layer = RateLimitLayer::builder()
        .in_flight(calls.clone())
        .rejection(RejectionPolicy::queue(SECOND * 10, 50))
        .clock(clock.clone());
    let mut site = Site { takes: TENTH, ..Site::of(layer.build().expect("a layer"), clock) };
    let held = calls.try_acquire().expect("nothing is in flight");
    (0..20).for_each(|name| site.ask(name));
    drop(held);
    for slot in 0..20 {
        assert!(calls.try_acquire().is_none(), "at {slot}");
        site.tasks.settle();
        assert!(calls.try_acquire().is_none(), "at {slot}");
        site.to(TENTH * (slot + 1));
    }
    assert_eq!(site.ran().len(), 20);
    assert!(calls.try_acquire().is_some(), "nobody waits any more");
}

#[test]
fn qu_08_full_queue_lets_nothing_through() {
    let mut site = Site::new(TokenBucket::per_second(10), SECOND * 5, 20);
    (0..1_000).for_each(|name| site.ask(name));
    // Behind twenty the next would have his turn after 2.1 s.
    assert_eq!(site.refused(), [(NOW, (429, Some(3))); 970]);
    site.to(SECOND * 60);
    let turns = (0..10).map(|name| (name, NOW)).chain((10..30).map(|n| (n, TENTH * (n - 9))));
    assert_eq!(site.ran(), turns.collect::<Vec<_>>());
}

#[test]
fn qu_10_nobody_is_admitted_too_late() {
    let mut site = Site::new(LeakyBucket::per_second(5), SECOND, 100);
    (0..50).for_each(|name| site.ask(name));
    assert_eq!(site.refused(), [(NOW, (429, Some(2))); 44]);
    site.to(SECOND / 2);
    (50..100).for_each(|name| site.ask(name));
    assert_eq!(site.refused()[44..], [(SECOND / 2, (429, Some(2))); 48]);
    site.to(SECOND * 60);
    let turns = (0..6).chain(50..52).zip(0..).map(|(name, turn)| (name, TENTH * 2 * turn));
    assert_eq!(site.ran(), turns.collect::<Vec<_>>());

    // In flight nobody can foresee it: all wait, and are told at the end of their second.
    let clock = Steps::default();
    let layer = RateLimitLayer::builder()
        .in_flight(InFlight::new("one", 1).spread(false))
        .rejection(RejectionPolicy::queue(SECOND, 100))
        .clock(clock.clone());
    let mut site = Site { takes: TENTH * 2, ..Site::of(layer.build().expect("a layer"), clock) };
    (0..50).for_each(|name| site.ask(name));
    site.to(SECOND / 2);
    (50..100).for_each(|name| site.ask(name));
    site.to(SECOND * 60);
    let late = |name| if name < 50 { NOW } else { SECOND / 2 };
    assert!(site.ran().iter().all(|(name, turn)| *turn <= late(*name) + SECOND));
    assert!(site.ran().is_sorted());
    for (name, instant, answer) in site.tasks.ended() {
        if *answer != OK {
            assert_eq!((*instant, *answer), (late(*name) + SECOND, (503, Some(1))));
        }
    }
    // A permit comes at 1 s, when those of the first half have waited a second: to one of them or of the
    // others.
    assert_eq!(site.ran().len(), 8, "{:?}", site.ran());
}
