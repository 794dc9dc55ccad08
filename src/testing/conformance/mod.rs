//! [`Conformance`]: whether a backend keeps what [`Backend`] promises.

mod charges;
mod keys;
mod limits;
mod model;
mod report;
mod time;
mod trial;
mod undo;

use std::{fmt, sync::Arc, time::Duration};

pub use self::report::{Finding, Report};
use self::{
    report::Found,
    trial::{Make, Stop, Trial, Tried, caught},
};
use crate::{
    Algorithm, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, StartLevel, TokenBucket,
    backend::Backend, clock::BoxFuture,
};

/// The checks that every backend has to pass: whether it keeps what [`Backend`] promises.
///
/// What is expected comes from the definitions of the [algorithms](crate::algorithm), each played through in the slow
/// way. A backend that answers wrongly, with too few verdicts, with an error or by a panic has failed that check, and
/// the next goes on. What [`register`](Backend::register) refuses is refused and no failure, unless it refuses
/// everything.
///
/// ```
/// use tower_sluice::{backend::Local, testing::Conformance};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let report = Conformance::of(Local::new).run().await;
/// report.assert_passed();
/// # });
/// ```
///
/// The example `own_backend` runs them on a backend that answers later and counts fixed windows alone.
///
/// # What is checked
///
/// | of | promises |
/// | --- | --- |
/// | one charge | the limit and no more; `limit`, `remaining` and `retry_after` to the tick; a cost of zero, one that never fits; a denial changes nothing; a long timeline by the definition |
/// | several charges | a verdict for each, in order; all or none; two on one key count together; departures within the longest wait; many checks under way at once |
/// | keys | keys, limiters and quotas are counted apart, also by peek and reset; peek changes nothing; reset forgets |
/// | undo | never a gift: at once, of two charges, after later charges, after a reset, after a new quota |
/// | time | going backwards, standing for long, thirty years on; windows aligned in UTC |
/// | register | refuses a quota of nothing; a new quota holds, and what is spent stays spent |
///
/// # What is not
///
/// - Whether an undo gives anything back: it is best effort.
/// - [`reset_after`](crate::Decision::reset_after), a hint; of a peek, whether `remaining` counts the charge.
/// - Warm-ups and start levels, of which there is no second definition here: they are reported as not tried.
/// - How a store is reached: its outages, deadlines and lost answers. Whether calls from several threads or processes
///   are atomic: checks are under way together, but polled by one task.
/// - How many keys it keeps and [tells of](Backend::tracked_keys), and what it does above that.
/// - A new quota with another period: what becomes of what was spent under the old one.
///
/// No check takes real time, since each call is told what time it is. A backend that never answers lets the suite
/// wait: put a timeout around it.
pub struct Conformance {
    make: Arc<Make>,
    tick: u64,
    algorithms: Vec<Algorithm>,
}

impl Conformance {
    /// The checks of the backends that `make` makes: each time a new one, which shares nothing with another.
    ///
    /// It is called for each check, and by some checks many times. A backend in a store may share its connection with
    /// the others, say, and have a prefix of its own for its keys.
    ///
    /// What is given as the time is not the store's own: where that forgets by its own clock, the quotas' periods must
    /// be longer than a check lasts, as the default ones are.
    #[must_use]
    pub fn of<B: Backend>(make: impl Fn() -> B + Send + Sync + 'static) -> Self {
        let make = Arc::new(move || Arc::new(make()) as Arc<dyn Backend>);
        Self { make, tick: 1, algorithms: usual() }
    }

    /// Sets how fine the backend's clock is. Default: a nanosecond.
    ///
    /// Waits are compared in whole ticks, rounded up, and every instant given is a multiple of it. Zero counts as a
    /// nanosecond. The algorithms' periods must be many ticks.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{backend::Local, testing::Conformance};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// // As for a store that counts microseconds.
    /// let microsecond = Duration::from_micros(1);
    /// Conformance::of(Local::new).tick(microsecond).run().await.assert_passed();
    /// # });
    /// ```
    #[must_use]
    pub fn tick(self, tick: Duration) -> Self {
        let tick = u64::try_from(tick.as_nanos()).map_or(u64::MAX, |tick| tick.max(1));
        Self { tick, ..self }
    }

    /// Sets which algorithms are tried. Default: token buckets with and without a burst and of a rate that does not
    /// divide, leaky buckets, fixed windows from the first request and aligned, sliding windows and logs.
    ///
    /// ```
    /// use tower_sluice::{Algorithm, Calendar, FixedWindow, backend::Local, testing::Conformance};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let of_the_calendar = [Calendar::Day, Calendar::IsoWeek, Calendar::Month]
    ///     .map(|calendar| Algorithm::from(FixedWindow::calendar(5, calendar)));
    /// Conformance::of(Local::new).algorithms(of_the_calendar).run().await.assert_passed();
    /// # });
    /// ```
    #[must_use]
    pub fn algorithms(self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        Self { algorithms: algorithms.into_iter().collect(), ..self }
    }

    /// Runs all checks on all algorithms.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the backend under way as it is, and nothing else.
    pub async fn run(self) -> Report {
        let mut findings = Vec::new();
        let mut is_any_tried = false;
        for algorithm in self.algorithms.iter().copied() {
            let name = named(&algorithm);
            let finding = |check, found| Finding { check, algorithm: name.clone(), found };
            if let Some(reason) = unknown(&algorithm) {
                findings.push(finding("is known to these checks", Found::NotTried(reason.into())));
                continue;
            }
            let trial = Trial { make: &*self.make, algorithm, tick: self.tick };
            // What is refused as a whole is told once.
            if let Err(Stop::Refused(error)) = caught(Box::pin(is_counted(&trial))).await {
                findings.push(finding("is counted", Found::Refused(error.to_string())));
                continue;
            }
            is_any_tried = true;
            for (check, run) in CHECKS {
                findings.push(match caught(run(&trial)).await {
                    Ok(()) => finding(check, Found::Passed),
                    Err(Stop::Broken(failure)) => finding(check, Found::Failed(failure)),
                    Err(Stop::Refused(error)) => finding(check, Found::Refused(error.to_string())),
                    Err(Stop::Pointless) => continue,
                });
            }
        }
        if !is_any_tried {
            let failure = "expected one algorithm at least that is counted, got none".to_owned();
            let (check, algorithm) = ("counts anything", "all".to_owned());
            findings.push(Finding { check, algorithm, found: Found::Failed(failure) });
        }
        Report { findings }
    }
}

impl fmt::Debug for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("tick", &Duration::from_nanos(self.tick))
            .field("algorithms", &self.algorithms)
            .finish_non_exhaustive()
    }
}

async fn is_counted(trial: &Trial<'_>) -> Tried {
    trial.limited()?;
    Ok(())
}

type Check = for<'t> fn(&'t Trial<'_>) -> BoxFuture<'t, Tried>;

/// All checks, by the promise each is of.
const CHECKS: [(&str, Check); 34] = [
    ("allows the limit, then denies", |t| Box::pin(limits::allows_the_limit(t))),
    ("counts without keys", |t| Box::pin(limits::without_keys(t))),
    ("says the limit of the quota", |t| Box::pin(limits::says_the_limit(t))),
    ("remaining counts the charge", |t| Box::pin(limits::remaining_counts(t))),
    ("retry_after is exact", |t| Box::pin(limits::retry_after_is_exact(t))),
    ("keeps to the definition", |t| Box::pin(limits::keeps_to_the_definition(t))),
    ("a cost of zero changes nothing", |t| Box::pin(limits::zero_changes_nothing(t))),
    ("a cost above the limit never fits", |t| Box::pin(limits::too_much_never_fits(t))),
    ("a denied check changes nothing", |t| Box::pin(limits::denied_changes_nothing(t))),
    ("a verdict for each charge, in order", |t| Box::pin(charges::one_verdict_a_charge(t))),
    ("all charges are made, or none", |t| Box::pin(charges::all_or_none(t))),
    ("charges on one key count together", |t| Box::pin(charges::one_key_counts_together(t))),
    ("checks at once stay within the limit", |t| Box::pin(charges::at_once_within_the_limit(t))),
    ("checks at once are made whole", |t| Box::pin(charges::at_once_whole_or_not(t))),
    ("departs within the longest wait", |t| Box::pin(charges::departs_in_time(t))),
    ("keys are counted apart", |t| Box::pin(keys::keys_apart(t))),
    ("limiters are counted apart", |t| Box::pin(keys::limiters_apart(t))),
    ("quotas are counted apart", |t| Box::pin(keys::quotas_apart(t))),
    ("peek says what a check would get", |t| Box::pin(keys::peek_says(t))),
    ("peek changes nothing", |t| Box::pin(keys::peek_changes_nothing(t))),
    ("reset forgets a key", |t| Box::pin(keys::reset_forgets(t))),
    ("undo is no gift", |t| Box::pin(undo::is_no_gift(t))),
    ("undo of two charges is no gift", |t| Box::pin(undo::of_two_is_no_gift(t))),
    ("undo after later charges is no gift", |t| Box::pin(undo::later_charges_stay(t))),
    ("undo after a reset is no gift", |t| Box::pin(undo::reset_ends_receipts(t))),
    ("undo after a new quota is no gift", |t| Box::pin(undo::new_quota_keeps_receipts(t))),
    ("time that goes backwards gives nothing", |t| Box::pin(time::backwards_gives_nothing(t))),
    ("idleness earns the limit at most", |t| Box::pin(time::idleness_earns_the_limit(t))),
    ("far instants do not overflow", |t| Box::pin(time::far_instants(t))),
    ("windows are aligned in UTC", |t| Box::pin(time::aligned_in_utc(t))),
    ("a new quota keeps what is spent", |t| Box::pin(time::keeps_what_is_spent(t))),
    ("a new quota holds", |t| Box::pin(time::new_quota_holds(t))),
    ("a quota of nothing is refused", |t| Box::pin(keys::refuses_nothing(t))),
    ("backends are told apart", |t| Box::pin(keys::backends_apart(t))),
];

/// What is tried unless told otherwise. All are exact in nanoseconds, and in ticks up to a millisecond. What is spent
/// comes back in ten seconds or more, so that no store forgets it while a check is under way.
fn usual() -> Vec<Algorithm> {
    let seconds = Duration::from_secs;
    vec![
        TokenBucket::per_minute(5).into(),
        TokenBucket::per_minute(60).burst(10).into(),
        TokenBucket::per_hour(100_000).burst(1_000).into(),
        // Permits come back at no whole number of nanoseconds.
        TokenBucket::new(7, seconds(30)).into(),
        TokenBucket::new(2, seconds(365 * 86_400)).into(),
        LeakyBucket::per_minute(4).into(),
        LeakyBucket::new(3, seconds(40)).into(),
        FixedWindow::per_minute(5).into(),
        FixedWindow::per_minute(12).aligned().into(),
        SlidingWindow::per_minute(10).into(),
        SlidingWindow::new(3, seconds(20)).into(),
        SlidingLog::per_minute(4).into(),
    ]
}

/// Why the checks know nothing of this.
fn unknown(algorithm: &Algorithm) -> Option<&'static str> {
    let starts_full = match algorithm {
        Algorithm::TokenBucket(bucket) => bucket.start_level() == StartLevel::Full,
        _ => true,
    };
    if algorithm.warm_up().is_some() {
        Some("these checks have no definition of a warm-up")
    } else if !starts_full {
        Some("these checks have no definition of a start level")
    } else {
        None
    }
}

/// The algorithm with its quota, for a line of the report.
fn named(algorithm: &Algorithm) -> String {
    let quota = algorithm.quota().to_string();
    // The rest has no burst of its own.
    let rate = quota.split(" burst").next().unwrap_or(&quota);
    match algorithm {
        Algorithm::TokenBucket(_) => format!("token bucket {quota}"),
        Algorithm::LeakyBucket(_) => format!("leaky bucket {rate}"),
        Algorithm::FixedWindow(window) => match window.calendar_unit() {
            Some(unit) => format!("fixed window {}/{unit:?}", algorithm.quota().permits()),
            None if window.is_aligned() => format!("fixed window {rate}, aligned"),
            None => format!("fixed window {rate}"),
        },
        Algorithm::SlidingWindow(_) => format!("sliding window {rate}"),
        Algorithm::SlidingLog(_) => format!("sliding log {rate}"),
    }
}
