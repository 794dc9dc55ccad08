//! A real cluster of three nodes.

use std::{process::Command, time::Duration};

use tower_sluice::{
    Backend, BackendErrorKind, FixedWindow, RateLimitLayer, Rule, SlidingWindow, TokenBucket,
    backend::{Charge, LimiterSpec, Redis},
    clock::Nanos,
    event::StoreState,
};

use crate::{
    load::{Told, eventually},
    server::Server,
    state::{ask, keyed},
};

struct Cluster(Vec<Server>);

impl Cluster {
    fn start() -> Self {
        let node = |_| Server::with(&["--cluster-enabled", "yes", "--cluster-node-timeout", "500"]);
        let nodes: Vec<_> = (0..3).map(node).collect();
        let addresses = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(addresses)
            .args(["--cluster-replicas", "0", "--cluster-yes"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let this = Self(nodes);
        let end = std::time::Instant::now() + Duration::from_secs(10);
        let is_ok = |node: &Server| node.say::<String>("CLUSTER INFO").contains("cluster_state:ok");
        while !this.0.iter().all(is_ok) {
            assert!(std::time::Instant::now() < end, "the cluster does not come together");
            std::thread::sleep(Duration::from_millis(20));
        }
        this
    }

    async fn shared(&self) -> Redis {
        let shared = Redis::cluster(self.0.iter().map(Server::url)).unwrap();
        let shared = shared.deadline(Duration::from_secs(5));
        shared.ready(Duration::from_secs(5)).await.unwrap();
        shared
    }

    fn keys(&self) -> Vec<String> {
        self.0.iter().flat_map(Server::keys).collect()
    }
}

#[tokio::test]
async fn rd_10_no_caller_meets_a_wrong_slot() {
    let cluster = Cluster::start();
    let told = Told::default();
    let shared = cluster.shared().await.observer(told.clone());
    // Two limits of each user, which lie in one slot.
    let window = keyed(&shared, "window", SlidingWindow::per_minute(5));
    let bucket = keyed(&shared, "bucket", TokenBucket::per_minute(100));
    for n in 0..100 {
        let user = format!("{}user{n}}}{{", if n % 2 == 0 { "{" } else { "}{}" });
        let charges = [Charge::new(window, 1), Charge::new(bucket, 1)]
            .map(|charge| charge.key(user.as_bytes()));
        for expected in [true, true, true, true, true, false] {
            let verdicts = shared.check(Nanos::ZERO, &charges).resolve().await.unwrap();
            assert_eq!(verdicts.all_allowed(), expected, "{user}");
        }
    }
    assert_eq!((told.states(), told.faults()), (vec![], vec![]));
    assert_eq!(cluster.keys().len(), 200);
    assert!(cluster.0.iter().all(|node| node.keys().len() > 20), "all lies on one node");
    for node in &cluster.0 {
        let errors = node.info("errorstats", "errorstat_CROSSSLOT");
        assert_eq!(errors, None);
    }
}

#[tokio::test]
async fn rd_10_limits_in_several_slots_are_all_charged_or_none() {
    let cluster = Cluster::start();
    let shared = cluster.shared().await;
    let all = shared.register(&LimiterSpec::new("all", FixedWindow::per_minute(1_000))).unwrap();
    let user = keyed(&shared, "user", FixedWindow::per_minute(2));
    for (n, charges) in
        [[(all, &b""[..]), (user, b"alice")], [(user, b"bob"), (all, b"")]].into_iter().enumerate()
    {
        let charges = charges.map(|(id, key)| Charge::new(id, 1).key(key));
        for expected in [true, true, false, false, false] {
            let verdicts = shared.check(Nanos::ZERO, &charges).resolve().await.unwrap();
            assert_eq!(verdicts.all_allowed(), expected);
        }
        let spent = async || {
            let peeked = shared.peek(Nanos::ZERO, &Charge::new(all, 0)).resolve().await.unwrap();
            1_000 - peeked.remaining()
        };
        // An undo is on its way when the refusal is there.
        let expected = 2 * (n as u64 + 1);
        for _ in 0..100 {
            if spent().await == expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(spent().await, expected, "a refused request was charged");
    }
}

#[tokio::test]
async fn scripts_that_a_node_has_never_seen_are_sent() {
    let cluster = Cluster::start();
    let told = Told::default();
    let shared = cluster.shared().await.observer(told.clone());
    let id = keyed(&shared, "bucket", TokenBucket::per_minute(5));
    for node in &cluster.0 {
        node.say::<()>("SCRIPT FLUSH");
    }
    for n in 0..50_u32 {
        assert!(ask(&shared, id, &n.to_be_bytes()).await);
    }
    assert_eq!(told.states(), []);
}

#[tokio::test]
async fn a_slot_that_has_moved_is_found() {
    let cluster = Cluster::start();
    let told = Told::default();
    let shared = cluster.shared().await.observer(told.clone());
    let id = keyed(&shared, "bucket", FixedWindow::per_minute(3));
    assert!(ask(&shared, id, b"alice").await);
    let key = cluster.keys().pop().unwrap();
    let slot: u64 = cluster.0[0].say(&format!("CLUSTER KEYSLOT {key}"));
    let from = cluster.0.iter().position(|node| !node.keys().is_empty()).unwrap();
    let to = (from + 1) % 3;
    let name = |node: &Server| node.say::<String>("CLUSTER MYID");
    let (from_name, to_name) = (name(&cluster.0[from]), name(&cluster.0[to]));
    cluster.0[to].say::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_name}"));
    cluster.0[from].say::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_name}"));
    cluster.0[from].say::<()>(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", cluster.0[to].port));
    for node in [to, from] {
        cluster.0[node].say::<()>(&format!("CLUSTER SETSLOT {slot} NODE {to_name}"));
    }
    let mut passed = 1;
    for _ in 0..5 {
        passed += u32::from(ask(&shared, id, b"alice").await);
    }
    assert_eq!(passed, 3);
    assert_eq!(told.states(), []);
}

#[tokio::test]
async fn while_a_node_is_away_all_is_counted_here() {
    let mut cluster = Cluster::start();
    let told = Told::default();
    let shared = cluster
        .shared()
        .await
        .deadline(Duration::from_millis(50))
        .instances(2)
        .observer(told.clone());
    let id = keyed(&shared, "window", FixedWindow::per_minute(4));
    let other = keyed(&shared, "other", FixedWindow::per_minute(4));
    for n in 0..50_u32 {
        assert!(ask(&shared, id, &n.to_be_bytes()).await);
    }
    cluster.0[1].kill();
    // Some of these lie on it.
    for n in 0..50_u32 {
        let verdicts = shared.check(Nanos::ZERO, &[Charge::new(other, 1).key(&n.to_be_bytes())]);
        assert!(verdicts.resolve().await.unwrap().all_allowed());
    }
    assert!(matches!(told.states()[..], [StoreState::Away(_), ..]), "{:?}", told.states());
    // The share of others, wherever they lie.
    for n in 100..150_u32 {
        for expected in [true, true, false] {
            let verdicts =
                shared.check(Nanos::ZERO, &[Charge::new(other, 1).key(&n.to_be_bytes())]);
            assert_eq!(verdicts.resolve().await.unwrap().all_allowed(), expected);
        }
    }
    assert!(matches!(shared.state(), StoreState::Away(_)), "{:?}", told.states());
    cluster.0[1].run();
    assert!(eventually(Duration::from_secs(5), || shared.state() == StoreState::Up).await);
}

#[tokio::test]
async fn a_node_asked_as_a_server_says_so() {
    let cluster = Cluster::start();
    let told = Told::default();
    // One that the slot of limits without a key is not on.
    let others = |node: &&Server| {
        node.try_ask::<Option<String>>(redis::cmd("GET").arg("{sluice}:all:w")).is_err()
    };
    let node = cluster.0.iter().find(others).unwrap();
    let shared = Redis::new(node.url()).unwrap().observer(told.clone()).instances(1);
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("all", FixedWindow::per_minute(2)).backend(shared.clone()))
        .build()
        .unwrap();
    let mut passed = 0;
    for _ in 0..20 {
        let shot =
            crate::load::shoot(layer.clone(), http::Request::new(axum::body::Body::empty())).await;
        passed += u32::from(shot.status == 200);
        assert!(matches!(shot.status, 200 | 429));
    }
    assert_eq!(passed, 2);
    assert_eq!(told.states(), [StoreState::Away(BackendErrorKind::Cluster)]);
    assert!(told.faults()[0].starts_with("SL-STORE-CLUSTER"), "{:?}", told.faults());
}
