//! [`Scope`]: which requests a limit applies to, and whose permits they take.

use super::Missing;
use crate::request::{key::KeyBy, matcher::Match};

/// What rules and in-flight limits are told alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) matcher: Option<Match>,
    pub(crate) key: Option<KeyBy>,
    pub(crate) missing: Option<Missing>,
}

impl Scope {
    /// Whether callers have counts of their own: a key that is not one for all.
    pub(crate) fn has_own_key(&self) -> bool {
        self.key.as_ref().is_some_and(|key| !key.is_global())
    }

    /// Applies to what also matches `matcher`.
    pub(crate) fn narrow(&mut self, matcher: Match) {
        self.matcher = Some(match self.matcher.take() {
            Some(earlier) => earlier.and(matcher),
            None => matcher,
        });
    }
}
