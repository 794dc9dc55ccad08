//! [`Ledger`]: one of a limiter's quotas, counted in words or in records, and what is held of it.

use std::{collections::HashMap, sync::OnceLock};

use super::{
    Denied, Kept, Made,
    holds::{self, Holds, Places},
    records::Records,
    words::Words,
};
use crate::{
    Decision,
    algorithm::{Compiled, Spent},
    clock::Nanos,
    sync::Mutex,
};

/// Whose permits: which quota of the limiter, and the key's seeded hash (any value without keys).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) quota: usize,
    pub(crate) hash: u64,
}

impl Seat {
    /// What a key is called by in maps; overflow buckets are called by greater numbers.
    #[inline]
    pub(super) fn place_of(hash: u64) -> u64 {
        hash >> 2
    }
}

/// What is known of a key: to tell whether it has changed since, and to play charges through that nobody has made
/// yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) compiled: Compiled,
    /// Its word; or all that was admitted, and taken back.
    pub(crate) state: (u64, u64),
    /// Set aside by requests that ask another backend, until when nobody knows.
    pub(crate) held: u64,
}

/// The state of one of its quotas.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Set once the limiter may have to hold permits while a remote backend is asked.
    holds: OnceLock<Holds>,
    pub(super) state: State,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a quota; a pointer more would be followed by every check"
)]
pub(super) enum State {
    Words(Words),
    Records(Records),
}

impl Ledger {
    pub(super) fn new(state: State) -> Self {
        Self { holds: OnceLock::new(), state }
    }

    pub(super) fn may_hold(&self) {
        self.holds();
    }

    /// From here on permits may be held, so that a charge must look.
    fn holds(&self) -> &Holds {
        self.holds.get_or_init(|| {
            if let State::Words(words) = &self.state {
                words.never_plain();
            }
            Holds::default()
        })
    }

    pub(super) fn read(&self, hash: u64, now: Nanos) -> Known {
        let (compiled, state) = match &self.state {
            State::Words(words) => {
                let (word, present) = words.read(hash, now);
                (present.compiled(now), (word, 0))
            }
            State::Records(records) => {
                let (machine, state) =
                    records.ask(hash, now, |machine, spent| (*machine, spent.mark()));
                (Compiled::Sliding(machine), state)
            }
        };
        Known { compiled, state, held: self.held(hash, now) }
    }

    pub(super) fn spent(&self, hash: u64, now: Nanos) -> Spent {
        match &self.state {
            State::Words(_) => Spent::default(),
            State::Records(records) => records.ask(hash, now, |_, spent| spent.clone()),
        }
    }

    /// What a charge would get; changes nothing.
    #[inline]
    pub(super) fn decide(&self, hash: u64, now: Nanos, cost: u64) -> Decision {
        self.decide_beside(hash, now, cost, self.held(hash, now))
    }

    /// The same beside `held` permits that others hold.
    #[inline]
    fn decide_beside(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> Decision {
        match &self.state {
            State::Words(words) => words.decide(hash, now, cost, held),
            State::Records(records) => records.decide(hash, now, cost, held),
        }
    }

    /// What a charge has left that wrote `word`.
    #[inline]
    pub(super) fn after(&self, hash: u64, word: u64, now: Nanos) -> Decision {
        let held = self.held(hash, now);
        match &self.state {
            State::Words(words) => words.after(word, now, held),
            State::Records(records) => records.decide(hash, now, 0, held),
        }
    }

    /// What a charge was told that did not fit.
    #[inline]
    pub(super) fn explain(&self, hash: u64, denied: Denied, now: Nanos, cost: u64) -> Decision {
        let held = self.held(hash, now);
        match &self.state {
            State::Words(words) => words.explain(denied, now, cost, held),
            State::Records(records) => records.explain(hash, now, cost, held),
        }
    }

    /// Whether a charge would be made; changes nothing.
    #[inline]
    pub(super) fn fits(&self, hash: u64, now: Nanos, cost: u64) -> bool {
        match &self.state {
            State::Words(words) => cost == 0 || words.fits(hash, now, cost, self.held(hash, now)),
            State::Records(_) => self.decide(hash, now, cost).is_allowed(),
        }
    }

    /// What a charge would do; `None` where it must find out for itself. An error where it does not fit.
    #[inline]
    pub(super) fn foresee(&self, hash: u64, now: Nanos, cost: u64) -> Result<Option<Made>, ()> {
        // Held permits are guarded by a lock, which is not kept until all rules have been asked.
        if let State::Words(words) = &self.state
            && self.holds.get().is_none()
            && !words.is_due(now)
            && let Some(foreseen) = words.foresee(hash, now, cost)
        {
            return foreseen.map(Some);
        }
        if self.fits(hash, now, cost) { Ok(None) } else { Err(()) }
    }

    /// Makes a charge that was foreseen, unless the word has changed since.
    #[inline]
    pub(super) fn make(&self, charge: &Made) -> bool {
        matches!(&self.state, State::Words(words) if words.make(charge))
    }

    /// Charges a cost that is not zero. `serial` serialises changes of the quota.
    #[inline]
    pub(super) fn charge<T, K: Kept>(
        &self,
        serial: &Mutex<T>,
        hash: u64,
        now: Nanos,
        cost: u64,
    ) -> Result<K, Denied> {
        match &self.state {
            State::Words(words) if words.is_plain(now) => words.charge(hash, now, cost, 0, true),
            State::Words(words) => self.charge_words(words, serial, hash, now, cost),
            State::Records(_) => self.charge_beside(hash, now, cost),
        }
    }

    /// Whether it is known that nothing fits now.
    #[inline(always)]
    pub(super) fn refuses(&self, now: Nanos) -> bool {
        matches!(&self.state, State::Words(words) if words.refuses(now))
    }

    /// Charges a cost that is not zero; says only whether.
    #[inline(always)]
    pub(super) fn admits<T>(&self, serial: &Mutex<T>, hash: u64, now: Nanos, cost: u64) -> bool {
        match self.charge::<T, ()>(serial, hash, now, cost) {
            Ok(()) => true,
            Err(denied) => {
                self.note(denied, now, cost);
                false
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&self, denied: Denied, now: Nanos, cost: u64) {
        // A greater cost may be denied where one fits, and a hold may end.
        if let State::Words(words) = &self.state
            && cost == 1
            && words.is_plain(now)
        {
            words.note(denied, now);
        }
    }

    #[inline(never)]
    fn charge_words<T, K: Kept>(
        &self,
        words: &Words,
        serial: &Mutex<T>,
        hash: u64,
        now: Nanos,
        cost: u64,
    ) -> Result<K, Denied> {
        if !words.is_due(now) {
            return self.charge_beside(hash, now, cost);
        }
        words.meet(now, serial);
        let made = self.charge_beside(hash, now, cost)?;
        words.admit(now);
        Ok(made)
    }

    /// The same beside what others hold.
    fn charge_beside<K: Kept>(&self, hash: u64, now: Nanos, cost: u64) -> Result<K, Denied> {
        let Some(holds) = self.holds.get() else { return self.charge_at(hash, now, cost, 0) };
        let places = self.places(hash);
        // Kept until the charge is made, or a hold could come between.
        let shard = holds.shard(places);
        let held = self.held_of(&shard, places, hash, now);
        self.charge_at(hash, now, cost, held)
    }

    fn charge_at<K: Kept>(&self, hash: u64, now: Nanos, cost: u64, held: u64) -> Result<K, Denied> {
        match &self.state {
            State::Words(words) => words.charge(hash, now, cost, held, false),
            State::Records(records) => records.charge(hash, now, cost, held),
        }
    }

    /// A request comes that is not to be charged now.
    #[inline]
    pub(super) fn meet<T>(&self, serial: &Mutex<T>, now: Nanos) {
        match &self.state {
            State::Words(words) if words.is_due(now) => words.meet(now, serial),
            State::Words(_) => {}
            State::Records(records) => records.meet(now),
        }
    }

    /// Sets permits aside, or says why not.
    pub(super) fn hold(&self, hash: u64, now: Nanos, cost: u64) -> Result<(), Decision> {
        let places = self.places(hash);
        let mut shard = self.holds().shard(places);
        let held = self.held_of(&shard, places, hash, now);
        let decision = self.decide_beside(hash, now, cost, held);
        if !decision.is_allowed() {
            return Err(decision);
        }
        if cost > 0 {
            holds::set_aside(&mut shard, places, cost);
        }
        Ok(())
    }

    /// Makes a hold a charge.
    pub(super) fn commit(&self, hash: u64, now: Nanos, cost: u64) {
        let places = self.places(hash);
        let mut shard = self.holds().shard(places);
        match &self.state {
            State::Words(words) => {
                words.force(hash, now, cost);
                words.admit(now);
            }
            State::Records(records) => records.force(hash, now, cost),
        }
        holds::give_back(&mut shard, places, cost);
    }

    /// Lets a hold go: as if it had never been.
    pub(super) fn release(&self, hash: u64, cost: u64) {
        if let Some(holds) = self.holds.get() {
            let places = self.places(hash);
            holds::give_back(&mut holds.shard(places), places, cost);
        }
    }

    /// Permits that others hold of the same key, or of the overflow bucket it shares.
    #[inline]
    pub(super) fn held(&self, hash: u64, now: Nanos) -> u64 {
        self.holds.get().map_or(0, |holds| self.held_in(holds, hash, now))
    }

    #[inline(never)]
    fn held_in(&self, holds: &Holds, hash: u64, now: Nanos) -> u64 {
        let places = self.places(hash);
        self.held_of(&holds.shard(places), places, hash, now)
    }

    /// What is held where a charge on the key would be made now.
    fn held_of(&self, shard: &HashMap<u64, u64>, places: Places, hash: u64, now: Nanos) -> u64 {
        let has_room = match &self.state {
            State::Words(words) => words.has_room(hash, now),
            State::Records(records) => records.has_room(hash, now),
        };
        let place = if has_room { places.own } else { places.shared };
        shard.get(&place).copied().unwrap_or(0)
    }

    fn places(&self, hash: u64) -> Places {
        match &self.state {
            State::Words(words) => words.places(hash),
            State::Records(records) => records.places(hash),
        }
    }

    /// Takes a charge back; says whether it was.
    pub(super) fn undo(&self, made: &Made, now: Nanos) -> bool {
        match &self.state {
            State::Words(words) => words.undo(made, now),
            State::Records(records) => records.undo(made, now),
        }
    }

    /// Forgets a key; says whether anything was known of it.
    pub(super) fn reset(&self, hash: u64, now: Nanos) -> bool {
        match &self.state {
            State::Words(words) => words.reset(hash, now),
            State::Records(records) => records.reset(hash, now),
        }
    }

    /// How many keys hold state.
    pub(super) fn tracked(&self, now: Nanos) -> u64 {
        match &self.state {
            State::Words(words) => words.tracked(now),
            State::Records(records) => records.tracked(now),
        }
    }

    /// Whether keys have had to share overflow buckets.
    #[inline]
    pub(super) fn has_overflowed(&self) -> bool {
        match &self.state {
            State::Words(words) => words.has_overflowed(),
            State::Records(records) => records.has_overflowed(),
        }
    }
}
