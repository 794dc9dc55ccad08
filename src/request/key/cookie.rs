//! Finds a cookie as axum's `CookieJar` would show it to a handler.
//!
//! Differences would be a way around the limit: a caller who sends his real session beside an
//! invented one must be counted by the one that the application believes.

use std::borrow::Cow;

use http::header::COOKIE;
use percent_encoding::percent_decode;

use crate::Head;

/// The value of the last cookie `name` that the jar would keep, `None` where it is empty.
pub(super) fn find<'a>(name: &str, head: &Head<'a>) -> Option<Cow<'a, [u8]>> {
    // HTTP/2 may split the pairs over several lines. From the back, since the last one counts.
    let lines = head.headers().get_all(COOKIE).iter().rev();
    let value = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.rsplit(';'))
        .find_map(|pair| value_of(name, pair))?;
    let value = strip(value, |bytes| {
        let bytes = bytes.trim_ascii();
        bytes.strip_prefix(b"\"").and_then(|bytes| bytes.strip_suffix(b"\"")).unwrap_or(bytes)
    });
    (!super::is_blank(&value)).then_some(value)
}

/// The decoded value, if `pair` is a cookie `name` that the jar would keep.
fn value_of<'a>(name: &str, pair: &'a str) -> Option<Cow<'a, [u8]>> {
    let (found, value) = pair.split_once('=')?;
    let found = found.trim();
    if found != name && !(found.contains('%') && percent_decode(found.as_bytes()).eq(name.bytes()))
    {
        return None;
    }
    let value = Cow::from(percent_decode(value.trim().as_bytes()));
    // The jar drops what is no text after decoding.
    std::str::from_utf8(&value).is_ok().then_some(value)
}

/// `cut` applied to the bytes, borrowed ones staying borrowed.
fn strip(value: Cow<'_, [u8]>, cut: impl Fn(&[u8]) -> &[u8]) -> Cow<'_, [u8]> {
    match value {
        Cow::Borrowed(bytes) => Cow::Borrowed(cut(bytes)),
        Cow::Owned(bytes) => Cow::Owned(cut(&bytes).to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn found(lines: &[&str]) -> Option<String> {
        let mut request = Request::get("/");
        for line in lines {
            request = request.header(COOKIE, *line);
        }
        let request = request.body(()).unwrap();
        let value = find("sid", &Head::of(&request))?;
        Some(String::from_utf8(value.into_owned()).unwrap())
    }

    #[test]
    fn cookies_are_found_among_others() {
        assert_eq!(found(&["a=1; sid=x y; b=2"]).as_deref(), Some("x y"));
        assert_eq!(found(&["a=1", "sid=x"]).as_deref(), Some("x"));
        assert_eq!(found(&["sid = x ;a=1"]).as_deref(), Some("x"));
        assert_eq!(found(&["sid=a=b"]).as_deref(), Some("a=b"));
        assert_eq!(found(&["xsid=1; sidx=2; SID=3; sid"]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn the_last_of_several_counts() {
        assert_eq!(found(&["sid=invented; sid=real"]).as_deref(), Some("real"));
        assert_eq!(found(&["sid=invented", "sid=real"]).as_deref(), Some("real"));
    }

    #[test]
    fn what_the_jar_drops_does_not_count() {
        assert_eq!(found(&["sid=real; sid=%ff"]).as_deref(), Some("real"));
        assert_eq!(found(&["sid=real", "sid=f\u{fc}r"]).as_deref(), Some("real"));
    }

    #[test]
    fn one_session_is_one_key_however_it_is_written() {
        for pair in ["sid=abc", "sid=\"abc\"", "sid=%61bc", "%73id=abc", "sid=%22abc%22"] {
            assert_eq!(found(&[pair]).as_deref(), Some("abc"), "{pair}");
        }
    }

    #[test]
    fn blank_is_missing() {
        for pair in ["sid=", "sid=  ", "sid=\"\"", "sid=%20", "sid=real; sid="] {
            assert_eq!(found(&[pair]), None, "{pair}");
        }
    }
}
