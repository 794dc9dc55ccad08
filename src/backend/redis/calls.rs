//! Calls: what is sent for the charges of a request, and what their answers come to.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use ::redis::Value;
use smallvec::SmallVec;

use super::{
    Redis,
    asked::{Asked, Charged, add_composed, has_arguments, verdicts},
    counted::Kind,
    failure::Failure,
    front::{self, Aside},
    limiter::Limiter,
    names::Digest,
};
use crate::{
    BackendError,
    backend::{Backend, Receipt, Verdict, Verdicts},
    clock::Nanos,
};

impl Redis {
    /// Charges all, or none.
    pub(super) async fn charge(
        self,
        now: Nanos,
        asked: SmallVec<[Asked; 1]>,
        aside: Aside,
    ) -> Result<Verdicts, BackendError> {
        match self.charge_all(now, &asked).await {
            Ok(verdicts) => {
                front::remember(now, &asked, &verdicts);
                if verdicts.iter().all(|verdict| verdict.decision().is_allowed()) {
                    aside.commit(now);
                }
                Ok(verdicts.into_iter().collect())
            }
            Err(failure) => {
                drop(aside);
                self.decide_alone(now, &asked, &failure.error())
            }
        }
    }

    /// One call for each slot; one in all where there are none.
    async fn charge_all(&self, now: Nanos, asked: &[Asked]) -> Result<Vec<Verdict>, Failure> {
        let all: SmallVec<[&Asked; 4]> = asked.iter().collect();
        let is_one = all.windows(2).all(|two| two[0].slot() == two[1].slot());
        if is_one || !self.store.shared.source.is_cluster() {
            return self.call(now, &all, true).await;
        }
        let mut said: Vec<Option<Verdict>> = vec![None; asked.len()];
        let mut receipts = SmallVec::<[Receipt; 4]>::new();
        while let Some(first) = said.iter().position(Option::is_none) {
            let slot = asked[first].slot();
            let places: SmallVec<[usize; 4]> =
                (0..asked.len()).filter(|n| asked[*n].slot() == slot).collect();
            let group: SmallVec<[&Asked; 4]> = places.iter().map(|place| &asked[*place]).collect();
            let answer = self.call(now, &group, true).await;
            let is_refused = match &answer {
                Ok(verdicts) => !verdicts.iter().all(|verdict| verdict.decision().is_allowed()),
                Err(_) => true,
            };
            if is_refused {
                self.undo(now, &receipts);
            }
            for (place, verdict) in places.iter().zip(answer?) {
                receipts.push(verdict.receipt());
                said[*place] = Some(verdict);
            }
            if is_refused {
                break;
            }
        }
        // Who was not asked any more does not refuse.
        let unasked =
            |(asked, said): (&Asked, Option<Verdict>)| said.unwrap_or_else(|| asked.uncounted());
        Ok(asked.iter().zip(said).map(unasked).collect())
    }

    /// One call.
    pub(super) async fn call(
        &self,
        now: Nanos,
        asked: &[&Asked],
        charges: bool,
    ) -> Result<Vec<Verdict>, Failure> {
        let Some(first) = asked.first() else { return Ok(Vec::new()) };
        let shared = &self.store.shared;
        let bounds =
            |asked: &&Asked| (asked.limiter.options.deadline, asked.limiter.options.pipeline);
        let bounds = asked.iter().map(bounds);
        let bounds = bounds.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)));
        let bounds = bounds.unwrap_or((self.options.deadline, self.options.pipeline));
        let names: SmallVec<[&String; 4]> = asked.iter().map(|asked| &asked.name).collect();
        let read = |answer: &Value| verdicts(asked, answer, charges);
        let is_alone = |(n, name): (usize, &&String)| !names[..n].contains(name);
        let has_arguments = has_arguments(asked);
        if charges
            && names.iter().enumerate().all(is_alone)
            && let Some(script) = shared.composed.of(asked, has_arguments)
        {
            let mut cmd = script.on(&names);
            if has_arguments {
                add_composed(asked, &mut cmd, now);
            }
            return shared.call(&script, cmd, bounds, &first.name, read).await;
        }
        let mut cmd = shared.scripts.check.on(&names);
        cmd.arg(u8::from(charges)).arg(first.time(now));
        asked.iter().for_each(|asked| asked.add(&mut cmd));
        shared.call(&shared.scripts.check, cmd, bounds, &first.name, read).await
    }

    /// Undoes what lies in one slot, if there are several.
    pub(super) fn undo_in_store(&self, receipts: &[(Charged, Arc<Limiter>, Digest)]) {
        let shared = &self.store.shared;
        let names: Vec<_> =
            receipts.iter().map(|(_, limiter, digest)| limiter.names.of(*digest)).collect();
        let mut cmd = shared.scripts.undo.on(&names);
        for (charged, limiter, _) in receipts {
            let in_force = limiter.in_force();
            let counted = in_force.quota(charged.quota);
            let own = match counted.kind {
                Kind::Bucket => [&counted.own[0], &counted.own[1]],
                _ => [&counted.own[1], &counted.own[2]],
            };
            cmd.arg(counted.kind.letter()).arg(charged.at).arg(charged.mark).arg(charged.resets);
            cmd.arg(charged.cost.saturating_mul(counted.unit)).arg(own[0]).arg(own[1]);
        }
        let (shared, bounds) = (Arc::clone(shared), (self.options.deadline, self.options.pipeline));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut undone = Box::pin(async move {
            // As far as that goes: what is not undone stays spent.
            let read = |_: &Value| Ok(());
            let _ = shared.call(&shared.scripts.undo, cmd, bounds, &names[0], read).await;
        });
        // Sent before this returns, so that what is asked next is asked of what is left.
        let mut cx = Context::from_waker(Waker::noop());
        if Pin::new(&mut undone).poll(&mut cx).is_pending() {
            drop(runtime.spawn(undone));
        }
    }
}
