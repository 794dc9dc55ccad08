//! [`ClientIp`]: the address of whoever sent a request, through proxies that the operator names.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

#[cfg(feature = "axum")]
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use http::{HeaderName, header::FORWARDED};

use super::{
    KeyBy, KeyExtractor,
    forwarded::{Grammar, Hops, MOST_HOPS, address},
    header_name,
    trust::Networks,
};
use crate::{ConfigError, Head, Key};

/// Counts per client address; made by [`key::client_ip`](super::client_ip).
///
/// Without settings this is the peer address of the connection, and forwarding headers are ignored:
/// anybody can send them. Behind a proxy, name the *one* header that it writes and say which proxies
/// to believe, by their networks or by their number:
///
/// ```
/// use tower_sluice::{Rule, TokenBucket, key};
///
/// // Proxies in 10.0.1.0/24 append to X-Forwarded-For.
/// let address = key::client_ip().x_forwarded_for().trusted_proxies(["10.0.1.0/24"]);
/// let rule = Rule::new("per-address", TokenBucket::per_second(10)).key(address);
///
/// // Two proxies of unknown address in front, and no other way in.
/// let behind_two = key::client_ip().forwarded().trusted_hops(2);
///
/// // A proxy that writes a header with one address, where networks of 2001:db8::/32 are customers
/// // with a /48 each.
/// let per_site = key::client_ip()
///     .header("cf-connecting-ip")
///     .trusted_proxies(["10.0.1.0/24", "fd00:0:0:1::/64"])
///     .ipv6_prefix(48);
/// # let _ = (rule, behind_two, per_site);
/// ```
///
/// # Which address
///
/// With networks: if the peer is in none of them, it is the client. Else the header is read from the
/// right, all its lines as one list, up to the first address that is in none of them; if all are, it
/// is the leftmost. With a number n: the n-th address from the right.
///
/// If the hop that was reached names no address, or there are too few of them, the request counts
/// as *unresolved* behind the last proxy that is known: all such requests together, apart from those
/// of the proxy itself. At most 32 hops are looked at. IPv4-mapped IPv6 addresses count as IPv4.
///
/// # Whom to trust
///
/// Whoever is in a trusted network chooses his own key. Name the proxies, not all private networks,
/// and not a network that a CDN shares among its customers. A number of hops is safe only if the
/// service cannot be reached around the proxies. Some platforms append an address of their own, so
/// that the client is the second from the right.
///
/// # Peer addresses
///
/// The peer address comes from axum's `ConnectInfo<SocketAddr>` (serve with
/// `into_make_service_with_connect_info::<SocketAddr>()`; `MockConnectInfo` in tests), else from a
/// bare `SocketAddr` in the request's extensions, or from [`peer_from`](Self::peer_from). Requests
/// without one count all together, and no header of theirs is believed. A server that speaks the
/// PROXY protocol puts the client's address there, and needs no header.
///
/// # Performance
///
/// Does not allocate. A header is read from its end, as far as needed, however long it is.
#[derive(Clone)]
#[must_use]
pub struct ClientIp {
    source: Option<Source>,
    networks: Option<Networks>,
    hops: Option<usize>,
    ipv6_prefix: u8,
    peer_from: Option<Arc<PeerFrom>>,
    /// The first mistake, reported when the rule is built.
    mistake: Option<ConfigError>,
}

type PeerFrom = dyn Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync;

/// The header that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    List(HeaderName, Grammar),
    Single(HeaderName),
}

/// Whom a request is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Known(IpAddr),
    /// Somebody behind this proxy.
    Unresolved(IpAddr),
}

/// The bytes of a client's key: a tag, and the address as far as it counts.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    len: usize,
    bytes: [u8; 17],
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Tags: addresses, unresolved clients behind an address, and requests without a peer are apart. None may
/// stand in a header, so that no header's value reads as an address.
const KNOWN_V4: u8 = 1;
const KNOWN_V6: u8 = 2;
const UNRESOLVED_V4: u8 = 3;
const UNRESOLVED_V6: u8 = 4;
const UNCONNECTED: u8 = 5;

/// Whether these bytes are a client's key.
pub(super) fn is_client(bytes: &[u8]) -> bool {
    matches!(
        (bytes.first(), bytes.len()),
        (Some(&(KNOWN_V4 | UNRESOLVED_V4)), 5)
            | (Some(&(KNOWN_V6 | UNRESOLVED_V6)), 9 | 17)
            | (Some(&UNCONNECTED), 1)
    )
}

impl ClientIp {
    pub(super) fn new() -> Self {
        Self {
            source: None,
            networks: None,
            hops: None,
            ipv6_prefix: 64,
            peer_from: None,
            mistake: None,
        }
    }

    /// Believes `X-Forwarded-For`, as far as the proxies are trusted.
    ///
    /// Default: no header. Needs [`trusted_proxies`](Self::trusted_proxies) or
    /// [`trusted_hops`](Self::trusted_hops).
    pub fn x_forwarded_for(self) -> Self {
        self.believing(Source::List(X_FORWARDED_FOR, Grammar::List))
    }

    /// Believes `Forwarded` (RFC 7239), as far as the proxies are trusted.
    ///
    /// Default: no header. Needs [`trusted_proxies`](Self::trusted_proxies) or
    /// [`trusted_hops`](Self::trusted_hops).
    pub fn forwarded(self) -> Self {
        self.believing(Source::List(FORWARDED, Grammar::Forwarded))
    }

    /// Believes the header `name` with one address, such as `cf-connecting-ip` or `x-real-ip`, if a
    /// trusted proxy sent it.
    ///
    /// Default: no header. Needs [`trusted_proxies`](Self::trusted_proxies) or a
    /// [`trusted_hops`](Self::trusted_hops) of 1. The proxy must overwrite what clients send.
    pub fn header(mut self, name: impl AsRef<str>) -> Self {
        match header_name("client_ip.header", name.as_ref()) {
            Ok(name) if name == X_FORWARDED_FOR || name == FORWARDED => {
                self.note(ConfigError::new(
                    "client_ip.header",
                    format_args!("\"{name}\""),
                    "this header is a list: use .x_forwarded_for() or .forwarded()",
                ));
                self
            }
            Ok(name) => self.believing(Source::Single(name)),
            Err(error) => {
                self.note(error);
                self
            }
        }
    }

    /// Trusts the proxies in these networks: CIDRs such as `10.0.1.0/24`, or single addresses.
    ///
    /// Default: none. Several calls add up.
    pub fn trusted_proxies<I>(mut self, networks: I) -> Self
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        match Networks::parse("client_ip.trusted_proxies", networks) {
            Ok(networks) => {
                if let Some(everything) = networks.everything() {
                    self.note(ConfigError::new(
                        "client_ip.trusted_proxies",
                        format_args!("\"{everything}\""),
                        "trusts every address, so that callers choose their own key: name your \
                         proxies, or count them with .trusted_hops(n)",
                    ));
                }
                self.networks.get_or_insert_default().extend(networks);
            }
            Err(error) => self.note(error),
        }
        self
    }

    /// Trusts the last `hops` proxies, the one that connects to us included: 1 is a single proxy.
    ///
    /// Default: none. From 1 to 32. Envoy's `xff_num_trusted_hops` is one less.
    pub fn trusted_hops(mut self, hops: usize) -> Self {
        if !(1..=MOST_HOPS).contains(&hops) {
            self.note(ConfigError::new(
                "client_ip.trusted_hops",
                hops,
                "must be from 1 to 32: the number of proxies, the nearest included",
            ));
        }
        self.hops = Some(hops);
        self
    }

    /// Counts IPv6 addresses by their first `bits` bits, from 32 to 128.
    ///
    /// Default: 64, since whoever has one address has at least a /64 of them. Often he has a /56 or
    /// a /48: a second rule with a larger quota and such a prefix bounds those.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        if !(32..=128).contains(&bits) {
            self.note(ConfigError::new("client_ip.ipv6_prefix", bits, "must be from 32 to 128"));
            return self;
        }
        self.ipv6_prefix = bits;
        self
    }

    /// Takes the peer address from `peer`, for servers with connect info of their own.
    ///
    /// Default: `ConnectInfo<SocketAddr>`, else a `SocketAddr` in the extensions.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_sluice::key;
    ///
    /// #[derive(Clone)]
    /// struct Connection { from: IpAddr }
    ///
    /// let address = key::client_ip()
    ///     .peer_from(|head| head.extension::<Connection>().map(|connection| connection.from));
    /// # let _ = address;
    /// ```
    pub fn peer_from<F>(mut self, peer: F) -> Self
    where
        F: Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync + 'static,
    {
        self.peer_from = Some(Arc::new(peer));
        self
    }

    /// Counts per client address; `other` is never asked, since an address cannot miss.
    ///
    /// Exists so that all keys combine alike; see [`KeyBy::or`].
    pub fn or(self, other: impl KeyExtractor) -> KeyBy {
        self.boxed().or(other)
    }

    /// Counts per client address and `other` together; see [`KeyBy::and`].
    pub fn and(self, other: impl KeyExtractor) -> KeyBy {
        self.boxed().and(other)
    }

    /// Multiplies limit and burst, since an address may be a whole office; see [`KeyBy::relaxed`].
    pub fn relaxed(self, factor: u64) -> KeyBy {
        self.boxed().relaxed(factor)
    }

    /// The key of `address` under these settings: what a request from it counts under.
    ///
    /// For looking at or resetting what an address has spent.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_sluice::key;
    ///
    /// let per_address = key::client_ip();
    /// let one: IpAddr = "2001:db8::1".parse()?;
    /// let neighbour: IpAddr = "2001:db8::2".parse()?;
    /// assert_eq!(per_address.key_of(one), per_address.key_of(neighbour));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[must_use]
    pub fn key_of(&self, address: IpAddr) -> Key<'static> {
        let bytes = self.encode(address.to_canonical(), KNOWN_V4, KNOWN_V6);
        Key::copied(bytes.as_slice())
    }

    /// The bytes of the key of the request with this head.
    #[inline]
    pub(super) fn bytes(&self, head: &Head<'_>) -> Bytes {
        // Apart, so that the common ways copy no address that was written a moment ago.
        match self.peer(head) {
            None => Bytes::tagged(UNCONNECTED, 0, 1),
            Some(peer) if self.source.is_none() => self.encode(peer, KNOWN_V4, KNOWN_V6),
            Some(peer) => match self.client(head, peer) {
                Client::Known(address) => self.encode(address, KNOWN_V4, KNOWN_V6),
                Client::Unresolved(proxy) => self.encode(proxy, UNRESOLVED_V4, UNRESOLVED_V6),
            },
        }
    }

    /// Whether a forwarding header is believed.
    pub(super) fn reads_header(&self) -> bool {
        self.source.is_some()
    }

    /// Who connects to us.
    pub(super) fn peer(&self, head: &Head<'_>) -> Option<IpAddr> {
        match &self.peer_from {
            Some(from) => from(head).map(|address| address.to_canonical()),
            None => peer(head),
        }
    }

    fn client(&self, head: &Head<'_>, peer: IpAddr) -> Client {
        // A header without a trust rule is a mistake, and believes nobody.
        let Some(source) = &self.source else { return Client::Known(peer) };
        match (source, &self.networks, self.hops) {
            (_, None, None) => Client::Known(peer),
            (_, Some(networks), _) if !networks.contain(peer) => Client::Known(peer),
            (Source::Single(name), ..) => single(head, name, peer),
            (Source::List(name, grammar), Some(networks), _) => {
                walk(Hops::of(head.headers(), name, *grammar), *grammar, networks, peer)
            }
            (Source::List(name, grammar), None, Some(hops)) => {
                count(Hops::of(head.headers(), name, *grammar), *grammar, hops, peer)
            }
        }
    }

    /// The key's bytes for an address, which is canonical, under the tag of its family.
    #[inline(always)]
    fn encode(&self, address: IpAddr, v4: u8, v6: u8) -> Bytes {
        match address {
            IpAddr::V4(address) => {
                Bytes::tagged(v4, u32::from_le_bytes(address.octets()).into(), 5)
            }
            IpAddr::V6(address) => {
                // The prefix is at least 32, so the shift is below 128.
                let masked = address.to_bits() & (u128::MAX << (128 - self.ipv6_prefix));
                let len = if self.ipv6_prefix <= 64 { 9 } else { 17 };
                Bytes::tagged(v6, u128::from_le_bytes(masked.to_be_bytes()), len)
            }
        }
    }

    fn believing(mut self, source: Source) -> Self {
        match &self.source {
            Some(earlier) if *earlier != source => {
                let both = format!("{earlier} and {source}");
                self.note(ConfigError::new(
                    "client_ip.header",
                    both,
                    "believe one header only, the one that your proxy writes: the other is the client's",
                ));
            }
            _ => self.source = Some(source),
        }
        self
    }

    fn note(&mut self, mistake: ConfigError) {
        self.mistake.get_or_insert(mistake);
    }
}

impl KeyExtractor for ClientIp {
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
        Some(Key::copied(self.bytes(head).as_slice()))
    }

    fn describe(&self) -> Cow<'static, str> {
        match &self.source {
            Some(source) => format!("client_ip by {source}").into(),
            None => "client_ip".into(),
        }
    }

    fn is_total(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        match (&self.source, &self.networks, self.hops) {
            (_, Some(_), Some(hops)) => Err(ConfigError::new(
                "client_ip.trusted_hops",
                hops,
                "trust proxies by their networks or by their number, not both",
            )),
            (Some(source), None, None) => Err(ConfigError::new(
                "client_ip.header",
                source,
                "anybody can send this header: add .trusted_proxies([..]) with the networks of your \
                 proxies, or .trusted_hops(n)",
            )),
            (None, Some(_), None) | (None, None, Some(_)) => Err(ConfigError::new(
                "client_ip.header",
                "none",
                "proxies are trusted, but no header is read: add .x_forwarded_for(), .forwarded() or \
                 .header(..)",
            )),
            (Some(Source::Single(_)), None, Some(hops)) if hops > 1 => Err(ConfigError::new(
                "client_ip.trusted_hops",
                hops,
                "a header with one address comes from one proxy: write 1",
            )),
            _ => Ok(()),
        }
    }

    fn boxed(self) -> KeyBy {
        match self.validate() {
            Ok(()) => KeyBy::client_ip(self),
            Err(error) => KeyBy::invalid(error),
        }
    }
}

impl fmt::Debug for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIp")
            .field("source", &self.source)
            .field("trusted_proxies", &self.networks)
            .field("trusted_hops", &self.hops)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .field("peer_from", &self.peer_from.as_ref().map(|_| "closure"))
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::List(name, _) | Self::Single(name)) = self;
        f.write_str(name.as_str())
    }
}

impl Bytes {
    /// A tag and the bytes of an address, lowest first. Written in one piece: the hash reads across the
    /// tag, and would wait for pieces to come together.
    #[inline(always)]
    fn tagged(tag: u8, address: u128, len: usize) -> Self {
        let mut bytes = [0; 17];
        bytes[..16].copy_from_slice(&(address << 8 | u128::from(tag)).to_le_bytes());
        bytes[16] = (address >> 120) as u8;
        Self { len, bytes }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The address at the other end of the connection, in canonical form.
#[inline]
pub(crate) fn peer(head: &Head<'_>) -> Option<IpAddr> {
    let extensions = head.extensions();
    #[cfg(feature = "axum")]
    let found = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| &info.0);
    #[cfg(not(feature = "axum"))]
    let found = None;
    let found = found.or_else(|| extensions.get::<SocketAddr>());
    #[cfg(feature = "axum")]
    let found = found.or_else(|| {
        // What axum's own extractor falls back to, in tests without a socket.
        extensions.get::<MockConnectInfo<SocketAddr>>().map(|info| &info.0)
    });
    found.map(|address| address.ip().to_canonical())
}

/// Whether a proxy may have added a header that names the client.
pub(crate) fn has_forwarding_header(head: &Head<'_>) -> bool {
    let headers = head.headers();
    [X_FORWARDED_FOR, FORWARDED, X_REAL_IP].iter().any(|name| headers.contains_key(name))
}

/// The first address from the right that is not trusted.
fn walk(hops: Hops<'_>, grammar: Grammar, trusted: &Networks, peer: IpAddr) -> Client {
    let (mut last, mut any) = (peer, false);
    for (seen, hop) in hops.enumerate() {
        if seen == MOST_HOPS {
            return Client::Unresolved(last);
        }
        if hop.is_empty() {
            continue;
        }
        match grammar.address(hop) {
            // Skipping it would believe what is left of it, which nobody vouches for.
            None => return Client::Unresolved(last),
            Some(address) if !trusted.contain(address) => return Client::Known(address),
            Some(address) => (last, any) = (address, true),
        }
    }
    if any { Client::Known(last) } else { Client::Unresolved(peer) }
}

/// The address `hops` from the right.
fn count(list: Hops<'_>, grammar: Grammar, hops: usize, peer: IpAddr) -> Client {
    let mut present = list.take(MOST_HOPS).filter(|hop| !hop.is_empty());
    // Fewer hops than proxies: the leftmost may be the client's own invention.
    let client = hops.checked_sub(1).and_then(|nth| present.nth(nth));
    client.and_then(|hop| grammar.address(hop)).map_or(Client::Unresolved(peer), Client::Known)
}

/// The one address in the only line of the header `name`.
fn single(head: &Head<'_>, name: &HeaderName, peer: IpAddr) -> Client {
    let mut lines = head.headers().get_all(name).iter();
    let client = match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().ok().and_then(address),
        _ => None,
    };
    client.map_or(Client::Unresolved(peer), Client::Known)
}

#[cfg(test)]
#[path = "client_ip_tests.rs"]
mod tests;
