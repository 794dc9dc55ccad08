//! The ways to come to one limiter, waiting or not, for those who then are polled by hand.

use std::time::Duration;

use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Decision, KeyedLimiter, Limiter, ManualClock, Missing, Quota, RateLimitLayer, Rejection,
    RejectionPolicy, Rule, TokenBucket, key,
};

use crate::{
    executor::{First, Tasks},
    quotas::{Exact, Span, span},
    subjects::{Keys, keyed_limiter, limiter, request, served},
};

/// How somebody comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// By `acquire`, waiting so many spans.
    Acquire(u8, Span),
    /// By one of the layers that let wait.
    Queue(usize),
    /// By `try_acquire`.
    Try,
    /// By a layer that lets nobody wait.
    Respond,
}

pub(crate) fn way() -> impl Strategy<Value = Way> {
    prop_oneof![
        4 => (0..5_u8, span()).prop_map(|(times, span)| Way::Acquire(times, span)),
        6 => (0..2_usize).prop_map(Way::Queue),
        1 => Just(Way::Try),
        1 => Just(Way::Respond),
    ]
}

/// A layer that lets wait: how long, how many, and by which way it decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) times: u8,
    pub(crate) longest: Span,
    pub(crate) depth: u64,
    pub(crate) told: bool,
    /// With a second rule that is always passed.
    pub(crate) beside: bool,
}

pub(crate) fn queue() -> impl Strategy<Value = Queue> {
    let depth = prop_oneof![3 => 1..5_u64, 1 => Just(100)];
    (1..6_u8, span(), depth, any::<bool>(), any::<bool>()).prop_map(
        |(times, longest, depth, told, beside)| Queue { times, longest, depth, told, beside },
    )
}

impl Queue {
    fn nanos(&self, quota: Quota) -> u64 {
        (u64::from(self.times) * self.longest.nanos(quota)).max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Refused(Option<Duration>),
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Self {
        if decision.is_allowed() { Self::Admitted } else { Self::Refused(decision.retry_after()) }
    }
}

/// The limiter that all share.
#[derive(Clone)]
pub(crate) enum Shared {
    One(Limiter),
    Many(KeyedLimiter),
}

fn name(key: u8) -> String {
    format!("key-{key}")
}

impl Shared {
    fn new(exact: Exact, keys: Keys, clock: &ManualClock) -> Self {
        match keys {
            Keys::One => Self::One(limiter(exact.algorithm, clock)),
            Keys::Many => Self::Many(keyed_limiter(exact.algorithm, 8, clock)),
        }
    }

    fn rule(&self) -> Rule {
        let rule = match self {
            Self::One(limiter) => Rule::on(limiter.clone()),
            Self::Many(limiter) => {
                Rule::on(limiter.clone()).key(key::header("x-key")).missing(Missing::Skip)
            }
        };
        rule.spread(false).cost_fn(|head| head.header_str("x-cost").unwrap().parse().unwrap())
    }

    async fn acquire(self, key: u8, cost: u64, longest: Duration) -> Decision {
        match self {
            Self::One(limiter) => limiter.acquire_many(cost, longest).await,
            Self::Many(limiter) => limiter.acquire_many(&*name(key), cost, longest).await,
        }
    }

    pub(crate) fn try_acquire(&self, key: u8, cost: u64) -> Decision {
        match self {
            Self::One(limiter) => limiter.try_acquire_many(cost),
            Self::Many(limiter) => limiter.try_acquire_many(&*name(key), cost),
        }
    }

    pub(crate) fn peek(&self, key: u8, cost: u64) -> Decision {
        match self {
            Self::One(limiter) => limiter.peek(cost),
            Self::Many(limiter) => limiter.peek(&*name(key), cost),
        }
    }

    pub(crate) fn reset(&self, key: u8) -> bool {
        match self {
            Self::One(limiter) => limiter.reset(),
            Self::Many(limiter) => limiter.reset(&*name(key)),
        }
    }

    pub(crate) fn set_limit(&self, quota: Quota) {
        match self {
            Self::One(limiter) => limiter.set_limit(quota),
            Self::Many(limiter) => limiter.set_limit(quota),
        }
        .unwrap();
    }

    pub(crate) fn waiting(&self) -> u64 {
        match self {
            Self::One(limiter) => limiter.waiting(),
            Self::Many(limiter) => limiter.waiting(),
        }
    }
}

async fn ask(layer: RateLimitLayer, key: u8, cost: u64) -> Outcome {
    let answer = layer.layer(service_fn(served)).oneshot(request(key, cost)).await.unwrap();
    if answer.status().is_success() {
        return Outcome::Admitted;
    }
    Outcome::Refused(answer.extensions().get::<Rejection>().unwrap().retry_after())
}

/// A limiter and the layers on it.
pub(crate) struct Ways {
    pub(crate) shared: Shared,
    queues: [Queue; 2],
    layers: [RateLimitLayer; 2],
    respond: RateLimitLayer,
    /// What spans are told by.
    quota: Quota,
}

impl Ways {
    pub(crate) fn new(exact: Exact, keys: Keys, queues: [Queue; 2], clock: &ManualClock) -> Self {
        let (shared, quota) = (Shared::new(exact, keys, clock), exact.algorithm.quota());
        let builder = || RateLimitLayer::builder().clock(clock.clone()).expose_rejection();
        let layers = queues.map(|queue| {
            let longest = Duration::from_nanos(queue.nanos(quota));
            let mut builder = builder().rejection(RejectionPolicy::queue(longest, queue.depth));
            if queue.beside {
                builder =
                    builder.rule(Rule::new("beside", TokenBucket::per_second(1)).cost_fn(|_| 0));
            }
            if queue.told {
                builder = builder.expose_decision();
            }
            builder.rule(shared.rule()).build().unwrap()
        });
        let respond = builder().rule(shared.rule()).build().unwrap();
        Self { shared, queues, layers, respond, quota }
    }

    /// The longest wait, and how many may wait.
    pub(crate) fn bounds(&self, way: Way) -> (u64, u64) {
        match way {
            Way::Acquire(times, span) => (u64::from(times) * span.nanos(self.quota), u64::MAX),
            Way::Queue(which) => (self.queues[which].nanos(self.quota), self.queues[which].depth),
            Way::Try | Way::Respond => (0, u64::MAX),
        }
    }

    /// Somebody comes; what becomes of him at once.
    pub(crate) fn come(
        &self,
        tasks: &mut Tasks<Outcome>,
        id: usize,
        way: Way,
        key: u8,
        cost: u64,
    ) -> Option<Outcome> {
        match way {
            Way::Try => return Some(self.shared.try_acquire(key, cost).into()),
            Way::Acquire(..) => {
                let longest = Duration::from_nanos(self.bounds(way).0);
                let shared = self.shared.clone();
                tasks.spawn(id, async move { shared.acquire(key, cost, longest).await.into() });
            }
            Way::Queue(which) => tasks.spawn(id, ask(self.layers[which].clone(), key, cost)),
            Way::Respond => tasks.spawn(id, ask(self.respond.clone(), key, cost)),
        }
        tasks.poll(id)
    }
}

pub(crate) fn first() -> impl Strategy<Value = First> {
    prop_oneof![Just(First::Oldest), Just(First::Newest)]
}
