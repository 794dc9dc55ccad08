//! [`Queue`]: a request that waits until it fits.
//!
//! It waits in one place: in the room of the rule with the longest wait, else in the line of an in-flight
//! limit. At its turn all limits are asked together. If another rule refuses then, it stays the first in its room
//! as long as its own longest wait lasts; who has a permit in hand and meets a rule that refuses gives it back
//! and waits there. So nothing is held while something is waited for, and no two wait for each other.

use std::{future::poll_fn, mem, sync::Arc, time::Duration};

use super::{
    Admission, AllWanted, Asking, Denial, Denied, Outcome, Wanted,
    place::{Place, Waits},
    remote::Held,
};
use crate::{
    clock::Nanos,
    core::Core,
    event::Fault,
    in_flight::{self, Lent, Permit},
    waiting::{Ended, Stuck, Timer},
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

    fn given_up(&self, ended: Ended) -> GivenUp {
        if ended == Ended::Stuck {
            self.is_stuck();
        }
        GivenUp
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
        let place = match &mut self.place {
            Place::Room(waiting) => {
                let turn = poll_fn(|cx| waiting.poll_turn(cx)).await;
                return turn.map(|_| None).map_err(|ended| self.asking.core.given_up(ended));
            }
            // Kept while it asks, and until it departs.
            Place::Elsewhere(place) => {
                let mut timer = Timer::new(self.asking.core.time.clone());
                let turn = poll_fn(|cx| place.poll_turn(self.until, &mut timer, cx)).await;
                return turn.map(|()| None).map_err(|ended| self.asking.core.given_up(ended));
            }
            place => mem::replace(place, Place::Nowhere),
        };
        match place {
            Place::Line(waiting, wanted) => {
                let permit = permit(&self.asking.core, waiting, self.until).await?;
                Ok(Some((permit, wanted)))
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
            let others: AllWanted = others.copied().collect();
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
                    Some((permit(&core, waiting, until).await?, wanted))
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
            (Some(_), Place::Elsewhere(place)) => place.depart(),
            (Some((departure, rule)), Place::Nowhere) => match held.place(rule, self.depth) {
                Some(place) => self.place = Place::Elsewhere(place),
                None => {
                    let refusal = held.no_place(rule, departure.since(core.time.now()));
                    *calls = held.let_go();
                    return Err(Refused::Over(refusal));
                }
            },
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
        if let Place::Elsewhere(place) = &self.place
            && denied.iter().all(|denial| self.asking.core.remote(denial.number).is_some())
        {
            place.postpone(denied.iter().map(|denial| due(denial, now)).max().unwrap_or(now));
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
        let Asking { core, local, wanted, calls } = &self.asking;
        let now = core.time.now();
        let denied = core.refusals(local, wanted, now);
        Outcome::Denied(denied.unwrap_or_else(|| {
            if !self.denied.is_empty() {
                return mem::take(&mut self.denied);
            }
            // It would fit just now, or was not asked for, and the wait is over all the same.
            let number = self.waits.number;
            let decision = match local.iter().find(|asked| asked.rule == number) {
                Some(asked) => {
                    core.limit(asked).map(|limit| limit.peek_refused(asked.seat, now, asked.cost))
                }
                None => calls.iter().find_map(|call| call.denied(core, number, now)),
            };
            smallvec::smallvec![Denial { number, decision }]
        }))
    }
}

/// Waits for a permit in flight, until then at the longest.
async fn permit(core: &Core, waiting: in_flight::Waiting, until: Nanos) -> Result<Permit, GivenUp> {
    let mut timer = Timer::new(core.time.clone());
    match waiting.permit(until, &mut timer).await {
        Ok(permit) => permit.ok_or(GivenUp),
        Err(Stuck) => Err(core.given_up(Ended::Stuck)),
    }
}

/// When a rule that denies may allow.
fn due(denial: &Denial, now: Nanos) -> Nanos {
    let wait = denial.decision.and_then(|decision| decision.retry_after());
    wait.map_or(Nanos::new(u64::MAX), |wait| now + wait)
}
