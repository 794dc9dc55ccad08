//! Decisions at once, over limits of this process alone.

use std::{num::NonZeroU64, sync::Arc};

use smallvec::SmallVec;

use super::{Admission, AllAsked, AllWanted, Asked, Denial, Denied, Outcome, Wanted};
use crate::{
    Decision, Head,
    backend::local::{Made, Seat},
    clock::Nanos,
    core::Core,
    event::Fault,
    in_flight::{Lent, Slots},
    plan::{Count, Planned, PlannedSlots, Scoped, Whose},
    waiting::Limit,
};

/// One rule of several, and the charge on it: what it would do, then what it did.
struct Foreseen<'c> {
    asked: Asked,
    limit: &'c Limit,
    /// None where a charge must find out for itself, or is none.
    charge: Option<Made>,
}

type AllForeseen<'c> = SmallVec<[Foreseen<'c>; 8]>;

fn asked(all: &[Foreseen<'_>]) -> AllAsked {
    all.iter().map(|foreseen| foreseen.asked).collect()
}

/// Makes all charges as they were foreseen, or anew where another thread charged meanwhile; or none, and says
/// who denies.
#[inline(always)]
fn charge_all(all: &mut [Foreseen<'_>], now: Nanos) -> Result<(), Denial> {
    for index in 0..all.len() {
        let Foreseen { asked, limit, charge } = &all[index];
        let made = match charge {
            Some(charge) if limit.counter.make(asked.seat.quota, charge) => continue,
            _ if asked.cost == 0 => continue,
            _ => limit.counter.charge(asked.seat, now, asked.cost),
        };
        match made {
            Ok(made) => all[index].charge = Some(made),
            Err(denied) => {
                let decision = limit.counter.explain(asked.seat, denied, now, asked.cost);
                let denial = Denial::of(asked.rule, decision);
                for Foreseen { asked, limit, charge } in all[..index].iter().rev() {
                    if let Some(made) = charge {
                        limit.counter.undo(asked.seat.quota, made, now);
                    }
                }
                return Err(denial);
            }
        }
    }
    Ok(())
}

impl Core {
    /// Decides where nobody wants to know more than the verdict; `None` for a pass with nothing lent.
    #[inline]
    pub(crate) fn decide_here(&self, head: &Head<'_>, now: Nanos) -> Option<Outcome> {
        match (&*self.plan.rules, &*self.plan.slots) {
            ([rule], []) => self.decide_one(rule, head, now),
            ([], [slots]) if slots.scope.key.is_none() => {
                self.lend_one(slots, &mut [], true, head, now)
            }
            _ => self.decide_several(head, now),
        }
    }

    /// Decides over one rule: read and charge are one step.
    #[inline]
    fn decide_one(&self, rule: &Planned, head: &Head<'_>, now: Nanos) -> Option<Outcome> {
        let Count::Local(limit) = &rule.count else { return None };
        let seat = match self.whose(rule, head) {
            Whose::Of(seat) => seat,
            Whose::Nobodys => return None,
            Whose::Refused(status) => return Some(Outcome::Keyless(0, status)),
        };
        let cost = rule.cost(head);
        if limit.is_waited_for(seat) {
            return meet_waiters(limit, seat, now, cost);
        }
        let charged = if cost == 0 { Ok(()) } else { limit.counter.charge(seat, now, cost) };
        self.saw(rule, seat, now);
        match charged {
            Ok(()) => None,
            Err(denied) => {
                let decision = limit.counter.explain(seat, denied, now, cost);
                Some(Outcome::denied(Denial::of(0, decision)))
            }
        }
    }

    /// Decides over several limits. Each rule is looked up once: what is read of it says what will be written
    /// if all allow.
    #[inline(never)]
    fn decide_several(&self, head: &Head<'_>, now: Nanos) -> Option<Outcome> {
        let mut all = AllForeseen::new();
        let mut fit = true;
        for (index, rule) in (0_u16..).zip(&self.plan.rules) {
            let Count::Local(limit) = &rule.count else { continue };
            let seat = match self.whose(rule, head) {
                Whose::Of(seat) => seat,
                Whose::Nobodys => continue,
                Whose::Refused(status) => return Some(Outcome::Keyless(index, status)),
            };
            let asked = Asked { rule: index, seat, cost: rule.cost(head) };
            self.saw(rule, seat, now);
            let charge = limit.counter.foresee(seat, now, asked.cost);
            fit &= charge.is_ok() && !limit.is_waited_for(seat);
            all.push(Foreseen { asked, limit, charge: charge.ok().flatten() });
        }
        match &*self.plan.slots {
            [] => {}
            [slots] if slots.scope.key.is_none() => {
                return self.lend_one(slots, &mut all, fit, head, now);
            }
            _ => return self.decide_lending(&mut all, fit, head, now),
        }
        if !fit && let Some(denied) = self.refusals(&asked(&all), &[], now) {
            return Some(Outcome::Denied(denied));
        }
        charge_all(&mut all, now).err().map(Outcome::denied)
    }

    /// The same with the one in-flight limit, without keys, that most layers have which have any.
    #[inline]
    fn lend_one(
        &self,
        slots: &PlannedSlots,
        all: &mut [Foreseen<'_>],
        fit: bool,
        head: &Head<'_>,
        now: Nanos,
    ) -> Option<Outcome> {
        let asks = fit && slots.scope.applies(head);
        let Some(permit) = asks.then(|| slots.slots.try_take(None)).flatten() else {
            return self.decide_lending(all, fit, head, now);
        };
        Some(match charge_all(all, now) {
            Ok(()) => Outcome::Lent(permit),
            Err(denial) => Outcome::denied(denial),
        })
    }

    /// The same with any in-flight limits: asks them, and takes permits before it charges.
    #[inline(never)]
    fn decide_lending(
        &self,
        all: &mut [Foreseen<'_>],
        fit: bool,
        head: &Head<'_>,
        now: Nanos,
    ) -> Option<Outcome> {
        let wanted = match self.wanted(head, now, false) {
            Ok(wanted) => wanted,
            Err(keyless) => return Some(keyless),
        };
        if !(fit && self.are_open(&wanted))
            && let Some(denied) = self.refusals(&asked(all), &wanted, now)
        {
            return Some(Outcome::Denied(denied));
        }
        let lent = self.lend(&wanted).and_then(|lent| charge_all(all, now).map(|()| lent));
        match lent {
            Ok(lent) if lent.is_empty() => None,
            Ok(lent) => Some(Outcome::Admitted(Admission { lent, ..Admission::default() })),
            Err(denial) => Some(Outcome::denied(denial)),
        }
    }

    /// Whose permits the request spends on a rule; nobody's where the rule does not apply.
    #[inline(always)]
    pub(super) fn whose(&self, rule: &Planned, head: &Head<'_>) -> Whose<Seat> {
        if !rule.scope.applies(head) {
            return Whose::Nobodys;
        }
        let whose = rule.whose(head, || self.watch.raise(Fault::Tier, Some(&rule.by.name)));
        if !matches!(whose, Whose::Of(_)) {
            self.missed(&rule.scope, &rule.by.name);
        }
        whose
    }

    /// The permits that in-flight limits are asked for.
    #[inline]
    pub(super) fn wanted(
        &self,
        head: &Head<'_>,
        now: Nanos,
        is_seen: bool,
    ) -> Result<AllWanted, Outcome> {
        let mut wanted = AllWanted::new();
        for (index, slots) in self.plan.slots.iter().enumerate() {
            if !slots.scope.applies(head) {
                continue;
            }
            let number = self.plan.number_of_slots(index);
            let whose = slots.whose(head);
            if !is_seen {
                self.saw_slots(slots, &whose, now);
            }
            match whose {
                Whose::Of(key) => wanted.push(Wanted { number, key }),
                Whose::Nobodys => {}
                Whose::Refused(status) => return Err(Outcome::Keyless(number, status)),
            }
        }
        Ok(wanted)
    }

    #[inline]
    fn saw_slots(&self, slots: &PlannedSlots, whose: &Whose<Option<NonZeroU64>>, now: Nanos) {
        match whose {
            Whose::Of(None) => {}
            Whose::Of(Some(key)) => {
                if let Some(fault) = slots.scope.watch.saw(key.get(), now) {
                    self.watch.raise(fault, Some(&slots.by.name));
                }
            }
            Whose::Nobodys | Whose::Refused(_) => self.missed(&slots.scope, &slots.by.name),
        }
    }

    pub(super) fn slots(&self, wanted: &Wanted) -> Option<&Arc<Slots>> {
        self.plan.slots_of(wanted.number).map(|slots| &slots.slots)
    }

    fn is_open(&self, wanted: &Wanted) -> bool {
        self.slots(wanted).is_none_or(|slots| slots.is_open(wanted.key))
    }

    #[inline]
    pub(super) fn are_open(&self, wanted: &[Wanted]) -> bool {
        wanted.iter().all(|wanted| self.is_open(wanted))
    }

    /// Step 2: takes all permits, or none.
    #[inline]
    pub(super) fn lend(&self, wanted: &[Wanted]) -> Result<Lent, Denial> {
        let mut lent = Lent::new();
        for wanted in wanted {
            let Some(slots) = self.slots(wanted) else { continue };
            match slots.try_take(wanted.key) {
                Some(permit) => lent.push(permit),
                None => return Err(Denial { number: wanted.number, decision: None }),
            }
        }
        Ok(lent)
    }

    /// The limit of a rule in this process.
    pub(super) fn limit(&self, asked: &Asked) -> Option<&Arc<Limit>> {
        match &self.plan.rules[usize::from(asked.rule)].count {
            Count::Local(limit) => Some(limit),
            Count::Remote(_) => None,
        }
    }

    /// Step 1: who refuses. Writes nothing.
    #[cold]
    pub(super) fn refusals(
        &self,
        local: &[Asked],
        wanted: &[Wanted],
        now: Nanos,
    ) -> Option<Denied> {
        let rules = local.iter().filter_map(|asked| {
            let decision = self.limit(asked)?.peek(asked.seat, now, asked.cost);
            (!decision.is_allowed()).then(|| Denial::of(asked.rule, decision))
        });
        let full = wanted.iter().filter(|wanted| !self.is_open(wanted));
        let full = full.map(|wanted| Denial { number: wanted.number, decision: None });
        let denied: Denied = rules.chain(full).collect();
        // Empty where another thread gave permits back meanwhile: then the charge will tell.
        (!denied.is_empty()).then_some(denied)
    }

    /// Step 3: charges all, or none.
    pub(super) fn charge(&self, local: &[Asked], now: Nanos) -> Result<(), Denial> {
        let foreseen = |asked: &Asked| {
            self.limit(asked).map(|limit| Foreseen { asked: *asked, limit, charge: None })
        };
        charge_all(&mut local.iter().filter_map(foreseen).collect::<AllForeseen<'_>>(), now)
    }

    /// What the rules in this process decided, after their charges.
    pub(super) fn tell(&self, local: &[Asked], now: Nanos) -> Vec<(u16, Decision)> {
        if !self.is_curious() {
            return Vec::new();
        }
        let decision = |asked: &Asked| {
            self.limit(asked).map(|limit| (asked.rule, limit.counter.peek(asked.seat, now, 0)))
        };
        local.iter().filter_map(decision).collect()
    }

    #[inline]
    pub(super) fn saw(&self, rule: &Planned, seat: Seat, now: Nanos) {
        if rule.scope.key.is_none() {
            return;
        }
        let fault = rule.scope.watch.saw(seat.hash, now);
        let fault = match &rule.count {
            Count::Local(limit) if limit.counter.has_overflowed(seat.quota) => {
                rule.scope.watch.overflowed().or(fault)
            }
            _ => fault,
        };
        if let Some(fault) = fault {
            self.watch.raise(fault, Some(&rule.by.name));
        }
    }

    #[cold]
    fn missed(&self, scope: &Scoped, name: &Arc<str>) {
        if let Some(fault) = scope.watch.missed() {
            self.watch.raise(fault, Some(name));
        }
    }
}

/// Somebody waits for this key, so the newcomer is refused.
#[cold]
#[inline(never)]
fn meet_waiters(limit: &Limit, seat: Seat, now: Nanos, cost: u64) -> Option<Outcome> {
    let decision = limit.try_acquire(seat, now, cost);
    (!decision.is_allowed()).then(|| Outcome::denied(Denial::of(0, decision)))
}
