//! [`Ramp`]: the share of a quota over time, its integral, and their inverses, in whole nanoseconds.
//!
//! All in fixed point: every function is monotonic to the last bit, and the same wherever it is asked.

use crate::clock::Nanos;

/// A share of one.
const ONE: u64 = 1 << 63;
const BITS: u32 = 63;

/// The curve of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ramp {
    /// In nanoseconds; not zero.
    period: u64,
    /// How many nanoseconds' worth of permits the ramp withholds altogether.
    lost: u64,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `start + (1 - start) x^exponent`.
    Power { start: u64, exponent: u32 },
    /// `1 / sqrt(square - (square - 1) x)`; `square` with 43 bits below the point, `factor`, its root, with 53.
    Cold { square: u64, factor: u64 },
}

fn mul(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> BITS) as u64
}

impl Ramp {
    /// None where there is nothing to warm up.
    pub(super) fn power(period: u64, start: f64, exponent: u32) -> Option<Self> {
        // A little more, so that a third of ninety is thirty.
        let start = ((start * ONE as f64) as u64).saturating_add(1 << 11).min(ONE);
        (start < ONE)
            .then_some(Shape::Power { start, exponent })
            .and_then(|it| Self::of(period, it))
    }

    /// None where there is nothing to warm up.
    pub(super) fn cold(period: u64, factor: f64) -> Option<Self> {
        const POINT: f64 = (1_u64 << 53) as f64;
        // At most 1,000, so at most 63 bits; the square has as many.
        let factor = (factor * POINT) as u64;
        let square = ((u128::from(factor) * u128::from(factor)) >> 63) as u64;
        // Nearer to one there are too few bits to tell it from one.
        (square > (1 << 43) + (1 << 31))
            .then_some(Shape::Cold { square, factor })
            .and_then(|it| Self::of(period, it))
    }

    fn of(period: u64, shape: Shape) -> Option<Self> {
        let ramp = Self { period, lost: 0, shape };
        (period > 0).then(|| Self { lost: period - ramp.integral(period), ..ramp })
    }

    /// How far the ramp is `elapsed` after its start; `ONE` at its end.
    fn part(&self, elapsed: u64) -> u64 {
        ((u128::from(elapsed.min(self.period)) << BITS) / u128::from(self.period)) as u64
    }

    /// `square - (square - 1) x`, as its root with 53 bits below the point.
    fn root(square: u64, part: u64) -> u64 {
        let inside = square - mul(square - (1 << 43), part);
        // 43 and 63 bits below the point; the root has half of them.
        (u128::from(inside) << BITS).isqrt() as u64
    }

    /// The share `elapsed` after the start; 2^63 is one.
    fn share(&self, elapsed: u64) -> u64 {
        if elapsed >= self.period {
            return ONE;
        }
        let part = self.part(elapsed);
        match self.shape {
            Shape::Power { start, exponent } => start + mul(ONE - start, power(part, exponent)),
            Shape::Cold { square, .. } => {
                // As for a start factor: a little more than rounded down.
                let share = (u128::from(ONE) << 53) / u128::from(Self::root(square, part));
                (share as u64).saturating_add(1 << 11).min(ONE)
            }
        }
    }

    /// The integral of the share over the first `elapsed` nanoseconds, which are at most the period.
    fn integral(&self, elapsed: u64) -> u64 {
        let part = self.part(elapsed);
        let mean = match self.shape {
            Shape::Power { start, exponent } => {
                let rest = power(part, exponent + 1) / u64::from(exponent + 1);
                mul(start, part) + mul(ONE - start, rest)
            }
            Shape::Cold { square, factor } => {
                // 2 (factor - root) / (square - 1)
                let gained = factor.saturating_sub(Self::root(square, part));
                let mean = (u128::from(gained) << 54) / u128::from(square - (1 << 43));
                u64::try_from(mean).unwrap_or(ONE).min(ONE)
            }
        };
        mul(self.period, mean)
    }
}

fn power(x: u64, exponent: u32) -> u64 {
    (1..exponent).fold(x, |product, _| mul(product, x))
}

/// A ramp that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Warming {
    ramp: Ramp,
    started: Nanos,
}

impl Warming {
    pub(crate) fn new(ramp: Ramp, started: Nanos) -> Self {
        Self { ramp, started }
    }

    pub(crate) fn started(&self) -> Nanos {
        self.started
    }

    /// The same ramp with another start.
    pub(crate) fn starting(&self, started: Nanos) -> Self {
        Self { started, ..*self }
    }

    fn elapsed(&self, now: Nanos) -> u64 {
        now.since(self.started).get()
    }

    /// The end of the ramp.
    pub(crate) fn end(&self) -> Nanos {
        Nanos::new(self.started.get().saturating_add(self.ramp.period))
    }

    /// The time by a clock that runs at the share: what a bucket refills by.
    #[inline]
    pub(crate) fn warp(&self, now: Nanos) -> Nanos {
        let elapsed = self.elapsed(now);
        if elapsed >= self.ramp.period {
            return Nanos::new(now.get() - self.ramp.lost);
        }
        // A clock that went back behind the start reads itself.
        let start = self.started.min(now).get();
        Nanos::new(start + self.ramp.integral(elapsed))
    }

    /// The first instant whose [`warp`](Self::warp) is at least `warped`; beyond all time where none is.
    pub(crate) fn unwarp(&self, warped: u128) -> u128 {
        let Ok(warped) = u64::try_from(warped) else { return warped };
        let Some(gained) = warped.checked_sub(self.started.get()) else { return warped.into() };
        let Ramp { period, lost, .. } = self.ramp;
        // The end itself may be reached a little before it, where it is rounded down to.
        if gained > period - lost {
            return u128::from(warped) + u128::from(lost);
        }
        let started = u128::from(self.started.get());
        started + u128::from(first(period, |elapsed| self.ramp.integral(elapsed) >= gained))
    }

    /// `n` times the share, rounded down; at least 1.
    #[inline]
    pub(crate) fn scaled(&self, n: u64, now: Nanos) -> u64 {
        let elapsed = self.elapsed(now);
        if elapsed >= self.ramp.period { n } else { mul(n, self.ramp.share(elapsed)).max(1) }
    }

    /// The first instant from `now` at which `n` times the share, rounded down, is at least `needed`, which is at
    /// most `n`.
    pub(crate) fn reaches(&self, n: u64, needed: u64, now: Nanos) -> Nanos {
        if self.scaled(n, now) >= needed {
            return now;
        }
        let enough = |elapsed: u64| mul(n, self.ramp.share(elapsed)).max(1) >= needed;
        let elapsed = first(self.ramp.period, enough);
        Nanos::new(self.started.get().saturating_add(elapsed)).max(now)
    }
}

/// The first of `0..=most` for which `is_there`, which holds for `most` and from the first on.
fn first(most: u64, is_there: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_there(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
