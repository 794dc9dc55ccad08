//! Checks of one charge: what is allowed, and what is said of it.

use std::time::Duration;

use super::{
    model::{Expected, History},
    trial::{Beside, Trial, Tried, demand, said},
};

pub(super) async fn allows_the_limit(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    limited.drains(now, b"one by one", limit, "single permits").await?;
    let whole = limited.ask(now, b"whole", limit).await?;
    demand!(whole.is_allowed(), "the limit in one charge: expected allowed, got {}", said(&whole));
    let more = limited.ask(now, b"whole", 1).await?;
    demand!(!more.is_allowed(), "one permit more: expected denied, got allowed");
    Ok(())
}

pub(super) async fn without_keys(trial: &Trial<'_>) -> Tried {
    let mut spec = trial.spec("tried");
    spec.keyed = false;
    let limited = trial.with(&spec)?;
    limited.drains(trial.base(), b"", limited.limit(), "a limiter without keys").await
}

pub(super) async fn says_the_limit(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    // Nothing, all of it, one too many, and what never fits.
    for cost in [0, limit, 1, limit.saturating_add(1)] {
        for decision in [
            limited.peek(now, limited.charge(b"key", cost)).await?,
            limited.ask(now, b"key", cost).await?,
        ] {
            let got = decision.limit();
            demand!(got == limit, "a charge of {cost}: expected limit {limit}, got {got}");
        }
    }
    Ok(())
}

pub(super) async fn remaining_counts(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    let mut left = limit;
    for cost in [1, 1, 2, 3, limit.saturating_sub(8), 1, 1, 1] {
        let decision = limited.ask(now, b"key", cost).await?;
        left -= if cost <= left { cost } else { 0 };
        let got = decision.remaining();
        demand!(got == left, "after a charge of {cost}: expected remaining {left}, got {got}");
    }
    Ok(())
}

pub(super) async fn retry_after_is_exact(trial: &Trial<'_>) -> Tried {
    // All at once; evenly, some time apart; within a tick of each other.
    for (apart, pieces) in [(0, 1), (0, 3), (trial.part(1, 7), 4), (trial.tick, 5)] {
        for cost in [1, 2, 3, u64::MAX] {
            is_exact(trial, apart, pieces, cost).await?;
        }
    }
    Ok(())
}

/// Spends the limit in some pieces, so far apart, and looks at the wait of a charge.
async fn is_exact(trial: &Trial<'_>, apart: u64, pieces: u64, cost: u64) -> Tried {
    let limited = trial.limited()?;
    let (limit, mut now) = (limited.limit(), trial.base());
    // Also the whole limit.
    let cost = cost.min(limit);
    let mut history = History::default();
    for piece in 0..pieces {
        let part = limit / pieces + if piece == 0 { limit % pieces } else { 0 };
        now += if piece == 0 { 0 } else { apart };
        let decision = limited.ask(now, b"key", part).await?;
        demand!(
            decision.is_allowed(),
            "the limit in {pieces} pieces: expected allowed, got {}",
            said(&decision)
        );
        history.spend(now, part);
    }
    let expected = limited.model.decide(&history, now, cost);
    let denied = limited.ask(now, b"key", cost).await?;
    let Expected::Denied(wait) = expected else { return Ok(()) };
    limited.agrees(expected, &denied, format_args!("a charge of {cost} on a spent key"))?;
    if wait > trial.tick {
        let early = limited.ask(now + wait - trial.tick, b"key", cost).await?;
        demand!(
            !early.is_allowed(),
            "a tick before its retry_after, {:?}, a charge of {cost}: expected denied, got allowed",
            Duration::from_nanos(wait)
        );
    }
    let at = limited.ask(now + wait, b"key", cost).await?;
    demand!(
        at.is_allowed(),
        "at its retry_after, {:?}, a charge of {cost}: expected allowed, got {}",
        Duration::from_nanos(wait),
        said(&at)
    );
    Ok(())
}

/// A long timeline of three keys, the same each time.
pub(super) async fn keeps_to_the_definition(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let mut keys = [b"first", b"other", b"third"].map(|key| Beside::new(&limited, *key));
    let (start, mut now) = (trial.base(), trial.base());
    let mut random = Random(0x5eed);
    for step in 1..=300 {
        now += match random.below(10) {
            0..5 => 0,
            5 => trial.tick,
            6..9 => trial.part(random.below(40), 80),
            _ => trial.part(random.below(30), 10),
        };
        let cost = match random.below(12) {
            0 => 0,
            1 => limited.limit().saturating_add(1),
            2 => limited.limit(),
            _ => 1 + random.below(3),
        };
        let key = usize::try_from(random.below(3)).unwrap_or(0);
        let when = format!("step {step}, after {:?}", Duration::from_nanos(now - start));
        keys[key].ask(now, cost, &when).await?;
    }
    Ok(())
}

/// A congruential generator with the multiplier of D. E. Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

pub(super) async fn zero_changes_nothing(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let mut key = Beside::new(&limited, b"key");
    let (base, limit) = (trial.base(), limited.limit());
    // On a new key, where it must not open a window; half spent; and spent.
    let instants = [base, base + trial.part(1, 4), base + trial.part(1, 2)];
    for (now, cost) in instants.into_iter().zip([limit / 2, limit - limit / 2, limit]) {
        for _ in 0..3 {
            key.ask(now, 0, "asking for nothing").await?;
        }
        key.ask(now, cost, "after asking for nothing").await?;
    }
    Ok(())
}

pub(super) async fn too_much_never_fits(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let (now, limit) = (trial.base(), limited.limit());
    for key in [&b"new"[..], b"half spent"] {
        let spent = if key == b"new" { 0 } else { limit / 2 };
        let _ = limited.ask(now, key, spent).await?;
        for cost in [limit.saturating_add(1), u64::MAX] {
            let decision = limited.ask(now, key, cost).await?;
            demand!(
                decision.is_never(),
                "a charge of {cost} on a limit of {limit}: expected denied as never, without a wait, got {}",
                said(&decision)
            );
        }
        limited.drains(now, key, limit - spent, "after charges that never fit").await?;
    }
    Ok(())
}

pub(super) async fn denied_changes_nothing(trial: &Trial<'_>) -> Tried {
    let limited = trial.limited()?;
    let mut key = Beside::new(&limited, b"spent");
    let (base, limit) = (trial.base(), limited.limit());
    key.ask(base, limit, "spending the limit").await?;
    // Whether they come at once, or while permits come back.
    for step in 0..40 {
        let now = base + trial.part(step, 80);
        key.ask(now, limit, "asking in vain").await?;
    }
    let whole = base + limited.model.whole();
    limited.drains(whole, &key.key, limit, "after denied checks, and a long pause").await?;

    // What is left is still there for a charge that fits.
    let _ = limited.ask(base, b"half spent", limit / 2).await?;
    for _ in 0..3 {
        let _ = limited.ask(base, b"half spent", limit).await?;
    }
    let left = if limit / 2 == 0 { 0 } else { limit - limit / 2 };
    limited.drains(base, b"half spent", left, "after denied checks of the whole limit").await
}
