//! [`Scoped`]: whom a limit concerns; and [`Refuser`]: how it refuses. Rules and in-flight limits alike.

use std::sync::Arc;

use ahash::RandomState;
use bytes::Bytes;
use http::StatusCode;

use super::{
    Defaults,
    keys::{Hashing, shared_hash},
};
use crate::{
    Missing, RejectionPolicy,
    event::Reason,
    limiter::hash_of,
    observe::KeyWatch,
    request::{
        head::Head,
        key::{Found, KeyBy},
        matcher::Match,
    },
    response::problem,
    rule::Scope,
};

/// Which requests a limit applies to, and whose permits they take.
pub(crate) struct Scoped {
    pub(super) matcher: Option<Match>,
    pub(crate) key: Option<KeyBy>,
    missing: Option<Missing>,
    pub(super) hasher: RandomState,
    pub(crate) watch: KeyWatch,
}

/// Whose permits a request takes.
pub(crate) enum Whose<T> {
    Of(T),
    /// Nobody's: the limit does not apply.
    Nobodys,
    /// The request has no key and is refused for it.
    Refused(StatusCode),
}

/// The hash of a key, and which alternative yielded it.
#[derive(Clone, Copy)]
pub(super) struct Hashed {
    pub(super) hash: u64,
    pub(super) alternative: u8,
}

impl Scoped {
    pub(super) fn new(scope: Scope, hasher: RandomState) -> Self {
        let Scope { matcher, key, missing } = scope;
        let watch = if key.as_ref().is_some_and(KeyBy::is_global) {
            KeyWatch::settled()
        } else {
            KeyWatch::new((missing == Some(Missing::Shared)).then(|| shared_hash(&hasher)))
        };
        Self { matcher, key, missing, hasher, watch }
    }

    #[inline]
    pub(crate) fn applies(&self, head: &Head<'_>) -> bool {
        match &self.matcher {
            None => true,
            // Where a route pattern cannot tell, the limit applies: it must not vanish.
            Some(matcher) => matcher.decide(head).unwrap_or(true),
        }
    }

    /// Whose permits the request takes; all requests are one without a key.
    #[inline]
    pub(super) fn whose(&self, head: &Head<'_>) -> Whose<Hashed> {
        let Some(key) = &self.key else {
            return Whose::Of(Hashed { hash: 0, alternative: 0 });
        };
        let mut sink = Hashing::new(&self.hasher);
        match key.feed(head, &mut sink) {
            Some(Found { alternative, .. }) => {
                Whose::Of(Hashed { hash: sink.finish(alternative), alternative })
            }
            None => self.keyless(),
        }
    }

    #[cold]
    fn keyless(&self) -> Whose<Hashed> {
        match self.missing {
            Some(Missing::Shared) => {
                Whose::Of(Hashed { hash: shared_hash(&self.hasher), alternative: 0 })
            }
            Some(Missing::Refuse(status)) => Whose::Refused(status),
            // `build` refuses a key that may be missing without a choice.
            Some(Missing::Skip) | None => Whose::Nobodys,
        }
    }

    /// The hash of a key that is named, not extracted.
    pub(super) fn hash_of<'p>(
        &self,
        alternative: u8,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> u64 {
        hash_of(&self.hasher, alternative, parts)
    }

    /// Whether requests without a key count together.
    pub(crate) fn shares_missing(&self) -> bool {
        self.missing == Some(Missing::Shared)
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

    pub(crate) fn wants_route(&self) -> bool {
        self.matcher.as_ref().is_some_and(Match::wants_route)
            || self.key.as_ref().is_some_and(KeyBy::wants_route)
    }
}

/// Who refuses, and how.
pub(crate) struct Refuser {
    pub(crate) name: Arc<str>,
    pub(crate) status: StatusCode,
    pub(crate) policy: RejectionPolicy,
    /// Where its backend has failed.
    while_away: Option<RejectionPolicy>,
    pub(crate) spread: bool,
    /// Whether callers are told of the limit where a layer tells them anything.
    pub(crate) is_shown: bool,
    /// The default body of a refusal by this limit alone.
    pub(crate) body: Bytes,
}

impl Refuser {
    pub(super) fn new(
        name: Arc<str>,
        status: StatusCode,
        policy: Option<RejectionPolicy>,
        spread: bool,
        reason: Reason,
        defaults: &Defaults<'_>,
    ) -> Self {
        let body = problem::body(status, reason, [&*name]);
        let policy = policy.unwrap_or_else(|| defaults.policy.clone());
        Self { name, status, policy, while_away: None, spread, is_shown: false, body }
    }

    pub(super) fn shown(self, is_shown: bool) -> Self {
        Self { is_shown, ..self }
    }

    pub(super) fn while_away(self, policy: Option<RejectionPolicy>) -> Self {
        Self { while_away: policy, ..self }
    }

    pub(crate) fn has_policy_while_away(&self) -> bool {
        self.while_away.is_some()
    }

    /// What answers, be it that a backend has failed or not.
    pub(crate) fn policy_for(&self, has_failed: bool) -> &RejectionPolicy {
        match &self.while_away {
            Some(policy) if has_failed => policy,
            _ => &self.policy,
        }
    }
}
