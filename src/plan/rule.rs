//! [`Planned`]: one rule, compiled.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    Defaults, Encoded, MISSING,
    check::check_cost,
    scoped::{Hashed, Refuser, Scoped, Whose},
    tiers::{self, PlannedTiers, all_factors, factors},
};
use crate::{
    Algorithm, ConfigError, Decision, Quota, Rule,
    algorithm::Epoch,
    backend::{
        Backend, LimiterId, LimiterSpec,
        local::{Counter, Seat},
    },
    clock::Nanos,
    event::Reason,
    limiter::DEFAULT_MAX_KEYS,
    request::{cost::Cost, head::Head},
    rule::{Counting, Place, SharedLimiter},
    sync::{Mutex, lock},
    waiting::{Elsewhere, Limit},
};

/// One rule, compiled.
pub(crate) struct Planned {
    pub(crate) by: Refuser,
    pub(crate) scope: Scoped,
    cost: Cost,
    /// The quota of each alternative of the key; a tier's are further on, in the same order.
    quotas: Box<[u8]>,
    pub(crate) tiers: Option<Box<PlannedTiers>>,
    pub(crate) count: Count,
}

/// Where a rule counts.
pub(crate) enum Count {
    Local(Arc<Limit>),
    Remote(Box<Remote>),
}

/// A rule on a backend that is not this process's own.
pub(crate) struct Remote {
    pub(crate) backend: Arc<dyn Backend>,
    /// What [`Backend::identity`] says.
    pub(crate) identity: usize,
    pub(crate) id: LimiterId,
    /// What the backend was told last.
    spec: Mutex<Arc<LimiterSpec>>,
    /// Serialises changes of it, and counts them. A request that reads the spec does not wait for the backend's
    /// `register`.
    changing: Mutex<()>,
    changes: AtomicU64,
    /// Who waits for it in this process.
    pub(crate) waiting: Arc<Elsewhere>,
}

impl Remote {
    fn spec(&self) -> Arc<LimiterSpec> {
        Arc::clone(&lock(&self.spec))
    }

    fn set_limit(&self, tier: usize, quota: Quota, now: Nanos) -> Result<(), ConfigError> {
        let _serial = lock(&self.changing);
        let renewed = self.spec().renewed(tier, quota, now, Some(self.id))?;
        self.backend.register(&renewed)?;
        *lock(&self.spec) = Arc::new(renewed);
        // Release pairs with the acquire in `changes`.
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The algorithm, and one of its quotas in force.
    pub(super) fn quota(&self, quota: usize) -> (Algorithm, Quota) {
        self.spec().quota(quota)
    }

    /// How often a quota was changed.
    pub(super) fn changes(&self) -> u64 {
        // Acquire pairs with the release in `set_limit`: who sees the number finds the quota it counts.
        self.changes.load(Ordering::Acquire)
    }

    /// What a newcomer gets who is not asked for, since others wait to ask before him.
    pub(crate) fn denied(&self, quota: usize, wait: Nanos) -> Decision {
        let limit = self.spec().quotas.get(quota).map_or(0, Quota::max_burst);
        let wait = wait.max(Nanos::new(1)).into();
        Decision::denied(limit, 0, wait, wait)
    }
}

impl Planned {
    #[inline]
    pub(crate) fn cost(&self, head: &Head<'_>) -> u64 {
        self.cost.of(head)
    }

    /// Whose permits the request spends. `unknown` is called where it names a tier that the rule does not have.
    #[inline]
    pub(crate) fn whose(&self, head: &Head<'_>, unknown: impl FnOnce()) -> Whose<Seat> {
        self.whose_in(head, |tiers, own| tiers.quota(head, own, unknown))
    }

    /// The same of a request that was asked about before.
    pub(crate) fn whose_again(&self, head: &Head<'_>) -> Whose<Seat> {
        self.whose_in(head, |tiers, own| tiers.quota_again(head, own))
    }

    #[inline]
    fn whose_in(
        &self,
        head: &Head<'_>,
        quota: impl FnOnce(&PlannedTiers, usize) -> usize,
    ) -> Whose<Seat> {
        match self.scope.whose(head) {
            Whose::Of(hashed) => {
                let mut seat = self.seat(hashed);
                if let Some(tiers) = &self.tiers {
                    seat.quota = quota(tiers, seat.quota);
                }
                Whose::Of(seat)
            }
            Whose::Nobodys => Whose::Nobodys,
            Whose::Refused(status) => Whose::Refused(status),
        }
    }

    #[inline]
    fn seat(&self, Hashed { hash, alternative }: Hashed) -> Seat {
        let quota = self.quotas.get(usize::from(alternative)).copied().unwrap_or(0);
        Seat { quota: quota.into(), hash }
    }

    /// The seat of a key that is named, not extracted; of a tier by its number, or of none for 0.
    pub(crate) fn seat_of<'p>(
        &self,
        tier: usize,
        alternative: u8,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Seat {
        let mut seat = match self.scope.key {
            None => Seat { quota: 0, hash: 0 },
            Some(_) => {
                self.seat(Hashed { hash: self.scope.hash_of(alternative, parts), alternative })
            }
        };
        if let Some(tiers) = &self.tiers {
            seat.quota = tiers.quota_of(tier, seat.quota);
        }
        seat
    }

    /// Whether it counts more than one thing: keys, or tiers.
    pub(crate) fn has_keys(&self) -> bool {
        self.scope.key.is_some() || self.tiers.is_some()
    }

    /// The key's bytes for another backend: each part after its length, then the alternative, then the tier.
    pub(crate) fn key_bytes(&self, head: &Head<'_>, seat: Seat) -> Encoded {
        let mut encoded = Encoded::default();
        if let Some(key) = &self.scope.key {
            match key.feed(head, &mut encoded) {
                Some(found) => encoded.finish(found.alternative),
                None => encoded.finish(MISSING),
            }
        }
        self.add_tier(&mut encoded, seat);
        encoded
    }

    /// The same for a key that is named, not extracted.
    pub(crate) fn key_bytes_of<'p>(
        &self,
        seat: Seat,
        alternative: u8,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Encoded {
        let mut encoded = match self.scope.key {
            None => Encoded::default(),
            Some(_) => Encoded::named(alternative, parts),
        };
        self.add_tier(&mut encoded, seat);
        encoded
    }

    fn add_tier(&self, encoded: &mut Encoded, seat: Seat) {
        let tiers = self.tiers.as_deref();
        if let Some(tier) = tiers.and_then(|tiers| tiers.name_of(seat.quota)) {
            encoded.tier(tier);
        }
    }

    /// The algorithm, with the quota in force.
    fn algorithm(&self) -> Algorithm {
        match &self.count {
            Count::Local(limit) => limit.counter.algorithm(),
            Count::Remote(remote) => remote.spec().algorithm,
        }
    }

    /// Whether it admits one request per interval and has nothing for others to wait in.
    pub(crate) fn lacks_waiting(&self) -> bool {
        matches!(self.algorithm(), Algorithm::LeakyBucket(_)) && !self.by.policy.can_wait()
    }

    /// Puts another quota in force.
    pub(crate) fn set_limit(&self, quota: Quota, now: Nanos) -> Result<(), ConfigError> {
        self.set_limit_of(0, quota, now).map_err(|error| error.of_rule(&self.by.name))
    }

    /// Puts another quota of a tier in force; `None` where there is no such tier.
    pub(crate) fn set_tier_limit(
        &self,
        tier: &str,
        quota: Quota,
        now: Nanos,
    ) -> Option<Result<(), ConfigError>> {
        let number = self.tiers.as_ref()?.number(tier)?;
        let set = self.set_limit_of(number, quota, now);
        Some(set.map_err(|error| error.of_tier(tier).of_rule(&self.by.name)))
    }

    fn set_limit_of(&self, tier: usize, quota: Quota, now: Nanos) -> Result<(), ConfigError> {
        check_cost(&self.cost, &self.algorithm().with_quota(quota))?;
        match &self.count {
            Count::Local(limit) => limit.set_limit(tier, quota, now),
            Count::Remote(remote) => remote.set_limit(tier, quota, now),
        }
    }

    pub(super) fn compile(rule: Rule, defaults: &Defaults<'_>) -> Result<Self, ConfigError> {
        let factors = factors(rule.scope.key.as_ref());
        let quota = |factor| factors.iter().position(|known| *known == factor).unwrap_or(0);
        // At most sixteen alternatives.
        let quotas = all_factors(rule.scope.key.as_ref()).map(|factor| quota(factor) as u8);
        let (quotas, tiers) = (quotas.collect(), PlannedTiers::compile(&rule.tiers, factors.len()));
        let (count, hasher) = match &rule.counting {
            Counting::Shared(SharedLimiter::Unkeyed(limiter)) => {
                (Count::Local(Arc::clone(&limiter.shared.limit)), defaults.hasher.clone())
            }
            Counting::Shared(SharedLimiter::Keyed(limiter)) => {
                (Count::Local(Arc::clone(&limiter.shared.limit)), limiter.hasher.clone())
            }
            Counting::Own(algorithm) => {
                let spec = spec(&rule, *algorithm, &factors, defaults)?;
                let count = match rule.elsewhere(defaults) {
                    None => Count::Local(Arc::new(Limit::new(Counter::new(&spec)?))),
                    Some(backend) => Count::Remote(Box::new(Remote {
                        id: backend.register(&spec)?,
                        identity: backend.identity(),
                        backend: Arc::clone(backend),
                        spec: Mutex::new(Arc::new(spec)),
                        changing: Mutex::new(()),
                        changes: AtomicU64::new(0),
                        waiting: Arc::default(),
                    })),
                };
                (count, defaults.hasher.clone())
            }
        };
        let spread = rule.spread.unwrap_or(rule.scope.key.is_none());
        let Rule { name, status, policy, while_away, scope, cost, advertised, .. } = rule;
        let is_shown = advertised || scope.has_own_key();
        Ok(Self {
            by: Refuser::new(name, status, policy, spread, Reason::Quota, defaults)
                .shown(is_shown)
                .while_away(while_away),
            scope: Scoped::new(scope, hasher),
            cost,
            quotas,
            tiers: tiers.map(Box::new),
            count,
        })
    }
}

impl Rule {
    /// The backend elsewhere that the rule counts on, if it does not count here.
    pub(super) fn elsewhere<'r>(
        &'r self,
        defaults: &'r Defaults<'_>,
    ) -> Option<&'r Arc<dyn Backend>> {
        match (&self.counting, &self.place) {
            (Counting::Shared(_), _) | (_, Place::Here) => None,
            (_, Place::Elsewhere(backend)) => Some(backend),
            (_, Place::Default) => defaults.backend,
        }
    }
}

fn spec(
    rule: &Rule,
    algorithm: Algorithm,
    factors: &[u64],
    defaults: &Defaults<'_>,
) -> Result<LimiterSpec, ConfigError> {
    let own = factors.iter().map(|factor| algorithm.relaxed(*factor));
    let mut quotas = own.collect::<Result<Vec<_>, _>>()?;
    let elsewhere = rule.elsewhere(defaults).is_some();
    let (now, utc_at_zero) = (defaults.time.now(), defaults.time.utc_at_zero());
    let here = (!elsewhere).then_some(Epoch { built: now, utc_at_zero });
    quotas.extend(tiers::quotas(&rule.tiers, &algorithm, factors, here)?);
    Ok(LimiterSpec {
        name: Arc::clone(&rule.name),
        algorithm,
        quotas,
        factors: factors.to_vec(),
        // Elsewhere the tier is told by the key's bytes; here each has a state of its own.
        keyed: rule.scope.key.is_some() || elsewhere && !rule.tiers.is_empty(),
        max_keys: rule.max_keys.unwrap_or(DEFAULT_MAX_KEYS),
        utc_at_zero,
        now,
        replaces: None,
    })
}

impl fmt::Debug for Planned {
    /// Its name: what a layer's own `Debug` lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.by.name, f)
    }
}
