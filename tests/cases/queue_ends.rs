//! What happens to those who wait when something else happens: tables fill up, limits change, clients go, the
//! server shuts down.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tower_sluice::{
    LeakyBucket, ManualClock, Missing, Quota, RateLimitLayer, RejectionPolicy, Rule, key,
    testing::{Event, Recorder},
};

use crate::{
    support::serve,
    support_core::{SECOND, at, keyed, limiter, request, send},
    tasks::{Steps, Tasks},
};

const LONG: Duration = Duration::from_secs(60);

/// Statuses and instants of those that have ended.
fn turns(tasks: &Tasks<u32, u16>) -> Vec<(u32, Duration, u16)> {
    tasks.ended().to_vec()
}

/// Sends six requests of alice through `layer`: one passes, five wait.
fn six(layer: &RateLimitLayer, clock: Steps) -> Tasks<u32, u16> {
    let mut tasks = Tasks::new(clock);
    for name in 0..6 {
        let layer = layer.clone();
        tasks.start(name, async move {
            send(&layer, request(&[("x-user-id", "alice")])).await.status().as_u16()
        });
    }
    assert_eq!((tasks.ended().len(), tasks.running()), (1, 5));
    tasks
}

#[test]
fn qu_11_a_full_table_leaves_waiters_alone() {
    // Nothing sweeps here. What comes nearest: the table is walked, and other keys want every slot of it.
    const KEYS: u64 = 1_000;
    let clock = Steps::default();
    let users = keyed(LeakyBucket::per_second(1).into(), clock.clone(), Some(KEYS));
    let rule = Rule::on(users.clone())
        .key(key::header("x-user-id"))
        .missing(Missing::Shared)
        .spread(false);
    let layer = RateLimitLayer::builder().rule(rule).rejection(RejectionPolicy::queue(LONG, 10));
    let mut tasks = six(&layer.build().expect("a layer"), clock);
    let mut other = 0_u64;
    for step in 0..60 {
        tasks.to(SECOND / 10 * step + SECOND / 20);
        for _ in 0..KEYS {
            let _ = users.try_acquire(other);
            other += 1;
        }
        assert!(users.tracked_keys() <= KEYS);
    }
    let expected: Vec<_> = (0..6).map(|name| (name, SECOND * name, 200)).collect();
    assert_eq!(turns(&tasks), expected);
    assert_eq!(users.waiting(), 0);
}

#[test]
fn qu_11_a_raised_limit_reschedules() {
    let hundred = Quota::per_second(100);
    for by_handle in [false, true] {
        for raised_at in [0, 10, 500] {
            let clock = Steps::default();
            let shared = limiter(LeakyBucket::per_second(1).into(), clock.clone());
            let layer = RateLimitLayer::builder().rule(Rule::on(shared.clone()));
            let layer = layer.rejection(RejectionPolicy::queue(LONG, 10)).build().expect("a layer");
            let mut tasks = six(&layer, clock);
            let raised_at = Duration::from_millis(raised_at);
            tasks.to(raised_at);
            if by_handle {
                layer.handle().set_limit("limiter", hundred).expect("a quota");
            } else {
                shared.set_limit(hundred).expect("a quota");
            }
            tasks.to(raised_at + SECOND / 20);
            assert_eq!((tasks.running(), shared.waiting()), (0, 0), "within 50 ms");
            let turns = turns(&tasks);
            assert!(turns.iter().all(|(.., status)| *status == 200) && turns.is_sorted());
            // Ten milliseconds apart; the first as soon as what is left of the debt is paid.
            let apart = turns[1..].windows(2).map(|pair| pair[1].1 - pair[0].1);
            assert!(apart.clone().all(|apart| apart == SECOND / 100), "{turns:?}");
            assert_eq!(apart.count(), 4);
        }
    }
    // Lowered, those are refused at once whose turn is then too late, and nobody is stuck.
    let clock = Steps::default();
    let shared = limiter(LeakyBucket::per_second(1).into(), clock.clone());
    let layer = RateLimitLayer::builder().rule(Rule::on(shared.clone()));
    let layer = layer.rejection(RejectionPolicy::queue(SECOND * 6, 10)).build().expect("a layer");
    let mut tasks = six(&layer, clock);
    tasks.to(SECOND / 2);
    shared.set_limit(Quota::new(1, SECOND * 2)).expect("a quota");
    tasks.settle();
    tasks.to(LONG);
    let at = |half: u32| SECOND / 2 * half;
    // Half a permit is owed still, a second of the new rate: turns at 1.5, 3.5 and 5.5 s.
    let expected =
        [(0, at(0), 200), (4, at(1), 429), (5, at(1), 429), (1, at(3), 200), (2, at(7), 200)];
    assert_eq!(turns(&tasks)[..5], expected);
    assert_eq!(turns(&tasks)[5..], [(3, at(11), 200)]);
}

/// A client that has asked.
async fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: example\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    stream
}

/// The status line it gets.
async fn status(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// Waits until something outside of this task is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SECOND * 10, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn qu_11_graceful_shutdown_waits_for_waiters() {
    let tenth = SECOND / 10;
    let shared = LeakyBucket::per_second(10).limiter().build().unwrap();
    let layer = RateLimitLayer::builder().rule(Rule::on(shared.clone()));
    let layer = layer.rejection(RejectionPolicy::queue(LONG, 10)).build().unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&ran);
    let handler = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    };
    let app = Router::new().route("/", get(handler)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shut_down, told) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = told.await;
    });
    let server = tokio::spawn(server.into_future());

    let began = Instant::now();
    assert_eq!(status(ask(address).await).await, "HTTP/1.1 200 OK");
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(ask(address).await);
    }
    until("five wait, or have gone already", || shared.waiting() + ran.load(Ordering::SeqCst) == 6)
        .await;
    shut_down.send(()).unwrap();
    for stream in waiting {
        assert_eq!(status(stream).await, "HTTP/1.1 200 OK");
    }
    // Half a second is due.
    let deadline = tokio::time::timeout(SECOND * 5, server).await;
    deadline.expect("within the deadline").unwrap().unwrap();
    assert!(began.elapsed() >= tenth * 5 - Duration::from_millis(1));
    assert_eq!((ran.load(Ordering::SeqCst), shared.waiting()), (6, 0));
}

#[tokio::test]
async fn ht_17_client_gone_while_queued() {
    let (clock, recorder) = (ManualClock::new(), Recorder::new());
    let shared = limiter(LeakyBucket::per_second(1).into(), clock.clone());
    let layer = RateLimitLayer::builder()
        .rule(Rule::on(shared.clone()))
        .rejection(RejectionPolicy::queue(SECOND * 10, 10))
        .observer(recorder.clone());
    let app = Router::new().route("/", get(|| async {})).layer(layer.build().unwrap());
    let address = serve(app).await;
    assert_eq!(status(ask(address).await).await, "HTTP/1.1 200 OK");
    let mut gone = Vec::new();
    for _ in 0..4 {
        gone.push(ask(address).await);
    }
    until("four wait", || shared.waiting() == 4).await;
    at(&clock, 100_000_000);
    let _ = recorder.take();
    drop(gone);
    until("they have left", || recorder.events().len() >= 4 && shared.waiting() == 0).await;
    // Nothing is told but that four have left, and no fault; that none of it is logged is in `log.rs`.
    let events = recorder.take();
    assert_eq!(events.len(), 4);
    for event in events {
        let Event::Left { limit, waited, .. } = event else { panic!("{event:?}") };
        assert_eq!((&*limit, waited), ("limiter", SECOND / 10));
    }
    assert_eq!(shared.peek(0).remaining(), 0);

    let next = ask(address).await;
    until("the next waits", || shared.waiting() == 1).await;
    at(&clock, 999_999_999);
    assert_eq!(shared.waiting(), 1);
    at(&clock, 1_000_000_000);
    assert_eq!(status(next).await, "HTTP/1.1 200 OK");
    let [Event::Admitted { waited: Some(waited), .. }, Event::Finished { .. }] =
        &recorder.take()[..]
    else {
        panic!("admitted after a wait, and finished");
    };
    assert_eq!(*waited, SECOND / 10 * 9);
}
