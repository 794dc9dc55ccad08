//! [`Plan`]: a layer's rules, checked and compiled, as they are met by requests.

mod check;
mod keys;

use std::{collections::HashSet, fmt, sync::Arc};

use ahash::RandomState;
use bytes::Bytes;
use http::StatusCode;

pub(crate) use self::keys::{Encoded, MISSING};
use self::{
    check::{check, check_cost},
    keys::{Hashing, shared_hash},
};
use crate::{
    Algorithm, ConfigError, Missing, Quota, RejectionPolicy, Rule,
    backend::{
        Backend, LimiterId, LimiterSpec,
        local::{Counter, Seat},
    },
    clock::{Nanos, Time},
    event::Reason,
    limiter::{DEFAULT_MAX_KEYS, hash_of},
    observe::KeyWatch,
    request::{
        cost::Cost,
        head::Head,
        key::{Found, KeyBy},
        matcher::Match,
    },
    response::problem,
    rule::{Counting, Place, SharedLimiter},
};

/// The most rules a layer may have: one bit each in a word.
const MAX_RULES: usize = 64;

/// A layer's rules, compiled.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) rules: Box<[Planned]>,
    /// Whether a rule counts elsewhere, so that the others hold until it has answered.
    pub(crate) has_remote: bool,
}

/// One rule, compiled.
pub(crate) struct Planned {
    pub(crate) name: Arc<str>,
    matcher: Option<Match>,
    cost: Cost,
    pub(crate) key: Option<KeyBy>,
    missing: Option<Missing>,
    /// The quota of each alternative of the key.
    quotas: Box<[u8]>,
    hasher: RandomState,
    pub(crate) count: Count,
    pub(crate) status: StatusCode,
    pub(crate) policy: RejectionPolicy,
    pub(crate) spread: bool,
    pub(crate) watch: KeyWatch,
    /// The default body of a refusal by this rule alone.
    pub(crate) body: Bytes,
}

/// Where a rule counts.
pub(crate) enum Count {
    Local(Arc<Counter>),
    Remote(Remote),
}

/// A rule on a backend that is not this process's own.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) backend: Arc<dyn Backend>,
    /// What [`Backend::identity`] says.
    pub(crate) identity: usize,
    pub(crate) id: LimiterId,
    spec: LimiterSpec,
}

/// Whose permits a request spends on a rule.
pub(crate) enum Whose {
    /// This key's, under this quota.
    Of(Seat),
    /// Nobody's: the rule does not apply.
    Nobodys,
    /// The request has no key and is refused for it.
    Refused(StatusCode),
}

impl Planned {
    #[inline]
    pub(crate) fn applies(&self, head: &Head<'_>) -> bool {
        match &self.matcher {
            None => true,
            // Where a route pattern cannot tell, the rule applies: a limit must not vanish.
            Some(matcher) => matcher.decide(head).unwrap_or(true),
        }
    }

    #[inline]
    pub(crate) fn cost(&self, head: &Head<'_>) -> u64 {
        self.cost.of(head)
    }

    /// Whose permits the request spends; `found` is told of a key, or of none.
    #[inline]
    pub(crate) fn whose(&self, head: &Head<'_>) -> Whose {
        let Some(key) = &self.key else { return Whose::Of(Seat { quota: 0, hash: 0 }) };
        let mut sink = Hashing::new(&self.hasher);
        match key.feed(head, &mut sink) {
            Some(found) => Whose::Of(self.seat(found, sink)),
            None => self.keyless(),
        }
    }

    #[cold]
    fn keyless(&self) -> Whose {
        match self.missing {
            Some(Missing::Shared) => Whose::Of(Seat { quota: 0, hash: shared_hash(&self.hasher) }),
            Some(Missing::Refuse(status)) => Whose::Refused(status),
            // `build` refuses a key that may be missing without a choice.
            Some(Missing::Skip) | None => Whose::Nobodys,
        }
    }

    #[inline]
    fn seat(&self, found: Found, sink: Hashing<'_>) -> Seat {
        let quota = self.quotas.get(usize::from(found.alternative)).copied().unwrap_or(0);
        Seat { quota: quota.into(), hash: sink.finish(found.alternative) }
    }

    /// The seat of a key that is named, not extracted.
    pub(crate) fn seat_of<'p>(
        &self,
        alternative: u8,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> Seat {
        if self.key.is_none() {
            return Seat { quota: 0, hash: 0 };
        }
        let quota = self.quotas.get(usize::from(alternative)).copied().unwrap_or(0);
        Seat { quota: quota.into(), hash: hash_of(&self.hasher, alternative, parts) }
    }

    /// Whether requests without a key count together.
    pub(crate) fn shares_missing(&self) -> bool {
        self.missing == Some(Missing::Shared)
    }

    /// The key's bytes for another backend: each part after its length, then the alternative.
    pub(crate) fn key_bytes(&self, head: &Head<'_>) -> Encoded {
        let mut encoded = Encoded::default();
        if let Some(key) = &self.key {
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
            Count::Local(counter) => counter.algorithm(),
            Count::Remote(remote) => remote.spec.algorithm,
        }
    }

    /// Puts another quota in force.
    pub(crate) fn set_limit(&self, quota: Quota, now: Nanos) -> Result<(), ConfigError> {
        check_cost(&self.cost, &self.algorithm().with_quota(quota))
            .map_err(|error| error.of_rule(&self.name))?;
        match &self.count {
            Count::Local(counter) => counter.set_limit(quota, now),
            Count::Remote(remote) => remote
                .spec
                .renewed(quota, now, Some(remote.id))
                .and_then(|spec| remote.backend.register(&spec).map(|_| ())),
        }
        .map_err(|error| error.of_rule(&self.name))
    }
}

impl Plan {
    /// Checks and compiles `rules`; backends are told of limiters only when all rules are right.
    pub(crate) fn compile(rules: &[Rule], defaults: &Defaults<'_>) -> Result<Self, ConfigError> {
        if rules.len() > MAX_RULES {
            return Err(ConfigError::new("rules", rules.len(), "must be at most 64 in one layer"));
        }
        let mut names = HashSet::new();
        for rule in rules {
            check(rule, defaults).map_err(|error| error.of_rule(&rule.name))?;
            if !names.insert(Arc::clone(&rule.name)) {
                return Err(ConfigError::new(
                    "name",
                    format!("{:?}", rule.name),
                    "two rules of one layer have this name",
                )
                .of_rule(&rule.name));
            }
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
            if has_remote && let Count::Local(counter) = &rule.count {
                counter.may_hold();
            }
        }
        Ok(Self { rules, has_remote })
    }

    pub(crate) fn rule(&self, name: &str) -> Option<&Planned> {
        self.rules.iter().find(|rule| &*rule.name == name)
    }

    /// The name of the first rule of which this holds.
    pub(crate) fn first_that(&self, holds: impl Fn(&Planned) -> bool) -> Option<&Arc<str>> {
        self.rules.iter().find(|rule| holds(rule)).map(|rule| &rule.name)
    }
}

impl Rule {
    /// The backend elsewhere that the rule counts on, if it does not count here.
    fn elsewhere<'r>(&'r self, defaults: &'r Defaults<'_>) -> Option<&'r Arc<dyn Backend>> {
        match (&self.counting, &self.place) {
            (Counting::Shared(_), _) | (_, Place::Here) => None,
            (_, Place::Elsewhere(backend)) => Some(backend),
            (_, Place::Default) => defaults.backend,
        }
    }
}

/// What a rule takes from its layer.
pub(crate) struct Defaults<'l> {
    pub(crate) time: &'l Time,
    pub(crate) hasher: &'l RandomState,
    pub(crate) policy: &'l RejectionPolicy,
    pub(crate) backend: Option<&'l Arc<dyn Backend>>,
}

impl Planned {
    fn compile(rule: Rule, defaults: &Defaults<'_>) -> Result<Self, ConfigError> {
        let all_factors = rule.key.as_ref().map_or_else(|| vec![1], KeyBy::factors);
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
        let (count, hasher) = match rule.counting {
            Counting::Shared(SharedLimiter::Unkeyed(limiter)) => {
                (Count::Local(limiter.shared.counter), defaults.hasher.clone())
            }
            Counting::Shared(SharedLimiter::Keyed(limiter)) => {
                (Count::Local(limiter.shared.counter), limiter.hasher)
            }
            Counting::Own(algorithm) => {
                let spec = spec(&rule, algorithm, &factors, defaults)?;
                let count = match rule.elsewhere(defaults) {
                    None => Count::Local(Arc::new(Counter::new(&spec)?)),
                    Some(backend) => {
                        let id = backend.register(&spec)?;
                        let identity = backend.identity();
                        Count::Remote(Remote { backend: Arc::clone(backend), identity, id, spec })
                    }
                };
                (count, defaults.hasher.clone())
            }
        };
        let body = problem::body(rule.status, Reason::Quota, [&*rule.name]);
        let watch = if rule.key.as_ref().is_some_and(KeyBy::is_global) {
            KeyWatch::settled()
        } else {
            KeyWatch::new((rule.missing == Some(Missing::Shared)).then(|| shared_hash(&hasher)))
        };
        Ok(Self {
            spread: rule.spread.unwrap_or(rule.key.is_none()),
            policy: rule.policy.unwrap_or_else(|| defaults.policy.clone()),
            watch,
            name: rule.name,
            matcher: rule.matcher,
            cost: rule.cost,
            key: rule.key,
            missing: rule.missing,
            status: rule.status,
            quotas,
            hasher,
            count,
            body,
        })
    }

    pub(crate) fn wants_peer(&self) -> bool {
        self.matcher.as_ref().is_some_and(Match::wants_peer)
            || self.key.as_ref().is_some_and(KeyBy::wants_peer)
    }

    /// Whether the peer address matters and the request has none.
    pub(crate) fn lacks_peer(&self, head: &Head<'_>) -> bool {
        self.matcher.as_ref().is_some_and(|matcher| matcher.lacks_peer(head))
            || self.key.as_ref().is_some_and(|key| key.lacks_peer(head))
    }

    /// Whether it admits one request per interval and has nothing for others to wait in.
    pub(crate) fn lacks_waiting(&self) -> bool {
        matches!(self.algorithm(), Algorithm::LeakyBucket(_)) && !self.policy.can_wait()
    }

    pub(crate) fn wants_route(&self) -> bool {
        self.matcher.as_ref().is_some_and(Match::wants_route)
            || self.key.as_ref().is_some_and(KeyBy::wants_route)
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
        keyed: rule.key.is_some(),
        max_keys: rule.max_keys.unwrap_or(DEFAULT_MAX_KEYS),
        utc_at_zero: defaults.time.utc_at_zero(),
        now: defaults.time.now(),
        replaces: None,
    })
}

impl fmt::Debug for Planned {
    /// Its name: what a layer's own `Debug` lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}
