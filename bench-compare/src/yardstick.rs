//! What the same work costs at the least: yardsticks, not limiters.

use std::{
    hint::black_box,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ahash::RandomState;
use hashbrown::HashTable;

/// One step of the generic cell rate algorithm on one word, with all that a limiter adds left out.
pub struct Gcra {
    arrival: AtomicU64,
    each: u64,
    tolerance: u64,
}

impl Gcra {
    /// Allows everything.
    pub fn generous() -> Self {
        Self { arrival: AtomicU64::new(0), each: 1, tolerance: 1 << 40 }
    }

    /// Denies all but the first.
    pub fn spent() -> Self {
        Self { arrival: AtomicU64::new(u64::MAX / 2), each: 1 << 40, tolerance: 0 }
    }

    #[inline]
    pub fn allows(&self, now: u64) -> bool {
        let mut arrival = self.arrival.load(Ordering::Relaxed);
        loop {
            let Some(next) = step(arrival, now, self.each, self.tolerance) else { return false };
            match self.arrival.compare_exchange_weak(
                arrival,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => arrival = seen,
            }
        }
    }
}

#[inline]
fn step(arrival: u64, now: u64, each: u64, tolerance: u64) -> Option<u64> {
    let start = arrival.max(now);
    (start - now <= tolerance).then_some(start + each)
}

const SHARDS: usize = 64;

/// A table that keeps the 64-bit hash of a key and one word, in 64 shards of a mutex each.
pub struct HashOnly {
    hasher: RandomState,
    shards: Vec<Mutex<HashTable<(u64, u64)>>>,
}

impl HashOnly {
    pub fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(HashTable::new())).collect();
        Self { hasher: RandomState::new(), shards }
    }

    #[inline]
    pub fn allows(&self, key: &[u8], now: u64) -> bool {
        use std::hash::{BuildHasher, Hasher};
        let mut state = self.hasher.build_hasher();
        state.write(key);
        let hash = state.finish();
        let shard = &self.shards[(hash >> 32) as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = shard.entry(hash, |(known, _)| *known == hash, |(known, _)| *known);
        let mut entry = entry.or_insert((hash, 0));
        let (_, arrival) = entry.get_mut();
        match step(*arrival, now, 1, 1 << 40) {
            Some(next) => {
                *arrival = next;
                true
            }
            None => false,
        }
    }
}

/// A sequence of numbers below `bound` without a pattern: xorshift, and a multiplication.
pub struct Random {
    state: u64,
    bound: u64,
}

impl Random {
    pub fn below(bound: u64) -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15, bound }
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((u128::from(self.state) * u128::from(self.bound)) >> 64) as u64
    }
}

/// Writes keys of 36 bytes, the shape of a UUID, into one buffer: as if each had just been parsed.
pub struct Names {
    bytes: [u8; 36],
    text: String,
}

impl Names {
    pub fn new() -> Self {
        let bytes = *b"00000000-5a1e-4c3d-9b7f-0123456789ab";
        Self { bytes, text: String::with_capacity(36) }
    }

    #[inline]
    pub fn of(&mut self, number: u64) -> &String {
        for (digit, byte) in self.bytes[..8].iter_mut().enumerate() {
            *byte = b"0123456789abcdef"[(number >> (4 * digit)) as usize & 15];
        }
        self.text.clear();
        self.text.push_str(std::str::from_utf8(black_box(&self.bytes)).unwrap_or_default());
        &self.text
    }
}

/// The address with this number.
#[inline]
pub fn address(number: u64) -> std::net::IpAddr {
    // Odd, so that no two numbers below 2^32 meet.
    std::net::Ipv4Addr::from((number as u32).wrapping_mul(2_654_435_761)).into()
}
