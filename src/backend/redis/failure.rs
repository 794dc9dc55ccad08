//! [`Failure`]: what it means that a call was not answered as it should.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{BackendError, BackendErrorKind, event::Fault};

/// Why a call failed, and whom that concerns.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: BackendErrorKind,
    pub(super) concerns: Concern,
    pub(super) text: String,
}

/// Whom a failure concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// All calls: the store is away.
    All,
    /// All calls, if it happens again and again.
    Maybe,
    /// This call alone.
    This,
}

impl Failure {
    pub(super) fn new(kind: BackendErrorKind, concerns: Concern, text: impl Into<String>) -> Self {
        Self { kind, concerns, text: text.into() }
    }

    /// No answer in time: once may be chance.
    pub(super) fn late() -> Self {
        Self::new(BackendErrorKind::Timeout, Concern::Maybe, "no answer within the deadline")
    }

    /// An answer of another shape.
    pub(super) fn shapeless(answer: &redis::Value) -> Self {
        let text =
            format!("an answer of another shape: {answer:?}").chars().take(200).collect::<String>();
        Self::new(BackendErrorKind::Protocol, Concern::Maybe, text)
    }

    pub(super) fn of(error: &RedisError) -> Self {
        use BackendErrorKind as Kind;
        let text = error.to_string();
        let (kind, concerns) = match error.kind() {
            ErrorKind::Server(kind) => match kind {
                ServerErrorKind::ReadOnly => (Kind::ReadOnly, Concern::All),
                ServerErrorKind::BusyLoading => (Kind::Loading, Concern::All),
                ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown => {
                    (Kind::Unavailable, Concern::All)
                }
                ServerErrorKind::NoPerm => (Kind::Denied, Concern::All),
                ServerErrorKind::Moved | ServerErrorKind::CrossSlot => {
                    (Kind::Cluster, Concern::All)
                }
                // A slot is on its way from one server to another.
                ServerErrorKind::Ask | ServerErrorKind::TryAgain => (Kind::Cluster, Concern::This),
                _ => said(&text),
            },
            ErrorKind::AuthenticationFailed => (Kind::Denied, Concern::All),
            ErrorKind::Extension => match error.code() {
                Some("OOM") => (Kind::OutOfMemory, Concern::All),
                Some("BUSY") => (Kind::Busy, Concern::All),
                Some("NOAUTH" | "WRONGPASS") => (Kind::Denied, Concern::All),
                Some("MISCONF" | "NOREPLICAS") => (Kind::ReadOnly, Concern::All),
                Some("WRONGTYPE") => (Kind::Foreign, Concern::This),
                _ => said(&text),
            },
            ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => {
                (Kind::Unavailable, Concern::All)
            }
            _ => said(&text),
        };
        Self::new(kind, concerns, text)
    }

    pub(super) fn error(&self) -> BackendError {
        BackendError::new(self.kind, self.text.clone())
    }

    /// The fault of the set-up that it is when nothing has been counted yet, or at any time.
    pub(super) fn fault(&self, is_first: bool) -> Option<Fault> {
        match self.kind {
            BackendErrorKind::Denied => Some(Fault::StoreAccess),
            BackendErrorKind::Cluster => Some(Fault::StoreCluster),
            BackendErrorKind::Foreign => Some(Fault::StoreForeign),
            BackendErrorKind::TooOld => Some(Fault::StoreOld),
            BackendErrorKind::NoDatabase => Some(Fault::StoreDatabase),
            _ => is_first.then_some(Fault::Store),
        }
    }
}

/// What servers say without a code of its own, and older ones say of what failed within a script.
fn said(text: &str) -> (BackendErrorKind, Concern) {
    use BackendErrorKind as Kind;
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["FOREIGN", "WRONGTYPE"]) {
        (Kind::Foreign, Concern::This)
    } else if says(&["OOM "]) {
        (Kind::OutOfMemory, Concern::All)
    } else if says(&["READONLY", "MISCONF", "NOREPLICAS"]) {
        (Kind::ReadOnly, Concern::All)
    } else if says(&[
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "invalid password",
        "The user executing the script",
    ]) {
        (Kind::Denied, Concern::All)
    } else if says(&["CROSSSLOT", "Lua script attempted to access", "support disabled"]) {
        (Kind::Cluster, Concern::All)
    } else if says(&["DB index", "switch database", "SELECT is not allowed"]) {
        (Kind::NoDatabase, Concern::All)
    } else if says(&[
        "unknown command",
        "syntax error",
        "wrong number of arguments",
        "Wrong number of args",
        "32 bits",
    ]) {
        (Kind::TooOld, Concern::All)
    } else {
        (Kind::Protocol, Concern::Maybe)
    }
}
