//! Problem details (RFC 9457), with the types of the RateLimit fields draft.

use std::fmt::{self, Write};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use crate::event::Reason;

/// The body's media type.
pub(crate) const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The body of a refusal by `rules`.
pub(crate) fn body<'a>(
    status: StatusCode,
    reason: Reason,
    rules: impl IntoIterator<Item = &'a str>,
) -> Bytes {
    let kind = match reason {
        Reason::Quota | Reason::Never => {
            "https://iana.org/assignments/http-problem-types#quota-exceeded"
        }
        Reason::InFlight | Reason::Backend => {
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
        }
        Reason::MissingKey => "about:blank",
    };
    let title = status.canonical_reason().unwrap_or("Refused");
    let detail = detail(reason);
    let mut text = String::with_capacity(320);
    let _ = write!(
        text,
        r#"{{"type":"{kind}","title":"{title}","status":{},"detail":"{detail}","reason":"{}","violated-policies":["#,
        status.as_u16(),
        reason.as_str(),
    );
    for (i, rule) in rules.into_iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(text, r#"{comma}"{}""#, Escaped(rule));
    }
    text.push_str("]}");
    super::bytes_of(text)
}

/// What is said to people, here and to gRPC clients.
pub(crate) fn detail(reason: Reason) -> &'static str {
    match reason {
        Reason::Quota => "The quota is spent for now; try again after the time in Retry-After.",
        Reason::Never => "The request costs more than the limit allows at any time.",
        Reason::MissingKey => "The request does not say whose quota it should count against.",
        Reason::InFlight => "As much is under way as may be at once; try again soon.",
        Reason::Backend => "The service cannot tell at present whether the quota allows this.",
    }
}

/// Text as a JSON string has it. The names of a layer's rules have nothing to escape.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\0'..' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        assert_eq!(Escaped("a\"b\\c\nd").to_string(), r#"a\"b\\c\u000ad"#);
        assert_eq!(Escaped("per-user").to_string(), "per-user");
    }

    #[test]
    fn body_is_the_documented_one() {
        let body = body(StatusCode::TOO_MANY_REQUESTS, Reason::Quota, ["min", "day"]);
        assert_eq!(
            std::str::from_utf8(&body).unwrap(),
            concat!(
                r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
                r#""title":"Too Many Requests","status":429,"#,
                r#""detail":"The quota is spent for now; try again after the time in Retry-After.","#,
                r#""reason":"quota","violated-policies":["min","day"]}"#,
            )
        );
    }
}
