//! Keys that are named rather than extracted: what shape a rule's key has, and what an address makes.

use std::net::IpAddr;

use super::{KeyBy, by::Kind, client_ip::is_client};
use crate::Key;

impl KeyBy {
    /// How many parts the key's nth alternative has; `None` where there are not so many.
    pub(crate) fn parts_of(&self, alternative: u8) -> Option<usize> {
        match &self.kind {
            Kind::Or(keys) => {
                let (key, rest) = alternative_of(keys, alternative)?;
                key.parts_of(rest)
            }
            Kind::And(keys) => {
                // One digit per part, each to the base of its own alternatives, the last the lowest.
                let mut rest = alternative;
                let mut parts = 0;
                for key in keys.iter().rev() {
                    let count = key.alternatives().max(1);
                    parts += key.parts_of(rest % count)?;
                    rest /= count;
                }
                (rest == 0).then_some(parts)
            }
            Kind::Relaxed(key, _) => key.parts_of(alternative),
            Kind::Invalid(_) => None,
            _ => (alternative == 0).then_some(1),
        }
    }

    /// Whether the nth alternative can yield these parts, as far as that shows.
    pub(crate) fn admits(&self, alternative: u8, parts: &[Key<'_>]) -> bool {
        match &self.kind {
            Kind::Or(keys) => {
                alternative_of(keys, alternative).is_some_and(|(key, rest)| key.admits(rest, parts))
            }
            Kind::Relaxed(key, _) => key.admits(alternative, parts),
            // An address is told by `RuleKey::address`, or made by `ClientIp::key_of`.
            Kind::ClientIp(_) => {
                alternative == 0 && matches!(parts, [part] if is_client(part.as_bytes()))
            }
            _ => {
                self.parts_of(alternative) == Some(parts.len())
                    && (self.is_total() || parts.iter().any(|part| !part.is_empty()))
            }
        }
    }

    /// The first alternative that is a client's address, with the key it makes of `address`.
    pub(crate) fn address(&self, address: IpAddr) -> Option<(u8, Key<'static>)> {
        match &self.kind {
            Kind::ClientIp(settings) => Some((0, settings.key_of(address))),
            Kind::Relaxed(key, _) => key.address(address),
            Kind::Or(keys) => {
                let mut offset = 0;
                for key in keys.iter() {
                    if let Some((alternative, key)) = key.address(address) {
                        return Some((offset + alternative, key));
                    }
                    offset += key.alternatives();
                }
                None
            }
            _ => None,
        }
    }
}

/// The key among these that the nth of all their alternatives is of, and which of its own that is.
fn alternative_of(keys: &[KeyBy], nth: u8) -> Option<(&KeyBy, u8)> {
    let mut rest = nth;
    for key in keys {
        match rest.checked_sub(key.alternatives()) {
            Some(less) => rest = less,
            None => return Some((key, rest)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::key;

    #[test]
    fn shapes_are_those_of_the_alternatives() {
        let pair =
            key::header("t").and(key::header("a").or(key::header("b").and(key::header("c"))));
        assert_eq!([0, 1, 2].map(|n| pair.parts_of(n)), [Some(2), Some(3), None]);
        let either = key::header("a").or(pair).or(key::client_ip().relaxed(3));
        let shapes = [0, 1, 2, 3, 4].map(|n| either.parts_of(n));
        assert_eq!(shapes, [Some(1), Some(2), Some(3), Some(1), None]);
        let address = "2001:db8::17".parse().unwrap();
        let (alternative, named) = either.address(address).unwrap();
        assert_eq!(alternative, 3);
        assert_eq!(named, key::client_ip().key_of("2001:db8::1".parse().unwrap()));
        assert!(key::header("a").address(address).is_none());
    }
}
