//! [`Table`]: the words of many keys, bounded, without a background task.
//!
//! **Layout.** A fixed number of 64-byte lines, two slots for every key that may be kept; a line holds
//! four hashes and their four words. A key is its seeded 64-bit hash; its bytes are not kept.
//!
//! **Where a key lies.** Its hash names up to four pairs of neighbouring lines, to be looked through in
//! that order; nothing lies behind a slot that was never used.
//!
//! **Hits take no lock.** A reader takes the word first (acquire), then the hash. A slot changes hands
//! only through its word: a claim swaps the idle word for [`CLAIMED`], a value no key has, writes the
//! hash, then writes the first charge (release). So a word read with another owner's hash can never be
//! swapped: it is gone. While a slot is held its word grows, save by undo, reset and conversion, each a
//! swap of the exact word; a claim writes a word greater than the one it replaces.
//!
//! **One slot per key.** Inserts of keys with one home line are serialised by one of a fixed set of
//! mutexes, so a key cannot be inserted twice. A slot found idle on another key's path is claimed by
//! whoever swaps its word first.
//!
//! **Nothing is forgotten that matters.** Only an idle word, one that is indistinguishable from a key
//! never seen, is ever replaced. Inserts reuse idle slots in place; where the number of keys has reached
//! its bound, an insert looks for idle slots in a few lines further on and frees them.

mod insert;

use super::{
    Denied, Kept, Made,
    generations::{Generations, Present},
    lines::{Lines, SLOTS},
    overflow::Overflow,
};
use crate::{
    clock::Nanos,
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

/// The word of a slot whose ownership is changing.
const CLAIMED: u64 = u64::MAX;

/// The hash of a slot never used; a search ends there.
const UNUSED: u64 = 0;

/// The hash of a slot that was used and freed; a search goes on.
const FREED: u64 = 1;

/// Pairs of lines on a key's path: at half load one pair is full for 2 keys in 100, four for 1 in 10^7.
const PAIRS: u32 = 4;

/// Mutexes that serialise inserts.
const STRIPES: usize = if cfg!(sluice_loom) { 2 } else { 64 };

/// Lines an insert looks through for idle slots to free, once the bound is reached.
const RECLAIM_LINES: usize = 16;

/// The bounded store of one quota's keys.
#[derive(Debug)]
pub(crate) struct Table {
    lines: Lines,
    stripes: Box<[Mutex<()>]>,
    /// Slots that hold a key, idle or not.
    used: AtomicU64,
    max_keys: u64,
    /// Where the next search for idle slots begins.
    cursor: AtomicU64,
}

/// What became of a charge on a key.
pub(super) enum Charged<K> {
    Made(K),
    Denied(Denied),
    /// The key is not here and there is no room for it.
    NoRoom,
}

enum Found {
    At(usize, u64),
    /// The key's slot is changing hands.
    Changing,
    Absent,
}

impl Table {
    /// A table for `max_keys` keys, at least one; `None` where there is no memory for it. Its memory is
    /// touched as keys come.
    pub(super) fn new(max_keys: u64) -> Option<Self> {
        // Two slots a key, in pairs of lines.
        let pairs = usize::try_from(max_keys).ok()?.div_ceil(SLOTS).max(1);
        Some(Self {
            lines: Lines::new(pairs.checked_mul(2)?)?,
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            used: AtomicU64::new(0),
            max_keys,
            cursor: AtomicU64::new(0),
        })
    }

    /// A hash as the table keeps it: the two lowest values mean something else.
    #[inline]
    fn stored(hash: u64) -> u64 {
        hash.max(FREED + 1)
    }

    /// The lines a key may lie in, home line first.
    #[inline]
    fn path(&self, hash: u64) -> impl Iterator<Item = usize> {
        let pairs = self.lines.len() as u64 / 2;
        (0..PAIRS * 2).map(move |step| {
            let turned = hash.rotate_left(16 * (step / 2));
            let pair = (u128::from(turned) * u128::from(pairs)) >> 64;
            // Below the number of pairs.
            let line = pair as usize * 2;
            line | ((hash as usize ^ step as usize) & 1)
        })
    }

    fn serialise_inserts(&self, hash: u64) -> MutexGuard<'_, ()> {
        lock(&self.stripes[self.home(hash) % STRIPES])
    }

    #[inline]
    fn slot(&self, index: usize) -> (&AtomicU64, &AtomicU64) {
        let line = self.lines.line(index / SLOTS);
        (line.hash(index), line.word(index))
    }

    /// Where a key lies.
    #[inline(always)]
    fn find(&self, hash: u64) -> Found {
        let mut line = self.home(hash);
        let mut step = 0;
        loop {
            if let Some(found) = self.look(line, hash) {
                return found;
            }
            step += 1;
            match self.beyond(hash, step) {
                Some(next) => line = next,
                None => return Found::Absent,
            }
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        self.path(hash).next().unwrap_or_default()
    }

    /// The line to be looked through after so many. Apart: nineteen of twenty keys lie in their home line.
    #[cold]
    #[inline(never)]
    fn beyond(&self, hash: u64, step: usize) -> Option<usize> {
        self.path(hash).nth(step)
    }

    /// What a line tells of a key; `None` where the search goes on.
    #[inline(always)]
    fn look(&self, line_index: usize, hash: u64) -> Option<Found> {
        let line = self.lines.line(line_index);
        // Relaxed: only a hint, confirmed below.
        let seen: [u64; SLOTS] = std::array::from_fn(|i| line.hash(i).load(Ordering::Relaxed));
        // One bit a slot instead of one branch: nobody can predict which it will be.
        let bit = |i: usize| u32::from(seen[i] == hash) << i;
        let mut slots = (0..SLOTS).fold(0, |bits, i| bits | bit(i));
        while slots != 0 {
            // Below the number of slots.
            let i = slots.trailing_zeros() as usize % SLOTS;
            // Acquire pairs with the release that ends a claim: if this is the word of a later
            // owner, the hash below is his.
            let word = line.word(i).load(Ordering::Acquire);
            if word == CLAIMED {
                return Some(Found::Changing);
            }
            if line.hash(i).load(Ordering::Relaxed) == hash {
                return Some(Found::At(line_index * SLOTS + i, word));
            }
            slots &= slots - 1;
        }
        seen.contains(&UNUSED).then_some(Found::Absent)
    }

    /// The state of a key; zero where it is not here.
    #[inline]
    pub(super) fn state<'a>(
        &self,
        quotas: &'a Generations,
        hash: u64,
        now: Nanos,
    ) -> (u64, Present<'a>) {
        let found = self.find(Self::stored(hash));
        let present = quotas.present();
        match found {
            Found::At(_, word) => (present.state(word, now), present),
            Found::Changing | Found::Absent => (0, present),
        }
    }

    /// Whether a charge on the key would find a slot.
    pub(super) fn has_room(&self, quotas: &Generations, hash: u64, now: Nanos) -> bool {
        let hash = Self::stored(hash);
        !matches!(self.find(hash), Found::Absent)
            || self.vacancy(quotas, hash, now).is_some()
            || self.reclaim(quotas, now)
    }

    /// What a charge on a key that is here would do; an error where it does not fit.
    #[inline]
    pub(super) fn foresee(
        &self,
        quotas: &Generations,
        hash: u64,
        now: Nanos,
        cost: u64,
        plain: bool,
    ) -> Option<Result<Made, ()>> {
        let Found::At(index, old) = self.find(Self::stored(hash)) else { return None };
        let made = |new| Made { place: index as u64, old, new };
        Some(quotas.charge(old, now, cost, 0, plain).map(made).ok_or(()))
    }

    /// Makes a charge that was foreseen, unless the word has changed since.
    #[inline]
    pub(super) fn make(&self, charge: &Made) -> bool {
        usize::try_from(charge.place).is_ok_and(|index| self.swap(index, charge.old, charge.new))
    }

    /// Charges a key. The loop ends: each turn another thread's charge on the same slot went through, or
    /// its slot changed hands.
    #[inline(always)]
    pub(super) fn charge<K: Kept>(
        &self,
        quotas: &Generations,
        hash: u64,
        (now, cost, held): (Nanos, u64, u64),
        overflow: Option<&Overflow>,
        plain: bool,
    ) -> Charged<K> {
        let hash = Self::stored(hash);
        loop {
            let Found::At(index, word) = self.find(hash) else {
                match self.insert(quotas, hash, now, cost, held, overflow) {
                    Some(charged) => return charged,
                    None => continue,
                }
            };
            let Some(new) = quotas.charge(word, now, cost, held, plain) else {
                return Charged::Denied(Denied(word));
            };
            if self.swap(index, word, new) {
                return Charged::Made(K::of(Made { place: index as u64, old: word, new }));
            }
        }
    }

    /// Charges what was counted before, when it was held; `false` where there is no room for the key.
    pub(super) fn force(
        &self,
        quotas: &Generations,
        hash: u64,
        now: Nanos,
        cost: u64,
        overflow: Option<&Overflow>,
    ) -> bool {
        let hash = Self::stored(hash);
        loop {
            if let Found::At(index, word) = self.find(hash) {
                let present = quotas.present();
                let state = present.force(present.state(word, now), now, cost);
                if self.swap(index, word, present.word(state)) {
                    return true;
                }
                continue;
            }
            let _serial = self.serialise_inserts(hash);
            if let Found::At(..) = self.find(hash) {
                continue;
            }
            let Some(index) = self.claim(quotas, hash, now) else { return false };
            let spent = overflow.map_or(0, |overflow| overflow.state(quotas, hash, now));
            let present = quotas.present();
            let (hash_cell, word_cell) = self.slot(index);
            hash_cell.store(hash, Ordering::Relaxed);
            // Release pairs with the acquire in `find`.
            let word = present.word(present.force(spent, now, cost));
            word_cell.store(word, Ordering::Release);
            return true;
        }
    }

    /// Restore or burn: what was there before comes back only if the word is still the one we wrote.
    pub(super) fn undo(&self, quotas: &Generations, made: &Made, now: Nanos) -> bool {
        let Ok(index) = usize::try_from(made.place) else { return false };
        let present = quotas.present();
        if !present.wrote(made.new) {
            return false;
        }
        let old = present.state(made.old, now);
        // The charge brought the key here, or brought it back from idle: it stays, idle, with a word that
        // nobody may claim before time moves on. Were the old word put back, the next owner could write
        // the very word that is undone here, and whoever had read that would charge him.
        let idle = made.old == 0 || present.is_idle(old, now);
        let restored = if idle { present.idle_word(now) } else { old };
        self.swap(index, made.new, present.word(restored))
    }

    /// Makes a key's state that of a key never seen; says whether it was not.
    pub(super) fn reset(&self, quotas: &Generations, hash: u64, now: Nanos) -> bool {
        let hash = Self::stored(hash);
        loop {
            let Found::At(index, word) = self.find(hash) else { return false };
            let present = quotas.present();
            let state = present.state(word, now);
            if !present.is_known(state, now) {
                return false;
            }
            let idle = present.word(present.idle_word(now));
            if self.swap(index, word, idle) {
                return true;
            }
        }
    }

    /// Rewrites every word of an older quota under the present one.
    pub(super) fn convert(&self, quotas: &Generations, now: Nanos) {
        for stripe in &self.stripes {
            // Whoever inserts under the quota that was in force has written its word after this.
            drop(lock(stripe));
        }
        for index in 0..self.lines.len() * SLOTS {
            loop {
                let word = self.slot(index).1.load(Ordering::Acquire);
                let present = quotas.present();
                if word == CLAIMED || word == 0 || present.wrote(word) {
                    break;
                }
                let state = present.state(word, now);
                if self.swap(index, word, present.word(state)) {
                    break;
                }
            }
        }
    }

    /// How many keys are not idle.
    pub(super) fn tracked(&self, quotas: &Generations, now: Nanos) -> u64 {
        let mut tracked = 0;
        for line in self.lines.iter() {
            for i in 0..SLOTS {
                let word = line.word(i).load(Ordering::Acquire);
                if line.hash(i).load(Ordering::Relaxed) > FREED && word != CLAIMED && word != 0 {
                    let present = quotas.present();
                    let state = present.state(word, now);
                    tracked += u64::from(present.is_known(state, now));
                }
            }
        }
        tracked
    }

    #[inline]
    fn swap(&self, index: usize, old: u64, new: u64) -> bool {
        let (_, word) = self.slot(index);
        // Release: whoever reads this word (acquire) also sees the quota it was written under, and the
        // hash of the claim it descends from.
        word.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, FixedWindow, TokenBucket, algorithm::Step};

    /// A hit reads word and hash without a lock. Were the slot freed between that and the swap, with
    /// its word left as it was, the charge would go to a slot that is nobody's.
    #[test]
    fn a_hit_on_a_slot_that_was_freed_meanwhile_fails() {
        let window = FixedWindow::per_second(5);
        let many: [Algorithm; 3] =
            [TokenBucket::per_second(5).into(), window.into(), window.aligned().into()];
        for algorithm in many {
            let (quotas, table) = (Generations::of(algorithm), Table::new(4).expect("memory"));
            assert!(matches!(
                table.charge(&quotas, 77, (Nanos::new(1), 1, 0), None, false),
                Charged::Made(())
            ));
            let later = Nanos::new(5_000_000_000);
            let Found::At(index, word) = table.find(77) else { panic!("the key is there") };
            assert!(table.reclaim(&quotas, later));
            assert!(matches!(table.find(77), Found::Absent));
            let present = quotas.present();
            let Step::To(next) = present.charge(present.state(word, later), later, 1, 0) else {
                panic!("an idle key")
            };
            assert!(!table.swap(index, word, present.word(next)), "{algorithm:?}");
            // The slot is free for the next key, whose word is a greater one.
            let freed = table.slot(index).1.load(Ordering::Relaxed);
            assert!(matches!(
                table.charge(&quotas, 77, (later, 1, 0), None, false),
                Charged::Made(())
            ));
            let Found::At(again, word) = table.find(77) else { panic!("the key is back") };
            assert!(again != index || word > freed, "{algorithm:?}");
        }
    }

    /// Four idle keys fill the line that a fifth calls home: were one of them evicted while other slots are
    /// empty, keys that come and go would evict each other for ever.
    #[test]
    fn a_new_key_takes_an_empty_slot_before_that_of_an_idle_key() {
        // Two pairs of lines, for five keys.
        let (quotas, table) =
            (Generations::of(TokenBucket::per_second(5)), Table::new(5).expect("memory"));
        let home = table.home(77);
        let neighbours = (1_000..).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let neighbours: Vec<u64> =
            neighbours.filter(|hash| table.home(*hash) == home).take(5).collect();
        let [neighbours @ .., sixth] = &neighbours[..] else { panic!("five") };
        for hash in neighbours {
            let made: Charged<()> =
                table.charge(&quotas, *hash, (Nanos::new(1), 1, 0), None, false);
            assert!(matches!(made, Charged::Made(())));
            assert!(matches!(table.find(*hash), Found::At(index, _) if index / SLOTS == home));
        }
        let later = Nanos::new(5_000_000_000);
        let (index, _) = table.vacancy(&quotas, 77, later).expect("room");
        assert_eq!(table.slot(index).0.load(Ordering::Relaxed), UNUSED);
        assert_ne!(index / SLOTS, home);
        assert!(matches!(table.charge(&quotas, 77, (later, 1, 0), None, false), Charged::Made(())));
        for hash in neighbours.iter().chain([&77]) {
            assert!(matches!(table.find(*hash), Found::At(..)), "{hash}");
        }
        // Where five are kept, the sixth has to evict: an idle one.
        let (index, word) = table.vacancy(&quotas, *sixth, later).expect("idle keys");
        let present = quotas.present();
        assert!(table.slot(index).0.load(Ordering::Relaxed) > FREED);
        assert!(present.is_idle(present.state(word, later), later));
    }
}
