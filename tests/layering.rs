//! Holds `src/` to its floors: a file imports from lower floors, and from its own without cycles.
//!
//! The table below is the one of `docs/design.md`. A room is a file or folder directly under `src/`
//! and has one floor; `lib.rs` declares and re-exports, and is exempt, as are items under
//! `#[cfg(test)]`, files named `tests.rs`, comments and string literals.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Room -> floor. A file whose room is missing here fails the test.
const FLOORS: &[(&str, u8)] = &[
    // Values and arithmetic.
    ("algorithm", 0),
    ("clock", 0),
    ("criticality", 0),
    ("decision", 0),
    ("error", 0),
    ("event", 0),
    ("identity", 0),
    ("quota", 0),
    ("sync", 0),
    // Counting and waiting.
    ("backend", 1),
    ("in_flight", 1),
    ("limiter", 1),
    ("observe", 1),
    ("waiting", 1),
    // HTTP in, HTTP out.
    ("rejection", 2),
    ("request", 2),
    ("response", 2),
    ("rule", 2),
    // Tower.
    ("adapt", 3),
    ("admission", 3),
    ("body", 3),
    ("core", 3),
    ("extract", 3),
    ("future", 3),
    ("handle", 3),
    ("late", 3),
    ("layer", 3),
    ("plan", 3),
    ("service", 3),
    ("verdict", 3),
    // Running it.
    ("admin", 4),
    ("config", 4),
    ("guide", 4),
    ("listener", 4),
    ("testing", 4),
];

/// Crates that only some floors may name: (crate, lowest floor that may).
const CRATES: &[(&str, u8)] = &[
    ("axum", 2),
    ("axum_core", 2),
    ("http", 2),
    ("http_body", 2),
    ("http_body_util", 2),
    ("hyper", 2),
    ("pin_project_lite", 3),
    ("tower", 3),
    ("tower_http", 3),
    ("tower_layer", 3),
    ("tower_service", 3),
];

/// (file, crate): named below its floor, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    // `Key` converts from `http::HeaderValue`: the conversion has to live beside the type, and a
    // copy of the bytes for it would be an allocation per request.
    ("identity.rs", "http"),
];

fn floor(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

// ---------------------------------------------------------------------------------------------
// The checker.

/// A path as the source names it, flattened out of groups, with the line it starts on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Import {
    line: usize,
    segments: Vec<String>,
    /// How many inline modules of the file surround it.
    inline: usize,
    alias: Option<String>,
}

/// What one file is found to name: rooms of the crate, and crates with a floor of their own.
#[derive(Debug, Default)]
struct Named {
    rooms: Vec<(usize, String, String)>,
    crates: Vec<(usize, String)>,
    faults: Vec<String>,
}

/// Every fault of `source`, the text of `file` (its path below `src/`).
fn violations(file: &str, source: &str, exports: &BTreeMap<String, String>) -> Vec<String> {
    let Some(own) = floor(room_of(file)) else {
        return vec![format!(
            "src/{file}: no floor; add `{}` to FLOORS in tests/layering.rs",
            room_of(file)
        )];
    };
    let named = named(file, source, exports);
    let mut faults = named.faults;
    for (line, room, import) in &named.rooms {
        // `named` yields only rooms that have a floor.
        let theirs = floor(room).expect("a room of the table");
        if theirs > own {
            faults.push(format!(
                "src/{file}:{line}: `{import}` is on floor {theirs} ({room}); \
                 this file is on floor {own}"
            ));
        }
    }
    for (line, name) in &named.crates {
        let lowest = CRATES.iter().find(|(krate, _)| krate == name).expect("of the table").1;
        if own < lowest && !EXCEPTIONS.contains(&(file, name.as_str())) {
            faults.push(format!(
                "src/{file}:{line}: names the crate `{name}`, which is for floors {lowest} and up; \
                 this file is on floor {own}"
            ));
        }
    }
    faults
}

fn named(file: &str, source: &str, exports: &BTreeMap<String, String>) -> Named {
    let mut named = Named::default();
    let depth = module_depth(file);
    for import in imports(&without_tests(&lex(source))) {
        let written = import.segments.join("::");
        let mut segments = import.segments.as_slice();
        let first = segments[0].as_str();
        let at_root = match first {
            "crate" => {
                segments = &segments[1..];
                true
            }
            "super" | "self" => {
                // `self::` is where the item stands; each `super` is one module further out.
                let mut left = depth + import.inline;
                while let Some("super" | "self") = segments.first().map(String::as_str) {
                    left = left.saturating_sub(usize::from(segments[0] == "super"));
                    segments = &segments[1..];
                }
                left == 0
            }
            _ => {
                if CRATES.iter().any(|(krate, _)| *krate == first) {
                    named.crates.push((import.line, first.to_owned()));
                }
                false
            }
        };
        if !at_root {
            continue;
        }
        let Some(name) = segments.first() else { continue };
        if floor(name).is_some() {
            named.rooms.push((import.line, name.clone(), written));
        } else if let Some(room) = exports.get(name) {
            named.rooms.push((import.line, room.clone(), written));
        } else {
            named.faults.push(format!(
                "src/{file}:{}: `{written}` is neither a room of FLOORS nor \
                 re-exported by lib.rs by name",
                import.line
            ));
        }
    }
    named
}

/// Name at the crate root -> room, from the `use` lines of `lib.rs`.
fn root_exports(lib: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for import in imports(&without_tests(&lex(lib))) {
        let path: Vec<_> =
            import.segments.iter().skip_while(|s| *s == "crate" || *s == "self").collect();
        let (Some(room), Some(last)) = (path.first(), path.last()) else { continue };
        if floor(room).is_some() && path.len() > 1 {
            exports.insert(import.alias.unwrap_or_else(|| (*last).clone()), (*room).clone());
        }
    }
    exports
}

/// `clock/tokio.rs` -> `clock`.
fn room_of(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// How far a file's module lies below the crate root.
fn module_depth(file: &str) -> usize {
    let parts = file.split('/').count();
    if file.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// One cycle among rooms of one floor, if there is one, as the edges that close it.
fn cycle(edges: &BTreeMap<String, BTreeMap<String, String>>) -> Option<Vec<String>> {
    fn visit<'a>(
        room: &'a str,
        edges: &'a BTreeMap<String, BTreeMap<String, String>>,
        path: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|r| *r == room) {
            let mut rooms = path[start..].to_vec();
            rooms.push(room);
            return Some(rooms.windows(2).map(|pair| edges[pair[0]][pair[1]].clone()).collect());
        }
        if !done.insert(room) {
            return None;
        }
        path.push(room);
        let found = edges
            .get(room)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .find_map(|next| visit(next, edges, path, done));
        path.pop();
        found
    }
    let mut done = BTreeSet::new();
    edges.keys().find_map(|room| visit(room, edges, &mut Vec::new(), &mut done))
}

// ---------------------------------------------------------------------------------------------
// Just enough of a Rust reader: tokens, `use` trees, paths.

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    line: usize,
    text: String,
}

impl Token {
    fn is_ident(&self) -> bool {
        self.text.starts_with(|c: char| c == '_' || c.is_alphabetic())
    }
}

/// Identifiers, `::` and single punctuation; comments and literals are dropped.
fn lex(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let word = |c: char| c == '_' || c.is_alphanumeric();
    let (mut tokens, mut i, mut line) = (Vec::new(), 0, 1);
    while i < chars.len() {
        let c = at(i);
        if c == '\n' {
            line += 1;
            i += 1;
        } else if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            let mut open = 0;
            while i < chars.len() {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (open, i) = (open + 1, i + 2),
                    ('*', '/') => (open, i) = (open - 1, i + 2),
                    (c, _) => {
                        line += usize::from(c == '\n');
                        i += 1;
                    }
                }
                if open == 0 {
                    break;
                }
            }
        } else if c == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                line += usize::from(at(i) == '\n');
                if at(i) == '\\' {
                    i += 1;
                    line += usize::from(at(i) == '\n');
                }
                i += 1;
            }
            i += 1;
        } else if c == '\'' {
            // A lifetime is a quote, a word, and no closing quote.
            if at(i + 1) != '\\' && word(at(i + 1)) && at(i + 2) != '\'' {
                i += 1;
                while word(at(i)) {
                    i += 1;
                }
            } else {
                i += 1;
                while i < chars.len() && at(i) != '\'' {
                    i += 1 + usize::from(at(i) == '\\');
                }
                i += 1;
            }
        } else if word(c) {
            let start = i;
            while word(at(i)) {
                i += 1;
            }
            let text: String = chars[start..i].iter().collect();
            let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
            if matches!(text.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                let end: String = format!("\"{}", "#".repeat(hashes));
                i += hashes + 1;
                while i < chars.len() && !chars[i..].iter().copied().take(end.len()).eq(end.chars())
                {
                    line += usize::from(at(i) == '\n');
                    i += 1;
                }
                i += end.len();
            } else if text == "r" && hashes == 1 {
                // `r#type`: the word that follows is the identifier.
                i += 1;
            } else if !(matches!(text.as_str(), "b" | "c") && matches!(at(i), '"' | '\'')) {
                tokens.push(Token { line, text });
            }
        } else if c == ':' && at(i + 1) == ':' {
            tokens.push(Token { line, text: "::".to_owned() });
            i += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(Token { line, text: c.to_string() });
            }
            i += 1;
        }
    }
    tokens
}

/// Drops every item under `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let starts = |i: usize, texts: &[&str]| {
        texts.iter().enumerate().all(|(n, text)| tokens.get(i + n).is_some_and(|t| t.text == *text))
    };
    let (mut kept, mut i) = (Vec::new(), 0);
    while i < tokens.len() {
        let cfg_test = starts(i, &["#", "[", "cfg", "(", "test", ")", "]"])
            || starts(i, &["#", "[", "cfg", "(", "all", "(", "test", ","]);
        if !cfg_test {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        // Over this attribute and those after it, then over the item: to its `;` or closing brace.
        while starts(i, &["#", "["]) {
            i = skip_group(tokens, i + 1);
        }
        while i < tokens.len() {
            match tokens[i].text.as_str() {
                ";" | "," => {
                    i += 1;
                    break;
                }
                "{" => {
                    i = skip_group(tokens, i);
                    break;
                }
                "(" | "[" => i = skip_group(tokens, i),
                // The end of what surrounds it: the item was a last field or match arm.
                "}" => break,
                _ => i += 1,
            }
        }
    }
    kept
}

/// The index after the group that opens at `i`.
fn skip_group(tokens: &[Token], mut i: usize) -> usize {
    let mut open = 0_usize;
    while i < tokens.len() {
        match tokens[i].text.as_str() {
            "(" | "[" | "{" => open += 1,
            ")" | "]" | "}" => open -= 1,
            _ => {}
        }
        i += 1;
        if open == 0 {
            break;
        }
    }
    i
}

/// Every path of two segments or more, and every path of a `use`.
fn imports(tokens: &[Token]) -> Vec<Import> {
    let mut found = Vec::new();
    // For each open brace: whether it is the body of an inline module.
    let mut braces: Vec<bool> = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let text = tokens[i].text.as_str();
        let next = |n: usize| tokens.get(i + n).map_or("", |t| t.text.as_str());
        let inline = braces.iter().filter(|is_module| **is_module).count();
        match text {
            "{" => {
                let module = i >= 2 && tokens[i - 2].text == "mod" && tokens[i - 1].is_ident();
                braces.push(module);
                i += 1;
            }
            "}" => {
                braces.pop();
                i += 1;
            }
            // `use<..>` is a capture list of `impl Trait`.
            "use" if next(1) != "<" => {
                i = use_tree(tokens, i + 1, &mut Vec::new(), inline, &mut found);
            }
            _ if tokens[i].is_ident() && next(1) == "::" && !continues_path(tokens, i) => {
                let line = tokens[i].line;
                let mut segments = vec![text.to_owned()];
                while tokens.get(i + 1).is_some_and(|t| t.text == "::")
                    && tokens.get(i + 2).is_some_and(Token::is_ident)
                {
                    segments.push(tokens[i + 2].text.clone());
                    i += 2;
                }
                found.push(Import { line, segments, inline, alias: None });
                i += 1;
            }
            _ => i += 1,
        }
    }
    found
}

/// Whether the token at `i` stands after `something::`; a leading `::` begins a path.
fn continues_path(tokens: &[Token], i: usize) -> bool {
    i >= 2
        && tokens[i - 1].text == "::"
        && (tokens[i - 2].is_ident() || tokens[i - 2].text == ">")
        && !matches!(tokens[i - 2].text.as_str(), "use" | "as" | "dyn" | "in" | "return" | "mut")
}

/// Reads one tree of a `use` from `i` on; returns the index after it.
fn use_tree(
    tokens: &[Token],
    mut i: usize,
    prefix: &mut Vec<String>,
    inline: usize,
    found: &mut Vec<Import>,
) -> usize {
    let base = prefix.len();
    let line = tokens.get(i).map_or(0, |t| t.line);
    let mut alias = None;
    while i < tokens.len() {
        match tokens[i].text.as_str() {
            "::" => i += 1,
            "{" => {
                i += 1;
                while i < tokens.len() && tokens[i].text != "}" {
                    i = use_tree(tokens, i, prefix, inline, found);
                    i += usize::from(tokens.get(i).is_some_and(|t| t.text == ","));
                }
                prefix.truncate(base);
                return i + 1;
            }
            "as" => {
                alias = tokens.get(i + 1).map(|t| t.text.clone());
                i += 2;
            }
            "," | "}" | ";" => break,
            // `{self}` names what the group hangs on.
            "self" if !prefix.is_empty() => i += 1,
            text => {
                prefix.push(text.to_owned());
                i += 1;
            }
        }
    }
    if !prefix.is_empty() {
        found.push(Import { line, segments: prefix.clone(), inline, alias });
    }
    prefix.truncate(base);
    i
}

// ---------------------------------------------------------------------------------------------
// The tree.

/// (path below `src/`, text) of every source file that is held to a floor.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&src, &mut files);
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let below = path.strip_prefix(&src).expect("below src").to_string_lossy();
            (below.replace('\\', "/"), fs::read_to_string(&path).expect("UTF-8"))
        })
        .filter(|(file, _)| file != "lib.rs" && !file.ends_with("/tests.rs"))
        .collect()
}

fn lib() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    fs::read_to_string(path).expect("src/lib.rs")
}

#[test]
fn no_file_imports_from_a_higher_floor() {
    let exports = root_exports(&lib());
    let faults: Vec<_> =
        sources().iter().flat_map(|(file, text)| violations(file, text, &exports)).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn no_cycles_between_rooms_of_one_floor() {
    let exports = root_exports(&lib());
    let mut edges: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (file, text) in sources() {
        let room = room_of(&file);
        for (line, other, import) in named(&file, &text, &exports).rooms {
            if other != room && floor(&other) == floor(room) {
                edges
                    .entry(room.to_owned())
                    .or_default()
                    .entry(other)
                    .or_insert_with(|| format!("src/{file}:{line}: `{import}`"));
            }
        }
    }
    if let Some(edges) = cycle(&edges) {
        panic!("rooms of one floor import each other in a circle:\n{}\n", edges.join("\n"));
    }
}

// ---------------------------------------------------------------------------------------------
// The checker itself.

fn exports() -> BTreeMap<String, String> {
    root_exports(
        "pub use error::{ConfigError, BackendError};\npub use layer::RateLimitLayer;\n\
         pub use request::{head::Head, key};\npub use crate::rule::Rule as Limit;\nmod error;",
    )
}

#[test]
fn root_re_exports_are_read() {
    let exports = exports();
    let room = |name: &str| exports.get(name).map(String::as_str);
    assert_eq!(room("ConfigError"), Some("error"));
    assert_eq!(room("RateLimitLayer"), Some("layer"));
    assert_eq!(room("Head"), Some("request"));
    assert_eq!(room("key"), Some("request"));
    assert_eq!(room("Limit"), Some("rule"));
    assert_eq!(room("Rule"), None);
}

#[test]
fn a_seeded_violation_is_caught() {
    let bad = [
        // (file, source, words that the message must hold)
        ("quota.rs", "use crate::backend::Backend;", "src/quota.rs:1: `crate::backend::Backend`"),
        (
            "quota.rs",
            "\n\nuse crate::{error::E, rule::{Rule}};",
            "src/quota.rs:3: `crate::rule::Rule`",
        ),
        ("quota.rs", "use crate::RateLimitLayer;", "floor 3 (layer); this file is on floor 0"),
        ("quota.rs", "fn f() -> crate::RateLimitLayer { todo!() }", "`crate::RateLimitLayer`"),
        ("quota.rs", "use super::limiter::Limiter;", "`super::limiter::Limiter`"),
        ("clock/manual.rs", "use super::super::{service};", "`super::super::service`"),
        ("quota.rs", "mod inner { use super::super::layer::L; }", "`super::super::layer::L`"),
        ("backend/local.rs", "fn f(_: crate::key::Key) {}", "floor 2 (request)"),
        ("backend/local.rs", "use crate::Unheard;", "neither a room"),
        ("backend/local.rs", "macro_rules! m { () => { $crate::layer::x() } }", "floor 3 (layer)"),
        ("quota.rs", "use http::HeaderValue;", "names the crate `http`"),
        ("limiter.rs", "use {std::fmt, tower::Layer};", "names the crate `tower`"),
        ("limiter.rs", "fn f(_: ::http::Uri) {}", "names the crate `http`"),
        ("rule.rs", "pin_project_lite::pin_project! {}", "names the crate `pin_project_lite`"),
        ("rule.rs", "use tower_layer::Layer;", "names the crate `tower_layer`"),
        ("identity.rs", "use tower_service::Service;", "names the crate `tower_service`"),
        ("unheard.rs", "", "src/unheard.rs: no floor"),
        (
            "quota.rs",
            "#[cfg(test)] mod tests { use crate::layer::A; }\nuse crate::layer::B;",
            "src/quota.rs:2: `crate::layer::B`",
        ),
        ("quota.rs", "const C: &str = r#\"\n\"#;\nuse crate::layer::B;", "src/quota.rs:3"),
        (
            "quota.rs",
            "fn f<'a>(c: &'a str) { if c == '\"' {} }\nuse crate::layer::B;",
            "quota.rs:2",
        ),
    ];
    for (file, source, expected) in bad {
        let found = violations(file, source, &exports());
        assert_eq!(found.len(), 1, "{file}: {source}: {found:?}");
        assert!(found[0].contains(expected), "{source}: {} lacks {expected}", found[0]);
    }
}

#[test]
fn what_is_allowed_is_let_through() {
    let good = [
        ("layer.rs", "use crate::{ConfigError, rule::Rule, backend::*};"),
        ("layer.rs", "use tower_layer::Layer; use pin_project_lite::pin_project;"),
        ("identity.rs", "use http::HeaderValue;"),
        ("rule.rs", "use http::Method; use axum::extract::MatchedPath;"),
        ("quota.rs", "/// [`crate::layer::X`]\n//! use crate::layer;\n/* crate::layer::A /* */ */"),
        ("quota.rs", "const C: &str = \"crate::layer::X\"; const D: &[u8] = b\"crate::layer::X\";"),
        ("quota.rs", "#[cfg(test)]\n#[allow(x)]\nmod tests { use crate::layer::X; fn f() { {} } }"),
        ("quota.rs", "#[cfg(all(test, feature = \"x\"))] use crate::layer::X;"),
        ("quota.rs", "pub(crate) fn f(http: u8) -> u8 { http }"),
        ("backend/local/mod.rs", "use super::Backend; use super::super::quota::Quota;"),
        ("quota.rs", "mod inner { use super::layer; }"),
        ("quota.rs", "fn f() { std::tower::x(); }"),
    ];
    for (file, source) in good {
        let found = violations(file, source, &exports());
        assert!(found.is_empty(), "{file}: {source}: {found:?}");
    }
}

#[test]
fn a_circle_is_found() {
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (from, to) in pairs {
            edges
                .entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned(), format!("{from} -> {to}"));
        }
        edges
    };
    assert_eq!(cycle(&edges(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    let found = cycle(&edges(&[("z", "a"), ("a", "b"), ("b", "c"), ("c", "a")])).expect("a circle");
    assert_eq!(found, ["a -> b", "b -> c", "c -> a"]);
}
