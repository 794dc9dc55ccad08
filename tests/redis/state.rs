//! What lies in the store: keys, their lives, and what comes of calls that fail half-way.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tower_sluice::{
    Algorithm, Backend, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
    backend::{Charge, LimiterId, LimiterSpec, Redis},
    clock::Nanos,
    event::StoreState,
};

use crate::{
    load::{Told, eventually, goes_away},
    proxy::Proxy,
    server::Server,
};

/// Who counts exactly does not decide alone.
pub(crate) async fn exact(url: String) -> Redis {
    let shared = Redis::new(url).unwrap().deadline(Duration::from_secs(5));
    shared.ready(Duration::from_secs(5)).await.unwrap();
    shared
}

pub(crate) fn keyed(shared: &Redis, name: &str, algorithm: impl Into<Algorithm>) -> LimiterId {
    shared.register(&LimiterSpec::new(name, algorithm).keyed(1_000)).unwrap()
}

/// One charge of one permit.
pub(crate) async fn ask(shared: &Redis, id: LimiterId, key: &[u8]) -> bool {
    asks(shared, id, key, 1).await
}

pub(crate) async fn asks(shared: &Redis, id: LimiterId, key: &[u8], cost: u64) -> bool {
    let verdicts = shared.check(Nanos::ZERO, &[Charge::new(id, cost).key(key)]).resolve().await;
    verdicts.unwrap().all_allowed()
}

/// How many of a hundred each lets pass while the store is away.
pub(crate) async fn passed_alone(fleet: &[(Redis, LimiterId)]) -> Vec<u32> {
    let mut passed = Vec::new();
    for (shared, id) in fleet {
        assert!(goes_away(Duration::from_secs(2), shared).await);
        let mut own = 0;
        for _ in 0..100 {
            own += u32::from(ask(shared, *id, b"").await);
        }
        passed.push(own);
    }
    passed
}

/// Each algorithm, with so many permits for so long.
fn all(permits: u64, period: Duration) -> [Algorithm; 6] {
    [
        TokenBucket::new(permits, period).into(),
        LeakyBucket::new(permits, period).into(),
        FixedWindow::new(permits, period).into(),
        FixedWindow::new(permits, period).aligned().into(),
        SlidingWindow::new(permits, period).into(),
        SlidingLog::new(permits, period).into(),
    ]
}

#[tokio::test]
async fn rd_01_no_key_lives_for_ever() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let told = Told::default();
    let shared = Redis::new(proxy.url())
        .unwrap()
        .deadline(Duration::from_millis(200))
        .observer(told.clone());
    let ids: Vec<_> = all(5, Duration::from_secs(60))
        .into_iter()
        .enumerate()
        .map(|(n, algorithm)| keyed(&shared, &format!("limiter-{n}"), algorithm))
        .collect();
    shared.ready(Duration::from_secs(5)).await.unwrap();
    proxy.loses.store(3, Relaxed);
    for n in 0..1_000_u32 {
        let id = ids[n as usize % ids.len()];
        let charge = Charge::new(id, 1);
        let key = (n % 50).to_be_bytes();
        let verdicts = shared.check(Nanos::ZERO, &[charge.key(&key)]).resolve().await.unwrap();
        if n % 7 == 0 {
            let receipts: Vec<_> =
                verdicts.as_slice().iter().map(|verdict| verdict.receipt()).collect();
            shared.undo(Nanos::ZERO, &receipts);
        }
        if n % 11 == 0 {
            let _ = shared.reset(Nanos::ZERO, &charge.key(&key)).resolve().await;
        }
        if shared.state() != StoreState::Up {
            proxy.loses.store(0, Relaxed);
            shared.ready(Duration::from_secs(5)).await.unwrap();
            proxy.loses.store(3, Relaxed);
        }
    }
    assert!(proxy.connections.load(Relaxed) > 3, "nothing was lost");
    let keys: Vec<String> = server.say("KEYS *");
    assert!(keys.len() > 50);
    for key in keys {
        let left: i64 = server.ask(redis::cmd("PTTL").arg(&key));
        assert_ne!(left, -1, "{key} lives for ever");
    }
}

#[tokio::test]
async fn rd_01_a_key_made_by_hand_gets_its_life() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    let (bucket, window) = (
        keyed(&shared, "bucket", TokenBucket::per_second(2)),
        keyed(&shared, "window", FixedWindow::per_second(2)),
    );
    for id in [bucket, window] {
        assert!(asks(&shared, id, b"alice", 2).await);
        assert!(!ask(&shared, id, b"alice").await);
    }
    for key in server.keys() {
        server.say::<()>(&format!("PERSIST {key}"));
    }
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    for id in [bucket, window] {
        assert!(ask(&shared, id, b"alice").await);
    }
    for key in server.keys() {
        assert!(server.say::<i64>(&format!("PTTL {key}")) > 0, "{key}");
    }
}

#[tokio::test]
async fn rd_03_a_key_lives_as_long_as_it_means_something() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    for (n, period) in [100, 1_000, 60_000, 86_400_000].into_iter().enumerate() {
        for (m, algorithm) in all(4, Duration::from_millis(period)).into_iter().enumerate() {
            let id = keyed(&shared, &format!("limiter-{n}-{m}"), algorithm);
            let verdicts =
                shared.check(Nanos::ZERO, &[Charge::new(id, 1).key(b"a")]).resolve().await.unwrap();
            let whole = verdicts.as_slice()[0].decision().reset_after().as_millis() as i64;
            let key =
                server.keys().into_iter().find(|key| key.contains(&format!("limiter-{n}-{m}")));
            let Some(key) = key else {
                assert!(whole < 200, "{algorithm:?} has gone before its time");
                continue;
            };
            let left: i64 = server.say(&format!("PTTL {key}"));
            assert!(
                left <= 2 * whole + 1_000,
                "{algorithm:?} lives {left} ms, is whole in {whole}"
            );
            // Looked at a little later than it was told.
            assert!(left >= whole - 50, "{algorithm:?} lives {left} ms, is whole in {whole}");
            if period == 100 {
                assert!(left != 0 && left <= 1_000, "{algorithm:?} lives {left} ms");
            }
        }
    }
}

#[tokio::test]
async fn rd_07_what_is_not_answered_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let shared = Redis::new(proxy.url()).unwrap().deadline(Duration::from_millis(200)).refuse();
    let id = keyed(&shared, "window", FixedWindow::per_minute(1_000));
    shared.ready(Duration::from_secs(5)).await.unwrap();
    let mut answered = 0;
    for _ in 0..40 {
        proxy.loses.store(50, Relaxed);
        let charge = Charge::new(id, 1).key(b"a");
        answered += u64::from(shared.check(Nanos::ZERO, &[charge]).resolve().await.is_ok());
        proxy.loses.store(0, Relaxed);
        shared.ready(Duration::from_secs(5)).await.unwrap();
    }
    let peeked = shared.peek(Nanos::ZERO, &Charge::new(id, 0).key(b"a")).resolve().await.unwrap();
    let counted = 1_000 - peeked.remaining();
    assert!(
        (answered..=40).contains(&counted),
        "{counted} counted of 40 sent, {answered} answered"
    );
    assert!(answered < 40, "nothing was lost");
}

#[tokio::test]
async fn rd_07_an_answer_that_is_slow_is_waited_for() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    let id = keyed(&shared, "window", FixedWindow::per_minute(1_000));
    // A script that the server has not seen yet is sent twice, and runs once.
    assert!(ask(&shared, id, b"a").await);
    server.say::<()>("CLIENT PAUSE 200 ALL");
    assert!(ask(&shared, id, b"a").await);
    let peeked = shared.peek(Nanos::ZERO, &Charge::new(id, 0).key(b"a")).resolve().await.unwrap();
    assert_eq!(peeked.remaining(), 998, "it was sent more than once");
}

#[tokio::test]
async fn rd_14_a_refusal_is_no_failure() {
    let server = Server::start();
    let told = Told::default();
    let shared = exact(server.url()).await.observer(told.clone());
    let id = keyed(&shared, "window", FixedWindow::per_minute(2));
    let mut passed = 0;
    for _ in 0..10 {
        passed += u32::from(ask(&shared, id, b"a").await);
    }
    assert_eq!(passed, 2);
    assert_eq!(told.states(), []);
    assert_eq!(shared.state(), StoreState::Up);
}

#[tokio::test]
async fn rd_16_the_servers_clock_is_used() {
    let server = Server::start();
    // Two processes, of which one is ten seconds behind, then ahead; what they give as the time is their own.
    let (a, b) = (exact(server.url()).await, exact(server.url()).await);
    let spec = LimiterSpec::new("bucket", TokenBucket::per_second(2).burst(4));
    let (id_a, id_b) = (a.register(&spec).unwrap(), b.register(&spec).unwrap());
    let check = async |shared: &Redis, id, now| {
        shared.check(Nanos::new(now), &[Charge::new(id, 1)]).resolve().await.unwrap().all_allowed()
    };
    let mut passed = 0;
    for (of_b, times) in [(None, 5), (Some(10), 1), (None, 5), (Some(30), 5)] {
        for _ in 0..times {
            passed += u32::from(match of_b {
                None => check(&a, id_a, 20_000_000_000).await,
                Some(seconds) => check(&b, id_b, seconds * 1_000_000_000).await,
            });
        }
    }
    assert_eq!(passed, 4);
    let begun = std::time::Instant::now();
    for round in 0..100_u64 {
        let now = 20_000_000_000 + round * 20_000_000;
        passed += u32::from(check(&a, id_a, now).await);
        passed += u32::from(check(&b, id_b, now - 10_000_000_000).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let most = 4.0 + 2.0 * begun.elapsed().as_secs_f64() + 1.0;
    assert!(f64::from(passed) <= most, "{passed} of at most {most}");
    assert!(passed >= 7, "{passed}");
}

#[tokio::test]
async fn rd_18_one_instant_holds_many_entries() {
    let server = Server::start();
    let mut processes = Vec::new();
    for _ in 0..8 {
        processes.push(exact(server.url()).await);
    }
    let mut asking = Vec::new();
    for shared in &processes {
        let id = keyed(shared, "log", SlidingLog::per_minute(10));
        for _ in 0..125 {
            let shared = shared.clone();
            asking.push(tokio::spawn(async move { ask(&shared, id, b"a").await }));
        }
    }
    let mut passed = 0;
    for asking in asking {
        passed += u32::from(asking.await.unwrap());
    }
    assert_eq!(passed, 10);
    let keys = server.keys();
    assert_eq!(server.say::<u64>(&format!("ZCARD {}", keys[0])), 10);
}

#[tokio::test]
async fn rd_19_checked_and_charged_in_one() {
    let server = Server::start();
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(exact(server.url()).await);
    }
    for (n, algorithm) in all(5, Duration::from_secs(60)).into_iter().enumerate() {
        // A leaky bucket lets one pass at once.
        let limit = if matches!(algorithm, Algorithm::LeakyBucket(_)) { 1 } else { 5 };
        let ids: Vec<_> = processes
            .iter()
            .map(|shared| keyed(shared, &format!("limiter-{n}"), algorithm))
            .collect();
        for round in 0..50_u32 {
            let mut asking = Vec::new();
            for call in 0..40 {
                let (shared, id) = (processes[call % 4].clone(), ids[call % 4]);
                asking.push(tokio::spawn(
                    async move { ask(&shared, id, &round.to_be_bytes()).await },
                ));
            }
            let mut passed = 0;
            for asking in asking {
                passed += u32::from(asking.await.unwrap());
            }
            assert_eq!(passed, limit, "{algorithm:?}, round {round}");
        }
    }
}

#[tokio::test]
async fn wn_09_exactly_as_many_as_the_limit() {
    let server = Server::start();
    let shared = exact(server.url()).await.by_given_time();
    for limit in [1, 2, 10, 1_000] {
        for (n, algorithm) in all(limit, Duration::from_secs(600)).into_iter().enumerate() {
            let id = keyed(&shared, &format!("limiter-{limit}-{n}"), algorithm);
            let limit = if matches!(algorithm, Algorithm::LeakyBucket(_)) { 1 } else { limit };
            for now in [1_790_000_000_u64, 1_790_001_200] {
                let now = Nanos::new(now * 1_000_000_000);
                for expected in std::iter::repeat_n(true, limit as usize).chain([false]) {
                    let verdicts =
                        shared.check(now, &[Charge::new(id, 1).key(b"a")]).resolve().await;
                    assert_eq!(verdicts.unwrap().all_allowed(), expected, "{algorithm:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn wn_06_refused_attempts_are_not_logged() {
    let server = Server::start();
    let shared = exact(server.url()).await.by_given_time();
    for (n, algorithm) in all(10, Duration::from_secs(600)).into_iter().enumerate() {
        let id = keyed(&shared, &format!("limiter-{n}"), algorithm);
        let mut passed = Vec::new();
        for at in (0..=1_200).step_by(30) {
            let now = Nanos::new((1_790_000_000 + at) * 1_000_000_000);
            let verdicts =
                shared.check(now, &[Charge::new(id, 1).key(b"a")]).resolve().await.unwrap();
            if verdicts.all_allowed() {
                passed.push(at);
            }
        }
        if matches!(algorithm, Algorithm::SlidingLog(_)) {
            let expected: Vec<_> =
                (0..=270).chain(600..=870).chain([1_200]).filter(|at| at % 30 == 0).collect();
            assert_eq!(passed, expected);
        }
        assert!(passed.iter().filter(|at| **at < 600).count() >= 9, "{algorithm:?}: {passed:?}");
        assert!(passed.iter().filter(|at| **at >= 600).count() >= 9, "{algorithm:?}: {passed:?}");
    }
}

#[tokio::test]
async fn ar_23_the_servers_time_goes_on_while_a_process_is_suspended() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    for algorithm in
        [Algorithm::from(FixedWindow::per_second(10)), TokenBucket::per_second(10).into()]
    {
        let id = keyed(&shared, &format!("{:.5}", format!("{algorithm:?}")), algorithm);
        // This process's clock stands still throughout.
        assert!(asks(&shared, id, b"a", 10).await);
        assert!(!ask(&shared, id, b"a").await);
        tokio::time::sleep(Duration::from_millis(1_010)).await;
        assert!(asks(&shared, id, b"a", 10).await);
    }
}

#[tokio::test]
async fn ky_14_large_keys_are_short_names() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    let id = keyed(&shared, "per-user", TokenBucket::per_minute(1));
    let before: u64 = server.info("memory", "used_memory").unwrap().parse().unwrap();
    for n in 0..1_000_u32 {
        let mut key = vec![b'x'; 8_192];
        key.extend(n.to_be_bytes());
        assert!(ask(&shared, id, &key).await, "{n} shares its quota with another");
    }
    let keys = server.keys();
    assert_eq!(keys.len(), 1_000);
    assert!(keys.iter().all(|key| key.len() <= 64), "{}", keys[0]);
    let after: u64 = server.info("memory", "used_memory").unwrap().parse().unwrap();
    assert!(after - before < 512 * 1_024, "{} bytes", after - before);
}

#[tokio::test]
async fn a_clock_that_goes_back_locks_nobody_out() {
    let server = Server::start();
    let shared = exact(server.url()).await.by_given_time();
    let at = |seconds: u64| Nanos::new(seconds * 1_000_000_000);
    // A failover to a server whose clock is a day behind.
    let (then, now) = (1_790_086_400, 1_790_000_000);
    for (n, algorithm) in all(10, Duration::from_secs(60)).into_iter().enumerate() {
        let limit = if matches!(algorithm, Algorithm::LeakyBucket(_)) { 1 } else { 10 };
        let id = keyed(&shared, &format!("limiter-{n}"), algorithm);
        let check = async |now, cost| {
            shared
                .check(now, &[Charge::new(id, cost).key(b"a")])
                .resolve()
                .await
                .unwrap()
                .all_allowed()
        };
        assert!(check(at(then), limit).await);
        // It counts as spent, for no longer than a period and a cell.
        assert!(!check(at(now), 1).await, "{algorithm:?} gives the quota twice");
        assert!(check(at(now + 66), limit).await, "{algorithm:?} is locked out");
    }
}

#[tokio::test]
async fn foreign_data_is_left_alone() {
    let server = Server::start();
    let told = Told::default();
    let shared = exact(server.url()).await.observer(told.clone()).instances(1);
    for (n, algorithm) in all(3, Duration::from_secs(60)).into_iter().enumerate() {
        let limit = if matches!(algorithm, Algorithm::LeakyBucket(_)) { 1 } else { 3 };
        let id = keyed(&shared, &format!("limiter-{n}"), algorithm);
        assert!(ask(&shared, id, b"a").await);
        let key =
            server.keys().into_iter().find(|key| key.contains(&format!("limiter-{n}"))).unwrap();
        for foreign in ["SET {} hello", "RPUSH {} 1", "ZADD {} 1 hello", "SET {} 0001790000000000"]
        {
            server.say::<()>(&format!("DEL {key}"));
            server.say::<()>(&foreign.replace("{}", &key));
            let before: String = server.say(&format!("DEBUG OBJECT {key}"));
            let _ = shared.reset(Nanos::ZERO, &Charge::new(id, 1).key(b"a")).resolve().await;
            // It is counted here, neither unlimited nor refused for ever.
            let mut passed = 0;
            for _ in 0..5 {
                passed += u64::from(ask(&shared, id, b"a").await);
            }
            assert_eq!(passed, limit, "{algorithm:?}, {foreign}");
            let after: String = server.say(&format!("DEBUG OBJECT {key}"));
            let encoding = |text: &str| {
                text.split_once("encoding")
                    .map(|(_, rest)| rest.split_once("lru").unwrap().0.to_owned())
            };
            assert_eq!(encoding(&before), encoding(&after), "{algorithm:?}, {foreign}");
        }
        // Others are counted in the store.
        assert!(ask(&shared, id, b"b").await);
    }
    assert_eq!(shared.state(), StoreState::Up);
    let faults = told.faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("SL-STORE-KEY"));
}

#[tokio::test]
async fn nothing_is_left_running_behind_it() {
    let server = Server::start();
    let clients = || -> usize { server.say::<String>("CLIENT LIST").lines().count() - 1 };
    let shared = exact(server.url()).await;
    let id = keyed(&shared, "bucket", TokenBucket::per_second(1));
    assert!(ask(&shared, id, b"a").await);
    assert_eq!(clients(), 1);
    drop(shared);
    assert!(eventually(Duration::from_secs(1), || clients() == 0).await);
}

#[tokio::test]
async fn one_call_takes_as_many_rules_as_a_layer() {
    let server = Server::start();
    let told = Told::default();
    let shared = exact(server.url()).await.observer(told.clone());
    for rules in [1, 2, 7, 8, 9, 20, 64] {
        let ids: Vec<_> = (0..rules)
            .map(|n| {
                keyed(
                    &shared,
                    &format!("of-{rules}-{n}"),
                    TokenBucket::per_hour(2 + u64::from(n % 2 == 0)),
                )
            })
            .collect();
        let charges: Vec<_> = ids.iter().map(|id| Charge::new(*id, 1).key(b"a")).collect();
        let mut passed = 0;
        for _ in 0..5 {
            let verdicts = shared.check(Nanos::ZERO, &charges).resolve().await.unwrap();
            passed += u32::from(verdicts.all_allowed());
        }
        assert_eq!(passed, if rules == 1 { 3 } else { 2 }, "{rules} rules");
    }
    assert_eq!((told.states(), shared.decided_alone()), (vec![], 0));
}

#[tokio::test]
async fn rates_that_do_not_divide_are_counted_by_real_time() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    // Three each 100 ms, in thirds of a microsecond.
    let id = keyed(&shared, "thirds", TokenBucket::new(3, Duration::from_millis(100)).burst(10));
    let (begun, mut passed) = (std::time::Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(800) {
        passed += u32::from(ask(&shared, id, b"a").await);
    }
    let most = 10.0 + 30.0 * begun.elapsed().as_secs_f64() + 1.0;
    assert!(f64::from(passed) <= most && f64::from(passed) >= most - 4.0, "{passed} of {most}");
    assert_eq!(shared.decided_alone(), 0);
}
