//! [`UnreadBody`]: what becomes of a body that nobody will read.

use std::time::Duration;

use http::{Request, Version, header};
use http_body::Body;

use crate::ConfigError;

/// What an answer of the layer does about a request body that was not read: on HTTP/1.x the next request on that
/// connection comes behind it.
///
/// A request that is refused has not been read, and its body may be large, or still on its way. HTTP/1.x has no other way to
/// stop it than to close the connection, which a client should be told of: a pool would use it again, and its next
/// request would fail.
///
/// On HTTP/2 and above the server resets that one stream, and the connection goes on. Some clients drop an answer if the
/// reset comes together with its end (curl 7.88, for one). So the end of such an answer is held
/// back until the request's body has ended, for 100 ms at most, whatever the choice, unless it is
/// [`Leave`](Self::Leave). Up to 64 KiB of the body are read meanwhile, and thrown away.
///
/// | choice | for |
/// | --- | --- |
/// | [`Close`](Self::Close), the default | all but the next |
/// | [`Drain`](Self::Drain) | many small bodies from clients whose connections are dear to make, as with TLS |
/// | [`Leave`](Self::Leave) | a server that takes care of it itself |
///
/// Requests without a body are never concerned. A body that a layer outside has read and put back is taken for one that
/// was not read: the layer cannot see the difference.
///
/// ```
/// use std::time::Duration;
/// use tower_sluice::{RateLimitLayer, Rule, TokenBucket, UnreadBody};
///
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("orders", TokenBucket::per_second(500)))
///     .unread_body(UnreadBody::Drain { max_bytes: 65_536, longest: Duration::from_millis(100) })
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_sluice::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnreadBody {
    /// The answer says `Connection: close`, and the server closes the connection behind it.
    #[default]
    Close,
    /// Reads the body and throws it away before the answer is sent, so that the connection can be used again. A
    /// body that is longer, or slower, is given up, and the connection closed. Where a client asks first (`Expect:
    /// 100-continue`) nothing is read, since it has not begun to send.
    Drain {
        /// The most bytes that are read of one body.
        max_bytes: u64,
        /// The longest that the answer waits for it, by the layer's clock.
        longest: Duration,
    },
    /// Does nothing.
    Leave,
}

/// What is to be done about the body of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Nothing,
    Close,
    Drain(Most),
    /// The answer ends when the body has, within these bounds.
    Linger(Most),
}

/// How long, on HTTP/2, the end of an answer waits for that of the request.
const LINGER: Most = Most { bytes: 65_536, time: Duration::from_millis(100) };

/// How much of a body is read, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

impl UnreadBody {
    pub(crate) fn check(self) -> Result<(), ConfigError> {
        let reason = "must be above zero; to read nothing, choose UnreadBody::Close";
        match self {
            Self::Drain { max_bytes: 0, .. } => Err(ConfigError::new("max_bytes", 0, reason)),
            Self::Drain { longest, .. } if longest.is_zero() => {
                Err(ConfigError::new("longest", "0s", reason))
            }
            _ => Ok(()),
        }
    }

    /// What is to be done about the body of `request`, which nobody will read.
    pub(crate) fn of<B: Body>(self, request: &Request<B>) -> Unread {
        if self == Self::Leave || has_none(request) {
            return Unread::Nothing;
        }
        match self {
            _ if request.version() > Version::HTTP_11 => Unread::Linger(LINGER),
            Self::Drain { max_bytes, longest }
                if !request.headers().contains_key(header::EXPECT) =>
            {
                Unread::Drain(Most { bytes: max_bytes, time: longest })
            }
            _ => Unread::Close,
        }
    }
}

/// Whether there is no body. A layer outside may have put one of its own around it that does not say so, as those that
/// time or decompress it do; then the head does (RFC 9112, section 6.3). Of methods that usually have a body it does
/// only by a length of zero: who decompresses takes the length away.
fn has_none<B: Body>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.body().is_end_stream()
        || match headers.get(header::CONTENT_LENGTH) {
            Some(length) => length == "0",
            None => request.method().is_safe() && !headers.contains_key(header::TRANSFER_ENCODING),
        }
}
