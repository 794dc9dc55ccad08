//! [`StoreChanged`]: the store of shared limits went away, or came back.

use crate::{BackendError, BackendErrorKind};

/// Whether the store of shared limits is there.
///
/// ```
/// use tower_sluice::{BackendErrorKind, event::StoreState};
///
/// fn is_degraded(state: StoreState) -> bool {
///     matches!(state, StoreState::Away(_))
/// }
/// assert!(is_degraded(StoreState::Away(BackendErrorKind::Timeout)));
/// assert!(!is_degraded(StoreState::Up));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreState {
    /// Nothing is known yet: calls wait for it, up to their deadline.
    Connecting,
    /// It counts.
    Up,
    /// It is away, and why: rules decide by their mode for it, and nobody waits.
    Away(BackendErrorKind),
}

/// A change of the store of shared limits.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use tower_sluice::{Observer, event::{StoreChanged, StoreState}};
///
/// /// For a metrics page: 1 while the store is away. Where one answer was late, that request alone was decided without
/// /// the store, which is no change; `Redis::decided_alone` counts those, too.
/// #[derive(Default)]
/// struct Alone(AtomicBool);
///
/// impl Observer for Alone {
///     fn store_changed(&self, changed: &StoreChanged<'_>) {
///         self.0.store(matches!(changed.state(), StoreState::Away(_)), Relaxed);
///         if let Some(error) = changed.error() {
///             eprintln!("the store is away: {error}");
///         }
///     }
/// }
/// # let _ = Alone::default();
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoreChanged<'a> {
    pub(crate) state: StoreState,
    pub(crate) error: Option<&'a BackendError>,
}

impl<'a> StoreChanged<'a> {
    /// What it is from now on.
    #[must_use]
    pub fn state(&self) -> StoreState {
        self.state
    }

    /// What has failed, where it went away.
    #[must_use]
    pub fn error(&self) -> Option<&'a BackendError> {
        self.error
    }
}
