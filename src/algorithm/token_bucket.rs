//! [`TokenBucket`]: permits come back continuously, up to a burst.
//!
//! **Definition.** A bucket holds at most `burst` tokens, starts full, and gains `permits` tokens per
//! `period`, continuously. A request of cost `c` passes if at least `c` tokens are there, and takes
//! them. This is the generic cell rate algorithm (GCRA, ITU-T I.371) seen from the other side.
//!
//! **State.** One word: the *theoretical arrival time*, the instant at which the bucket will be full
//! again, counted in fractions of a token instead of nanoseconds. A token is a whole number of units
//! and the clock's reading is converted to units at once, so any rational rate is exact and no error
//! accumulates. Where the rate, as a fraction in lowest terms, is at most 1,024 tokens per so many
//! nanoseconds, which nearly every quota that people write is, the conversion is a multiplication and
//! exact; else it is rounded by less than a nanosecond, or by as much as a burst of that size leaves room
//! for, and the last permit of a burst may come that much late. Units are counted from a base, which moves
//! on once in a week or more.
//!
//! **Promise.** In any interval `L` at most `burst + rate x L` is admitted: time is rounded up where a
//! charge starts from an idle bucket and down where it is tested, so rounding never favours the caller.
//!
//! **`retry_after`** is the first nanosecond at which the same charge passes.
//!
//! **Bytes per key:** 8, and 8 for the key's hash.

use std::time::Duration;

use super::{Epoch, MACHINE_WORDS, Step, WarmUp, wait_until};
use crate::{ConfigError, Decision, Quota, clock::Nanos, decision::Level, quota::gcd};

/// A token bucket: at most `burst + rate x L` permits in any interval `L`. 10 a second with a burst of 20 lets through
/// 20 at once and 30 in the first second.
///
/// Drawn and compared with the others: [`guide::algorithms`](crate::guide::algorithms). The count lives in this
/// process, from its start to its end: see [restarts and instances](crate::guide::algorithms#restarts-and-instances).
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::TokenBucket;
///
/// let api = TokenBucket::per_second(500).burst(750);
/// let mail = TokenBucket::new(5, Duration::from_secs(600));
/// # let _ = (api, mail);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct TokenBucket {
    quota: Quota,
    start: StartLevel,
    warm_up: Option<WarmUp>,
}

/// How full every bucket of a rule was when the rule was built.
///
/// A key first seen `t` later starts with what it would have by then, `min(burst, start + rate x t)`. So a new key and
/// an idle key are the same thing, and a new name gains nothing. Where the limit is changed meanwhile, what a bucket
/// lacked of its burst at the start, and has not got back yet, is still lacking.
///
/// A service that restarts counts anew, since its counts are in its memory. [`Full`](Self::Full), the default, gives
/// every key its burst again each time: who crashes or is deployed ten times in a period may give ten bursts.
/// [`Empty`](Self::Empty) gives nobody one, so that over any number of restarts a key gets no more than its rate times
/// the time; in return the first request after a start waits for the first permit, `period / permits`.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{ManualClock, StartLevel, TokenBucket};
///
/// let clock = ManualClock::new();
/// let bucket = TokenBucket::per_second(10).burst(20);
/// let cold = bucket.start(StartLevel::Empty).limiter().clock(clock.clone()).build()?;
/// let half = bucket.start(StartLevel::Fraction(0.5)).limiter().clock(clock.clone()).build()?;
/// assert_eq!((cold.peek(1).remaining(), half.peek(1).remaining()), (0, 10));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!((cold.peek(1).remaining(), half.peek(1).remaining()), (10, 20));
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum StartLevel {
    /// The whole burst, anew at each restart.
    #[default]
    Full,
    /// Nothing: a service that starts cold is not met by everybody's burst at once.
    Empty,
    /// A fraction of the burst, from 0.0 to 1.0.
    Fraction(f64),
}

impl TokenBucket {
    /// `permits` per `period`; the burst is the permits of one period until set.
    pub const fn new(permits: u64, period: Duration) -> Self {
        Self { quota: Quota::new(permits, period), start: StartLevel::Full, warm_up: None }
    }

    per_period!("So many permits per");

    /// Sets the burst: the most that may pass at one instant. Default: the permits of one period.
    pub const fn burst(self, permits: u64) -> Self {
        Self { quota: self.quota.burst(permits), ..self }
    }

    /// Sets how full buckets were when the rule was built. Default: full.
    pub const fn start(self, level: StartLevel) -> Self {
        Self { start: level, ..self }
    }

    /// Lets rate and burst grow to their own after a start. Default: they are whole at once.
    pub const fn warm_up(self, warm_up: WarmUp) -> Self {
        Self { warm_up: Some(warm_up), ..self }
    }

    /// The quota.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// How full buckets were when the rule was built.
    #[must_use]
    pub const fn start_level(&self) -> StartLevel {
        self.start
    }

    pub(super) const fn ramp(&self) -> Option<WarmUp> {
        self.warm_up
    }

    pub(crate) fn with_quota(self, quota: Quota) -> Self {
        Self { quota, ..self }
    }

    pub(crate) fn compile(&self, epoch: Epoch) -> Result<Machine, ConfigError> {
        let (permits, period, burst) = self.quota.checked()?;
        let common = gcd(permits, period);
        let (mul, span) = (permits / common, period / common);
        if mul > span {
            return Err(ConfigError::new(
                "permits",
                permits,
                "must be at most one per nanosecond (10^9 a second)",
            ));
        }
        if span > MAX_SPAN {
            let period = format!("{:?}", self.quota.period());
            return Err(ConfigError::new("period", period, "must be at most 36 years"));
        }
        if burst > MAX_CAPACITY {
            return Err(ConfigError::new("burst", burst, "must be at most 2^59"));
        }
        // As fine as a whole unit a nanosecond can be, unless that makes the base move too often or the
        // burst too large for a word.
        let finest = u128::from(span) * u128::from(FASTEST) / u128::from(mul);
        let finest = (finest.min(span.into()) as u64).min(MAX_CAPACITY / burst).max(1);
        let by_shift = (0..=span.trailing_zeros()).find(|shift| span >> shift <= finest);
        let (mul, scale, unit) = match by_shift {
            Some(shift) => (mul, SHIFT | u64::from(shift), span >> shift),
            None => {
                // Where a nanosecond has more units than a word can multiply by, fewer do.
                let finest = finest.min(u64::MAX / mul);
                (mul * finest, span, finest)
            }
        };
        let capacity = burst * unit;
        let mut machine =
            Machine { mul, scale, unit, capacity, origin: 0, base: 0 }.rebased(epoch.built);
        let there = match self.start {
            StartLevel::Full => capacity,
            StartLevel::Empty => 0,
            StartLevel::Fraction(fraction) if (0.0..=1.0).contains(&fraction) => {
                share(burst, unit, fraction)
            }
            StartLevel::Fraction(fraction) => {
                return Err(ConfigError::new("start", fraction, "must be from 0.0 to 1.0"));
            }
        };
        machine.origin = match capacity.saturating_sub(there) {
            0 => 0,
            debt => machine.ceil(epoch.built) + debt,
        };
        Ok(machine)
    }
}

/// `fraction` of a burst in units; whole permits where it says so, up to the precision of a float.
fn share(burst: u64, unit: u64, fraction: f64) -> u64 {
    let permits = burst as f64 * fraction;
    let nearest = permits.round();
    if (permits - nearest).abs() <= permits * 4.0 * f64::EPSILON {
        return (nearest as u64).saturating_mul(unit);
    }
    let whole = permits.floor();
    (whole as u64).saturating_mul(unit).saturating_add(((permits - whole) * unit as f64) as u64)
}

impl From<TokenBucket> for Quota {
    fn from(bucket: TokenBucket) -> Self {
        bucket.quota
    }
}

impl From<Quota> for TokenBucket {
    fn from(quota: Quota) -> Self {
        Self { quota, start: StartLevel::Full, warm_up: None }
    }
}

/// The greatest capacity in units.
const MAX_CAPACITY: u64 = 1 << 59;

/// The longest time between permits, in nanoseconds.
const MAX_SPAN: u64 = 1 << 60;

/// How many units a nanosecond may have.
const FASTEST: u64 = 1_024;

/// How many units after the base the next base is wanted.
const HORIZON: u64 = 1 << 60;

/// The greatest state.
const MAX_STATE: u64 = (1 << 61) - 2;

/// A quota compiled to units: `units(now) = floor((now - base) * mul / scale)`, and a permit is `unit` of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    mul: u64,
    /// The divisor of the conversion; nearly every quota that people write needs none, and it is a
    /// shift, with [`SHIFT`] set.
    scale: u64,
    pub(super) unit: u64,
    pub(super) capacity: u64,
    /// What the state of a key never seen is taken to be; zero where buckets start full.
    origin: u64,
    /// What instant has no units.
    base: u64,
}

/// [`Machine::charge`] before the machine [expires](Machine::expires), where nobody holds anything: by the machine's
/// words, and with nothing in it that most quotas do not need. None where something has to be divided.
#[inline(always)]
pub(crate) fn charge_plainly(
    [mul, scale, unit, capacity, origin, base]: [u64; MACHINE_WORDS],
    state: u64,
    now: Nanos,
    cost: u64,
) -> Option<Step> {
    if scale != SHIFT {
        return None;
    }
    // Below the horizon.
    let units = now.get().saturating_sub(base).wrapping_mul(mul);
    let spent = state.max(origin).max(units);
    // One permit is at most the capacity, and so is what is left of it.
    let room = capacity.saturating_sub(spent - units);
    let fits = if cost == 1 { unit <= room } else { cost <= room / unit };
    // At most the horizon and a capacity, which is below the greatest state.
    Some(if fits { Step::To(spent.wrapping_add(cost.wrapping_mul(unit))) } else { Step::Denied })
}

/// Tells a shift from a divisor, which is at most `MAX_SPAN`.
const SHIFT: u64 = 1 << 63;

impl Machine {
    /// The conversion's shift, below 64: it was found among the trailing zeros of a word.
    #[inline]
    fn shift(&self) -> Option<u32> {
        (self.scale & SHIFT != 0).then_some((self.scale & 63) as u32)
    }

    #[inline]
    fn scaled(&self, now: Nanos) -> u128 {
        u128::from(now.get().saturating_sub(self.base)) * u128::from(self.mul)
    }

    #[inline]
    pub(super) fn floor(&self, now: Nanos) -> u64 {
        self.around(now).0
    }

    #[inline]
    fn ceil(&self, now: Nanos) -> u64 {
        self.around(now).1
    }

    /// `now` in units, rounded down and up.
    #[inline]
    fn around(&self, now: Nanos) -> (u64, u64) {
        let scaled = self.scaled(now);
        if self.scale == SHIFT {
            // By far the most quotas: nothing to divide by, so nothing is rounded.
            let units = u64::try_from(scaled).unwrap_or(u64::MAX);
            return (units, units);
        }
        let (units, is_whole) = match self.shift() {
            Some(shift) => (scaled >> shift, scaled as u64 & ((1 << shift) - 1) == 0),
            None => {
                let divisor = u128::from(self.scale);
                let units = scaled / divisor;
                (units, units * divisor == scaled)
            }
        };
        // Beyond the horizon the base is about to move; until then no debt is older than this.
        let floor = u64::try_from(units).unwrap_or(u64::MAX);
        (floor, floor.saturating_add(u64::from(!is_whole)))
    }

    /// The first nanosecond at which `floor` is at least `units`.
    #[inline]
    pub(super) fn instant_of(&self, units: u64) -> u128 {
        let units = match self.shift() {
            Some(shift) => u128::from(units) << shift,
            None => u128::from(units) * u128::from(self.scale),
        };
        let nanos = match self.mul {
            // Spares a division of 128 bits.
            1 => units,
            mul => units.div_ceil(u128::from(mul)),
        };
        nanos + u128::from(self.base)
    }

    /// When the next base is wanted.
    pub(super) fn expires(&self) -> Nanos {
        Nanos::new(u64::try_from(self.instant_of(HORIZON)).unwrap_or(u64::MAX))
    }

    /// The same quota with its base half a horizon before `now`: a clock that goes back by days still finds
    /// a word that tells what it was at. By whole units where the conversion is a shift, so that nothing is
    /// rounded.
    pub(super) fn rebased(self, now: Nanos) -> Self {
        let since_base = |units| self.instant_of(units) - u128::from(self.base);
        let half = u64::try_from(since_base(HORIZON / 2)).unwrap_or(u64::MAX);
        let target = now.get().saturating_sub(half);
        let step = self.shift().unwrap_or(0);
        let base = match target.checked_sub(self.base) {
            Some(onward) => self.base + (onward >> step << step),
            None => target,
        };
        let new = Self { base, origin: 0, ..self };
        let debt = self.debt(0, self.floor(now));
        Self { origin: if debt == 0 { 0 } else { new.ceil(now) + debt }, ..new }
    }

    /// What is spent and not yet replenished, in units.
    #[inline]
    pub(super) fn debt(&self, state: u64, floor: u64) -> u64 {
        state.max(self.origin).saturating_sub(floor)
    }

    /// A number of permits in units; more than the capacity where it cannot be told apart from never.
    #[inline]
    pub(super) fn units(&self, permits: u64) -> u64 {
        // Far above any capacity, and two of them do not overflow.
        const NEVER: u64 = 1 << 62;
        match permits {
            1 => self.unit,
            _ => permits.checked_mul(self.unit).map_or(NEVER, |units| units.min(NEVER)),
        }
    }

    #[inline]
    pub(super) fn charge(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Step {
        self.charge_within(state, now, cost, held, 0)
    }

    /// The same where so many units of the burst are withheld from everybody.
    #[inline]
    pub(super) fn charge_within(
        &self,
        state: u64,
        now: Nanos,
        cost: u64,
        held: u64,
        withheld: u64,
    ) -> Step {
        let ((floor, ceil), cost) = (self.around(now), self.units(cost));
        let debt = self.debt(state, floor).max(withheld).saturating_add(self.units(held));
        if debt.saturating_add(cost) > self.capacity {
            return Step::Denied;
        }
        // A charge on an idle bucket starts at the next whole unit, so that no part of one is a gift.
        let start = state.max(self.origin).max(ceil.saturating_add(withheld));
        Step::To(start.saturating_add(cost).min(MAX_STATE))
    }

    pub(super) fn force(&self, state: u64, now: Nanos, cost: u64) -> u64 {
        self.force_within(state, now, cost, 0)
    }

    pub(super) fn force_within(&self, state: u64, now: Nanos, cost: u64, withheld: u64) -> u64 {
        let start = state.max(self.origin).max(self.ceil(now).saturating_add(withheld));
        start.saturating_add(self.units(cost)).min(MAX_STATE)
    }

    #[inline]
    pub(super) fn is_idle(&self, state: u64, now: Nanos) -> bool {
        state < self.floor(now)
    }

    pub(super) fn is_known(&self, state: u64, now: Nanos) -> bool {
        let floor = self.floor(now);
        self.debt(state, floor) != self.debt(0, floor)
    }

    pub(super) fn idle_word(&self, now: Nanos) -> u64 {
        // After long idleness the base is about to move, and now may not fit into a word.
        self.floor(now).min(MAX_STATE)
    }

    #[inline]
    pub(super) fn decide(&self, state: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        let floor = self.floor(now);
        let debt = self.debt(state, floor);
        let (held_units, cost_units) = (self.units(held), self.units(cost));
        let spent = debt.saturating_add(held_units);
        let reset_after = match debt {
            0 => Nanos::ZERO,
            _ => wait_until(self.instant_of(floor + debt), now),
        };
        let level = Level {
            capacity: self.capacity,
            left: self.capacity.saturating_sub(spent),
            unit: self.unit,
            reset_after,
        };
        if cost == 0 || spent.saturating_add(cost_units) <= self.capacity {
            level.allowed()
        } else if cost_units > self.capacity {
            level.never()
        } else {
            // Above zero: without debt and holds the charge would fit. Where holds alone are in the
            // way, nobody knows when they end, and the least wait is said.
            let lacking = spent + cost_units - self.capacity;
            level.denied(wait_until(self.instant_of(floor + lacking.min(debt)), now))
        }
    }

    pub(super) fn convert(&self, old: &Self, state: u64, now: Nanos) -> u64 {
        let debt = old.debt(state, old.floor(now));
        let units = (u128::from(debt) * u128::from(self.unit)).div_ceil(u128::from(old.unit));
        self.owing(u64::try_from(units).unwrap_or(u64::MAX), now)
    }

    /// The same with this state for a key never seen.
    pub(super) fn starting(self, origin: u64) -> Self {
        Self { origin, ..self }
    }

    /// The state of a bucket that owes so much.
    pub(super) fn owing(&self, debt: u64, now: Nanos) -> u64 {
        if debt == 0 {
            // Idle before now, so that its slot may be claimed.
            return self.idle_word(now).saturating_sub(1);
        }
        // A bucket cannot be emptier than empty.
        self.ceil(now).saturating_add(debt.min(self.capacity)).min(MAX_STATE)
    }

    /// The same quota, for keys that all had `old`'s start level: the start is not started anew.
    pub(super) fn started_as(self, old: &Self, now: Nanos) -> Self {
        let new = Self { origin: 0, ..self };
        let debt = old.debt(0, old.floor(now));
        Self { origin: if debt == 0 { 0 } else { new.convert(old, 0, now) }, ..new }
    }

    pub(super) fn to_words(self) -> [u64; MACHINE_WORDS] {
        [self.mul, self.scale, self.unit, self.capacity, self.origin, self.base]
    }

    #[inline]
    pub(super) fn from_words(words: [u64; MACHINE_WORDS]) -> Self {
        let [mul, scale, unit, capacity, origin, base] = words;
        Self { mul, scale, unit, capacity, origin, base }
    }
}
