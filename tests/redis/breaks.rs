//! What a hostile reader found.

use std::time::Duration;

use tower_sluice::{
    Backend, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket,
    backend::{Charge, LimiterSpec, Local, Redis},
    clock::Nanos,
    event::StoreState,
};

use crate::{
    load::{Told, eventually},
    server::Server,
    state::{ask, asks, exact, keyed},
};

const T0: u64 = 1_790_000_000;

fn at(seconds: u64) -> Nanos {
    Nanos::new((T0 + seconds) * 1_000_000_000)
}

/// A server that lets us do what the guide says that is needed.
fn by_the_acl_of_the_guide(server: &Server) -> String {
    let guide = include_str!("../../docs/redis.md");
    let acl = &guide[guide.find("ACL SETUSER").unwrap()..];
    let acl = acl[..acl.find("```").unwrap()].replace(">password", ">secret");
    server.say::<()>(&acl);
    format!("redis://limits:secret@127.0.0.1:{}/", server.port)
}

#[tokio::test]
async fn the_acl_of_the_guide_is_enough() {
    let server = Server::start();
    let told = Told::default();
    let shared = Redis::new(by_the_acl_of_the_guide(&server)).unwrap().observer(told.clone());
    let shared = shared.deadline(Duration::from_secs(5));
    shared.ready(Duration::from_secs(5)).await.unwrap();
    let buckets = ["a", "b"].map(|name| keyed(&shared, name, TokenBucket::per_second(10)));
    // Of one bucket, and of several.
    assert!(ask(&shared, buckets[0], b"a").await);
    let charges = buckets.map(|id| Charge::new(id, 1).key(b"a"));
    assert!(shared.check(Nanos::ZERO, &charges).resolve().await.unwrap().all_allowed());
    assert_eq!((told.states(), told.faults()), (vec![StoreState::Up], vec![]));
}

#[tokio::test]
async fn the_acl_of_the_guide_is_enough_where_the_number_is_told() {
    let server = Server::start();
    let told = Told::default();
    let shared = Redis::new(by_the_acl_of_the_guide(&server)).unwrap().observer(told.clone());
    let shared = shared.instances(4);
    keyed(&shared, "a", FixedWindow::per_second(10));
    shared.ready(Duration::from_secs(5)).await.unwrap();
    // Two heartbeats.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!((told.states(), told.faults()), (vec![StoreState::Up], vec![]));
}
