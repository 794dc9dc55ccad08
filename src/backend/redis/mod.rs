//! [`Redis`]: one quota for a fleet, counted in Redis or Valkey.
//!
//! What is where: `counted` makes of a quota what the scripts of `lua/` take, `names` calls keys, `asked` makes ready one
//! charge and reads what it got, `calls` makes the calls, for which `composed` has scripts. `shared` is the connection,
//! whether it is there and the task that sees to it, by means of `link`, `script`, `failure` and `teller`. `away` decides
//! without the store, `fleet` knows how many share, `front` keeps floods from the store; `options` are a handle's settings,
//! `limiter` is what `register` makes by them.

mod asked;
mod away;
mod calls;
mod composed;
mod counted;
mod failure;
mod fleet;
mod front;
mod limiter;
mod link;
mod names;
mod options;
mod script;
mod shared;
mod teller;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
    time::Duration,
};

use ::redis::{IntoConnectionInfo, Value, aio::ConnectionLike};
use smallvec::SmallVec;

use self::{
    asked::{Asked, Charged},
    away::{Away, of_share},
    failure::Failure,
    fleet::Instances,
    limiter::Limiter,
    link::Source,
    names::Digest,
    options::Options,
    shared::Shared,
};
use super::{Answer, Backend, Charge, LimiterId, LimiterSpec, Local, Receipt, Verdicts};
use crate::{
    BackendError, BackendErrorKind, ConfigError, Decision, Observer,
    clock::Nanos,
    event::{Fault, StoreState},
    sync::{Mutex, lock},
};

/// One quota for a fleet, counted in Redis or Valkey. With the feature `redis`.
///
/// Rules of one name under one [prefix](Self::prefix) share their count, in whatever process and layer they are. All
/// that count for one request are asked about in one call, and either all are charged or none. Decisions, `remaining`
/// and `retry_after` are those of [`Local`], to the microsecond; what cannot be counted so is an error when the layer
/// is built. What each mode guarantees, sizing and what to set on the server: [`guide::redis`](crate::guide::redis).
///
/// ```
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, backend::Redis, key};
///
/// # fn main() -> Result<(), tower_sluice::ConfigError> {
/// let shared = Redis::new("redis://127.0.0.1/")?;
/// let layer = RateLimitLayer::builder()
///     .backend(shared.clone())
///     .rule(Rule::new("per-user", TokenBucket::per_second(10).burst(20)).key(key::client_ip()))
///     // Nobody pays twice because a store was away.
///     .rule(Rule::new("payments", TokenBucket::per_second(50)).backend(shared.refuse()))
///     .build()?;
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// # When the store is away
///
/// It connects in the background, never blocks a start, and needs no restart when the store comes back or moves. A call
/// waits for its [`deadline`](Self::deadline), 10 ms, and is never sent twice. When the connection breaks, the store
/// cannot write, or three answers in a row are late, nobody waits any more: each rule decides by its mode, and a task in
/// the background tries the store twice a second until it takes writes. Each going and coming is one event
/// of [`Observer::store_changed`] and one log line.
///
/// | mode | while the store is away | for |
/// | --- | --- | --- |
/// | [`local_share`](Self::local_share), the default | counts in the process, against quota / instances | most |
/// | [`admit`](Self::admit) | lets all pass, uncounted | what must be up at any price |
/// | [`refuse`](Self::refuse) | 503, or [`Rule::while_away`](crate::Rule::while_away) | payments, codes, what must not be doubled |
///
/// # Handles
///
/// Clones share the connection and what they count. A setting is that of a handle: rules keep the settings that their
/// handle had when the layer was built, so that each rule can have a mode of its own, as above.
///
/// # Without a runtime
///
/// Building needs none. Calls run on the tokio runtime of whoever asks first, which must have its timer and IO enabled and
/// be driven as long as the handle is used. On tokio's paused time every call is late: tests count in the process, or by a
/// real store in real time.
#[derive(Clone)]
pub struct Redis {
    store: Arc<Store>,
    options: Arc<Options>,
}

struct Store {
    shared: Arc<Shared>,
    limiters: RwLock<Vec<Arc<Limiter>>>,
    /// What counts shares while the store is away.
    shares: Local,
    /// What sees to the connection.
    task: Mutex<Option<tokio::task::AbortHandle>>,
}

impl Redis {
    /// One server by its URL: `redis://[user:password@]host[:port][/database]`, `redis+unix:///path`, or `rediss://` with
    /// TLS, for which the crate `redis` needs one of its TLS features in your own `Cargo.toml`.
    ///
    /// # Errors
    ///
    /// If that is no URL of a server. Whether there is one shows later: it is no error that nobody listens.
    pub fn new(url: impl IntoConnectionInfo) -> Result<Self, ConfigError> {
        Self::any_of([url])
    }

    /// The first of these servers that takes writes: a primary and those that may become one. Which it is is found out
    /// anew whenever the connection breaks or turns out to be a replica's.
    ///
    /// ```
    /// use tower_sluice::backend::Redis;
    ///
    /// let shared = Redis::any_of(["redis://10.0.0.5/", "redis://10.0.0.6/"])?;
    /// # let _ = shared;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If one is no URL of a server, or there is none.
    pub fn any_of<T: IntoConnectionInfo>(
        urls: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        Ok(Self::with(Source::servers(urls)?))
    }

    /// A Redis Cluster, by some of its nodes. With the feature `redis-cluster`.
    ///
    /// One call goes to one slot. The limits of one key lie in one, as do all limits without a key; those of a request in
    /// several slots are asked one after another, and a refusal undoes what was charged before, as far as that is no
    /// gift. While a node is away all rules go by their mode for it.
    ///
    /// # Errors
    ///
    /// If one is no URL of a server, or there is none.
    #[cfg(feature = "redis-cluster")]
    pub fn cluster<T: IntoConnectionInfo>(
        urls: impl IntoIterator<Item = T>,
    ) -> Result<Self, ConfigError> {
        Ok(Self::with(Source::cluster(urls)?))
    }

    /// A connection of your own to one server, whose clones share one pipeline: the driver's `ConnectionManager` or
    /// `MultiplexedConnection`.
    ///
    /// The latter does not connect again: after an outage its rules stay away. Retries of your own must not send a call
    /// twice. For a cluster there is [`cluster`](Self::cluster).
    ///
    /// ```
    /// use tower_sluice::backend::Redis;
    ///
    /// # async fn connected() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let shared = Redis::from_connection(client.get_multiplexed_async_connection().await?);
    /// # let _ = shared;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::with(Source::given(connection))
    }

    fn with(source: Source) -> Self {
        let store = Store {
            shared: Arc::new(Shared::new(source)),
            limiters: RwLock::default(),
            shares: Local::new(),
            task: Mutex::new(None),
        };
        Self { store: Arc::new(store), options: Arc::default() }
    }

    /// What all keys begin with, 1 to 64 of `A-Z a-z 0-9 _ . - : /`. Default: `sluice`. Rules of one name share their
    /// count under one prefix, so services that share a server want one each.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.options().prefix = Arc::from(prefix.into());
        self
    }

    /// How long a call may take, with waiting for a connection. Default: 10 ms; the timer's steps of a millisecond are
    /// added to it. What is not answered by then may have been charged, and is not asked again.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.options().deadline = deadline;
        self
    }

    /// How many calls may be under way at once. Default: 1,024. Beyond that a rule decides by its mode for a store that
    /// is away.
    #[must_use]
    pub fn pipeline(mut self, calls: usize) -> Self {
        self.options().pipeline = calls;
        self
    }

    /// While the store is away, counts in the process against quota / instances. This is the default.
    ///
    /// All together then admit at most the quota, as long as the number of instances is right, and no quota is less
    /// than a permit for each. Store and shares are two counts: across the change each may give a burst. How many there are comes from heartbeats through the store, unless it is
    /// [told](Self::instances). The count is kept from one outage to the next, so that a store which comes and goes gives
    /// nobody a burst each time. A rule that [queues](crate::RejectionPolicy::queue) asks its share again.
    #[must_use]
    pub fn local_share(mut self) -> Self {
        self.options().away = Away::LocalShare;
        self
    }

    /// While the store is away, lets all pass, uncounted.
    #[must_use]
    pub fn admit(mut self) -> Self {
        self.options().away = Away::Admit;
        self
    }

    /// While the store is away, refuses all with 503, or by the policy that [`Rule::while_away`](crate::Rule::while_away)
    /// says.
    #[must_use]
    pub fn refuse(mut self) -> Self {
        self.options().away = Away::Refuse;
        self
    }

    /// How many processes share the quotas. Default: those whose heartbeats the store has counted in the last five
    /// seconds, one a second from each process, and the last such count while the store is away.
    ///
    /// Where a rule counts its share and nobody knows yet, [SL-SHARE](Fault::Share) says so and it takes itself for the
    /// only one.
    #[must_use]
    pub fn instances(mut self, instances: u32) -> Self {
        self.options().instances = Instances::Fixed(instances);
        self
    }

    /// The same from whoever knows: service discovery, say. Asked for each request while the store is away, and always where
    /// there is a [`share`](Self::share), so it must not block. Zero is: nobody knows. In one outage a share does not grow.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// use tower_sluice::backend::Redis;
    ///
    /// /// Set by what watches the deployment.
    /// static REPLICAS: AtomicU32 = AtomicU32::new(1);
    ///
    /// let shared = Redis::new("redis://127.0.0.1/")?.instances_from(|| REPLICAS.load(Relaxed));
    /// # let _ = shared;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    #[must_use]
    pub fn instances_from(mut self, instances: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        self.options().instances = Instances::From(Arc::new(instances));
        self
    }

    /// Keeps floods from the store: this process alone may spend at most `factor` times its even part of each quota, from
    /// 1.0 to 1000.0, and [remembers](Self::remember_refusals) who is refused. Default: neither.
    ///
    /// What exceeds that is refused here, so the factor says how uneven load may be: with 1.2 and four instances no
    /// process can spend more than 30 % of a quota, be the others idle. A charge of more than the share's burst is asked of the
    /// store alone, and one that is undone stays spent of the share. Where the number of
    /// [instances](Self::instances) is not known yet it is taken for one. Requests that may
    /// [wait](crate::RejectionPolicy::queue) are told by the store alone.
    #[must_use]
    pub fn share(mut self, factor: f64) -> Self {
        self.options().share = Some(factor);
        self
    }

    /// Remembers until when the store refuses a key, so that a flood by one caller costs one call each time his quota
    /// opens. Default: each request asks. Up to 8,192 keys a rule, each for at most ten seconds: by then a process sees
    /// that another has reset a key or raised a limit.
    #[must_use]
    pub fn remember_refusals(mut self) -> Self {
        self.options().remembers = true;
        self
    }

    /// Tells `observer` of changes of the store, and of what is wrong with its set-up. Of the connection, so for all
    /// clones.
    ///
    /// ```
    /// use tower_sluice::{Observer, backend::Redis, event::{StoreChanged, StoreState}};
    ///
    /// struct Page;
    ///
    /// impl Observer for Page {
    ///     fn store_changed(&self, changed: &StoreChanged<'_>) {
    ///         if let StoreState::Away(kind) = changed.state() {
    ///             eprintln!("limits are counted alone: {kind:?}");
    ///         }
    ///     }
    /// }
    ///
    /// let shared = Redis::new("redis://127.0.0.1/")?.observer(Page);
    /// # let _ = shared;
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    #[must_use]
    pub fn observer(self, observer: impl Observer) -> Self {
        self.store.shared.teller.add(Arc::new(observer));
        self
    }

    /// Does not tell of this fault. Of the connection, so for all clones.
    #[must_use]
    pub fn silence(self, fault: Fault) -> Self {
        self.store.shared.teller.silence(fault);
        self
    }

    /// Counts by the time that each call is given instead of the server's, as
    /// [`Conformance`](crate::testing::Conformance) and tests on a [`ManualClock`](crate::ManualClock) want it. State
    /// still expires by the server's. With the feature `test-util`.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn by_given_time(mut self) -> Self {
        self.options().is_given_time = true;
        self
    }

    /// Whether the store is there, and if not, what failed when it went away.
    #[must_use]
    pub fn state(&self) -> StoreState {
        self.store.shared.state()
    }

    /// How many requests were decided without the store so far: all while it was away, and those whose own call was late
    /// or had no place in the [`pipeline`](Self::pipeline). Of the connection, so of all clones.
    ///
    /// ```
    /// use tower_sluice::backend::Redis;
    ///
    /// let shared = Redis::new("redis://127.0.0.1/")?;
    /// assert_eq!(shared.decided_alone(), 0);
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// ```
    #[must_use]
    pub fn decided_alone(&self) -> u64 {
        self.store.shared.alone.load(Ordering::Relaxed)
    }

    /// Waits until the store has been reached and takes writes. Nothing needs it: to be called before a service
    /// announces itself, say, or in a test.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sluice::{BackendErrorKind, backend::Redis};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// // Nobody listens there.
    /// let shared = Redis::new("redis://127.0.0.1:1/")?;
    /// let error = shared.ready(Duration::from_millis(50)).await.unwrap_err();
    /// assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    /// # Ok::<(), tower_sluice::ConfigError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// The last failure, where that is not so within `timeout`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up waiting; it goes on connecting.
    pub async fn ready(&self, timeout: Duration) -> Result<(), BackendError> {
        if self.store.limiters.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
            self.store.shared.probe_at(&self.options.prefix);
        }
        self.store.start();
        self.store.shared.ready(timeout).await
    }

    /// Of this handle alone from now on.
    fn options(&mut self) -> &mut Options {
        Arc::make_mut(&mut self.options)
    }

    fn limiter(&self, id: LimiterId) -> Result<Arc<Limiter>, BackendError> {
        let limiters = self.store.limiters.read().unwrap_or_else(PoisonError::into_inner);
        let limiter = usize::try_from(id.0).ok().and_then(|index| limiters.get(index));
        limiter.cloned().ok_or_else(|| {
            BackendError::new(BackendErrorKind::Protocol, format!("{id:?} was never registered"))
        })
    }

    fn asked(&self, charge: &Charge<'_>) -> Result<Asked, BackendError> {
        Ok(Asked::new(self.limiter(charge.limiter)?, charge))
    }
}

impl Store {
    /// Sees to the connection, if nobody does.
    fn start(&self) {
        let mut task = lock(&self.task);
        let is_seen_to = task.as_ref().is_some_and(|task| !task.is_finished());
        if is_seen_to {
            return;
        }
        // Without a runtime whoever asks first will.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if task.is_some() {
            self.shared.is_forsaken();
        }
        *task = Some(runtime.spawn(Arc::clone(&self.shared).see_to()).abort_handle());
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(task) = &*lock(&self.task) {
            task.abort();
        }
    }
}

impl Backend for Redis {
    fn register(&self, spec: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        if let Some(id) = spec.replaces {
            let limiter = self
                .limiter(id)
                .map_err(|_| ConfigError::new("limiter", id.0, "was never registered here"))?;
            limiter.renew(spec)?;
            self.store.shared.composed.forget(id);
            return Ok(id);
        }
        let shared = &self.store.shared;
        let limiter = Limiter::new(spec, &self.options, |prefix| shared.fleet(prefix))?;
        let mut limiters = self.store.limiters.write().unwrap_or_else(PoisonError::into_inner);
        shared.serves(&self.options.prefix, self.options.deadline);
        limiters.push(Arc::new(limiter));
        let id = LimiterId(limiters.len() as u64 - 1);
        drop(limiters);
        self.store.start();
        Ok(id)
    }

    fn check(&self, now: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        let asked = charges.iter().map(|charge| self.asked(charge));
        let asked = match asked.collect::<Result<SmallVec<[Asked; 1]>, _>>() {
            Ok(asked) => asked,
            Err(error) => return Answer::Ready(Err(error)),
        };
        self.store.start();
        if let Some(away) = self.store.shared.away() {
            return Answer::Ready(self.decide_alone(now, &asked, &away));
        }
        match front::set_aside(now, &asked) {
            Ok(aside) => Answer::Pending(Box::pin(self.clone().charge(now, asked, aside))),
            Err(refused) => Answer::Ready(Ok(*refused)),
        }
    }

    fn undo(&self, now: Nanos, receipts: &[Receipt]) {
        let of_shares: SmallVec<[Receipt; 4]> = receipts.iter().filter_map(of_share).collect();
        self.store.shares.undo(now, &of_shares);
        if self.store.shared.away().is_some() {
            return;
        }
        let charged = |receipt: &Receipt| {
            let [high, low, when, what] = receipt.words();
            let charged =
                Charged::of_words([when, what]).filter(|_| of_share(receipt).is_none())?;
            let limiter = self.limiter(receipt.limiter()).ok()?;
            Some((charged, limiter, Digest::from_words([high, low])))
        };
        // The last first: on it no other has built.
        let mut charged: Vec<_> = receipts.iter().rev().filter_map(charged).collect();
        if !self.store.shared.source.is_cluster() {
            if !charged.is_empty() {
                self.undo_in_store(&charged);
            }
            return;
        }
        while !charged.is_empty() {
            let one = charged.remove(0);
            self.undo_in_store(&[one]);
        }
    }

    fn peek(&self, now: Nanos, charge: &Charge<'_>) -> Answer<Decision> {
        let asked = match self.asked(charge) {
            Ok(asked) => asked,
            Err(error) => return Answer::Ready(Err(error)),
        };
        self.store.start();
        if let Some(away) = self.store.shared.away() {
            return Answer::Ready(self.peek_alone(now, &asked, &away));
        }
        let this = self.clone();
        Answer::Pending(Box::pin(async move {
            match this.call(now, &[&asked], false).await {
                // One was asked about.
                Ok(verdicts) => Ok(verdicts[0].decision()),
                Err(failure) => this.peek_alone(now, &asked, &failure.error()),
            }
        }))
    }

    /// An error while the store is away, though the share in the process is reset all the same.
    fn reset(&self, now: Nanos, charge: &Charge<'_>) -> Answer<bool> {
        let asked = match self.asked(charge) {
            Ok(asked) => asked,
            Err(error) => return Answer::Ready(Err(error)),
        };
        self.store.start();
        if let Some(front) = &asked.limiter.front {
            front.forget(&asked, now);
        }
        self.reset_share(now, &asked);
        if let Some(away) = self.store.shared.away() {
            return Answer::Ready(Err(away));
        }
        let this = self.clone();
        Answer::Pending(Box::pin(async move {
            let (shared, options) = (&this.store.shared, &asked.limiter.options);
            let counted = asked.counted();
            let mut cmd = shared.scripts.reset.on(&[&asked.name]);
            cmd.arg(asked.time(now)).arg(counted.kind.letter());
            for own in &counted.own {
                cmd.arg(own);
            }
            let bounds = (options.deadline, options.pipeline);
            let read = |answer: &Value| match answer {
                Value::Int(known) => Ok(*known != 0),
                other => Err(Failure::shapeless(other)),
            };
            let known = shared.call(&shared.scripts.reset, cmd, bounds, &asked.name, read).await;
            // Once more: who was on his way has been refused meanwhile.
            if let Some(front) = &asked.limiter.front {
                front.forget(&asked, now);
            }
            known.map_err(|failure| failure.error())
        }))
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.store).addr()
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("source", &self.store.shared.source)
            .field("state", &self.state())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
