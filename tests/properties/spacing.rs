//! Leaky bucket with those who wait for it, and with timers that are late: never two admissions closer than the
//! interval, in the order they came, and nobody refused because a timer was late.

use std::{collections::BTreeSet, time::Duration};

use proptest::{collection::vec, prelude::*, sample::Index};
use tower_sluice::{LeakyBucket, ManualClock, Quota, clock::Nanos};

use crate::{
    bucket::keys,
    config,
    executor::{First, Tasks},
    leaky::Since,
    quotas::{Exact, Span, epoch, exact_bucket_quota, leaky, span},
    subjects::clock,
    ways::{Outcome, Way, Ways, first, queue, way},
};

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Way),
    /// Without a stop at the instants between at which somebody is due; who is then polled, if anybody.
    Jump(Span, bool),
    Leave(Index),
    Poke(Index),
    SetLimit(usize),
    Reset,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => way().prop_map(Event::Arrive),
        8 => (span(), any::<bool>()).prop_map(|(span, polls)| Event::Jump(span, polls)),
        2 => any::<Index>().prop_map(Event::Leave),
        2 => any::<Index>().prop_map(Event::Poke),
        1 => (0..4_usize).prop_map(Event::SetLimit),
        1 => Just(Event::Reset),
    ]
}

/// What came of it so far.
struct Seen {
    quota: Quota,
    since: Option<Since>,
    /// Who has come since the rate last became lower, and may rely on what he was told.
    trusts: usize,
    /// The last admitted of those who waited.
    last: Option<usize>,
    /// Who has been polled where one before him was not: to him that one stands still, for all he knows.
    behind: BTreeSet<usize>,
}

impl Seen {
    fn settled(&mut self, id: usize, outcome: Outcome) -> Result<(), TestCaseError> {
        if outcome != Outcome::Admitted {
            let may_be = id < self.trusts || self.behind.contains(&id);
            prop_assert!(may_be, "{} waited and was refused", id);
            return Ok(());
        }
        prop_assert!(self.last < Some(id), "{} after {:?}", id, self.last);
        self.last = Some(id);
        self.admitted()
    }

    fn admitted(&mut self) -> Result<(), TestCaseError> {
        if let Some(since) = &self.since {
            prop_assert!(since.is_an_interval(self.quota), "too close: {:?}", self.quota);
        }
        self.since = Some(Since::default());
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.since.as_ref().is_none_or(|since| since.is_an_interval(self.quota))
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn admissions_keep_their_distance_and_their_order_though_timers_are_late(
        quotas in vec(exact_bucket_quota(), 1..4),
        epoch in epoch(),
        keys in keys(),
        changes in any::<bool>(),
        queues in [queue(), queue()],
        first in first(),
        events in vec(event(), 1..40),
    ) {
        let rates: Vec<Quota> = quotas.iter().map(|quota| leaky(*quota).quota()).collect();
        let clock = clock(epoch.0, epoch.1);
        let exact = Exact::of(leaky(rates[0]));
        let ways = Ways::new(exact, keys, queues, &clock);
        let mut tasks = Tasks::default();
        let mut seen = Seen { quota: rates[0], since: None, trusts: 0, last: None, behind: BTreeSet::new() };
        let (mut now, mut changed) = (epoch.0, false);
        for (id, event) in events.into_iter().enumerate() {
            match event {
                Event::Arrive(way) => {
                    let waited = ways.shared.waiting();
                    match ways.come(&mut tasks, id, way, 0, 1) {
                        Some(Outcome::Admitted) => {
                            prop_assert_eq!(waited, 0, "a newcomer overtakes");
                            seen.admitted()?;
                        }
                        Some(Outcome::Refused(wait)) => prop_assert!(wait.is_some()),
                        None => prop_assert_eq!(ways.shared.waiting(), waited + 1),
                    }
                }
                Event::Jump(span, polls) => {
                    let step = span.nanos(seen.quota);
                    now += step;
                    clock.set(Nanos::new(now));
                    if let Some(since) = &mut seen.since {
                        since.present += u128::from(step);
                    }
                    if polls {
                        for (id, outcome) in tasks.run(first) {
                            seen.settled(id, outcome)?;
                        }
                        // Who is left is not due. A change of rates rounds.
                        if !changed && seen.is_due() {
                            prop_assert_eq!(tasks.ids(), Vec::<usize>::new());
                        }
                    }
                }
                Event::Leave(index) => {
                    if let Some(id) = one(&tasks, index) {
                        tasks.drop_task(id);
                    }
                }
                Event::Poke(index) => {
                    let Some(id) = one(&tasks, index) else { continue };
                    if tasks.ids().iter().any(|other| *other < id) {
                        seen.behind.insert(id);
                    }
                    if let Some(outcome) = tasks.poll(id) {
                        seen.settled(id, outcome)?;
                    }
                }
                Event::SetLimit(which) if changes => {
                    let next = rates[which % rates.len()];
                    ways.shared.set_limit(next);
                    if next != seen.quota {
                        if let Some(since) = &mut seen.since {
                            since.under_another(seen.quota);
                        }
                        (seen.quota, seen.trusts, changed) = (next, id, true);
                    }
                }
                Event::Reset => {
                    ways.shared.reset(0);
                    seen.since = None;
                }
                Event::SetLimit(_) => {}
            }
            prop_assert_eq!(ways.shared.waiting(), tasks.ids().len() as u64);
        }
        // Everybody gets his turn, and in time once more.
        for _ in 0..tasks.ids().len() {
            let wait = ways.shared.peek(0, 1).retry_after().map_or(1, |wait| wait.as_nanos() as u64);
            now += wait;
            clock.set(Nanos::new(now));
            if let Some(since) = &mut seen.since {
                since.present += u128::from(wait);
            }
            for (id, outcome) in tasks.run(first) {
                seen.settled(id, outcome)?;
            }
        }
        prop_assert_eq!(tasks.ids(), Vec::<usize>::new());
        prop_assert_eq!(ways.shared.waiting(), 0);
    }
}

fn one(tasks: &Tasks<Outcome>, index: Index) -> Option<usize> {
    let ids = tasks.ids();
    (!ids.is_empty()).then(|| ids[index.index(ids.len())])
}

/// His timer is late already when somebody puts the same rate in force once more.
#[test]
fn who_is_late_is_not_refused_for_a_rate_set_again() {
    let (clock, interval) = (ManualClock::new(), Duration::from_millis(50));
    let limiter = LeakyBucket::per_second(20).limiter().clock(clock.clone()).build().unwrap();
    assert!(limiter.try_acquire().is_allowed());
    let mut tasks = Tasks::default();
    for id in 0..2_u32 {
        let limiter = limiter.clone();
        let longest = (id + 1) * interval;
        tasks.spawn(id as usize, async move { limiter.acquire(longest).await.is_allowed() });
    }
    assert_eq!(tasks.run(First::Oldest), []);
    clock.advance(interval + Duration::from_millis(1));
    limiter.set_limit(limiter.quota()).unwrap();
    assert_eq!(tasks.run(First::Oldest), [(0, true)]);
    // An interval behind the one who was late, and later than he might have been.
    clock.advance(interval - Duration::from_nanos(1));
    assert_eq!(tasks.run(First::Oldest), []);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(tasks.run(First::Oldest), [(1, true)]);
}
