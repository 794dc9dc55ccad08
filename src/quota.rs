//! [`Quota`]: how much is allowed per period, and at once.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Rem,
    str::FromStr,
    time::Duration,
};

use crate::ConfigError;

/// Permits per period, plus the burst: the most that may pass at one instant after idleness.
///
/// The burst defaults to the permits of one period, at least 1. Nothing is checked until a rule or
/// limiter is built; parsing checks the text. Quotas are equal where they allow the same, whether the
/// burst was written or is the default.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::Quota;
///
/// let quota: Quota = "5/min burst 10".parse()?;
/// assert_eq!(quota, Quota::new(5, Duration::from_secs(60)).burst(10));
/// assert_eq!("0.2/s".parse::<Quota>()?, Quota::new(1, Duration::from_secs(5)).burst(1));
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    permits: u64,
    period: Duration,
    burst: u64,
    /// Whether somebody wrote the burst, so that an algorithm without one must object.
    is_burst_set: bool,
}

impl Quota {
    /// `permits` per `period`.
    #[must_use]
    pub const fn new(permits: u64, period: Duration) -> Self {
        Self { permits, period, burst: permits, is_burst_set: false }
    }

    /// `permits` per second.
    #[must_use]
    pub const fn per_second(permits: u64) -> Self {
        Self::new(permits, Duration::from_secs(1))
    }

    /// `permits` per minute.
    #[must_use]
    pub const fn per_minute(permits: u64) -> Self {
        Self::new(permits, Duration::from_secs(60))
    }

    /// `permits` per hour.
    #[must_use]
    pub const fn per_hour(permits: u64) -> Self {
        Self::new(permits, Duration::from_secs(3_600))
    }

    /// `permits` per day of 86,400 seconds.
    #[must_use]
    pub const fn per_day(permits: u64) -> Self {
        Self::new(permits, Duration::from_secs(86_400))
    }

    /// Sets the burst. Default: the permits of one period, at least 1.
    #[must_use]
    pub const fn burst(mut self, permits: u64) -> Self {
        self.burst = permits;
        self.is_burst_set = true;
        self
    }

    /// Permits per [`period`](Self::period).
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The burst in force: as set, else the permits of one period.
    #[must_use]
    pub const fn max_burst(&self) -> u64 {
        self.burst
    }

    /// The burst, where it was set and is not the default.
    pub(crate) fn burst_setting(&self) -> Option<u64> {
        self.is_burst_set.then_some(self.burst)
    }

    /// With the permits of one period as the burst, unless it was set to another: what a window may admit at once.
    pub(crate) const fn windowed(self) -> Self {
        if self.is_burst_set { self } else { Self { burst: self.permits, ..self } }
    }

    /// Permits and burst times `factor`; an overflow is an error, not a wrap.
    pub(crate) fn relaxed(&self, factor: u64) -> Result<Self, ConfigError> {
        let times = |field, n: u64| {
            n.checked_mul(factor).ok_or_else(|| {
                ConfigError::new(
                    field,
                    n,
                    format!(
                        "relaxed({factor}) makes it more than 64 bits hold; take a smaller factor"
                    ),
                )
            })
        };
        Ok(Self {
            permits: times("permits", self.permits)?,
            period: self.period,
            burst: times("burst", self.burst)?,
            is_burst_set: self.is_burst_set,
        })
    }

    /// Nanoseconds in which the whole burst comes back, rounded up.
    pub(crate) fn refill(&self) -> u128 {
        let burst = u128::from(self.burst);
        burst.saturating_mul(self.period.as_nanos()).div_ceil(u128::from(self.permits.max(1)))
    }

    /// Checks what holds for every algorithm and gives (permits, period in nanoseconds, burst).
    pub(crate) fn checked(&self) -> Result<(u64, u64, u64), ConfigError> {
        if self.permits == 0 {
            return Err(ConfigError::new("permits", 0, "must be at least 1"));
        }
        if self.period.is_zero() {
            return Err(ConfigError::new("period", "0s", "must be longer than zero"));
        }
        let period = u64::try_from(self.period.as_nanos()).map_err(|_| {
            ConfigError::new("period", format!("{:?}", self.period), "must be at most 584 years")
        })?;
        if self.max_burst() == 0 {
            return Err(ConfigError::new("burst", 0, "must be at least 1"));
        }
        Ok((self.permits, period, self.max_burst()))
    }
}

impl Quota {
    /// What it allows, however it was written.
    const fn allows(&self) -> (u64, Duration, u64) {
        (self.permits, self.period, self.burst)
    }
}

impl PartialEq for Quota {
    fn eq(&self, other: &Self) -> bool {
        self.allows() == other.allows()
    }
}

impl Eq for Quota {}

impl Hash for Quota {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.allows().hash(state);
    }
}

impl fmt::Display for Quota {
    /// As [`FromStr`] reads it: `5/min burst 10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.period.as_nanos();
        let (unit, length) = UNITS
            .into_iter()
            .find(|(_, length)| nanos.is_multiple_of(u128::from(*length)))
            .unwrap_or(("ns", 1));
        write!(f, "{}/", self.permits)?;
        match nanos / u128::from(length) {
            1 => {}
            count => write!(f, "{count}")?,
        }
        write!(f, "{unit} burst {}", self.max_burst())
    }
}

/// Units of a period by their first name, longest first, in nanoseconds.
const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl FromStr for Quota {
    type Err = ConfigError;

    /// Reads `NUMBER/PERIOD` or `NUMBER/PERIOD burst NUMBER`.
    ///
    /// The first number may have a decimal fraction of up to nine digits. The period is a unit (`ns`,
    /// `us`, `ms`, `s`, `min`, `h`, `d`, or `sec`, `second`, `m` and `minute`, `hour`, `day`), with a whole number
    /// before it if wanted: `100/10s`. A bare number is no period.
    ///
    /// A quota by itself is counted by a token bucket. For another algorithm:
    ///
    /// ```
    /// use tower_sluice::{Algorithm, Quota, Rule, SlidingWindow};
    ///
    /// let quota: Quota = "600/min".parse()?;
    /// let window = Algorithm::from(SlidingWindow::per_minute(1)).with_quota(quota);
    /// let api = Rule::new("api", window);
    /// # let _ = api;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::new("quota", format!("{text:?}"), reason);
        let mut words = text.split_whitespace();
        let rate = words.next().ok_or_else(|| error("is empty; write \"100/s\""))?;
        let burst = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some("burst"), Some(number), None) => Some(burst(number).map_err(error)?),
            (Some("burst"), None, _) => {
                return Err(error("the burst has no number; write \"5/min burst 10\""));
            }
            _ => return Err(error("write \"5/min\" or \"5/min burst 10\", and nothing else")),
        };
        let (number, unit) = rate
            .split_once('/')
            .ok_or_else(|| error("has no period; write \"100/s\" or \"5/min\""))?;
        let (permits, scale) = decimal(number).map_err(|wrong| {
            error(match wrong {
                Wrong::TooLarge => "the number of permits is too large",
                Wrong::NoNumber => {
                    "the number of permits must be a decimal number, digits only, with at most nine \
                     decimals, as in \"5000/s\" or \"0.2/s\""
                }
            })
        })?;
        let period = period(unit).map_err(|wrong| {
            error(match (wrong, unit) {
                (Wrong::TooLarge, _) => "the period is too long",
                (_, "month" | "week") => {
                    "the period must be a unit (ns, us, ms, s, min, h, d); for weeks and months of the \
                     calendar see FixedWindow::calendar"
                }
                _ => {
                    "the period must be a unit (ns, us, ms, s, min, h, d, or second, minute, hour, day), as \
                     in \"/s\" or \"/10s\""
                }
            })
        })?;
        if permits == 0 {
            return Err(error("the number of permits must be above zero"));
        }
        if period.is_zero() {
            return Err(error("the period must be longer than zero"));
        }
        // 1.5/s is 15 in 10 s, then shortened to 3 in 2 s.
        let nanos = period.as_nanos() * u128::from(scale);
        let common = gcd(u128::from(permits), nanos);
        let shortened = nanos / common;
        let whole = u64::try_from(shortened).map_err(|_| error("the period is too long"))?;
        let quota = if scale == 1 {
            Self::new(permits, period)
        } else {
            Self::new(permits / common as u64, Duration::from_nanos(whole))
        };
        Ok(match burst {
            Some(burst) => quota.burst(burst),
            None => Self { burst: (permits / scale).max(1), ..quota },
        })
    }
}

/// Why a text is not the number it should be.
enum Wrong {
    NoNumber,
    TooLarge,
}

/// A whole number, of digits alone.
fn whole(text: &str) -> Result<u64, Wrong> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::NoNumber);
    }
    text.parse().map_err(|_| Wrong::TooLarge)
}

fn burst(text: &str) -> Result<u64, &'static str> {
    whole(text).map_err(|wrong| match wrong {
        Wrong::TooLarge => "the burst is too large",
        Wrong::NoNumber => "the burst must be a whole number of permits, digits only",
    })
}

/// A decimal number as (digits without the point, power of ten below them).
fn decimal(text: &str) -> Result<(u64, u64), Wrong> {
    let Some((units, decimals)) = text.split_once('.') else { return Ok((whole(text)?, 1)) };
    if decimals.len() > 9 {
        return Err(Wrong::NoNumber);
    }
    // At most nine decimals, so the power fits.
    let scale = 10_u64.pow(decimals.len() as u32);
    let (units, decimals) = (whole(units)?, whole(decimals)?);
    let digits = units.checked_mul(scale).and_then(|units| units.checked_add(decimals));
    Ok((digits.ok_or(Wrong::TooLarge)?, scale))
}

fn period(text: &str) -> Result<Duration, Wrong> {
    let letters = text.find(|c: char| !c.is_ascii_digit()).ok_or(Wrong::NoNumber)?;
    let (count, unit) = text.split_at(letters);
    let name = match unit {
        "sec" | "second" => "s",
        "m" | "minute" => "min",
        "hour" => "h",
        "day" => "d",
        name => name,
    };
    let known = UNITS.into_iter().find(|(known, _)| *known == name);
    let (_, nanos) = known.ok_or(Wrong::NoNumber)?;
    let count = if count.is_empty() { 1 } else { whole(count)? };
    count.checked_mul(nanos).map(Duration::from_nanos).ok_or(Wrong::TooLarge)
}

/// The greatest common divisor.
pub(crate) fn gcd<N: Copy + Default + PartialEq + Rem<Output = N>>(mut a: N, mut b: N) -> N {
    while b != N::default() {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_with_what_to_write() {
        for (text, hint) in [
            ("", "write \"100/s\""),
            ("5", "has no period; write"),
            ("5 per min", "write \"5/min\" or"),
            ("5 / min", "write \"5/min\" or"),
            ("5/min burst=10", "write \"5/min\" or"),
            ("5/min burst", "the burst has no number"),
            ("5/min burst ten", "digits only"),
            ("5/min burst +1", "digits only"),
            ("5/min burst 99999999999999999999", "the burst is too large"),
            ("5/min, burst 10", "the period must be a unit"),
            ("5,000/s", "digits only"),
            ("+5/s", "digits only"),
            ("1e3/s", "digits only"),
            ("\u{663}/s", "digits only"),
            ("5./s", "digits only"),
            ("0.0000000001/s", "at most nine decimals"),
            ("99999999999999999999/s", "is too large"),
            ("99999999999999999999.5/s", "is too large"),
            ("18446744073709551615.5/s", "is too large"),
            ("0/s", "above zero"),
            ("5/0s", "longer than zero"),
            ("5/month", "FixedWindow::calendar"),
            ("5/minutes", "minute"),
            ("5/20000000d", "the period is too long"),
            ("0.000000001/500y", "the period must be a unit"),
            ("5/min/s", "the period must be a unit"),
        ] {
            let error = text.parse::<Quota>().expect_err(text);
            assert_eq!((error.field(), error.value()), ("quota", &*format!("{text:?}")));
            assert!(error.reason().contains(hint), "{error}");
        }
    }

    #[test]
    fn display_is_read_back() {
        let periods = [1, 999, 1_000, 1_500_000, 1_000_000_000, 90_000_000_000, 86_400_000_000_000];
        for period in periods.map(Duration::from_nanos) {
            for quota in [Quota::new(7, period), Quota::new(7, period).burst(9)] {
                let text = quota.to_string();
                let read: Quota = text.parse().expect("what was written");
                assert_eq!((read.permits(), read.period()), (7, period), "{text}");
                assert_eq!(read.max_burst(), quota.max_burst(), "{text}");
            }
        }
        assert_eq!(Quota::per_minute(5).to_string(), "5/min burst 5");
        assert_eq!(Quota::new(100, Duration::from_secs(10)).to_string(), "100/10s burst 100");
    }
}
