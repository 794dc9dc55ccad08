//! One decision over all limits of a layer.
//!
//! The order is the contract: (1) read every rule in this process and every in-flight limit, so that a refusal
//! names each that refuses, and stop if any does: nothing has been written; (2) take in-flight permits, whose
//! undo is exact; (3) charge the rules, newest undone first if one refuses after all; where a rule counts on
//! another backend, hold instead of charging, (4) ask, and turn the holds into charges at the answer. A
//! refusal leaves nothing charged in this process, and no permit lent.
//!
//! What is where: `here` decides at once over this process; `asking` keeps what a request asks for as long as
//! it takes, `remote` asks other backends, `queue` waits, in a `place`.

mod asking;
mod here;
mod place;
mod queue;
mod remote;

use std::num::NonZeroU64;

use http::StatusCode;
use smallvec::SmallVec;

pub(crate) use self::{asking::Asking, place::Waits};
use crate::{
    BackendError, Decision,
    backend::local::Seat,
    clock::{BoxFuture, Nanos},
    in_flight::{Lent, Permit},
};

/// What the limits decided. They are told by their numbers in the plan.
pub(crate) enum Outcome {
    Admitted(Admission),
    /// Admitted at once, with one permit and nothing to tell.
    Lent(Permit),
    /// These refuse, in the order written; nothing is charged.
    Denied(Denied),
    /// The request has no key for this limit, which refuses it with this status.
    Keyless(u16, StatusCode),
    /// The backend of this rule could not answer; nothing is charged here.
    Failed(u16, BackendError),
}

/// All rules that applied are charged, and in-flight permits lent.
#[derive(Default)]
pub(crate) struct Admission {
    /// What the rules decided, in no order, where somebody wants to know.
    pub(crate) said: Vec<(u16, Decision)>,
    pub(crate) lent: Lent,
    /// How long it took, where the request waited.
    pub(crate) waited: Option<Nanos>,
}

/// One limit that refuses; an in-flight limit without a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denial {
    pub(crate) number: u16,
    pub(crate) decision: Option<Decision>,
}

pub(crate) type Denied = SmallVec<[Denial; 1]>;

/// An outcome, or the promise of one.
pub(crate) enum Decided {
    Now(Outcome),
    Later(BoxFuture<'static, Outcome>),
}

/// What one rule is asked: sixteen bytes beside the key's hash, so that eight fit in an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) rule: u16,
    pub(crate) seat: Seat,
    cost: u64,
}

type AllAsked = SmallVec<[Asked; 8]>;

/// A permit that one in-flight limit is asked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    number: u16,
    key: Option<NonZeroU64>,
}

type AllWanted = SmallVec<[Wanted; 2]>;

impl Denial {
    fn of(number: u16, decision: Decision) -> Self {
        Self { number, decision: Some(decision) }
    }
}

impl Outcome {
    fn denied(denial: Denial) -> Self {
        Self::Denied(smallvec::smallvec![denial])
    }
}
