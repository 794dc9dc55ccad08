//! [`Key`]: whose permits a request spends.

use std::{fmt, net::IpAddr};

use http::HeaderValue;

/// How many bytes a key holds without borrowing and without a heap block.
const INLINE: usize = 22;

/// The bytes that a quota is counted per: a user, an address, a tenant.
///
/// A key borrows from the request head where it can and is held inline up to 22 bytes, so making one
/// does not allocate. Its content may be personal: `Debug` prints the length only.
///
/// An empty key means *no key*: a rule treats it as missing.
///
/// ```
/// use tower_sluice::Key;
///
/// let alice = Key::from("alice");
/// assert_eq!(alice.as_bytes(), b"alice");
/// assert_eq!(format!("{alice:?}"), "Key(5 bytes)");
/// ```
#[derive(Clone)]
pub struct Key<'a>(Repr<'a>);

#[derive(Clone)]
enum Repr<'a> {
    Borrowed(&'a [u8]),
    Inline(u8, [u8; INLINE]),
    Owned(Box<[u8]>),
}

impl<'a> Key<'a> {
    /// The key of a rule without a key: all its requests count together.
    pub const GLOBAL: Key<'static> = Key(Repr::Borrowed(&[]));

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Borrowed(bytes) => bytes,
            Repr::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Repr::Owned(bytes) => bytes,
        }
    }

    /// Whether there are no bytes, which rules read as *missing*.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// A copy that borrows nothing; allocates above 22 bytes.
    #[must_use]
    pub fn into_owned(self) -> Key<'static> {
        match self.0 {
            Repr::Borrowed(bytes) => Key::copied(bytes),
            Repr::Inline(len, bytes) => Key(Repr::Inline(len, bytes)),
            Repr::Owned(bytes) => Key(Repr::Owned(bytes)),
        }
    }

    /// A copy of `bytes`, inline where they fit.
    #[inline]
    pub(crate) fn copied(bytes: &[u8]) -> Key<'static> {
        if bytes.len() <= INLINE {
            let mut inline = [0; INLINE];
            inline[..bytes.len()].copy_from_slice(bytes);
            // At most INLINE, which is below 256.
            Key(Repr::Inline(bytes.len() as u8, inline))
        } else {
            Key(Repr::Owned(bytes.into()))
        }
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.as_bytes().len())
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Key<'_>) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key<'_> {}

impl From<()> for Key<'_> {
    /// The key of a rule without a key.
    fn from((): ()) -> Self {
        Key::GLOBAL
    }
}

impl<'a> From<&'a str> for Key<'a> {
    #[inline]
    fn from(text: &'a str) -> Self {
        Key(Repr::Borrowed(text.as_bytes()))
    }
}

impl<'a> From<&'a String> for Key<'a> {
    #[inline]
    fn from(text: &'a String) -> Self {
        Key(Repr::Borrowed(text.as_bytes()))
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Key(Repr::Borrowed(bytes))
    }
}

impl<'a> From<&'a HeaderValue> for Key<'a> {
    #[inline]
    fn from(value: &'a HeaderValue) -> Self {
        Key(Repr::Borrowed(value.as_bytes()))
    }
}

impl From<String> for Key<'_> {
    fn from(text: String) -> Self {
        if text.len() <= INLINE {
            Key::copied(text.as_bytes())
        } else {
            Key(Repr::Owned(text.into_bytes().into()))
        }
    }
}

macro_rules! from_number {
    ($($number:ty),*) => {$(
        impl From<$number> for Key<'_> {
            /// The number's bytes.
            #[inline]
            fn from(number: $number) -> Self {
                Key::copied(&number.to_be_bytes())
            }
        }
    )*};
}

from_number!(u32, i32, u64, i64, u128, i128);

impl From<[u8; 16]> for Key<'_> {
    /// Sixteen bytes, as of a UUID.
    fn from(bytes: [u8; 16]) -> Self {
        Key::copied(&bytes)
    }
}

impl From<IpAddr> for Key<'_> {
    /// The address itself, with an IPv4-mapped IPv6 address folded to IPv4.
    #[inline]
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Key::copied(&address.octets()),
            IpAddr::V6(address) => Key::copied(&address.octets()),
        }
    }
}
