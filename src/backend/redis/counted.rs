//! [`Counted`]: one quota, as the scripts count it.

use std::time::Duration;

use crate::{Algorithm, Calendar, ConfigError, FixedWindow, Quota, StartLevel, quota::gcd};

/// One quota, as the scripts count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) kind: Kind,
    /// The most that may pass at once.
    pub(super) limit: u64,
    /// How many units of what is spent are a permit.
    pub(super) unit: u64,
    /// Units that come back in a microsecond; of buckets alone.
    pub(super) mul: u64,
    /// What else the kind's own functions take, as it is sent.
    pub(super) own: [String; 4],
}

/// How it is counted: what is stored, and by which functions of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bucket,
    Window,
    Cells,
    Log,
}

impl Kind {
    /// Its name in scripts, and at the end of a key.
    pub(super) fn letter(self) -> &'static str {
        match self {
            Self::Bucket => "b",
            Self::Window => "w",
            Self::Cells => "c",
            Self::Log => "l",
        }
    }

    /// How many numbers a composed script answers for it: what was spent before; of a window also its start; of cells
    /// the stamp, and all that was admitted.
    pub(super) fn answers(self) -> usize {
        match self {
            Self::Bucket => 1,
            Self::Window => 2,
            Self::Cells | Self::Log => 3,
        }
    }

    /// How many of its own a check takes.
    pub(super) fn owns(self) -> usize {
        if self == Self::Bucket { 4 } else { 3 }
    }
}

/// Numbers in a script are floats: whole up to here.
const WHOLE: u128 = 1 << 53;

/// How many times the time in which all comes back a key may be ahead, beside the longest wait for a turn. Beyond that
/// the server's clock went back, and the key counts as spent, no more.
const AHEAD: u128 = 4;

/// How far ahead a turn is given at most, in microseconds: ten minutes.
pub(super) const LONGEST_WAIT: u64 = 600_000_000;

/// A day in microseconds.
const DAY: u64 = 86_400_000_000;

impl Counted {
    /// The algorithm with one of its quotas, or why scripts cannot count it exactly.
    pub(super) fn of(algorithm: &Algorithm, quota: Quota) -> Result<Self, ConfigError> {
        let algorithm = algorithm.with_quota(quota);
        if let Some(warm_up) = algorithm.warm_up() {
            let reason = "is not counted in Redis, where nobody knows when the fleet was started; leave it out, or \
                          count this rule in the process";
            return Err(ConfigError::new("warm_up", format!("{warm_up:?}"), reason));
        }
        // Whatever no backend counts is told in the words of the local one.
        crate::algorithm::Compiled::of(&algorithm, crate::algorithm::Epoch::default())?;
        match algorithm {
            Algorithm::TokenBucket(bucket) => {
                if bucket.start_level() != StartLevel::Full {
                    let value = format!("{:?}", bucket.start_level());
                    let reason =
                        "must be full in Redis, where a new key cannot be told from one long idle";
                    return Err(ConfigError::new("start", value, reason));
                }
                Self::bucket(algorithm.quota())
            }
            Algorithm::LeakyBucket(_) => Self::bucket(algorithm.quota()),
            Algorithm::FixedWindow(window) => Self::window(&window),
            Algorithm::SlidingWindow(_) => {
                let (limit, window) = Self::sliding(algorithm.quota())?;
                if window % CELLS != 0 {
                    let reason =
                        "must be a multiple of 10 us in Redis, whose clock has whole microseconds";
                    return Err(period(algorithm.quota(), reason));
                }
                Ok(Self::plain(
                    Kind::Cells,
                    limit,
                    [limit.to_string(), window.to_string(), (window / CELLS).to_string()],
                ))
            }
            Algorithm::SlidingLog(_) => {
                let (limit, window) = Self::sliding(algorithm.quota())?;
                Ok(Self::plain(
                    Kind::Log,
                    limit,
                    [limit.to_string(), window.to_string(), String::new()],
                ))
            }
        }
    }

    fn plain(kind: Kind, limit: u64, [a, b, c]: [String; 3]) -> Self {
        Self { kind, limit, unit: 1, mul: 1, own: [a, b, c, String::new()] }
    }

    fn bucket(quota: Quota) -> Result<Self, ConfigError> {
        let (permits, period, burst) = (quota.permits(), micros(quota)?, quota.max_burst());
        let common = gcd(permits, period);
        let (mul, unit) = (permits / common, period / common);
        // What is looked at: a key that is as far ahead as it may be, and asks for all there is.
        let all = (u128::from(burst) + u128::from(permits)) * u128::from(unit);
        let turns = u128::from(LONGEST_WAIT) * u128::from(mul);
        let most = all * (AHEAD + 2) + turns * 2;
        if most >= WHOLE {
            let (field, value) =
                if burst > permits { ("burst", burst) } else { ("permits", permits) };
            let reason = "is too many for a period this long: a script's numbers are whole up to 2^53; divide \
                          permits and period by a common factor, or take a smaller burst";
            return Err(ConfigError::new(field, value, reason));
        }
        let capacity = burst * unit;
        let horizon = all * AHEAD + turns;
        let tag = format!(":{mul}/{unit}/{burst}");
        let own = [mul.to_string(), tag, capacity.to_string(), horizon.to_string()];
        Ok(Self { kind: Kind::Bucket, limit: burst, unit, mul, own })
    }

    fn window(window: &FixedWindow) -> Result<Self, ConfigError> {
        let (limit, length) = Self::sliding(window.quota())?;
        let (length, phase) = match window.calendar_unit() {
            Some(Calendar::Month) => ("M".to_owned(), "0".to_owned()),
            // The first of January 1970 was a Thursday, three days after a Monday.
            Some(Calendar::IsoWeek) => ((7 * DAY).to_string(), (3 * DAY).to_string()),
            Some(_) => (DAY.to_string(), "0".to_owned()),
            None if window.is_aligned() => (length.to_string(), "0".to_owned()),
            None => (length.to_string(), String::new()),
        };
        Ok(Self::plain(Kind::Window, limit, [limit.to_string(), length, phase]))
    }

    /// Limit and window of a quota without a burst of its own.
    fn sliding(quota: Quota) -> Result<(u64, u64), ConfigError> {
        let (limit, window) = (quota.permits(), micros(quota)?);
        let ahead = u128::from(window) * (AHEAD + 2);
        if ahead >= WHOLE {
            return Err(period(
                quota,
                "is too long for Redis: a script's numbers are whole up to 2^53",
            ));
        }
        if u128::from(limit) * 2 >= WHOLE {
            let reason = "is too many for Redis: a script's numbers are whole up to 2^53";
            return Err(ConfigError::new("permits", limit, reason));
        }
        Ok((limit, window))
    }

    pub(super) fn capacity(&self) -> u64 {
        self.limit * self.unit
    }

    /// A cost as it is sent: no more than the script can add.
    pub(super) fn cost(&self, permits: u64) -> u64 {
        // A permit more than ever fits is as good as any number of them.
        permits.min(self.limit + 1) * self.unit
    }
}

/// Cells of a sliding window.
const CELLS: u64 = 10;

fn period(quota: Quota, reason: &'static str) -> ConfigError {
    ConfigError::new("period", format!("{:?}", quota.period()), reason)
}

fn micros(quota: Quota) -> Result<u64, ConfigError> {
    let nanos = quota.period().as_nanos();
    let whole = nanos.is_multiple_of(Duration::from_micros(1).as_nanos());
    match u64::try_from(nanos / 1_000) {
        Ok(micros) if whole && micros > 0 => Ok(micros),
        _ => Err(period(quota, "must be whole microseconds in Redis, which is what its clock has")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeakyBucket, SlidingLog, SlidingWindow, TokenBucket, WarmUp};

    fn refused(algorithm: impl Into<Algorithm>) -> (&'static str, String) {
        let algorithm = algorithm.into();
        let error = Counted::of(&algorithm, algorithm.quota()).unwrap_err();
        (error.field(), error.value().to_owned())
    }

    #[test]
    fn what_is_not_exact_is_refused() {
        let nanos = Duration::from_nanos;
        assert_eq!(refused(TokenBucket::new(1, nanos(1_500))), ("period", "1.5µs".to_owned()));
        assert_eq!(refused(SlidingWindow::new(1, nanos(11_000))), ("period", "11µs".to_owned()));
        assert_eq!(refused(LeakyBucket::new(1, nanos(999))), ("period", "999ns".to_owned()));
        assert_eq!(
            refused(TokenBucket::per_day(1).burst(1_000_000)),
            ("burst", "1000000".to_owned())
        );
        assert_eq!(refused(TokenBucket::per_day(1_000_003)).0, "permits");
        assert_eq!(refused(FixedWindow::per_second(1 << 53)).0, "permits");
        assert_eq!(refused(TokenBucket::per_second(0)).0, "permits");
    }

    #[test]
    fn what_a_fleet_cannot_have_is_refused() {
        let warm_up = WarmUp::over(Duration::from_secs(10));
        assert_eq!(refused(SlidingLog::per_minute(10).warm_up(warm_up)).0, "warm_up");
        let empty = TokenBucket::per_second(10).start(StartLevel::Empty);
        assert_eq!(refused(empty), ("start", "Empty".to_owned()));
    }

    #[test]
    fn what_people_write_is_counted() {
        for quota in [
            Quota::per_second(1_000_000),
            Quota::per_second(333),
            Quota::per_minute(100_000).burst(1_000),
            Quota::per_day(1_000_000),
            Quota::per_day(10).burst(100),
            Quota::new(1, Duration::from_secs(365 * 86_400)),
        ] {
            Counted::of(&quota.into(), quota).unwrap();
        }
    }

    #[test]
    fn a_rate_is_exact_in_units() {
        let counted = Counted::bucket(Quota::new(7, Duration::from_secs(30)).burst(3)).unwrap();
        assert_eq!((counted.mul, counted.unit, counted.limit), (7, 30_000_000, 3));
        assert_eq!(counted.own[1], ":7/30000000/3");
        assert_eq!(counted.cost(2), 60_000_000);
        assert_eq!(counted.cost(u64::MAX), 120_000_000);
    }
}
