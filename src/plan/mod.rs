//! [`Plan`]: a layer's limits, checked and compiled, as they are met by requests.
//!
//! What is where: `check` says what is wrong; `scoped` compiles what rules and in-flight limits have alike,
//! `rule` and `slots` the rest of each, `tiers` a rule's; `keys` hashes and encodes; `shown` is what callers are told.

mod check;
mod keys;
mod rule;
mod scoped;
mod shown;
mod slots;
mod tiers;

use std::{collections::HashSet, sync::Arc};

use ahash::RandomState;

use self::check::{check, check_in_flight};
pub(crate) use self::{
    keys::{Encoded, MISSING},
    rule::{Count, Planned, Remote},
    scoped::{Refuser, Scoped, Whose},
    shown::{Shown, Told},
    slots::PlannedSlots,
};
use crate::{ConfigError, InFlight, RejectionPolicy, Rule, backend::Backend, clock::Time};

/// The most rules a layer may have: one bit each in a word.
const MAX_RULES: usize = 64;

/// A layer's limits, compiled. A number below that of the rules tells a rule, one from there an in-flight limit.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rules: Box<[Planned]>,
    pub(crate) slots: Box<[PlannedSlots]>,
    /// Whether a rule counts elsewhere, so that the others hold until it has answered.
    pub(crate) has_remote: bool,
}

/// What a limit takes from its layer.
pub(crate) struct Defaults<'l> {
    pub(crate) time: &'l Time,
    pub(crate) hasher: &'l RandomState,
    pub(crate) policy: &'l RejectionPolicy,
    pub(crate) backend: Option<&'l Arc<dyn Backend>>,
}

impl Plan {
    /// Checks and compiles; backends are told of limiters only when all limits are right.
    pub(crate) fn compile(
        rules: &[Rule],
        in_flight: &[InFlight],
        defaults: &Defaults<'_>,
    ) -> Result<Self, ConfigError> {
        for (field, count) in [("rules", rules.len()), ("in_flight", in_flight.len())] {
            if count > MAX_RULES {
                return Err(ConfigError::new(field, count, "must be at most 64 in one layer"));
            }
        }
        let mut names = HashSet::new();
        let mut check_new = |name: &str| {
            if names.insert(name.to_owned()) {
                return Ok(());
            }
            let reason =
                "two limits of one layer have this name, which tells them apart; rename one";
            Err(ConfigError::new("name", format!("{name:?}"), reason))
        };
        for rule in rules {
            let checked = check(rule, defaults).and_then(|()| check_new(&rule.name));
            checked.map_err(|error| error.of_rule(&rule.name))?;
        }
        for limit in in_flight {
            let checked = check_in_flight(limit, defaults).and_then(|()| check_new(limit.name()));
            checked.map_err(|error| error.of_in_flight(limit.name()))?;
        }
        // Those counted here first: when a backend elsewhere is told of a limiter, all of these stand.
        let mut planned: Vec<Option<Planned>> = rules.iter().map(|_| None).collect();
        for elsewhere in [false, true] {
            for (rule, planned) in rules.iter().zip(&mut planned) {
                if rule.elsewhere(defaults).is_some() == elsewhere {
                    let compiled = Planned::compile(rule.clone(), defaults);
                    *planned = Some(compiled.map_err(|error| error.of_rule(&rule.name))?);
                }
            }
        }
        let rules: Box<[Planned]> = planned.into_iter().flatten().collect();
        let has_remote = rules.iter().any(|rule| matches!(rule.count, Count::Remote(_)));
        for rule in &rules {
            if has_remote && let Count::Local(limit) = &rule.count {
                limit.counter.may_hold();
            }
        }
        let slots = in_flight.iter().cloned();
        let slots = slots.map(|limit| PlannedSlots::compile(limit, defaults)).collect();
        Ok(Self { rules, slots, has_remote })
    }

    pub(crate) fn rule(&self, name: &str) -> Option<&Planned> {
        self.rules.iter().find(|rule| &*rule.by.name == name)
    }

    /// The number of the in-flight limit at `index`.
    pub(crate) fn number_of_slots(&self, index: usize) -> u16 {
        // Both are at most 64.
        (self.rules.len() + index) as u16
    }

    /// The in-flight limit of this number, unless it tells a rule.
    pub(crate) fn slots_of(&self, number: u16) -> Option<&PlannedSlots> {
        self.slots.get(usize::from(number).checked_sub(self.rules.len())?)
    }

    /// Who refuses, by number.
    pub(crate) fn refuser(&self, number: u16) -> &Refuser {
        match self.slots_of(number) {
            Some(slots) => &slots.by,
            None => &self.rules[usize::from(number)].by,
        }
    }

    /// All limits by what they have alike, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Refuser, &Scoped)> {
        let rules = self.rules.iter().map(|rule| (&rule.by, &rule.scope));
        rules.chain(self.slots.iter().map(|slots| (&slots.by, &slots.scope)))
    }

    /// The name of the first limit of which this holds.
    pub(crate) fn first_that(&self, holds: impl Fn(&Scoped) -> bool) -> Option<&Arc<str>> {
        self.all().find(|(_, scope)| holds(scope)).map(|(by, _)| &by.name)
    }
}
