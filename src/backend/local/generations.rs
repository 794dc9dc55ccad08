//! [`Generations`]: the quotas that stored words were written under.
//!
//! A word's top three bits, its *tag*, tell under which of the last eight quotas the rest was written.
//! Whoever meets an older word settles it at the old rate and converts it in the same step that changes
//! it. When a quota is replaced, every word is converted by a sweep as well, so that a tag is free of
//! words long before it is used again.
//!
//! A check that read the quota just before it was replaced may still write under the old one: the tag
//! says so, and the next to touch the word converts it. To write under a tag that has come round again
//! it would have to stand still while the quota changes eight times, and then find in the word exactly
//! the bits it read; each of the eight sweeps rewrites the word.

use std::sync::Arc;

use super::{Denied, warmth::Warmth};
use crate::{
    Decision,
    algorithm::{Compiled, MACHINE_WORDS, Machine, STATE_BITS, Step, charge_plainly},
    clock::Nanos,
    sync::{AtomicU64, Ordering},
};

/// How many quotas back a word can tell.
const TAGS: usize = 1 << (u64::BITS - STATE_BITS);

const STATE: u64 = (1 << STATE_BITS) - 1;

/// The last quotas of one limiter, in atomics, so that a check reads them without a lock.
#[derive(Debug)]
pub(super) struct Generations {
    epoch: AtomicU64,
    is_window: bool,
    /// The ramp that all quotas are on.
    warmth: Option<Arc<Warmth>>,
    ring: [[AtomicU64; MACHINE_WORDS]; TAGS],
}

/// The quota in force, and how words of older ones become its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present<'a> {
    machine: Machine,
    tag: u64,
    all: &'a Generations,
}

/// What a present quota does by itself, and on the ramp if there is one: apart, so that on the way that is common
/// its numbers need not have an address.
macro_rules! by_ramp {
    ($(#[$inline:meta])* $now:ident in $name:ident($($argument:ident: $type:ty),*) -> $gives:ty) => {
        $(#[$inline])*
        pub(super) fn $name(&self, $($argument: $type),*) -> $gives {
            #[cold]
            #[inline(never)]
            fn on_ramp(
                (all, tag): (&Generations, u64),
                warmth: &Warmth,
                $($argument: $type),*
            ) -> $gives {
                all.read(tag).on(warmth.warming($now)).$name($($argument),*)
            }
            match &self.all.warmth {
                None => self.machine.$name($($argument),*),
                Some(warmth) => on_ramp((self.all, self.tag), warmth, $($argument),*),
            }
        }
    };
}

impl Generations {
    pub(super) fn new(machine: Machine, warmth: Option<Arc<Warmth>>) -> Self {
        let ring = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        let this = Self { epoch: AtomicU64::new(0), is_window: machine.is_window(), warmth, ring };
        // All, so that there is no tag without a quota.
        for tag in 0..TAGS as u64 {
            this.write(tag, machine);
        }
        this
    }

    /// Of a quota that can be counted in words, for tests and models.
    #[cfg(any(test, sluice_loom))]
    pub(super) fn of(algorithm: impl Into<crate::Algorithm>) -> Self {
        Self::new(Self::machine_of(algorithm), None)
    }

    #[cfg(any(test, sluice_loom))]
    pub(super) fn machine_of(algorithm: impl Into<crate::Algorithm>) -> Machine {
        use crate::algorithm::Epoch;
        match Compiled::of(&algorithm.into(), Epoch::default()) {
            Ok(Compiled::Word(machine)) => machine,
            other => unreachable!("not a quota in words: {other:?}"),
        }
    }

    /// The quota in force. A caller loads the word it is about to judge *before* this: the acquire load
    /// of a word pairs with the release write of whoever wrote it, so a word's quota is always known.
    #[inline]
    pub(super) fn present(&self) -> Present<'_> {
        // Acquire pairs with the release in `replace`: the ring entry is written by then.
        let epoch = self.epoch.load(Ordering::Acquire);
        let tag = epoch % TAGS as u64;
        Present { machine: self.read(tag), tag, all: self }
    }

    /// How many quotas there were before the one in force.
    pub(super) fn epoch(&self) -> u64 {
        // As in `present`.
        self.epoch.load(Ordering::Acquire)
    }

    /// The word that a charge makes of `word`; `None` where it does not fit. `plain` says that it may go the way that
    /// is short.
    #[inline(always)]
    pub(super) fn charge(
        &self,
        word: u64,
        now: Nanos,
        cost: u64,
        held: u64,
        plain: bool,
    ) -> Option<u64> {
        if plain {
            let epoch = self.epoch.load(Ordering::Acquire);
            let (tag, state) = (epoch % TAGS as u64, word & STATE);
            if (word >> STATE_BITS == tag || state == 0)
                && let Some(step) = charge_plainly(self.words(tag), state, now, cost)
            {
                return match step {
                    Step::To(next) => Some(tag << STATE_BITS | next),
                    Step::Denied => None,
                };
            }
        }
        self.charge_otherwise(word, now, cost, held)
    }

    #[inline(never)]
    fn charge_otherwise(&self, word: u64, now: Nanos, cost: u64, held: u64) -> Option<u64> {
        let present = self.present();
        match present.charge(present.state(word, now), now, cost, held) {
            Step::To(next) => Some(present.word(next)),
            Step::Denied => None,
        }
    }

    /// Puts `machine` in force; callers are serialised. Words of the tag it takes are gone since seven
    /// replacements.
    pub(super) fn replace(&self, machine: Machine) {
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        self.write(epoch % TAGS as u64, machine);
        // Release pairs with the acquire in `present`.
        self.epoch.store(epoch, Ordering::Release);
    }

    /// What is told to a charge of `cost` that did not fit.
    pub(super) fn explain(&self, denied: Denied, now: Nanos, cost: u64, held: u64) -> Decision {
        let present = self.present();
        let state = present.state(denied.0, now);
        let mut decision = present.decide(state, now, cost, held);
        if decision.is_allowed() {
            // What was in the way is gone by now, a hold or the quota; the charge was not made.
            decision.deny(Nanos::new(1));
        }
        decision
    }

    #[inline]
    fn read(&self, tag: u64) -> Machine {
        Machine::from_words(self.is_window, self.words(tag))
    }

    #[inline(always)]
    fn words(&self, tag: u64) -> [u64; MACHINE_WORDS] {
        let words = &self.ring[tag as usize % TAGS];
        // Relaxed: ordered by the epoch, or by the word that carries the tag.
        std::array::from_fn(|i| words[i].load(Ordering::Relaxed))
    }

    /// The state of a word written under another tag than `to`. By tags, so that on the way that is
    /// common a machine need not have an address.
    #[cold]
    #[inline(never)]
    fn convert(&self, word: u64, to: u64, now: Nanos) -> u64 {
        let (to, from, state) = (self.read(to), self.read(word >> STATE_BITS), word & STATE);
        match self.warmth.as_ref().map(|warmth| warmth.warming(now)) {
            None => to.convert(&from, state, now),
            Some(warming) => to.on(warming).convert(&from.on(warming), state, now),
        }
    }

    fn write(&self, tag: u64, machine: Machine) {
        for (word, value) in self.ring[tag as usize % TAGS].iter().zip(machine.to_words()) {
            // Relaxed: published by the epoch.
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Present<'_> {
    by_ramp!(#[inline] now in charge(state: u64, now: Nanos, cost: u64, held: u64) -> Step);
    by_ramp!(#[inline(always)] now in decide(state: u64, now: Nanos, cost: u64, held: u64) -> Decision);
    by_ramp!(#[inline] now in is_idle(state: u64, now: Nanos) -> bool);
    by_ramp!(now in force(state: u64, now: Nanos, cost: u64) -> u64);
    by_ramp!(now in is_known(state: u64, now: Nanos) -> bool);
    by_ramp!(now in idle_word(now: Nanos) -> u64);

    /// The quota, and the ramp it is on.
    pub(super) fn compiled(&self, now: Nanos) -> Compiled {
        match &self.all.warmth {
            None => Compiled::Word(self.machine),
            Some(warmth) => Compiled::Warming(self.machine.on(warmth.warming(now))),
        }
    }

    /// What `word` means under the quota in force. Zero is a key never seen, under any.
    #[inline]
    pub(super) fn state(&self, word: u64, now: Nanos) -> u64 {
        let state = word & STATE;
        if word >> STATE_BITS == self.tag || state == 0 {
            state
        } else {
            self.all.convert(word, self.tag, now)
        }
    }

    /// The word for `state`.
    #[inline]
    pub(super) fn word(&self, state: u64) -> u64 {
        self.tag << STATE_BITS | state
    }

    /// Whether `word` was written under this quota.
    #[inline]
    pub(super) fn wrote(&self, word: u64) -> bool {
        word >> STATE_BITS == self.tag
    }
}
