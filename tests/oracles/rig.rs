//! [`Rig`]: one algorithm on every way to count in this process, under one clock.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tower_sluice::{
    Algorithm, Backend, ConfigError, Decision, FixedWindow, KeyedLimiter, LeakyBucket, Limiter,
    ManualClock, Quota, RateLimitLayer, Rule, SlidingLog, SlidingWindow, TokenBucket,
    backend::{Answer, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdicts},
    clock::{Clock, Nanos},
    key,
    limiter::{KeyedLimiterBuilder, LimiterBuilder},
};

pub(crate) const NANO: Duration = Duration::from_nanos(1);
pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What is expected of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    /// Allowed.
    A,
    /// Denied.
    D,
    /// Denied for good.
    Never,
    /// Allowed, with so many left.
    Left(u64),
    /// Denied, until so many units of time later.
    Retry(u32),
}

/// [`Local`], which tells the id that it gave to the one limiter it has.
#[derive(Clone, Default)]
pub(crate) struct Probe {
    local: Local,
    id: Arc<OnceLock<LimiterId>>,
}

impl Backend for Probe {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        let id = self.local.register(spec)?;
        assert_eq!(*self.id.get_or_init(|| id), id, "one limiter");
        Ok(id)
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        self.local.check(now, charges)
    }

    fn undo(&self, now: Nanos, receipts: &[Receipt]) {
        self.local.undo(now, receipts);
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        self.local.peek(now, charge)
    }

    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        self.local.reset(now, charge)
    }
}

/// One algorithm, counted three ways.
pub(crate) struct Rig {
    pub(crate) clock: ManualClock,
    pub(crate) one: Limiter,
    pub(crate) many: KeyedLimiter,
    layer: RateLimitLayer,
    probe: Probe,
}

impl Rig {
    pub(crate) fn new(algorithm: impl Into<Algorithm>) -> Self {
        Self::at(algorithm, Duration::ZERO)
    }

    /// A rig that is built at `start`.
    pub(crate) fn at(algorithm: impl Into<Algorithm>, start: Duration) -> Self {
        let (algorithm, clock) = (algorithm.into(), ManualClock::new());
        clock.advance(start);
        let (one, many) = builders(algorithm);
        let probe = Probe::default();
        let rule = Rule::new("oracle", algorithm).key(key::global()).backend(probe.clone());
        let layer = RateLimitLayer::builder().clock(clock.clone()).rule(rule).build();
        Self {
            one: one.clock(clock.clone()).build().expect("a quota"),
            many: many.max_keys(64).clock(clock.clone()).build().expect("a quota"),
            layer: layer.expect("a layer"),
            clock,
            probe,
        }
    }

    pub(crate) fn set(&self, instant: Duration) {
        self.clock.set(instant.into());
    }

    fn charge(&self, cost: u64) -> Charge<'static> {
        Charge::new(*self.probe.id.get().expect("registered"), cost).key(b"key")
    }

    /// What the backend says to `cost`, and the receipt.
    pub(crate) fn check(&self, cost: u64) -> (Decision, Receipt) {
        let verdicts = known(self.probe.check(self.clock.now(), &[self.charge(cost)]));
        let [verdict] = verdicts.as_slice() else { panic!("one charge, one verdict") };
        assert_eq!(verdicts.all_allowed(), verdict.decision().is_allowed());
        (verdict.decision(), verdict.receipt())
    }

    /// Undoes what the backend charged.
    pub(crate) fn undo(&self, receipt: Receipt) {
        self.probe.undo(self.clock.now(), &[receipt]);
    }

    /// Spends `cost` permits three times; all must say the same.
    #[track_caller]
    pub(crate) fn ask(&self, cost: u64) -> Decision {
        let decision = self.one.try_acquire_many(cost);
        assert_eq!(self.many.try_acquire_many("key", cost), decision, "per key");
        assert_eq!(self.check(cost).0, decision, "on the backend");
        decision
    }

    /// What `cost` would get.
    #[track_caller]
    pub(crate) fn peek(&self, cost: u64) -> Decision {
        let decision = self.one.peek(cost);
        assert_eq!(self.many.peek("key", cost), decision, "per key");
        let asked = self.probe.peek(self.clock.now(), &self.charge(cost));
        assert_eq!(known(asked), decision, "on the backend");
        decision
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.peek(0).remaining()
    }

    pub(crate) fn set_limit(&self, quota: Quota) {
        self.one.set_limit(quota).expect("a quota");
        self.many.set_limit(quota).expect("a quota");
        self.layer.handle().set_limit("oracle", quota).expect("a quota");
    }

    /// Asks at (instant in `unit`, cost), and says where the answer is not the one wanted. A wait is
    /// tried out as well: denied a nanosecond before its end, allowed at it.
    #[track_caller]
    pub(crate) fn run(&self, unit: Duration, timeline: &[(u32, u64, Want)]) {
        for (row, &(instant, cost, want)) in timeline.iter().enumerate() {
            self.set(unit * instant);
            let decision = self.ask(cost);
            let met = match want {
                Want::A => decision.is_allowed(),
                Want::D => decision.retry_after().is_some(),
                Want::Never => decision.is_never() && decision.retry_after().is_none(),
                Want::Left(left) => decision.is_allowed() && decision.remaining() == left,
                Want::Retry(wait) => decision.retry_after() == Some(unit * wait),
            };
            assert!(met, "row {row}: {instant}, cost {cost}: {want:?}, but {decision:?}");
            if let Some(wait) = decision.retry_after() {
                self.set(unit * instant + wait - NANO);
                assert!(!self.peek(cost).is_allowed(), "row {row}: a nanosecond before its end");
                self.set(unit * instant + wait);
                assert!(self.peek(cost).is_allowed(), "row {row}: at its end");
            }
        }
    }

    /// How many of `threads` callers at one instant pass, on each way to count.
    pub(crate) fn parallel(&self, threads: usize) -> [usize; 3] {
        let count = |ask: &(dyn Fn() -> bool + Sync)| {
            thread::scope(|scope| {
                let callers: Vec<_> = (0..threads).map(|_| scope.spawn(ask)).collect();
                let answers = callers.into_iter().map(|caller| caller.join().expect("no panic"));
                answers.filter(|allowed| *allowed).count()
            })
        };
        [
            count(&|| self.one.try_acquire().is_allowed()),
            count(&|| self.many.try_acquire("key").is_allowed()),
            count(&|| self.check(1).0.is_allowed()),
        ]
    }
}

/// What builds limiters of any algorithm, alone and per key.
pub(crate) fn builders(algorithm: Algorithm) -> (LimiterBuilder, KeyedLimiterBuilder) {
    match algorithm {
        Algorithm::FixedWindow(window) => (window.limiter(), window.keyed_limiter()),
        Algorithm::LeakyBucket(bucket) => (bucket.limiter(), bucket.keyed_limiter()),
        Algorithm::SlidingLog(log) => (log.limiter(), log.keyed_limiter()),
        Algorithm::SlidingWindow(window) => (window.limiter(), window.keyed_limiter()),
        Algorithm::TokenBucket(bucket) => (bucket.limiter(), bucket.keyed_limiter()),
        other => panic!("{other:?} is not known here"),
    }
}

/// A window from the first request, and one by the clock.
pub(crate) fn windows(limit: u64, length: Duration) -> [FixedWindow; 2] {
    let window = FixedWindow::new(limit, length);
    [window, window.aligned()]
}

/// What counts by windows, and how long what is spent where a cell begins counts: the windows above, a log, a sliding
/// window. Peers' timelines in windows hold for all of them in this unit, as far as requests come at its multiples.
pub(crate) fn by_windows(limit: u64, length: Duration) -> [(Algorithm, Duration); 4] {
    let [first, aligned] = windows(limit, length);
    [
        (first.into(), length),
        (aligned.into(), length),
        (SlidingLog::new(limit, length).into(), length),
        (SlidingWindow::new(limit, length).into(), length + length / 10),
    ]
}

/// One each `interval` on every algorithm, and for how long it counts: see [`by_windows`].
pub(crate) fn one_each(interval: Duration) -> impl Iterator<Item = (Algorithm, Duration)> {
    let paced = paced(1, interval).map(|algorithm| (algorithm, interval));
    paced.into_iter().chain(by_windows(1, interval))
}

/// `permits` per `period`, one at a time: as a bucket of burst 1, and as a leaky one.
pub(crate) fn paced(permits: u64, period: Duration) -> [Algorithm; 2] {
    [bucket(permits, period, 1).into(), LeakyBucket::new(permits, period).into()]
}

/// `permits` per `period` with a burst, as a bucket.
pub(crate) fn bucket(permits: u64, period: Duration, burst: u64) -> TokenBucket {
    TokenBucket::new(permits, period).burst(burst)
}

/// What a backend that always knows has answered.
pub(crate) fn known<T>(answer: Answer<T>) -> T {
    match answer {
        Answer::Ready(answer) => answer.expect("an answer"),
        Answer::Pending(_) => panic!("it asks"),
    }
}

/// The answer of a future that does not have to wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}
