//! Waiting for several rules together, and for permits in flight: nobody after his longest wait, all charged or
//! none, nothing held by those who wait, and everybody in the end who stays.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use axum::body::Body;
use http::{HeaderName, Response};
use proptest::{collection::vec, option, prelude::*, sample::Index};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Decision, InFlight, Missing, RateLimitLayer, Rejection, RejectionPolicy, Rule, TokenBucket,
    key, testing::ScriptedBackend,
};

use crate::{
    config,
    executor::{Alarms, First, Tasks},
    models::{Expected, Model, Numbers},
    quotas::{Cost, Exact, Span, cost, epoch, exact, span},
    subjects::{clock, endless, now as ready_now, request},
    ways::first,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Whoever is not the first is still let in at the end of his longest wait, and so is refused after it.
const TICK: Duration = Duration::from_nanos(1);

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(u8, [Cost; 3]),
    Leave(Index),
    /// Somebody who was admitted is done.
    Finish(Index),
    /// Somebody takes a permit of one limit by himself.
    Take(usize),
    Advance(usize, Span),
    Poke(Index),
    /// A rule forgets a key.
    Reset(usize, u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..2_u8, [cost(), cost(), cost()]).prop_map(|(key, costs)| Event::Arrive(key, costs)),
        2 => any::<Index>().prop_map(Event::Leave),
        4 => any::<Index>().prop_map(Event::Finish),
        2 => (0..2_usize).prop_map(Event::Take),
        5 => (0..3_usize, span()).prop_map(|(scale, span)| Event::Advance(scale, span)),
        1 => any::<Index>().prop_map(Event::Poke),
        1 => (0..3_usize, 0..2_u8).prop_map(|(rule, key)| Event::Reset(rule, key)),
    ]
}

#[derive(Clone, Debug)]
struct Setting {
    /// With whether each counts per key.
    rules: Vec<(Exact, bool)>,
    in_flight: Vec<u32>,
    /// Whether there is a rule that counts elsewhere: what that says, again and again.
    far: Option<Vec<Option<Span>>>,
    /// Everybody may wait for ever, or so many times a span.
    longest: Option<(usize, u8, Span)>,
    depth: u64,
    told: bool,
}

fn setting() -> impl Strategy<Value = Setting> {
    let longest = option::weighted(0.7, (0..3_usize, 1..6_u8, span()));
    let depth = prop_oneof![1..6_u64, Just(1_000)];
    let in_flight = vec(1..4_u32, 0..=2);
    let far = option::weighted(0.3, vec(option::of(span()), 1..6));
    let rules = vec((exact(), any::<bool>()), 1..=3);
    (rules, in_flight, far, longest, depth, any::<bool>()).prop_map(
        |(rules, in_flight, far, longest, depth, told)| Setting {
            rules,
            in_flight,
            far,
            longest,
            depth,
            told,
        },
    )
}

/// What an admitted one holds: a response whose body has not ended.
type Answer = Result<Response<Body>, Option<Duration>>;

struct Scene {
    setting: Setting,
    epoch: (u64, Duration),
    alarms: Alarms,
    layer: RateLimitLayer,
    flights: Vec<InFlight>,
    longest: Duration,
    tasks: Tasks<Answer>,
    first: First,
    models: HashMap<(usize, u8), Model>,
    /// Who waits: since when, and what he asks for.
    waiting: BTreeMap<usize, (u64, u8, Vec<u64>)>,
    /// Answers, with a permit of each limit in flight, and permits of one.
    held: Vec<(Option<usize>, Box<dyn Any>)>,
    came: usize,
}

impl Scene {
    fn new(setting: Setting, epoch: (u64, Duration), first: First) -> Self {
        let alarms = Alarms::of(clock(epoch.0, epoch.1));
        let longest = match setting.longest {
            None => Duration::MAX,
            Some((scale, times, span)) => {
                let quota = setting.rules[scale % setting.rules.len()].0.algorithm.quota();
                Duration::from_nanos((u64::from(times) * span.nanos(quota)).max(1))
            }
        };
        let mut builder = RateLimitLayer::builder()
            .clock(alarms.clone())
            .expose_rejection()
            .rejection(RejectionPolicy::queue(longest, setting.depth));
        if setting.told {
            builder = builder.expose_decision();
        }
        for ((exact, keyed), name) in setting.rules.iter().zip(NAMES) {
            let rule = Rule::new(name, exact.algorithm).spread(false).cost_fn(move |head| {
                head.header_str(&format!("x-{name}")).unwrap().parse().unwrap()
            });
            builder = builder.rule(match keyed {
                true => rule.key(key::header("x-key")).missing(Missing::Skip).max_keys(8),
                false => rule,
            });
        }
        let flights = setting.in_flight.iter().enumerate();
        let flights: Vec<_> = flights.map(|(n, l)| InFlight::new(format!("f{n}"), *l)).collect();
        for flight in &flights {
            builder = builder.in_flight(flight.clone());
        }
        if let Some(said) = setting.far.clone() {
            let quota = setting.rules[0].0.algorithm.quota();
            let backend = ScriptedBackend::from_fn(move |charge| {
                match said[charge.serial as usize % said.len()] {
                    None => Decision::allowed(9, 9, Duration::ZERO),
                    Some(span) => {
                        let wait = Duration::from_nanos(span.nanos(quota));
                        Decision::denied(9, 0, wait, wait)
                    }
                }
            });
            builder = builder.rule(Rule::new("far", TokenBucket::per_second(9)).backend(backend));
        }
        Self {
            layer: builder.build().unwrap(),
            setting,
            epoch,
            alarms,
            flights,
            longest,
            tasks: Tasks::default(),
            first,
            models: HashMap::new(),
            waiting: BTreeMap::new(),
            held: Vec::new(),
            came: 0,
        }
    }

    fn arrive(&mut self, key: u8, costs: [Cost; 3]) -> Result<(), TestCaseError> {
        let mut request = request(key, 0);
        let rules = self.setting.rules.iter().zip(costs);
        let costs: Vec<u64> =
            rules.map(|((exact, _), cost)| cost.permits(exact.algorithm.quota())).collect();
        for (name, cost) in NAMES.iter().zip(&costs) {
            let name: HeaderName = format!("x-{name}").parse().unwrap();
            request.headers_mut().insert(name, (*cost).into());
        }
        let (id, layer) = (self.came, self.layer.clone());
        self.came += 1;
        self.waiting.insert(id, (self.alarms.get(), key, costs));
        self.tasks.spawn(id, async move {
            let answer = layer.layer(service_fn(endless)).oneshot(request).await.unwrap();
            if answer.status().is_success() {
                return Ok(answer);
            }
            Err(answer.extensions().get::<Rejection>().and_then(Rejection::retry_after))
        });
        let done = self.tasks.poll(id);
        done.map_or(Ok(()), |answer| self.settled(id, answer))
    }

    fn model(&mut self, rule: usize, key: u8) -> &mut Model {
        let (exact, keyed) = self.setting.rules[rule];
        let (built, utc) = self.epoch;
        let key = if keyed { key } else { 0 };
        self.models.entry((rule, key)).or_insert_with(|| exact.model(built, utc))
    }

    fn settled(&mut self, id: usize, answer: Answer) -> Result<(), TestCaseError> {
        let now = self.alarms.get();
        let (since, key, costs) = self.waiting.remove(&id).unwrap();
        let waited = Duration::from_nanos(now - since);
        match answer {
            Ok(answer) => {
                prop_assert!(waited <= self.longest, "{} waited from {} to {}", id, since, now);
                for (rule, cost) in costs.iter().enumerate() {
                    prop_assert!(self.model(rule, key).charge(now, *cost), "{} on {}", id, rule);
                }
                self.held.push((None, Box::new(answer)));
            }
            Err(wait) => {
                prop_assert!(waited <= self.longest.saturating_add(TICK), "{} at {}", id, now);
                let rules = self.setting.rules.iter().zip(&costs);
                let never = rules
                    .clone()
                    .any(|((rule, _), cost)| *cost > rule.algorithm.quota().max_burst());
                prop_assert!(never || self.may_refuse(), "{} could wait for ever", id);
                prop_assert!(never == wait.is_none());
                if let Some(wait) = wait {
                    prop_assert!(
                        wait.as_nanos() <= self.bound(),
                        "told to come back in {:?}",
                        wait
                    );
                }
            }
        }
        Ok(())
    }

    /// Whether somebody may be refused who might fit one day.
    fn may_refuse(&self) -> bool {
        let Setting { longest, depth, far, .. } = &self.setting;
        longest.is_some() || *depth < 1_000 || far.is_some()
    }

    /// What nobody need wait longer for, if all go one after the other.
    fn bound(&self) -> u128 {
        let whole = |(exact, _): &(Exact, bool)| {
            let Numbers { permits, period, burst } = exact.algorithm.quota().into();
            (burst * period).div_ceil(permits).max(period)
        };
        self.setting.rules.iter().map(whole).sum::<u128>() * (self.came as u128 + 1) + 1_000_000_000
    }

    fn run(&mut self) -> Result<(), TestCaseError> {
        for (id, answer) in self.tasks.run(self.first) {
            self.settled(id, answer)?;
        }
        for (index, flight) in self.flights.iter().enumerate() {
            let of = self.held.iter().filter(|(of, _)| of.is_none_or(|of| of == index));
            prop_assert_eq!(flight.in_flight(), of.count() as u64);
            prop_assert!(flight.in_flight() <= flight.limit());
        }
        let now = self.alarms.get();
        let waiting = self.waiting.values().filter(|(since, ..)| {
            Duration::from_nanos(now - since) > self.longest.saturating_add(TICK)
        });
        prop_assert_eq!(waiting.count(), 0, "somebody waits too long");
        for rule in 0..self.setting.rules.len() {
            for key in 0..=u8::from(self.setting.rules[rule].1) {
                let said = self.peek(rule, key, 0);
                prop_assert_eq!(said, self.model(rule, key).peek(now, 0), "rule {}", rule);
            }
        }
        Ok(())
    }

    fn peek(&self, rule: usize, key: u8, cost: u64) -> Expected {
        let (handle, name) = (self.layer.handle(), format!("key-{key}"));
        let said = match self.setting.rules[rule].1 {
            true => ready_now(handle.peek(NAMES[rule], &*name, cost)),
            false => ready_now(handle.peek(NAMES[rule], (), cost)),
        };
        Expected::of(&said.unwrap())
    }

    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Arrive(key, costs) => self.arrive(key, costs)?,
            Event::Leave(index) => {
                let ids = self.tasks.ids();
                if !ids.is_empty() {
                    let id = ids[index.index(ids.len())];
                    self.tasks.drop_task(id);
                    self.waiting.remove(&id);
                }
            }
            Event::Finish(index) => {
                if !self.held.is_empty() {
                    self.held.remove(index.index(self.held.len()));
                }
            }
            Event::Take(index) => {
                let permit = self.flights.get(index).and_then(InFlight::try_acquire);
                let held = permit.map(|permit| (Some(index), Box::new(permit) as Box<dyn Any>));
                self.held.extend(held);
            }
            Event::Advance(scale, span) => {
                let quota =
                    self.setting.rules[scale % self.setting.rules.len()].0.algorithm.quota();
                let to = self.alarms.get() + span.nanos(quota);
                while let Some(next) = self.alarms.next().filter(|next| *next < to) {
                    self.alarms.set(next);
                    self.run()?;
                }
                self.alarms.set(to);
            }
            Event::Reset(rule, key) => {
                let rule = rule % self.setting.rules.len();
                let ((exact, keyed), (built, utc)) = (self.setting.rules[rule], self.epoch);
                let handle = self.layer.handle();
                match keyed {
                    true => ready_now(handle.reset(NAMES[rule], &*format!("key-{key}"))),
                    false => ready_now(handle.reset(NAMES[rule], ())),
                }
                .unwrap();
                *self.model(rule, key) = exact.model(built, utc);
            }
            Event::Poke(index) => {
                let ids = self.tasks.ids();
                if !ids.is_empty() {
                    let id = ids[index.index(ids.len())];
                    if let Some(answer) = self.tasks.poll(id) {
                        self.settled(id, answer)?;
                    }
                }
            }
        }
        self.run()
    }

    fn end(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..2_000 {
            if self.tasks.ids().is_empty() {
                break;
            }
            self.held.clear();
            self.run()?;
            // An alarm that nobody comes to in centuries is none.
            if let Some(next) = self.alarms.next().filter(|next| *next < u64::MAX) {
                self.alarms.set(next);
                self.run()?;
            }
        }
        prop_assert_eq!(self.tasks.ids(), Vec::<usize>::new());
        self.held.clear();
        for flight in &self.flights {
            prop_assert_eq!((flight.in_flight(), flight.waiting()), (0, 0));
        }
        let now = self.alarms.get();
        for rule in 0..self.setting.rules.len() {
            let expected = self.model(rule, 0).peek(now, 1);
            prop_assert_eq!(self.peek(rule, 0, 1), expected, "somebody is left");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn who_waits_for_several_limits_is_charged_by_all_and_not_late(
        setting in setting(),
        epoch in epoch(),
        first in first(),
        events in vec(event(), 1..25),
    ) {
        let mut scene = Scene::new(setting, epoch, first);
        for event in events {
            scene.step(event)?;
        }
        scene.end()?;
    }
}
