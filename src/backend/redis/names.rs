//! [`Names`]: what keys are called in the store.
//!
//! `sluice:{Z2F0...}:per-user:b`: a prefix; in braces, which in a cluster choose the slot, a digest of the caller's key;
//! the limiter's name; and how it is counted. What a caller sends is in the digest alone, so that no byte of it means
//! anything to the store, names are short, and the limits of one caller lie in one slot. A limiter without keys is
//! `{sluice}:orders:b`.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::counted::Kind;
use crate::ConfigError;

/// The first 128 bits of SHA-256 of a caller's key: the same in all processes, and nobody finds two keys with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Digest(pub(super) [u8; 16]);

impl Digest {
    pub(super) fn of(key: &[u8]) -> Self {
        let whole = Sha256::digest(key);
        let mut first = [0; 16];
        first.copy_from_slice(&whole[..16]);
        Self(first)
    }

    pub(super) fn to_words(self) -> [u64; 2] {
        let whole = u128::from_be_bytes(self.0);
        [(whole >> 64) as u64, whole as u64]
    }

    pub(super) fn from_words([high, low]: [u64; 2]) -> Self {
        Self((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}

/// What the keys of one limiter are called.
#[derive(Debug)]
pub(super) struct Names {
    /// Before the digest of a key, or the whole name.
    head: String,
    /// After it.
    tail: String,
    is_keyed: bool,
}

/// A digest takes so many characters.
const DIGEST: usize = 22;

impl Names {
    pub(super) fn new(prefix: &str, limiter: &str, kind: Kind, is_keyed: bool) -> Self {
        let tail = format!("}}:{limiter}:{}", kind.letter());
        let head = if is_keyed { format!("{prefix}:{{") } else { format!("{{{prefix}") };
        Self { head, tail, is_keyed }
    }

    /// A key's name.
    pub(super) fn of(&self, digest: Digest) -> String {
        let mut name = String::with_capacity(self.head.len() + DIGEST + self.tail.len());
        name.push_str(&self.head);
        if self.is_keyed {
            URL_SAFE_NO_PAD.encode_string(digest.0, &mut name);
        }
        name.push_str(&self.tail);
        name
    }
}

/// Whether a prefix is one.
pub(super) fn check_prefix(prefix: &str) -> Result<(), ConfigError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | ':' | '/');
    if prefix.is_empty() || prefix.len() > 64 || !prefix.chars().all(is_plain) {
        let reason = "must be 1 to 64 of A-Z a-z 0-9 _ . - : /, without braces, which choose a cluster's slot";
        return Err(ConfigError::new("prefix", format!("{prefix:?}"), reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_callers_key_is_in_its_name() {
        let names = Names::new("sluice", "per-user", Kind::Bucket, true);
        for key in [&b"{}"[..], b"a}b{c", b"\r\nDEL x\r\n", b"\0", &[b'x'; 100_000]] {
            let name = names.of(Digest::of(key));
            assert_eq!(name.len(), "sluice:{}:per-user:b".len() + DIGEST);
            assert_eq!(name.matches('{').count() + name.matches('}').count(), 2);
            assert!(name.is_ascii() && !name.contains(char::is_whitespace));
        }
    }

    #[test]
    fn limits_of_one_caller_share_a_slot() {
        let tag = |name: String| name[name.find('{').unwrap()..=name.find('}').unwrap()].to_owned();
        let digest = Digest::of(b"alice");
        let one = Names::new("sluice", "per-user", Kind::Bucket, true).of(digest);
        let other = Names::new("sluice", "logins", Kind::Log, true).of(digest);
        assert_eq!(tag(one.clone()), tag(other));
        assert_ne!(
            tag(one),
            tag(Names::new("sluice", "per-user", Kind::Bucket, true).of(Digest::of(b"bob")))
        );
        let all = Names::new("sluice", "orders", Kind::Window, false).of(digest);
        assert_eq!(all, "{sluice}:orders:w");
    }

    #[test]
    fn a_digest_comes_back_from_its_words() {
        let digest = Digest::of(b"alice");
        assert_eq!(Digest::from_words(digest.to_words()), digest);
    }

    #[test]
    fn a_prefix_with_braces_is_refused() {
        for prefix in ["", "{a}", "a b", "ä", &"x".repeat(65)] {
            assert_eq!(check_prefix(prefix).unwrap_err().field(), "prefix");
        }
        check_prefix("shop-eu:limits/v2").unwrap();
    }
}
