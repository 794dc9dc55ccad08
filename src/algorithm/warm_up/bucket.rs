//! A token bucket on a ramp: its refill runs on warped time, and its burst grows with the share.
//!
//! What the ramp *withholds* of the burst is a debt that every key has at least. So a key has what it kept, and
//! what has come back since at the ramp's rate, but never more than the burst of the present.

use super::{Step, Warming};
use crate::{
    Decision,
    algorithm::{token_bucket::Machine as Bucket, wait_until},
    clock::Nanos,
    decision::Level,
};

impl Bucket {
    /// The units that the ramp leaves of the burst: at least a permit.
    fn present(&self, warming: &Warming, now: Nanos) -> u64 {
        warming.scaled(self.capacity, now).max(self.unit)
    }

    fn withheld(&self, warming: &Warming, now: Nanos) -> u64 {
        self.capacity - self.present(warming, now)
    }

    pub(super) fn charge_warming(
        &self,
        warming: &Warming,
        state: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Step {
        let withheld = self.withheld(warming, now);
        self.charge_within(state, warming.warp(now), cost, held, withheld)
    }

    pub(super) fn force_warming(
        &self,
        warming: &Warming,
        state: u64,
        now: Nanos,
        cost: u64,
    ) -> u64 {
        self.force_within(state, warming.warp(now), cost, self.withheld(warming, now))
    }

    /// The state that means under this quota what `state` means under `old`: what was spent beyond what the ramp
    /// withholds, or spared of it, is so under this one, in its permits. Rounded against the key.
    pub(super) fn convert_warming(
        &self,
        warming: &Warming,
        old: &Self,
        state: u64,
        now: Nanos,
    ) -> u64 {
        let time = warming.warp(now);
        let debt = old.debt(state, old.floor(time));
        let withheld = (old.withheld(warming, now), self.withheld(warming, now));
        let permits = |units: u64| u128::from(units) * u128::from(self.unit);
        let debt = match debt.checked_sub(withheld.0) {
            Some(spent) => permits(spent).div_ceil(old.unit.into()) + u128::from(withheld.1),
            None => {
                let spared = permits(withheld.0 - debt) / u128::from(old.unit);
                u128::from(withheld.1).saturating_sub(spared)
            }
        };
        self.owing(u64::try_from(debt).unwrap_or(u64::MAX), time)
    }

    /// The same quota, for keys that all had `old`'s start level: the start is not started anew.
    pub(super) fn started_warming(self, warming: &Warming, old: &Self, now: Nanos) -> Self {
        let new = self.starting(0);
        let debt = old.debt(0, old.floor(warming.warp(now)));
        let origin = if debt == 0 { 0 } else { new.convert_warming(warming, old, 0, now) };
        new.starting(origin)
    }

    pub(super) fn decide_warming(
        &self,
        warming: &Warming,
        state: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Decision {
        let floor = self.floor(warming.warp(now));
        let (debt, withheld) = (self.debt(state, floor), self.withheld(warming, now));
        let (held_units, cost_units) = (self.units(held), self.units(cost));
        let spent = debt.max(withheld).saturating_add(held_units);
        let replenished = |debt| warming.unwarp(self.instant_of(floor + debt));
        let whole = if withheld > 0 { warming.end() } else { now };
        let level = Level {
            capacity: self.capacity,
            left: self.capacity.saturating_sub(spent),
            unit: self.unit,
            reset_after: match (debt, withheld) {
                (0, 0) => Nanos::ZERO,
                (0, _) => wait_until(whole.get().into(), now),
                _ => wait_until(replenished(debt).max(whole.get().into()), now),
            },
        };
        if cost == 0 || spent.saturating_add(cost_units) <= self.capacity {
            return level.allowed();
        }
        if cost_units > self.capacity {
            return level.never();
        }
        // Where only holds are in the way, nobody knows when they end, and the least wait is said.
        let taken = held_units.saturating_add(cost_units);
        let needed = if taken > self.capacity { cost_units } else { taken };
        let burst = match needed <= self.unit {
            true => now,
            false => warming.reaches(self.capacity, needed, now),
        };
        let lacking = debt.saturating_add(taken).saturating_sub(self.capacity).min(debt);
        let refilled = if lacking > 0 { replenished(lacking) } else { 0 };
        level.denied(wait_until(refilled.max(burst.get().into()), now))
    }
}
