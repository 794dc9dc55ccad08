//! What is written to the log: one line for each change of the store, and no more.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tower_sluice::{FixedWindow, event::StoreState};
use tracing::{Metadata, Subscriber, field, span};

use crate::{
    load::{eventually, goes_away},
    server::Server,
    state::{ask, exact, keyed},
};

/// The lines of our own target.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl field::Visit for Line {
    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tower_sluice"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// In a process of its own: others here write lines, too, and `tracing` remembers who listened when each was first
/// written.
#[test]
fn one_line_for_each_change() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "log::the_lines_of_an_outage", "--nocapture"])
        .env("SLUICE_TEST_LOG", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The test above starts it; alone it does nothing.
#[tokio::test]
async fn the_lines_of_an_outage() {
    if std::env::var_os("SLUICE_TEST_LOG").is_none() {
        return;
    }
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let mut server = Server::start();
    let shared = exact(server.url()).await.instances(1);
    let id = keyed(&shared, "window", FixedWindow::per_minute(100));
    assert!(ask(&shared, id, b"a").await);
    server.kill();
    assert!(goes_away(Duration::from_secs(2), &shared).await);
    for _ in 0..50 {
        let _ = ask(&shared, id, b"a").await;
    }
    server.run();
    assert!(eventually(Duration::from_secs(2), || shared.state() == StoreState::Up).await);
    let lines = log.0.lock().unwrap().clone();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(
        lines[0].starts_with("INFO message=the store of shared limits is there"),
        "{}",
        lines[0]
    );
    let away = "WARN message=the store of shared limits is away; each rule decides by its mode until it is back kind=\"unavailable\"";
    assert!(lines[1].starts_with(away), "{}", lines[1]);
    assert_eq!(lines[2], lines[0]);
}
