//! [`Limiter`]: one limiter on the store, with what it does while the store is away.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    counted::Counted,
    fleet::{Fleet, Instances, Portion},
    front::Front,
    names::{Names, check_prefix},
    options::Options,
};
use crate::{
    ConfigError,
    backend::{Backend, LimiterId, LimiterSpec, local::Local},
    sync::{Mutex, lock},
};

/// One limiter on the store.
pub(super) struct Limiter {
    pub(super) names: Names,
    pub(super) options: Arc<Options>,
    pub(super) fleet: Option<Arc<Fleet>>,
    pub(super) front: Option<Front>,
    in_force: RwLock<Arc<InForce>>,
    /// What counts its share while the store is away: from the first outage on, through all others.
    share: Mutex<Option<Share>>,
}

/// The quotas in force.
pub(super) struct InForce {
    pub(super) spec: LimiterSpec,
    pub(super) counted: Vec<Counted>,
    /// How often a quota was changed before.
    pub(super) changes: u64,
}

#[derive(Clone, Copy)]
struct Share {
    id: LimiterId,
    portion: Portion,
    changes: u64,
    outage: u64,
}

impl InForce {
    fn of(spec: &LimiterSpec, changes: u64) -> Result<Arc<Self>, ConfigError> {
        let counted = spec.quotas.iter().map(|quota| Counted::of(&spec.algorithm, *quota));
        let counted = counted.collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { spec: spec.clone(), counted, changes }))
    }

    /// The quota that a charge names.
    pub(super) fn quota(&self, index: usize) -> &Counted {
        // A spec has one quota at least, and a charge names one of them.
        self.counted.get(index).unwrap_or(&self.counted[0])
    }

    /// The same limiter with a part of each quota.
    pub(super) fn portion(&self, portion: Portion) -> LimiterSpec {
        let Self { spec, .. } = self;
        let part = |quota| portion.quota(&spec.algorithm, quota);
        LimiterSpec {
            algorithm: spec.algorithm.with_quota(part(spec.algorithm.quota())),
            quotas: spec.quotas.iter().map(|quota| part(*quota)).collect(),
            replaces: None,
            ..spec.clone()
        }
    }
}

impl Limiter {
    pub(super) fn new(
        spec: &LimiterSpec,
        options: &Arc<Options>,
        fleet: impl FnOnce(&str) -> Arc<Fleet>,
    ) -> Result<Self, ConfigError> {
        check_prefix(&options.prefix)?;
        options.check()?;
        let in_force = InForce::of(spec, 0)?;
        let kind = in_force.counted[0].kind;
        let counts_fleet = matches!(options.instances, Instances::Heartbeats);
        Ok(Self {
            names: Names::new(&options.prefix, &spec.name, kind, spec.keyed),
            options: Arc::clone(options),
            fleet: counts_fleet.then(|| fleet(&options.prefix)),
            front: Front::of(options),
            in_force: RwLock::new(in_force),
            share: Mutex::new(None),
        })
    }

    pub(super) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other quotas in force. What the store holds is converted by whoever touches it.
    pub(super) fn renew(&self, spec: &LimiterSpec) -> Result<(), ConfigError> {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let renewed = InForce::of(spec, in_force.changes + 1)?;
        let is_alike = renewed.counted.len() == in_force.counted.len()
            && renewed.counted[0].kind == in_force.counted[0].kind;
        if !is_alike {
            let value = format!("{:?}", spec.algorithm);
            let reason = "must stay what it was; build another limiter";
            return Err(ConfigError::new("algorithm", value, reason));
        }
        *in_force = renewed;
        Ok(())
    }

    /// The part of each quota that this process may spend alone, if anybody knows how many there are.
    pub(super) fn portion(&self) -> Option<Portion> {
        self.options.instances.count(self.fleet.as_deref()).map(Portion::of)
    }

    /// The limiter of this process that counts its share, if there has been an outage.
    pub(super) fn known_share(&self) -> Option<LimiterId> {
        lock(&self.share).map(|share| share.id)
    }

    /// The limiter of this process that counts its share.
    ///
    /// In one outage it does not grow: with a number of instances that goes up and down each growth would be a gift.
    pub(super) fn share(
        &self,
        shares: &Local,
        mut portion: Portion,
        outage: u64,
    ) -> Result<LimiterId, ConfigError> {
        let mut share = lock(&self.share);
        if let Some(share) = *share
            && share.outage == outage
        {
            portion.instances = portion.instances.max(share.portion.instances);
        }
        let in_force = self.in_force();
        let changes = in_force.changes;
        if let Some(share) = *share
            && (share.portion, share.changes, share.outage) == (portion, changes, outage)
        {
            return Ok(share.id);
        }
        // Its keys keep what they spent: an outage after another gives nobody a burst.
        let spec = LimiterSpec {
            replaces: share.map(|share| share.id),
            keyed: true,
            ..in_force.portion(portion)
        };
        let id = shares.register(&spec)?;
        *share = Some(Share { id, portion, changes, outage });
        Ok(id)
    }
}
