//! Deciding without the store: each rule by its [`Away`] mode.

use std::{num::NonZeroU32, sync::atomic::Ordering};

use smallvec::SmallVec;

use super::{Redis, asked::Asked, fleet::Portion};
use crate::{
    BackendError, BackendErrorKind, Decision,
    backend::{Answer, Backend, Charge, LimiterId, Receipt, Verdict, Verdicts},
    clock::Nanos,
    event::Fault,
};

/// What a rule does while the store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Away {
    /// Counts in the process, against its share of the quota.
    #[default]
    LocalShare,
    /// Lets all pass.
    Admit,
    /// Refuses all.
    Refuse,
}

/// Limiters of this process have this bit in their receipts, so that an undo finds who made them.
const HERE: u64 = 1 << 63;

/// The receipt of a charge on a share, as this process's own counter knows it.
pub(super) fn of_share(receipt: &Receipt) -> Option<Receipt> {
    let LimiterId(id) = receipt.limiter();
    (id & HERE != 0).then(|| Receipt::new(LimiterId(id & !HERE), receipt.words()))
}

impl Redis {
    /// Decides without the store, which has failed so.
    pub(super) fn decide_alone(
        &self,
        now: Nanos,
        asked: &[Asked],
        failure: &BackendError,
    ) -> Result<Verdicts, BackendError> {
        // Relaxed: a count, nothing is read through it.
        self.store.shared.alone.fetch_add(1, Ordering::Relaxed);
        let refused = asked.iter().find(|asked| asked.limiter.options.away == Away::Refuse);
        if let Some(refused) = refused {
            return Err(failure.again().on(refused.id.0));
        }
        let mut charges = SmallVec::<[Charge<'_>; 8]>::new();
        for asked in asked {
            if asked.limiter.options.away == Away::LocalShare {
                charges.push(asked.on(self.share_of(asked)?, asked.cost));
            }
        }
        let shares = match self.store.shares.check(now, &charges) {
            Answer::Ready(shares) => shares?,
            // Counting in this process decides now.
            Answer::Pending(_) => Verdicts::default(),
        };
        let mut shares = shares.as_slice().iter();
        let verdict = |asked: &Asked| match asked.limiter.options.away {
            Away::LocalShare => shares.next().map(|share| {
                let LimiterId(id) = share.receipt().limiter();
                let receipt = Receipt::new(LimiterId(id | HERE), share.receipt().words());
                Verdict::new(share.decision(), receipt)
            }),
            _ => Some(asked.uncounted()),
        };
        Ok(asked.iter().filter_map(verdict).collect())
    }

    /// What a charge would get without the store.
    pub(super) fn peek_alone(
        &self,
        now: Nanos,
        asked: &Asked,
        failure: &BackendError,
    ) -> Result<Decision, BackendError> {
        if asked.limiter.options.away != Away::LocalShare {
            let verdicts = self.decide_alone(now, std::slice::from_ref(asked), failure)?;
            return Ok(verdicts
                .as_slice()
                .first()
                .map_or_else(|| asked.uncounted(), |v| *v)
                .decision());
        }
        match self.store.shares.peek(now, &asked.on(self.share_of(asked)?, asked.cost)) {
            Answer::Ready(decision) => decision,
            Answer::Pending(_) => Ok(asked.uncounted().decision()),
        }
    }

    /// Resets a key's share, if it has one.
    pub(super) fn reset_share(&self, now: Nanos, asked: &Asked) {
        if let Some(share) = asked.limiter.known_share() {
            // Decided at once, and nobody asks whether it was known.
            drop(self.store.shares.reset(now, &asked.on(share, 0)));
        }
    }

    fn share_of(&self, asked: &Asked) -> Result<LimiterId, BackendError> {
        let portion = asked.limiter.portion().unwrap_or_else(|| {
            self.store.shared.teller.fault(Some(Fault::Share));
            Portion::of(NonZeroU32::MIN)
        });
        asked
            .limiter
            .share(&self.store.shares, portion, self.store.shared.outages())
            .map_err(|error| BackendError::new(BackendErrorKind::Protocol, error).on(asked.id.0))
    }
}
