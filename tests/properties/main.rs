//! Properties of token bucket and fixed window in process, against slow models.
//!
//! Every property runs at least 10,000 random cases on a `ManualClock`. Where one fails, proptest writes
//! its seed to `tests/properties.proptest-regressions`, which is committed and run first from then on.

mod bucket;
mod holds;
mod limits;
mod models;
mod quotas;
mod rules;
mod subjects;
mod texts;
mod threads;
mod undo;
mod window;

use proptest::test_runner::{Config, FileFailurePersistence};

/// How a property is run.
fn config() -> Config {
    Config {
        cases: 10_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/properties.proptest-regressions",
        ))),
        ..Config::default()
    }
}
