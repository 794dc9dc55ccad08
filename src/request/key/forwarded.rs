//! Reads forwarding headers from the right, one hop at a time.
//!
//! The rightmost hop is the one that the nearest proxy wrote; what lies left of a hop that is not
//! trusted was written by a stranger and is never looked at. So nothing here scans a header whole:
//! a hop is cut off the end of the last line, in at most [`LONGEST_HOP`] bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName, HeaderValue, header::ValueIter};

/// How many hops are looked at.
pub(super) const MOST_HOPS: usize = 32;

/// A longer hop does not parse.
const LONGEST_HOP: usize = 1024;

/// How a header names its hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    /// Addresses between commas: `X-Forwarded-For`.
    List,
    /// The elements of RFC 7239: `Forwarded`.
    Forwarded,
}

impl Grammar {
    /// The address that `hop` names, in canonical form.
    pub(super) fn address(self, hop: &[u8]) -> Option<IpAddr> {
        match self {
            Self::List => match dotted(hop) {
                Some(v4) => Some(v4.into()).filter(|address: &IpAddr| !address.is_unspecified()),
                None => address(std::str::from_utf8(hop).ok()?),
            },
            Self::Forwarded => forwarded_address(hop),
        }
    }
}

/// The hops of all lines of a header, the last first. Empty ones are included: they count towards
/// [`MOST_HOPS`], since a client can send any number of commas.
pub(super) struct Hops<'a> {
    lines: std::iter::Rev<ValueIter<'a, HeaderValue>>,
    /// What is left of the present line.
    rest: Option<&'a [u8]>,
    grammar: Grammar,
}

impl<'a> Hops<'a> {
    pub(super) fn of(headers: &'a HeaderMap, name: &HeaderName, grammar: Grammar) -> Self {
        Self { lines: headers.get_all(name).iter().rev(), rest: None, grammar }
    }
}

impl<'a> Iterator for Hops<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let line = match self.rest.take() {
            Some(rest) => rest,
            None => self.lines.next()?.as_bytes(),
        };
        let start = line.len().saturating_sub(LONGEST_HOP);
        let hop = match last_comma(&line[start..], self.grammar == Grammar::Forwarded) {
            Some(comma) => {
                self.rest = Some(&line[..start + comma]);
                &line[start + comma + 1..]
            }
            // Too long a hop comes out whole, and does not parse.
            None => line,
        };
        Some(hop.trim_ascii())
    }
}

/// Where the last comma outside of quotes is.
///
/// Quotes are paired from the right, so that an opening quote which a client never closed cannot
/// swallow the hop that a proxy appended.
fn last_comma(line: &[u8], quotes: bool) -> Option<usize> {
    if !quotes {
        return line.iter().rposition(|byte| *byte == b',');
    }
    let mut quoted = false;
    let mut at = line.len();
    while at > 0 {
        at -= 1;
        match line[at] {
            b'"' if !is_escaped(line, at) => quoted = !quoted,
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Whether an odd number of backslashes precedes `at`.
fn is_escaped(line: &[u8], at: usize) -> bool {
    line[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in an element of `Forwarded`: the value of its only `for`.
fn forwarded_address(element: &[u8]) -> Option<IpAddr> {
    if element.len() > LONGEST_HOP {
        return None;
    }
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let (pair, after) = split_pair(rest)?;
        rest = after;
        if pair.is_empty() {
            continue;
        }
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        if pair[..equals].eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(&pair[equals + 1..]);
        }
    }
    node(found?)
}

/// The first `;`-separated pair and what follows it; `None` where quotes do not close.
fn split_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => return Some((text[..at].trim_ascii(), &text[at + 1..])),
            _ => {}
        }
    }
    (!quoted).then_some((text.trim_ascii(), &[]))
}

/// The address of a node, quoted or not, without its port.
///
/// RFC 7239 wants anything with a colon quoted. Proxies that forget it are believed all the same:
/// what is read here was written by a trusted one.
fn node(value: &[u8]) -> Option<IpAddr> {
    // An IPv6 address in brackets has at most 47 bytes, and a port or its stand-in follows.
    let mut plain = [0; 128];
    let mut len = 0;
    let quoted = match value.strip_prefix(b"\"") {
        Some(inner) => Some(inner.strip_suffix(b"\"")?),
        None => None,
    };
    let mut bytes = quoted.unwrap_or(value).iter();
    while let Some(mut byte) = bytes.next() {
        if quoted.is_some() && *byte == b'\\' {
            byte = bytes.next()?;
        } else if *byte == b'"' {
            return None;
        }
        *plain.get_mut(len)? = *byte;
        len += 1;
    }
    let text = std::str::from_utf8(&plain[..len]).ok()?;
    let is_stand_in = |port: &str| {
        port.len() > 1
            && port.starts_with('_')
            && port.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match text.rsplit_once(':') {
        Some((host, port)) if is_stand_in(port) => address(host),
        _ => address(text),
    }
}

/// The address in dotted decimal that `hop` is, as nearly every hop is: in one pass, with no check of its
/// encoding. What this does not take may be an address all the same.
fn dotted(hop: &[u8]) -> Option<Ipv4Addr> {
    let (mut octets, mut at) = ([0_u8; 4], 0);
    let (mut value, mut digits) = (0_u16, 0);
    for byte in hop {
        match byte {
            // No octet has a zero before other digits, which some read as octal.
            b'0'..=b'9' if digits < 3 && (digits == 0 || value != 0) => {
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && at < 3 => {
                octets[at] = u8::try_from(value).ok()?;
                (at, value, digits) = (at + 1, 0, 0);
            }
            _ => return None,
        }
    }
    if at < 3 || digits == 0 {
        return None;
    }
    octets[3] = u8::try_from(value).ok()?;
    Some(octets.into())
}

/// The address in `text`, which may have a port, in canonical form; `None` for an unspecified one.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_ascii();
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']')?;
        if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
            return None;
        }
        host.parse::<Ipv6Addr>().ok()?.into()
    } else if let Ok(address) = text.parse::<IpAddr>() {
        address
    } else {
        let (host, _) = text.split_once(':').filter(|(_, port)| is_port(port))?;
        host.parse::<Ipv4Addr>().ok()?.into()
    };
    Some(address.to_canonical()).filter(|address| !address.is_unspecified())
}

fn is_port(text: &str) -> bool {
    matches!(text.len(), 1..=5) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_takes_what_the_standard_parser_takes() {
        let octets =
            ["0", "1", "9", "10", "99", "100", "255", "256", "999", "01", "00", "", "x", "1a"];
        for a in octets {
            for b in octets {
                for text in [
                    format!("{a}.{b}.1.2"),
                    format!("1.2.{a}.{b}"),
                    format!("{a}.1.{b}"),
                    format!("{a}.1.2.3.{b}"),
                    format!("{a}.1.2.3:{b}"),
                ] {
                    assert_eq!(dotted(text.as_bytes()), text.parse().ok(), "{text}");
                }
            }
        }
    }
}
