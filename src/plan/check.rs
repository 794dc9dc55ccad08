//! What is wrong with a rule, before anything is built of it.

use std::fmt;

use http::StatusCode;

use super::{
    Defaults,
    tiers::{MAX_QUOTAS, factors},
};
use crate::{
    Algorithm, ConfigError, InFlight, Missing, RejectionPolicy, Rule,
    clock::Time,
    in_flight::check_limit,
    limiter::check_name,
    request::{cost::Cost, key::KeyBy},
    rule::{Counting, MAX_TIERS, Place, Scope, SharedLimiter, Tiers},
};

/// A cost that never fits would refuse every request.
pub(super) fn check_cost(cost: &Cost, algorithm: &Algorithm) -> Result<(), ConfigError> {
    // What is wrong with the quota itself is told where it is compiled.
    let Ok((_, _, limit)) = algorithm.quota().checked() else { return Ok(()) };
    let advice = match algorithm {
        Algorithm::LeakyBucket(_) => "use a TokenBucket, which has a burst",
        Algorithm::TokenBucket(_) => "raise the burst",
        _ => "raise it",
    };
    match cost.fixed() {
        Some(0) => Err(ConfigError::new(
            "cost",
            0,
            "a rule that costs nothing limits nobody; set at least 1",
        )),
        Some(cost) if cost > limit => Err(ConfigError::new(
            "cost",
            cost,
            format!("is above the limit ({limit}), so every request would be refused; {advice}"),
        )),
        _ => Ok(()),
    }
}

/// A refusal with another status would pass for an answer.
fn check_status(
    field: &'static str,
    status: StatusCode,
    value: impl fmt::Display,
) -> Result<(), ConfigError> {
    if status.is_client_error() || status.is_server_error() {
        return Ok(());
    }
    Err(ConfigError::new(field, value, "must be an error status (4xx or 5xx)"))
}

pub(super) fn check(rule: &Rule, defaults: &Defaults<'_>) -> Result<(), ConfigError> {
    check_name(&rule.name)?;
    check_status("status", rule.status, rule.status)?;
    check_policy(rule.policy.as_ref())?;
    check_policy(rule.while_away.as_ref())?;
    let algorithm = match &rule.counting {
        Counting::Own(algorithm) => *algorithm,
        Counting::Shared(SharedLimiter::Keyed(limiter)) => limiter.shared.limit.counter.algorithm(),
        Counting::Shared(SharedLimiter::Unkeyed(limiter)) => {
            limiter.shared.limit.counter.algorithm()
        }
    };
    check_cost(&rule.cost, &algorithm)?;
    if let Some(keys) = rule.max_keys {
        let reason = match (&rule.counting, &rule.scope.key, keys) {
            (Counting::Shared(_), ..) => "the limiter keeps the keys; set it where that is built",
            (_, None, _) => "the rule has no key, so there are none to keep; remove .max_keys(..)",
            (_, _, 0) => "must be at least 1",
            _ => "",
        };
        if !reason.is_empty() {
            return Err(ConfigError::new("max_keys", keys, reason));
        }
    }
    check_scope(&rule.scope)?;
    match &rule.counting {
        Counting::Own(algorithm) => {
            // A backend of one's own may count more than the one here; this much holds for all.
            let factors = factors(rule.scope.key.as_ref());
            for factor in &factors {
                algorithm.relaxed(*factor)?.checked()?;
            }
            check_tiers(&rule.tiers, algorithm, &rule.cost, &factors)
        }
        Counting::Shared(limiter) => check_shared(rule, limiter, defaults),
    }
}

/// What is wrong with the tiers of a rule with state of its own, whose key has these distinct factors.
fn check_tiers(
    tiers: &Tiers,
    algorithm: &Algorithm,
    cost: &Cost,
    factors: &[u64],
) -> Result<(), ConfigError> {
    match (tiers.named.is_empty(), &tiers.pick) {
        (true, None) => return Ok(()),
        (true, Some(_)) => {
            let reason = "there is no tier to pick; add .tier(name, quota)";
            return Err(ConfigError::new("tier", "not set", reason));
        }
        (false, None) => {
            let reason = format!("nothing picks {}; add .tiers(|head| ..)", tiers.names());
            return Err(ConfigError::new("tiers", "not set", reason));
        }
        (false, Some(_)) => {}
    }
    let count = tiers.named.len();
    if count > MAX_TIERS {
        return Err(ConfigError::new("tier", count, "there must be at most 16 in one rule"));
    }
    let quotas = (count + 1) * factors.len();
    if quotas > MAX_QUOTAS {
        let factors = factors.len();
        let reason = format!(
            "with the rule's own quota, for each of the {factors} factors that relaxed(..) gives its key, \
             that makes {quotas} quotas; at most {MAX_QUOTAS}"
        );
        return Err(ConfigError::new("tier", count, reason));
    }
    for (index, (name, quota)) in tiers.named.iter().enumerate() {
        check_name(name)
            .map_err(|error| ConfigError::new("tier", error.value(), error.reason().to_owned()))?;
        if tiers.named[..index].iter().any(|(earlier, _)| earlier == name) {
            let reason = "two tiers of the rule have this name; rename one";
            return Err(ConfigError::new("tier", format!("{name:?}"), reason));
        }
        let algorithm = algorithm.with_quota(*quota);
        // A backend of one's own may count more than the one here; this much holds for all.
        let quotas = factors.iter().map(|factor| algorithm.relaxed(*factor)?.checked());
        quotas
            .collect::<Result<Vec<_>, _>>()
            .and_then(|_| check_cost(cost, &algorithm))
            .map_err(|error| error.of_tier(name))?;
    }
    Ok(())
}

fn check_policy(policy: Option<&RejectionPolicy>) -> Result<(), ConfigError> {
    policy.map_or(Ok(()), RejectionPolicy::validate)
}

/// What holds for rules and in-flight limits alike.
fn check_scope(scope: &Scope) -> Result<(), ConfigError> {
    if let Some(matcher) = &scope.matcher {
        matcher.validate()?;
    }
    match (&scope.key, scope.missing) {
        (Some(key), missing) => {
            key.validate()?;
            if missing.is_none() && !key.is_total() {
                return Err(ConfigError::new(
                    "missing",
                    format!("not set, and the key ({}) can be missing", key.describe()),
                    "choose .or(another key), .missing(Missing::Skip), .missing(Missing::Shared) or \
                     .missing(Missing::Refuse(status))",
                ));
            }
            if let Some(Missing::Refuse(status)) = missing {
                check_status("missing", status, format_args!("Refuse({status})"))?;
            }
            Ok(())
        }
        (None, Some(missing)) => {
            let value = format!("{missing:?}");
            Err(ConfigError::new(
                "missing",
                value,
                "there is no key that could miss; remove .missing(..)",
            ))
        }
        (None, None) => Ok(()),
    }
}

fn check_shared(
    rule: &Rule,
    limiter: &SharedLimiter,
    defaults: &Defaults<'_>,
) -> Result<(), ConfigError> {
    let (time, keyed) = match limiter {
        SharedLimiter::Keyed(limiter) => (&limiter.time, true),
        SharedLimiter::Unkeyed(limiter) => (&limiter.time, false),
    };
    check_time(time, defaults)?;
    if keyed != rule.scope.key.is_some() {
        let (value, reason) = if keyed {
            ("not set", "the limiter counts per key; say whose with .key(..)")
        } else {
            ("set", "the limiter has no keys; build it with keyed_limiter()")
        };
        return Err(ConfigError::new("key", value, reason));
    }
    let reason = "a limit that is shared is one for all keys; relax a rule of its own instead";
    check_unrelaxed(rule.scope.key.as_ref(), reason)?;
    if !rule.tiers.is_empty() {
        let reason =
            "a limit that is shared is one for all; give tiers to a rule of its own instead";
        return Err(ConfigError::new("tiers", rule.tiers.describe(), reason));
    }
    if !matches!(rule.place, Place::Default) {
        return Err(ConfigError::new(
            "backend",
            "set",
            "the limiter counts where it was built; remove .backend(..)",
        ));
    }
    Ok(())
}

fn check_time(time: &Time, defaults: &Defaults<'_>) -> Result<(), ConfigError> {
    if time.is_same_as(defaults.time) {
        return Ok(());
    }
    let reason = format!("the limit reads another clock ({time:?}); give both the same");
    Err(ConfigError::new("clock", format!("{:?}", defaults.time), reason))
}

fn check_unrelaxed(key: Option<&KeyBy>, reason: &'static str) -> Result<(), ConfigError> {
    if key.is_some_and(|key| key.factors().iter().any(|factor| *factor != 1)) {
        return Err(ConfigError::new("key", "relaxed(..)", reason));
    }
    Ok(())
}

pub(super) fn check_in_flight(
    limit: &InFlight,
    defaults: &Defaults<'_>,
) -> Result<(), ConfigError> {
    check_name(limit.name())?;
    check_limit(limit.limit)?;
    check_status("status", limit.status, limit.status)?;
    check_policy(limit.policy.as_ref())?;
    check_scope(&limit.scope)?;
    let reason = "what may be in flight is one number for all keys; add a limit for those who may \
                  have more";
    check_unrelaxed(limit.scope.key.as_ref(), reason)?;
    if limit.retry_after.is_zero() {
        return Err(ConfigError::new("retry_after", "0s", "must be above zero"));
    }
    // Set where the limit is compiled: a layer that is not built leaves nothing behind.
    for time in limit.own_clock().into_iter().chain(limit.slots.known_time()) {
        check_time(time, defaults)?;
    }
    Ok(())
}
