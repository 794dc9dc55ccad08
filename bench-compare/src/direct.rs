//! One limit for all callers, without HTTP.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tower_sluice::{Limiter, ManualClock, TokenBucket};

use crate::{
    harness::{Measured, Pace, Rows},
    report::Report,
    rivals,
    yardstick::Gcra,
};

const RIVAL: &str = "governor, default clock";
const OURS: &str = "**ours**, default clock";
const OURS_GIVEN: &str = "**ours**, time given";

pub fn run(pace: Pace, report: &mut Report) {
    report.heading("One limit, no key, without HTTP");
    report.table(&["allowed", "ns", "of governor", "target"]);
    let allowed = measure(pace, true);
    table(&allowed, report, "allowed", 1.03, 0.50);
    report.table(&["denied", "ns", "of governor", "target"]);
    let denied = measure(pace, false);
    table(&denied, report, "denied", 1.03, 0.40);
}

fn table(measured: &Measured, report: &mut Report, what: &str, fast: f64, given: f64) {
    for name in measured.names() {
        let ratio = measured.ratio(name, RIVAL);
        let at_most = match name {
            OURS => Some(fast),
            OURS_GIVEN => Some(given),
            _ => None,
        };
        let target = at_most.map_or_else(String::new, |at_most| {
            report.target(&format!("{name}, {what}"), ratio.median, at_most, "")
        });
        let ns = measured.ns(name).text(1);
        report.row(&[name.into(), ns, ratio.text(2), target]);
    }
    report.end_table();
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
    rows.add("yardstick: GCRA step, time given", |n| {
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
