//! A fixed window on a ramp: its limit grows with the share, also within a window.

use super::Warming;
use crate::{
    Decision,
    algorithm::{fixed_window::Machine as Window, wait_until},
    clock::Nanos,
    decision::Level,
};

impl Window {
    pub(super) fn decide_warming(
        &self,
        warming: &Warming,
        state: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Decision {
        let limit = warming.scaled(self.limit, now);
        let under_way = self.under_way(state, now);
        let spent = under_way.map_or(0, |(count, _)| count).saturating_add(held);
        let whole = if limit < self.limit { warming.end().since(now) } else { Nanos::ZERO };
        let reset_after = under_way.map_or(Nanos::ZERO, |(_, left)| left).max(whole);
        let left = limit.saturating_sub(spent);
        let level = Level { capacity: self.limit, left, unit: 1, reset_after };
        if cost == 0 || cost <= left {
            return level.allowed();
        }
        if cost > self.limit {
            return level.never();
        }
        // In this window the limit may grow far enough; in the next one nothing is spent.
        let grown = |needed| warming.reaches(self.limit, needed, now).get();
        let here = spent.checked_add(cost).filter(|needed| *needed <= self.limit).map(grown);
        let there = match under_way {
            Some((_, left)) => grown(cost).max(now.get().saturating_add(left.get())),
            None => grown(cost),
        };
        level.denied(wait_until(here.map_or(there, |here| here.min(there)).into(), now))
    }
}
