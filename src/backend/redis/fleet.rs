//! How many share a quota: [`Fleet`] counts them by their heartbeats; [`Portion`] is what one of them may spend alone.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ahash::RandomState;
use redis::Cmd;

use super::script::Script;
use crate::{Algorithm, Quota, quota::gcd};

/// The processes that share the quotas under one prefix.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) prefix: String,
    /// Of this process's own.
    name: String,
    /// Zero where nobody knows yet.
    instances: AtomicU32,
    /// For how many heartbeats more it does not become less: who has not told lately may still do so, after an outage or
    /// where the store has forgotten him.
    holds_for: AtomicU32,
}

/// For how many heartbeats, one a second, each tells that a process is there.
const LASTS: u32 = 5;

impl Fleet {
    pub(super) fn new(prefix: &str) -> Self {
        // Seeded at random for each process, and for each value.
        let random = || RandomState::new().hash_one(std::process::id());
        Self {
            prefix: prefix.to_owned(),
            name: format!("{:016x}{:016x}", random(), random()),
            instances: AtomicU32::new(0),
            holds_for: AtomicU32::new(0),
        }
    }

    pub(super) fn beat(&self, script: &Script) -> Cmd {
        let mut cmd = script.on(&[format!("{{{}}}:instances", self.prefix)]);
        cmd.arg(&self.name).arg(LASTS * 1_000);
        cmd
    }

    /// So many have told lately.
    pub(super) fn counted(&self, instances: i64) {
        // Zero would be nobody, though this process is there.
        let instances = u32::try_from(instances.max(1)).unwrap_or(u32::MAX);
        // Relaxed: numbers on their own, which one task writes.
        let known = self.instances.load(Ordering::Relaxed);
        let holds_for = match instances < known {
            true => self.holds_for.load(Ordering::Relaxed).saturating_sub(1),
            false => LASTS,
        };
        self.holds_for.store(holds_for, Ordering::Relaxed);
        if instances >= known || holds_for == 0 {
            self.instances.store(instances, Ordering::Relaxed);
        }
    }

    fn instances(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.instances.load(Ordering::Relaxed))
    }
}

/// How a rule knows how many share its quota.
#[derive(Clone, Default)]
pub(super) enum Instances {
    #[default]
    Heartbeats,
    Fixed(u32),
    From(Arc<dyn Fn() -> u32 + Send + Sync>),
}

impl Instances {
    /// How many there are, if anybody knows.
    pub(super) fn count(&self, fleet: Option<&Fleet>) -> Option<NonZeroU32> {
        match self {
            Self::Heartbeats => fleet?.instances(),
            Self::Fixed(instances) => NonZeroU32::new(*instances),
            Self::From(ask) => NonZeroU32::new(ask()),
        }
    }
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heartbeats => f.write_str("Heartbeats"),
            Self::Fixed(instances) => write!(f, "Fixed({instances})"),
            Self::From(_) => f.write_str("From(..)"),
        }
    }
}

/// A share of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portion {
    /// In thousandths.
    pub(super) factor: u32,
    pub(super) instances: NonZeroU32,
}

impl Portion {
    /// Alike parts for all.
    pub(super) fn of(instances: NonZeroU32) -> Self {
        Self { factor: 1_000, instances }
    }

    /// So much of a quota: at least one permit, or who has none would refuse everybody.
    pub(super) fn quota(self, algorithm: &Algorithm, quota: Quota) -> Quota {
        let (times, over) = (u64::from(self.factor), 1_000 * u64::from(self.instances.get()));
        let part = |n: u64| {
            let part = u128::from(n) * u128::from(times) / u128::from(over);
            u64::try_from(part).unwrap_or(u64::MAX).max(1)
        };
        match algorithm {
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => {
                let (permits, period) = slower(quota, times, over)
                    .unwrap_or_else(|| (part(quota.permits()), quota.period()));
                let burst = if matches!(algorithm, Algorithm::LeakyBucket(_)) {
                    1
                } else {
                    part(quota.max_burst())
                };
                Quota::new(permits, period).burst(burst)
            }
            _ => Quota::new(part(quota.permits()), quota.period()),
        }
    }
}

/// A rate's exact part, if it can be written.
fn slower(quota: Quota, times: u64, over: u64) -> Option<(u64, Duration)> {
    let period = u64::try_from(quota.period().as_nanos()).ok()?;
    let (mut permits, mut over) = (quota.permits().checked_mul(times)?, over);
    let common = gcd(permits, over);
    (permits, over) = (permits / common, over / common);
    let period = period.checked_mul(over)?;
    let common = gcd(permits, period);
    (permits, over) = (permits / common, period / common);
    // What a bucket of this process can count.
    (over < 1 << 60).then(|| (permits, Duration::from_nanos(over)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FixedWindow, LeakyBucket, TokenBucket};

    fn portion(factor: u32, instances: u32, algorithm: impl Into<Algorithm>) -> Quota {
        let algorithm = algorithm.into();
        let instances = NonZeroU32::new(instances).unwrap();
        Portion { factor, instances }.quota(&algorithm, algorithm.quota())
    }

    #[test]
    fn a_store_that_forgets_makes_the_fleet_no_smaller() {
        let fleet = Fleet::new("sluice");
        let known = || fleet.instances().map(NonZeroU32::get);
        assert_eq!(known(), None);
        fleet.counted(1);
        fleet.counted(4);
        assert_eq!(known(), Some(4));
        // It has come back empty, and this process is the first that tells.
        for told in [1, 2, 4] {
            fleet.counted(told);
            assert_eq!(known(), Some(4));
        }
        // Two have gone: whoever is there has told by then.
        for _ in 1..LASTS {
            fleet.counted(2);
            assert_eq!(known(), Some(4));
        }
        fleet.counted(2);
        assert_eq!(known(), Some(2));
    }

    #[test]
    fn parts_of_a_rate_are_exact() {
        let ten_ms = Duration::from_millis(10);
        assert_eq!(
            portion(1_000, 4, TokenBucket::per_second(100).burst(50)),
            Quota::new(1, ten_ms * 4).burst(12)
        );
        assert_eq!(
            portion(1_200, 2, TokenBucket::per_second(100)),
            Quota::new(3, Duration::from_millis(50)).burst(60)
        );
        assert_eq!(
            portion(1_000, 3, LeakyBucket::per_second(20)),
            Quota::new(1, ten_ms * 15).burst(1)
        );
    }

    #[test]
    fn nobody_has_less_than_a_permit() {
        assert_eq!(portion(1_000, 10, FixedWindow::per_minute(3)), Quota::per_minute(1));
        assert_eq!(portion(1_000, 10, TokenBucket::per_minute(3)).max_burst(), 1);
        let year = Duration::from_secs(365 * 86_400);
        // A tenth of a permit a year is no rate that can be counted; a whole one is.
        assert_eq!(portion(1_000, 1_000, TokenBucket::new(1, year)), Quota::new(1, year));
    }
}
