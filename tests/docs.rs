//! What the pages name exists, and what they say of placing layers holds.

use std::{collections::BTreeSet, fs, path::Path};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    response::{IntoResponse, Response},
    routing::get,
};
use tower::ServiceExt;
use tower_sluice::{
    FixedWindow, InFlight, ManualClock, RateLimitLayer, Rejection, Rule, TokenBucket, event::Fault,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// All files below `folder` that end like this, by their path from the root.
fn files(folder: &str, end: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path, end));
        } else if path.ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The pages of the project, each with its text.
fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<_> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "BENCHMARKS.md"].map(Into::into).into();
    pages.extend(files("docs", ".md"));
    pages.extend(files("examples", ".md"));
    pages.into_iter().map(|page| (page.clone(), read(&page))).collect()
}

/// The doc comments of the source and of the examples, each file's as one line.
fn doc_comments() -> Vec<(String, String)> {
    let comment = |line: &str| {
        let line = line.trim_start();
        let text = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))?;
        Some(text.trim().to_owned())
    };
    let mut sources = files("src", ".rs");
    sources.extend(files("examples", ".rs"));
    sources
        .into_iter()
        .map(|file| {
            let text = read(&file).lines().filter_map(comment).collect::<Vec<_>>().join(" ");
            (file, text)
        })
        .collect()
}

/// What follows each `start` in `text`, up to the first character that `ends` it.
fn after<'t>(text: &'t str, start: &str, ends: impl Fn(char) -> bool) -> Vec<&'t str> {
    text.match_indices(start)
        .map(|(at, _)| {
            let rest = &text[at + start.len()..];
            &rest[..rest.find(&ends).unwrap_or(rest.len())]
        })
        .collect()
}

/// The files that a page's links name, seen from the root.
fn links(page: &str, text: &str) -> Vec<String> {
    let folder = Path::new(page).parent().unwrap();
    after(text, "](", |c| c == ')')
        .into_iter()
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap_or_default())
        .map(|target| folder.join(target).to_str().unwrap().to_owned())
        .collect()
}

/// The paths that a text names in backticks: those that start in a folder of the project and leave
/// nothing open.
fn paths(text: &str) -> Vec<&str> {
    let folders = ["src/", "tests/", "docs/", "examples/", "scripts/", "bench-compare/", ".ci/"];
    text.split('`')
        .filter_map(|code| code.split_whitespace().next())
        .filter(|code| folders.iter().any(|folder| code.starts_with(folder)))
        .filter(|code| !code.contains(['<', '*', '{', ':']))
        // The reader's own.
        .filter(|code| *code != "src/main.rs")
        .collect()
}

/// The examples that a text names: as a command, or in words.
fn examples(text: &str) -> Vec<&str> {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_' && c != '-';
    let mut named = after(text, "--example ", is_end);
    named.extend(after(text, "xample `", is_end));
    named
}

#[test]
fn links_and_paths_name_files() {
    let mut seen = 0;
    for (page, text) in pages() {
        let links = links(&page, &text);
        let paths = paths(&text).into_iter().map(str::to_owned);
        for file in links.into_iter().chain(paths) {
            assert!(root().join(&file).exists(), "{page} names {file}");
            seen += 1;
        }
    }
    for (file, text) in doc_comments() {
        for path in paths(&text) {
            assert!(root().join(path).exists(), "{file} names {path}");
        }
    }
    assert!(seen > 20, "found only {seen}");
}

/// The programs among the examples: what lies in a folder is a part of some.
fn programs() -> Vec<String> {
    let is_program = |file: &String| file.matches('/').count() == 1;
    files("examples", ".rs").into_iter().filter(is_program).collect()
}

#[test]
fn examples_that_are_named_exist() {
    let mut seen = BTreeSet::new();
    for (page, text) in pages().into_iter().chain(doc_comments()) {
        for example in examples(&text) {
            let file = format!("examples/{example}.rs");
            assert!(root().join(&file).exists(), "{page} names the example {example}");
            seen.insert(file);
        }
    }
    // And each is named somewhere, so that it is found.
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), programs());
}

#[test]
fn the_index_names_every_example_once() {
    let page = "examples/README.md";
    let text = read(page);
    let mut linked = links(page, &text);
    linked.sort_unstable();
    assert_eq!(linked, programs());
    let mut run: Vec<_> =
        examples(&text).into_iter().map(|name| format!("examples/{name}.rs")).collect();
    run.sort_unstable();
    assert_eq!(run, linked);
}

/// The first program in Rust of the README is the example `per_user`, which is run with its tests.
#[test]
fn the_first_program_is_the_example() {
    let readme = read("README.md");
    let (_, program) = readme.split_once("```rust,no_run\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let example = read("examples/per_user.rs");
    let code = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    assert_eq!(program.lines().collect::<Vec<_>>(), code.collect::<Vec<_>>());
}

#[test]
fn examples_that_check_themselves_are_run() {
    let script = read("scripts/test");
    for file in programs() {
        let name = file.trim_start_matches("examples/").trim_end_matches(".rs");
        let text = read(&file);
        // Tests in an example are run as tests.
        let checks = text.split("#[cfg(test)]").next().is_some_and(|code| code.contains("assert"));
        assert_eq!(script.contains(&format!("--example {name}")), checks, "{name}");
    }
}

/// Headings as rustdoc makes anchors of them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| {
        let title = line.strip_prefix("//! ")?.trim_start_matches('#').strip_prefix(' ')?;
        line.starts_with("//! #").then(|| {
            let title = title.to_lowercase().replace(' ', "-");
            title.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
        })
    };
    text.lines().filter_map(heading).collect()
}

/// The page of a link in the guide or to it, and the anchor; none where it leads elsewhere.
fn to_guide<'t>(file: &str, link: &'t str) -> Option<(String, &'t str)> {
    let (path, anchor) = link.split_once('#')?;
    let page = |name: &str| format!("src/guide/{name}.rs");
    Some((
        match path.strip_prefix("crate::guide::").or(path.strip_prefix("super::")) {
            Some(name) if !name.contains(':') => page(name),
            _ if path.is_empty() => file.to_owned(),
            _ if path == "crate" => "src/lib.rs".to_owned(),
            _ => return None,
        },
        anchor,
    ))
}

#[test]
fn anchors_of_the_guide_exist() {
    let mut seen = 0;
    for (file, text) in doc_comments() {
        let is_page = file.starts_with("src/guide/") || file == "src/lib.rs";
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((page, anchor)) = to_guide(&file, link) else { continue };
            if page == file && !is_page {
                continue; // within an item's page
            }
            let anchors = anchors(&read(&page));
            assert!(anchors.contains(anchor), "{file}: {link} of {anchors:?}");
            seen += 1;
        }
    }
    assert!(seen > 20, "found only {seen}");
    let none = anchors("//! # A first\n//! text\n/// # Not this\n//! ## What's next?");
    assert_eq!(none, ["a-first", "whats-next"].map(String::from).into());
}

/// The finders find: a page that is wrong in each way.
#[test]
fn what_does_not_exist_is_found() {
    let text = "[a](gone.md#top) [b](https://example.org) [c](#here) `cargo run --example gone` \
                the example `lost`. `tests/gone.rs` `tests/<name>` `src/gone.rs: why` `tests/x::y`";
    assert_eq!(links("docs/page.md", text), ["docs/gone.md"]);
    assert_eq!(examples(text), ["gone", "lost"]);
    assert_eq!(paths(text), ["tests/gone.rs"]);
}

/// The rows of the table under `heading`, by what their first cell has in backticks.
fn rows<'t>(text: &'t str, heading: &str) -> Vec<&'t str> {
    let (_, section) = text.split_once(heading).unwrap();
    let section = section.split("# ").next().unwrap();
    let row = |line: &'t str| line.trim_start_matches("//!").trim().strip_prefix("| `");
    section.lines().filter_map(row).map(|row| row.split('`').next().unwrap()).collect()
}

#[test]
fn tables_of_features_are_the_manifests() {
    let manifest = read("Cargo.toml");
    let (_, features) = manifest.split_once("[features]").unwrap();
    let mut features: Vec<_> = features
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once(" = [")?.0))
        .filter(|feature| *feature != "default")
        .collect();
    features.sort_unstable();
    assert!(!features.is_empty());
    for page in ["README.md", "src/lib.rs"] {
        let text = read(page);
        let mut rows = rows(&text, "# Features");
        rows.sort_unstable();
        assert_eq!(rows, features, "{page}");
    }
}

#[test]
fn every_fault_is_in_the_table_of_its_page() {
    let text = read("src/event/fault.rs");
    let all = [
        Fault::Clock,
        Fault::Keys,
        Fault::Leaky,
        Fault::NoKey,
        Fault::OneKey,
        Fault::Peer,
        Fault::Proxy,
        Fault::Route,
        Fault::Share,
        Fault::Store,
        Fault::StoreAccess,
        Fault::StoreCluster,
        Fault::StoreDatabase,
        Fault::StoreForeign,
        Fault::StoreOld,
        Fault::Tier,
        Fault::Twice,
        Fault::Upgrade,
    ];
    for fault in all {
        let row = format!("/// | [{}](Self::{fault:?}) | ", fault.code());
        assert!(text.contains(&row), "{row}");
        let variant = format!("    /// {}: ", fault.code());
        assert!(text.contains(&variant), "{variant}");
    }
    assert_eq!(text.matches("/// | [SL-").count(), all.len());
}

fn layer(name: &str, limit: u64) -> RateLimitLayer {
    let rule = Rule::new(name, FixedWindow::per_day(limit));
    RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build().unwrap()
}

async fn ask(app: &Router, path: &str) -> Response {
    app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn routes_added_after_a_layer_are_not_limited() {
    let app = Router::new()
        .route("/before", get(|| async {}))
        .layer(layer("one", 1))
        .route("/after", get(|| async {}));
    assert_eq!(ask(&app, "/before").await.status(), 200);
    assert_eq!(ask(&app, "/before").await.status(), 429);
    for _ in 0..5 {
        assert_eq!(ask(&app, "/after").await.status(), 200);
    }
}

#[tokio::test]
async fn what_an_outer_layer_charged_stays_spent() {
    let (outer, inner) = (layer("outer", 5), layer("inner", 1));
    let app = Router::new().route("/", get(|| async {})).layer(inner).layer(outer.clone());
    for expected in [200, 429, 429] {
        assert_eq!(ask(&app, "/").await.status(), expected);
    }
    assert_eq!(outer.handle().peek("outer", (), 1).await.unwrap().remaining(), 2);
}

/// A response's status, headers by name, and body.
async fn whole(response: Response) -> (u16, Vec<(String, String)>, String) {
    let (parts, body) = response.into_parts();
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    let mut headers: Vec<_> =
        parts.headers.iter().map(field).filter(|(name, _)| name != "content-length").collect();
    headers.sort();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status.as_u16(), headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_handler_refuses_as_a_layer_does() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_minute(2).burst(1);
    let limiter = bucket.limiter().name("logins").clock(clock.clone()).build().unwrap();
    let rule = Rule::new("logins", bucket).spread(false);
    let layer = RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer);

    assert_eq!(ask(&app, "/").await.status(), 200);
    assert!(Rejection::of("logins", limiter.try_acquire()).is_none());
    let rejection = Rejection::of("logins", limiter.try_acquire()).unwrap();
    let answer = whole(rejection.into_response()).await;
    assert_eq!(answer, whole(ask(&app, "/").await).await);
    assert_eq!(answer.0, 429);
    assert!(answer.1.contains(&("retry-after".to_owned(), "30".to_owned())));

    // What can never pass is not told to come back.
    let never = Rejection::of("logins", limiter.try_acquire_many(2)).unwrap();
    assert_eq!((never.reason().as_str(), never.retry_after_secs()), ("never", None));
}

#[test]
fn layers_show_the_names_of_their_limits() {
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("orders", TokenBucket::per_second(5)))
        .rule(Rule::new("all", TokenBucket::per_second(5)))
        .in_flight(InFlight::new("database", 64))
        .build()
        .unwrap();
    let limits = "rules: [\"orders\", \"all\"], in_flight: [\"database\"], ..";
    assert_eq!(format!("{layer:?}"), format!("RateLimitLayer {{ {limits} }}"));
    assert_eq!(format!("{:?}", layer.handle()), format!("Handle {{ {limits} }}"));
    assert_eq!(format!("{:?}", layer.keep_body()), format!("KeepBodyLayer {{ {limits} }}"));
}
