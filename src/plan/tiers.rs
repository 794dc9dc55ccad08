//! [`PlannedTiers`]: a rule's tiers, compiled; and the quotas there are for tiers and factors.

use std::sync::Arc;

use crate::{
    Algorithm, ConfigError, Head, Quota,
    algorithm::{Compiled, Epoch},
    observe::{Lacking, Once},
    request::key::KeyBy,
    rule::{Pick, Tiers},
};

/// The most quotas of one rule: an index is a byte, here and in receipts.
pub(super) const MAX_QUOTAS: usize = 256;

/// A rule's tiers, compiled.
pub(crate) struct PlannedTiers {
    names: Box<[Arc<str>]>,
    pick: Arc<Pick>,
    /// How many quotas each tier has, one for each factor of the key.
    factors: u8,
    /// Whether any request is in a tier.
    in_none: Lacking,
    /// That a name was seen that no tier has, or none for long.
    unknown: Once,
}

impl PlannedTiers {
    /// `None` where the rule has none. `factors` are at most sixteen.
    pub(super) fn compile(tiers: &Tiers, factors: usize) -> Option<Self> {
        let pick = Arc::clone(tiers.pick.as_ref()?);
        let names = tiers.named.iter().map(|(name, _)| Arc::clone(name)).collect();
        Some(Self {
            names,
            pick,
            factors: factors as u8,
            in_none: Lacking::default(),
            unknown: Once::default(),
        })
    }

    /// The index of the quota that the request's tier has in place of the rule's own. `unknown` is called once: where
    /// no tier has its name, or none of many requests was in any.
    pub(super) fn quota(&self, head: &Head<'_>, own: usize, unknown: impl FnOnce()) -> usize {
        let name = (self.pick)(head);
        if let Some(tier) = name.and_then(|name| self.number(name)) {
            self.in_none.found();
            return self.quota_of(tier, own);
        }
        if (name.is_some() || self.in_none.is_fault()) && self.unknown.is_news() {
            unknown();
        }
        own
    }

    /// The same of a request that was asked about before: what it shows of the set-up has been seen.
    pub(super) fn quota_again(&self, head: &Head<'_>, own: usize) -> usize {
        let tier = (self.pick)(head).and_then(|name| self.number(name));
        tier.map_or(own, |tier| self.quota_of(tier, own))
    }

    /// The same for a tier by its number.
    pub(super) fn quota_of(&self, tier: usize, own: usize) -> usize {
        tier * usize::from(self.factors) + own
    }

    /// The number of a tier, counted from 1: 0 is the rule's own quota.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| **known == *name).map(|index| index + 1)
    }

    /// The name of the tier that has this quota; `None` for the rule's own.
    pub(super) fn name_of(&self, quota: usize) -> Option<&str> {
        let tier = quota / usize::from(self.factors);
        self.names.get(tier.checked_sub(1)?).map(|name| &**name)
    }

    /// The names, in the order written.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }
}

/// The quotas of all tiers, for each the factors in their order; where they are counted `here`, an error
/// tells which tier cannot be.
pub(super) fn quotas(
    tiers: &Tiers,
    algorithm: &Algorithm,
    factors: &[u64],
    here: Option<Epoch>,
) -> Result<Vec<Quota>, ConfigError> {
    let mut quotas = Vec::new();
    for (name, quota) in &tiers.named {
        let algorithm = algorithm.with_quota(*quota);
        for factor in factors {
            let compiled = algorithm.relaxed(*factor).and_then(|quota| {
                if let Some(epoch) = here {
                    Compiled::of(&algorithm.with_quota(quota), epoch)?;
                }
                Ok(quota)
            });
            quotas.push(compiled.map_err(|error| error.of_tier(name))?);
        }
    }
    Ok(quotas)
}

/// What each alternative of a key multiplies the quota by.
pub(super) fn all_factors(key: Option<&KeyBy>) -> impl Iterator<Item = u64> {
    key.map_or_else(|| vec![1], KeyBy::factors).into_iter()
}

/// The same, each once.
pub(super) fn factors(key: Option<&KeyBy>) -> Vec<u64> {
    let mut factors = Vec::new();
    for factor in all_factors(key) {
        if !factors.contains(&factor) {
            factors.push(factor);
        }
    }
    factors
}
