//! [`Keyed`]: how many are in flight per key.
//!
//! A key is known while something of it is in flight or waits, and no longer: memory is bounded by what is in
//! flight, whatever keys come. Each count is guarded by the lock of its shard, so that a key that comes and
//! goes can never have two. The lock also orders what a permit's holders do, one after the other.

use std::{collections::HashMap, task::Waker};

use ahash::RandomState;

use super::{
    Full,
    line::{Left, Line},
};
use crate::{
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
    waiting::{Depth, give_up_room, wake},
};

#[derive(Debug)]
pub(super) struct Keyed {
    shards: Box<[Mutex<Shard>]>,
    /// How many wait, over all keys. Changed under the lock of a shard only.
    waiting: AtomicU64,
}

type Shard = HashMap<u64, Entry, RandomState>;

#[derive(Debug, Default)]
struct Entry {
    count: u64,
    line: Line,
}

const SHARDS: usize = if cfg!(sluice_loom) { 1 } else { 64 };

impl Entry {
    /// Gives what is free to those in line.
    fn fill(&mut self, limit: u64, woken: &mut Vec<Waker>) -> u64 {
        let mut granted = 0;
        while self.count < limit && self.line.grant(woken) {
            self.count += 1;
            granted += 1;
        }
        granted
    }

    fn is_done(&self) -> bool {
        self.count == 0 && self.line.is_done()
    }
}

impl Keyed {
    pub(super) fn new() -> Self {
        let shard = |_| Mutex::new(Shard::default());
        Self { shards: (0..SHARDS).map(shard).collect(), waiting: AtomicU64::new(0) }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The upper bits: the map within uses the lower ones.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    pub(super) fn count(&self) -> u64 {
        let of = |shard: &Mutex<Shard>| lock(shard).values().map(|entry| entry.count).sum::<u64>();
        self.shards.iter().map(of).sum()
    }

    pub(super) fn count_of(&self, hash: u64) -> u64 {
        self.shard(hash).get(&hash).map_or(0, |entry| entry.count)
    }

    pub(super) fn keys(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    pub(super) fn waiting(&self) -> u64 {
        // Relaxed: a number for whoever asks.
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn is_open(&self, hash: u64, limit: u64) -> bool {
        let shard = self.shard(hash);
        shard.get(&hash).is_none_or(|entry| entry.line.is_empty() && entry.count < limit)
    }

    /// Takes a permit of the key; `limit` is read with the key's shard locked.
    pub(super) fn try_take(&self, hash: u64, limit: impl FnOnce() -> u64) -> bool {
        let mut shard = self.shard(hash);
        let limit = limit();
        match shard.get_mut(&hash) {
            Some(entry) if !entry.line.is_empty() || entry.count >= limit => false,
            Some(entry) => {
                entry.count += 1;
                true
            }
            None if limit == 0 => false,
            None => {
                shard.insert(hash, Entry { count: 1, line: Line::default() });
                true
            }
        }
    }

    pub(super) fn give_back(&self, hash: u64, limit: impl FnOnce() -> u64) {
        self.change(hash, limit, |entry| entry.count = entry.count.saturating_sub(1));
    }

    /// Makes a change with the key's shard locked, gives those in line what is free then, and wakes them with the
    /// shard unlocked again.
    fn change<T>(
        &self,
        hash: u64,
        limit: impl FnOnce() -> u64,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let mut woken = Vec::new();
        let mut shard = self.shard(hash);
        let entry = shard.get_mut(&hash)?;
        let changed = change(entry);
        self.settle(entry.fill(limit(), &mut woken));
        if entry.is_done() {
            shard.remove(&hash);
            give_up_room(&mut shard);
        }
        drop(shard);
        wake(woken);
        Some(changed)
    }

    /// So many wait no longer.
    fn settle(&self, gone: u64) {
        // Relaxed: as in `Depth::take`.
        self.waiting.fetch_sub(gone, Ordering::Relaxed);
    }

    /// Joins the key's line; `None` where a permit was free after all and is taken.
    pub(super) fn join(
        &self,
        hash: u64,
        limit: impl FnOnce() -> u64,
        depth: Depth,
    ) -> Result<Option<u64>, Full> {
        let mut shard = self.shard(hash);
        let limit = limit();
        let (count, waiting) =
            shard.get(&hash).map_or((0, 0), |entry| (entry.count, entry.line.len()));
        if waiting == 0 && count < limit {
            shard.entry(hash).or_default().count += 1;
            return Ok(None);
        }
        if !depth.take(&self.waiting, waiting) {
            return Err(Full);
        }
        Ok(Some(shard.entry(hash).or_default().line.join()))
    }

    pub(super) fn poll(&self, hash: u64, place: u64, waker: &Waker) -> bool {
        let mut shard = self.shard(hash);
        let polled = shard.get_mut(&hash).map(|entry| entry.line.poll(place, waker));
        // The old waker is dropped after that.
        drop(shard);
        polled.is_some_and(|(granted, _)| granted)
    }

    /// Leaves the line; a permit that had come goes to the next.
    pub(super) fn leave(&self, hash: u64, place: u64, limit: impl FnOnce() -> u64) {
        // What is left is dropped with the shard unlocked.
        let _left = self.change(hash, limit, |entry| {
            let left = entry.line.leave(place);
            match &left {
                Some(Left::Place { .. }) => self.settle(1),
                Some(Left::Permit) => entry.count = entry.count.saturating_sub(1),
                None => {}
            }
            left
        });
    }

    /// Those in line take what a new limit frees; `limit` is read with each shard locked, so that of two
    /// changes at once the one in force counts.
    pub(super) fn refill(&self, limit: impl Fn() -> u64) {
        for shard in &self.shards {
            let mut woken = Vec::new();
            let mut shard = lock(shard);
            let limit = limit();
            let granted = shard.values_mut().map(|entry| entry.fill(limit, &mut woken)).sum();
            self.settle(granted);
            drop(shard);
            wake(woken);
        }
    }
}
