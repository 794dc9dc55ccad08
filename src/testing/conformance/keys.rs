//! Checks of what is counted apart, of looking, and of forgetting.

use std::{sync::Arc, time::Duration};

use super::{
    model::{Expected, History},
    trial::{Trial, Tried, demand, keyed, said},
};
use crate::{Algorithm, ConfigError, Decision, Quota, backend::LimiterSpec};

pub(super) async fn keys_apart(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let now = trial.base();
    let mut keys: Vec<Vec<u8>> =
        [&b"a"[..], b"b", b"A", b"ab", b"a\0", b"\0a", b"a:b", b"a b", b"\xff", b"\xff\xfe"]
            .map(<[u8]>::to_vec)
            .into();
    // Long ones that differ in one place, and one that has none of these.
    keys.extend(
        [0, 150, 299, 300].map(|at| (0..300).map(|n| if n == at { b'y' } else { b'x' }).collect()),
    );
    for key in &keys {
        let said = String::from_utf8_lossy(&key[..key.len().min(8)]).into_owned();
        let when = format!("a new key, {said:?}, after others were spent");
        limited.drains(now, key, limited.limit(), when).await?;
    }
    // None is forgotten for another.
    for key in &keys {
        limited.drains(now, key, 0, "a key that was spent").await?;
    }
    Ok(())
}

pub(super) async fn limiters_apart(trial: &Trial<'_>) -> Tried {
    let [one, other] = trial.two()?;
    let now = trial.base();
    one.drains(now, b"key", one.limit(), "a new key").await?;
    other.drains(now, b"key", other.limit(), "the same key of another limiter").await
}

pub(super) async fn quotas_apart(trial: &Trial<'_>) -> Tried {
    let greater = trial.algorithm.relaxed(2)?;
    let spec = LimiterSpec {
        quotas: vec![trial.algorithm.quota(), greater],
        factors: vec![1, 2],
        ..trial.spec("tried")
    };
    let own = trial.with(&spec)?;
    let limits = [own.limit(), trial.limit_of(greater)];
    let now = trial.base();
    for (quota, key) in [(0, &b"first"[..]), (1, b"second"), (0, b"third"), (1, b"fourth")] {
        let expected = limits[quota];
        let all = own.charge(key, expected).quota_index(quota);
        let got = own.take(now, all).await?.decision();
        demand!(
            got.is_allowed() && got.limit() == expected,
            "the whole limit of quota {quota}: expected allowed by a limit of {expected}, got {} by {}",
            said(&got),
            got.limit()
        );
        let more = own.charge(key, 1).quota_index(quota);
        let got = own.take(now, more).await?.decision();
        demand!(!got.is_allowed(), "one more than quota {quota}: expected denied, got allowed");
        // Peek and reset are told of the quota as well.
        let got = own.peek(now, more).await?;
        demand!(
            !got.is_allowed() && got.limit() == expected,
            "peeking at one more than quota {quota}: expected denied by a limit of {expected}, got {} by {}",
            said(&got),
            got.limit()
        );
    }
    let all = own.charge(b"second", limits[1]).quota_index(1);
    let known = own.reset(now, all).await?;
    let got = own.take(now, all).await?.decision();
    demand!(
        known && got.is_allowed(),
        "the reset of a spent key of quota 1, and its whole limit: expected known and allowed, got {known} and {}",
        said(&got)
    );
    undo_names_the_quota(trial, now).await
}

/// What is given back is given back to the quota it was charged to: here two that are alike, and a key of both.
async fn undo_names_the_quota(trial: &Trial<'_>, now: u64) -> Tried {
    let quota = trial.algorithm.quota();
    let spec = LimiterSpec { quotas: vec![quota, quota], factors: vec![1], ..trial.spec("tried") };
    let limited = trial.with(&spec)?;
    let all = limited.charge(b"key", limited.limit());
    let first = limited.take(now, all).await?.decision().is_allowed();
    let second = limited.take(now, all.quota_index(1)).await?;
    // Where a key's count is the same under any quota it is denied, and there is nothing to undo.
    if second.decision().is_allowed() {
        limited.undo(now, second.receipt());
    }
    let got = limited.ask(now, b"key", 1).await?;
    demand!(
        first && !got.is_allowed(),
        "a key that was spent under quota 0, after the undo of a charge under quota 1: expected denied, got {}",
        said(&got)
    );
    Ok(())
}

pub(super) async fn peek_says(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (base, limit) = (trial.base(), limited.limit());
    let now = base + trial.part(1, 5);
    for spent in [0, limit / 2, limit] {
        for cost in [0, 1, limit, limit.saturating_add(1)] {
            let key = format!("{spent} {cost}").into_bytes();
            let _ = limited.ask(base, &key, spent).await?;
            let left = limited.ask(now, &key, 0).await?.remaining();
            let peeked = limited.peek(now, limited.charge(&key, cost)).await?;
            let got = limited.ask(now, &key, cost).await?;
            let as_said = |decision: &Decision| {
                (decision.is_allowed(), decision.retry_after(), decision.limit())
            };
            demand!(
                as_said(&peeked) == as_said(&got),
                "a charge of {cost} with {left} of {limit} left: expected from peek what check says, {}, \
                 got {}",
                said(&got),
                said(&peeked)
            );
            // Before the charge, or after it.
            let may = [left, got.remaining()];
            demand!(
                may.contains(&peeked.remaining()),
                "a charge of {cost} with {left} left: expected remaining {} or {} from peek, got {}",
                may[0],
                may[1],
                peeked.remaining()
            );
        }
    }
    Ok(())
}

pub(super) async fn peek_changes_nothing(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (base, limit) = (trial.base(), limited.limit());
    let model = &limited.model;
    let mut history = History::default();
    // On a new key, and on one of which half is spent.
    for (now, spent) in [(base, limit / 2), (base + trial.part(1, 4), 0)] {
        for _ in 0..5 {
            for cost in [1, limit] {
                let got = limited.peek(now, limited.charge(b"key", cost)).await?;
                let expected = model.decide(&history, now, cost);
                limited.agrees(
                    expected,
                    &got,
                    format_args!("peeking again at a charge of {cost}"),
                )?;
            }
        }
        let expected = model.decide(&history, now, spent);
        let got = limited.ask(now, b"key", spent).await?;
        let as_expected = got.is_allowed() == (expected == Expected::Allowed);
        demand!(as_expected, "after peeking, a charge of {spent}: got {}", said(&got));
        history.spend(now, spent);
    }
    let now = base + trial.part(1, 4);
    let left = model.free(&history, now);
    limited.drains(now, b"key", left, "after peeking").await
}

pub(super) async fn reset_forgets(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    let _ = limited.ask(now, b"asked", 0).await?;
    let _ = limited.ask(now, b"asked", limit.saturating_add(1)).await?;
    let _ = limited.peek(now, limited.charge(b"asked", 1)).await?;
    for key in [&b"new"[..], b"asked"] {
        let known = limited.reset(now, limited.charge(key, 1)).await?;
        demand!(!known, "resetting a key that spent nothing: expected nothing known, got known");
    }
    limited.drains(now, b"key", limit, "a new key").await?;
    limited.drains(now, b"other", limit, "another new key").await?;
    let known = limited.reset(now, limited.charge(b"key", 1)).await?;
    demand!(known, "resetting a spent key: expected known, got nothing known");
    limited.drains(now, b"key", limit, "after its reset").await?;
    limited.drains(now, b"other", 0, "after the reset of another key").await?;
    let _ = limited.reset(now, limited.charge(b"key", 1)).await?;
    let again = limited.reset(now, limited.charge(b"key", 1)).await?;
    demand!(!again, "resetting a key twice: expected nothing known, got known");
    Ok(())
}

pub(super) async fn refuses_nothing(trial: &Trial<'_>) -> Tried {
    let quota = trial.algorithm.quota();
    // What it refuses as a whole is no answer to this.
    let backend = (trial.make)();
    backend.register(&trial.spec("tried"))?;
    let register = |name: &str, algorithm: Algorithm| -> Result<_, ConfigError> {
        backend.register(&keyed(name, algorithm))
    };
    let none = trial.of(Quota::new(0, quota.period()));
    demand!(
        register("none", none).is_err(),
        "a quota of zero permits: expected register to refuse it, got an id"
    );
    let instant = trial.of(Quota::new(quota.permits(), Duration::ZERO));
    demand!(
        register("instant", instant).is_err(),
        "a period of zero: expected register to refuse it, got an id"
    );
    Ok(())
}

pub(super) async fn backends_apart(trial: &Trial<'_>) -> Tried {
    let (one, other) = ((trial.make)(), (trial.make)());
    let clone = Arc::clone(&one);
    demand!(
        one.identity() == clone.identity(),
        "asked twice: expected one identity, got {} and {}",
        one.identity(),
        clone.identity()
    );
    demand!(
        one.identity() != other.identity(),
        "backends that share nothing: expected two identities, got one"
    );
    // And that they share nothing.
    let now = trial.base();
    for backend in [&one, &other] {
        let limited = trial.on(backend, &trial.spec("tried"))?;
        limited.drains(now, b"key", limited.limit(), "a new backend").await?;
    }
    Ok(())
}
