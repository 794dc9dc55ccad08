//! [`Planned`]: one rule, compiled.

use std::{fmt, sync::Arc};

use super::{
    Defaults, Encoded, MISSING,
    check::check_cost,
    scoped::{Hashed, Refuser, Scoped, Whose},
};
use crate::{
    Algorithm, ConfigError, Decision, Quota, Rule,
    backend::{
        Backend, LimiterId, LimiterSpec,
        local::{Counter, Seat},
    },
    clock::Nanos,
    event::Reason,
    limiter::DEFAULT_MAX_KEYS,
    request::{cost::Cost, head::Head, key::KeyBy},
    rule::{Counting, Place, SharedLimiter},
    waiting::{Elsewhere, Limit},
};

/// One rule, compiled.
pub(crate) struct Planned {
    pub(crate) by: Refuser,
    pub(crate) scope: Scoped,
    cost: Cost,
    /// The quota of each alternative of the key.
    quotas: Box<[u8]>,
    pub(crate) count: Count,
}

/// Where a rule counts.
pub(crate) enum Count {
    Local(Arc<Limit>),
    Remote(Box<Remote>),
}

/// A rule on a backend that is not this process's own.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) backend: Arc<dyn Backend>,
    /// What [`Backend::identity`] says.
    pub(crate) identity: usize,
    pub(crate) id: LimiterId,
    spec: LimiterSpec,
    /// Who waits for it in this process.
    pub(crate) waiting: Arc<Elsewhere>,
}

impl Remote {
    /// What a newcomer gets who is not asked for, since others wait to ask before him.
    pub(crate) fn denied(&self, quota: usize, wait: Nanos) -> Decision {
        let limit = self.spec.quotas.get(quota).map_or(0, Quota::max_burst);
        let wait = wait.max(Nanos::new(1)).into();
        Decision::denied(limit, 0, wait, wait)
    }
}

impl Planned {
    #[inline]
    pub(crate) fn cost(&self, head: &Head<'_>) -> u64 {
        self.cost.of(head)
    }

    /// Whose permits the request spends.
    #[inline]
    pub(crate) fn whose(&self, head: &Head<'_>) -> Whose<Seat> {
        match self.scope.whose(head) {
            Whose::Of(hashed) => Whose::Of(self.seat(hashed)),
            Whose::Nobodys => Whose::Nobodys,
            Whose::Refused(status) => Whose::Refused(status),
        }
    }

    #[inline]
    fn seat(&self, Hashed { hash, alternative }: Hashed) -> Seat {
        let quota = self.quotas.get(usize::from(alternative)).copied().unwrap_or(0);
        Seat { quota: quota.into(), hash }
    }

    /// The seat of a key that is named, not extracted.
    pub(crate) fn seat_of<'p>(
        &self,
        alternative: u8,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Seat {
        if self.scope.key.is_none() {
            return Seat { quota: 0, hash: 0 };
        }
        self.seat(Hashed { hash: self.scope.hash_of(alternative, parts), alternative })
    }

    /// The key's bytes for another backend: each part after its length, then the alternative.
    pub(crate) fn key_bytes(&self, head: &Head<'_>) -> Encoded {
        let mut encoded = Encoded::default();
        if let Some(key) = &self.scope.key {
            match key.feed(head, &mut encoded) {
                Some(found) => encoded.finish(found.alternative),
                None => encoded.finish(MISSING),
            }
        }
        encoded
    }

    /// The algorithm. Where it counts elsewhere, its quota is the one that the rule was built with.
    fn algorithm(&self) -> Algorithm {
        match &self.count {
            Count::Local(limit) => limit.counter.algorithm(),
            Count::Remote(remote) => remote.spec.algorithm,
        }
    }

    /// Whether it admits one request per interval and has nothing for others to wait in.
    pub(crate) fn lacks_waiting(&self) -> bool {
        matches!(self.algorithm(), Algorithm::LeakyBucket(_)) && !self.by.policy.can_wait()
    }

    /// Puts another quota in force.
    pub(crate) fn set_limit(&self, quota: Quota, now: Nanos) -> Result<(), ConfigError> {
        check_cost(&self.cost, &self.algorithm().with_quota(quota))
            .map_err(|error| error.of_rule(&self.by.name))?;
        match &self.count {
            Count::Local(limit) => limit.set_limit(quota, now),
            Count::Remote(remote) => remote
                .spec
                .renewed(quota, now, Some(remote.id))
                .and_then(|spec| remote.backend.register(&spec).map(|_| ())),
        }
        .map_err(|error| error.of_rule(&self.by.name))
    }

    pub(super) fn compile(rule: Rule, defaults: &Defaults<'_>) -> Result<Self, ConfigError> {
        let all_factors = rule.scope.key.as_ref().map_or_else(|| vec![1], KeyBy::factors);
        let mut factors: Vec<u64> = Vec::new();
        let quotas = all_factors
            .iter()
            .map(|factor| {
                let known = factors.iter().position(|known| known == factor);
                known.unwrap_or_else(|| {
                    factors.push(*factor);
                    factors.len() - 1
                }) as u8 // At most sixteen alternatives.
            })
            .collect();
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
                        spec,
                        waiting: Arc::default(),
                    })),
                };
                (count, defaults.hasher.clone())
            }
        };
        let spread = rule.spread.unwrap_or(rule.scope.key.is_none());
        let Rule { name, status, policy, scope, cost, .. } = rule;
        Ok(Self {
            by: Refuser::new(name, status, policy, spread, Reason::Quota, defaults),
            scope: Scoped::new(scope, hasher),
            cost,
            quotas,
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
    let quotas = factors.iter().map(|factor| algorithm.relaxed(*factor));
    Ok(LimiterSpec {
        name: Arc::clone(&rule.name),
        algorithm,
        quotas: quotas.collect::<Result<_, _>>()?,
        factors: factors.to_vec(),
        keyed: rule.scope.key.is_some(),
        max_keys: rule.max_keys.unwrap_or(DEFAULT_MAX_KEYS),
        utc_at_zero: defaults.time.utc_at_zero(),
        now: defaults.time.now(),
        replaces: None,
    })
}

impl fmt::Debug for Planned {
    /// Its name: what a layer's own `Debug` lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.by.name, f)
    }
}
