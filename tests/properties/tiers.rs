//! Tiers: each is a limit of its own, for each key.

use std::{collections::HashMap, sync::Arc};

use proptest::{collection::vec, prelude::*};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{Missing, RateLimitLayer, Rule, RuleKey, backend::Local, clock::Nanos, key};

use crate::{
    config,
    models::{Expected, Model},
    quotas::{Exact, cost, epoch, exact, exact_bucket_quota, exact_window_quota, span},
    subjects::{clock, now as ready_now, request, served},
};

/// The last is one that no rule has.
const NAMES: [&str; 4] = ["a", "b", "c", "unknown"];

/// A key, as a handle is told of it: in no tier for 0.
fn named(keyed: bool, key: u8, tier: usize) -> RuleKey<'static> {
    let key = match (keyed, key) {
        (false, _) => RuleKey::from(()),
        (true, 0) => RuleKey::from("key-0"),
        (true, _) => RuleKey::from("key-1"),
    };
    if tier == 0 { key } else { key.tier(NAMES[tier - 1]) }
}

/// The tier a request is in.
#[derive(Clone)]
struct Tier(&'static str);

proptest! {
    #![proptest_config(config())]

    #[test]
    fn each_tier_is_a_limit_of_its_own_for_each_key(
        own in exact(),
        buckets in vec(exact_bucket_quota(), 3),
        windows in vec(exact_window_quota(), 3),
        tiers in 1..=3_usize,
        (built, utc) in epoch(),
        (keyed, elsewhere, told) in any::<(bool, bool, bool)>(),
        steps in vec((0..4_usize, span(), 0..2_u8, 0..=4_usize, cost(), 0..12_u8), 1..30),
    ) {
        let quota = |tier: usize| own.other(buckets[tier], windows[tier]);
        // The rule's own, then those of its tiers.
        let of_tier = |tier| Exact { algorithm: own.algorithm.with_quota(quota(tier)), ..own };
        let limits: Vec<Exact> = std::iter::once(own).chain((0..tiers).map(of_tier)).collect();
        let clock = clock(built, utc);
        let mut rule = Rule::new("rule", own.algorithm)
            .spread(false)
            .cost_fn(|head| head.header_str("x-cost").unwrap().parse().unwrap())
            .tiers(|head| head.extension::<Tier>().map(|tier| tier.0));
        for (tier, name) in NAMES.into_iter().enumerate().take(tiers) {
            rule = rule.tier(name, quota(tier));
        }
        if keyed {
            rule = rule.key(key::header("x-key")).missing(Missing::Skip).max_keys(8);
        }
        let mut builder = RateLimitLayer::builder().rule(rule).clock(clock.clone());
        if elsewhere {
            builder = builder.backend(Arc::new(Local::new()));
        }
        if told {
            builder = builder.expose_decision();
        }
        let layer = builder.build().unwrap();
        let handle = layer.handle();
        let mut models: HashMap<(usize, u8), Model> = HashMap::new();
        let mut now = built;
        for (scale, span, key, tier, cost, act) in steps {
            now += span.nanos(limits[scale % limits.len()].algorithm.quota());
            clock.set(Nanos::new(now));
            // In none, in one, or in one that there is not: then it counts as in none.
            let name = tier.checked_sub(1).map(|tier| NAMES[tier]);
            let tier = if tier > tiers { 0 } else { tier };
            let cost = cost.permits(limits[tier].algorithm.quota());
            let mut request = request(key, cost);
            let key = if keyed { key } else { 0 };
            let fresh = || limits[tier].model(built, utc);
            let named = |key, tier| named(keyed, key, tier);
            let model = models.entry((tier, key)).or_insert_with(fresh);
            if act == 0 {
                ready_now(handle.reset("rule", named(key, tier))).unwrap();
                *model = fresh();
            }
            let expected = model.peek(now, cost);
            let peeked = ready_now(handle.peek("rule", named(key, tier), cost)).unwrap();
            prop_assert_eq!(Expected::of(&peeked), expected);
            prop_assert_eq!(peeked.limit(), limits[tier].algorithm.quota().max_burst());
            if let Some(name) = name {
                request.extensions_mut().insert(Tier(name));
            }
            let answer = ready_now(layer.layer(service_fn(served)).oneshot(request)).unwrap();
            prop_assert_eq!(answer.status().is_success(), expected.allowed);
            if expected.allowed {
                prop_assert!(model.charge(now, cost));
            }
            // Nobody else has noticed.
            for ((tier, key), model) in &models {
                let told = ready_now(handle.peek("rule", named(*key, *tier), 0)).unwrap();
                prop_assert_eq!(Expected::of(&told), model.peek(now, 0));
            }
        }
    }
}
