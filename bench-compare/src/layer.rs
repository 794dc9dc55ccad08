//! A layer's own cost, around a service that is always ready.

use crate::{
    contenders::*,
    harness::{Measured, Pace, Rows},
    report::Report,
};

/// How many processes take the rounds.
const PROCESSES: usize = 9;

/// Measures in this process.
pub fn samples() -> Measured {
    let mut rows = Rows::default();
    for name in ALL {
        let mut contender = make(name);
        let refused = name == GOVERNOR_REFUSED || name == OURS_REFUSED;
        assert_eq!(status(&mut *contender), if refused { 429 } else { 200 }, "{name}");
        rows.add(name, move |n| drive(&mut *contender, n));
    }
    rows.measure(Pace::SHORT)
}

pub fn run(report: &mut Report) {
    report.heading("The layer's own cost, on a ready service");
    report.note(
        "Every layer behind a virtual call, the request built anew each time (three headers and the \
         peer's address; that is most of the bare service's time). *Extra* is over the layer that \
         does nothing; the last comparison of a refusal is with the bare service.",
    );
    let measured = Measured::of_processes(PROCESSES, &["samples"]);
    report.table(&["", "ns", "extra, ns", "target"]);
    for name in ALL {
        let times = |report: &mut Report, over: &str, of: &str, at_most: f64| {
            let ratio = measured.extra_ratio(name, over, PASSTHROUGH);
            let target = report.target(name, ratio, at_most, "");
            format!("{ratio:.2} of {of}, {target}")
        };
        let target = match name {
            OURS_GLOBAL => times(report, BORROWED, "the second yardstick", 1.3),
            OURS_PEER => times(report, GOVERNOR_PEER, "tower_governor", 0.8),
            OURS_FORWARDED => times(report, GOVERNOR_FORWARDED, "tower_governor", 0.7),
            OURS_THREE => times(report, OURS_GLOBAL, "one rule", 2.0),
            OURS_ALL => times(report, GOVERNOR_GLOBAL, "tower_governor with one rule", 1.0),
            OURS_REFUSED => {
                let extra = measured.extra(name, BARE);
                let target = report.target(name, extra.median, 200.0, " ns");
                format!("{} ns over bare, {target}", extra.text(0))
            }
            GOVERNOR_REFUSED => {
                format!("{} ns over bare", measured.extra(name, BARE).text(0))
            }
            _ => String::new(),
        };
        let extra = measured.extra(name, PASSTHROUGH);
        report.row(&[name.into(), measured.ns(name).text(0), extra.text(1), target]);
    }
    report.end_table();
}
