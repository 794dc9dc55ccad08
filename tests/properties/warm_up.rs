//! What warms up: exactly along the ramp where binary fractions tell it, to a permit where they do not.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, sample::select};
use tower_sluice::{
    Algorithm, FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
    clock::Nanos,
};

use crate::{
    bucket::{follow_the_model, keys, steps},
    config,
    models::Numbers,
    quotas::{Span, cost, epoch, log_uniform, ramp, span, without_ramp},
    subjects::{Keys, all, clock},
};

/// A curve as the docs give it.
#[derive(Clone, Copy, Debug)]
enum Curve {
    Power(f64, u32),
    Cold(f64),
}

impl Curve {
    fn over(self, period: u64) -> WarmUp {
        let warm_up = WarmUp::over(Duration::from_nanos(period));
        match self {
            Self::Power(start, exponent) => warm_up.power(exponent).start_factor(start),
            Self::Cold(factor) => warm_up.cold_factor(factor),
        }
    }

    /// The share at this part of the period.
    fn share(self, x: f64) -> f64 {
        match self {
            Self::Power(start, exponent) => start + (1.0 - start) * x.powi(exponent as i32),
            Self::Cold(k) => 1.0 / (k * k - (k * k - 1.0) * x).sqrt(),
        }
    }

    /// Its integral from the start.
    fn integral(self, x: f64) -> f64 {
        match self {
            Self::Power(start, exponent) => {
                let next = f64::from(exponent + 1);
                start * x + (1.0 - start) * x.powf(next) / next
            }
            Self::Cold(k) => 2.0 * (k - (k * k - (k * k - 1.0) * x).sqrt()) / (k * k - 1.0),
        }
    }
}

fn curve() -> impl Strategy<Value = Curve> {
    let start = prop_oneof![select(vec![0.1, 0.5, 1.0 / 3.0, 0.01, 1.0]), 0.001..1.0];
    prop_oneof![
        3 => (start, 1..=16_u32).prop_map(|(start, exponent)| Curve::Power(start, exponent)),
        1 => prop_oneof![select(vec![3.0, 10.0]), 1.01..1_000.0].prop_map(Curve::Cold),
    ]
}

/// A quota of any algorithm, without a ramp.
fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    let quota = (1..=1_000_u64, log_uniform(40), 1..=50_u64);
    (quota, 0..5_u8).prop_map(|((permits, period, burst), which)| {
        let period = period.max(10_000);
        let length = Duration::from_nanos(period);
        let permits = permits.min(period / 100);
        match which {
            0 => TokenBucket::new(permits, length).burst(burst).into(),
            1 => LeakyBucket::new(permits, length).into(),
            2 => FixedWindow::new(permits, length).into(),
            3 => SlidingLog::new(permits, length).into(),
            _ => SlidingWindow::new(permits, length).into(),
        }
    })
}

fn warming(algorithm: Algorithm, warm_up: WarmUp) -> Algorithm {
    match algorithm {
        Algorithm::FixedWindow(window) => window.warm_up(warm_up).into(),
        Algorithm::LeakyBucket(bucket) => bucket.warm_up(warm_up).into(),
        Algorithm::SlidingLog(log) => log.warm_up(warm_up).into(),
        Algorithm::SlidingWindow(window) => window.warm_up(warm_up).into(),
        Algorithm::TokenBucket(bucket) => bucket.warm_up(warm_up).into(),
        _ => unreachable!("no other algorithm is drawn"),
    }
}

/// Nanoseconds in which a quota is whole again, as `after_idle` asks for.
fn refill(algorithm: Algorithm) -> u64 {
    let Numbers { permits, period, burst } = algorithm.quota().into();
    let nanos = match algorithm {
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => (burst * period).div_ceil(permits),
        Algorithm::SlidingWindow(_) => period + period.div_ceil(10),
        _ => period,
    };
    nanos as u64
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_warms_up_follows_its_ramp_on_every_path(
        exact in without_ramp(),
        ramp in ramp(),
        epoch in epoch(),
        keys in keys(),
        steps in steps(),
    ) {
        follow_the_model(exact.on(ramp), epoch, keys, &steps)?;
    }

    /// Of any curve, gone cold or not, on every path: who is told to come back is denied until then and allowed then.
    #[test]
    fn a_wait_is_exact_while_it_warms_up(
        algorithm in any_algorithm(),
        curve in curve(),
        part in log_uniform(10),
        idle in option::of(0..1_000_000_u64),
        (built, utc) in epoch(),
        keys in keys(),
        steps in vec((span(), cost()), 1..15),
    ) {
        let quota = algorithm.quota();
        let period = refill(algorithm).saturating_mul(part) / 32 + 1;
        let warm_up = curve.over(period);
        let warm_up = match idle {
            Some(more) => {
                let idle = period + refill(algorithm) + more;
                warm_up.after_idle(Duration::from_nanos(idle))
            }
            None => warm_up,
        };
        let clock = clock(built, utc);
        let subjects = all(warming(algorithm, warm_up), keys, 8, &clock);
        let mut now = built;
        for (span, cost) in steps {
            now += span.nanos(quota);
            clock.set(Nanos::new(now));
            let cost = cost.permits(quota);
            let told = subjects[0].acquire(0, cost);
            for subject in &subjects[1..] {
                prop_assert_eq!(subject.acquire(0, cost), told);
            }
            prop_assert_eq!(told.is_never(), cost > quota.max_burst());
            prop_assert_eq!(told.limit(), quota.max_burst());
            if let Some(wait) = told.retry_after() {
                let wait = wait.as_nanos() as u64;
                for (at, allowed) in [(now + wait - 1, false), (now + wait, true)] {
                    clock.set(Nanos::new(at));
                    for subject in &subjects {
                        prop_assert_eq!(subject.peek(0, cost).is_allowed(), allowed);
                    }
                }
                clock.set(Nanos::new(now));
            }
        }
    }

    /// Saturated from the start, a bucket has admitted its first burst and what the ramp let through, at every instant
    /// at which somebody looks, to a permit.
    #[test]
    fn a_saturated_bucket_has_the_ramps_integral_to_a_permit(
        permits in 1..=1_000_000_u64,
        period in select(vec![1_000_000_000_u64, 60_000_000_000, 10_000_000]),
        burst in 1..=1_000_u64,
        curve in curve(),
        ramp in 1_000_000..=3_600_000_000_000_u64,
        mut looks in vec(0.0..1.5_f64, 1..30),
    ) {
        let bucket = TokenBucket::new(permits, Duration::from_nanos(period)).burst(burst);
        let clock = clock(0, Duration::ZERO);
        let limiter = bucket.warm_up(curve.over(ramp)).limiter().clock(clock.clone()).build().unwrap();
        looks.sort_by(f64::total_cmp);
        // What it may have at once, at most, grows along.
        let rate = permits as f64 / period as f64;
        let (mut admitted, mut level, mut before) = (0.0, None::<f64>, 0.0);
        for look in looks {
            let now = (look * ramp as f64) as u64;
            clock.set(Nanos::new(now));
            let x = now as f64 / ramp as f64;
            let (inside, share) = (x.min(1.0), if x < 1.0 { curve.share(x) } else { 1.0 });
            let integral = (curve.integral(inside) + (x - inside)) * ramp as f64;
            let present = (burst as f64 * share).max(1.0);
            let there = level.map_or(present, |left| {
                (left + (integral - before) * rate).min(present)
            });
            let decision = limiter.peek(1);
            let remaining = decision.remaining();
            prop_assert!(
                (remaining as f64 - there).abs() <= 1.0 + 1e-6 * there,
                "{} for {} at {}", remaining, there, x
            );
            if remaining > 0 {
                prop_assert!(limiter.try_acquire_many(remaining).is_allowed());
            }
            admitted += remaining as f64;
            (level, before) = (Some(there - remaining as f64), integral);
            let first = (burst as f64 * curve.share(0.0)).max(1.0);
            let most = first.max(present) + integral * rate;
            prop_assert!(admitted <= most + 1e-6 * most + 1.0, "{} of {}", admitted, most);
        }
    }

    #[test]
    fn windows_have_their_share_of_the_limit(
        limit in 1..=10_000_u64,
        curve in curve(),
        ramp in 1_000_000..=3_600_000_000_000_u64,
        which in 0..3_u8,
        looks in vec(0.0..1.2_f64, 1..20),
    ) {
        let hour = Duration::from_secs(3_600);
        let algorithm: Algorithm = match which {
            0 => FixedWindow::new(limit, hour).into(),
            1 => SlidingLog::new(limit, hour).into(),
            _ => SlidingWindow::new(limit, hour).into(),
        };
        let clock = clock(0, Duration::ZERO);
        let subject = all(warming(algorithm, curve.over(ramp)), Keys::One, 8, &clock).swap_remove(0);
        for look in looks {
            let now = (look * ramp as f64) as u64;
            clock.set(Nanos::new(now));
            let x = now as f64 / ramp as f64;
            let share = if x < 1.0 { curve.share(x) } else { 1.0 };
            let exact = limit as f64 * share;
            let (least, most) = ((exact - 1e-6).floor().max(1.0), (exact + 1e-6).floor().max(1.0));
            let there = subject.peek(0, 1).remaining() as f64;
            prop_assert!(least <= there && there <= most, "{} for {}", there, exact);
        }
    }

    /// Cold when nothing was admitted for long enough since it started or admitted last, whatever was refused; and
    /// the ramp then starts with the first request, refused or not.
    #[test]
    fn a_rule_goes_cold_when_it_has_admitted_nothing_for_long(
        algorithm in any_algorithm(),
        part in log_uniform(8),
        more in 0..1_000_000_u64,
        (built, utc) in epoch(),
        keys in keys(),
        steps in vec((0..8_u8, span(), 0..3_u8, any::<bool>()), 1..25),
    ) {
        let quota = algorithm.quota();
        let period = refill(algorithm).saturating_mul(part) / 32 + 1;
        let idle = period + refill(algorithm) + more;
        let warm_up = WarmUp::over(Duration::from_nanos(period)).linear().start_factor(0.25);
        let anew = warm_up.after_idle(Duration::from_nanos(idle));
        let clock = clock(built, utc);
        let subjects = all(warming(algorithm, anew), keys, 8, &clock);
        let (mut now, mut started, mut active) = (built, built, built);
        for (scale, span, key, large) in steps {
            let step = match scale {
                0 => idle,
                1 => idle - 1,
                2 => period / 2,
                _ => Span::nanos(span, quota).min(idle),
            };
            now += step;
            clock.set(Nanos::new(now));
            let goes_cold = now - active.max(started) >= idle;
            if goes_cold {
                started = now;
            }
            // A rule that was built when this one started to warm up says what is withheld now.
            let share = 0.25 + 0.75 * ((now - started) as f64 / period as f64).min(1.0);
            let whole = (quota.max_burst() as f64 * share + 1e-6).floor().max(1.0) as u64;
            let cost = if large { quota.max_burst() + 1 } else { 1 };
            let told = subjects[0].peek(key, 1).remaining();
            prop_assert!(told <= whole + 1, "{} of {}", told, whole);
            if goes_cold {
                prop_assert_eq!(told, whole, "all keys are idle when it goes cold");
            }
            let decision = subjects[0].acquire(key, cost);
            for subject in &subjects[1..] {
                prop_assert_eq!(subject.acquire(key, cost), decision);
            }
            if decision.is_allowed() {
                active = now;
            }
        }
    }
}

/// The integrals above are those of the shares: by Simpson's rule.
#[test]
fn integrals_are_those_of_the_shares() {
    let powers = (1..=16).map(|exponent| Curve::Power(0.1, exponent));
    for curve in powers.chain([Curve::Cold(1.5), Curve::Cold(3.0), Curve::Cold(10.0)]) {
        for x in [0.1, 0.5, 0.9, 1.0] {
            let step = x / 20_000.0;
            let at = |i: u32| curve.share(f64::from(i) * step);
            let inner: f64 = (1..20_000).map(|i| at(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
            let sum = (at(0) + inner + at(20_000)) * step / 3.0;
            assert!((sum - curve.integral(x)).abs() < 1e-7, "{curve:?} at {x}: {sum}");
        }
    }
}

/// The whole quota counts, and no more: a rule that warms up for no time does not warm up.
#[test]
fn no_period_and_no_factor_are_no_warm_up() {
    for warm_up in [
        WarmUp::over(Duration::ZERO),
        WarmUp::over(Duration::from_secs(60)).start_factor(1.0),
        WarmUp::over(Duration::from_secs(60)).cold_factor(1.0),
    ] {
        let quota = Quota::per_second(10);
        let clock = clock(0, Duration::ZERO);
        let algorithm = warming(TokenBucket::from(quota).into(), warm_up);
        for subject in all(algorithm, Keys::Many, 8, &clock) {
            assert_eq!(subject.peek(0, 1).remaining(), 10);
            assert!(subject.acquire(0, 10).is_allowed());
            assert_eq!(subject.peek(0, 1).retry_after(), Some(Duration::from_millis(100)));
        }
    }
}
