//! [`Shared`]: the connection to the store, whether it is there, and the task that sees to it.
//!
//! Calls have a deadline and are made once. When the store fails, they stop: from then on nobody waits for it, and a
//! task in the background tries it until it takes writes again.

use std::{
    fmt,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use ahash::RandomState;
use redis::{Cmd, RedisError, Value};
use tokio::{sync::watch, time::timeout};

use super::{
    composed::Composed,
    failure::{Concern, Failure},
    fleet::Fleet,
    link::{Link, Source},
    script::{Script, Scripts},
    teller::Teller,
};
use crate::{
    BackendError, BackendErrorKind,
    event::StoreState,
    sync::{Mutex, lock},
};

pub(super) struct Shared {
    pub(super) source: Source,
    pub(super) scripts: Scripts,
    pub(super) composed: Composed,
    pub(super) teller: Teller,
    state: watch::Sender<StoreState>,
    link: Mutex<Option<Arc<dyn Link>>>,
    /// Calls that were late or answered oddly, one after another.
    odd: AtomicU32,
    /// Calls that are under way.
    pending: AtomicUsize,
    /// How often it went away.
    outages: AtomicU64,
    /// Checks that were decided without the store.
    pub(super) alone: AtomicU64,
    fleets: Mutex<Vec<Arc<Fleet>>>,
    /// The longest deadline of a rule.
    deadline: Mutex<Option<Duration>>,
    /// Where the store is tried: in a cluster in the slot that failed.
    probe: Mutex<String>,
    /// The last failure, for who waits until it is over.
    last: Mutex<Option<(BackendErrorKind, String)>>,
    was_up: AtomicBool,
}

/// After how many late or odd answers in a row a store counts as away: one may be chance.
const ODD: u32 = 3;

/// How long a try may take, with connecting and all, and a heartbeat: so many times the longest deadline, within these.
const TRY: u32 = 20;
const SHORTEST_TRY: Duration = Duration::from_millis(500);
const LONGEST_TRY: Duration = Duration::from_secs(2);

/// How often a store that is there is told that this process is, too.
const BEAT: Duration = Duration::from_secs(1);

/// How many commands wait to be written.
const PIPELINE: usize = 1_024;

impl Shared {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            scripts: Scripts::new(),
            composed: Composed::default(),
            teller: Teller::default(),
            state: watch::Sender::new(StoreState::Connecting),
            link: Mutex::new(None),
            odd: AtomicU32::new(0),
            pending: AtomicUsize::new(0),
            outages: AtomicU64::new(0),
            alone: AtomicU64::new(0),
            fleets: Mutex::new(Vec::new()),
            deadline: Mutex::new(None),
            probe: Mutex::new("{sluice}:probe".to_owned()),
            last: Mutex::new(None),
            was_up: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> StoreState {
        *self.state.borrow()
    }

    /// The processes that share the quotas under this prefix.
    pub(super) fn fleet(&self, prefix: &str) -> Arc<Fleet> {
        let mut fleets = lock(&self.fleets);
        if let Some(fleet) = fleets.iter().find(|fleet| fleet.prefix == prefix) {
            return Arc::clone(fleet);
        }
        let fleet = Arc::new(Fleet::new(prefix));
        fleets.push(Arc::clone(&fleet));
        fleet
    }

    /// Where to try the store, until a call fails.
    pub(super) fn probe_at(&self, prefix: &str) {
        *lock(&self.probe) = format!("{{{prefix}}}:probe");
    }

    /// A rule has these settings: where to try the store until a call fails, and how long its calls may take.
    pub(super) fn serves(&self, prefix: &str, deadline: Duration) {
        let mut longest = lock(&self.deadline);
        if longest.is_none() {
            self.probe_at(prefix);
        }
        *longest = Some(longest.map_or(deadline, |longest| longest.max(deadline)));
    }

    /// How long a try may take.
    fn longest_try(&self) -> Duration {
        let longest = lock(&self.deadline).unwrap_or_default().saturating_mul(TRY);
        longest.clamp(SHORTEST_TRY, LONGEST_TRY)
    }

    /// Why nobody is to wait for the store, if so.
    pub(super) fn away(&self) -> Option<BackendError> {
        match self.state() {
            StoreState::Away(kind) => Some(self.last_error(kind)),
            StoreState::Connecting | StoreState::Up => None,
        }
    }

    fn last_error(&self, kind: BackendErrorKind) -> BackendError {
        match &*lock(&self.last) {
            Some((kind, text)) => BackendError::new(*kind, text.clone()),
            None => BackendError::new(kind, "the store is away"),
        }
    }

    /// How often it went away.
    pub(super) fn outages(&self) -> u64 {
        self.outages.load(Ordering::Relaxed)
    }

    /// Waits until the store is there.
    pub(super) async fn ready(&self, longest: Duration) -> Result<(), BackendError> {
        let mut state = self.state.subscribe();
        // This holds a sender, so that the state does not end.
        let is_up =
            timeout(longest, state.wait_for(|state| *state == StoreState::Up)).await.is_ok();
        if is_up { Ok(()) } else { Err(self.last_error(BackendErrorKind::Unavailable)) }
    }

    /// Runs a script once, waits for the answer until its deadline, and reads it.
    pub(super) async fn call<T>(
        &self,
        script: &Script,
        cmd: Cmd,
        (deadline, most): (Duration, usize),
        key: &str,
        read: impl FnOnce(&Value) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if tokio::runtime::Handle::try_current().is_err() {
            let text = "called outside of a tokio runtime";
            return Err(Failure::new(BackendErrorKind::Unavailable, Concern::This, text));
        }
        let _pending = Pending::within(most, &self.pending)?;
        let mut link = None;
        let asked = async {
            let found = self.link().await?;
            let link = &**link.insert(found);
            script.run(link, &cmd).await.map_err(|error| Failure::of(&error))
        };
        let answer = match timeout(deadline, asked).await {
            Ok(answer) => answer.and_then(|answer| read(&answer)),
            Err(_) if link.is_none() => {
                let text = "not connected within the deadline";
                Err(Failure::new(BackendErrorKind::Unavailable, Concern::This, text))
            }
            // Too late for this rule says nothing of the store where others have longer.
            Err(_) if lock(&self.deadline).is_some_and(|longest| deadline < longest) => {
                Err(Failure { concerns: Concern::This, ..Failure::late() })
            }
            Err(_) => Err(Failure::late()),
        };
        match (&answer, &link) {
            (Ok(_), _) => self.is_well(),
            (Err(failure), Some(link)) => self.failed(failure, link, Some(key)),
            (Err(_), None) => {}
        }
        answer
    }

    async fn link(&self) -> Result<Arc<dyn Link>, Failure> {
        let mut state = None;
        loop {
            if let Some(link) = &*lock(&self.link) {
                return Ok(Arc::clone(link));
            }
            let state = match &mut state {
                // Looked at before the link is once more, or a link that came between the two is never seen.
                None => {
                    state.insert(self.state.subscribe()).borrow_and_update();
                    continue;
                }
                Some(state) => state,
            };
            let present = *self.state.borrow();
            if let StoreState::Away(kind) = present {
                return Err(Failure::new(kind, Concern::This, "the store is away"));
            }
            // A link is there before the state says so, and gone before.
            if state.changed().await.is_err() {
                return Err(Failure::new(BackendErrorKind::Unavailable, Concern::This, "given up"));
            }
        }
    }

    fn is_well(&self) {
        // Relaxed: a count; read first, so that calls do not share a line for nothing.
        if self.odd.load(Ordering::Relaxed) != 0 {
            self.odd.store(0, Ordering::Relaxed);
        }
    }

    /// A call on this connection has failed.
    fn failed(&self, failure: &Failure, link: &Arc<dyn Link>, key: Option<&str>) {
        match failure.concerns {
            Concern::All => {}
            Concern::Maybe if self.odd.fetch_add(1, Ordering::Relaxed) + 1 >= ODD => {}
            Concern::Maybe => return,
            Concern::This => {
                if failure.kind == BackendErrorKind::Foreign {
                    self.teller.fault(failure.fault(false));
                }
                return;
            }
        }
        let mut present = lock(&self.link);
        // What fails on a connection that is gone already says nothing of the one that is there.
        if present.as_ref().is_some_and(|present| Arc::ptr_eq(present, link)) {
            *present = None;
            drop(present);
            if let Some(key) = key {
                *lock(&self.probe) = format!("{key}:probe");
            }
            self.is_away(failure);
        }
    }

    fn is_up(&self, link: Arc<dyn Link>) {
        self.odd.store(0, Ordering::Relaxed);
        *lock(&self.link) = Some(link);
        self.was_up.store(true, Ordering::Relaxed);
        if self.state.send_replace(StoreState::Up) != StoreState::Up {
            self.teller.change(StoreState::Up, None);
        }
    }

    fn is_away(&self, failure: &Failure) {
        *lock(&self.last) = Some((failure.kind, failure.text.clone()));
        // As long as it is away it is so for what failed first: tries may fail for this and that.
        let is_news = self.state.send_if_modified(|state| {
            let is_news = !matches!(state, StoreState::Away(_));
            if is_news {
                *state = StoreState::Away(failure.kind);
            }
            is_news
        });
        if is_news {
            // Relaxed: tells one outage from another.
            self.outages.fetch_add(1, Ordering::Relaxed);
            self.teller.change(StoreState::Away(failure.kind), Some(&failure.error()));
        }
        self.teller.fault(failure.fault(!self.was_up.load(Ordering::Relaxed)));
    }

    /// Nobody sees to the connection any more: its runtime is gone, say.
    pub(super) fn is_forsaken(&self) {
        *lock(&self.link) = None;
        self.state.send_replace(StoreState::Connecting);
    }

    /// Sees to the connection for as long as it is polled.
    pub(super) async fn see_to(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        let mut pauses = Pauses::default();
        loop {
            if *state.borrow_and_update() == StoreState::Up {
                match timeout(BEAT, state.changed()).await {
                    Ok(_) => pause(pauses.first()).await,
                    Err(_) => self.beat().await,
                }
                continue;
            }
            if !self.try_all().await {
                pause(pauses.next()).await;
            }
        }
    }

    /// Looks for a server that takes writes; says whether there is one.
    async fn try_all(&self) -> bool {
        let mut last = None;
        for place in 0..self.source.places() {
            last = match timeout(self.longest_try(), self.try_one(place)).await {
                Ok(Ok(link)) => {
                    self.is_up(link);
                    return true;
                }
                Ok(Err(failure)) => Some(failure),
                Err(_) => Some(Failure::late()),
            }
        }
        // Not before all were tried: one of several is no primary, and that is no outage.
        if let Some(failure) = last {
            self.is_away(&failure);
        }
        false
    }

    async fn try_one(&self, place: usize) -> Result<Arc<dyn Link>, Failure> {
        let failed = |error: RedisError| Failure::of(&error);
        let link =
            self.source.connect(place, PIPELINE, self.longest_try()).await.map_err(failed)?;
        let probe = self.scripts.probe.on(&[&*lock(&self.probe)]);
        self.scripts.probe.run(&*link, &probe).await.map_err(failed)?;
        // Once more, as fast as calls must be: else they would find out, one by one.
        let deadline = lock(&self.deadline).unwrap_or(LONGEST_TRY);
        let again = timeout(deadline, self.scripts.probe.run(&*link, &probe)).await;
        again.map_err(|_| Failure::late())?.map_err(failed)?;
        self.load_scripts(&*link).await;
        // What is wrong with that is no reason not to count.
        let _ = self.count_instances(&*link).await;
        Ok(link)
    }

    /// Sends all scripts at once. Where that is not allowed, each is sent when it is first wanted.
    async fn load_scripts(&self, link: &dyn Link) {
        let composed = self.composed.all();
        let composed = composed.iter().map(|script| &**script);
        let loads: Vec<Cmd> =
            self.scripts.all().into_iter().chain(composed).map(Script::load).collect();
        let mut answers: Vec<_> = loads.iter().map(|load| Some(link.send(load))).collect();
        poll_fn(|cx| {
            for answer in &mut answers {
                if answer.as_mut().is_some_and(|answer| answer.as_mut().poll(cx).is_ready()) {
                    *answer = None;
                }
            }
            if answers.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Tells that this process is there, and finds out whether the store is, also where nobody calls.
    async fn beat(&self) {
        let link = lock(&self.link).clone();
        let Some(link) = link else { return };
        let failed = match timeout(self.longest_try(), self.count_instances(&*link)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Failure::of(&error),
            Err(_) => {
                let text = "no answer to a heartbeat";
                Failure::new(BackendErrorKind::Timeout, Concern::All, text)
            }
        };
        self.failed(&failed, &link, None);
    }

    async fn count_instances(&self, link: &dyn Link) -> Result<(), RedisError> {
        let fleets = lock(&self.fleets).clone();
        if fleets.is_empty() {
            link.send(&redis::cmd("PING")).await?;
        }
        for fleet in fleets {
            let cmd = fleet.beat(&self.scripts.instances);
            if let Value::Int(instances) = self.scripts.instances.run(link, &cmd).await? {
                fleet.counted(instances);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("source", &self.source)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A call that is under way.
struct Pending<'a>(&'a AtomicUsize);

impl<'a> Pending<'a> {
    fn within(most: usize, pending: &'a AtomicUsize) -> Result<Self, Failure> {
        // Relaxed: a count, nothing is read through it.
        let before = pending.fetch_add(1, Ordering::Relaxed);
        let this = Self(pending);
        if before < most {
            return Ok(this);
        }
        let text = format!("{most} calls are under way already");
        Err(Failure::new(BackendErrorKind::Overloaded, Concern::This, text))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a store is in real time, whatever a layer's clock is"
)]
pub(super) async fn pause(pause: Duration) {
    tokio::time::sleep(pause).await;
}

/// Pauses between tries, no two alike, so that a fleet does not come back all at once.
#[derive(Default)]
struct Pauses(RandomState, u64);

impl Pauses {
    fn random(&mut self, below: u64) -> u64 {
        self.1 += 1;
        self.0.hash_one(self.1) % below
    }

    /// After it has failed.
    fn first(&mut self) -> Duration {
        Duration::from_millis(50 + self.random(100))
    }

    fn next(&mut self) -> Duration {
        Duration::from_millis(500 + self.random(200))
    }
}
