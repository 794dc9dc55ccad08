//! Answers that gRPC clients understand.
//!
//! A client takes a bare 429 for UNAVAILABLE, which many retry at once. So a gRPC request gets a trailers-only answer
//! (status 200, no body) with a code of gRPC's own, and a hint in each of the ways that clients look for one:
//! `google.rpc.RetryInfo` in `grpc-status-details-bin`, `grpc-retry-pushback-ms`, and `retry-after`.
//!
//! By the gRPC protocol over HTTP/2, its proposal A6 on retries, and `google/rpc/error_details.proto`.

use std::time::Duration;

use axum_core::body::Body;
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::{add_fields, retry_after};
use crate::{Head, event::Reason};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The names that a browser's gRPC-Web client reads.
pub(super) const NAMES: [HeaderName; 4] = [STATUS, MESSAGE, DETAILS, PUSHBACK];

/// The longest content type that is sent back as it came.
const LONGEST_TYPE: usize = 64;

/// The content type of the answer, if the request is gRPC or gRPC-Web. These are POST requests, always.
pub(crate) fn content_type(head: &Head<'_>) -> Option<HeaderValue> {
    const GRPC: &[u8] = b"application/grpc";
    if head.method() != Method::POST {
        return None;
    }
    let value = head.headers().get(header::CONTENT_TYPE)?;
    let bytes = value.as_bytes();
    let is_grpc = bytes.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        && matches!(bytes.get(GRPC.len()), None | Some(b'+' | b';' | b'-' | b' '));
    is_grpc.then(|| match bytes.len() {
        ..=LONGEST_TYPE => value.clone(),
        _ => HeaderValue::from_static("application/grpc"),
    })
}

/// How long a gRPC caller waits for an answer, as `grpc-timeout` says.
pub(crate) fn timeout(head: &Head<'_>) -> Option<Duration> {
    content_type(head)?;
    let text = head.header_str("grpc-timeout")?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    // At most eight digits, so nothing overflows.
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The codes that a refusal may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    /// The code that says what `status` says of a refusal.
    pub(crate) fn of(reason: Reason, status: StatusCode) -> Self {
        match (reason, status) {
            (Reason::MissingKey, StatusCode::UNAUTHORIZED) => Self::Unauthenticated,
            (Reason::MissingKey, _) => Self::PermissionDenied,
            (Reason::Quota | Reason::Never, StatusCode::SERVICE_UNAVAILABLE) => Self::Unavailable,
            (Reason::Quota | Reason::Never, _) => Self::ResourceExhausted,
            (Reason::InFlight, StatusCode::TOO_MANY_REQUESTS) => Self::ResourceExhausted,
            (Reason::InFlight | Reason::Backend, _) => Self::Unavailable,
        }
    }
}

/// A refusal of a gRPC request. `message` is said to developers; without a delay, trying again does not help.
pub(crate) fn answer(
    content_type: HeaderValue,
    code: Code,
    message: &str,
    delay: Option<Duration>,
) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(STATUS, HeaderValue::from(code as u16));
    let text = |text: String| HeaderValue::from_maybe_shared(bytes::Bytes::from(text));
    if let Ok(message) = text(utf8_percent_encode(message, ENCODED).to_string()) {
        headers.insert(MESSAGE, message);
    }
    match delay {
        Some(delay) => {
            if let Ok(details) = text(STANDARD_NO_PAD.encode(status(code, message, delay))) {
                headers.insert(DETAILS, details);
            }
            headers.insert(PUSHBACK, HeaderValue::from(pushback(delay)));
        }
        // A negative number asks a client not to try again.
        None => {
            headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
        }
    }
    add_fields(&mut response, delay.map(retry_after::seconds));
    response
}

/// All that `grpc-message` may not have as it is.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// In milliseconds, rounded up; as much as a client can read.
fn pushback(delay: Duration) -> i32 {
    i32::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

/// The largest number of seconds that `google.protobuf.Duration` may have: some 10,000 years.
const MOST_SECONDS: u64 = 315_576_000_000;

/// `google.rpc.Status { code = 1, message = 2, details = 3 }` with one
/// `google.rpc.RetryInfo { retry_delay = 1 }` as its detail.
fn status(code: Code, message: &str, delay: Duration) -> Vec<u8> {
    let (seconds, nanos) = match delay.as_secs() {
        seconds @ ..MOST_SECONDS => (seconds, delay.subsec_nanos()),
        _ => (MOST_SECONDS, 0),
    };
    let mut duration = Proto::default();
    duration.number(1, seconds);
    duration.number(2, nanos.into());
    let mut retry_info = Proto::default();
    retry_info.bytes(1, &duration.0);
    let mut any = Proto::default();
    any.bytes(1, b"type.googleapis.com/google.rpc.RetryInfo");
    any.bytes(2, &retry_info.0);
    let mut status = Proto::default();
    status.number(1, code as u64);
    status.bytes(2, message.as_bytes());
    status.bytes(3, &any.0);
    status.0
}

/// A message in the wire format of protocol buffers: the two kinds of field that are needed.
#[derive(Default)]
struct Proto(Vec<u8>);

impl Proto {
    fn number(&mut self, field: u8, number: u64) {
        // Zero is what a field has that is left out.
        if number != 0 {
            self.0.push(field << 3);
            self.varint(number);
        }
    }

    fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.0.push(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// As tonic-types 0.14 encodes them.
    #[test]
    fn details_are_those_of_another_encoder() {
        for (millis, expected) in [
            (
                1_500,
                "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIARCAyrXuAQ",
            ),
            (
                60_000,
                "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIPA",
            ),
        ] {
            let delay = Duration::from_millis(millis);
            let details = status(Code::ResourceExhausted, "rate limit exceeded", delay);
            assert_eq!(STANDARD_NO_PAD.encode(details), expected);
        }
    }

    #[test]
    fn pushback_is_rounded_up_and_cut() {
        for (nanos, expected) in [(1, 1), (1_000_000, 1), (1_000_001, 2), (1_500_000_000, 1_500)] {
            assert_eq!(pushback(Duration::from_nanos(nanos)), expected);
        }
        assert_eq!(pushback(Duration::MAX), i32::MAX);
    }

    fn with(name: &'static str, value: &str) -> Request<()> {
        let request = Request::post("/").header("content-type", "application/grpc");
        let mut request = request.body(()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    }

    #[test]
    fn content_types_of_grpc_are_known() {
        let known = |value: &str| {
            content_type(&Head::of(&with("content-type", value)))
                .map(|value| value.to_str().unwrap().to_owned())
        };
        for value in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc-web+proto",
            "application/grpc-web-text",
            "application/grpc;charset=utf-8",
            "Application/gRPC",
        ] {
            assert_eq!(known(value).as_deref(), Some(value));
        }
        for value in ["application/json", "application/grpcx", "application", "text/plain", ""] {
            assert_eq!(known(value), None, "{value}");
        }
        let mut get = with("content-type", "application/grpc");
        *get.method_mut() = Method::GET;
        assert_eq!(content_type(&Head::of(&get)), None);
        let long = format!("application/grpc;{}", "x".repeat(64));
        assert_eq!(known(&long).as_deref(), Some("application/grpc"));
    }

    #[test]
    fn timeouts_are_read() {
        let read = |value: &str| timeout(&Head::of(&with("grpc-timeout", value)));
        for (value, nanos) in [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("100m", 100_000_000),
            ("5u", 5_000),
            ("99999999n", 99_999_999),
        ] {
            assert_eq!(read(value), Some(Duration::from_nanos(nanos)), "{value}");
        }
        for value in ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", "1 S", "+1S"] {
            assert_eq!(read(value), None, "{value:?}");
        }
        let mut plain = with("grpc-timeout", "1S");
        plain.headers_mut().remove("content-type");
        assert_eq!(timeout(&Head::of(&plain)), None);
    }
}
