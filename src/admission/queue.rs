//! [`Queue`]: a request that waits until it fits.
//!
//! It waits in one place: in the room of the rule with the longest wait, else in the line of an in-flight
//! limit. At its turn all limits are asked together. If another rule refuses then, it stays the first in its room
//! as long as its own longest wait lasts; who has a permit in hand and meets a rule that refuses gives it back
//! and waits there. So nothing is held while something is waited for, and no two wait for each other.

use std::{
    future::poll_fn,
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{Admission, Asking, Denial, Denied, Outcome, Wanted, remote::Held};
use crate::{
    clock::Nanos,
    core::Core,
    event::Fault,
    in_flight::{self, Lent, Permit},
    plan::Count,
    waiting::{self, Depth, Ended, Timer},
};

/// How often a rule that counts elsewhere is asked again.
const ASK_AGAIN: u32 = 2;

/// A request that waits.
pub(crate) struct Queue {
    asking: Asking,
    place: Place,
    /// The end of its longest wait.
    until: Nanos,
    /// How many may wait.
    depth: u64,
    waits: Waits,
    /// Who refused at its last turn.
    denied: Denied,
}

/// Where it waits.
pub(super) enum Place {
    /// For a rule.
    Room(waiting::Waiting),
    /// For an in-flight limit.
    Line(in_flight::Waiting, Wanted),
    /// A permit was free after all.
    Permit(Permit, Wanted),
    /// For a rule that counts elsewhere, until then.
    Elsewhere(Nanos, Elsewhere),
    /// Nothing was in the way after all.
    Nowhere,
}

/// One of those who wait for a rule that counts elsewhere.
pub(super) struct Elsewhere(Arc<AtomicU64>);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // Relaxed: a number that is compared with the depth, and orders nothing.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells observers of one who leaves while he waits.
pub(crate) struct Waits {
    core: Arc<Core>,
    number: u16,
    since: Nanos,
    is_over: bool,
    /// Kept while he waits.
    _place: Option<Place>,
}

impl Waits {
    /// `place` is kept as long as it waits, unless it is kept elsewhere.
    pub(super) fn new(core: &Arc<Core>, number: u16, place: Option<Place>, since: Nanos) -> Self {
        Self { core: Arc::clone(core), number, since, is_over: false, _place: place }
    }

    /// For one who waits for a degrade handler's answer.
    pub(crate) fn for_answer(core: &Arc<Core>, number: u16, since: Nanos) -> Self {
        Self::new(core, number, None, since)
    }

    pub(crate) fn is_over(&mut self) {
        self.is_over = true;
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if !self.is_over {
            let waited = self.core.time.now().since(self.since);
            self.core.watch.left(&self.core.plan.refuser(self.number).name, waited.into());
        }
    }
}

impl Core {
    /// Lets a denied request wait, or says why it must not: who refuses, with what it would have to wait.
    pub(crate) fn queue(
        asking: Asking,
        mut denied: Denied,
        (longest, depth): (Duration, u64),
        now: Nanos,
    ) -> Result<Queue, Denied> {
        let (core, until) = (Arc::clone(&asking.core), now + longest);
        let Some(index) = longest_wait(&denied) else { return Err(denied) };
        let number = denied[index].number;
        let place = asking.join(&mut denied[index], (now, longest), depth).ok_or(denied)?;
        let waits = Waits::new(&core, number, None, now);
        Ok(Queue { asking, place, until, depth, waits, denied: Denied::new() })
    }

    /// A place among those who wait for a rule that counts elsewhere.
    pub(super) fn join_elsewhere(&self, rule: u16, depth: u64, until: Nanos) -> Option<Place> {
        let Count::Remote(remote) = &self.plan.rules[usize::from(rule)].count else { return None };
        let fits = |waiting: u64| (waiting < depth).then_some(waiting + 1);
        // Relaxed: a number that is compared with the depth, and orders nothing.
        remote.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Place::Elsewhere(until, Elsewhere(Arc::clone(&remote.waiting))))
    }

    /// The timer does not go by the layer's clock.
    #[cold]
    pub(super) fn is_stuck(&self) {
        self.watch.raise_once(Fault::Clock, None);
    }
}

/// Whom to wait for: the rule with the longest wait, else an in-flight limit; nobody where it will never fit.
fn longest_wait(denied: &Denied) -> Option<usize> {
    let wait = |denial: &Denial| denial.decision.map(|decision| decision.retry_after());
    if denied.iter().any(|denial| wait(denial) == Some(None)) {
        return None;
    }
    // The first of those that are alike.
    (0..denied.len()).rev().max_by_key(|index| wait(&denied[*index]).flatten())
}

impl Asking {
    /// Joins those who wait for the limit that denies; with its decision set to the wait where it cannot.
    fn join(&self, denial: &mut Denial, at: (Nanos, Duration), depth: u64) -> Option<Place> {
        let number = denial.number;
        if let Some(wanted) = self.wanted.iter().find(|wanted| wanted.number == number) {
            return self.join_line(*wanted, depth);
        }
        let (now, longest) = at;
        let decision = denial.decision.as_mut()?;
        let Some(asked) = self.local.iter().find(|asked| asked.rule == number) else {
            let wait = decision.retry_after().filter(|wait| *wait <= longest)?;
            return self.core.join_elsewhere(number, depth, now + wait);
        };
        let limit = self.core.limit(asked)?;
        let keyed = self.core.plan.rules[usize::from(number)].scope.key.is_some();
        let depth = Depth::new(depth, keyed);
        match limit.join(asked.seat, asked.cost, &self.core.time, at, depth) {
            waiting::Joined::Waiting(waiting) => Some(Place::Room(waiting)),
            waiting::Joined::Free => Some(Place::Nowhere),
            waiting::Joined::Refused(wait) => {
                if let Some(wait) = wait {
                    decision.deny(wait.into());
                }
                None
            }
        }
    }

    fn join_line(&self, wanted: Wanted, depth: u64) -> Option<Place> {
        let slots = self.core.slots(&wanted)?;
        match slots.join(wanted.key, Depth::new(depth, wanted.key.is_some())).ok()? {
            in_flight::Joined::Permit(permit) => Some(Place::Permit(permit, wanted)),
            in_flight::Joined::Waiting(waiting) => Some(Place::Line(waiting, wanted)),
        }
    }
}

/// A wait has ended without an admission.
struct GivenUp;

/// What came of asking other backends.
enum Refused {
    /// These deny for now.
    Again(Denied),
    /// There is nothing more to wait for.
    Over(Outcome),
}

impl Queue {
    /// Waits, and is admitted or denied.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it gives up its place, the permits in hand, and what it holds or has charged elsewhere as far as
    /// that is no gift; it has charged nothing here.
    pub(crate) async fn run(mut self) -> Outcome {
        let mut outcome = self.wait().await;
        self.waits.is_over();
        if let Outcome::Admitted(admission) = &mut outcome {
            admission.waited = Some(self.asking.core.time.now().since(self.waits.since));
        }
        outcome
    }

    async fn wait(&mut self) -> Outcome {
        let core = Arc::clone(&self.asking.core);
        // Read once: what is being asked is not to be taken for nothing to ask.
        let asks_elsewhere = !self.asking.calls.is_empty();
        // It has been asked once already where that is what it waits for.
        let mut asks = ASK_AGAIN + u32::from(!matches!(self.place, Place::Elsewhere(..)));
        loop {
            let Ok(in_hand) = self.turn().await else { return self.give_up() };
            let Ok(lent) = self.lend(in_hand).await else { return self.give_up() };
            let now = core.time.now();
            if !matches!(self.place, Place::Room(_))
                && let Some(denied) = core.refusals(&self.asking.local, &[], now)
            {
                drop(lent);
                if let Err(denied) = self.move_on(denied, now) {
                    return Outcome::Denied(denied);
                }
                continue;
            }
            let denied = if !asks_elsewhere {
                match self.charge(lent, now) {
                    Ok(admission) => return Outcome::Admitted(admission),
                    Err(denied) => denied,
                }
            } else {
                asks -= 1;
                match self.ask(lent, now).await {
                    Ok(admission) => return Outcome::Admitted(admission),
                    Err(Refused::Again(denied)) if asks > 0 => denied,
                    Err(Refused::Again(denied)) => return Outcome::Denied(denied),
                    Err(Refused::Over(outcome)) => return outcome,
                }
            };
            if let Err(denied) = self.move_on(denied, core.time.now()) {
                return Outcome::Denied(denied);
            }
        }
    }

    /// Waits for the turn; what permit it brings.
    async fn turn(&mut self) -> Result<Option<(Permit, Wanted)>, GivenUp> {
        let mut timer = Timer::new(self.asking.core.time.clone());
        let place = match &mut self.place {
            Place::Room(waiting) => {
                let turn = poll_fn(|cx| waiting.poll_turn(cx)).await;
                return turn.map(|_| None).map_err(|ended| {
                    if ended == Ended::Stuck {
                        self.asking.core.is_stuck();
                    }
                    GivenUp
                });
            }
            // Kept while it asks, and until it departs.
            Place::Elsewhere(until, _place) => {
                let until = *until;
                return poll_fn(|cx| timer.poll_until(until, cx)).await.map(|()| None).map_err(
                    |_| {
                        self.asking.core.is_stuck();
                        GivenUp
                    },
                );
            }
            place => mem::replace(place, Place::Nowhere),
        };
        let stuck = |_| {
            self.asking.core.is_stuck();
            GivenUp
        };
        match place {
            Place::Line(waiting, wanted) => {
                let permit = waiting.permit(self.until, &mut timer).await.map_err(stuck)?;
                permit.map(|permit| Some((permit, wanted))).ok_or(GivenUp)
            }
            Place::Permit(permit, wanted) => Ok(Some((permit, wanted))),
            Place::Room(_) | Place::Elsewhere(..) | Place::Nowhere => Ok(None),
        }
    }

    /// Takes a permit of each in-flight limit; waits for the one that is lacking, with none in hand.
    async fn lend(&mut self, mut in_hand: Option<(Permit, Wanted)>) -> Result<Lent, GivenUp> {
        let core = Arc::clone(&self.asking.core);
        loop {
            let number = in_hand.as_ref().map(|(_, wanted)| wanted.number);
            let others = self.asking.wanted.iter().filter(|wanted| Some(wanted.number) != number);
            let others: super::AllWanted = others.copied().collect();
            let lacking = match core.lend(&others) {
                Ok(mut lent) => {
                    lent.extend(in_hand.map(|(permit, _)| permit));
                    return Ok(lent);
                }
                Err(denial) => denial.number,
            };
            drop(in_hand.take());
            // The first in a room keeps his place, and is due again when he has the permit.
            let mut until = self.until;
            if let Place::Room(waiting) = &mut self.place {
                waiting.block();
                until = waiting.until();
            }
            let wanted = others.iter().find(|wanted| wanted.number == lacking).copied();
            let place = wanted.and_then(|wanted| self.asking.join_line(wanted, self.depth));
            in_hand = match place {
                Some(Place::Permit(permit, wanted)) => Some((permit, wanted)),
                Some(Place::Line(waiting, wanted)) => {
                    let mut timer = Timer::new(core.time.clone());
                    match waiting.permit(until, &mut timer).await {
                        Ok(Some(permit)) => Some((permit, wanted)),
                        Ok(None) => return Err(GivenUp),
                        Err(_) => {
                            core.is_stuck();
                            return Err(GivenUp);
                        }
                    }
                }
                _ => return Err(GivenUp),
            };
        }
    }

    /// Charges all rules of this process, or says who denies; the permits are given back then.
    fn charge(&mut self, lent: Lent, now: Nanos) -> Result<Admission, Denied> {
        let Asking { core, local, .. } = &self.asking;
        let mut denied = None;
        let charged = match &mut self.place {
            Place::Room(waiting) => waiting
                .charge(now, || {
                    core.charge(local, now).map_err(|denial| {
                        denied = Some(denial);
                        due(&denial, now)
                    })
                })
                .is_some(),
            _ => core.charge(local, now).map_err(|denial| denied = Some(denial)).is_ok(),
        };
        if charged {
            return Ok(Admission { said: core.tell(local, now), lent, waited: None });
        }
        Err(denied.into_iter().collect())
    }

    /// Asks other backends, with what counts here set aside.
    async fn ask(&mut self, lent: Lent, now: Nanos) -> Result<Admission, Refused> {
        let Asking { core, local, calls, .. } = &mut self.asking;
        let mut held = match Held::new(core, local, lent, mem::take(calls), now) {
            Ok(held) => held,
            Err((denial, returned)) => {
                *calls = returned;
                return Err(Refused::Again(smallvec::smallvec![denial]));
            }
        };
        // How long that takes nobody knows; those behind are not late for it.
        if let Place::Room(waiting) = &mut self.place {
            waiting.block();
        }
        match held.ask_waiting(self.until).await {
            Ok(()) => {}
            Err(Some(refusal)) => {
                *calls = held.let_go();
                return Err(match refusal {
                    Outcome::Denied(denied) => Refused::Again(denied),
                    failed => Refused::Over(failed),
                });
            }
            Err(None) => {
                drop(held);
                return Err(Refused::Over(self.give_up()));
            }
        }
        match (held.departure(), &mut self.place) {
            (Some((departure, _)), Place::Room(waiting)) => waiting.postpone(departure),
            (Some((departure, rule)), Place::Nowhere) => {
                match core.join_elsewhere(rule, self.depth, departure) {
                    Some(place) => self.place = place,
                    None => {
                        let refusal = held.no_place(rule, departure.since(core.time.now()));
                        *calls = held.let_go();
                        return Err(Refused::Over(refusal));
                    }
                }
            }
            _ => {}
        }
        if !held.departed().await {
            drop(held);
            return Err(Refused::Over(self.give_up()));
        }
        let admission = held.admit();
        if let Place::Room(waiting) = mem::replace(&mut self.place, Place::Nowhere) {
            waiting.depart(core.time.now());
        }
        Ok(admission)
    }

    /// It was its turn, and these refuse: stays the first in its room until they may not, or waits for them.
    fn move_on(&mut self, mut denied: Denied, now: Nanos) -> Result<(), Denied> {
        if let Place::Room(waiting) = &mut self.place {
            let due = denied.iter().map(|denial| due(denial, now)).max();
            waiting.postpone(due.unwrap_or(now + Duration::from_nanos(1)));
            self.denied = denied;
            return Ok(());
        }
        let Some(index) = longest_wait(&denied) else { return Err(denied) };
        let left = self.until.since(now).into();
        self.place = Place::Nowhere;
        match self.asking.join(&mut denied[index], (now, left), self.depth) {
            Some(place) => {
                self.place = place;
                Ok(())
            }
            None => Err(denied),
        }
    }

    /// Leaves; says who refuses, to a newcomer that it then is.
    fn give_up(&mut self) -> Outcome {
        self.place = Place::Nowhere;
        let Asking { core, local, wanted, .. } = &self.asking;
        let now = core.time.now();
        let denied = core.refusals(local, wanted, now);
        Outcome::Denied(denied.unwrap_or_else(|| {
            if !self.denied.is_empty() {
                return mem::take(&mut self.denied);
            }
            // It would fit just now, and the wait is over all the same.
            let number = self.waits.number;
            let asked = local.iter().find(|asked| asked.rule == number);
            let decision = asked.and_then(|asked| {
                Some(core.limit(asked)?.peek_refused(asked.seat, now, asked.cost))
            });
            smallvec::smallvec![Denial { number, decision }]
        }))
    }
}

/// When a rule that denies may allow.
fn due(denial: &Denial, now: Nanos) -> Nanos {
    let wait = denial.decision.and_then(|decision| decision.retry_after());
    wait.map_or(Nanos::new(u64::MAX), |wait| now + wait)
}
