//! After ten thousand requests of every kind nothing is left in flight, nobody waits, no key is known.

use std::{
    future::pending,
    net::SocketAddr,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, handler::Handler, routing::get};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::task::JoinSet;
use tower_http::timeout::TimeoutLayer;
use tower_sluice::{
    Decline, FixedWindow, InFlight, Missing, RateLimitLayer, RejectionPolicy, Rule, key,
};

use crate::{
    support::{BOTH, Connection, Wire, get as request, serve},
    support_in_flight::{Frames, Hold, until},
};

const MS: Duration = Duration::from_millis(1);
const CLIENTS: u64 = 100;
const REQUESTS: u64 = 100;

/// How often what happened, by status; 0 is a connection that broke, 1 a client who left.
struct Seen([AtomicU64; 600]);

impl Seen {
    fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 600])
    }

    fn add(&self, what: usize) {
        self.0[what].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self, what: usize) -> u64 {
        self.0[what].load(Ordering::Relaxed)
    }
}

fn app(slots: &InFlight, users: &InFlight, hold: &Hold) -> Router {
    let hold = hold.clone();
    let panics = async || {
        if true {
            resume_unwind(Box::new("as intended"));
        }
    };
    let streams = async || {
        let (frames, body) = Frames::new();
        for piece in ["one", "two", "three"] {
            frames.send(piece).unwrap();
        }
        Body::new(body)
    };
    let late = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, MS);
    let degrade = RejectionPolicy::degrade(|request: Request| async move {
        match request.uri().path() {
            "/slow" => Err(Decline),
            _ => Ok(StatusCode::NON_AUTHORITATIVE_INFORMATION),
        }
    });
    let by_user = || key::header("x-user-id");
    // Some users spend what they have on the way.
    let rule = Rule::new("daily", FixedWindow::per_day(30))
        .key(by_user())
        .missing(Missing::Skip)
        .rejection(RejectionPolicy::respond());
    let layer = RateLimitLayer::builder()
        .rule(rule)
        .in_flight(slots.clone())
        .in_flight(users.clone().key(by_user()).missing(Missing::Skip))
        .rejection(degrade.max_degraded(4).or(RejectionPolicy::queue(20 * MS, 30)))
        .build()
        .unwrap();
    Router::new()
        .route("/ok", get(|| async { "ok" }))
        .route("/slow", get(|| tokio::time::sleep(2 * MS)))
        .route("/error", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
        .route("/panics", get(panics))
        .route("/leaves", get(pending::<()>))
        .route("/late", get(pending::<()>.layer(late)))
        .route("/streams", get(streams))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
        .route("/held", get(move || async move { hold.wait().await }))
        .layer(layer)
}

/// A hundred requests of one client, who connects anew where a connection is over.
async fn client(address: SocketAddr, wire: Wire, number: u64, seen: Arc<Seen>) {
    const KINDS: [&str; 11] = [
        "/ok", "/slow", "/error", "/panics", "/leaves", "/late", "/streams", "/breaks", "/empty",
        "/head", "/slow",
    ];
    let mut connection = Connection::open(address, wire).await;
    for n in 0..REQUESTS {
        let kind = KINDS[((number * 31 + n * 7) % 11) as usize];
        let mut asks = request(match kind {
            "/breaks" => "/streams",
            "/head" => "/ok",
            kind => kind,
        });
        if kind == "/head" {
            *asks.method_mut() = Method::HEAD;
        }
        if n % 3 > 0 {
            let user = format!("u{}", number % 20);
            asks.headers_mut().insert("x-user-id", user.parse().unwrap());
        }
        if kind == "/leaves" {
            let answer = tokio::time::timeout(2 * MS, connection.try_begin(asks)).await;
            seen.add(usize::from(answer.is_err()));
            connection = Connection::open(address, wire).await;
            continue;
        }
        let Ok(answer) = connection.try_begin(asks).await else {
            seen.add(0);
            assert_eq!(kind, "/panics", "only a panic breaks a connection");
            connection = Connection::open(address, wire).await;
            continue;
        };
        seen.add(answer.status().as_u16().into());
        let mut body = answer.into_body();
        if kind == "/breaks" {
            let _ = body.frame().await;
            drop(body);
            connection = Connection::open(address, wire).await;
        } else {
            body.collect().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_ten_thousand_requests_of_every_kind_nothing_is_left() {
    let (slots, users, hold) =
        (InFlight::new("all", 20), InFlight::new("user", 3), Hold::default());
    let address = serve(app(&slots, &users, &hold)).await;
    let seen = Arc::new(Seen::new());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let wire = BOTH[(number % 2) as usize];
        clients.spawn(client(address, wire, number, seen.clone()));
    }
    let changes = (slots.clone(), users.clone());
    let changing = tokio::spawn(async move {
        for (all, each) in [(5, 1), (20, 3), (2, 2), (40, 5)].into_iter().cycle() {
            changes.0.set_limit(all).unwrap();
            changes.1.set_limit(each).unwrap();
            tokio::time::sleep(3 * MS).await;
        }
    });
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    changing.abort();
    assert!(changing.await.unwrap_err().is_cancelled());
    slots.set_limit(20).unwrap();
    users.set_limit(3).unwrap();

    let total: u64 = (0..600).map(|what| seen.get(what)).sum();
    assert_eq!(total, CLIENTS * REQUESTS);
    // A 503 takes a queue that is full or 20 ms long, which a quick machine may never see.
    for what in [0, 1, 200, 203, 204, 429, 500, 504] {
        assert!(seen.get(what) > 0, "nothing of {what} was among them");
    }
    let counts = |limit: &InFlight| (limit.in_flight(), limit.waiting(), limit.tracked_keys());
    until(|| [counts(&slots), counts(&users)] == [(0, 0, 0); 2]).await;

    // Exactly as many as the limit says fit, and one more is answered degraded.
    let ask = || async move { Connection::open(address, Wire::Http1).await.get("/held").await };
    let mut held = JoinSet::new();
    for _ in 0..20 {
        held.spawn(ask());
    }
    until(|| slots.in_flight() == 20).await;
    assert_eq!(ask().await.status, StatusCode::NON_AUTHORITATIVE_INFORMATION);
    hold.let_go(20);
    while let Some(answer) = held.join_next().await {
        assert_eq!(answer.unwrap().status, StatusCode::OK);
    }
    until(|| [counts(&slots), counts(&users)] == [(0, 0, 0); 2]).await;
}
