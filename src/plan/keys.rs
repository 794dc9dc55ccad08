//! Keys on their way to a counter: hashed for the one here, encoded for others.

use ahash::RandomState;

use crate::{limiter::hash_of, request::key::KeySink};

/// The alternative of a missing key where such requests count together; above all there are.
pub(crate) const MISSING: u8 = u8::MAX;

/// The last byte of a key's encoding where a tier is part of it; above all alternatives too.
const TIER: u8 = MISSING - 1;

/// The hash of a missing key where such requests count together: a key that no alternative has, of no
/// parts, and with a number above all alternatives.
pub(super) fn shared_hash(hasher: &RandomState) -> u64 {
    hash_of(hasher, MISSING, [])
}

/// Hashes the parts of a key as they come.
pub(super) struct Hashing<'h> {
    hasher: &'h RandomState,
    state: ahash::AHasher,
}

impl<'h> Hashing<'h> {
    #[inline]
    pub(super) fn new(hasher: &'h RandomState) -> Self {
        use std::hash::BuildHasher;
        Self { hasher, state: hasher.build_hasher() }
    }

    #[inline]
    pub(super) fn finish(mut self, alternative: u8) -> u64 {
        use std::hash::Hasher;
        self.state.write_u8(alternative);
        self.state.finish()
    }
}

impl KeySink for Hashing<'_> {
    // As `hash_of` does it, so that a key named and a key extracted are the same.
    #[inline]
    fn part(&mut self, bytes: &[u8]) {
        use std::hash::Hasher;
        self.state.write_u64(bytes.len() as u64);
        self.state.write(bytes);
    }

    fn clear(&mut self) {
        *self = Self::new(self.hasher);
    }
}

/// A key's bytes as other backends get them; on the stack up to 64.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoded(smallvec::SmallVec<[u8; 64]>);

impl Encoded {
    pub(crate) fn named<'p>(alternative: u8, parts: impl IntoIterator<Item = &'p [u8]>) -> Self {
        let mut encoded = Self::default();
        for part in parts {
            encoded.part(part);
        }
        encoded.finish(alternative);
        encoded
    }

    pub(super) fn finish(&mut self, alternative: u8) {
        self.0.push(alternative);
    }

    /// Adds the tier, after the alternative: its name, the length of that, and a mark that no alternative is.
    /// Read from the end it is as unambiguous as what came before; where there is no tier nothing is added.
    pub(crate) fn tier(&mut self, name: &str) {
        self.0.extend_from_slice(name.as_bytes());
        // At most 64.
        self.0.push(name.len() as u8);
        self.0.push(TIER);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl KeySink for Encoded {
    fn part(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
