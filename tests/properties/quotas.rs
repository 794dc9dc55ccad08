//! Random quotas, clocks and requests.

use std::time::Duration;

use proptest::prelude::*;
use tower_sluice::{
    Algorithm, FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow, TokenBucket,
};

use crate::{
    calendar::{calendar_of, exact_calendar},
    models::{Model, Numbers},
    ramps::{Ramp, Warming},
};

/// A number whose logarithm is even over the range, so that small and large ones both come.
pub(crate) fn log_uniform(bits: u32) -> impl Strategy<Value = u64> {
    (0..=bits, any::<u64>()).prop_map(|(bits, random)| (1 << bits) | (random & ((1 << bits) - 1)))
}

/// A period people write, or any up to 18 minutes, or to 12 days.
fn period() -> impl Strategy<Value = u64> {
    prop_oneof![
        prop::sample::select(vec![
            1_000,
            1_000_000,
            1_000_000_000,
            60_000_000_000,
            3_600_000_000_000,
            86_400_000_000_000_u64,
        ]),
        log_uniform(39),
        log_uniform(49),
    ]
}

/// A quota that a token bucket can count: at most one permit a nanosecond.
pub(crate) fn bucket_quota() -> impl Strategy<Value = Quota> {
    let burst = prop_oneof![4 => 1..=20_u64, 1 => log_uniform(12), 1 => log_uniform(40)];
    let permits = prop_oneof![3 => 1..=1_000_u64, 1 => log_uniform(29)];
    (permits, period(), burst)
        .prop_map(|(permits, period, burst)| {
            Quota::new(permits.min(period), Duration::from_nanos(period)).burst(burst)
        })
        .prop_filter("full again within a century", |quota| {
            let Numbers { permits, period, burst } = (*quota).into();
            burst * period / permits < 1 << 61
        })
}

/// Whether a bucket counts this quota without any rounding: at most 16 permits per whole number of
/// nanoseconds, and a burst that leaves room for the fraction.
pub(crate) fn is_exact(quota: Quota) -> bool {
    let Numbers { permits, period, burst } = quota.into();
    let common = gcd(permits, period);
    permits / common <= 16 && burst * (period / common) <= 1 << 59
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(crate) fn exact_bucket_quota() -> impl Strategy<Value = Quota> {
    let everyday = (1..=16_u64, period(), 1..=20_u64).prop_map(|(permits, period, burst)| {
        Quota::new(permits.min(period), Duration::from_nanos(period)).burst(burst)
    });
    prop_oneof![everyday, bucket_quota()].prop_filter("exact", |quota| is_exact(*quota))
}

/// A window of at least a microsecond, whose starts are exact to the nanosecond: limit and four windows,
/// or a day, share 61 bits.
pub(crate) fn exact_window_quota() -> impl Strategy<Value = Quota> {
    (prop_oneof![3 => 1..=20_u64, 1 => 1..=15_000_u64], period())
        .prop_map(|(limit, period)| (limit, period.max(1_000)))
        .prop_filter("exact", |(limit, period)| {
            let bits = |n: u64| u64::BITS - n.leading_zeros();
            let (limit, span) = (bits(*limit), bits((4 * period).max(86_400_000_000_000)));
            // Aligned windows are numbered, and every number must fit.
            limit + span <= 61 && limit + bits(u64::MAX / period) < 61
        })
        .prop_map(|(limit, period)| Quota::new(limit, Duration::from_nanos(period)))
}

/// Any algorithm whose model is exact, with the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    pub(crate) algorithm: Algorithm,
    pub(crate) aligned: bool,
    pub(crate) ramp: Option<Ramp>,
}

impl Exact {
    pub(crate) fn of(algorithm: impl Into<Algorithm>) -> Self {
        Self { algorithm: algorithm.into(), aligned: false, ramp: None }
    }

    pub(crate) fn aligned(self, aligned: bool) -> Self {
        Self { aligned, ..self }
    }

    /// The same, warming up.
    pub(crate) fn on(self, ramp: Ramp) -> Self {
        let warm_up = ramp.warm_up();
        let algorithm = match self.algorithm {
            Algorithm::FixedWindow(window) => window.warm_up(warm_up).into(),
            Algorithm::LeakyBucket(bucket) => bucket.warm_up(warm_up).into(),
            Algorithm::SlidingLog(log) => log.warm_up(warm_up).into(),
            Algorithm::SlidingWindow(window) => window.warm_up(warm_up).into(),
            Algorithm::TokenBucket(bucket) => bucket.warm_up(warm_up).into(),
            _ => unreachable!("no other algorithm is drawn"),
        };
        Self { algorithm, ramp: Some(ramp), ..self }
    }

    pub(crate) fn model(&self, now: u64, utc_at_zero: Duration) -> Model {
        let plain = self.plain_model(now, utc_at_zero);
        match self.ramp {
            None => plain,
            Some(ramp) => Model::Warming(Warming::new(self.algorithm.quota(), ramp, plain, now)),
        }
    }

    fn plain_model(&self, now: u64, utc_at_zero: Duration) -> Model {
        use crate::models::{Bucket, Slide, Window};
        let quota = self.algorithm.quota();
        match self.algorithm {
            // The leaky one's quota has a burst of 1.
            Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => {
                Model::Bucket(Bucket::new(quota, now))
            }
            Algorithm::SlidingLog(_) => Model::Slide(Slide::new(quota, 0)),
            Algorithm::SlidingWindow(_) => Model::Slide(Slide::new(quota, 10)),
            algorithm => Model::Window(match calendar_of(algorithm) {
                Some(calendar) => Window::calendar(quota, calendar, utc_at_zero),
                None => Window::new(quota, self.aligned.then_some(utc_at_zero)),
            }),
        }
    }
}

pub(crate) fn exact() -> impl Strategy<Value = Exact> {
    let ramp = proptest::option::weighted(0.25, ramp());
    (without_ramp(), ramp).prop_map(|(exact, ramp)| match ramp {
        Some(ramp) => exact.on(ramp),
        None => exact,
    })
}

/// A ramp whose share, and its integral, are exact in binary.
pub(crate) fn ramp() -> impl Strategy<Value = Ramp> {
    (10..=24_u32, 1..=2_u32).prop_map(|(bits, halves)| Ramp { bits, halves })
}

/// Without a ramp.
pub(crate) fn without_ramp() -> impl Strategy<Value = Exact> {
    let window = (exact_window_quota(), any::<bool>()).prop_map(|(quota, aligned)| {
        let window = FixedWindow::new(quota.permits(), quota.period());
        Exact::of(if aligned { window.aligned() } else { window }).aligned(aligned)
    });
    let bucket = exact_bucket_quota().prop_map(|quota| Exact::of(TokenBucket::from(quota)));
    let leaky = exact_bucket_quota().prop_map(|quota| Exact::of(leaky(quota)));
    prop_oneof![2 => bucket, 2 => window, 1 => leaky, 1 => exact_calendar(), 2 => exact_sliding()]
}

/// A quota that can slide.
pub(crate) fn sliding_quota() -> impl Strategy<Value = Quota> {
    let limit = prop_oneof![4 => 1..=20_u64, 1 => log_uniform(15)];
    (limit, period())
        .prop_map(|(limit, period)| Quota::new(limit.min(period), Duration::from_nanos(period)))
}

pub(crate) fn exact_sliding() -> impl Strategy<Value = Exact> {
    (sliding_quota(), any::<bool>()).prop_map(|(quota, is_log)| {
        let (limit, window) = (quota.permits(), quota.period());
        let algorithm: Algorithm = if is_log {
            SlidingLog::new(limit, window).into()
        } else {
            SlidingWindow::new(limit, window).into()
        };
        Exact::of(algorithm)
    })
}

impl Exact {
    /// Another quota for the same algorithm: of these, the one that it can count.
    pub(crate) fn other(&self, bucket: Quota, window: Quota) -> Quota {
        match (self.algorithm, calendar_of(self.algorithm)) {
            (_, Some(calendar)) => FixedWindow::calendar(window.permits(), calendar).quota(),
            (Algorithm::LeakyBucket(_), _) => bucket.burst(1),
            (Algorithm::TokenBucket(_), _) => bucket,
            _ => window,
        }
    }
}

/// The quota's rate, one permit at a time.
pub(crate) fn leaky(quota: Quota) -> LeakyBucket {
    LeakyBucket::new(quota.permits(), quota.period())
}

/// A time scale of a quota: one permit, the whole burst, or a period.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    Nano,
    Permit,
    Burst,
    Period,
}

/// A step in time: `part` 256ths of a scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    scale: Scale,
    part: u16,
}

impl Span {
    pub(crate) fn nanos(self, quota: Quota) -> u64 {
        let Numbers { permits, period, burst } = quota.into();
        let whole = match self.scale {
            Scale::Nano => 256,
            Scale::Permit => (period / permits).max(1),
            // At most some centuries altogether, in a hundred steps.
            Scale::Burst => (burst * period / permits).clamp(1, 1 << 54),
            Scale::Period => period,
        };
        (whole * u128::from(self.part) / 256) as u64
    }
}

/// Steps of up to twice a scale; most of them exact fractions.
pub(crate) fn span() -> impl Strategy<Value = Span> {
    let scale = prop_oneof![
        1 => Just(Scale::Nano),
        6 => Just(Scale::Permit),
        2 => Just(Scale::Burst),
        2 => Just(Scale::Period),
    ];
    let part = prop_oneof![0..=512_u16, prop::sample::select(vec![1, 64, 128, 255, 256, 257, 512])];
    (scale, part).prop_map(|(scale, part)| Span { scale, part })
}

/// A cost: zero, one, a small number, a part of the burst, or more than it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Just(u64),
    Part(u8),
    Above,
}

impl Cost {
    pub(crate) fn permits(self, quota: Quota) -> u64 {
        let burst = quota.max_burst();
        match self {
            Self::Just(cost) => cost,
            Self::Part(part) => (u128::from(burst) * u128::from(part) / 255) as u64,
            Self::Above => burst + 1,
        }
    }
}

pub(crate) fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        1 => Just(Cost::Just(0)),
        8 => Just(Cost::Just(1)),
        3 => (2..=5_u64).prop_map(Cost::Just),
        4 => any::<u8>().prop_map(Cost::Part),
        1 => Just(Cost::Above),
    ]
}

/// What a clock shows when a limiter is built, and the UTC of its zero.
pub(crate) fn epoch() -> impl Strategy<Value = (u64, Duration)> {
    let built = prop_oneof![Just(0), log_uniform(40), log_uniform(56)];
    let utc = prop_oneof![Just(0), Just(1_700_000_000_000_000_007), log_uniform(60)];
    (built, utc.prop_map(Duration::from_nanos))
}

/// Whether the base that words count time from is the one that the limiter was built with: it stays for
/// half a day at least.
pub(crate) fn base_stays(built: u64, now: u64) -> bool {
    now - built < 43_200_000_000_000
}
