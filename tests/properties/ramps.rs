//! Slow models of what warms up, along ramps that binary fractions tell exactly: straight lines of a power of two
//! nanoseconds, from a half or a quarter.

use std::time::Duration;

use tower_sluice::{Quota, WarmUp};

use crate::models::{Expected, Model, Numbers, nanos};

/// A straight line over `2^bits` nanoseconds, from `1 / 2^halves`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ramp {
    pub(crate) bits: u32,
    pub(crate) halves: u32,
}

/// Fractions of a start factor: it is taken to be so much greater than was said, for the sake of thirds.
const GRAIN: u32 = 52;

impl Ramp {
    pub(crate) fn warm_up(self) -> WarmUp {
        let factor = 1.0 / f64::from(1 << self.halves);
        WarmUp::over(Duration::from_nanos(self.period())).linear().start_factor(factor)
    }

    pub(crate) fn period(self) -> u64 {
        1 << self.bits
    }

    fn start(self) -> u128 {
        (1 << (GRAIN - self.halves)) + 1
    }

    /// `n` times the share, rounded down.
    fn share_of(self, n: u128, elapsed: u64) -> u128 {
        if elapsed >= self.period() {
            return n;
        }
        let grown = ((1 << GRAIN) - self.start()) * u128::from(elapsed);
        // In two halves: the product has more than 128 bits.
        let (share, low) = ((self.start() << self.bits) + grown, n & 0xffff_ffff);
        let high = (n >> 32) * share + ((low * share) >> 32);
        high >> (GRAIN + self.bits - 32)
    }

    /// The integral of the share, in whole nanoseconds.
    fn integral(self, elapsed: u64) -> u64 {
        let part = u128::from(elapsed.min(self.period()));
        let line = (self.start() * part) << (self.bits + 1);
        let curve = ((1 << GRAIN) - self.start()) * part * part;
        let within = ((line + curve) >> (GRAIN + self.bits + 1)) as u64;
        within + elapsed.saturating_sub(self.period())
    }
}

/// Any limit on a ramp.
#[derive(Clone, Debug)]
pub(crate) struct Warming {
    ramp: Ramp,
    started: u64,
    limit: u128,
    spent: Spent,
}

#[derive(Clone, Debug)]
enum Spent {
    /// A bucket's permits are `unit`s, of which `gain` come back in a nanosecond of the ramp's time: what it had left
    /// at an instant of that.
    Bucket { unit: u128, gain: u128, left: u128, at: u64 },
    /// What a window counts, whatever its limit.
    Window(Box<Model>),
}

impl Warming {
    pub(crate) fn new(quota: Quota, ramp: Ramp, plain: Model, started: u64) -> Self {
        let Numbers { permits, period, burst } = quota.into();
        let common = gcd(permits, period);
        let (unit, gain) = (period / common, permits / common);
        let spent = match plain {
            Model::Bucket(_) => Spent::Bucket { unit, gain, left: burst * unit, at: started },
            window => Spent::Window(Box::new(window)),
        };
        Self { ramp, started, limit: burst, spent }
    }

    fn elapsed(&self, now: u64) -> u64 {
        now.saturating_sub(self.started)
    }

    fn time(&self, now: u64) -> u64 {
        self.started + self.ramp.integral(self.elapsed(now))
    }

    fn unit(&self) -> u128 {
        if let Spent::Bucket { unit, .. } = self.spent { unit } else { 1 }
    }

    /// What is left, in units.
    fn left(&self, now: u64) -> u128 {
        let whole = self.limit * self.unit();
        let present = self.ramp.share_of(whole, self.elapsed(now)).max(self.unit());
        match &self.spent {
            Spent::Bucket { .. } => self.kept(now).min(present),
            Spent::Window(window) => {
                let spent = self.limit - window.peek(now, 0).remaining;
                present.saturating_sub(spent)
            }
        }
    }

    /// What is withheld from both may hide what one has spent.
    pub(crate) fn is_as_good_as(&self, fresh: &Self, now: u64) -> bool {
        match (&self.spent, &fresh.spent) {
            (Spent::Window(window), Spent::Window(fresh)) => window.is_as_good_as(fresh, now),
            (Spent::Bucket { unit, .. }, _) => self.kept(now) >= self.limit * unit,
            _ => unreachable!("of one kind"),
        }
    }

    /// What a bucket would have if nothing were withheld from it.
    fn kept(&self, now: u64) -> u128 {
        match self.spent {
            Spent::Bucket { gain, left, at, .. } => {
                left + u128::from(self.time(now).saturating_sub(at)) * gain
            }
            Spent::Window(_) => 0,
        }
    }

    pub(crate) fn peek(&self, now: u64, cost: u64, held: u64) -> Expected {
        let unit = self.unit();
        let free = |now| self.left(now).saturating_sub(u128::from(held) * unit);
        let wanted = u128::from(cost) * unit;
        let allowed = cost == 0 || wanted <= free(now);
        // What is left only grows.
        let first = |enough: &dyn Fn(u64) -> bool| {
            let (mut low, mut high) = (now, now + (1 << 62));
            while low < high {
                let middle = low + (high - low) / 2;
                if enough(middle) { high = middle } else { low = middle + 1 }
            }
            nanos((low - now).into())
        };
        let waits = !allowed && u128::from(cost) <= self.limit;
        Expected {
            allowed,
            remaining: free(now) / unit,
            retry_after: waits.then(|| first(&|then| wanted <= self.left(then))),
            reset_after: first(&|then| self.left(then) == self.limit * unit),
        }
    }

    pub(crate) fn charge(&mut self, now: u64, cost: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let (before, wanted, time) =
            (self.left(now), u128::from(cost) * self.unit(), self.time(now));
        match &mut self.spent {
            Spent::Bucket { left, at, .. } => (*left, *at) = (before.saturating_sub(wanted), time),
            Spent::Window(window) => _ = window.charge(now, cost),
        }
        wanted <= before
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
