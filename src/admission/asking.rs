//! [`Asking`]: all that one request asks for, kept while it is decided.

use std::sync::Arc;

use super::{
    Admission, AllAsked, AllWanted, Asked, Decided, Denied, Outcome,
    remote::{Call, Held},
};
use crate::{
    Head,
    clock::Nanos,
    core::Core,
    plan::{Count, Whose},
};

/// What one request asks of all limits that apply. It borrows nothing of the request.
pub(crate) struct Asking {
    pub(super) core: Arc<Core>,
    pub(super) local: AllAsked,
    pub(super) wanted: AllWanted,
    /// One call for each other backend.
    pub(super) calls: Vec<Call>,
}

impl Core {
    /// What a request asks for; an outcome where it has no key for a limit that demands one.
    /// Set-up faults are looked for unless the request has been seen already.
    pub(crate) fn asking(
        self: &Arc<Self>,
        head: &Head<'_>,
        now: Nanos,
        is_seen: bool,
    ) -> Result<Asking, Outcome> {
        let mut asking = Asking {
            core: Arc::clone(self),
            local: AllAsked::new(),
            wanted: AllWanted::new(),
            calls: Vec::new(),
        };
        for (index, rule) in (0_u16..).zip(&self.plan.rules) {
            let whose = match is_seen {
                false => self.whose(rule, head),
                true if rule.scope.applies(head) => rule.whose_again(head),
                true => Whose::Nobodys,
            };
            let seat = match whose {
                Whose::Of(seat) => seat,
                Whose::Nobodys => continue,
                Whose::Refused(status) => return Err(Outcome::Keyless(index, status)),
            };
            let asked = Asked { rule: index, seat, cost: rule.cost(head) };
            if !is_seen {
                self.saw(rule, seat, now);
            }
            match &rule.count {
                Count::Local(limit) => {
                    limit.counter.meet(seat, now, asked.cost);
                    asking.local.push(asked);
                }
                Count::Remote(remote) => {
                    Call::add(&mut asking.calls, remote, asked, rule.key_bytes(head, seat));
                }
            }
        }
        asking.wanted = self.wanted(head, now, is_seen)?;
        Ok(asking)
    }

    /// Decides over all limits, other backends among them.
    pub(crate) fn decide_all(self: &Arc<Self>, head: &Head<'_>, now: Nanos) -> Decided {
        match self.asking(head, now, false) {
            Ok(asking) => asking.decide(now),
            Err(keyless) => Decided::Now(keyless),
        }
    }
}

impl Asking {
    fn decide(mut self, now: Nanos) -> Decided {
        let Self { core, local, wanted, calls } = &mut self;
        let fits = |asked: &Asked| {
            core.limit(asked).is_none_or(|limit| limit.fits(asked.seat, now, asked.cost))
        };
        if !(local.iter().all(fits) && core.are_open(wanted))
            && let Some(denied) = core.refusals(local, wanted, now)
        {
            return Decided::Now(Outcome::Denied(denied));
        }
        let waited: Denied = calls.iter().flat_map(|call| call.waited_for(core, now)).collect();
        if !waited.is_empty() {
            return Decided::Now(Outcome::Denied(waited));
        }
        let lent = match core.lend(wanted) {
            Ok(lent) => lent,
            Err(denial) => return Decided::Now(Outcome::denied(denial)),
        };
        if calls.is_empty() {
            return Decided::Now(match core.charge(local, now) {
                Ok(()) => {
                    Outcome::Admitted(Admission { said: core.tell(local, now), lent, waited: None })
                }
                Err(denial) => Outcome::denied(denial),
            });
        }
        let calls = std::mem::take(calls);
        match Held::new(core, local, lent, calls, now) {
            Ok(held) => held.ask(now),
            Err((denial, _)) => Decided::Now(Outcome::denied(denial)),
        }
    }
}
