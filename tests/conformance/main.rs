//! The checks for backends: `Local` passes them, and each of them catches a backend that breaks its promise.

mod wrong;

use std::collections::BTreeSet;
use std::time::Duration;

use tower_sluice::{
    Algorithm, BackendErrorKind, Calendar, FixedWindow, StartLevel, TokenBucket, WarmUp,
    backend::Local,
    testing::{Conformance, FailingBackend, Report},
};

use crate::wrong::{FAULTS, Fault, Wrong};

#[tokio::test]
async fn local_passes_with_every_algorithm() {
    let report = Conformance::of(Local::new).run().await;
    report.assert_passed();
    for kind in ["token", "leaky", "fixed", "sliding window", "sliding log"] {
        let passed = report.findings().iter().filter(|found| found.algorithm().starts_with(kind));
        assert!(passed.count() >= 30, "{kind}");
    }
    assert!(report.findings().iter().all(|found| found.refusal().is_none()));
}

#[tokio::test]
async fn local_passes_in_ticks_of_a_coarser_clock() {
    for tick in [Duration::from_micros(1), Duration::from_millis(1)] {
        Conformance::of(Local::new).tick(tick).run().await.assert_passed();
    }
}

#[tokio::test]
async fn local_passes_by_the_calendar_and_with_odd_quotas() {
    let seconds = Duration::from_secs;
    let algorithms: [Algorithm; 6] = [
        FixedWindow::calendar(3, Calendar::Day).into(),
        FixedWindow::calendar(30, Calendar::IsoWeek).into(),
        FixedWindow::calendar(5, Calendar::Month).into(),
        TokenBucket::new(1, seconds(365 * 86_400)).into(),
        TokenBucket::new(1_000_000_000, seconds(1)).into(),
        TokenBucket::new(999, seconds(7)).burst(1).into(),
    ];
    Conformance::of(Local::new).algorithms(algorithms).run().await.assert_passed();
}

#[test]
fn a_run_goes_to_any_thread() {
    fn is_send(_: &impl Send) {}
    is_send(&Conformance::of(Local::new).run());
}

/// Whether a check of this name failed.
fn fails(report: &Report, check: &str) -> bool {
    report.failures().any(|failure| failure.check() == check)
}

#[tokio::test]
async fn each_wrong_backend_is_caught_by_name() {
    for (fault, check) in FAULTS {
        let report = Conformance::of(move || Wrong::new(fault)).run().await;
        assert!(fails(&report, check), "{fault:?} passes {check:?}:\n{report}");
        let is_plain = |text: &str| text.contains("expected") || text.contains("got");
        assert!(report.failures().all(|failure| is_plain(failure.failure().unwrap())));
    }
}

#[tokio::test]
async fn the_wrapper_without_a_fault_passes() {
    Conformance::of(|| Wrong::new(Fault::None)).run().await.assert_passed();
}

#[tokio::test]
async fn each_check_catches_something() {
    let report = Conformance::of(Local::new).run().await;
    let checks: BTreeSet<_> = report.findings().iter().map(|found| found.check()).collect();
    let caught: BTreeSet<_> = FAULTS.iter().map(|(_, check)| *check).collect();
    assert_eq!(checks, caught);
}

#[tokio::test]
async fn what_is_refused_is_no_failure_unless_it_is_all() {
    let report = Conformance::of(|| Wrong::new(Fault::CountsWindowsAlone)).run().await;
    report.assert_passed();
    let refusals = report.findings().iter().filter(|found| found.refusal().is_some()).count();
    assert_eq!(refusals, 10);
    let text = report.to_string();
    assert!(text.contains("is counted: sliding log 4/min: refused: algorithm = "), "{text}");
    assert_eq!(text.lines().count(), report.findings().len());

    let bucket = [TokenBucket::per_second(5).into()];
    let windows = Conformance::of(|| Wrong::new(Fault::CountsWindowsAlone)).algorithms(bucket);
    let report = windows.run().await;
    assert!(!report.is_passed());
    assert!(fails(&report, "counts anything"));
}

#[tokio::test]
async fn what_has_no_second_definition_is_not_tried() {
    let cold = TokenBucket::per_second(5).warm_up(WarmUp::over(Duration::from_secs(30)));
    let empty = TokenBucket::per_second(5).start(StartLevel::Empty);
    let known = TokenBucket::per_second(5);
    let algorithms = [cold.into(), empty.into(), known.into()];
    let report = Conformance::of(Local::new).algorithms(algorithms).run().await;
    report.assert_passed();
    assert_eq!(report.to_string().matches(": not tried: these checks have no").count(), 2);

    // And if nothing is, nobody may take it for a pass.
    let report = Conformance::of(Local::new).algorithms([cold.into()]).run().await;
    assert!(fails(&report, "counts anything"));
    assert!(fails(&Conformance::of(Local::new).algorithms([]).run().await, "counts anything"));
}

#[tokio::test]
async fn a_panic_or_an_error_fails_a_check_and_ends_nothing() {
    let window = [FixedWindow::per_minute(5).into()];
    let wrong = Conformance::of(|| Wrong::new(Fault::PanicsFarOut)).algorithms(window);
    let report = wrong.run().await;
    let failures: BTreeSet<_> = report.failures().map(|failure| failure.check()).collect();
    assert_eq!(failures, BTreeSet::from(["far instants do not overflow"]));
    assert!(
        report.failures().all(|failure| failure.failure().unwrap().contains("a panic: far out"))
    );

    let away = || FailingBackend::new(BackendErrorKind::Unavailable);
    let report = Conformance::of(away).run().await;
    assert!(fails(&report, "allows the limit, then denies"));
}

#[tokio::test]
#[should_panic(expected = "retry_after is exact: sliding log 4/min: FAILED: ")]
async fn assert_passed_names_what_failed() {
    Conformance::of(|| Wrong::new(Fault::WaitsTooShort)).run().await.assert_passed();
}
