//! Properties of the algorithms in process and of waiting, against slow models.
//!
//! Every property runs at least 10,000 random cases on a `ManualClock`, times `SLUICE_SCALE`. Where one fails, proptest writes
//! its seed to `tests/properties.proptest-regressions`, which is committed and run first from then on.

mod blocked;
mod bucket;
mod calendar;
#[path = "../shared/civil.rs"]
mod civil;
mod degraded;
mod elsewhere;
mod executor;
mod holds;
mod in_flight;
mod leaky;
mod limits;
mod models;
mod places;
mod quotas;
mod ramps;
mod rates;
mod rules;
mod several;
mod sliding;
mod spacing;
mod subjects;
mod texts;
mod threads;
mod tiers;
mod undo;
mod waiting;
mod warm_up;
mod ways;
mod window;

use proptest::test_runner::{Config, FileFailurePersistence};

/// How a property is run.
fn config() -> Config {
    let scale = std::env::var("SLUICE_SCALE").ok().and_then(|scale| scale.parse().ok());
    let cases = 10_000 * scale.unwrap_or(1).max(1);
    Config {
        cases,
        // As many as random cases may be turned down before proptest gives up, in proportion.
        max_local_rejects: cases.saturating_mul(64),
        max_global_rejects: cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/properties.proptest-regressions",
        ))),
        ..Config::default()
    }
}
