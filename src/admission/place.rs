//! [`Place`]: where a request waits; and [`Waits`], which tells of one who leaves.

use std::{sync::Arc, time::Duration};

use super::{Asking, Denial, Wanted};
use crate::{
    clock::Nanos,
    core::Core,
    in_flight::{self, Permit},
    plan::{Count, Remote},
    waiting::{self, Depth, Sleeping},
};

/// Where a request waits.
pub(super) enum Place {
    /// For a rule.
    Room(waiting::Waiting),
    /// For an in-flight limit.
    Line(in_flight::Waiting, Wanted),
    /// A permit was free after all.
    Permit(Permit, Wanted),
    /// For a rule that counts elsewhere: to ask again, or to depart.
    Elsewhere(Sleeping),
    /// Nothing was in the way after all.
    Nowhere,
}

/// Tells observers of one who leaves while he waits.
pub(crate) struct Waits {
    core: Arc<Core>,
    pub(super) number: u16,
    pub(super) since: Nanos,
    is_over: bool,
    /// Kept while he waits.
    _place: Option<Sleeping>,
}

impl Waits {
    /// `place` is kept as long as it waits, unless it is kept otherwise.
    pub(super) fn new(
        core: &Arc<Core>,
        number: u16,
        place: Option<Sleeping>,
        since: Nanos,
    ) -> Self {
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

impl Asking {
    /// Joins those who wait for the limit that denies; with its decision set to the wait where it cannot.
    pub(super) fn join(
        &self,
        denial: &mut Denial,
        at: (Nanos, Duration),
        depth: u64,
    ) -> Option<Place> {
        let number = denial.number;
        if let Some(wanted) = self.wanted.iter().find(|wanted| wanted.number == number) {
            return self.join_line(*wanted, depth);
        }
        let (now, longest) = at;
        let decision = denial.decision.as_mut()?;
        let Some(asked) = self.local.iter().find(|asked| asked.rule == number) else {
            let wait = decision.retry_after().filter(|wait| *wait <= longest)?;
            let asked = self.calls.iter().find_map(|call| call.asked(number))?;
            let (remote, depth) = (self.core.remote(number)?, self.core.depth(number, depth));
            let place = remote.waiting.join(asked.seat, now + wait, depth)?;
            return Some(Place::Elsewhere(place));
        };
        let limit = self.core.limit(asked)?;
        let depth = self.core.depth(number, depth);
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

    pub(super) fn join_line(&self, wanted: Wanted, depth: u64) -> Option<Place> {
        let slots = self.core.slots(&wanted)?;
        match slots.join(wanted.key, Depth::new(depth, wanted.key.is_some())).ok()? {
            in_flight::Joined::Permit(permit) => Some(Place::Permit(permit, wanted)),
            in_flight::Joined::Waiting(waiting) => Some(Place::Line(waiting, wanted)),
        }
    }
}

impl Core {
    /// The rule, if it counts elsewhere.
    pub(super) fn remote(&self, rule: u16) -> Option<&Remote> {
        match &self.plan.rules[usize::from(rule)].count {
            Count::Remote(remote) => Some(remote),
            Count::Local(_) => None,
        }
    }

    pub(super) fn depth(&self, rule: u16, depth: u64) -> Depth {
        Depth::new(depth, self.plan.rules[usize::from(rule)].has_keys())
    }
}
