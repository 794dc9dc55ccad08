//! Fields as an independent parser reads them, and requests by hand.

use std::collections::BTreeMap;

use axum::{Router, body::Body, extract::Request};
use http::{HeaderMap, StatusCode};
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};
use tower::ServiceExt;

/// An answer, its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// One member of a list: its name, and its parameters by their names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) parameters: BTreeMap<String, String>,
}

/// A member as it is expected.
pub(crate) fn member(name: &str, parameters: &[(&str, &str)]) -> Member {
    let parameters = parameters.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Member { name: name.to_owned(), parameters: parameters.collect() }
}

fn text(item: &BareItem) -> String {
    match item {
        BareItem::Integer(number) => number.to_string(),
        BareItem::String(text) => text.as_str().to_owned(),
        other => panic!("neither a number nor a string: {other:?}"),
    }
}

impl Answer {
    /// All lines of a field, as one.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let lines: Vec<_> =
            self.headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }

    /// A field that is a list.
    #[track_caller]
    pub(crate) fn list(&self, name: &str) -> Vec<Member> {
        let Some(field) = self.field(name) else { return Vec::new() };
        let list = Parser::new(&field).parse::<List>().unwrap_or_else(|e| panic!("{field}: {e}"));
        let member = |entry: &ListEntry| {
            let ListEntry::Item(item) = entry else { panic!("an inner list in {field}") };
            let parameters = item.params.iter().map(|(key, value)| (key.to_string(), text(value)));
            Member { name: text(&item.bare_item), parameters: parameters.collect() }
        };
        list.iter().map(member).collect()
    }

    /// A field that is a dictionary of numbers.
    #[track_caller]
    pub(crate) fn dictionary(&self, name: &str) -> BTreeMap<String, String> {
        let field = self.field(name).expect(name);
        let dictionary = Parser::new(&field).parse::<Dictionary>().unwrap();
        let member = |(key, entry): (&sfv::Key, &ListEntry)| {
            let ListEntry::Item(item) = entry else { panic!("an inner list in {field}") };
            (key.to_string(), text(&item.bare_item))
        };
        dictionary.iter().map(member).collect()
    }

    /// A field that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name).map(|field| field.parse().unwrap())
    }
}

pub(crate) fn get(user: &str) -> Request {
    Request::get("/").header("x-user-id", user).body(Body::empty()).unwrap()
}

/// What `app` answers.
pub(crate) async fn ask(app: &Router, request: Request) -> Answer {
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    axum::body::to_bytes(body, usize::MAX).await.unwrap();
    Answer { status: head.status, headers: head.headers }
}
