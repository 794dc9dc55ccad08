//! One limit for all callers, without HTTP.

use std::{
    cell::Cell,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tower_sluice::{Limiter, ManualClock, SlidingWindow, TokenBucket, clock::Nanos};

use crate::{
    harness::{Contended, Measured, Pace, Rows},
    report::Report,
    rivals,
    yardstick::Gcra,
};

const RIVAL: &str = "governor, default clock";
const OURS: &str = "**ours**, default clock";
const OURS_GIVEN: &str = "**ours**, time given";
const OURS_ADMITS: &str = "**ours**, yes or no, default clock";
const OURS_ADMITS_GIVEN: &str = "**ours**, yes or no, time given";
const OURS_SLIDING: &str = "**ours**, sliding window, yes or no, time given";
const STEP: &str = "yardstick: GCRA step, time given";

/// What a row may take, in parts of another row.
struct Target {
    row: &'static str,
    of: &'static str,
    at_most: f64,
}

const fn target(row: &'static str, of: &'static str, at_most: f64) -> Target {
    Target { row, of, at_most }
}

const ALLOWED: &[Target] = &[
    target(OURS, RIVAL, 1.03),
    target(OURS_GIVEN, RIVAL, 0.50),
    target(OURS_ADMITS, RIVAL, 1.05),
    target(OURS_ADMITS_GIVEN, STEP, 1.5),
    target(OURS_SLIDING, OURS_ADMITS_GIVEN, 3.0),
];
const DENIED: &[Target] =
    &[target(OURS, RIVAL, 1.03), target(OURS_GIVEN, RIVAL, 0.40), target(OURS_ADMITS, RIVAL, 1.05)];
const CONTENDED: &[Target] = &[target(OURS_ADMITS, RIVAL, 0.75)];

pub fn run(pace: Pace, report: &mut Report) {
    report.heading("One limit, no key, without HTTP");
    let denied = measure(pace, false);
    table(&measure(pace, true), report, "allowed", ALLOWED);
    table(&denied, report, "denied", DENIED);
    let ns = denied.ns(OURS_ADMITS_GIVEN).median;
    let verdict = report.target(&format!("{OURS_ADMITS_GIVEN}, denied, ns"), ns, 1.0, " ns");
    report.note(&format!("{OURS_ADMITS_GIVEN}, denied: {verdict}."));
    table(&contended(pace), report, "allowed, two threads", CONTENDED);
}

fn table(measured: &Measured, report: &mut Report, what: &str, targets: &[Target]) {
    report.table(&[what, "ns", "of governor", "target"]);
    for name in measured.names() {
        let ratio = measured.ratio(name, RIVAL);
        let verdicts: Vec<String> = targets
            .iter()
            .filter(|target| target.row == name)
            .map(|Target { of, at_most, .. }| {
                let ratio = measured.ratio(name, of).median;
                let verdict = report.target(&format!("{name}, {what}"), ratio, *at_most, "");
                if *of == RIVAL { verdict } else { format!("{ratio:.2} of {of}, {verdict}") }
            })
            .collect();
        let ns = measured.ns(name).text(1);
        report.row(&[name.into(), ns, ratio.text(2), verdicts.join("; ")]);
    }
    report.end_table();
}

/// Two threads on one limit.
fn contended(pace: Pace) -> Measured {
    let (clock, step) = (quanta::Clock::new(), Gcra::generous());
    let (rival, ours) = (rivals::direct(true), ours(true, None));
    let mut rows = Contended::default();
    rows.add("yardstick: GCRA step and time stamp counter", |n| {
        for _ in 0..n {
            assert!(black_box(step.allows(clock.raw())));
        }
    });
    rows.add(RIVAL, |n| {
        for _ in 0..n {
            assert!(black_box(rival.check().is_ok()));
        }
    });
    rows.add(OURS, |n| {
        for _ in 0..n {
            assert!(black_box(ours.try_acquire().is_allowed()));
        }
    });
    rows.add(OURS_ADMITS, |n| {
        for _ in 0..n {
            assert!(black_box(ours.admits(1)));
        }
    });
    rows.measure(pace)
}

fn ours(allowed: bool, clock: Option<ManualClock>) -> Limiter {
    let bucket = if allowed {
        TokenBucket::per_second(1_000_000_000).burst(1_000_000_000)
    } else {
        TokenBucket::per_hour(1)
    };
    let builder = bucket.limiter();
    let builder = match clock {
        Some(clock) => builder.clock(clock),
        None => builder,
    };
    let limiter = builder.build().expect("the quota is right");
    if !allowed {
        assert!(limiter.try_acquire().is_allowed());
    }
    limiter
}

fn sliding(allowed: bool) -> Limiter {
    let window =
        if allowed { SlidingWindow::per_second(1_000_000_000) } else { SlidingWindow::per_hour(1) };
    let limiter = window.limiter().clock(ManualClock::new()).build().expect("the quota is right");
    if !allowed {
        assert!(limiter.try_acquire().is_allowed());
    }
    limiter
}

fn measure(pace: Pace, allowed: bool) -> Measured {
    let clock = quanta::Clock::new();
    let count = AtomicU64::new(0);
    let gcra = || if allowed { Gcra::generous() } else { Gcra::spent() };
    let (bare_step, step) = (gcra(), gcra());
    let rival = rivals::direct(allowed);
    let ours_fast = ours(allowed, None);
    // Real time stands still; an idle bucket stays idle, or an empty one empty.
    let manual = ManualClock::new();
    manual.advance(Duration::from_secs(3_600));
    let ours_given = ours(allowed, Some(manual.clone()));
    let (ours_admits, given) = (ours(allowed, Some(ManualClock::new())), Cell::new(0));

    let (sliding, at) = (sliding(allowed), Cell::new(0));

    let mut rows = Rows::default();
    rows.add("yardstick: empty loop", |n| {
        for i in 0..n {
            black_box(i);
        }
    });
    rows.add("yardstick: one atomic addition", |n| {
        for _ in 0..n {
            black_box(count.fetch_add(1, Ordering::Relaxed));
        }
    });
    rows.add("yardstick: the time stamp counter alone", |n| {
        for _ in 0..n {
            black_box(clock.raw());
        }
    });
    rows.add(STEP, |n| {
        for i in 0..n {
            assert_eq!(black_box(bare_step.allows(black_box(i))), allowed);
        }
    });
    rows.add("yardstick: GCRA step and time stamp counter", |n| {
        for _ in 0..n {
            assert_eq!(black_box(step.allows(clock.raw())), allowed);
        }
    });
    rows.add(RIVAL, |n| {
        for _ in 0..n {
            assert_eq!(black_box(rival.check().is_ok()), allowed);
        }
    });
    rows.add(OURS, |n| {
        for _ in 0..n {
            assert_eq!(black_box(ours_fast.try_acquire().is_allowed()), allowed);
        }
    });
    rows.add(OURS_ADMITS, |n| {
        for _ in 0..n {
            assert_eq!(black_box(ours_fast.admits(1)), allowed);
        }
    });
    rows.add(OURS_ADMITS_GIVEN, |n| {
        // Each round begins with an idle bucket, or an empty one.
        given.set(given.get() + if allowed { 1_000_000_000 } else { 1 });
        let now = Nanos::new(given.get());
        for _ in 0..n {
            assert_eq!(black_box(ours_admits.admits_at(black_box(now), 1)), allowed);
        }
    });
    rows.add(OURS_SLIDING, |n| {
        at.set(at.get() + if allowed { 1_000_000_000 } else { 0 });
        for i in 0..n {
            let now = Nanos::new(at.get() + i);
            assert_eq!(black_box(sliding.admits_at(black_box(now), 1)), allowed);
        }
    });
    rows.add(OURS_GIVEN, |n| {
        // Each round begins with an idle bucket: time does not move while it is charged.
        if allowed {
            manual.advance(Duration::from_secs(1));
        }
        for _ in 0..n {
            assert_eq!(black_box(ours_given.try_acquire().is_allowed()), allowed);
        }
    });
    rows.measure(pace)
}
