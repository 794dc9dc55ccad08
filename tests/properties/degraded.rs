//! Degraded answers: never more under way than they may be, and above that the chain goes on.

use std::collections::BTreeSet;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use proptest::{collection::vec, prelude::*, sample::Index};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{Decline, InFlight, ManualClock, RateLimitLayer, RejectionPolicy};

use crate::{
    config,
    executor::{First, Tasks},
    subjects::{endless, now as ready_now},
};

/// What the degrade handler does with one request, and where one is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Answers with a body that does not end.
    Body,
    /// Answers with none.
    Empty,
    /// Does not answer.
    Work,
    Decline,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Does),
    /// One is gone or done, wherever he is.
    Go(Index),
}

fn event() -> impl Strategy<Value = Event> {
    let does = vec![Does::Body, Does::Body, Does::Work, Does::Work, Does::Empty, Does::Decline];
    prop_oneof![
        3 => prop::sample::select(does).prop_map(Event::Arrive),
        2 => any::<Index>().prop_map(Event::Go),
    ]
}

/// A header that tells the handler what to do.
fn asking(does: Does) -> Request<Body> {
    Request::builder().header("x-does", format!("{does:?}")).body(Body::empty()).unwrap()
}

async fn degraded(request: Request<Body>) -> Result<Response<Body>, Decline> {
    match request.headers()["x-does"].to_str().unwrap() {
        "Decline" => Err(Decline),
        "Work" => std::future::pending().await,
        "Empty" => Ok(answer(Response::new(Body::empty()))),
        _ => Ok(answer(ready_now(endless(request)).unwrap())),
    }
}

fn answer(mut response: Response<Body>) -> Response<Body> {
    *response.status_mut() = StatusCode::NON_AUTHORITATIVE_INFORMATION;
    response
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_more_answers_are_degraded_at_once_than_may_be(
        most in 1..4_u32,
        depth in 1..4_u64,
        queues in any::<bool>(),
        events in vec(event(), 1..40),
    ) {
        // What is taken stays taken, so that whoever comes does not fit.
        let clock = ManualClock::new();
        let flight = InFlight::new("flight", 1).clock(clock);
        let _permit = flight.try_acquire();
        let mut policy = RejectionPolicy::degrade(degraded).max_degraded(most);
        if queues {
            policy = policy.or(RejectionPolicy::queue(std::time::Duration::from_secs(1), depth));
        }
        let layer = |policy: &RejectionPolicy| {
            let limit = flight.clone().rejection(policy.clone());
            RateLimitLayer::builder().in_flight(limit).build().unwrap()
        };
        // Clones of a policy share the count.
        let layers = [layer(&policy), layer(&policy)];
        let mut tasks = Tasks::default();
        let (mut answering, mut waiting) = (BTreeSet::new(), BTreeSet::new());
        let mut kept = std::collections::BTreeMap::new();
        for (id, event) in events.into_iter().enumerate() {
            match event {
                Event::Arrive(does) => {
                    let service = layers[id % 2].layer(service_fn(endless));
                    tasks.spawn(id, async move { service.oneshot(asking(does)).await.unwrap() });
                    let answer = tasks.poll(id);
                    let status = answer.as_ref().map(|answer| answer.status().as_u16());
                    let fits = answering.len() < most as usize;
                    let waits = queues && (waiting.len() as u64) < depth;
                    let expected = match does {
                        Does::Work if fits => None,
                        Does::Body | Does::Empty if fits => Some(203),
                        _ if waits => None,
                        _ => Some(503),
                    };
                    prop_assert_eq!(status, expected, "{:?}", does);
                    if fits && matches!(does, Does::Work | Does::Body) {
                        answering.insert(id);
                    } else if expected.is_none() {
                        waiting.insert(id);
                    }
                    kept.extend(answer.map(|answer| (id, answer)));
                }
                Event::Go(index) => {
                    let all: Vec<usize> = answering.union(&waiting).copied().collect();
                    if !all.is_empty() {
                        let id = all[index.index(all.len())];
                        tasks.drop_task(id);
                        kept.remove(&id);
                        answering.remove(&id);
                        waiting.remove(&id);
                    }
                }
            }
            prop_assert_eq!(tasks.run(First::Oldest).len(), 0);
            prop_assert_eq!(flight.waiting(), waiting.len() as u64);
        }
    }
}
