//! [`Many`]: the records of many keys: bounded, without a background task.
//!
//! **Nothing is forgotten that matters.** Only an idle record, which is as good as none, is let go of. Each has one
//! *ticket* in a line by the time at which it was to be idle; whoever comes looks at the first two
//! tickets that are due, and lets go of a record or gives it a new ticket. So there is no sweep, and memory comes
//! back as keys come.
//!
//! **Where all is live**, newcomers share overflow records, as they do where words are counted; and a key that finds
//! room later starts with what its overflow record has spent.

use std::{
    collections::{HashMap, VecDeque},
    sync::TryLockError,
};

use ahash::RandomState;

use crate::{
    algorithm::{Spent, sliding::Machine},
    backend::local::{Made, Seat, holds::Places},
    clock::Nanos,
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

const SHARDS: usize = if cfg!(sluice_loom) { 1 } else { 64 };

/// Overflow records of one shard.
const BUCKETS: u64 = if cfg!(sluice_loom) { 1 } else { 16 };

/// Places of overflow records begin here; those of keys lie below.
const FIRST_PLACE: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct Many {
    shards: Box<[Mutex<Shard>]>,
    /// Records of keys, idle or not.
    used: AtomicU64,
    max_keys: u64,
    /// Where room is looked for next.
    cursor: AtomicU64,
    /// Whether keys have had to share.
    overflowed: AtomicU64,
}

#[derive(Debug)]
struct Shard {
    machine: Machine,
    records: HashMap<u64, Spent, RandomState>,
    /// When a record was to be idle, and its place.
    tickets: VecDeque<(Nanos, u64)>,
    /// The most that any record let go of had been admitted: later ones begin there.
    admitted: u64,
}

/// The place of the overflow record that a key shares: of the same shard.
fn overflow_of(hash: u64) -> u64 {
    FIRST_PLACE + (Seat::place_of(hash) % (SHARDS as u64 * BUCKETS))
}

impl Many {
    pub(super) fn new(machine: Machine, max_keys: u64) -> Self {
        let shard = || Shard {
            machine,
            records: HashMap::default(),
            tickets: VecDeque::new(),
            admitted: 0,
        };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            used: AtomicU64::new(0),
            max_keys,
            cursor: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shard_of(Seat::place_of(hash))
    }

    /// The shard of a place, be it a key's or of an overflow record.
    #[inline]
    fn shard_of(&self, place: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[place as usize % SHARDS])
    }

    /// Asks what is known of a key, or of those it shares with.
    pub(super) fn ask<T>(&self, hash: u64, ask: impl FnOnce(&Machine, &Spent) -> T) -> T {
        let shard = self.shard(hash);
        match shard.find(hash) {
            Some(spent) => ask(&shard.machine, spent),
            None => ask(&shard.machine, &Spent::default()),
        }
    }

    /// Makes a change to a key's record, or to the one it shares; a new record is kept if the change is made.
    #[inline]
    pub(super) fn change(
        &self,
        hash: u64,
        now: Nanos,
        change: impl Fn(&Machine, &mut Spent) -> Option<u64>,
    ) -> Option<(u64, u64)> {
        let (shard, place) = (&mut *self.shard(hash), Seat::place_of(hash));
        match shard.records.get_mut(&place) {
            Some(spent) => {
                let new = change(&shard.machine, spent)?;
                if shard.tickets.front().is_some_and(|(due, _)| *due <= now) {
                    self.let_go(shard, now, 2);
                }
                Some((place, new))
            }
            None => self.begin(shard, hash, now, change),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(
        &self,
        shard: &mut Shard,
        hash: u64,
        now: Nanos,
        change: impl Fn(&Machine, &mut Spent) -> Option<u64>,
    ) -> Option<(u64, u64)> {
        let shared = overflow_of(hash);
        if shard.records.contains_key(&shared)
            && !self.has_room(shard, now)
            && let Some(spent) = shard.records.get_mut(&shared)
        {
            // Relaxed: for whoever asks.
            self.overflowed.store(1, Ordering::Relaxed);
            return Some((shared, change(&shard.machine, spent)?));
        }
        // What it spent while there was no room for it.
        let mut spent = match shard.records.get(&shared) {
            Some(spent) => spent.clone(),
            None => Spent::after(shard.admitted),
        };
        // A refusal needs no record, and must not take one.
        let new = change(&shard.machine, &mut spent)?;
        let place = if self.take_room(shard, now) { Seat::place_of(hash) } else { shared };
        if place == shared {
            // Relaxed: for whoever asks.
            self.overflowed.store(1, Ordering::Relaxed);
        }
        let idle_at = spent.idle_at(&shard.machine);
        if shard.records.insert(place, spent).is_none() {
            shard.tickets.push_back((idle_at, place));
        }
        Some((place, new))
    }

    /// The places that a key may be counted at.
    pub(super) fn places(hash: u64) -> Places {
        Places { own: Seat::place_of(hash), shared: overflow_of(hash) }
    }

    /// Whether it is counted at its own.
    pub(super) fn has_room_for(&self, hash: u64, now: Nanos) -> bool {
        let shard = &mut *self.shard(hash);
        shard.records.contains_key(&Seat::place_of(hash)) || self.has_room(shard, now)
    }

    pub(super) fn undo(&self, made: &Made) -> bool {
        let mut shard = self.shard_of(made.place);
        let record = shard.records.get_mut(&made.place);
        record.is_some_and(|spent| spent.undo(made.old, made.new))
    }

    pub(super) fn reset(&self, hash: u64, now: Nanos) -> bool {
        let (shard, place) = (&mut *self.shard(hash), Seat::place_of(hash));
        let Some(spent) = shard.records.get_mut(&place) else { return false };
        let known = spent.reset(&shard.machine, now);
        // At once, so that there is room; somebody resets a key here and there.
        shard.tickets.retain(|(_, other)| *other != place);
        self.remove(shard, place);
        known
    }

    pub(super) fn renew(&self, machine: Machine, now: Nanos) {
        for shard in &self.shards {
            let shard = &mut *lock(shard);
            shard.records.values_mut().for_each(|spent| spent.renew(&shard.machine, now));
            shard.machine = machine.succeeding(&shard.machine);
            shard.line_up(now);
        }
    }

    pub(super) fn tracked(&self, now: Nanos) -> u64 {
        let live = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            let live = |(place, spent): &(&u64, &Spent)| {
                **place < FIRST_PLACE && !spent.is_idle(&shard.machine, now)
            };
            shard.records.iter().filter(live).count() as u64
        };
        self.shards.iter().map(live).sum()
    }

    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed) != 0
    }

    /// Counts one more key, unless the bound is reached.
    fn take_room(&self, shard: &mut Shard, now: Nanos) -> bool {
        self.let_go(shard, now, 2);
        self.has_room(shard, now) && {
            let take = |used| (used < self.max_keys).then_some(used + 1);
            // Relaxed: a count, nothing is read through it.
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        }
    }

    /// Whether there is room for one more key, or can be made by letting go of what is idle.
    fn has_room(&self, shard: &mut Shard, now: Nanos) -> bool {
        let is_open = || self.used.load(Ordering::Relaxed) < self.max_keys;
        if is_open() {
            return true;
        }
        self.let_go(shard, now, usize::MAX);
        // In other shards, too; whoever holds one of them is not waited for, since he may look for room here.
        for _ in 0..SHARDS {
            if is_open() {
                return true;
            }
            let next = self.cursor.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
            match self.shards[next].try_lock() {
                Ok(mut other) => self.let_go(&mut other, now, 64),
                Err(TryLockError::Poisoned(other)) => self.let_go(&mut other.into_inner(), now, 64),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        is_open()
    }

    /// Lets go of idle records, by so many tickets that are due.
    fn let_go(&self, shard: &mut Shard, now: Nanos, most: usize) {
        for _ in 0..most {
            let Some((_, place)) = shard.tickets.front().filter(|(due, _)| *due <= now).copied()
            else {
                break;
            };
            shard.tickets.pop_front();
            let Some(spent) = shard.records.get(&place) else { continue };
            let idle_at = spent.idle_at(&shard.machine);
            if idle_at > now {
                shard.tickets.push_back((idle_at, place));
                continue;
            }
            self.remove(shard, place);
        }
        if shard.records.capacity() > 4 * shard.records.len() + 64 {
            shard.records.shrink_to(2 * shard.records.len());
            shard.tickets.shrink_to(2 * shard.tickets.len());
        }
    }

    /// Lets go of a record, and of its place in the count.
    fn remove(&self, shard: &mut Shard, place: u64) {
        let Some(spent) = shard.records.remove(&place) else { return };
        shard.admitted = shard.admitted.max(spent.admitted());
        if place < FIRST_PLACE {
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shard {
    /// A key's record, or that of those who share.
    #[inline]
    fn find(&self, hash: u64) -> Option<&Spent> {
        self.records.get(&Seat::place_of(hash)).or_else(|| self.records.get(&overflow_of(hash)))
    }

    /// Gives all records new tickets, by the quota in force.
    fn line_up(&mut self, now: Nanos) {
        let ticket = |(place, spent): (&u64, &Spent)| (spent.idle_at(&self.machine), *place);
        let mut tickets: Vec<_> = self.records.iter().map(ticket).collect();
        tickets.sort_unstable_by_key(|(idle_at, _)| (*idle_at).max(now));
        self.tickets = tickets.into();
    }
}
