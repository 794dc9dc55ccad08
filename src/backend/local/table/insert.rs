//! Room for keys that have no slot.

use super::{CLAIMED, Charged, FREED, Found, RECLAIM_LINES, Table, UNUSED};
use crate::{
    algorithm::Step,
    backend::local::{
        Denied, Kept, Made, generations::Generations, lines::SLOTS, overflow::Overflow,
    },
    clock::Nanos,
    sync::Ordering,
};

impl Table {
    /// Charges a key that has no slot; `None` where it has one by now.
    #[cold]
    #[inline(never)]
    pub(super) fn insert<K: Kept>(
        &self,
        quotas: &Generations,
        hash: u64,
        now: Nanos,
        cost: u64,
        held: u64,
        overflow: Option<&Overflow>,
    ) -> Option<Charged<K>> {
        // What a key spent while there was no room for it.
        let spent = || overflow.map_or(0, |overflow| overflow.state(quotas, hash, now));
        // A refusal needs no slot, and must not take one.
        let (state, early) = (spent(), quotas.present());
        if early.charge(state, now, cost, held) == Step::Denied {
            return Some(Charged::Denied(Denied(early.word(state))));
        }
        let _serial = self.serialise_inserts(hash);
        if let Found::At(..) = self.find(hash) {
            return None;
        }
        // A slot that is changing hands is being taken from this key: whoever would give it to this key
        // holds the lock that is ours.
        let Some(index) = self.claim(quotas, hash, now) else {
            return Some(Charged::NoRoom);
        };
        let (state, present) = (spent(), quotas.present());
        let (hash_cell, word_cell) = self.slot(index);
        let first = present.charge(state, now, cost, held);
        let word = present.word(match first {
            Step::To(state) => state,
            // The quota changed meanwhile. The slot stays with the key, and not with the word that its last
            // owner may just have read.
            Step::Denied => state.max(present.idle_word(now)),
        });
        // Relaxed: published by the word.
        hash_cell.store(hash, Ordering::Relaxed);
        // Release pairs with the acquire in `find`.
        word_cell.store(word, Ordering::Release);
        Some(match first {
            Step::To(_) => {
                let old = if state == 0 { 0 } else { present.word(state) };
                Charged::Made(K::of(Made { place: index as u64, old, new: word }))
            }
            Step::Denied => Charged::Denied(Denied(present.word(state))),
        })
    }

    /// Takes a slot on the key's path; its word is `CLAIMED` until the caller writes it.
    pub(super) fn claim(&self, quotas: &Generations, hash: u64, now: Nanos) -> Option<usize> {
        // Each failed attempt means that somebody else took or used the slot found.
        for attempt in 0..16 {
            let Some((index, word)) = self.vacancy(quotas, hash, now) else {
                if attempt == 0 && self.reclaim(quotas, now) {
                    continue;
                }
                return None;
            };
            let (hash_cell, word_cell) = self.slot(index);
            // Relaxed success: nothing is read through the slot before it is ours to write.
            if word_cell
                .compare_exchange(word, CLAIMED, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            // Ours now, so its hash stands still.
            let was = hash_cell.load(Ordering::Relaxed);
            if was > FREED || self.take_share() {
                return Some(index);
            }
            // The bound was reached meanwhile. Release pairs with the acquire in `find`.
            word_cell.store(word, Ordering::Release);
        }
        None
    }

    /// A slot on the key's path that may be claimed, and its word. An idle key is evicted only where there
    /// is no empty slot: it may come back, and two that share a line would evict each other for ever.
    pub(super) fn vacancy(
        &self,
        quotas: &Generations,
        hash: u64,
        now: Nanos,
    ) -> Option<(usize, u64)> {
        let may_grow = self.used.load(Ordering::Relaxed) < self.max_keys;
        let mut evictable = None;
        for line_index in self.path(hash) {
            let line = self.lines.line(line_index);
            let mut ends_here = false;
            for i in 0..SLOTS {
                // The word first, as in `look`: were the slot taken between the two loads, a live word
                // would pass for that of a slot never used.
                let word = line.word(i).load(Ordering::Acquire);
                let seen = line.hash(i).load(Ordering::Relaxed);
                ends_here |= seen == UNUSED;
                // No quota wrote a claim, so that none can read it.
                if word == CLAIMED {
                    continue;
                }
                let slot = Some((line_index * SLOTS + i, word));
                if seen <= FREED {
                    if may_grow {
                        return slot;
                    }
                } else if evictable.is_none() {
                    let present = quotas.present();
                    if present.is_idle(present.state(word, now), now) {
                        evictable = slot;
                    }
                }
            }
            if ends_here || (evictable.is_some() && !may_grow) {
                break;
            }
        }
        evictable
    }

    /// Counts one more key, unless the bound is reached.
    fn take_share(&self) -> bool {
        // Relaxed: a count, nothing is read through it.
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < self.max_keys).then_some(used + 1)
            })
            .is_ok()
    }

    /// Frees idle slots in the next few lines; says whether there were any.
    pub(super) fn reclaim(&self, quotas: &Generations, now: Nanos) -> bool {
        let start = self.cursor.fetch_add(RECLAIM_LINES as u64, Ordering::Relaxed) as usize;
        let mut freed = 0;
        for step in 0..RECLAIM_LINES.min(self.lines.len()) {
            let line = self.lines.line((start + step) % self.lines.len());
            for i in 0..SLOTS {
                let word = line.word(i).load(Ordering::Acquire);
                if line.hash(i).load(Ordering::Relaxed) <= FREED || word == CLAIMED {
                    continue;
                }
                let present = quotas.present();
                if !present.is_idle(present.state(word, now), now)
                    || line
                        .word(i)
                        .compare_exchange(word, CLAIMED, Ordering::Relaxed, Ordering::Relaxed)
                        .is_err()
                {
                    continue;
                }
                // Somebody may have freed it between the two loads above.
                if line.hash(i).load(Ordering::Relaxed) > FREED {
                    line.hash(i).store(FREED, Ordering::Relaxed);
                    freed += 1;
                }
                // Greater than the word it was: whoever found the key here just before must not be able to
                // charge a slot that is nobody's. Release pairs with the acquire in `find`.
                let freed = present.word(present.idle_word(now));
                line.word(i).store(freed, Ordering::Release);
            }
        }
        self.used.fetch_sub(freed, Ordering::Relaxed);
        freed > 0
    }
}
