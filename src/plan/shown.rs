//! [`Shown`]: the limits that callers are told of, and what they are told of each.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
    num::NonZeroU8,
    sync::{Arc, PoisonError, RwLock},
};

use ahash::RandomState;
use http::Response;
use smallvec::SmallVec;

use super::{Count, Plan, Whose};
use crate::{
    Algorithm, Decision, Head, Headers, Quota,
    backend::local::Seat,
    clock::{Nanos, Time},
    response::{Policies, Policy, Standing, Unit, Wait, retry_after},
    waiting::Limit,
};

/// The limits that callers are told of.
pub(crate) struct Shown {
    forms: Box<[Headers]>,
    /// Whether admitted callers are told too.
    pub(crate) to_admitted: bool,
    time: Time,
    hasher: RandomState,
    /// What was written for requests to which the same limits apply, by a hash of those.
    written: RwLock<HashMap<u64, Arc<Policies>>>,
}

/// The most combinations of limits and quotas that are kept written. When they are all there they are written anew.
const MOST_WRITTEN: usize = 256;

/// One limit that applies to a request and is shown.
#[derive(Clone, Copy)]
struct Applied {
    number: u16,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Rate { quota: usize, changes: u64, decision: Option<Decision> },
    InFlight { limit: u64, free: u64 },
}

/// What callers are told.
pub(crate) struct Told {
    policies: Arc<Policies>,
    standing: Option<Standing>,
}

impl Told {
    /// Tells it with the inner service's answer.
    pub(crate) fn tell<R>(self, response: &mut Response<R>) {
        let status = response.status();
        self.policies.add_to_inner(self.standing, status, response.headers_mut());
    }

    /// Tells it with an answer of the layer.
    pub(crate) fn tell_refused<R>(self, response: &mut Response<R>) {
        let status = response.status();
        self.policies.add_to_ours(self.standing, status, response.headers_mut());
    }
}

impl Shown {
    pub(crate) fn new(forms: &[Headers], to_admitted: bool, time: &Time) -> Self {
        Self {
            forms: forms.into(),
            to_admitted,
            time: time.clone(),
            hasher: RandomState::new(),
            written: RwLock::default(),
        }
    }

    /// What a caller is told who was admitted. `said` is what other backends decided.
    pub(crate) fn admitted(
        &self,
        plan: &Plan,
        head: &Head<'_>,
        now: Nanos,
        said: &[(u16, Decision)],
    ) -> Option<Told> {
        let applied = plan.shown(head, |number, local| match local {
            Some((limit, seat)) => Some(limit.counter.peek(seat, now, 0)),
            None => said.iter().find(|(rule, _)| *rule == number).map(|(_, decision)| *decision),
        });
        // Least left, then the longest time; a rate before what is in flight.
        let standing = applied.iter().enumerate().filter_map(|(index, applied)| {
            Some(match applied.kind {
                Kind::Rate { decision, .. } => {
                    let (decision, reset) = (decision?, decision?.reset_after());
                    let secs = if reset.is_zero() { 0 } else { retry_after::seconds(reset) };
                    let wait = Wait::new(&self.time, now, reset, secs);
                    (false, decision.remaining(), wait, index)
                }
                Kind::InFlight { free, .. } => (true, free, None, index),
            })
        });
        let least = standing.min_by_key(|(is_in_flight, remaining, wait, _)| {
            (*is_in_flight, *remaining, std::cmp::Reverse(*wait))
        });
        let standing =
            least.and_then(|(_, remaining, wait, index)| standing_at(index, remaining, wait));
        Some(Told { policies: self.policies(plan, &applied)?, standing })
    }

    /// What a caller is told who was refused by these, and to come back after so many seconds.
    pub(crate) fn refused(
        &self,
        plan: &Plan,
        head: &Head<'_>,
        denied: impl Iterator<Item = (u16, Option<Decision>)>,
        retry_after_secs: Option<u64>,
    ) -> Option<Told> {
        let applied = plan.shown(head, |_, _| None);
        // Of those that are shown the one with the longest wait, a rate before what is in flight.
        let shown = denied.filter_map(|(number, decision)| {
            let index = applied.iter().position(|applied| applied.number == number)?;
            Some((index, decision))
        });
        let longest = shown.max_by_key(|(index, decision)| {
            let wait = decision.and_then(|decision| decision.retry_after());
            (decision.is_some(), wait, std::cmp::Reverse(*index))
        });
        let standing = longest.and_then(|(index, decision)| match decision {
            Some(decision) => {
                let (now, own) = (self.time.now(), decision.retry_after().unwrap_or_default());
                let wait = retry_after_secs.and_then(|secs| Wait::new(&self.time, now, own, secs));
                standing_at(index, decision.remaining(), wait)
            }
            None => standing_at(index, 0, None),
        });
        Some(Told { policies: self.policies(plan, &applied)?, standing })
    }

    /// What is written for these limits; none where there are none.
    fn policies(&self, plan: &Plan, applied: &[Applied]) -> Option<Arc<Policies>> {
        if applied.is_empty() {
            return None;
        }
        let hash = self.hash(applied);
        let written = self.written.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(policies) = written.get(&hash) {
            return Some(Arc::clone(policies));
        }
        drop(written);
        let all = applied.iter().map(|applied| plan.policy(applied)).collect();
        let policies = Arc::new(Policies::new(all, &self.forms, &self.time));
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= MOST_WRITTEN {
            written.clear();
        }
        Some(Arc::clone(written.entry(hash).or_insert(policies)))
    }

    /// Says which limits these are, with which quotas in force.
    fn hash(&self, applied: &[Applied]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for Applied { number, kind } in applied {
            hasher.write_u16(*number);
            match kind {
                Kind::Rate { quota, changes, .. } => {
                    hasher.write_usize(*quota);
                    hasher.write_u64(*changes);
                }
                Kind::InFlight { limit, .. } => hasher.write_u64(*limit),
            }
        }
        hasher.finish()
    }
}

fn standing_at(index: usize, remaining: u64, wait: Option<Wait>) -> Option<Standing> {
    // A layer has at most 64 rules and as many in-flight limits.
    let policy = NonZeroU8::MIN.checked_add(u8::try_from(index).ok()?)?;
    Some(Standing { policy, remaining, wait })
}

impl Plan {
    /// The limits that apply to a request and are shown, with what `decide` says of rules: in this process with
    /// the limit and whose permits.
    fn shown(
        &self,
        head: &Head<'_>,
        decide: impl Fn(u16, Option<(&Limit, Seat)>) -> Option<Decision>,
    ) -> SmallVec<[Applied; 4]> {
        let mut applied = SmallVec::new();
        for (number, rule) in (0_u16..).zip(&self.rules) {
            if !rule.by.is_shown || !rule.scope.applies(head) {
                continue;
            }
            let Whose::Of(seat) = rule.whose_again(head) else { continue };
            let kind = match &rule.count {
                Count::Local(limit) => Kind::Rate {
                    quota: seat.quota,
                    changes: limit.counter.changes(),
                    decision: decide(number, Some((limit, seat))),
                },
                Count::Remote(remote) => Kind::Rate {
                    quota: seat.quota,
                    changes: remote.changes(),
                    decision: decide(number, None),
                },
            };
            applied.push(Applied { number, kind });
        }
        for (index, slots) in self.slots.iter().enumerate() {
            if !slots.by.is_shown || !slots.scope.applies(head) {
                continue;
            }
            let Whose::Of(key) = slots.whose(head) else { continue };
            let limit = slots.slots.limit();
            let count = key.map_or_else(|| slots.slots.count(), |key| slots.slots.count_of(key));
            let kind = Kind::InFlight { limit, free: limit.saturating_sub(count) };
            applied.push(Applied { number: self.number_of_slots(index), kind });
        }
        applied
    }

    /// What callers are told of a limit.
    fn policy(&self, applied: &Applied) -> Policy {
        let name = Arc::clone(&self.refuser(applied.number).name);
        match applied.kind {
            Kind::InFlight { limit, .. } => Policy { name, limit, unit: Unit::InFlight },
            Kind::Rate { quota, .. } => {
                // In-flight limits come after all rules.
                let rule = &self.rules[usize::from(applied.number)];
                let (algorithm, quota) = match &rule.count {
                    Count::Local(limit) => limit.counter.quota(quota),
                    Count::Remote(remote) => remote.quota(quota),
                };
                let window = window_secs(&algorithm, quota);
                Policy { name, limit: quota.max_burst(), unit: Unit::Requests(window) }
            }
        }
    }
}

/// The window of a quota: of a bucket the time in which its burst comes back. In whole seconds, rounded up; none
/// below a second, which the fields cannot say.
fn window_secs(algorithm: &Algorithm, quota: Quota) -> Option<u64> {
    const SECOND: u128 = 1_000_000_000;
    let nanos = match algorithm {
        Algorithm::LeakyBucket(_) | Algorithm::TokenBucket(_) => quota.refill(),
        Algorithm::FixedWindow(_) | Algorithm::SlidingLog(_) | Algorithm::SlidingWindow(_) => {
            quota.period().as_nanos()
        }
    };
    (nanos >= SECOND).then(|| u64::try_from(nanos.div_ceil(SECOND)).unwrap_or(u64::MAX))
}
