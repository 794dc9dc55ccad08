//! [`Waits`]: callers who wait, on every way to wait for a rate in this process.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Algorithm, Decision, KeyedLimiter, Limiter, Quota, RateLimitLayer, Rejection, RejectionPolicy,
    Rule,
};

use crate::{
    rig::builders,
    tasks::{Steps, Tasks},
};

/// Longer than anybody waits here.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// What is expected of a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// Admitted at this instant.
    At(u32),
    /// Denied at once; so long the wait would be.
    Out(u32),
    /// Denied at once, for good.
    Never,
}

/// How it ended for a caller; the wait of who was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    In,
    Out(Option<Duration>),
}

impl From<Decision> for Got {
    fn from(decision: Decision) -> Self {
        if decision.is_allowed() { Self::In } else { Self::Out(decision.retry_after()) }
    }
}

const WAYS: usize = 3;

/// One algorithm, waited for three ways: a limiter's `acquire`, that of a keyed one, and a layer's queue on a
/// limiter.
pub(crate) struct Waits {
    one: Limiter,
    many: KeyedLimiter,
    layered: Limiter,
    tasks: Tasks<(usize, usize), Got>,
    callers: usize,
}

impl Waits {
    /// Rigs that differ in who is polled first of those who wake at one instant.
    pub(crate) fn both(algorithm: impl Into<Algorithm>) -> [Self; 2] {
        let algorithm = algorithm.into();
        [false, true].map(|newest_first| Self::new(algorithm, newest_first))
    }

    fn new(algorithm: Algorithm, newest_first: bool) -> Self {
        let clock = Steps::default();
        let (one, many) = builders(algorithm);
        Self {
            layered: one.clone().clock(clock.clone()).build().expect("a quota"),
            one: one.clock(clock.clone()).build().expect("a quota"),
            many: many.max_keys(64).clock(clock.clone()).build().expect("a quota"),
            tasks: Tasks::new(clock).newest_first(newest_first),
            callers: 0,
        }
    }

    pub(crate) fn to(&mut self, instant: Duration) {
        self.tasks.to(instant);
    }

    /// Asks for `cost` permits, waiting at most `longest`; gives the caller's number.
    pub(crate) fn ask(&mut self, cost: u64, longest: Duration) -> usize {
        let caller = self.callers;
        self.callers += 1;
        let limiter = self.one.clone();
        self.tasks
            .start((0, caller), async move { limiter.acquire_many(cost, longest).await.into() });
        let limiter = self.many.clone();
        self.tasks.start((1, caller), async move {
            limiter.acquire_many("key", cost, longest).await.into()
        });
        self.tasks.start((2, caller), send(&self.layered, cost, longest));
        caller
    }

    /// The caller leaves.
    #[track_caller]
    pub(crate) fn leave(&mut self, caller: usize) {
        for way in 0..WAYS {
            assert!(self.tasks.give_up((way, caller)), "caller {caller} does not wait");
        }
    }

    /// When and how it ended for the caller; `None` where he waits or has left.
    #[track_caller]
    pub(crate) fn got(&self, caller: usize) -> Option<(Duration, Got)> {
        let of = |way| {
            let ended = self.tasks.ended().iter().find(|(name, ..)| *name == (way, caller));
            ended.map(|(_, instant, got)| (*instant, *got))
        };
        let got = of(0);
        assert_eq!([of(1), of(2)], [got; 2], "caller {caller}, with a key and through a layer");
        got
    }

    /// What a newcomer gets who does not wait.
    #[track_caller]
    pub(crate) fn try_acquire(&self, cost: u64) -> Decision {
        let decision = self.one.try_acquire_many(cost);
        assert_eq!(self.many.try_acquire_many("key", cost), decision, "per key");
        assert_eq!(self.layered.try_acquire_many(cost), decision, "of the layer");
        decision
    }

    /// What a newcomer would get.
    #[track_caller]
    pub(crate) fn peek(&self, cost: u64) -> Decision {
        let decision = self.one.peek(cost);
        assert_eq!(self.many.peek("key", cost), decision, "per key");
        assert_eq!(self.layered.peek(cost), decision, "of the layer");
        decision
    }

    #[track_caller]
    pub(crate) fn waiting(&self) -> u64 {
        let waiting = self.one.waiting();
        assert_eq!([self.many.waiting(), self.layered.waiting()], [waiting; 2]);
        waiting
    }

    pub(crate) fn set_limit(&mut self, quota: Quota) {
        self.one.set_limit(quota).expect("a quota");
        self.many.set_limit(quota).expect("a quota");
        self.layered.set_limit(quota).expect("a quota");
        self.tasks.settle();
    }

    /// Lets callers come at (instant in `unit`, cost, longest wait), each given what it says; to the
    /// nanosecond.
    #[track_caller]
    pub(crate) fn run(&mut self, unit: Duration, timeline: &[(u32, u64, Duration, Turn)]) {
        let ask = |&(instant, cost, longest, _): &(u32, u64, Duration, Turn)| {
            self.to(unit * instant);
            (unit * instant, self.ask(cost, longest))
        };
        let asked: Vec<_> = timeline.iter().map(ask).collect();
        let last = timeline.iter().map(|&(instant, .., turn)| match turn {
            Turn::At(turn) => turn.max(instant),
            Turn::Out(_) | Turn::Never => instant,
        });
        self.to(unit * last.max().expect("a row"));
        for (row, ((came, caller), &(.., turn))) in asked.into_iter().zip(timeline).enumerate() {
            let want = match turn {
                Turn::At(instant) => (unit * instant, Got::In),
                Turn::Out(wait) => (came, Got::Out(Some(unit * wait))),
                Turn::Never => (came, Got::Out(None)),
            };
            assert_eq!(self.got(caller), Some(want), "row {row}: {:?}", timeline[row]);
        }
        assert_eq!((self.waiting(), self.tasks.running()), (0, 0));
    }
}

/// Sends a request of this cost through a layer on `limiter` that lets it wait so long.
pub(crate) fn send(
    limiter: &Limiter,
    cost: u64,
    longest: Duration,
) -> impl Future<Output = Got> + use<> {
    let builder = RateLimitLayer::builder()
        .rule(Rule::on(limiter.clone()).cost_fn(move |_| cost))
        .expose_rejection();
    let layer = match longest {
        Duration::ZERO => builder,
        longest => builder.rejection(RejectionPolicy::queue(longest, 1_000)),
    };
    through(&layer.build().expect("a layer"), cost)
}

/// Sends a request through `layer`; its header `x-cost` says what it costs.
pub(crate) fn through(layer: &RateLimitLayer, cost: u64) -> impl Future<Output = Got> + use<> {
    let handler =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let request = Request::get("/").header("x-cost", cost).body(Body::empty()).expect("a request");
    let answer = layer.layer(handler).oneshot(request);
    async {
        let Ok(answer) = answer.await;
        if answer.status() == 200 {
            return Got::In;
        }
        let rejection = answer.extensions().get::<Rejection>().expect("exposed");
        Got::Out(rejection.retry_after())
    }
}
