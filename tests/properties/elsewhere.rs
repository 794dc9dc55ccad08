//! Waiting for a rule that another backend counts: it departs when that says, or asks again when that says; what
//! is set aside here goes back with whoever leaves.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Body;
use http::{Request, StatusCode};
use proptest::{collection::vec, prelude::*, sample::Index};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Backend, BackendError, BackendErrorKind, ConfigError, Decision, Limiter, ManualClock,
    RateLimitLayer, Rejection, RejectionPolicy, Rule, TokenBucket,
    backend::{Answer, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts},
    clock::Nanos,
};

use crate::{
    config,
    executor::{First, Tasks},
    subjects::{clock, request, served},
    ways::first,
};

/// What the store says to one question.
#[derive(Clone, Copy, Debug)]
enum Said {
    /// Allowed, to depart after so many 255ths of the longest wait.
    Allow(u8),
    Deny(u64),
    Never,
    Fail,
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        3 => prop_oneof![Just(0), any::<u8>()].prop_map(Said::Allow),
        5 => (1..40_u64).prop_map(Said::Deny),
        1 => Just(Said::Never),
        1 => Just(Said::Fail),
    ]
}

fn departure(part: u8, longest: u64) -> u64 {
    longest * u64::from(part) / 255
}

/// A store that answers by a script for each request, which is told by its cost.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    scripts: HashMap<u64, VecDeque<Said>>,
    /// Who asked, when, and how long he may wait.
    asked: Vec<(u64, u64, u64)>,
    undone: Vec<u64>,
}

impl Backend for Store {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        let (mut told, charge) = (self.0.lock().unwrap(), charges[0]);
        let (who, longest) = (charge.cost(), charge.longest_wait().as_nanos() as u64);
        told.asked.push((who, now.get(), longest));
        let said = told.scripts.get_mut(&who).and_then(VecDeque::pop_front);
        let receipt = Receipt::new(LimiterId(0), [who, 0, 0, 0]);
        let allowed = Verdict::new(Decision::allowed(9, 9, Duration::ZERO), receipt);
        let verdict = match said.unwrap_or(Said::Allow(0)) {
            Said::Allow(part) => {
                allowed.depart_after(Duration::from_nanos(departure(part, longest)))
            }
            Said::Deny(wait) => {
                let wait = Duration::from_nanos(wait);
                Verdict::new(Decision::denied(9, 0, wait, wait), receipt)
            }
            Said::Never => Verdict::new(Decision::never(9, 0, Duration::ZERO), receipt),
            Said::Fail => {
                return Answer::Ready(Err(BackendError::new(BackendErrorKind::Timeout, "away")));
            }
        };
        Answer::Ready(Ok([verdict].into_iter().collect()))
    }

    fn undo(&self, _: Nanos, receipts: &[Receipt]) {
        let undone = receipts.iter().map(|receipt| receipt.words()[0]);
        self.0.lock().unwrap().undone.extend(undone);
    }

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Ready(Ok(Decision::allowed(9, 9, Duration::ZERO)))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Admitted,
    Refused(Option<Duration>),
    Failed,
}

/// What one of those who wait does next.
#[derive(Clone, Copy, Debug)]
enum Waits {
    /// Asks again then; so often it may.
    Asks(u64, u32),
    Departs(u64),
}

#[derive(Clone, Debug)]
enum Event {
    Arrive(Vec<Said>),
    Leave(Index),
    Advance(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => vec(said(), 0..5).prop_map(Event::Arrive),
        1 => any::<Index>().prop_map(Event::Leave),
        3 => (0..30_u64).prop_map(Event::Advance),
    ]
}

/// As many as the rule of this process gives; more than ever come.
const MANY: u64 = 1_000;

struct Scene {
    clock: ManualClock,
    now: u64,
    here: Limiter,
    store: Store,
    layer: RateLimitLayer,
    longest: u64,
    depth: usize,
    tasks: Tasks<End>,
    first: First,
    scripts: HashMap<usize, VecDeque<Said>>,
    /// Who waits, and the end of his longest wait.
    waiting: BTreeMap<usize, (Waits, u64)>,
    admitted: u64,
    asked: Vec<(u64, u64, u64)>,
    undone: Vec<u64>,
    came: usize,
}

impl Scene {
    fn new(longest: u64, depth: usize, first: First) -> Self {
        let clock = clock(0, Duration::ZERO);
        let here = TokenBucket::per_day(1).burst(MANY).limiter().name("here").clock(clock.clone());
        let (here, store) = (here.build().unwrap(), Store::default());
        let far = Rule::new("far", TokenBucket::per_second(MANY)).backend(store.clone());
        let far =
            far.spread(false).cost_fn(|head| head.header_str("x-cost").unwrap().parse().unwrap());
        let queue = RejectionPolicy::queue(Duration::from_nanos(longest), depth as u64);
        let layer = RateLimitLayer::builder()
            .rule(Rule::on(here.clone()))
            .rule(far)
            .rejection(queue)
            .expose_rejection()
            .build()
            .unwrap();
        Self {
            clock,
            now: 0,
            here,
            store,
            layer,
            longest,
            depth,
            tasks: Tasks::default(),
            first,
            scripts: HashMap::new(),
            waiting: BTreeMap::new(),
            admitted: 0,
            asked: Vec::new(),
            undone: Vec::new(),
            came: 0,
        }
    }

    /// What comes of one question; `None` where he waits on.
    fn ask(&mut self, id: usize, until: u64, again: u32, has_place: bool) -> Option<End> {
        let left = until - self.now;
        self.asked.push((id as u64, self.now, left));
        let said = self.scripts.get_mut(&id).and_then(VecDeque::pop_front);
        let (waits, wait) = match said.unwrap_or(Said::Allow(0)) {
            Said::Allow(part) if departure(part, left) == 0 => {
                self.admitted += 1;
                return Some(End::Admitted);
            }
            Said::Allow(part) => {
                let wait = departure(part, left);
                if !has_place {
                    self.undone.push(id as u64);
                }
                (Waits::Departs(self.now + wait), wait)
            }
            Said::Deny(wait) if again > 0 => (Waits::Asks(self.now + wait, again - 1), wait),
            Said::Deny(wait) => return Some(End::Refused(Some(Duration::from_nanos(wait)))),
            Said::Never => return Some(End::Refused(None)),
            Said::Fail => return Some(End::Failed),
        };
        if wait > left || !has_place {
            return Some(End::Refused(Some(Duration::from_nanos(wait))));
        }
        self.waiting.insert(id, (waits, until));
        None
    }

    fn arrive(&mut self, script: &[Said]) -> Result<(), TestCaseError> {
        // Costs begin at one, and a cost tells who it is.
        self.came += 1;
        let (id, layer) = (self.came, self.layer.clone());
        self.scripts.insert(id, script.iter().copied().collect());
        self.store.0.lock().unwrap().scripts.insert(id as u64, script.iter().copied().collect());
        let has_place = self.waiting.len() < self.depth;
        let until = self.now + self.longest;
        // A newcomer does not ask before those who are to ask again.
        let ahead = self.waiting.values().find_map(|(waits, _)| match *waits {
            Waits::Asks(at, _) => Some(at.saturating_sub(self.now).max(1)),
            Waits::Departs(_) => None,
        });
        let expected = match ahead {
            None => self.ask(id, until, 2, has_place),
            Some(wait) if has_place && wait <= self.longest => {
                // He asks twice at most, as those do who asked before.
                self.waiting.insert(id, (Waits::Asks(self.now + wait, 1), until));
                None
            }
            Some(wait) => Some(End::Refused(Some(Duration::from_nanos(wait)))),
        };
        self.tasks.spawn(id, async move {
            let request: Request<Body> = request(0, id as u64);
            let answer = layer.layer(service_fn(served)).oneshot(request).await.unwrap();
            match (answer.status(), answer.extensions().get::<Rejection>()) {
                (StatusCode::OK, _) => End::Admitted,
                (StatusCode::TOO_MANY_REQUESTS, Some(why)) => End::Refused(why.retry_after()),
                _ => End::Failed,
            }
        });
        prop_assert_eq!(self.tasks.poll(id), expected, "{}", id);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), TestCaseError> {
        let mut expected = BTreeMap::new();
        // In the order they came; the first of those who ask holds up the others, up to their longest waits.
        let mut is_first = true;
        for (id, (waits, until)) in self.waiting.clone() {
            let end = match waits {
                Waits::Departs(at) if at <= self.now => {
                    self.waiting.remove(&id);
                    self.admitted += 1;
                    Some(End::Admitted)
                }
                Waits::Asks(at, again) if is_first && at <= self.now => {
                    self.waiting.remove(&id);
                    let end = self.ask(id, until, again, true);
                    let asks = self.waiting.get(&id);
                    is_first = !matches!(asks, Some((Waits::Asks(..), _)));
                    end
                }
                // Not the first, and his longest wait is over.
                Waits::Asks(..) if !is_first && until < self.now => {
                    self.waiting.remove(&id);
                    let first = self.waiting.values().find_map(|(waits, _)| match *waits {
                        Waits::Asks(at, _) => Some(at),
                        Waits::Departs(_) => None,
                    });
                    let wait = first.map_or(1, |at| at.saturating_sub(self.now).max(1));
                    Some(End::Refused(Some(Duration::from_nanos(wait))))
                }
                Waits::Asks(..) => {
                    is_first = false;
                    None
                }
                Waits::Departs(_) => None,
            };
            expected.extend(end.map(|end| (id, end)));
        }
        let done: BTreeMap<_, _> = self.tasks.run(self.first).into_iter().collect();
        prop_assert_eq!(done, expected, "at {}", self.now);
        self.check()
    }

    fn advance(&mut self, to: u64) -> Result<(), TestCaseError> {
        while self.now < to {
            let mut is_first = true;
            let at = |(waits, until): &(Waits, u64)| match *waits {
                Waits::Asks(at, _) if std::mem::take(&mut is_first) => at,
                Waits::Asks(..) => until + 1,
                Waits::Departs(at) => at,
            };
            let next = self.waiting.values().map(at).min();
            self.now = next.map_or(to, |at| at.min(to)).max(self.now + 1);
            self.clock.set(Nanos::new(self.now));
            self.settle()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let departing = self.waiting.values().filter(|(w, _)| matches!(w, Waits::Departs(_)));
        let left = MANY - self.admitted - departing.count() as u64;
        prop_assert_eq!(self.here.peek(0).remaining(), left, "at {}", self.now);
        prop_assert!(self.waiting.len() <= self.depth);
        let told = self.store.0.lock().unwrap();
        let sorted = |asked: &[(u64, u64, u64)]| {
            let mut asked = asked.to_vec();
            asked.sort_unstable();
            asked
        };
        prop_assert_eq!(sorted(&told.asked), sorted(&self.asked));
        prop_assert_eq!(&told.undone, &self.undone);
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn who_waits_for_another_backend_departs_or_asks_again_when_that_says(
        longest in 1..60_u64,
        depth in 1..5_usize,
        first in first(),
        events in vec(event(), 1..25),
    ) {
        let mut scene = Scene::new(longest, depth, first);
        for event in events {
            match event {
                Event::Arrive(script) => scene.arrive(&script)?,
                Event::Leave(index) => {
                    let ids: Vec<_> = scene.waiting.keys().copied().collect();
                    if !ids.is_empty() {
                        let id = ids[index.index(ids.len())];
                        scene.tasks.drop_task(id);
                        if let Some((Waits::Departs(_), _)) = scene.waiting.remove(&id) {
                            scene.undone.push(id as u64);
                        }
                    }
                }
                Event::Advance(step) => scene.advance(scene.now + step)?,
            }
            scene.check()?;
        }
        // Twice more it asks at most, so that all are through soon.
        scene.advance(scene.now + 200)?;
        prop_assert_eq!(scene.tasks.ids(), Vec::<usize>::new());
    }
}
