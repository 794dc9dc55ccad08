//! A new primary, without a restart; and connections of a user's own.

use std::time::Duration;

use tower_sluice::{FixedWindow, backend::Redis, event::StoreState};

use crate::{
    load::{Told, eventually, goes_away},
    server::Server,
    state::{ask, exact, keyed},
};

#[tokio::test]
async fn a_replica_becomes_the_primary() {
    let (mut primary, replica) = (Server::start(), Server::start());
    replica.say::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    let told = Told::default();
    let shared =
        Redis::any_of([primary.url(), replica.url()]).unwrap().deadline(Duration::from_millis(200));
    let shared = shared.observer(told.clone()).instances(1);
    let id = keyed(&shared, "window", FixedWindow::per_hour(10));
    shared.ready(Duration::from_secs(5)).await.unwrap();
    for _ in 0..4 {
        assert!(ask(&shared, id, b"a").await);
    }
    // What was written is there.
    assert!(eventually(Duration::from_secs(5), || !replica.keys().is_empty()).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    primary.kill();
    assert!(goes_away(Duration::from_secs(2), &shared).await);
    replica.say::<()>("REPLICAOF NO ONE");
    assert!(
        eventually(Duration::from_secs(2), || shared.state() == StoreState::Up).await,
        "{:?}",
        told.states()
    );
    let mut passed = 4;
    for _ in 0..10 {
        passed += u32::from(ask(&shared, id, b"a").await);
    }
    assert_eq!(passed, 10, "the count went with it");
}

#[tokio::test]
async fn the_first_that_takes_writes_is_taken() {
    let (replica, primary) = (Server::start(), Server::start());
    replica.say::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    let shared = Redis::any_of([replica.url(), primary.url()]).unwrap();
    shared.ready(Duration::from_secs(5)).await.unwrap();
    let id = keyed(&shared, "window", FixedWindow::per_hour(10));
    assert!(ask(&shared, id, b"a").await);
    assert!(!primary.keys().is_empty());
}

#[tokio::test]
async fn connections_of_ones_own() {
    let mut server = Server::start();
    let client = redis::Client::open(server.url()).unwrap();
    let plain = client.get_multiplexed_async_connection().await.unwrap();
    let managed = redis::aio::ConnectionManager::new(client).await.unwrap();
    let (plain, managed) = (Redis::from_connection(plain), Redis::from_connection(managed));
    for shared in [&plain, &managed] {
        shared.ready(Duration::from_secs(5)).await.unwrap();
        let id = keyed(shared, "window", FixedWindow::per_hour(4));
        assert!(ask(shared, id, b"a").await && ask(shared, id, b"a").await);
    }
    assert_eq!(server.keys().len(), 1);
    server.kill();
    for shared in [&plain, &managed] {
        assert!(goes_away(Duration::from_secs(3), shared).await);
    }
    server.run();
    // A manager connects again.
    assert!(eventually(Duration::from_secs(5), || managed.state() == StoreState::Up).await);
}

#[tokio::test]
async fn a_prefix_keeps_services_apart() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    for prefix in ["shop", "blog"] {
        let id = keyed(&shared.clone().prefix(prefix), "window", FixedWindow::per_hour(1));
        assert!(ask(&shared, id, b"a").await);
        assert!(!ask(&shared, id, b"a").await);
    }
    let mut keys = server.keys();
    keys.sort();
    assert!(keys[0].starts_with("blog:{") && keys[1].starts_with("shop:{"), "{keys:?}");
}

#[tokio::test]
async fn a_deploy_with_another_quota_keeps_what_is_spent() {
    let server = Server::start();
    let (old, new) = (exact(server.url()).await, exact(server.url()).await);
    let window = |shared: &Redis, limit| keyed(shared, "window", FixedWindow::per_hour(limit));
    let (of_old, of_new) = (window(&old, 100), window(&new, 10));
    for _ in 0..50 {
        assert!(ask(&old, of_old, b"alice").await);
    }
    // Fifty are more than ten; the old process goes on.
    assert!(!ask(&new, of_new, b"alice").await);
    assert!(ask(&old, of_old, b"alice").await);
    let raised = window(&new, 200);
    let mut passed = 51;
    while ask(&new, raised, b"alice").await {
        passed += 1;
    }
    assert_eq!(passed, 200);
}
