//! [`Core`]: all that a layer, its clones and its services share.

use std::fmt;

use ahash::RandomState;

use crate::{
    Head,
    clock::Time,
    observe::Watch,
    plan::{Plan, Shown},
    request::matcher::{self, Match},
    response::UnreadBody,
};

/// What a layer, its clones and its services share.
pub(crate) struct Core {
    pub(crate) plan: Plan,
    pub(crate) time: Time,
    pub(crate) watch: Watch,
    pub(crate) random: RandomState,
    pub(crate) exempt: Box<[Match]>,
    pub(crate) exempt_by_default: bool,
    /// Whether there is nothing but rules of this process: nobody is told, nothing more is exempt.
    pub(crate) is_plain: bool,
    pub(crate) expose_decision: bool,
    pub(crate) expose_rejection: bool,
    /// What callers are told, if anything.
    pub(crate) shown: Option<Shown>,
    pub(crate) unread: UnreadBody,
    /// Whether a rule wants the route or the peer: what the first requests are looked at for.
    pub(crate) wants_route: bool,
    pub(crate) wants_peer: bool,
    pub(crate) knows_proxy: bool,
    /// Whether a leaky bucket has nothing to wait in, which the first request tells.
    pub(crate) lacks_waiting: bool,
}

impl Core {
    /// Whether somebody wants to know what the rules decided.
    #[inline]
    pub(crate) fn is_curious(&self) -> bool {
        self.expose_decision || self.watch.is_observed()
    }

    #[inline]
    pub(crate) fn is_exempt_by_default(&self, head: &Head<'_>) -> bool {
        self.exempt_by_default && matcher::is_exempt_by_default(head)
    }

    pub(crate) fn is_exempt(&self, head: &Head<'_>) -> bool {
        self.is_exempt_by_default(head)
            || self.exempt.iter().any(|exempt| exempt.decide(head) == Some(true))
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("plan", &self.plan)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}
