//! Instructions per request, counted by callgrind: they repeat exactly.

use std::process::Command;

use crate::{contenders::*, report::Report};

/// (contender, the most over the layer that does nothing).
const COUNTED: [(&str, Option<f64>); 14] = [
    (FLOOR, None),
    (BORROWED, None),
    (GOVERNOR_GLOBAL, None),
    (GOVERNOR_PEER, None),
    (GOVERNOR_FORWARDED, None),
    (OURS_NONE, None),
    (OURS_GLOBAL, Some(290.0)),
    (OURS_PEER, Some(480.0)),
    (OURS_FORWARDED, None),
    (OURS_HEADER, None),
    (OURS_THREE, None),
    (OURS_IN_FLIGHT, None),
    (OURS_ALL, None),
    (OURS_REFUSED, None),
];

const FEW: u64 = 100;
const MANY: u64 = 1_100;

pub fn run(report: &mut Report) {
    report.heading("Instructions per request");
    if Command::new("valgrind").arg("--version").output().is_err() {
        report.note("Not counted: valgrind is not installed.");
        return;
    }
    report.note("Over the layer that does nothing, on the same requests; counted by callgrind.");
    report.table(&["", "instructions", "extra", "target"]);
    let nothing = per_request(PASSTHROUGH);
    report.row(&[PASSTHROUGH.into(), format!("{nothing:.0}"), String::new(), String::new()]);
    for (name, at_most) in COUNTED {
        let count = per_request(name);
        let extra = count - nothing;
        let target = at_most.map_or_else(String::new, |at_most| {
            report.target(&format!("{name}, instructions"), extra, at_most, "")
        });
        report.row(&[name.into(), format!("{count:.0}"), format!("{extra:+.0}"), target]);
    }
    report.end_table();
}

/// What callgrind runs: one contender, so many times.
pub fn one(name: &str, times: u64) {
    drive(&mut *make(name), times);
}

fn per_request(name: &str) -> f64 {
    (counted(name, MANY) - counted(name, FEW)) as f64 / (MANY - FEW) as f64
}

/// Instructions within `drive` alone: the clock's calibration takes a different number each time.
fn counted(name: &str, times: u64) -> u64 {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=bench_compare::contenders::drive",
        ])
        .arg(std::env::current_exe().expect("the path of this program"))
        .args(["one", name, &times.to_string()])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("Collected :"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("callgrind has not counted:\n{text}"))
}
