//! The store of shared limits hangs, is killed and comes back, while requests come: what each mode answers.
//!
//! `cargo run --example store_away` starts a redis-server of its own, does that to it, and checks what comes.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(
    clippy::disallowed_methods,
    reason = "it asks in real time, and measures how long that takes"
)]

mod shared_redis;

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, http::Request, routing::get};
use tower::ServiceExt;
use tower_sluice::{
    BackendErrorKind, ConfigError, FixedWindow, Observer, RateLimitLayer, Rule,
    backend::Redis,
    event::{StoreChanged, StoreState},
};

/// Forty an hour for all four instances, of which this is one.
const LIMIT: u64 = 40;
const INSTANCES: u32 = 4;

/// The default is 10 ms. Machines that run examples are busy with building others.
const DEADLINE: Duration = Duration::from_millis(40);

/// Notes what becomes of the store.
struct Log(Instant, Mutex<Vec<StoreState>>);

impl Observer for Log {
    fn store_changed(&self, changed: &StoreChanged<'_>) {
        let error = changed.error().map(|error| format!(": {error}")).unwrap_or_default();
        println!("{:5} ms: {:?}{error}", self.0.elapsed().as_millis(), changed.state());
        self.1.lock().unwrap().push(changed.state());
    }
}

/// One route for each mode.
fn app(shared: &Redis) -> Result<Router, ConfigError> {
    let layer = |name: &str, shared: Redis| {
        let rule = Rule::new(name, FixedWindow::per_hour(LIMIT)).backend(shared);
        RateLimitLayer::builder().rule(rule).build()
    };
    let ok = || get(|| async {});
    Ok(Router::new()
        .route("/search", ok().layer(layer("search", shared.clone().local_share())?))
        .route("/feed", ok().layer(layer("feed", shared.clone().admit())?))
        .route("/pay", ok().layer(layer("pay", shared.clone().refuse())?)))
}

/// Asks all three routes so many times, a millisecond apart: how often each status came, and the longest answer.
async fn load(app: &Router, times: u32) -> (BTreeMap<(&'static str, u16), u32>, Duration) {
    let (mut came, mut longest) = (BTreeMap::new(), Duration::ZERO);
    for _ in 0..times {
        for path in ["/search", "/feed", "/pay"] {
            let asked = Instant::now();
            let request = Request::get(path).body(Body::empty()).unwrap();
            let status = app.clone().oneshot(request).await.unwrap().status().as_u16();
            longest = longest.max(asked.elapsed());
            *came.entry((path, status)).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (came, longest)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = shared_redis::free_port()?;
    let server = shared_redis::Server::start(port)?;
    let log = Arc::new(Log(Instant::now(), Mutex::default()));
    let shared =
        Redis::new(server.url())?.deadline(DEADLINE).instances(INSTANCES).observer(log.clone());
    let app = app(&shared)?;
    shared.ready(Duration::from_secs(5)).await?;

    // It is there, and counts.
    let (came, _) = load(&app, 20).await;
    assert_eq!(came, [(("/feed", 200), 20), (("/pay", 200), 20), (("/search", 200), 20)].into());

    // It hangs: open connections, and no answers. Three are waited for, up to the deadline, and then none.
    server.hang()?;
    let (came, longest) = load(&app, 60).await;
    println!("{came:?}, the longest after {longest:?}");
    // A quarter of the limit; all; and none: 503, since it is ours to count.
    let share = LIMIT as u32 / INSTANCES;
    let expected = [
        (("/feed", 200), 60),
        (("/pay", 503), 60),
        (("/search", 200), share),
        (("/search", 429), 60 - share),
    ];
    assert_eq!(came, expected.into());
    assert!((DEADLINE..2 * DEADLINE).contains(&longest), "{longest:?}");

    // It is killed, and its state with it. That changes nothing, and nobody waits.
    drop(server);
    let (came, longest) = load(&app, 60).await;
    assert_eq!(came, [(("/feed", 200), 60), (("/pay", 503), 60), (("/search", 429), 60)].into());
    assert!(longest < DEADLINE, "{longest:?}");

    // It comes back. Nothing here is restarted, and since it has forgotten all there are forty again.
    let _server = shared_redis::Server::start(port)?;
    let back = Instant::now();
    shared.ready(Duration::from_secs(5)).await?;
    println!("found {} ms after it was there", back.elapsed().as_millis());
    let (came, _) = load(&app, 60).await;
    println!("{came:?}");
    for path in ["/feed", "/pay", "/search"] {
        assert_eq!((came[&(path, 200)], came[&(path, 429)]), (40, 20));
    }
    let away = StoreState::Away(BackendErrorKind::Timeout);
    assert_eq!(*log.1.lock().unwrap(), [StoreState::Up, away, StoreState::Up]);
    Ok(())
}
