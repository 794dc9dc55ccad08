//! [`Front`]: what keeps a flood from the store: a share of the quota in this process, and a memory of who is refused.
//!
//! Both say no earlier than the store, never yes.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use ahash::RandomState;
use smallvec::SmallVec;

use super::{asked::Asked, fleet::Portion, options::Options};
use crate::{
    Decision,
    backend::{
        Receipt, Verdict, Verdicts,
        local::{Counter, Hold, Seat},
    },
    clock::Nanos,
    sync::{Mutex, lock},
};

/// What stands in front of the store for one limiter.
pub(super) struct Front {
    /// How much more than its part a process may spend, in thousandths.
    factor: Option<u32>,
    /// Seeded: a digest is known to whoever knows the key.
    hasher: RandomState,
    share: Mutex<Option<Share>>,
    refused: Box<[Mutex<Box<[Refused]>>]>,
}

#[derive(Clone)]
struct Share {
    counter: Arc<Counter>,
    portion: Portion,
    changes: u64,
}

/// That a key was refused, and until when.
#[derive(Clone, Copy)]
struct Refused {
    digest: [u8; 16],
    /// What the store said, from when it was asked, so that it is never later than the store's own.
    until: Nanos,
    /// For how long that is believed.
    believed: Nanos,
    /// When it was asked, or the key was reset.
    since: Nanos,
    cost: u64,
    decision: Decision,
    changes: u64,
}

/// Keys that are remembered, and by how many locks: a key that finds its place taken takes it.
const SHARDS: usize = 16;
const KEYS: usize = 512;

/// For how long a refusal is remembered at most: what another process resets is seen by then.
const MEMORY: Duration = Duration::from_secs(10);

impl Front {
    pub(super) fn of(options: &Options) -> Option<Self> {
        (options.share.is_some() || options.remembers).then(|| {
            let nothing = Refused {
                digest: [0; 16],
                until: Nanos::ZERO,
                believed: Nanos::ZERO,
                since: Nanos::ZERO,
                cost: 0,
                decision: Decision::allowed(0, 0, Duration::ZERO),
                changes: 0,
            };
            let shard = |_| Mutex::new(vec![nothing; KEYS].into_boxed_slice());
            Self {
                factor: options.share.map(|share| (share * 1_000.0).round() as u32),
                hasher: RandomState::new(),
                share: Mutex::new(None),
                refused: (0..SHARDS).map(shard).collect(),
            }
        })
    }

    /// Sets a charge aside, or says that the store need not be asked.
    fn set_aside(&self, asked: &Asked, now: Nanos, aside: &mut Aside) -> Result<(), Decision> {
        if let Some(decision) = self.remembered(asked, now) {
            return Err(decision);
        }
        // Who may wait is told by the store when to depart.
        if asked.cost == 0 || !asked.longest_wait.is_zero() {
            return Ok(());
        }
        let Some(counter) = self.counter(asked) else { return Ok(()) };
        match counter.hold(self.seat(asked), now, asked.cost) {
            Ok(hold) => {
                aside.0.push((counter, hold));
                Ok(())
            }
            // More than a burst of the share may fit into the whole: then the store decides alone.
            Err(decision) if decision.is_never() => Ok(()),
            Err(decision) => {
                let wait = decision.retry_after().unwrap_or_default();
                let limit = asked.in_force.quota(asked.quota).limit;
                Err(Decision::denied(limit, 0, wait, decision.reset_after()))
            }
        }
    }

    /// The counter of the share; none where there is no share, or it cannot be counted.
    fn counter(&self, asked: &Asked) -> Option<Arc<Counter>> {
        let factor = self.factor?;
        let instances =
            asked.limiter.portion().map_or(NonZeroU32::MIN, |portion| portion.instances);
        let (portion, changes) = (Portion { factor, instances }, asked.in_force.changes);
        let mut share = lock(&self.share);
        if let Some(share) = &*share
            && (share.portion, share.changes) == (portion, changes)
        {
            return Some(Arc::clone(&share.counter));
        }
        let spec = asked.in_force.portion(portion);
        let counter = match share.take() {
            Some(old) if old.counter.renew(&spec).is_ok() => old.counter,
            _ => {
                let counter = Arc::new(Counter::new(&spec).ok()?);
                counter.may_hold();
                counter
            }
        };
        *share = Some(Share { counter: Arc::clone(&counter), portion, changes });
        Some(counter)
    }

    fn place(&self, digest: [u8; 16]) -> (&Mutex<Box<[Refused]>>, usize) {
        let low = usize::from(u16::from_be_bytes([digest[0], digest[1]]));
        (&self.refused[low % SHARDS], low / SHARDS % KEYS)
    }

    fn remembered(&self, asked: &Asked, now: Nanos) -> Option<Decision> {
        let (shard, place) = self.place(asked.digest.0);
        let refused = lock(shard)[place];
        let is_it = refused.digest == asked.digest.0
            && refused.until > now + asked.longest_wait
            && refused.believed > now
            && refused.since <= now
            && asked.cost >= refused.cost
            && asked.cost <= asked.in_force.quota(asked.quota).limit
            && refused.changes == asked.in_force.changes;
        is_it.then(|| {
            let reset =
                refused.decision.reset_after().saturating_sub(now.since(refused.since).into());
            let wait = refused.until.since(now).into();
            let decision = refused.decision;
            Decision::denied(decision.limit(), decision.remaining(), wait, reset)
        })
    }

    /// Remembers what the store refused to one who asked then.
    fn remember(&self, asked: &Asked, since: Nanos, decision: Decision) {
        let Some(wait) = decision.retry_after() else { return };
        let refused = Refused {
            digest: asked.digest.0,
            until: since + wait,
            believed: since + wait.min(MEMORY),
            since,
            cost: asked.cost,
            decision,
            changes: asked.in_force.changes,
        };
        let (shard, place) = self.place(asked.digest.0);
        let old = &mut lock(shard)[place];
        let is_its_own = old.digest == refused.digest;
        // That a lesser cost is refused for as long says more.
        let says_more = old.changes == refused.changes
            && old.believed >= refused.believed
            && old.cost <= refused.cost;
        // And a key that was reset since is another.
        if !(is_its_own && (says_more || old.since > since)) {
            *old = refused;
        }
    }

    /// A key is reset, or was: what was asked before says nothing of it.
    pub(super) fn forget(&self, asked: &Asked, now: Nanos) {
        let (shard, place) = self.place(asked.digest.0);
        let old = &mut lock(shard)[place];
        if old.digest != asked.digest.0 && old.believed > now {
            return;
        }
        (old.digest, old.until, old.believed) = (asked.digest.0, Nanos::ZERO, Nanos::ZERO);
        old.since = now.max(old.since);
        if let Some(share) = &*lock(&self.share) {
            share.counter.reset(self.seat(asked), now);
        }
    }

    fn seat(&self, asked: &Asked) -> Seat {
        Seat { quota: asked.quota, hash: self.hasher.hash_one(asked.digest.0) }
    }
}

/// Sets charges aside, or says which is refused here, so that the store need not be asked.
pub(super) fn set_aside(now: Nanos, asked: &[Asked]) -> Result<Aside, Box<Verdicts>> {
    let mut aside = Aside::default();
    for (index, one) in asked.iter().enumerate() {
        let Some(front) = &one.limiter.front else { continue };
        if let Err(decision) = front.set_aside(one, now, &mut aside) {
            let verdict = |(n, asked): (usize, &Asked)| match n == index {
                true => Verdict::new(decision, Receipt::nothing(asked.id)),
                // Who was not asked does not refuse.
                false => asked.uncounted(),
            };
            return Err(Box::new(asked.iter().enumerate().map(verdict).collect()));
        }
    }
    Ok(aside)
}

/// Remembers what the store refused to those who asked then.
pub(super) fn remember(since: Nanos, asked: &[Asked], verdicts: &[Verdict]) {
    for (n, (one, verdict)) in asked.iter().zip(verdicts).enumerate() {
        // What is refused because of another charge in the same call would fit alone.
        let is_alone = || asked[..n].iter().all(|other| other.name != one.name);
        if let Some(front) = &one.limiter.front
            && !verdict.decision().is_allowed()
            && is_alone()
        {
            front.remember(one, since, verdict.decision());
        }
    }
}

/// What is set aside in this process while the store is asked; let go where it is dropped.
#[derive(Default)]
pub(super) struct Aside(SmallVec<[(Arc<Counter>, Hold); 2]>);

impl Aside {
    /// The store has made all charges.
    pub(super) fn commit(mut self, now: Nanos) {
        for (counter, hold) in self.0.drain(..) {
            counter.commit(&hold, now);
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        for (counter, hold) in self.0.drain(..).rev() {
            counter.release(&hold);
        }
    }
}
