//! A real server that fails under load. Of each fault: how long anybody waited, what was answered, how much was admitted
//! meanwhile, and how soon it was over.

use std::{
    fmt::Debug,
    io::Read,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use tower_sluice::{
    BackendErrorKind, RateLimitLayer, Rule, TokenBucket, backend::Redis, event::StoreState,
};

use crate::{
    load::{Shot, Told, eventually, load},
    server::{Server, free_port},
};

const RATE: u64 = 200;
const BURST: u64 = 40;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A layer of one rule; two instances share it, of which this is one.
fn layer(shared: &Redis) -> RateLimitLayer {
    let all = Rule::new("all", TokenBucket::per_second(RATE).burst(BURST));
    RateLimitLayer::builder().rule(all.backend(shared.clone().instances(2))).build().unwrap()
}

/// What happened while the store was away.
#[derive(Debug)]
struct Outage {
    shots: Vec<Shot>,
    broken: Instant,
    mended: Instant,
    told: Told,
}

impl Outage {
    /// When it was known to be away.
    fn away(&self) -> Vec<(Instant, Instant)> {
        let told = self.told.0.lock().unwrap();
        let is_away = |state| matches!(state, StoreState::Away(_));
        let pairs = told.windows(2).filter(|two| is_away(two[0].1));
        pairs.map(|two| (two[0].0, two[1].0)).collect()
    }

    /// Those that began meanwhile.
    fn during(&self) -> impl Iterator<Item = &Shot> {
        let away = self.away();
        let within =
            move |shot: &&Shot| away.iter().any(|(from, to)| (from..to).contains(&&shot.at));
        self.shots.iter().filter(within)
    }

    /// When it was counted in the store again, after it was mended.
    fn recovered_after(&self) -> Duration {
        let told = self.told.0.lock().unwrap();
        let up =
            told.iter().filter(|(when, state)| *state == StoreState::Up && *when > self.broken);
        up.map(|(when, _)| when.saturating_duration_since(self.mended)).next().unwrap()
    }

    fn statuses(&self) -> Vec<u16> {
        let mut statuses: Vec<_> = self.shots.iter().map(|shot| shot.status).collect();
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    }

    fn longest(&self) -> Duration {
        self.shots.iter().map(|shot| shot.took).max().unwrap()
    }
}

impl Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.states()).finish()
    }
}

/// Load at 500 a second; after half a second `breaks`, for about a second, then `mends`.
async fn outage(
    shared: Redis,
    mut breaks: impl FnMut() + Send,
    lasts: Duration,
    mut mends: impl FnMut() + Send,
) -> Outage {
    let told = Told::default();
    let shared = shared.observer(told.clone());
    let layer = layer(&shared);
    shared.ready(Duration::from_secs(5)).await.unwrap();
    let shots = load(&layer, 500, ms(500) + lasts + ms(1_500));
    tokio::time::sleep(ms(500)).await;
    let broken = Instant::now();
    breaks();
    tokio::time::sleep(lasts).await;
    mends();
    let mended = Instant::now();
    Outage { shots: shots.await.unwrap(), broken, mended, told }
}

/// What holds of each outage: nobody waits longer than the deadline and what scheduling adds, and nobody at all once it
/// is known; all are answered as the share says; it is over a second after the server is there again.
fn bounded(outage: &Outage, kind: BackendErrorKind) {
    // One event for each change; on a busy machine a server may be late three times in a row.
    let states = outage.told.states();
    assert_eq!(states[..2], [StoreState::Up, StoreState::Away(kind)]);
    assert_eq!(states.last(), Some(&StoreState::Up));
    assert!(states.windows(2).all(|two| two[0] != two[1]), "{states:?}");
    assert!(states.len() <= 5, "{states:?}");
    assert!(outage.longest() < ms(100), "somebody waited {:?}", outage.longest());
    let during: Vec<_> = outage.during().collect();
    assert!(during.len() > 50, "{} came while it was away", during.len());
    let waited = during.iter().filter(|shot| shot.took > ms(5)).count();
    assert!(waited * 20 <= during.len(), "{waited} of {} waited for what is away", during.len());
    assert_eq!(outage.statuses(), [200, 429]);
    // A share of one half.
    let admitted = during.iter().filter(|shot| shot.status == 200).count() as f64;
    let away: Duration = outage.away().iter().map(|(from, to)| *to - *from).sum();
    let between = outage.away().last().unwrap().1 - outage.away()[0].0;
    let most = BURST as f64 / 2.0 + RATE as f64 / 2.0 * between.as_secs_f64() + 1.0;
    assert!(admitted <= most, "{admitted} admitted in {away:?}, at most {most}");
    assert!(admitted >= most / 4.0, "{admitted} admitted in {away:?} of {most}");
    assert!(outage.recovered_after() < ms(1_000), "back after {:?}", outage.recovered_after());
    println!(
        "{kind:?}: longest wait {:?}, {admitted} admitted of at most {most:.0} in {away:?}, back after {:?}",
        outage.longest(),
        outage.recovered_after()
    );
}

/// Within its deadline of 10 ms.
fn store(server: &Server) -> Redis {
    Redis::new(server.url()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_11_a_server_that_hangs() {
    let server = Server::start();
    let outage =
        outage(store(&server), || server.signal("-STOP"), ms(1_000), || server.signal("-CONT"))
            .await;
    bounded(&outage, BackendErrorKind::Timeout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_11_a_server_that_pauses_its_clients() {
    let server = Server::start();
    let pause = || drop(server.say::<String>("CLIENT PAUSE 1000 ALL"));
    let outage = outage(store(&server), pause, ms(1_000), || {}).await;
    bounded(&outage, BackendErrorKind::Timeout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_12_a_server_that_is_killed_and_starts_empty() {
    let server = std::sync::Mutex::new(Server::start());
    let shared = store(&server.lock().unwrap());
    let outage = outage(
        shared,
        || server.lock().unwrap().kill(),
        ms(1_000),
        || server.lock().unwrap().run(),
    )
    .await;
    bounded(&outage, BackendErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_12_a_server_that_is_killed_and_starts_with_its_data() {
    let server =
        std::sync::Mutex::new(Server::with(&["--appendonly", "yes", "--appendfsync", "no"]));
    let shared = store(&server.lock().unwrap());
    let keys = std::sync::Mutex::new(Vec::new());
    let outage = outage(
        shared,
        || server.lock().unwrap().kill(),
        ms(1_000),
        || {
            server.lock().unwrap().run();
            *keys.lock().unwrap() = server.lock().unwrap().keys();
        },
    )
    .await;
    bounded(&outage, BackendErrorKind::Unavailable);
    // It is there as it was, unless it has expired meanwhile, as a bucket does that is full again.
    assert!(keys.lock().unwrap().iter().all(|key| key == "{sluice}:all:b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_09_a_script_of_somebody_else_that_is_slow() {
    // It says that it is busy after 100 ms.
    let server = Server::with(&["--busy-reply-threshold", "100"]);
    let url = server.url();
    let slow = move || {
        let url = url.clone();
        std::thread::spawn(move || {
            let mut eval = redis::cmd("EVAL");
            eval.arg(
                "local t = redis.call('TIME')[1] + 2; while redis.call('TIME')[1] + 0 < t do end",
            )
            .arg(0);
            let client = redis::Client::open(url).unwrap();
            let _ = eval.query::<()>(&mut client.get_connection().unwrap());
        });
    };
    let outage = outage(store(&server), slow, ms(2_000), || {}).await;
    bounded(&outage, BackendErrorKind::Timeout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_09_a_server_without_memory() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let full = || server.say::<()>("CONFIG SET maxmemory 1");
    let outage =
        outage(store(&server), full, ms(1_000), || server.say::<()>("CONFIG SET maxmemory 0"))
            .await;
    bounded(&outage, BackendErrorKind::OutOfMemory);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_09_a_server_that_is_loading() {
    let server =
        std::sync::Mutex::new(Server::with(&["--appendonly", "yes", "--appendfsync", "no"]));
    for n in 0..100 {
        server.lock().unwrap().say::<()>(&format!("SET big-{n} 1"));
    }
    let shared = store(&server.lock().unwrap());
    let outage = outage(
        shared,
        || {
            let server = &mut *server.lock().unwrap();
            server.kill();
            // Five milliseconds for each key.
            server.args(&["--key-load-delay", "5000"]);
            server.spawn();
        },
        ms(300),
        || server.lock().unwrap().listens(),
    )
    .await;
    let states = outage.told.states();
    assert_eq!((states[0], states.last()), (StoreState::Up, Some(&StoreState::Up)), "{states:?}");
    assert_eq!(outage.statuses(), [200, 429]);
    assert!(outage.longest() < ms(100), "somebody waited {:?}", outage.longest());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_becomes_a_replica() {
    let (server, other) = (Server::start(), Server::start());
    let outage = outage(
        store(&server),
        || server.say::<()>(&format!("REPLICAOF 127.0.0.1 {}", other.port)),
        ms(1_000),
        || server.say::<()>("REPLICAOF NO ONE"),
    )
    .await;
    bounded(&outage, BackendErrorKind::ReadOnly);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_changed() {
    let server = Server::start();
    // The connection is known until it breaks.
    let change = || {
        server.say::<()>("CONFIG SET requirepass secret");
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
        let _: redis::RedisResult<i64> = server.try_ask_as("secret", &kill);
    };
    let back = || {
        let _: redis::RedisResult<()> =
            server.try_ask_as("secret", redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(""));
    };
    let outage = outage(store(&server), change, ms(1_000), back).await;
    assert_eq!(outage.statuses(), [200, 429]);
    let faults = outage.told.faults();
    assert!(faults.iter().any(|fault| fault.starts_with("SL-STORE-ACCESS")), "{faults:?}");
    assert!(outage.recovered_after() < ms(1_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_06_scripts_that_are_flushed_are_no_outage() {
    let server = Server::start();
    let told = Told::default();
    let shared = store(&server).deadline(Duration::from_secs(5)).observer(told.clone());
    let layer = layer(&shared);
    shared.ready(Duration::from_secs(5)).await.unwrap();
    let shots = load(&layer, 1_000, ms(2_000));
    for _ in 0..18 {
        tokio::time::sleep(ms(100)).await;
        server.say::<()>("SCRIPT FLUSH");
    }
    let shots = shots.await.unwrap();
    assert_eq!(told.states(), [StoreState::Up]);
    let admitted = shots.iter().filter(|shot| shot.status == 200).count() as u64;
    assert!(admitted <= BURST + 2 * RATE + RATE / 10, "{admitted}");
    assert!(admitted >= 2 * RATE * 9 / 10, "{admitted}");
    // A handful for each flush.
    let calls = |name: &str| -> u64 {
        let line = server.info("commandstats", &format!("cmdstat_{name}")).unwrap_or_default();
        line.split(&['=', ','][..]).nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(0)
    };
    let sent = calls("eval");
    assert!((1..=18 * 9).contains(&sent), "{sent} scripts were sent in 18 flushes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_that_is_full_decides_alone() {
    let server = Server::start();
    let told = Told::default();
    let shared = store(&server).deadline(ms(500)).pipeline(4).observer(told.clone());
    let layer = layer(&shared);
    shared.ready(Duration::from_secs(5)).await.unwrap();
    server.say::<()>("CLIENT PAUSE 200 ALL");
    let shots = load(&layer, 500, ms(150)).await.unwrap();
    let (waited, at_once): (Vec<Shot>, Vec<Shot>) =
        shots.iter().partition(|shot| shot.took > ms(40));
    assert!(waited.len() <= 4, "{} waited", waited.len());
    assert!(at_once.len() > 30, "{} did not", at_once.len());
    let admitted = at_once.iter().filter(|shot| shot.status == 200).count() as u64;
    assert!((BURST / 4..=BURST / 2 + RATE / 2).contains(&admitted), "{admitted}");
    // What is full is not away.
    assert_eq!(told.states(), [StoreState::Up]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_11_refused_from_the_start_until_it_starts() {
    let told = Told::default();
    let port = free_port();
    let shared = Redis::new(format!("redis://127.0.0.1:{port}/")).unwrap().observer(told.clone());
    let layer = layer(&shared);
    let shots = load(&layer, 500, ms(2_500));
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(told.states(), [StoreState::Away(BackendErrorKind::Unavailable)]);
    let server = Server::on(port);
    let started = Instant::now();
    assert!(
        eventually(ms(1_000), || shared.state() == StoreState::Up).await,
        "{:?}",
        started.elapsed()
    );
    let shots = shots.await.unwrap();
    assert!(shots.iter().all(|shot| shot.took < ms(100) && matches!(shot.status, 200 | 429)));
    let faults = told.faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("SL-STORE: "), "{faults:?}");
    drop(server);
}

/// Accepts, reads and never answers.
fn black_hole() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let swallow =
            |mut stream: TcpStream| while stream.read(&mut [0; 4_096]).is_ok_and(|n| n > 0) {};
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || swallow(stream));
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rd_11_a_peer_that_accepts_and_never_answers() {
    let told = Told::default();
    let shared =
        Redis::new(format!("redis://127.0.0.1:{}/", black_hole())).unwrap().observer(told.clone());
    let layer = layer(&shared);
    let shots = load(&layer, 500, ms(2_000)).await.unwrap();
    assert!(
        shots.iter().all(|shot| shot.took < ms(100)),
        "{:?}",
        shots.iter().map(|s| s.took).max()
    );
    assert!(shots.iter().all(|shot| matches!(shot.status, 200 | 429)));
    assert_eq!(told.states(), [StoreState::Away(BackendErrorKind::Unavailable)]);
    // Once that is known, nobody waits.
    let known = told.0.lock().unwrap()[0].0;
    let after: Vec<_> = shots.iter().filter(|shot| shot.at > known).collect();
    let waited = after.iter().filter(|shot| shot.took > ms(5)).count();
    assert!(after.len() > 500 && waited * 50 <= after.len(), "{waited} of {}", after.len());
}

/// A server at some distance: it answers, too late for a short deadline and in time for a long one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_too_far_is_away_and_does_not_come_and_go() {
    let server = Server::start();
    let proxy = crate::proxy::Proxy::before(server.port);
    proxy.delays.store(30, std::sync::atomic::Ordering::Relaxed);
    let (near, far) = (Told::default(), Told::default());
    let short = Redis::new(proxy.url()).unwrap().observer(near.clone());
    let long = Redis::new(proxy.url()).unwrap().deadline(ms(300)).observer(far.clone());
    let layers = [layer(&short), layer(&long)];
    let shots = layers.each_ref().map(|layer| load(layer, 100, ms(3_000)));
    for shots in shots {
        assert!(shots.await.unwrap().iter().all(|shot| matches!(shot.status, 200 | 429)));
    }
    assert_eq!(near.states(), [StoreState::Away(BackendErrorKind::Timeout)]);
    assert_eq!(far.states(), [StoreState::Up]);
}
