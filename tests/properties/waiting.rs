//! Waiting for one rule, by every way there is, beside a slow model: who is admitted, exactly when, and who is
//! refused with what number; nothing is late.

use std::{collections::BTreeMap, time::Duration};

use proptest::{collection::vec, prelude::*, sample::Index};
use tower_sluice::{Algorithm, ManualClock, clock::Nanos};

use crate::{
    bucket::keys,
    config,
    executor::{First, Tasks},
    models::Expected,
    places::{Room, Waiter},
    quotas::{Cost, Exact, Span, cost, epoch, exact, span},
    subjects::{Keys, clock},
    ways::{Outcome, Queue, Way, Ways, first, queue, way},
};

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Way, u8, Cost),
    /// One who waits is gone.
    Leave(Index),
    /// Goes on in time. Who is due at its end is polled only after what comes next, if that is wanted.
    Advance(Span, bool),
    /// Goes to where a newcomer is told to come back.
    ComeBack(u8, Cost),
    /// One is polled without having been woken.
    Poke(Index),
    Reset(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let key = 0..3_u8;
    let event = prop_oneof![
        12 => (way(), key.clone(), cost()).prop_map(|(way, key, cost)| Event::Arrive(way, key, cost)),
        4 => any::<Index>().prop_map(Event::Leave),
        6 => (span(), any::<bool>()).prop_map(|(span, hold)| Event::Advance(span, hold)),
        2 => (key.clone(), cost()).prop_map(|(key, cost)| Event::ComeBack(key, cost)),
        2 => any::<Index>().prop_map(Event::Poke),
        1 => key.prop_map(Event::Reset),
    ];
    vec(event, 1..30)
}

/// What is tried, and the model beside it.
struct Scene {
    exact: Exact,
    epoch: (u64, Duration),
    keys: Keys,
    clock: ManualClock,
    now: u64,
    ways: Ways,
    tasks: Tasks<Outcome>,
    first: First,
    rooms: BTreeMap<u8, Room>,
    came: usize,
}

impl Scene {
    fn new(
        exact: Exact,
        epoch: (u64, Duration),
        keys: Keys,
        queues: [Queue; 2],
        first: First,
    ) -> Self {
        let clock = clock(epoch.0, epoch.1);
        Self {
            exact,
            epoch,
            keys,
            ways: Ways::new(exact, keys, queues, &clock),
            clock,
            now: epoch.0,
            tasks: Tasks::default(),
            first,
            rooms: BTreeMap::new(),
            came: 0,
        }
    }

    fn whose(&self, key: u8) -> u8 {
        if self.keys == Keys::One { 0 } else { key }
    }

    fn permits(&self, cost: Cost) -> u64 {
        cost.permits(self.exact.algorithm.quota())
    }

    fn room(&mut self, key: u8) -> &mut Room {
        let (exact, (built, utc)) = (self.exact, self.epoch);
        self.rooms.entry(key).or_insert_with(|| Room::new(exact.model(built, utc)))
    }

    fn waiting(&self) -> u64 {
        self.rooms.values().map(|room| room.waiters.len() as u64).sum()
    }

    fn arrive(&mut self, way: Way, key: u8, cost: u64) -> Result<(), TestCaseError> {
        let (now, waiting) = (self.now, self.waiting());
        let (longest, depth) = self.ways.bounds(way);
        let keys = self.keys;
        let id = self.came;
        self.came += 1;
        let room = self.room(key);
        let is_shared = keys == Keys::Many && matches!(way, Way::Queue(_));
        let of_key = if is_shared { (depth / 2).max(1) } else { depth };
        let has_place = waiting < depth && (room.waiters.len() as u64) < of_key;
        // What nothing is asked for passes everybody.
        let wait = if cost == 0 { Some(0) } else { room.wait(now, cost) };
        let expected = match wait {
            Some(0) => {
                prop_assert!(room.model.charge(now, cost));
                Some(Outcome::Admitted)
            }
            Some(wait) if wait <= longest && has_place => {
                let (until, promised) = (now + longest, now + wait);
                room.waiters.push(Waiter { id, cost, until, promised });
                None
            }
            wait => Some(Outcome::Refused(wait.map(Duration::from_nanos))),
        };
        let outcome = self.ways.come(&mut self.tasks, id, way, key, cost);
        prop_assert_eq!(outcome, expected, "{} at {}: {:?}", id, now, way);
        Ok(())
    }

    /// Lets all go who are due now, and nobody else.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let now = self.now;
        let done = self.tasks.run(self.first);
        for (id, outcome) in &done {
            prop_assert_eq!(*outcome, Outcome::Admitted, "{} waited and is refused at {}", id, now);
        }
        let mut expected = Vec::new();
        for room in self.rooms.values_mut() {
            let gone = room.depart(now);
            for waiter in &gone {
                prop_assert!(now <= waiter.promised && now <= waiter.until);
            }
            // In the order they came.
            let ids: Vec<_> = gone.iter().map(|waiter| waiter.id).collect();
            let in_order = done.iter().map(|(id, _)| *id).filter(|id| ids.contains(id));
            prop_assert_eq!(in_order.collect::<Vec<_>>(), ids.clone(), "at {}", now);
            expected.extend(ids);
        }
        let mut done: Vec<_> = done.iter().map(|(id, _)| *id).collect();
        done.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(done, expected, "at {}", now);
        Ok(())
    }

    fn set(&mut self, now: u64) {
        self.now = now;
        self.clock.set(Nanos::new(now));
    }

    /// Goes on by way of every instant at which somebody is due.
    fn advance(&mut self, to: u64, hold: bool) -> Result<(), TestCaseError> {
        loop {
            let due = self.rooms.values().filter_map(|room| room.due(self.now)).min();
            match due.filter(|due| *due < to) {
                Some(due) => {
                    self.set(due.max(self.now));
                    self.settle()?;
                }
                None => {
                    self.set(to);
                    return if hold { Ok(()) } else { self.settle() };
                }
            }
        }
    }

    /// One of those who wait, at its key and place.
    fn one(&self, index: Index) -> Option<(u8, usize)> {
        let all =
            self.rooms.iter().flat_map(|(key, room)| (0..room.waiters.len()).map(|n| (*key, n)));
        let all: Vec<_> = all.collect();
        (!all.is_empty()).then(|| all[index.index(all.len())])
    }

    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Arrive(way, key, cost) => {
                let (key, cost) = (self.whose(key), self.permits(cost));
                self.arrive(way, key, cost)?;
                self.check(key, cost)
            }
            Event::Leave(index) => {
                let Some((key, place)) = self.one(index) else { return Ok(()) };
                let gone = self.room(key).waiters.remove(place);
                self.tasks.drop_task(gone.id);
                self.check(key, gone.cost)
            }
            Event::Advance(span, hold) => {
                let to = self.now + span.nanos(self.exact.algorithm.quota());
                self.advance(to, hold)?;
                self.check(0, 1)
            }
            Event::ComeBack(key, cost) => {
                let (key, cost) = (self.whose(key), self.permits(cost));
                let now = self.now;
                let Some(wait) = self.room(key).wait(now, cost).filter(|wait| *wait > 0) else {
                    return Ok(());
                };
                // Too far away to come back in a test of some centuries.
                if cost == 0 || wait > 1 << 57 {
                    return Ok(());
                }
                self.advance(now + wait - 1, false)?;
                prop_assert!(wait == 1 || !self.ways.shared.peek(key, cost).is_allowed());
                self.check(key, cost)?;
                self.advance(now + wait, false)?;
                prop_assert!(self.ways.shared.peek(key, cost).is_allowed());
                self.check(key, cost)
            }
            Event::Poke(index) => {
                let Some((key, place)) = self.one(index) else { return Ok(()) };
                // Who is due would go.
                if self.room(key).waiters[place].promised <= self.now {
                    return Ok(());
                }
                let now = self.now;
                if self.room(key).due(now) == Some(now) {
                    return Ok(());
                }
                let id = self.room(key).waiters[place].id;
                prop_assert_eq!(self.tasks.poll(id), None);
                Ok(())
            }
            Event::Reset(key) => {
                let key = self.whose(key);
                let (exact, (built, utc)) = (self.exact, self.epoch);
                // A ramp may let who waits first into the window that is under way. Were that forgotten, he would
                // begin one, which ends later, and who waits for its end longer than he was told.
                let grows = exact.ramp.is_some();
                if grows && matches!(exact.algorithm, Algorithm::FixedWindow(_)) {
                    return Ok(());
                }
                self.ways.shared.reset(key);
                self.room(key).model = exact.model(built, utc);
                self.settle()?;
                self.check(key, 1)
            }
        }
    }

    /// What is said to newcomers is what the model says, which never heard of those who left.
    fn check(&mut self, key: u8, cost: u64) -> Result<(), TestCaseError> {
        let now = self.now;
        prop_assert_eq!(self.ways.shared.waiting(), self.waiting());
        for cost in [0, 1, cost] {
            let said = self.ways.shared.peek(key, cost);
            let room = self.room(key);
            let mut expected = room.model.peek(now, cost);
            if cost > 0 && !room.waiters.is_empty() {
                expected.allowed = false;
                expected.retry_after = room.wait(now, cost).map(Duration::from_nanos);
            }
            prop_assert_eq!(Expected::of(&said), expected, "cost {} at {}", cost, now);
        }
        Ok(())
    }

    /// Everybody who stays is admitted in the end, and nobody is left.
    fn end(&mut self) -> Result<(), TestCaseError> {
        self.settle()?;
        while let Some(due) = self.rooms.values().filter_map(|room| room.due(self.now)).min() {
            self.advance(due.max(self.now), false)?;
        }
        prop_assert_eq!(self.tasks.ids(), Vec::<usize>::new());
        prop_assert_eq!(self.ways.shared.waiting(), 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn who_waits_for_a_rule_goes_exactly_when_foretold_or_as_others_leave(
        exact in exact(),
        epoch in epoch(),
        keys in keys(),
        queues in [queue(), queue()],
        first in first(),
        events in events(),
    ) {
        let mut scene = Scene::new(exact, epoch, keys, queues, first);
        for event in events {
            scene.step(event)?;
        }
        scene.end()?;
    }
}
