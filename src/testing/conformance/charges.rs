//! Checks of several charges in one call, and of many calls at once.

use std::time::Duration;

use super::{
    model::History,
    trial::{Stop, Trial, Tried, demand, interleaved, said},
};
use crate::{backend::Charge, clock::Nanos};

pub(super) async fn one_verdict_a_charge(trial: &Trial<'_>) -> Tried {
    let first = trial.with(&trial.spec("limiter-0"))?;
    let mut limiters = vec![first];
    for n in 1..10 {
        let limiter = trial.on(&limiters[0].backend, &trial.spec(&format!("limiter-{n}")))?;
        limiters.push(limiter);
    }
    let now = trial.base();
    // Which are spent: no pattern that reads the same from the other end.
    let spent = |n: usize| matches!(n, 1 | 2 | 5 | 9);
    for (n, limiter) in limiters.iter().enumerate().filter(|(n, _)| spent(*n)) {
        limiter.drains(now, b"key", limiter.limit(), format!("limiter {n}")).await?;
    }
    let charges: Vec<_> = limiters.iter().map(|limiter| limiter.charge(b"key", 1)).collect();
    let verdicts = limiters[0].check(now, &charges).await?;
    for (n, verdict) in verdicts.as_slice().iter().enumerate() {
        let (expected, got) = (!spent(n), verdict.decision());
        demand!(
            got.is_allowed() == expected,
            "verdict {n} of ten, in the order of the charges: expected {}, got {}",
            if expected { "allowed" } else { "denied" },
            said(&got)
        );
    }
    Ok(())
}

pub(super) async fn all_or_none(trial: &Trial<'_>) -> Tried {
    // Where the one that refuses is asked last, and first; for now, and for ever.
    for (at, never) in [(1, false), (0, false), (1, true), (0, true)] {
        let limiters = trial.two()?;
        let (now, limit) = (trial.base(), limiters[0].limit());
        let mut costs = [1, 1];
        if never {
            costs[at] = limit.saturating_add(1);
        } else {
            limiters[at].drains(now, b"key", limit, "a new key").await?;
        }
        for _ in 0..3 {
            let charges = [0, 1].map(|n: usize| limiters[n].charge(b"key", costs[n]));
            let verdicts = limiters[0].check(now, &charges).await?;
            let allowed = [0, 1].map(|n: usize| verdicts.as_slice()[n].decision().is_allowed());
            let expected = [at != 0, at != 1];
            demand!(
                allowed == expected,
                "two charges, of which one does not fit: expected allowed {expected:?}, got {allowed:?}"
            );
        }
        let when = "after checks in which another charge was denied";
        limiters[1 - at].drains(now, b"key", limit, when).await?;
    }
    // And all, where all fit.
    let limiters = trial.two()?;
    let (now, limit) = (trial.base(), limiters[0].limit());
    let charges = [0, 1].map(|n: usize| limiters[n].charge(b"key", 1));
    let verdicts = limiters[0].check(now, &charges).await?;
    demand!(verdicts.all_allowed(), "two charges that fit: expected allowed, got a denial");
    for limiter in &limiters {
        limiter.drains(now, b"key", limit - 1, "after a check of two charges").await?;
    }
    Ok(())
}

pub(super) async fn one_key_counts_together(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    for [one, other] in [[limit, 1], [1, limit]] {
        let charges = [limited.charge(b"too much", one), limited.charge(b"too much", other)];
        let verdicts = limited.check(now, &charges).await?;
        demand!(
            !verdicts.all_allowed(),
            "charges of {one} and {other} on one key with a limit of {limit}: expected a denial, got \
             both allowed"
        );
    }
    limited.drains(now, b"too much", limit, "after charges denied together").await?;
    if limit > 1 {
        let charges = [limited.charge(b"enough", limit - 1), limited.charge(b"enough", 1)];
        let verdicts = limited.check(now, &charges).await?;
        demand!(
            verdicts.all_allowed(),
            "two charges on one key that are the limit together: expected allowed, got a denial"
        );
        limited.drains(now, b"enough", 0, "after two charges of the whole limit").await?;
    }
    Ok(())
}

pub(super) async fn at_once_within_the_limit(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    let cost = limit.div_ceil(20);
    let charges = [limited.charge(b"key", cost)];
    // All are asked before the first answer is looked at.
    let ask = |_| limited.backend.check(Nanos::new(now), &charges);
    let answers = (0..3 * (limit / cost) + 2).map(ask).collect();
    let verdicts = interleaved(&charges, answers).await?;
    let allowed = verdicts.iter().filter(|verdicts| verdicts.all_allowed()).count() as u64;
    let spent = allowed * cost + limited.drain(now, b"key").await?;
    demand!(
        spent <= limit,
        "{} checks under way at once: expected at most {limit} permits, got {spent}",
        verdicts.len()
    );
    demand!(allowed > 0, "{} checks under way at once: expected some, got none", verdicts.len());
    Ok(())
}

pub(super) async fn at_once_whole_or_not(trial: &Trial<'_>) -> Tried {
    let limiters = trial.two()?;
    let (now, limit) = (trial.base(), limiters[0].limit());
    let charge = |n: usize| limiters[n].charge(b"key", 1);
    // One has less left than the other, and they are asked in either order.
    let _ = limiters[1].ask(now, b"key", limit / 2).await?;
    let orders: [[Charge<'_>; 2]; 2] = [[charge(0), charge(1)], [charge(1), charge(0)]];
    let asked = 2 * limit.min(50) + 2;
    let backend = &limiters[0].backend;
    let ask = |n: u64| backend.check(Nanos::new(now), &orders[usize::from(n % 2 == 1)]);
    let answers = (0..asked).map(ask).collect();
    let verdicts = interleaved(&orders[0], answers).await?;
    let allowed = verdicts.iter().filter(|verdicts| verdicts.all_allowed()).count() as u64;
    let left = [limiters[0].drain(now, b"key").await?, limiters[1].drain(now, b"key").await?];
    let spent = [limit - left[0].min(limit), limit - limit / 2 - left[1].min(limit - limit / 2)];
    demand!(
        spent == [allowed; 2],
        "{asked} checks of two limiters under way at once, of which {allowed} were allowed: expected \
         as much spent on each, got {spent:?}"
    );
    Ok(())
}

pub(super) async fn departs_in_time(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    let longest = trial.part(1, 1);
    let cost = limit.div_ceil(20);
    let charge = limited.charge(b"key", cost).waiting_at_most(Nanos::new(longest).into());
    let mut departures = Vec::new();
    for _ in 0..3 * (limit / cost) + 3 {
        // That a departure is within the longest wait is looked at by `check`.
        let verdicts = limited.check(now, &[charge]).await?;
        let verdict = verdicts.as_slice()[0];
        if verdict.decision().is_allowed() {
            departures.push(now + Nanos::from(verdict.departure()).get());
        }
    }
    departures.sort_unstable();
    let mut history = History::default();
    for at in departures {
        if limited.model.free(&history, at) < cost {
            return Err(Stop::Broken(format!(
                "expected departures that the limit admits then, got one after {:?} that it does not",
                Duration::from_nanos(at - now)
            )));
        }
        history.spend(at, cost);
    }
    Ok(())
}
