//! What is wrong with a set-up is told, and by which words; what works is no fault.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    time::Duration,
};

use tower_sluice::{
    Backend, BackendErrorKind, ConfigError, FixedWindow, RateLimitLayer, Rule, StartLevel,
    TokenBucket, WarmUp,
    backend::{Charge, LimiterSpec, Redis},
    clock::Nanos,
    event::{Fault, StoreState},
};

use crate::{
    load::Told,
    server::{Server, free_port},
};

fn no_url(url: &str) -> ConfigError {
    Redis::new(url).unwrap_err()
}

#[test]
fn what_is_no_url_is_an_error_without_its_password() {
    for url in [
        "",
        "nonsense",
        "http://127.0.0.1/",
        "redis://",
        "redis://host:port/",
        "redis://user:hunter2@host:99999/",
    ] {
        let error = no_url(url);
        assert_eq!(error.field(), "url", "{url}");
        let text = error.to_string();
        assert!(text.contains("redis://[user:password@]host[:port][/database]"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert_eq!(Redis::any_of(Vec::<String>::new()).unwrap_err().field(), "url");
    assert_eq!(Redis::cluster(Vec::<String>::new()).unwrap_err().field(), "url");
}

#[test]
fn settings_that_make_no_sense_are_errors_of_the_rule() {
    let shared = Redis::new("redis://127.0.0.1:1/").unwrap();
    let build = |shared: Redis| {
        let rule = Rule::new("orders", TokenBucket::per_second(10)).backend(shared);
        RateLimitLayer::builder().rule(rule).build().map(drop).unwrap_err()
    };
    for (shared, field) in [
        (shared.clone().deadline(Duration::ZERO), "deadline"),
        (shared.clone().pipeline(0), "pipeline"),
        (shared.clone().instances(0), "instances"),
        (shared.clone().share(0.99), "share"),
        (shared.clone().share(f64::NAN), "share"),
        (shared.clone().prefix("a{b}"), "prefix"),
        (shared.prefix(""), "prefix"),
    ] {
        let error = build(shared);
        assert_eq!((error.rule(), error.field()), (Some("orders"), field), "{error}");
    }
}

#[test]
fn what_a_fleet_cannot_count_is_an_error_of_the_rule() {
    let shared = Redis::new("redis://127.0.0.1:1/").unwrap();
    let warm_up = WarmUp::over(Duration::from_secs(60));
    for (algorithm, field) in [
        (TokenBucket::per_second(10).warm_up(warm_up), "warm_up"),
        (TokenBucket::per_second(10).start(StartLevel::Empty), "start"),
        (TokenBucket::new(1, Duration::from_nanos(1_500)), "period"),
        (TokenBucket::per_day(1).burst(1_000_000), "burst"),
    ] {
        let rule = Rule::new("orders", algorithm).backend(shared.clone());
        let error = RateLimitLayer::builder().rule(rule).build().map(drop).unwrap_err();
        assert_eq!((error.rule(), error.field()), (Some("orders"), field), "{error}");
    }
}

/// The first failure, and what was told of it.
async fn told_of(url: String) -> (BackendErrorKind, Vec<String>) {
    let told = Told::default();
    let shared = Redis::new(url).unwrap().observer(told.clone());
    let id = shared.register(&LimiterSpec::new("window", FixedWindow::per_minute(2))).unwrap();
    shared.ready(Duration::from_millis(800)).await.unwrap_err();
    // It is counted here meanwhile: neither an error nor unlimited.
    let mut passed = 0;
    for _ in 0..10 {
        let verdicts = shared.check(Nanos::ZERO, &[Charge::new(id, 1)]).resolve().await.unwrap();
        passed += u32::from(verdicts.all_allowed());
    }
    assert_eq!(passed, 2);
    let StoreState::Away(kind) = shared.state() else { panic!("{:?}", shared.state()) };
    assert_eq!(told.states().len(), 1);
    (kind, told.faults())
}

/// That this fault was told once, and that nobody knows how many there are.
fn told(faults: &[String], code: &str) {
    let codes: Vec<_> = faults.iter().map(|fault| fault.split(':').next().unwrap()).collect();
    assert_eq!(codes, [code, "SL-SHARE"], "{faults:?}");
}

#[tokio::test]
async fn nobody_listens() {
    let (kind, faults) = told_of(format!("redis://127.0.0.1:{}/", free_port())).await;
    assert_eq!(kind, BackendErrorKind::Unavailable);
    told(&faults, "SL-STORE");
}

#[tokio::test]
async fn a_wrong_password_and_none() {
    let server = Server::start();
    server.say::<()>("CONFIG SET requirepass secret");
    for url in [format!("redis://:wrong@127.0.0.1:{}/", server.port), server.url()] {
        let (kind, faults) = told_of(url).await;
        assert_eq!(kind, BackendErrorKind::Denied);
        told(&faults, "SL-STORE-ACCESS");
        assert!(!faults[0].contains("wrong@"));
    }
}

#[tokio::test]
async fn a_user_who_may_not_write() {
    let server = Server::start();
    server.say::<()>("ACL SETUSER reader on >secret ~* +@read +@connection");
    let (kind, faults) = told_of(format!("redis://reader:secret@127.0.0.1:{}/", server.port)).await;
    assert_eq!(kind, BackendErrorKind::Denied);
    told(&faults, "SL-STORE-ACCESS");
}

#[tokio::test]
async fn a_database_that_is_not_there() {
    let server = Server::start();
    let (kind, faults) = told_of(format!("{}99", server.url())).await;
    assert_eq!(kind, BackendErrorKind::NoDatabase);
    told(&faults, "SL-STORE-DB");
}

#[tokio::test]
async fn another_database_is_another_count() {
    let server = Server::start();
    for database in [0, 3] {
        let shared = crate::state::exact(format!("{}{database}", server.url())).await;
        let id = crate::state::keyed(&shared, "one", FixedWindow::per_minute(1));
        assert!(crate::state::ask(&shared, id, b"a").await);
        assert!(!crate::state::ask(&shared, id, b"a").await);
    }
}

/// A server that answers each command so.
pub(crate) fn answering(answer: impl Fn(&str) -> String + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, mut to) = (answer.clone(), stream.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream).lines();
                // `*n`, then n times the length and the word.
                while let Some(Ok(count)) = lines.next() {
                    let count: usize = count.trim_start_matches('*').parse().unwrap_or(0);
                    let mut words = Vec::new();
                    for _ in 0..count {
                        let length: usize = lines.next().unwrap().unwrap()[1..].parse().unwrap();
                        let mut word = lines.next().unwrap().unwrap();
                        while word.len() < length {
                            word += "\n";
                            word += &lines.next().unwrap().unwrap();
                        }
                        words.push(word);
                    }
                    if to.write_all(answer(&words.join(" ")).as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    format!("redis://127.0.0.1:{port}/")
}

#[tokio::test]
async fn a_server_that_is_too_old() {
    let old = |said: &str| match said.starts_with("EVAL") {
        // As Redis 6.0 says that it does not know an option.
        true => "-ERR Error running script: ERR syntax error\r\n".to_owned(),
        false => "+OK\r\n".to_owned(),
    };
    let (kind, faults) = told_of(answering(old)).await;
    assert_eq!(kind, BackendErrorKind::TooOld);
    told(&faults, "SL-STORE-OLD");
}

#[tokio::test]
async fn a_part_of_a_cluster_asked_as_a_server() {
    let moved = |said: &str| match said.starts_with("EVAL") {
        true => "-MOVED 866 127.0.0.1:7001\r\n".to_owned(),
        false => "+OK\r\n".to_owned(),
    };
    let (kind, faults) = told_of(answering(moved)).await;
    assert_eq!(kind, BackendErrorKind::Cluster);
    told(&faults, "SL-STORE-CLUSTER");
}

#[tokio::test]
async fn replies_of_another_shape_are_an_outage_after_the_third() {
    let told = Told::default();
    // All is well but what scripts answer.
    let odd = |said: &str| match said.starts_with("EVALSHA") {
        true => "*2\r\n+what\r\n:1\r\n".to_owned(),
        false => "+OK\r\n".to_owned(),
    };
    let shared = Redis::new(answering(odd)).unwrap().observer(told.clone()).instances(1);
    let id = shared.register(&LimiterSpec::new("window", FixedWindow::per_minute(5))).unwrap();
    shared.ready(Duration::from_secs(1)).await.unwrap();
    let mut passed = 0;
    for _ in 0..10 {
        let verdicts = shared.check(Nanos::ZERO, &[Charge::new(id, 1)]).resolve().await.unwrap();
        passed += u32::from(verdicts.all_allowed());
    }
    assert_eq!(passed, 5, "counted here, each answer");
    assert_eq!(told.states()[..2], [StoreState::Up, StoreState::Away(BackendErrorKind::Protocol)]);
}

#[tokio::test]
async fn a_silenced_fault_is_not_told() {
    let told = Told::default();
    let shared =
        Redis::new(format!("redis://127.0.0.1:{}/", free_port())).unwrap().observer(told.clone());
    let shared = shared.silence(Fault::Store);
    shared.ready(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(told.faults(), Vec::<String>::new());
    assert_eq!(told.states(), [StoreState::Away(BackendErrorKind::Unavailable)]);
}

#[tokio::test]
async fn ready_waits_until_it_is() {
    let port = free_port();
    let shared = Redis::new(format!("redis://127.0.0.1:{port}/")).unwrap();
    let waiting = tokio::spawn({
        let shared = shared.clone();
        async move { shared.ready(Duration::from_secs(5)).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let server = Server::on(port);
    waiting.await.unwrap().unwrap();
    assert_eq!(shared.state(), StoreState::Up);
    drop(server);
}

#[test]
fn it_is_built_without_a_runtime_and_outlives_one() {
    let server = Server::start();
    let shared = Redis::new(server.url()).unwrap().deadline(Duration::from_secs(5)).refuse();
    let id = shared.register(&LimiterSpec::new("window", FixedWindow::per_minute(3))).unwrap();
    let ask = async || {
        let verdicts = shared.check(Nanos::ZERO, &[Charge::new(id, 1)]).resolve().await;
        verdicts.unwrap().all_allowed()
    };
    // As tests do, each on a runtime of its own.
    for expected in [true, true, true, false] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(ask()), expected);
    }
}
