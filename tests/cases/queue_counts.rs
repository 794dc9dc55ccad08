//! The invariant of all cases that whoever is seen is counted once: admitted + rejected + left = requests.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Decision, Decline, InFlight, LeakyBucket, RateLimitLayer, RateLimitLayerBuilder,
    RejectionPolicy, Rule, TokenBucket,
    clock::Clock,
    event::Outcome,
    testing::{Event, Recorder, ScriptedBackend, SeenCharge},
};

use crate::{
    support_core::{SECOND, request, scaled},
    tasks::{Steps, Tasks},
};

const MILLI: Duration = Duration::from_millis(1);

/// A sequence of numbers that looks random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

/// What observers were told, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    at_once: u64,
    waited: u64,
    rejected: u64,
    degraded: u64,
    left: u64,
    completed: u64,
    dropped: u64,
}

fn told(recorder: &Recorder) -> Told {
    let mut told = Told::default();
    for event in recorder.events() {
        *match event {
            Event::Admitted { waited: None, .. } => &mut told.at_once,
            Event::Admitted { .. } => &mut told.waited,
            Event::Rejected { degraded: true, .. } => &mut told.degraded,
            Event::Rejected { .. } => &mut told.rejected,
            Event::Left { .. } => &mut told.left,
            Event::Finished { outcome: Outcome::Completed(200), .. } => &mut told.completed,
            Event::Finished { outcome: Outcome::Dropped, .. } => &mut told.dropped,
            other => panic!("{other:?}"),
        } += 1;
    }
    told
}

/// What came of the requests, seen from outside.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    requests: u64,
    served: u64,
    refused: u64,
    degraded: u64,
    /// Given up while the handler was at work.
    served_and_gone: u64,
    /// Given up before.
    gone: u64,
}

/// Requests come, are given up and are served, in no order; then all of them end.
fn mixed_day(builder: &dyn Fn(&Steps) -> RateLimitLayerBuilder, seed: u64) -> (Seen, Told) {
    let (clock, recorder) = (Steps::default(), Recorder::new());
    let builder = builder(&clock).clock(clock.clone()).observer(recorder.clone());
    let layer = builder.build().expect("a layer");
    let mut tasks = Tasks::new(clock.clone()).newest_first(seed.is_multiple_of(2));
    let (mut numbers, mut seen) = (Numbers(seed), Seen::default());
    // Whose handler has run.
    let ran = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    let mut now = Duration::ZERO;
    let requests = scaled(8_000);
    for name in 0..requests {
        // When all is idle again, three in a row must find nothing left of the day.
        let idle = name + 3 >= requests;
        if idle {
            now += SECOND * 60;
            tasks.to(now);
            assert_eq!(tasks.running(), 0, "all have ended");
        }
        let (handler_clock, handler_ran) = (clock.clone(), Arc::clone(&ran));
        let takes = MILLI * numbers.below(400) as u32;
        let handler = service_fn(move |_: Request<Body>| {
            let clock = handler_clock.clone();
            handler_ran.lock().unwrap().insert(name);
            async move {
                clock.sleep_until(clock.now() + takes).await;
                Ok::<_, Infallible>(Response::new(Body::from("served")))
            }
        });
        let cost = (1 + numbers.below(2)).to_string();
        let answer = layer.layer(handler).oneshot(request(&[("x-cost", &cost)]));
        tasks.start(name, async {
            let Ok(answer) = answer.await;
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), 4_096).await.expect("a body");
            (status, body)
        });
        seen.requests += 1;
        if !idle && numbers.below(3) == 0 {
            let name = name.saturating_sub(numbers.below(4));
            if tasks.give_up(name) {
                match ran.lock().unwrap().contains(&name) {
                    true => seen.served_and_gone += 1,
                    false => seen.gone += 1,
                }
            }
        }
        now += MILLI * numbers.below(120) as u32;
        tasks.to(now);
    }
    tasks.to(now + SECOND * 600);
    assert_eq!(tasks.running(), 0, "all have ended");
    for (name, _, (status, body)) in tasks.ended() {
        assert!(name + 3 < requests || &body[..] == b"served", "{name}: {body:?}");
        match (status, &body[..]) {
            (200, b"served") => seen.served += 1,
            (200, _) => seen.degraded += 1,
            _ => seen.refused += 1,
        }
    }
    (seen, told(&recorder))
}

fn rule(name: &str, bucket: TokenBucket) -> Rule {
    Rule::new(name, bucket).cost_fn(|head| {
        head.headers().get("x-cost").and_then(|c| c.to_str().ok()?.parse().ok()).unwrap_or(1)
    })
}

/// A rule on a backend that answers late, and denies every third charge for a while.
fn elsewhere(clock: &Steps) -> Rule {
    let asked = AtomicU64::new(0);
    let decide = move |_: &SeenCharge| match asked.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => Decision::denied(9, 0, MILLI * 60, SECOND),
        _ => Decision::allowed(9, 5, SECOND),
    };
    let backend = ScriptedBackend::from_fn(decide).delay(clock.clone(), MILLI * 40);
    rule("elsewhere", TokenBucket::per_second(9)).backend(backend)
}

/// A degrade handler that takes its time.
fn fallback(clock: &Steps) -> RejectionPolicy {
    let clock = clock.clone();
    RejectionPolicy::degrade(move || {
        let clock = clock.clone();
        async move {
            clock.sleep_until(clock.now() + MILLI * 90).await;
            "degraded"
        }
    })
}

#[test]
fn who_waits_is_counted_once() {
    let queue = || RejectionPolicy::queue(MILLI * 700, 20);
    let five = || rule("five", TokenBucket::per_second(15).burst(5));
    let paced = || Rule::new("paced", LeakyBucket::per_second(12));
    let calls = || InFlight::new("calls", 2);
    let builder = RateLimitLayer::builder;
    let builders: [&dyn Fn(&Steps) -> RateLimitLayerBuilder; 10] = [
        &|_| builder().rule(five()).rejection(queue()),
        &|clock| builder().rule(paced()).rejection(queue().or(fallback(clock))),
        &|_| builder().rule(five()).rule(paced()).rejection(queue()),
        &|_| builder().in_flight(calls()).rejection(queue()),
        &|_| builder().in_flight(calls()).in_flight(InFlight::new("more", 3)).rejection(queue()),
        &|_| builder().rule(five()).rule(paced()).in_flight(calls()).rejection(queue()),
        &|clock| {
            let declines = RejectionPolicy::degrade(async || Decline);
            let chain = declines.or(queue()).or(fallback(clock));
            builder().rule(five()).in_flight(calls()).rejection(chain)
        },
        // Counted elsewhere, where an answer takes its time.
        &|clock| builder().rule(elsewhere(clock)).rejection(queue()),
        &|clock| {
            builder().rule(five()).rule(elsewhere(clock)).rejection(queue().or(fallback(clock)))
        },
        &|clock| {
            builder().rule(elsewhere(clock)).rule(paced()).in_flight(calls()).rejection(queue())
        },
    ];
    for (n, builder) in builders.into_iter().enumerate() {
        let mut days = [0; 5];
        for seed in 1..=6 {
            let (seen, told) = mixed_day(builder, seed * 7_919);
            let what = format!("layer {n}, seed {seed}: {seen:?} {told:?}");
            assert_eq!(told.at_once + told.waited, seen.served + seen.served_and_gone, "{what}");
            assert_eq!((told.rejected, told.degraded), (seen.refused, seen.degraded), "{what}");
            assert_eq!(told.left, seen.gone, "{what}");
            let all = told.at_once + told.waited + told.rejected + told.degraded + told.left;
            assert_eq!(all, seen.requests, "{what}");
            assert_eq!((told.completed, told.dropped), (seen.served, seen.served_and_gone));
            let refused = told.rejected + told.degraded;
            let kinds = [told.at_once, told.waited, refused, told.left, told.dropped];
            days.iter_mut().zip(kinds).for_each(|(sum, of_day)| *sum += of_day);
        }
        assert!(days.iter().all(|of_kind| *of_kind > 0), "layer {n}: some of each: {days:?}");
    }
}
