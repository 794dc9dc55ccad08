//! IF: limits that change, keys that come and go, and mixed load.

use std::{
    collections::VecDeque,
    future::pending,
    panic::resume_unwind,
    pin::{Pin, pin},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use axum::{Extension, Router, body::Body, extract::Request, handler::Handler, routing::get};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::{runtime, task::JoinSet};
use tower::ServiceExt;
use tower_http::{catch_panic::CatchPanicLayer, timeout::TimeoutLayer};
use tower_sluice::{
    Decline, InFlight, ManualClock, RateLimitLayer, RejectionPolicy,
    in_flight::{Permit, Permits},
};

use crate::{
    support::{ask, request},
    support_core::{HOUR, SECOND, scaled},
    support_wire::{Held, until},
};

#[tokio::test]
async fn if_06_lower_limit_holds_while_requests_wait() {
    let slots = InFlight::new("five", 5).rejection(RejectionPolicy::queue(HOUR, 3));
    let layer = RateLimitLayer::builder().in_flight(slots.clone()).clock(ManualClock::new());
    let (held, begun) = (Held::new(), Arc::new(AtomicU64::new(0)));
    let (hold, begins) = (held.clone(), begun.clone());
    let handler = move || async move {
        begins.fetch_add(1, Ordering::SeqCst);
        hold.wait().await;
    };
    let app = Router::new().route("/", get(handler)).layer(layer.build().unwrap());
    let mut requests = JoinSet::new();
    for _ in 0..8 {
        let app = app.clone();
        requests.spawn(async move { ask(&app, request("GET", "/", None)).await.status });
    }
    until(|| (slots.in_flight(), slots.waiting()) == (5, 3)).await;
    slots.set_limit(2).unwrap();
    // Who has begun, who runs and who waits, after each that finishes.
    for expected in [(5, 4, 3), (5, 3, 3), (5, 2, 3), (6, 2, 2), (7, 2, 1), (8, 2, 0), (8, 1, 0)] {
        held.let_go(1);
        assert_eq!(requests.join_next().await.unwrap().unwrap(), StatusCode::OK);
        let seen = || (begun.load(Ordering::SeqCst), slots.in_flight(), slots.waiting());
        until(|| seen() == expected).await;
    }
}

type Acquiring = Pin<Box<dyn Future<Output = Option<Permit>> + Send>>;

fn poll(acquiring: &mut Acquiring) -> Option<Permit> {
    match acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => Some(permit.expect("nobody waits an hour here")),
        Poll::Pending => None,
    }
}

#[test]
fn if_06_release_races_the_lower_limit() {
    for keyed in [false, true] {
        for round in 0..scaled(10_000) {
            let slots = InFlight::new("five", 5).clock(ManualClock::new());
            let take = || if keyed { slots.try_acquire_by("k") } else { slots.try_acquire() };
            let mut running: Vec<_> = (0..5).map(|_| take().unwrap()).collect();
            let mut queued: Vec<Acquiring> = (0..3)
                .map(|_| {
                    let slots = slots.clone();
                    Box::pin(async move {
                        if keyed {
                            slots.acquire_by("k", HOUR).await
                        } else {
                            slots.acquire(HOUR).await
                        }
                    }) as Acquiring
                })
                .collect();
            assert!(queued.iter_mut().all(|waits| poll(waits).is_none()));
            let (start, released) = (Barrier::new(2), AtomicBool::new(false));
            let two = running.split_off(3);
            thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    drop(two);
                    released.store(true, Ordering::SeqCst);
                });
                start.wait();
                slots.set_limit(2).unwrap();
                // From here on the number only falls, as long as it is above two.
                let mut last = slots.in_flight();
                loop {
                    let is_over = released.load(Ordering::SeqCst);
                    let now = slots.in_flight();
                    assert!(now <= last.max(2), "round {round}: {last}, then {now}");
                    last = now;
                    if is_over {
                        break;
                    }
                }
            });
            // Those who were handed a permit before the limit fell have one, in the order they came.
            let granted = slots.in_flight() - 3;
            assert!(granted <= 2, "round {round}");
            let mut waits: VecDeque<_> = queued.into();
            running.extend((0..granted).filter_map(|_| poll(&mut waits.pop_front()?)));
            assert_eq!(running.len() as u64, 3 + granted, "round {round}");
            while let Some(next) = waits.front_mut() {
                let runs = running.len() as u64;
                // Where one runs, the first in the queue has a permit already.
                assert_eq!(slots.in_flight(), runs.max(2), "round {round}");
                match poll(next) {
                    Some(permit) => {
                        assert_eq!(runs, 1, "round {round}: it begins though others run");
                        running.push(permit);
                        waits.pop_front();
                    }
                    None => {
                        assert!(runs >= 2, "round {round}: nobody begins");
                        drop(running.pop());
                    }
                }
            }
            drop(running);
            assert_eq!((slots.in_flight(), slots.waiting(), slots.tracked_keys()), (0, 0, 0));
        }
    }
}

#[test]
fn if_08_keys_are_known_while_they_are_used() {
    let slots = InFlight::new("user", 1);
    let mut held = VecDeque::new();
    for user in 0..scaled(1_000_000) {
        held.push_back(slots.try_acquire_by(user).expect("the first of this user"));
        assert!(user % 97 != 0 || slots.try_acquire_by(user).is_none());
        if held.len() > 100 {
            held.pop_front();
        }
        if user % 1_000 == 999 {
            assert_eq!((slots.tracked_keys(), slots.in_flight()), (100, 100));
        }
    }
    drop(held);
    assert_eq!((slots.tracked_keys(), slots.in_flight()), (0, 0));
}

#[test]
fn if_08_a_key_that_comes_and_goes_has_one_permit() {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
    let runtime = runtime.unwrap();
    let slots = InFlight::new("user", 1);
    let (inside, peak) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let (slots, inside, peak) = (slots.clone(), inside.clone(), peak.clone());
            tasks.spawn(async move {
                for round in 0..scaled(10_000) {
                    // Half of them wait, so that the key goes at times and is handed on at others.
                    let permit = if (task + round) % 2 == 0 {
                        slots.acquire_by("alice", HOUR).await
                    } else {
                        slots.try_acquire_by("alice")
                    };
                    let Some(permit) = permit else { continue };
                    peak.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    if round % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                    // Others come and go beside it.
                    drop(slots.try_acquire_by(task * 1_000_000 + round));
                }
            });
        }
        let all = tokio::time::timeout(60 * SECOND, tasks.join_all()).await;
        assert!(all.is_ok(), "somebody waits for ever: {} in flight", slots.in_flight());
    });
    assert_eq!(peak.load(Ordering::SeqCst), 1);
    assert_eq!((slots.tracked_keys(), slots.in_flight(), slots.waiting()), (0, 0, 0));
}

/// Routes that end in every way there is.
fn routes(held: &Held) -> Router {
    let held = held.clone();
    let late = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, 2 * MS);
    let upgrades = async |permits: Option<Extension<Permits>>| {
        tokio::spawn(async move {
            tokio::time::sleep(MS).await;
            drop(permits);
        });
        StatusCode::SWITCHING_PROTOCOLS
    };
    let panics = async || {
        if true {
            resume_unwind(Box::new("as intended"));
        }
    };
    Router::new()
        .route("/ok", get(|| async { "ok" }))
        .route("/slow", get(|| tokio::time::sleep(3 * MS)))
        .route("/error", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
        .route("/panic", get(panics))
        .route("/never", get(pending::<()>))
        .route("/late", get(pending::<()>.layer(late)))
        .route("/stream", get(|| async { Body::new(Endless) }))
        .route("/upgrade", get(upgrades))
        .route("/held", get(move || async move { held.wait().await }))
}

const MS: Duration = Duration::from_millis(1);

/// A body without an end.
struct Endless;

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(http_body::Frame::data("more".into()))))
    }
}

/// How often what happened.
#[derive(Debug, Default)]
struct Seen {
    served: AtomicU64,
    shed: AtomicU64,
    degraded: AtomicU64,
    others: AtomicU64,
}

/// One request, and what its client does about it.
async fn one(app: &Router, n: u64, seen: &Seen) {
    const KINDS: [&str; 10] = [
        "/ok", "/slow", "/slow", "/error", "/panic", "/never", "/late", "/stream", "/upgrade",
        "/ok",
    ];
    let kind = KINDS[(n % 10) as usize];
    let policy = ["", "/queue", "/degrade"][(n / 10 % 3) as usize];
    let mut asks = request("GET", &format!("{policy}{kind}"), None);
    if kind == "/upgrade" {
        asks.headers_mut().insert("upgrade", "other".parse().unwrap());
    }
    if n.is_multiple_of(7) {
        *asks.method_mut() = Method::HEAD;
    }
    let answer = pin!(app.clone().oneshot(asks));
    if kind == "/never" {
        // The client gives up.
        let given_up = tokio::time::timeout(2 * MS, answer).await;
        seen.others.fetch_add(u64::from(given_up.is_err()), Ordering::Relaxed);
        return;
    }
    let Ok(answer) = answer.await;
    let count = match answer.status().as_u16() {
        200 => &seen.served,
        203 => &seen.degraded,
        503 => &seen.shed,
        101 | 500 | 504 => &seen.others,
        other => panic!("{other} of {policy}{kind}"),
    };
    count.fetch_add(1, Ordering::Relaxed);
    let mut body = answer.into_body();
    // Of what has no end one frame is read, of some nothing.
    if n.is_multiple_of(11) {
        drop(body);
    } else if kind == "/stream" {
        let _ = body.frame().await;
    } else {
        body.collect().await.unwrap();
    }
}

#[test]
fn if_11_counts_do_not_drift() {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let slots = InFlight::new("fifty", 50);
        let held = Held::new();
        let degrade = RejectionPolicy::degrade(|request: Request| async move {
            match request.uri().path() {
                "/ok" => Err(Decline),
                _ => Ok(StatusCode::NON_AUTHORITATIVE_INFORMATION),
            }
        });
        let queue = RejectionPolicy::queue(20 * MS, 50);
        let limited = |policy: RejectionPolicy| {
            let slots = slots.clone().rejection(policy);
            routes(&held).layer(RateLimitLayer::builder().in_flight(slots).build().unwrap())
        };
        let app = limited(RejectionPolicy::respond())
            .nest("/queue", limited(queue.clone()))
            .nest("/degrade", limited(degrade.or(queue)))
            .layer(CatchPanicLayer::new());

        let seen = Arc::new(Seen::default());
        let mut clients = JoinSet::new();
        for client in 0..200 {
            let (app, seen) = (app.clone(), seen.clone());
            clients.spawn(async move {
                for round in 0..scaled(2_000) {
                    one(&app, client * 7_919 + round * 104_729, &seen).await;
                }
            });
        }
        let changes = slots.clone();
        let changing = tokio::spawn(async move {
            for limit in [10, 50, 3, 80].into_iter().cycle() {
                changes.set_limit(limit).unwrap();
                tokio::time::sleep(5 * MS).await;
            }
        });
        let all = tokio::time::timeout(600 * SECOND, clients.join_all()).await;
        assert!(all.is_ok(), "{} in flight, {} wait", slots.in_flight(), slots.waiting());
        changing.abort();
        assert!(changing.await.unwrap_err().is_cancelled());
        slots.set_limit(50).unwrap();

        for count in [&seen.served, &seen.shed, &seen.degraded, &seen.others] {
            assert!(count.load(Ordering::Relaxed) > scaled(2_000), "{seen:?}");
        }
        until(|| slots.in_flight() == 0).await;
        held.assert_exactly(50, &app, &slots).await;
    });
}
