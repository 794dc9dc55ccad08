//! What a table of many keys takes, and the worst insert on the way there.

use std::{path::Path, process::Command};

use crate::report::Report;

const KEYS: u64 = 1_000_000;

/// Every contender this often: a single insert is at the mercy of whatever else runs.
const RUNS: usize = 5;

const CONTENDERS: [(&str, &str); 5] = [
    ("yardstick: hashes only, 64 mutex shards", "hash-only"),
    ("governor, DashMap, 36-byte strings", "governor-string"),
    ("governor, DashMap, IP addresses", "governor-address"),
    ("**ours**, 36-byte strings", "ours-string"),
    ("**ours**, IP addresses", "ours-address"),
];

/// Of one run.
struct Figures {
    live: f64,
    resident: f64,
    percentile: f64,
    worst: f64,
    total: f64,
}

pub fn run(report: &mut Report) {
    report.heading("Memory and the worst insert, filling 1 M keys");
    report.note(
        "Each in a process of its own, five times. The insert that took longest is that of the \
         quietest run, with the other runs' range: a process that is interrupted looks slow.",
    );
    build();
    report.table(&[
        "",
        "live bytes/key",
        "resident bytes/key",
        "ns/insert",
        "p99.99, us",
        "worst insert, ms",
        "target",
    ]);
    // Interleaved here as well.
    let mut runs: Vec<Vec<Figures>> = CONTENDERS.iter().map(|_| Vec::new()).collect();
    for _ in 0..RUNS {
        for ((_, contender), runs) in CONTENDERS.iter().zip(&mut runs) {
            runs.push(child(contender));
        }
    }
    for ((name, contender), runs) in CONTENDERS.iter().zip(runs) {
        let least = |of: fn(&Figures) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = |of: fn(&Figures) -> f64| runs.iter().map(of).fold(0.0, f64::max);
        let per_key = |bytes: f64| format!("{:.1}", bytes / KEYS as f64);
        let resident = most(|figures| figures.resident);
        let worst = least(|figures| figures.worst) / 1e6;
        let target = if contender.starts_with("ours") {
            let bytes = resident / KEYS as f64;
            let memory = report.target(&format!("{name}, memory"), bytes, 40.0, " bytes/key");
            let stall = report.target(&format!("{name}, worst insert"), worst, 1.0, " ms");
            format!("{memory}; {stall}")
        } else {
            String::new()
        };
        report.row(&[
            (*name).into(),
            per_key(most(|figures| figures.live)),
            per_key(resident),
            format!("{:.0}", least(|figures| figures.total) / KEYS as f64),
            format!("{:.0}", least(|figures| figures.percentile) / 1e3),
            format!("{worst:.2} (to {:.2})", most(|figures| figures.worst) / 1e6),
            target,
        ]);
    }
    report.end_table();
}

/// The other binary, in the profile and folder of this one.
fn build() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--bin", "memory", "--manifest-path"])
        .arg(manifest)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "cannot build the binary `memory`");
}

fn child(contender: &str) -> Figures {
    let this = std::env::current_exe().expect("the path of this program");
    let output = Command::new(this.with_file_name("memory"))
        .args([contender, &KEYS.to_string()])
        .output()
        .expect("`memory` runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [live, resident, percentile, worst, total] = numbers[..] else { panic!("{text:?}") };
    Figures { live, resident, percentile, worst, total }
}
