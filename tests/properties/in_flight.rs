//! What is in flight, beside a slow model: counts, lines and longest waits, whatever comes, goes or is changed.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    convert::Infallible,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use proptest::{collection::vec, prelude::*, sample::Index};
use tower::{Layer, Service, ServiceExt};
use tower_sluice::{
    InFlight, ManualClock, Missing, RateLimitLayer, RejectionPolicy, clock::Nanos,
    in_flight::Permit, key,
};

use crate::{
    config,
    executor::{First, Tasks},
    subjects::{Keys, clock, endless, request},
    ways::first,
};

/// How somebody comes, and what he does with his permit.
#[derive(Clone, Copy, Debug)]
enum Way {
    Try,
    Acquire(u64),
    /// By one of the layers that let wait, or by the one that does not.
    Layer(usize, Does),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Answers with a body that does not end.
    Body,
    /// The inner service does not answer.
    Work,
    /// If it waited, the inner service does not get ready again.
    Stall,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Way, u8),
    /// One who waits is gone, or one who has a permit is done.
    Go(Index),
    SetLimit(u32),
    /// So much later; who is woken then is polled after what comes next, if that is wanted.
    Advance(u64, bool),
    Poke(Index),
}

fn way() -> impl Strategy<Value = Way> {
    let does = prop_oneof![Just(Does::Body), Just(Does::Work), Just(Does::Stall)];
    prop_oneof![
        1 => Just(Way::Try),
        2 => (0..40_u64).prop_map(Way::Acquire),
        4 => (0..3_usize, does).prop_map(|(layer, does)| Way::Layer(layer, does)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (way(), 0..3_u8).prop_map(|(way, key)| Event::Arrive(way, key)),
        6 => any::<Index>().prop_map(Event::Go),
        1 => (1..5_u32).prop_map(Event::SetLimit),
        4 => (0..20_u64, any::<bool>()).prop_map(|(step, hold)| Event::Advance(step, hold)),
        1 => any::<Index>().prop_map(Event::Poke),
    ]
}

/// The numbers of those whom the inner service was called for.
type Called = Rc<RefCell<Vec<usize>>>;

/// The service behind a layer, for one request.
struct Inner {
    id: usize,
    does: Does,
    called: Called,
    is_clone: bool,
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        Self { called: Rc::clone(&self.called), is_clone: true, ..*self }
    }
}

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.does {
            Does::Stall if self.is_clone => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.called.borrow_mut().push(self.id);
        match self.does {
            Does::Body => Box::pin(endless(request)),
            Does::Work | Does::Stall => Box::pin(std::future::pending()),
        }
    }
}

/// What is given who is admitted: a permit, or a response whose body has one.
#[derive(Debug)]
enum Kept {
    Permit(#[expect(dead_code, reason = "kept until it is dropped")] Permit),
    Response(#[expect(dead_code, reason = "kept until it is dropped")] Response<Body>),
}

/// The model of one key.
#[derive(Debug, Default)]
struct Line {
    /// Who has a permit, polled since or not.
    has: Vec<usize>,
    /// Who waits, and until when.
    waits: Vec<(usize, u64)>,
}

struct Scene {
    keys: Keys,
    clock: ManualClock,
    now: u64,
    flight: InFlight,
    limit: usize,
    layers: [RateLimitLayer; 3],
    bounds: [(u64, u64); 2],
    lines: BTreeMap<u8, Line>,
    does: BTreeMap<usize, Option<Does>>,
    tasks: Tasks<Option<Kept>>,
    first: First,
    kept: BTreeMap<usize, Kept>,
    called: Called,
    came: usize,
}

impl Scene {
    fn new(keys: Keys, limit: u32, bounds: [(u64, u64); 2], first: First) -> Self {
        let clock = clock(0, Duration::ZERO);
        let flight = InFlight::new("flight", limit).clock(clock.clone());
        let layer = |policy: RejectionPolicy| {
            let flight = match keys {
                Keys::One => flight.clone(),
                Keys::Many => flight.clone().key(key::header("x-key")).missing(Missing::Skip),
            };
            RateLimitLayer::builder().in_flight(flight).rejection(policy).build().unwrap()
        };
        let [a, b] = bounds
            .map(|(longest, depth)| RejectionPolicy::queue(Duration::from_nanos(longest), depth));
        Self {
            layers: [layer(a), layer(b), layer(RejectionPolicy::respond())],
            keys,
            clock,
            now: 0,
            flight,
            limit: limit as usize,
            bounds,
            lines: (0..3).map(|key| (key, Line::default())).collect(),
            does: BTreeMap::new(),
            tasks: Tasks::default(),
            first,
            kept: BTreeMap::new(),
            called: Called::default(),
            came: 0,
        }
    }

    fn waiting(&self) -> usize {
        self.lines.values().map(|line| line.waits.len()).sum()
    }

    /// The future of one who comes.
    fn come(&mut self, id: usize, way: Way, key: u8) {
        let (flight, keys, name) = (self.flight.clone(), self.keys, format!("key-{key}"));
        match way {
            Way::Try => self.tasks.spawn(id, async move {
                match keys {
                    Keys::One => flight.try_acquire(),
                    Keys::Many => flight.try_acquire_by(&*name),
                }
                .map(Kept::Permit)
            }),
            Way::Acquire(longest) => self.tasks.spawn(id, async move {
                let longest = Duration::from_nanos(longest);
                match keys {
                    Keys::One => flight.acquire(longest).await,
                    Keys::Many => flight.acquire_by(&*name, longest).await,
                }
                .map(Kept::Permit)
            }),
            Way::Layer(which, does) => {
                let called = Rc::clone(&self.called);
                let inner = Inner { id, does, called, is_clone: false };
                let service = self.layers[which].layer(inner);
                self.tasks.spawn(id, async move {
                    let answer = service.oneshot(request(key, 1)).await.unwrap();
                    answer.status().is_success().then_some(Kept::Response(answer))
                });
            }
        }
    }

    fn arrive(&mut self, way: Way, key: u8) -> Result<(), TestCaseError> {
        let id = self.came;
        self.came += 1;
        let (longest, depth) = match way {
            Way::Try | Way::Layer(2, _) => (None, 0),
            Way::Acquire(longest) => (Some(longest), u64::MAX),
            Way::Layer(which, _) => (Some(self.bounds[which].0), self.bounds[which].1),
        };
        let does = if let Way::Layer(_, does) = way { Some(does) } else { None };
        let is_shared = self.keys == Keys::Many && matches!(way, Way::Layer(..));
        let of_key = if is_shared { (depth / 2).max(1) } else { depth };
        let (now, waiting, limit) = (self.now, self.waiting() as u64, self.limit);
        let line = self.lines.entry(key).or_default();
        let is_free = line.waits.is_empty() && line.has.len() < limit;
        let has_place = waiting < depth && (line.waits.len() as u64) < of_key;
        let until = longest.map(|longest| now + longest);
        // Who may not wait at all is at the end of his wait when he comes.
        let waits = !is_free && has_place && until > Some(now);
        if is_free {
            line.has.push(id);
        } else if let Some(until) = until.filter(|_| waits) {
            line.waits.push((id, until));
        }
        self.does.insert(id, does);
        self.come(id, way, key);
        let done = self.tasks.poll(id);
        let is_called = self.called.borrow().last() == Some(&id);
        prop_assert_eq!(is_called, is_free && does.is_some());
        match done {
            Some(Some(kept)) => {
                prop_assert!(is_free, "{} overtakes", id);
                self.kept.insert(id, kept);
            }
            Some(None) => prop_assert!(!is_free && !waits, "{} is refused", id),
            None => prop_assert!(waits || is_called),
        }
        Ok(())
    }

    /// Hands over what is free, in order.
    fn fill(&mut self) {
        for line in self.lines.values_mut() {
            while line.has.len() < self.limit && !line.waits.is_empty() {
                line.has.push(line.waits.remove(0).0);
            }
        }
    }

    /// Polls who is woken: those with a permit start, and whose wait is over are refused.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let now = self.now;
        let mut over = Vec::new();
        for line in self.lines.values_mut() {
            over.extend(line.waits.extract_if(.., |(_, until)| *until <= now).map(|(id, _)| id));
        }
        for (id, kept) in self.tasks.run(self.first) {
            match kept {
                Some(kept) => drop(self.kept.insert(id, kept)),
                None => {
                    prop_assert!(over.contains(&id), "{} is refused at {}", id, now);
                    over.retain(|other| *other != id);
                }
            }
        }
        prop_assert_eq!(over, Vec::<usize>::new(), "should not wait on at {}", now);
        for id in self.lines.values().flat_map(|line| &line.has) {
            let is_called = self.called.borrow().contains(id);
            match self.does[id] {
                None => prop_assert!(self.kept.contains_key(id)),
                Some(Does::Body) => prop_assert!(is_called && self.kept.contains_key(id)),
                Some(Does::Work) => prop_assert!(is_called),
                Some(Does::Stall) => {}
            }
        }
        let called = self.called.borrow();
        for (id, _) in self.lines.values().flat_map(|line| &line.waits) {
            prop_assert!(!called.contains(id) && !self.kept.contains_key(id), "{} overtakes", id);
        }
        Ok(())
    }

    fn advance(&mut self, to: u64, hold: bool) -> Result<(), TestCaseError> {
        loop {
            let ends = self.lines.values().flat_map(|line| &line.waits).map(|(_, until)| *until);
            let next = ends.filter(|until| *until < to).min().unwrap_or(to);
            self.now = next.max(self.now);
            self.clock.set(Nanos::new(self.now));
            if next < to || !hold {
                self.settle()?;
            }
            if next >= to {
                return Ok(());
            }
        }
    }

    fn everybody(&self) -> Vec<(u8, usize)> {
        let of = |(key, line): (&u8, &Line)| {
            let waits = line.waits.iter().map(|(id, _)| *id);
            line.has.iter().copied().chain(waits).map(|id| (*key, id)).collect::<Vec<_>>()
        };
        self.lines.iter().flat_map(of).collect()
    }

    fn go(&mut self, key: u8, id: usize) {
        self.tasks.drop_task(id);
        self.kept.remove(&id);
        let line = self.lines.entry(key).or_default();
        line.has.retain(|other| *other != id);
        line.waits.retain(|(other, _)| *other != id);
        self.fill();
    }

    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        let everybody = self.everybody();
        let one =
            |index: Index| (!everybody.is_empty()).then(|| everybody[index.index(everybody.len())]);
        match event {
            Event::Arrive(way, key) => {
                self.arrive(way, if self.keys == Keys::One { 0 } else { key })?;
            }
            Event::Go(index) => {
                if let Some((key, id)) = one(index) {
                    self.go(key, id);
                }
            }
            Event::SetLimit(limit) => {
                self.limit = limit as usize;
                self.flight.set_limit(limit).unwrap();
                self.fill();
            }
            Event::Advance(step, hold) => self.advance(self.now + step, hold)?,
            Event::Poke(index) => {
                // Whoever has nothing yet and may still wait gets nothing by being polled.
                if let Some((_, id)) = one(index)
                    && let waits = self.lines.values().flat_map(|line| &line.waits)
                    && waits.clone().any(|(other, until)| *other == id && *until > self.now)
                {
                    prop_assert!(self.tasks.poll(id).is_none());
                }
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let has = self.lines.values().map(|line| line.has.len() as u64);
        prop_assert_eq!(self.flight.in_flight(), has.sum::<u64>());
        prop_assert_eq!(self.flight.waiting(), self.waiting() as u64);
        prop_assert_eq!(self.flight.limit(), self.limit as u64);
        if self.keys == Keys::Many {
            let known = self.lines.values().filter(|l| !l.has.is_empty() || !l.waits.is_empty());
            prop_assert_eq!(self.flight.tracked_keys(), known.count() as u64);
            for (key, line) in &self.lines {
                let count = self.flight.in_flight_by(&*format!("key-{key}"));
                prop_assert_eq!(count, line.has.len() as u64);
            }
        }
        Ok(())
    }

    fn end(&mut self, all_at_once: bool) -> Result<(), TestCaseError> {
        if all_at_once {
            self.tasks = Tasks::default();
            self.kept.clear();
            self.lines.values_mut().for_each(|line| *line = Line::default());
            return self.check();
        }
        // Everybody has his turn, one after the other.
        while let Some((key, id)) = self.everybody().first().copied() {
            self.settle()?;
            self.go(key, id);
            self.check()?;
        }
        prop_assert_eq!(self.tasks.ids(), Vec::<usize>::new());
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_in_flight_is_counted_and_handed_over_in_order(
        keys in prop_oneof![Just(Keys::One), Just(Keys::Many)],
        limit in 1..4_u32,
        bounds in [(1..40_u64, 1..6_u64), (1..40_u64, 1..6_u64)],
        first in first(),
        events in vec(event(), 1..40),
        all_at_once in any::<bool>(),
    ) {
        let mut scene = Scene::new(keys, limit, bounds, first);
        for event in events {
            scene.step(event)?;
        }
        scene.end(all_at_once)?;
    }
}
