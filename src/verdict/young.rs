//! What one of a layer's first requests shows of its set-up.

use std::sync::Arc;

use http::Extensions;
use smallvec::SmallVec;

use crate::{
    Head,
    core::Core,
    event::Fault,
    plan::Scoped,
    request::key::{RouteState, has_forwarding_header, route_state},
};

/// The layers a request has passed, by address; in the extensions of the first requests only.
#[derive(Clone)]
struct Passed(SmallVec<[usize; 2]>);

impl Core {
    /// Looks for set-up faults that one of the first requests shows; says whether the route is wanted and
    /// nothing matched.
    #[cold]
    pub(super) fn look_at(&self, head: &Head<'_>) -> bool {
        self.watch.grow();
        if self.lacks_waiting && !self.watch.is_done(Fault::Leaky) {
            let leaky = self.plan.rules.iter().find(|rule| rule.lacks_waiting());
            self.watch.raise_once(Fault::Leaky, leaky.map(|rule| &rule.by.name));
        }
        if self.wants_peer {
            let exempt = self.exempt.iter().any(|exempt| exempt.lacks_peer(head));
            if let Some(name) = self.plan.first_that(|scope| scope.lacks_peer(head)) {
                self.watch.raise_once(Fault::Peer, Some(name));
            } else if exempt {
                self.watch.raise_once(Fault::Peer, None);
            }
            if !self.knows_proxy && has_forwarding_header(head) {
                self.watch.raise_once(Fault::Proxy, self.plan.first_that(Scoped::wants_peer));
            }
        }
        if self.wants_route {
            match route_state(head) {
                RouteState::Matched => {}
                RouteState::Unmatched => return !self.watch.is_done(Fault::Route),
                RouteState::Outside => {
                    self.watch.raise_once(Fault::Route, self.plan.first_that(Scoped::wants_route));
                }
            }
        }
        false
    }

    /// Whether this layer has seen the request before; marks it.
    #[cold]
    pub(crate) fn mark(self: &Arc<Self>, extensions: &mut Extensions) {
        let id = Arc::as_ptr(self).addr();
        match extensions.get_mut::<Passed>() {
            Some(passed) if passed.0.contains(&id) => self.watch.raise_once(Fault::Twice, None),
            Some(passed) => passed.0.push(id),
            None => {
                extensions.insert(Passed(smallvec::smallvec![id]));
            }
        }
    }
}
