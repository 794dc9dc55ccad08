//! Checks of time that does what it should not, and of quotas that change.

use std::time::Duration;

use super::{
    model::{DAY, Model},
    trial::{Beside, Limited, Stop, Trial, Tried, demand, keyed, said},
};
use crate::{Algorithm, Quota, backend::LimiterSpec, clock::Nanos};

pub(super) async fn backwards_gives_nothing(trial: &Trial<'_>) -> Tried {
    for back in [trial.tick, trial.part(1, 3), trial.part(1, 1), trial.part(3, 1)] {
        let limited = trial.limited()?;
        let (base, limit) = (trial.base(), limited.limit());
        let earlier = base.saturating_sub(back);
        let step = Duration::from_nanos(back);
        limited.drains(base, b"spent", limit, "a new key").await?;
        limited.drains(earlier, b"spent", 0, format!("{step:?} before it was spent")).await?;
        limited.drains(base, b"spent", 0, format!("there again, {step:?} later")).await?;

        // What is left is to be had once. With nothing spent there is nothing that knows of the later instant.
        if limit == 1 {
            continue;
        }
        let _ = limited.ask(base, b"left", limit - 1).await?;
        let before = limited.drain(earlier, b"left").await?;
        let after = limited.drain(base, b"left").await?;
        demand!(
            before + after <= 1,
            "one permit left, and time goes {step:?} back and forth: expected at most 1, got {}",
            before + after
        );
    }
    Ok(())
}

pub(super) async fn idleness_earns_the_limit(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (base, limit) = (trial.base(), limited.limit());
    let long = base.saturating_add(limited.model.whole().saturating_mul(10));
    limited.drains(base, b"spent", limit, "a new key").await?;
    let _ = limited.ask(base, b"touched", 1).await?;
    for key in [&b"spent"[..], b"touched", b"new"] {
        limited.drains(long, key, limit, "after a long pause").await?;
        let again = long.saturating_add(limited.model.whole());
        limited.drains(again, key, limit, "after another pause").await?;
    }
    Ok(())
}

/// Thirty years on. Microseconds by then, times a small number of permits, still fit into a float's 53 bits, which is
/// what a script in a store may count in.
const FAR: u64 = 30 * 365 * DAY;

pub(super) async fn far_instants(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (base, limit) = (trial.base(), limited.limit());
    let far = base + FAR / trial.tick * trial.tick;
    limited.drains(base, b"old", limit, "a new key").await?;
    for key in [&b"old"[..], b"new"] {
        let mut key = Beside::new(&limited, key);
        for (now, cost) in [(far, limit), (far, 1), (far + trial.part(1, 2), 1)] {
            key.ask(now, cost, "thirty years later").await?;
        }
        let whole = far + limited.model.whole();
        key.ask(whole, limit, "thirty years later, and a pause").await?;
    }
    Ok(())
}

pub(super) async fn aligned_in_utc(trial: &Trial<'_>) -> Tried {
    match trial.algorithm {
        Algorithm::FixedWindow(window) if window.is_aligned() => {}
        _ => return Err(Stop::Pointless),
    }
    // Twenty years, and most of a window.
    let utc = 20 * 365 * DAY / trial.tick * trial.tick + trial.part(2, 3);
    let utc_at_zero = Duration::from_nanos(utc);
    let limited = trial.with(&LimiterSpec { utc_at_zero, ..trial.spec("tried") })?;
    let end = limited.model.end(trial.base());
    let (limit, next) = (limited.limit(), limited.model.end(end));
    limited.drains(end - trial.tick, b"key", limit, "just before the edge").await?;
    limited.drains(end, b"key", limit, "at the edge").await?;
    limited.drains(next - trial.tick, b"key", 0, "at the end of the next window").await?;
    limited.drains(next, b"key", limit, "at the next edge").await
}

/// The same limiter with another quota from now on.
pub(super) fn replaced(
    trial: &Trial<'_>,
    limited: &Limited,
    now: u64,
    quota: Quota,
) -> Tried<Limited> {
    let algorithm = trial.of(quota);
    let spec =
        LimiterSpec { now: Nanos::new(now), ..keyed("tried", algorithm).replacing(limited.id) };
    let id = limited.backend.register(&spec)?;
    demand!(
        id == limited.id,
        "a spec that replaces {:?}: expected the same id, got {id:?}",
        limited.id
    );
    let model = Model::new(&algorithm, 0, trial.tick);
    Ok(Limited { model, ..limited.clone() })
}

/// Half as much, and at least 1.
pub(super) fn half(algorithm: &Algorithm) -> Quota {
    let quota = algorithm.quota();
    let less = Quota::new(quota.permits().div_ceil(2), quota.period());
    match algorithm {
        Algorithm::TokenBucket(_) => less.burst(quota.max_burst().div_ceil(2)),
        _ => less,
    }
}

pub(super) async fn keeps_what_is_spent(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    let quota = trial.algorithm.quota();
    for (name, quota) in [
        ("the same", quota),
        ("a greater", trial.algorithm.relaxed(2)?),
        ("a smaller", half(&trial.algorithm)),
    ] {
        // Each on a limiter of its own, with one key spent and one half spent.
        let limited = trial.with(&trial.spec("tried"))?;
        for (key, spent) in [(&b"spent"[..], limit), (b"half spent", limit.div_ceil(2))] {
            let _ = limited.ask(now, key, spent).await?;
        }
        let limited = replaced(trial, &limited, now, quota)?;
        for (key, spent) in [(&b"spent"[..], limit), (b"half spent", limit.div_ceil(2))] {
            let most = limited.limit().saturating_sub(spent);
            let got = limited.drain(now, key).await?;
            demand!(
                got <= most,
                "{name} quota, with a limit of {}, in place of one under which {spent} were spent: \
                 expected at most {most} to be had, got {got}",
                limited.limit()
            );
        }
    }
    Ok(())
}

pub(super) async fn new_quota_holds(trial: &Trial<'_>) -> Tried {
    let mut limited = trial.limited()?;
    let mut now = trial.base();
    let _ = limited.ask(now, b"old", 1).await?;
    let greater = trial.algorithm.relaxed(2)?;
    for (n, quota) in
        [greater, half(&trial.algorithm), trial.algorithm.quota()].into_iter().enumerate()
    {
        limited = replaced(trial, &limited, now, quota)?;
        let key = format!("key {n}").into_bytes();
        let limit = limited.limit();
        limited.drains(now, &key, limit, "a new key, under a new quota").await?;
        let got = limited.ask(now, &key, 1).await?.limit();
        demand!(got == limit, "under a new quota: expected limit {limit}, got {got}");
        // By then the old quota is gone from every key.
        now += limited.model.whole().saturating_mul(4);
        limited.drains(now, b"old", limit, "a pause after the quota changed").await?;
    }
    second_quota_holds(trial, now).await
}

/// The same of a limiter with two quotas, of which the second is changed.
async fn second_quota_holds(trial: &Trial<'_>, now: u64) -> Tried {
    let quota = trial.algorithm.quota();
    let greater = trial.algorithm.relaxed(2)?;
    let spec = |second| LimiterSpec {
        quotas: vec![quota, second],
        factors: vec![1],
        now: Nanos::new(now),
        ..trial.spec("tried")
    };
    let limited = trial.with(&spec(quota))?;
    limited.backend.register(&spec(greater).replacing(limited.id))?;
    let limits = [limited.limit(), trial.limit_of(greater)];
    for (index, key) in [(0, &b"first"[..]), (1, b"second")] {
        for (cost, expected) in [(limits[index], true), (1, false)] {
            let charge = limited.charge(key, cost).quota_index(index);
            let got = limited.take(now, charge).await?.decision();
            demand!(
                got.is_allowed() == expected,
                "the second of two quotas was changed; a charge of {cost} under quota {index}, with a limit of {}: \
                 expected {}, got {}",
                limits[index],
                if expected { "allowed" } else { "denied" },
                said(&got)
            );
        }
    }
    Ok(())
}
