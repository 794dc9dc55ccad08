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
    algorithm::{MACHINE_WORDS, Machine, STATE_BITS},
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
    pub(super) machine: Machine,
    tag: u64,
    all: &'a Generations,
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
        use crate::algorithm::{Compiled, Epoch};
        match Compiled::of(&algorithm.into(), Epoch::default()) {
            Ok(Compiled::Word(machine)) => Self::new(machine, None),
            other => unreachable!("not a quota in words: {other:?}"),
        }
    }

    /// The quota in force. A caller loads the word it is about to judge *before* this: the acquire load
    /// of a word pairs with the release write of whoever wrote it, so a word's quota is always known.
    #[inline]
    pub(super) fn present(&self, now: Nanos) -> Present<'_> {
        // Acquire pairs with the release in `replace`: the ring entry is written by then.
        let epoch = self.epoch.load(Ordering::Acquire);
        let tag = epoch % TAGS as u64;
        Present { machine: self.read(tag, now), tag, all: self }
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
        let present = self.present(now);
        let state = present.state(denied.0, now);
        let mut decision = present.machine.decide(state, now, cost, held);
        if decision.is_allowed() {
            // What was in the way is gone by now, a hold or the quota; the charge was not made.
            decision.deny(Nanos::new(1));
        }
        decision
    }

    #[inline]
    fn read(&self, tag: u64, now: Nanos) -> Machine {
        let words = &self.ring[tag as usize % TAGS];
        // Relaxed: ordered by the epoch, or by the word that carries the tag.
        let words = std::array::from_fn(|i| words[i].load(Ordering::Relaxed));
        let machine = Machine::from_words(self.is_window, words);
        match &self.warmth {
            None => machine,
            Some(warmth) => machine.on(warmth.warming(now)),
        }
    }

    /// The state of a word written under another tag than `to`. By tags, so that on the way that is
    /// common a machine need not have an address.
    #[cold]
    #[inline(never)]
    fn convert(&self, word: u64, to: u64, now: Nanos) -> u64 {
        self.read(to, now).convert(&self.read(word >> STATE_BITS, now), word & STATE, now)
    }

    fn write(&self, tag: u64, machine: Machine) {
        for (word, value) in self.ring[tag as usize % TAGS].iter().zip(machine.to_words()) {
            // Relaxed: published by the epoch.
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Present<'_> {
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
