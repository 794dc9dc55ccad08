//! While the store is away each rule decides by its mode.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Backend, BackendErrorKind, FixedWindow, Headers, RateLimitLayer, RejectionPolicy, Rule,
    TokenBucket,
    backend::{Charge, LimiterSpec, Redis},
    clock::Nanos,
    event::StoreState,
    key,
    testing::Recorder,
};

use crate::{
    load::{Told, eventually, goes_away, shoot},
    server::Server,
    state::{exact, passed_alone},
};

fn get() -> Request<Body> {
    Request::new(Body::empty())
}

/// How many of two hundred got each answer.
async fn answers(layer: &RateLimitLayer) -> Vec<(u16, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..200 {
        *counts.entry(shoot(layer.clone(), get()).await.status).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

#[tokio::test]
async fn rd_12_each_mode_answers_as_it_says() {
    let mut server = Server::start();
    let shared = exact(server.url()).await.instances(4);
    let layer = |shared: Redis| {
        let window = Rule::new("window", FixedWindow::per_minute(100)).advertise().spread(false);
        let layer =
            RateLimitLayer::builder().rule(window.backend(shared)).headers(Headers::Draft11);
        layer.build().unwrap()
    };
    let (share, admit, refuse) =
        (layer(shared.clone()), layer(shared.clone().admit()), layer(shared.clone().refuse()));
    server.kill();
    assert!(goes_away(Duration::from_secs(2), &shared).await);
    assert_eq!(answers(&share).await, [(200, 25), (429, 175)]);
    assert_eq!(answers(&admit).await, [(200, 200)]);
    assert_eq!(answers(&refuse).await, [(503, 200)]);
    assert_eq!(shared.decided_alone(), 600);

    let inner = || {
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) })
    };
    let refused = refuse.layer(inner()).oneshot(get()).await.unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    let limited = share.layer(inner()).oneshot(get()).await.unwrap();
    assert_eq!(limited.headers()["ratelimit"], "\"window\";r=0;t=60");
}

#[tokio::test]
async fn a_rule_has_an_answer_of_its_own_for_it() {
    let mut server = Server::start();
    let shared = exact(server.url()).await.refuse();
    let codes = Rule::new("codes", FixedWindow::per_minute(1))
        .backend(shared.clone())
        .while_away(RejectionPolicy::degrade(async || (StatusCode::ACCEPTED, "later")));
    let layer = RateLimitLayer::builder().rule(codes).build().unwrap();
    assert_eq!(shoot(layer.clone(), get()).await.status, 200);
    assert_eq!(shoot(layer.clone(), get()).await.status, 429, "a refusal is no outage");
    server.kill();
    assert!(goes_away(Duration::from_secs(2), &shared).await);
    assert_eq!(shoot(layer, get()).await.status, 202);
}

#[tokio::test]
async fn the_rule_that_refuses_answers_whichever_it_is() {
    let mut server = Server::start();
    let shared = exact(server.url()).await.instances(1);
    let seen = Recorder::new();
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("reads", FixedWindow::per_minute(100)).backend(shared.clone()))
        .rule(Rule::new("payments", FixedWindow::per_minute(100)).backend(shared.clone().refuse()))
        .observer(seen.clone())
        .build()
        .unwrap();
    server.kill();
    assert!(goes_away(Duration::from_secs(2), &shared).await);
    assert_eq!(shoot(layer, get()).await.status, 503);
    let said = format!("{:?}", seen.events());
    assert!(said.contains("payments") && !said.contains("reads"), "{said}");
}

#[tokio::test]
async fn rd_15_one_try_at_a_time_and_one_line_for_each_change() {
    let told = Told::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tries = Arc::new(AtomicU32::new(0));
    // A server that hangs up at once.
    std::thread::spawn({
        let tries = Arc::clone(&tries);
        move || {
            for stream in listener.incoming().flatten() {
                tries.fetch_add(1, Relaxed);
                drop(stream);
            }
        }
    });
    let shared = Redis::new(format!("redis://127.0.0.1:{port}/")).unwrap().observer(told.clone());
    let all =
        Rule::new("all", TokenBucket::per_second(1_000_000)).backend(shared.clone().instances(1));
    let layer = RateLimitLayer::builder().rule(all).build().unwrap();
    let shots = crate::load::load(&layer, 1_000, Duration::from_secs(4)).await.unwrap();
    assert!(shots.len() > 2_000);
    // One at once, then no two a second.
    let tries = tries.load(Relaxed);
    assert!((4..=9).contains(&tries), "{tries} tries in four seconds");
    assert_eq!(told.states().len(), 1, "{:?}", told.states());
    assert_eq!(told.faults().len(), 1, "{:?}", told.faults());
}

#[tokio::test]
async fn the_share_outlives_an_outage() {
    let mut server = Server::start();
    let shared = exact(server.url()).await.instances(2);
    let spec = LimiterSpec::new("hourly", TokenBucket::per_hour(100)).keyed(100);
    let id = shared.register(&spec).unwrap();
    let spend = async || {
        let mut passed = 0;
        for _ in 0..200 {
            let verdicts =
                shared.check(Nanos::ZERO, &[Charge::new(id, 1).key(b"a")]).resolve().await;
            passed += u32::from(verdicts.unwrap().all_allowed());
        }
        passed
    };
    let mut passed = Vec::new();
    for _ in 0..3 {
        server.kill();
        assert!(goes_away(Duration::from_secs(2), &shared).await);
        passed.push(spend().await);
        server.run();
        assert!(eventually(Duration::from_secs(2), || shared.state() == StoreState::Up).await);
        let charge = Charge::new(id, 1).key(b"a");
        assert!(shared.check(Nanos::ZERO, &[charge]).resolve().await.unwrap().all_allowed());
    }
    assert_eq!(passed, [50, 0, 0], "a burst for each outage");
}

#[tokio::test]
async fn heartbeats_tell_how_many_share() {
    let mut server = Server::start();
    let mut fleet = Vec::new();
    for _ in 0..4 {
        let shared = exact(server.url()).await;
        let id =
            shared.register(&LimiterSpec::new("window", FixedWindow::per_minute(100))).unwrap();
        fleet.push((shared, id));
    }
    // By their second heartbeat all know of each other.
    tokio::time::sleep(Duration::from_millis(2_300)).await;
    server.kill();
    assert_eq!(passed_alone(&fleet).await, [25; 4]);
}

#[tokio::test]
async fn who_knows_better_tells_how_many_share() {
    let shared = Redis::new("redis://127.0.0.1:1/").unwrap();
    let replicas = Arc::new(AtomicU32::new(5));
    let told = Told::default();
    let shared = shared.observer(told.clone()).instances_from({
        let replicas = Arc::clone(&replicas);
        move || replicas.load(Relaxed)
    });
    let id = shared.register(&LimiterSpec::new("window", FixedWindow::per_minute(100))).unwrap();
    shared.ready(Duration::from_millis(100)).await.unwrap_err();
    let limit = async || {
        let verdicts = shared.check(Nanos::ZERO, &[Charge::new(id, 1)]).resolve().await.unwrap();
        verdicts.as_slice()[0].decision().limit()
    };
    assert_eq!(limit().await, 20);
    replicas.store(10, Relaxed);
    assert_eq!(limit().await, 10);
    assert!(!told.faults().iter().any(|fault| fault.starts_with("SL-SHARE")));
    // In one outage a share does not grow; and that it does not know any more is told.
    replicas.store(0, Relaxed);
    assert_eq!(limit().await, 10);
    assert!(told.faults().iter().any(|fault| fault.starts_with("SL-SHARE")));
}

#[tokio::test]
async fn what_is_charged_alone_is_undone_alone() {
    let shared = Redis::new("redis://127.0.0.1:1/").unwrap().instances(1);
    let id = shared.register(&LimiterSpec::new("window", FixedWindow::per_minute(2))).unwrap();
    shared.ready(Duration::from_millis(100)).await.unwrap_err();
    let check = async || shared.check(Nanos::ZERO, &[Charge::new(id, 2)]).resolve().await.unwrap();
    let first = check().await;
    assert!(first.all_allowed() && !check().await.all_allowed());
    shared.undo(Nanos::ZERO, &[first.as_slice()[0].receipt()]);
    assert!(check().await.all_allowed());
    // And a reset is one here as well, though the store's is not.
    let reset = shared.reset(Nanos::ZERO, &Charge::new(id, 1)).resolve().await;
    assert_eq!(reset.unwrap_err().kind(), BackendErrorKind::Unavailable);
    assert!(check().await.all_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn me_08_a_slow_store_holds_nobody_up() {
    let server = Server::start();
    let shared = exact(server.url()).await.deadline(Duration::from_millis(400));
    let layer = RateLimitLayer::builder()
        .rule(
            Rule::new("per-user", TokenBucket::per_second(1).burst(5))
                .key(key::header("x-user"))
                .missing(tower_sluice::Missing::Skip)
                .backend(shared.clone()),
        )
        .rejection(RejectionPolicy::queue(Duration::from_millis(500), 1_000))
        .build()
        .unwrap();
    server.say::<()>("CLIENT PAUSE 200 ALL");
    let mut asking = JoinSet::new();
    for n in 0..1_000_u32 {
        let request = Request::builder().header("x-user", n % 100).body(Body::empty()).unwrap();
        asking.spawn(shoot(layer.clone(), request));
    }
    let handle = layer.handle();
    while let Some(shot) = asking.join_next().await {
        let shot = shot.unwrap();
        assert!(shot.took < Duration::from_secs(3), "{:?}", shot.took);
        assert!(matches!(shot.status, 200 | 429), "{}", shot.status);
        let _ = handle.peek("per-user", "1", 0).await;
    }
}

#[tokio::test]
async fn cm_01_refusal_by_the_second_charges_nothing() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    for user_first in [true, false] {
        let prefix = if user_first { "user-first" } else { "user-last" };
        let shared = shared.clone().prefix(prefix);
        let user = || {
            let user = Rule::new("user", FixedWindow::per_minute(30)).key(key::header("x-user"));
            user.missing(tower_sluice::Missing::Skip).backend(shared.clone())
        };
        let endpoint = Rule::new("endpoint", FixedWindow::per_minute(4)).backend(shared.clone());
        let rules = if user_first { [user(), endpoint] } else { [endpoint, user()] };
        let one = rules
            .into_iter()
            .fold(RateLimitLayer::builder(), |layer, rule| layer.rule(rule))
            .build()
            .unwrap();
        let two = RateLimitLayer::builder().rule(user()).build().unwrap();
        let by =
            |user: &str| Request::builder().header("x-user", user).body(Body::empty()).unwrap();
        for n in 0..4 {
            assert_eq!(shoot(one.clone(), by(&format!("other-{n}"))).await.status, 200);
        }
        for _ in 0..30 {
            assert_eq!(shoot(one.clone(), by("alice")).await.status, 429);
        }
        assert_eq!(shoot(two.clone(), by("alice")).await.status, 200);
        let left = two.handle().peek("user", "alice", 0).await.unwrap().remaining();
        assert_eq!(left, 29);
    }
}

#[tokio::test]
async fn ht_03_obeying_the_hint() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    // The process's own clock is ahead, behind or right: it is not asked.
    for (n, now) in [0_u64, 7_000_000_000, 1_790_000_000_000_000_000].into_iter().enumerate() {
        for (m, algorithm) in [
            tower_sluice::Algorithm::from(TokenBucket::per_second(3)),
            FixedWindow::per_second(3).into(),
            FixedWindow::per_second(3).aligned().into(),
            tower_sluice::SlidingWindow::per_second(3).into(),
            tower_sluice::SlidingLog::per_second(3).into(),
        ]
        .into_iter()
        .enumerate()
        {
            let id = crate::state::keyed(&shared, &format!("limiter-{n}-{m}"), algorithm);
            let check = async || {
                let verdicts =
                    shared.check(Nanos::new(now), &[Charge::new(id, 2).key(b"a")]).resolve().await;
                verdicts.unwrap().as_slice()[0].decision()
            };
            let mut denied = check().await;
            while denied.is_allowed() {
                denied = check().await;
            }
            let wait = denied.retry_after().unwrap();
            assert!(wait <= Duration::from_millis(1_100), "{wait:?}");
            tokio::time::sleep(wait).await;
            let then = check().await;
            assert!(then.is_allowed(), "{algorithm:?}: told {wait:?}, then {then:?}");
        }
    }
}

#[tokio::test]
async fn wn_01_a_share_of_a_sliding_window_slides() {
    let shared = Redis::new("redis://127.0.0.1:1/").unwrap().instances(2);
    let spec = LimiterSpec::new("window", tower_sluice::SlidingWindow::per_second(20));
    let id = shared.register(&spec).unwrap();
    shared.ready(Duration::from_millis(100)).await.unwrap_err();
    // Ten at the end of a second are none at the begin of the next.
    let mut passed = Vec::new();
    for at in [990, 1_010, 1_500, 1_980, 2_000] {
        let now = Nanos::new(at * 1_000_000);
        let mut own = 0;
        for _ in 0..20 {
            let verdicts = shared.check(now, &[Charge::new(id, 1)]).resolve().await.unwrap();
            own += u32::from(verdicts.all_allowed());
        }
        passed.push(own);
    }
    assert_eq!(passed, [10, 0, 0, 0, 10]);
}

#[tokio::test]
async fn rd_09_nothing_is_charged_by_half() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let shared = exact(server.url()).await.admit();
    let ids = [
        crate::state::keyed(&shared, "bucket", TokenBucket::per_hour(1_000)),
        crate::state::keyed(&shared, "window", FixedWindow::per_hour(1_000)),
        crate::state::keyed(&shared, "ring", tower_sluice::SlidingWindow::per_hour(1_000)),
        crate::state::keyed(&shared, "log", tower_sluice::SlidingLog::per_hour(1_000)),
    ];
    for round in 0..20 {
        server.say::<()>(&format!("CONFIG SET maxmemory {}", if round % 2 == 0 { 0 } else { 1 }));
        if round % 2 == 0 {
            assert!(eventually(Duration::from_secs(2), || shared.state() == StoreState::Up).await);
        }
        for n in 0..10_u8 {
            let key = [n];
            let charges = ids.map(|id| Charge::new(id, 1).key(&key));
            assert!(shared.check(Nanos::ZERO, &charges).resolve().await.unwrap().all_allowed());
        }
    }
    server.say::<()>("CONFIG SET maxmemory 0");
    assert!(eventually(Duration::from_secs(2), || shared.state() == StoreState::Up).await);
    for n in 0..10_u8 {
        let mut spent = Vec::new();
        for id in ids {
            let peeked =
                shared.peek(Nanos::ZERO, &Charge::new(id, 0).key(&[n])).resolve().await.unwrap();
            spent.push(1_000 - peeked.remaining());
        }
        // What was charged before the store was full, in whole.
        assert!(spent.iter().all(|own| *own == spent[0] && *own >= 9), "{spent:?}");
    }
}
