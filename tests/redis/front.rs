//! What keeps floods from the store: it says no earlier, never yes, and never for longer.

use std::time::{Duration, Instant};

use tower_sluice::{
    Backend, FixedWindow, RateLimitLayer, Rule, TokenBucket,
    backend::{Charge, LimiterId, Redis},
    clock::{Clock, Nanos, StdClock},
};

use crate::{
    load::{load, shoot},
    server::Server,
    state::{exact, keyed},
};

/// How many scripts were called.
fn calls(server: &Server) -> u64 {
    let line = server.info("commandstats", "cmdstat_evalsha").unwrap_or_default();
    line.split(&['=', ','][..]).nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

/// Real time, as a layer gives it.
async fn asks(shared: &Redis, id: LimiterId, cost: u64) -> bool {
    let now = StdClock.now();
    let verdicts = shared.check(now, &[Charge::new(id, cost).key(b"a")]).resolve().await;
    verdicts.unwrap().all_allowed()
}

#[tokio::test]
async fn rd_21_a_refusal_is_remembered_no_longer_than_it_lasts() {
    let server = Server::start();
    let shared = exact(server.url()).await.instances(1).remember_refusals();
    let id = keyed(&shared, "window", FixedWindow::new(5, Duration::from_millis(1_000)));
    let begun = Instant::now();
    for _ in 0..5 {
        assert!(asks(&shared, id, 1).await);
    }
    let before = calls(&server);
    let mut asked = 0;
    while begun.elapsed() < Duration::from_millis(900) {
        assert!(!asks(&shared, id, 1).await);
        asked += 1;
    }
    assert!(asked > 1_000, "{asked}");
    let told = calls(&server) - before;
    assert!(told <= 3, "{told} calls for one block, with heartbeats");
    // As soon as the window is over it passes.
    let mut passed_after = None;
    while begun.elapsed() < Duration::from_millis(1_500) {
        if asks(&shared, id, 1).await {
            passed_after = Some(begun.elapsed());
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let passed_after = passed_after.unwrap();
    assert!(passed_after < Duration::from_millis(1_100), "{passed_after:?}");
}

#[tokio::test]
async fn rd_21_a_lesser_cost_is_asked_about() {
    let server = Server::start();
    let shared = exact(server.url()).await.remember_refusals();
    let id = keyed(&shared, "bucket", TokenBucket::per_minute(60).burst(10));
    assert!(asks(&shared, id, 7).await);
    assert!(!asks(&shared, id, 10).await);
    assert!(!asks(&shared, id, 10).await);
    assert!(asks(&shared, id, 1).await, "three permits are left");
    assert!(asks(&shared, id, 0).await);
    assert!(!asks(&shared, id, 11).await, "never");
}

#[tokio::test]
async fn rd_21_a_limit_that_is_raised_or_reset_is_in_force_at_once() {
    let server = Server::start();
    let shared = exact(server.url()).await.remember_refusals();
    let all = Rule::new("all", FixedWindow::per_hour(2)).backend(shared);
    let layer = RateLimitLayer::builder().rule(all).build().unwrap();
    let ask =
        async || shoot(layer.clone(), http::Request::new(axum::body::Body::empty())).await.status;
    assert_eq!([ask().await, ask().await, ask().await, ask().await], [200, 200, 429, 429]);
    layer.handle().set_limit("all", FixedWindow::per_hour(3).quota()).unwrap();
    assert_eq!([ask().await, ask().await, ask().await], [200, 429, 429]);
    layer.handle().reset("all", ()).await.unwrap();
    assert_eq!(ask().await, 200);
}

#[tokio::test]
async fn a_share_in_front_keeps_the_excess_here() {
    let server = Server::start();
    // A fleet of four, of which this one may spend 30 %.
    let shared = exact(server.url()).await.instances(4).share(1.2);
    let all = Rule::new("all", TokenBucket::per_second(100).burst(40)).backend(shared.clone());
    let layer = RateLimitLayer::builder().rule(all).build().unwrap();
    let before = calls(&server);
    let begun = Instant::now();
    let shots = load(&layer, 1_000, Duration::from_secs(2)).await.unwrap();
    let took = begun.elapsed().as_secs_f64();
    let admitted = shots.iter().filter(|shot| shot.status == 200).count() as f64;
    let share = 12.0 + 30.0 * took;
    assert!(admitted <= share + 1.0, "{admitted} of {share}");
    assert!(admitted >= share * 0.8, "{admitted} of {share}");
    let asked = calls(&server) - before;
    assert!(asked as f64 <= share + 5.0, "{asked} calls for {} requests", shots.len());
    assert!(shots.len() > 1_000);
}

#[tokio::test]
async fn who_is_refused_by_the_store_spends_nothing_of_the_share() {
    let server = Server::start();
    let shared = exact(server.url()).await.instances(1).share(1.0);
    let all = keyed(&shared, "all", FixedWindow::per_hour(100));
    let user = keyed(&shared, "user", FixedWindow::per_hour(1));
    let now = Nanos::ZERO;
    let both = async |key: &'static [u8]| {
        let charges = [Charge::new(all, 1).key(b""), Charge::new(user, 1).key(key)];
        shared.check(now, &charges).resolve().await.unwrap().all_allowed()
    };
    assert!(both(b"mallory").await);
    for _ in 0..300 {
        assert!(!both(b"mallory").await);
    }
    for n in 0..99_u8 {
        let key: &'static [u8] = Box::leak(vec![n].into_boxed_slice());
        assert!(both(key).await, "{n}");
    }
    assert!(!both(b"one more").await);
}
