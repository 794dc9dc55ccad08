//! Where others would break it: quotas that change, many scripts, stores that are slow, full or forbid things, numbers that
//! make no sense.

use std::time::Duration;

use tower_sluice::{
    Backend, FixedWindow, TokenBucket,
    backend::{Charge, LimiterSpec, Local, Redis},
    clock::Nanos,
    event::StoreState,
};

use crate::{
    load::{Told, goes_away},
    server::Server,
    state::{ask, asks, exact, keyed, passed_alone},
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

/// After another quota: who is told to come back after so long is admitted then.
async fn kept<B: Backend>(backend: B, old: LimiterSpec, new: LimiterSpec, spends: u64) -> String {
    let id = backend.register(&old.keyed(10)).unwrap();
    let check = async |seconds| {
        let charge = [Charge::new(id, 1).key(b"a")];
        backend.check(at(seconds), &charge).resolve().await.unwrap().as_slice()[0].decision()
    };
    for _ in 0..spends {
        assert!(check(0).await.is_allowed());
    }
    backend.register(&new.keyed(10).replacing(id).at(at(1))).unwrap();
    let mut said = String::new();
    let mut now = 1;
    for n in 0..6 {
        let decision = check(now).await;
        match decision.retry_after() {
            None => return format!("admitted at the {n}th try, {} s after{said}", now - 1),
            Some(wait) => {
                said += &format!(", told {wait:?}");
                now += wait.as_secs_f64().ceil() as u64;
            }
        }
    }
    format!("locked out for {} s{said}", now - 1)
}

async fn keeps_its_word(old: LimiterSpec, new: LimiterSpec, spends: u64) {
    let server = Server::start();
    let here = kept(Local::new(), old.clone(), new.clone(), spends).await;
    let there = kept(exact(server.url()).await.by_given_time(), old, new, spends).await;
    println!("process: {here}\nstore:   {there}");
    assert!(there.starts_with("admitted"), "in the process: {here}; in the store: {there}");
}

#[tokio::test]
async fn a_bucket_of_another_quota_keeps_its_word() {
    let spec = |bucket| LimiterSpec::new("x", bucket);
    let (old, new) = (TokenBucket::per_day(1_000), TokenBucket::per_minute(10));
    keeps_its_word(spec(old), spec(new), 1_000).await;
}

#[tokio::test]
async fn a_lesser_burst_keeps_its_word() {
    let spec = |bucket| LimiterSpec::new("x", bucket);
    let (old, new) = (TokenBucket::per_second(1).burst(100), TokenBucket::per_second(1).burst(10));
    keeps_its_word(spec(old), spec(new), 100).await;
}

#[tokio::test]
async fn a_shorter_window_keeps_its_word() {
    let spec = |window| LimiterSpec::new("x", window);
    keeps_its_word(spec(FixedWindow::per_day(100)), spec(FixedWindow::per_minute(100)), 100).await;
}

#[tokio::test]
async fn a_shorter_aligned_window_keeps_its_word() {
    let spec = |window: FixedWindow| LimiterSpec::new("x", window.aligned());
    keeps_its_word(spec(FixedWindow::per_day(100)), spec(FixedWindow::per_minute(100)), 100).await;
}

#[tokio::test]
async fn two_quotas_side_by_side_admit_no_more_than_the_larger() {
    let server = Server::start();
    let (old, new) =
        (exact(server.url()).await.by_given_time(), exact(server.url()).await.by_given_time());
    let of_old = keyed(&old, "x", TokenBucket::per_second(1).burst(100));
    let of_new = keyed(&new, "x", TokenBucket::per_second(1).burst(10));
    let mut passed = 0;
    for second in 0..20 {
        for _ in 0..200 {
            let charge = [Charge::new(of_old, 1).key(b"a")];
            let verdicts = old.check(at(second), &charge).resolve().await.unwrap();
            passed += u32::from(verdicts.all_allowed());
        }
        // The new process queues.
        let charge = [Charge::new(of_new, 1).key(b"a").waiting_at_most(Duration::from_secs(2))];
        let verdicts = new.check(at(second), &charge).resolve().await.unwrap();
        passed += u32::from(verdicts.all_allowed());
    }
    assert!(passed <= 100 + 20 + 2, "{passed} passed of at most 122");
}

#[tokio::test]
async fn a_number_of_instances_that_changes_to_and_fro() {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    };
    let number = Arc::new(AtomicU32::new(1));
    let own = Arc::clone(&number);
    let shared =
        Redis::new("redis://127.0.0.1:1/").unwrap().instances_from(move || own.load(Relaxed));
    shared.ready(Duration::from_millis(100)).await.unwrap_err();
    let id = keyed(&shared, "x", TokenBucket::per_hour(100));
    let mut passed = 0;
    for round in 0..20 {
        number.store(if round % 2 == 0 { 1 } else { 4 }, Relaxed);
        for _ in 0..100 {
            passed += u32::from(ask(&shared, id, b"a").await);
        }
    }
    // A burst of a quarter may be forgotten.
    assert!(passed <= 125, "{passed} passed of 100");
}

#[tokio::test]
async fn a_reset_gives_the_share_in_front_back() {
    let server = Server::start();
    let shared = exact(server.url()).await.instances(1).share(1.0);
    let id = keyed(&shared, "window", FixedWindow::per_hour(2));
    assert_eq!(
        [ask(&shared, id, b"a").await, ask(&shared, id, b"a").await, ask(&shared, id, b"a").await],
        [true, true, false]
    );
    assert!(shared.reset(Nanos::ZERO, &Charge::new(id, 1).key(b"a")).resolve().await.unwrap());
    assert!(ask(&shared, id, b"a").await, "the reset was for nothing");
}

#[tokio::test]
async fn a_refusal_that_a_reset_overtakes_is_not_remembered() {
    let server = Server::start();
    let shared = exact(server.url()).await.remember_refusals();
    let id = keyed(&shared, "window", FixedWindow::per_hour(1));
    assert!(ask(&shared, id, b"a").await);
    // The flood goes on while the reset is on its way.
    let reset = shared.reset(Nanos::ZERO, &Charge::new(id, 1).key(b"a"));
    assert!(!ask(&shared, id, b"a").await);
    assert!(reset.resolve().await.unwrap());
    assert!(ask(&shared, id, b"a").await, "refused although it was reset");
}

#[tokio::test]
async fn who_is_remembered_is_told_the_truth() {
    let server = Server::start();
    let shared = exact(server.url()).await.remember_refusals();
    let id = keyed(&shared, "window", FixedWindow::per_hour(1));
    assert!(ask(&shared, id, b"a").await);
    let mut waits = Vec::new();
    for _ in 0..2 {
        let charge = [Charge::new(id, 1).key(b"a")];
        let verdicts = shared.check(Nanos::ZERO, &charge).resolve().await.unwrap();
        waits.push(verdicts.as_slice()[0].decision().retry_after().unwrap().as_secs());
    }
    assert!(waits[1] >= waits[0] - 2, "told to come back in {waits:?} s");
}

#[tokio::test]
async fn two_charges_of_one_call_are_not_remembered_as_one() {
    let server = Server::start();
    let shared = exact(server.url()).await.remember_refusals();
    let id = keyed(&shared, "window", FixedWindow::per_hour(3));
    let twice = [Charge::new(id, 2).key(b"a"), Charge::new(id, 2).key(b"a")];
    assert!(!shared.check(Nanos::ZERO, &twice).resolve().await.unwrap().all_allowed());
    assert!(asks(&shared, id, b"a", 2).await, "three are left");
}

async fn far(scripts: u64, millis: u64) -> Duration {
    let server = Server::start();
    let proxy = crate::proxy::Proxy::before(server.port);
    let told = Told::default();
    let shared =
        Redis::new(proxy.url()).unwrap().deadline(Duration::from_secs(1)).observer(told.clone());
    shared.ready(Duration::from_secs(5)).await.unwrap();
    let spec = |n: u64| LimiterSpec::new("bucket", TokenBucket::per_second(10 + n)).keyed(10);
    let id = shared.register(&spec(0)).unwrap();
    for n in 1..=scripts {
        assert!(ask(&shared, id, &[n as u8]).await);
        shared.register(&spec(n).replacing(id)).unwrap();
    }
    proxy.delays.store(millis, std::sync::atomic::Ordering::Relaxed);
    assert!(ask(&shared, id, b"far").await);
    let begun = std::time::Instant::now();
    proxy.loses.store(100, std::sync::atomic::Ordering::Relaxed);
    let _ = ask(&shared, id, b"far").await;
    assert!(goes_away(Duration::from_secs(2), &shared).await);
    proxy.loses.store(0, std::sync::atomic::Ordering::Relaxed);
    let back = shared.ready(Duration::from_secs(6)).await;
    println!(
        "far {scripts} scripts {millis} ms: {back:?} {:?} {:?}",
        told.states(),
        begun.elapsed()
    );
    back.map(|()| begun.elapsed()).unwrap_or(Duration::MAX)
}

#[tokio::test]
async fn a_far_store_with_many_scripts_comes_back() {
    for (scripts, millis) in [(2, 0), (2, 5), (20, 5), (128, 0)] {
        assert!(far(scripts, millis).await < Duration::from_secs(3));
    }
    // Half of a deadline away.
    assert!(far(128, 5).await < Duration::from_secs(3), "it never comes back");
}

#[tokio::test]
async fn a_store_that_is_always_late_does_not_flap() {
    let server = Server::start();
    let proxy = crate::proxy::Proxy::before(server.port);
    let told = Told::default();
    let shared = Redis::new(proxy.url()).unwrap().instances(1).observer(told.clone());
    let id = keyed(&shared, "bucket", TokenBucket::per_second(10));
    shared.ready(Duration::from_secs(5)).await.unwrap();
    proxy.delays.store(15, std::sync::atomic::Ordering::Relaxed);
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        let _ = ask(&shared, id, b"a").await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let changes = told.states().len();
    assert!(changes <= 6, "{changes} changes in six seconds");
}

#[tokio::test]
async fn a_short_deadline_is_that_of_its_own_rule() {
    let server = Server::start();
    let proxy = crate::proxy::Proxy::before(server.port);
    let told = Told::default();
    let shared = Redis::new(proxy.url())
        .unwrap()
        .deadline(Duration::from_secs(1))
        .observer(told.clone())
        .instances(1);
    let patient = keyed(&shared, "patient", TokenBucket::per_second(10));
    let hasty = keyed(
        &shared.clone().deadline(Duration::from_millis(2)),
        "hasty",
        TokenBucket::per_second(10),
    );
    shared.ready(Duration::from_secs(5)).await.unwrap();
    proxy.delays.store(5, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..20 {
        ask(&shared, hasty, b"a").await;
        ask(&shared, hasty, b"a").await;
        ask(&shared, hasty, b"a").await;
        ask(&shared, patient, b"a").await;
    }
    assert_eq!(told.states(), [StoreState::Up]);
}

#[tokio::test]
async fn as_many_rules_in_one_call_as_a_layer_may_have() {
    let server = Server::start();
    let shared = exact(server.url()).await.refuse();
    let ids: Vec<_> = (0..64)
        .map(|n| keyed(&shared, &format!("rule-{n}"), TokenBucket::per_second(10)))
        .collect();
    let charges: Vec<_> = ids.iter().map(|id| Charge::new(*id, 1).key(b"a")).collect();
    shared.check(Nanos::ZERO, &charges).resolve().await.unwrap();
}

#[tokio::test]
async fn a_second_server_is_looked_for_before_the_store_is_away() {
    let server = Server::start();
    let told = Told::default();
    let shared =
        Redis::any_of([format!("redis://127.0.0.1:{}/", crate::server::free_port()), server.url()])
            .unwrap()
            .deadline(Duration::from_secs(2))
            .refuse()
            .observer(told.clone());
    let id = keyed(&shared, "window", FixedWindow::per_hour(10));
    let charge = [Charge::new(id, 1).key(b"a")];
    let first = shared.check(Nanos::ZERO, &charge).resolve().await.map(drop);
    shared.ready(Duration::from_secs(2)).await.unwrap();
    assert_eq!((told.states(), told.faults()), (vec![StoreState::Up], vec![]), "{first:?}");
    first.unwrap();
}

#[tokio::test]
async fn ready_tries_under_its_own_prefix() {
    let server = Server::start();
    server.say::<()>("ACL SETUSER limits on >secret ~shop:* ~{shop}:* +@all");
    let shared = Redis::new(format!("redis://limits:secret@127.0.0.1:{}/", server.port))
        .unwrap()
        .prefix("shop");
    shared.ready(Duration::from_secs(1)).await.unwrap();
}

#[test]
fn a_call_outside_any_runtime_does_not_panic() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (shared, id) = runtime.block_on(async {
        let shared = exact(server.url()).await;
        let id = keyed(&shared, "window", FixedWindow::per_hour(10));
        assert!(ask(&shared, id, b"a").await);
        (shared, id)
    });
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let charge = [Charge::new(id, 1).key(b"a")];
    let mut answer = Box::pin(shared.check(Nanos::ZERO, &charge).resolve());
    let _ = answer.as_mut().poll(&mut cx);
}

#[tokio::test]
async fn an_undo_after_another_quota_does_not_overflow() {
    let server = Server::start();
    let shared = exact(server.url()).await;
    let spec = |bucket| LimiterSpec::new("bytes", bucket);
    let id = shared
        .register(&spec(TokenBucket::per_second(1_000_000_000).burst(2_000_000_000)))
        .unwrap();
    let verdicts =
        shared.check(Nanos::ZERO, &[Charge::new(id, 2_000_000_000)]).resolve().await.unwrap();
    assert!(verdicts.all_allowed());
    shared.register(&spec(TokenBucket::per_day(1)).replacing(id)).unwrap();
    shared.undo(Nanos::ZERO, &[verdicts.as_slice()[0].receipt()]);
}

#[tokio::test]
async fn absurd_numbers_do_not_panic() {
    let absurd = |said: &str| match said.starts_with("EVALSHA") {
        true => format!("*2\r\n:{0}\r\n:{0}\r\n", i64::MAX),
        false => "+OK\r\n".to_owned(),
    };
    let shared = Redis::new(crate::setup::answering(absurd)).unwrap().instances(1);
    let id = keyed(&shared, "bucket", TokenBucket::per_second(10));
    shared.ready(Duration::from_secs(1)).await.unwrap();
    ask(&shared, id, b"a").await;
}

#[tokio::test]
async fn the_instances_after_a_flush() {
    let mut server = Server::start();
    let mut fleet = Vec::new();
    for _ in 0..4 {
        let shared = exact(server.url()).await;
        let id = shared.register(&LimiterSpec::new("w", FixedWindow::per_minute(100))).unwrap();
        fleet.push((shared, id));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(Duration::from_millis(2_300)).await;
    server.say::<()>("FLUSHALL");
    tokio::time::sleep(Duration::from_millis(450)).await;
    server.kill();
    let passed = passed_alone(&fleet).await;
    assert!(passed.iter().sum::<u32>() <= 100, "{passed:?}");
}
