//! What is in flight: permits that are lent, not spent. The limit is [`InFlight`](crate::InFlight).
//!
//! A layer lends a [`Permit`] to each request, up to the end of its answer's body; a task takes one itself. A connection
//! that comes of a request keeps its [`Permits`].
//!
//! ```
//! use tower_sluice::InFlight;
//!
//! let exports = InFlight::new("exports", 2);
//! let (one, other) = (exports.try_acquire(), exports.try_acquire());
//! assert!(one.is_some() && other.is_some() && exports.try_acquire().is_none());
//! drop(one); // gives it back
//! assert_eq!(exports.in_flight(), 1);
//! ```

// `Slots` is the state of one limit: a `gate` for all together, `keyed` counts where there are keys, each with a
// `line` of those who wait. A `permit` is given back by its drop.

mod gate;
mod keyed;
mod line;
#[cfg(sluice_loom)]
pub(crate) mod models;
mod permit;

use std::{
    fmt,
    future::poll_fn,
    num::NonZeroU64,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use ahash::RandomState;
use smallvec::SmallVec;

pub use self::permit::Permit;
use self::{gate::Gate, keyed::Keyed};
use crate::{
    ConfigError,
    clock::{Nanos, Time},
    event::{Finished, Observer, Outcome},
    waiting::{Depth, Stuck, Timer},
};

/// The state of one limit: how many are in flight, and who waits.
pub(crate) struct Slots {
    name: Arc<str>,
    gate: Gate,
    hasher: RandomState,
    /// Counts per key, once somebody counts so.
    keyed: OnceLock<Keyed>,
    /// The clock, once it is known: set by its owner, or the first layer's.
    time: OnceLock<Time>,
    observers: RwLock<Vec<Arc<dyn Observer>>>,
    is_observed: AtomicBool,
}

/// There is no place left to wait in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What came of joining the line.
pub(crate) enum Joined {
    /// A permit was free.
    Permit(Permit),
    /// There is a place.
    Waiting(Waiting),
}

impl Slots {
    pub(crate) fn new(name: Arc<str>, limit: u32) -> Self {
        Self {
            name,
            gate: Gate::new(limit),
            hasher: RandomState::new(),
            keyed: OnceLock::new(),
            time: OnceLock::new(),
            observers: RwLock::default(),
            is_observed: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Hashes keys, whoever counts by them.
    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// The key of this hash. Zero means no key, so it is one.
    pub(crate) fn key(hash: u64) -> NonZeroU64 {
        NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)
    }

    /// The clock; the default one where nobody has set another by now.
    pub(crate) fn time(&self) -> &Time {
        self.time.get_or_init(Time::default)
    }

    pub(crate) fn known_time(&self) -> Option<&Time> {
        self.time.get()
    }

    /// Sets the clock, unless it is set; gives the one in force.
    pub(crate) fn set_time(&self, time: Time) -> &Time {
        self.time.get_or_init(|| time)
    }

    fn keyed(&self) -> &Keyed {
        self.keyed.get_or_init(Keyed::new)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.gate.limit()
    }

    pub(crate) fn count(&self) -> u64 {
        self.gate.count() + self.keyed.get().map_or(0, Keyed::count)
    }

    pub(crate) fn count_of(&self, key: NonZeroU64) -> u64 {
        self.keyed.get().map_or(0, |keyed| keyed.count_of(key.get()))
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.gate.waiting() + self.keyed.get().map_or(0, Keyed::waiting)
    }

    pub(crate) fn keys(&self) -> u64 {
        self.keyed.get().map_or(0, Keyed::keys)
    }

    /// Whether a newcomer could take a permit.
    #[inline]
    pub(crate) fn is_open(&self, key: Option<NonZeroU64>) -> bool {
        match key {
            None => self.gate.is_open(),
            Some(key) => self.keyed().is_open(key.get(), self.limit()),
        }
    }

    #[inline]
    pub(crate) fn try_take(self: &Arc<Self>, key: Option<NonZeroU64>) -> Option<Permit> {
        let taken = match key {
            None => self.gate.try_take(),
            Some(key) => self.keyed().try_take(key.get(), || self.limit()),
        };
        taken.then(|| Permit::new(Arc::clone(self), key))
    }

    #[inline]
    fn give_back(&self, key: Option<NonZeroU64>) {
        match key {
            None => self.gate.give_back(),
            Some(key) => self.keyed().give_back(key.get(), || self.limit()),
        }
    }

    /// Takes a permit, or joins the line for one.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: Option<NonZeroU64>,
        depth: Depth,
    ) -> Result<Joined, Full> {
        let place = match key {
            None => self.gate.join(depth)?,
            Some(key) => self.keyed().join(key.get(), || self.limit(), depth)?,
        };
        Ok(match place {
            None => Joined::Permit(Permit::new(Arc::clone(self), key)),
            Some(place) => Joined::Waiting(Waiting { slots: Arc::clone(self), key, place }),
        })
    }

    /// Puts another limit in force. What is in flight stays; those who wait take what it frees.
    pub(crate) fn set_limit(&self, limit: u32) -> Result<(), ConfigError> {
        check_limit(limit).map_err(|error| error.of_in_flight(&self.name))?;
        self.gate.set_limit(limit);
        if let Some(keyed) = self.keyed.get() {
            keyed.refill(|| self.limit());
        }
        Ok(())
    }

    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        self.observers.write().unwrap_or_else(PoisonError::into_inner).push(observer);
        // Release pairs with the acquire in `is_observed`; a permit taken at this very moment is not told of.
        self.is_observed.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.is_observed.load(Ordering::Acquire)
    }

    /// Tells how a permit ended that was taken at `started`.
    #[cold]
    fn tell(&self, started: Nanos, outcome: Outcome) {
        let elapsed = self.time().now().since(started).into();
        // Copied, so that an observer may add another.
        let observers = self.observers.read().unwrap_or_else(PoisonError::into_inner).clone();
        for observer in observers {
            observer.finished(&Finished { elapsed, outcome });
        }
    }
}

/// The permits of one request, one from each limit that applies.
pub(crate) type Lent = SmallVec<[Permit; 1]>;

/// The permits of a request that asks for an upgrade, in its extensions: kept, they keep the connection
/// counted that comes of it. A WebSocket:
///
/// ```
/// use axum::{Extension, extract::ws::{WebSocket, WebSocketUpgrade}, response::Response};
/// use tower_sluice::in_flight::Permits;
///
/// async fn socket(upgrade: WebSocketUpgrade, permits: Option<Extension<Permits>>) -> Response {
///     upgrade.on_upgrade(async move |mut socket: WebSocket| {
///         while let Some(Ok(message)) = socket.recv().await {
///             drop(message); // .. what is done with it
///         }
///         drop(permits); // kept until here
///     })
/// }
/// # let _ = socket;
/// ```
///
/// Keep them by name to the end, as here: `let _ = permits` keeps nothing. Where nobody does, the connection is not
/// counted, and [SL-UPGRADE](crate::event::Fault::Upgrade) says so. There are none where no in-flight limit
/// applied to the request, or it is exempt, and where it is no upgrade: hence the `Option`.
///
/// A connection of another kind:
///
/// ```
/// use axum::{Extension, extract::Request, response::IntoResponse};
/// use tower_sluice::in_flight::Permits;
///
/// async fn tunnel(Extension(permits): Extension<Permits>, mut request: Request) -> impl IntoResponse {
///     tokio::spawn(async move {
///         if let Ok(upgraded) = hyper::upgrade::on(&mut request).await {
///             // .. what is done with the connection
///             drop(upgraded);
///         }
///         drop(permits);
///     });
///     http::StatusCode::SWITCHING_PROTOCOLS
/// }
/// # let _ = tunnel;
/// ```
///
/// Clones are the same permits, given back when the last is dropped and the answer's body has ended.
#[derive(Clone, Debug)]
pub struct Permits {
    own: Arc<Lent>,
    /// Those of layers outside.
    outer: Option<Arc<Self>>,
}

impl Permits {
    pub(crate) fn new(own: Arc<Lent>, outer: Option<Self>) -> Self {
        Self { own, outer: outer.map(Arc::new) }
    }

    /// The names of the limits, the outermost layer's first.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names = self.outer.as_ref().map_or_else(Vec::new, |outer| outer.names());
        names.extend(self.own.iter().map(Permit::name));
        names
    }
}

/// What an in-flight limit may be.
pub(crate) fn check_limit(limit: u32) -> Result<(), ConfigError> {
    let reason = match limit {
        0 => "must be at least 1; to close a route, answer it with 503",
        1..=gate::MOST => return Ok(()),
        _ => "must be at most 2^31 - 1",
    };
    Err(ConfigError::new("limit", limit, reason))
}

/// A place in the line for a permit. Dropped, it leaves; a permit that had come goes to the next.
pub(crate) struct Waiting {
    slots: Arc<Slots>,
    key: Option<NonZeroU64>,
    place: u64,
}

/// The place was used.
const NOWHERE: u64 = u64::MAX;

impl Waiting {
    /// The permit, once it has come; if that is not before `until`, none, and the place is left.
    pub(crate) async fn permit(
        mut self,
        until: Nanos,
        timer: &mut Timer,
    ) -> Result<Option<Permit>, Stuck> {
        poll_fn(|cx| self.poll(until, timer, cx)).await
    }

    fn poll(
        &mut self,
        until: Nanos,
        timer: &mut Timer,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Permit>, Stuck>> {
        let granted = match self.key {
            None => self.slots.gate.poll(self.place, cx.waker()),
            Some(key) => self.slots.keyed().poll(key.get(), self.place, cx.waker()),
        };
        if granted {
            self.place = NOWHERE;
            let permit = Permit::new(Arc::clone(&self.slots), self.key);
            return Poll::Ready(Ok(Some(permit)));
        }
        ready!(timer.poll_until(until, cx))?;
        Poll::Ready(Ok(None))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.place == NOWHERE {
            return;
        }
        match self.key {
            None => self.slots.gate.leave(self.place),
            Some(key) => {
                let limit = || self.slots.limit();
                self.slots.keyed().leave(key.get(), self.place, limit);
            }
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("name", &self.name)
            .field("limit", &self.limit())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}
