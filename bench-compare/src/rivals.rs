//! The limiters compared with, set up to allow or to deny everything.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use governor::{
    DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter, clock::QuantaInstant,
    middleware::NoOpMiddleware,
};
use tower_governor::{
    GovernorLayer,
    governor::{GovernorConfig, GovernorConfigBuilder},
    key_extractor::{GlobalKeyExtractor, KeyExtractor, PeerIpKeyExtractor, SmartIpKeyExtractor},
};

/// A permit each nanosecond.
fn generous() -> Quota {
    Quota::with_period(Duration::from_nanos(1)).expect("not zero").allow_burst(NonZeroU32::MAX)
}

/// A permit a second, and a burst that no run spends.
fn long_lived() -> Quota {
    Quota::per_second(NonZeroU32::MIN).allow_burst(NonZeroU32::MAX)
}

pub fn direct(allowed: bool) -> DefaultDirectRateLimiter {
    if allowed {
        return RateLimiter::direct(generous());
    }
    let limiter = RateLimiter::direct(Quota::per_hour(NonZeroU32::MIN));
    assert!(limiter.check().is_ok());
    limiter
}

pub fn by_string() -> DefaultKeyedRateLimiter<String> {
    RateLimiter::dashmap(long_lived())
}

pub fn by_address() -> DefaultKeyedRateLimiter<IpAddr> {
    RateLimiter::dashmap(long_lived())
}

type Layer<K> = GovernorLayer<K, NoOpMiddleware<QuantaInstant>, axum::body::Body>;

fn layer<K: KeyExtractor>(key: K, allowed: bool) -> Layer<K> {
    let mut builder = GovernorConfigBuilder::default();
    if allowed {
        builder.period(Duration::from_nanos(1)).burst_size(u32::MAX);
    } else {
        builder.period(Duration::from_secs(3_600)).burst_size(1);
    }
    let config: GovernorConfig<K, NoOpMiddleware<QuantaInstant>> =
        builder.key_extractor(key).finish().expect("the quota is right");
    GovernorLayer::new(config)
}

pub fn global(allowed: bool) -> Layer<GlobalKeyExtractor> {
    layer(GlobalKeyExtractor, allowed)
}

pub fn peer() -> Layer<PeerIpKeyExtractor> {
    layer(PeerIpKeyExtractor, true)
}

pub fn forwarded() -> Layer<SmartIpKeyExtractor> {
    layer(SmartIpKeyExtractor, true)
}
