//! Checks of undo: it may give back or not, but it is never a gift.
//!
//! What may be had after an undo is what could be had if the charge had never come. A backend that leaves it spent
//! keeps its promise as well; that is nearly always less, but where a window begins with the charge it also ends
//! earlier. So the most of the two is the bound.

use std::time::Duration;

use super::{
    model::History,
    time::{half, replaced},
    trial::{Limited, Trial, Tried, demand},
};
use crate::{backend::Verdict, clock::Nanos};

/// Drains at each instant; all that came by then is at most what one of the histories lets through.
async fn never_more(
    limited: &Limited,
    mut histories: [History; 2],
    instants: &[u64],
    when: &str,
) -> Tried {
    let (mut got, mut most) = (0, [0; 2]);
    let first = instants.first().copied().unwrap_or(0);
    for now in instants.iter().copied() {
        got += limited.drain(now, b"key").await?;
        for (most, history) in most.iter_mut().zip(&mut histories) {
            *most += limited.model.drain(history, now);
        }
        let most = most[0].max(most[1]);
        demand!(
            got <= most,
            "{when}, {:?} later: expected at most {most} permits in all, as if the charge had never come, \
             got {got}",
            Duration::from_nanos(now.saturating_sub(first))
        );
    }
    Ok(())
}

/// When to look, from `now` on: soon, at what may be an edge, and much later.
fn instants(trial: &Trial<'_>, limited: &Limited, started: u64, now: u64) -> Vec<u64> {
    let mut instants = vec![now, now + trial.tick, started + trial.part(1, 1)];
    instants.extend((1..=6).map(|n| now + trial.part(n, 4)));
    instants.push(now + limited.model.whole());
    instants.retain(|at| *at >= now);
    instants.sort_unstable();
    instants
}

pub(super) async fn is_no_gift(trial: &Trial<'_>) -> Tried {
    for wait in [0, trial.tick, trial.part(1, 3), trial.part(1, 1), trial.part(5, 1)] {
        for half in [false, true] {
            let limited = trial.limited()?;
            let (base, limit) = (trial.base(), limited.limit());
            let cost = if half { limit.div_ceil(2) } else { limit };
            let verdict = limited.granted(base, b"key", cost).await?;
            let now = base + wait;
            limited.undo(now, verdict.receipt());
            let mut kept = History::default();
            kept.spend(base, cost);
            let instants = instants(trial, &limited, base, now);
            let when = format!("after the undo of a charge of {cost}");
            never_more(&limited, [History::default(), kept], &instants, &when).await?;
        }
    }
    Ok(())
}

/// Two charges of one request on one key, which may fit together or not at all.
pub(super) async fn of_two_is_no_gift(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    let charges = [limited.charge(b"key", limit.div_ceil(2)), limited.charge(b"key", limit / 2)];
    let verdicts = limited.check(now, &charges).await?;
    demand!(verdicts.all_allowed(), "two charges that fit: expected allowed, got a denial");
    let receipts: Vec<_> = verdicts.as_slice().iter().map(Verdict::receipt).collect();
    limited.backend.undo(Nanos::new(now), &receipts);
    let mut kept = History::default();
    kept.spend(now, limit);
    let instants = instants(trial, &limited, now, now);
    let when = "after the undo of two charges on one key";
    never_more(&limited, [History::default(), kept], &instants, when).await
}

pub(super) async fn later_charges_stay(trial: &Trial<'_>) -> Tried {
    let waits = [0, trial.tick, trial.part(1, 4), trial.part(1, 1), trial.part(5, 1)];
    for (wait, undone_after) in waits.iter().flat_map(|wait| waits.map(|after| (*wait, after))) {
        let limited = trial.limited()?;
        let (base, limit) = (trial.base(), limited.limit());
        let cost = limit.div_ceil(2);
        let verdict = limited.granted(base, b"key", cost).await?;
        let (mut without, mut kept) = (History::default(), History::default());
        kept.spend(base, cost);
        // Another charge, of what is left or at least of what is there.
        let now = base + wait;
        let other = limited.model.free(&kept, now).min((limit - cost).max(1));
        let _ = limited.ask(now, b"key", other).await?;
        without.spend(now, other);
        kept.spend(now, other);

        let undone = now + undone_after;
        limited.undo(undone, verdict.receipt());
        let instants = instants(trial, &limited, base, undone);
        let when = format!(
            "after a charge of {cost}, {:?} later another of {other}, and the undo of the first",
            Duration::from_nanos(wait)
        );
        never_more(&limited, [without, kept], &instants, &when).await?;
    }
    Ok(())
}

pub(super) async fn new_quota_keeps_receipts(trial: &Trial<'_>) -> Tried {
    let whole = trial.limited()?.model.whole();
    for quota in [trial.algorithm.relaxed(2)?, half(&trial.algorithm)] {
        // While the charge counts, and when it counts no more.
        for (half, wait) in [(false, 0), (true, 0), (false, whole), (true, whole)] {
            let limited = trial.limited()?;
            let (base, limit) = (trial.base(), limited.limit());
            let cost = if half { limit.div_ceil(2) } else { limit };
            let verdict = limited.take(base, limited.charge(b"key", cost)).await?;
            let now = base + wait;
            let limited = replaced(trial, &limited, now, quota)?;
            limited.undo(now, verdict.receipt());
            let got = limited.drain(now, b"key").await?;
            demand!(
                got <= limited.limit(),
                "after a charge of {cost}, {:?} later a new quota with a limit of {}, and the undo: expected at \
                 most that, got {got}",
                Duration::from_nanos(wait),
                limited.limit()
            );
            let when = "after a new quota, the undo of a charge under the old one, and a pause";
            let later = now + 4 * limited.model.whole();
            limited.drains(later, b"key", limited.limit(), when).await?;
        }
    }
    Ok(())
}

pub(super) async fn reset_ends_receipts(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    let verdict = limited.take(now, limited.charge(b"key", limit)).await?;
    let _ = limited.reset(now, limited.charge(b"key", 1)).await?;
    let _ = limited.ask(now, b"key", limit).await?;
    limited.undo(now, verdict.receipt());
    let mut spent = History::default();
    spent.spend(now, limit);
    let instants = instants(trial, &limited, now, now);
    let when = "after a charge, a reset, the same charge, and the undo of the first";
    never_more(&limited, [spent.clone(), spent], &instants, when).await
}
