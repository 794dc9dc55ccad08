//! Holds are exact: a request that is refused elsewhere, or given up, was never there.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::{collection::vec, prelude::*, sample::Index};
use tokio::sync::oneshot;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sluice::{
    Backend, ConfigError, Decision, Missing, RateLimitLayer, Rule, TokenBucket,
    backend::{Answer, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts},
    clock::Nanos,
    key,
};

use crate::{
    config,
    models::Expected,
    quotas::{Cost, Span, cost, epoch, exact, span},
    subjects::{Keys, clock, keyed_limiter, limiter, now as ready_now, request, served},
};

/// A backend that answers when the test says so, in the order of its checks.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<VecDeque<oneshot::Sender<bool>>>>);

impl Asked {
    /// The means to answer the check just made; none where it was not asked.
    fn last(&self) -> Option<oneshot::Sender<bool>> {
        self.0.lock().unwrap().pop_front()
    }
}

impl Backend for Asked {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, _: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        assert_eq!(charges.len(), 1);
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap().push_back(sender);
        Answer::Pending(Box::pin(async move {
            let second = Duration::from_secs(1);
            let decision = match receiver.await.unwrap() {
                true => Decision::allowed(1, 0, second),
                false => Decision::denied(1, 0, second, second),
            };
            let receipt = Receipt::new(LimiterId(0), [0; 4]);
            Ok(Verdicts::from_iter([Verdict::new(decision, receipt)]))
        }))
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Ready(Ok(Decision::allowed(1, 1, Duration::ZERO)))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(Span),
    /// A request that asks elsewhere.
    Ask(u8, Cost),
    /// One that uses the same limiter and asks nobody.
    Acquire(u8, Cost),
    Answer(Index, bool),
    Drop(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..2_u8;
    let step = prop_oneof![
        3 => span().prop_map(Step::Advance),
        6 => (key.clone(), cost()).prop_map(|(key, cost)| Step::Ask(key, cost)),
        2 => (key, cost()).prop_map(|(key, cost)| Step::Acquire(key, cost)),
        5 => (any::<Index>(), any::<bool>()).prop_map(|(index, allow)| Step::Answer(index, allow)),
        1 => any::<Index>().prop_map(Step::Drop),
    ];
    vec(step, 1..40)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_request_held_and_then_refused_was_never_there(
        exact in exact(),
        (built, utc) in epoch(),
        keys in prop::sample::select(vec![Keys::One, Keys::Many]),
        steps in steps(),
    ) {
        let (quota, clock, asked) = (exact.algorithm.quota(), clock(built, utc), Asked::default());
        let one = limiter(exact.algorithm, &clock);
        let many = keyed_limiter(exact.algorithm, 8, &clock);
        let shared = match keys {
            Keys::One => Rule::on(one.clone()),
            Keys::Many => {
                Rule::on(many.clone()).key(key::header("x-key")).missing(Missing::Skip)
            }
        };
        let layer = RateLimitLayer::builder()
            .clock(clock.clone())
            .rule(shared.cost_fn(|head| head.header_str("x-cost").unwrap().parse().unwrap()))
            .rule(Rule::new("fleet", TokenBucket::per_second(1)).backend(asked.clone()))
            .build()
            .unwrap();
        let name = |key: u8| format!("key-{key}");
        let peek = |key: u8, cost: u64| match keys {
            Keys::One => one.peek(cost),
            Keys::Many => many.peek(name(key), cost),
        };
        let mut service = layer.layer(service_fn(served));
        let mut models = [exact.model(built, utc), exact.model(built, utc)];
        let mut held = [0, 0];
        let mut pending = Vec::new();
        let mut now = built;
        for step in steps {
            match step {
                Step::Advance(span) => {
                    now += span.nanos(quota);
                    clock.set(Nanos::new(now));
                }
                Step::Ask(key, cost) => {
                    let key = if keys == Keys::One { 0 } else { key };
                    let (which, cost) = (usize::from(key), cost.permits(quota));
                    let fits = models[which].peek_beside(now, cost, held[which]).allowed;
                    ready_now(service.ready()).unwrap();
                    let future = service.call(request(key, cost));
                    let sender = asked.last();
                    prop_assert_eq!(sender.is_some(), fits);
                    match sender {
                        Some(sender) => {
                            held[which] += cost;
                            pending.push((which, cost, sender, Box::pin(future)));
                        }
                        None => prop_assert_eq!(ready_now(future).unwrap().status(), 429),
                    }
                }
                Step::Acquire(key, cost) => {
                    let key = if keys == Keys::One { 0 } else { key };
                    let (which, cost) = (usize::from(key), cost.permits(quota));
                    let fits = models[which].peek_beside(now, cost, held[which]).allowed;
                    let decision = match keys {
                        Keys::One => one.try_acquire_many(cost),
                        Keys::Many => many.try_acquire_many(name(key), cost),
                    };
                    prop_assert_eq!(decision.is_allowed(), fits);
                    if fits {
                        prop_assert!(models[which].charge(now, cost));
                    }
                }
                Step::Answer(index, allow) => {
                    if pending.is_empty() {
                        continue;
                    }
                    let (which, cost, sender, future) =
                        pending.swap_remove(index.index(pending.len()));
                    sender.send(allow).unwrap();
                    let answer = ready_now(future).unwrap();
                    prop_assert_eq!(answer.status().as_u16(), if allow { 200 } else { 429 });
                    held[which] -= cost;
                    if allow {
                        prop_assert!(models[which].charge(now, cost), "more than was held");
                    }
                }
                Step::Drop(index) => {
                    if pending.is_empty() {
                        continue;
                    }
                    let (which, cost, ..) = pending.swap_remove(index.index(pending.len()));
                    held[which] -= cost;
                }
            }
            for (which, model) in models.iter().enumerate() {
                let key = which as u8;
                if keys == Keys::One && key > 0 {
                    continue;
                }
                for cost in [0, 1, quota.max_burst()] {
                    let expected = model.peek_beside(now, cost, held[which]);
                    let told = Expected::of(&peek(key, cost));
                    if held[which] == 0 {
                        prop_assert_eq!(told, expected);
                    } else {
                        // When holds end nobody knows, so no wait is exact.
                        prop_assert_eq!(told.allowed, expected.allowed);
                        prop_assert_eq!(told.remaining, expected.remaining);
                        prop_assert_eq!(told.retry_after.is_some(), expected.retry_after.is_some());
                    }
                }
            }
        }
    }
}
