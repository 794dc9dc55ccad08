//! [`PlannedSlots`]: one in-flight limit, compiled.

use std::{fmt, num::NonZeroU64, sync::Arc, time::Duration};

use super::{
    Defaults,
    scoped::{Refuser, Scoped, Whose},
};
use crate::{InFlight, event::Reason, in_flight::Slots, request::head::Head};

/// One in-flight limit, compiled.
pub(crate) struct PlannedSlots {
    pub(crate) by: Refuser,
    pub(crate) scope: Scoped,
    pub(crate) slots: Arc<Slots>,
    /// The hint to refused callers.
    pub(crate) retry_after: Duration,
}

impl PlannedSlots {
    pub(super) fn compile(limit: InFlight, defaults: &Defaults<'_>) -> Self {
        let InFlight { slots, scope, status, retry_after, policy, spread, advertised, .. } = limit;
        slots.set_time(defaults.time.clone());
        let (name, spread) = (Arc::clone(slots.name()), spread.unwrap_or(scope.key.is_none()));
        let is_shown = advertised || scope.has_own_key();
        let scope = Scoped::new(scope, slots.hasher().clone());
        let by = Refuser::new(name, status, policy, spread, Reason::InFlight, defaults);
        Self { by: by.shown(is_shown), scope, slots, retry_after }
    }

    /// Whose permits the request takes.
    #[inline]
    pub(crate) fn whose(&self, head: &Head<'_>) -> Whose<Option<NonZeroU64>> {
        if self.scope.key.is_none() {
            return Whose::Of(None);
        }
        match self.scope.whose(head) {
            Whose::Of(hashed) => Whose::Of(Some(Slots::key(hashed.hash))),
            Whose::Nobodys => Whose::Nobodys,
            Whose::Refused(status) => Whose::Refused(status),
        }
    }
}

impl fmt::Debug for PlannedSlots {
    /// Its name: what a layer's own `Debug` lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.by.name, f)
    }
}
