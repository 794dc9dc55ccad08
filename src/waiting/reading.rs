//! [`Reading`]: what is read of a key's permits, to play charges through that nobody has made yet.

use crate::{
    algorithm::{Compiled, Spent, Step},
    backend::local::{Counter, Known, Seat},
    clock::Nanos,
};

/// When a charge will fit, by a quota that is counted in words.
macro_rules! turn {
    ($machine:expr, $state:expr, $now:expr, $cost:expr, $held:expr) => {{
        let (machine, state, cost) = ($machine, $state, $cost);
        let decision = machine.decide(state, $now, cost, $held);
        if decision.is_never() {
            return None;
        }
        let mut turn = decision.retry_after().map_or($now, |wait| $now + wait);
        loop {
            match machine.charge(state, turn, cost, 0) {
                Step::To(state) => break Some((turn, state)),
                // Beyond all time, where instants are one.
                Step::Denied if turn == NEVER => break Some((NEVER, state)),
                // Holds alone were in the way, or the instant was rounded: it fits a little later.
                Step::Denied => {
                    let decision = machine.decide(state, turn, cost, 0);
                    turn = turn + decision.retry_after()?;
                }
            }
        }
    }};
}

/// A key's permits at some instant.
pub(super) struct Reading<'c> {
    counter: &'c Counter,
    seat: Seat,
    now: Nanos,
    pub(super) known: Known,
}

/// An instant that no wait reaches.
pub(super) const NEVER: Nanos = Nanos::new(u64::MAX);

impl<'c> Reading<'c> {
    pub(super) fn new(counter: &'c Counter, seat: Seat, now: Nanos) -> Self {
        Self { counter, seat, now, known: counter.read(seat, now) }
    }

    /// What slides of the key: read apart, since only who plays through from the beginning wants it.
    pub(super) fn spent(&self) -> Spent {
        self.counter.spent(self.seat, self.now)
    }

    /// What is known of the key where `spent` is what slides of it.
    pub(super) fn known_with(&self, spent: &Spent) -> Known {
        match self.known.compiled {
            Compiled::Word(_) | Compiled::Warming(_) => self.known,
            // Somebody may have charged between the two.
            Compiled::Sliding(_) => Known { state: spent.mark(), ..self.known },
        }
    }

    /// When a charge will fit that comes first after `state`, and the state after it; `None` where it never will.
    pub(super) fn turn(
        &self,
        played: &Spent,
        state: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Option<(Nanos, u64)> {
        match &self.known.compiled {
            Compiled::Word(machine) => turn!(machine, state, now, cost, held),
            Compiled::Warming(machine) => turn!(machine, state, now, cost, held),
            Compiled::Sliding(machine) => played.turn(machine, state, now, cost, held),
        }
    }

    /// The same, for others to come after it.
    pub(super) fn play(
        &self,
        played: &mut Spent,
        state: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Option<(Nanos, u64)> {
        match &self.known.compiled {
            Compiled::Sliding(machine) => played.play(machine, state, now, cost, held),
            _ => self.turn(played, state, now, cost, held),
        }
    }

    /// No turn before `now` will be played again.
    pub(super) fn let_go(&self, played: &mut Spent, now: Nanos) {
        if let Compiled::Sliding(machine) = &self.known.compiled {
            played.expire(machine, now);
        }
    }

    /// When the charge of the first in a room will fit.
    pub(super) fn due(&self, now: Nanos, cost: u64) -> Nanos {
        let Known { compiled, state, held } = &self.known;
        if let Compiled::Sliding(_) = compiled {
            let decision = self.counter.peek(self.seat, now, cost);
            let later = decision.retry_after().map_or(NEVER, |wait| now + wait);
            return if decision.is_allowed() { now } else { later };
        }
        let turn = self.turn(&Spent::default(), state.0, now, cost, *held);
        turn.map_or(NEVER, |(turn, _)| turn)
    }
}
