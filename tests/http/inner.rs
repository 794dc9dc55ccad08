//! What reaches the service inside: only what was allowed, and only when it is ready.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::sync::{Notify, Semaphore};
use tower::{
    ServiceBuilder,
    limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer},
};
use tower_sluice::{
    Backend, BackendError, ConfigError, Decision, FixedWindow, Missing, RateLimitLayer, Rule,
    backend::{Answer, Charge, LimiterId, LimiterSpec, Receipt, Verdict, Verdicts},
    clock::Nanos,
    key,
};

use crate::support::{BOTH, Connection, Hits, LIMIT, assert_exact, flood, limit, serve};

fn by(user: &str, path: &str) -> Request<Full<Bytes>> {
    Request::get(path).header("x-user-id", user).body(Full::default()).unwrap()
}

fn per_user(permits: u64) -> Rule {
    Rule::new("per-user", FixedWindow::per_day(permits))
        .key(key::header("x-user-id"))
        .missing(Missing::Skip)
}

#[tokio::test]
async fn concurrency_limit_inside_neither_panics_nor_runs_dry() {
    for wire in BOTH {
        let hits = Hits::default();
        let stack = ServiceBuilder::new().layer(limit()).layer(ConcurrencyLimitLayer::new(2));
        let app = Router::new().route("/a", get(hits.handler())).layer(stack);
        let address = serve(app).await;
        assert_exact(flood(address, wire, "/a").await, &hits, wire);
    }
}

#[tokio::test]
async fn refusals_give_the_readiness_of_the_inner_service_back() {
    for wire in BOTH {
        let permits = Arc::new(Semaphore::new(1));
        let limit = RateLimitLayer::builder().rule(per_user(1)).build().unwrap();
        let stack = ServiceBuilder::new()
            .layer(limit)
            .layer(GlobalConcurrencyLimitLayer::with_semaphore(permits.clone()));
        let address = serve(Router::new().route("/a", get(|| async {})).layer(stack)).await;
        // Connections of a refused user stay open; the only permit must not stay with them.
        let mut refused = Vec::new();
        for n in 0..20 {
            let mut connection = Connection::open(address, wire).await;
            let status = connection.send(by("alice", "/a")).await.status;
            assert_eq!(status == StatusCode::OK, n == 0, "{wire:?}, request {n}");
            refused.push(connection);
        }
        assert_eq!(permits.available_permits(), 1, "{wire:?}");
        let bob = Connection::open(address, wire).await.send(by("bob", "/a")).await;
        assert_eq!(bob.status, StatusCode::OK, "{wire:?}");
    }
}

/// A backend that allows everything, once it is told to answer.
#[derive(Default)]
struct Waits {
    told: Notify,
    asked: Notify,
    refuse: Mutex<bool>,
}

struct WaitingBackend(Arc<Waits>);

type Pending = Pin<Box<dyn Future<Output = Result<Verdicts, BackendError>> + Send>>;

impl Backend for WaitingBackend {
    fn register(&self, _: &LimiterSpec) -> Result<LimiterId, ConfigError> {
        Ok(LimiterId(0))
    }

    fn check(&self, _: Nanos, charges: &[Charge<'_>]) -> Answer<Verdicts> {
        let (waits, n) = (self.0.clone(), charges.len());
        let pending: Pending = Box::pin(async move {
            waits.asked.notify_one();
            waits.told.notified().await;
            let decision = if *waits.refuse.lock().unwrap() {
                Decision::denied(1, 0, Duration::from_secs(7), Duration::from_secs(7))
            } else {
                Decision::allowed(1, 0, Duration::ZERO)
            };
            let verdict = || Verdict::new(decision, Receipt::new(LimiterId(0), [0; 4]));
            Ok((0..n).map(|_| verdict()).collect())
        });
        Answer::Pending(pending)
    }

    fn undo(&self, _: Nanos, _: &[Receipt]) {}

    fn peek(&self, _: Nanos, _: &Charge<'_>) -> Answer<Decision> {
        Answer::Ready(Ok(Decision::allowed(1, 1, Duration::ZERO)))
    }

    fn reset(&self, _: Nanos, _: &Charge<'_>) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[tokio::test]
async fn while_a_backend_is_asked_the_inner_service_holds_no_permit_and_is_not_called() {
    for wire in BOTH {
        let (waits, hits) = (Arc::new(Waits::default()), Hits::default());
        let permits = Arc::new(Semaphore::new(1));
        let limit = RateLimitLayer::builder()
            .rule(Rule::new("remote", FixedWindow::per_day(1)).spread(false))
            .backend(WaitingBackend(waits.clone()))
            .build()
            .unwrap();
        let stack = ServiceBuilder::new()
            .layer(limit)
            .layer(GlobalConcurrencyLimitLayer::with_semaphore(permits.clone()));
        let address = serve(Router::new().route("/a", get(hits.handler())).layer(stack)).await;
        let ask =
            || tokio::spawn(async move { Connection::open(address, wire).await.get("/a").await });

        let allowed = ask();
        waits.asked.notified().await;
        assert_eq!((permits.available_permits(), hits.get()), (1, 0), "{wire:?}");
        waits.told.notify_one();
        assert_eq!(allowed.await.unwrap().status, StatusCode::OK);
        assert_eq!(hits.get(), 1, "{wire:?}");

        *waits.refuse.lock().unwrap() = true;
        let refused = ask();
        waits.asked.notified().await;
        waits.told.notify_one();
        let refused = refused.await.unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers["retry-after"], "7");
        assert_eq!((permits.available_permits(), hits.get()), (1, 1), "{wire:?}");
    }
}

#[tokio::test]
async fn a_client_who_leaves_while_a_backend_is_asked_leaves_nothing_held() {
    for wire in BOTH {
        let (waits, hits) = (Arc::new(Waits::default()), Hits::default());
        let limit = RateLimitLayer::builder()
            .rule(Rule::new("local", FixedWindow::per_day(LIMIT)))
            .rule(
                Rule::new("remote", FixedWindow::per_day(1)).backend(WaitingBackend(waits.clone())),
            )
            .build()
            .unwrap();
        let handle = limit.handle();
        let address = serve(Router::new().route("/a", get(hits.handler())).layer(limit)).await;
        let mut connection = Connection::open(address, wire).await;
        let leaves = tokio::spawn(async move { connection.get("/a").await.status });
        waits.asked.notified().await;
        let remaining = async || handle.peek("local", (), 1).await.unwrap().remaining();
        assert_eq!(remaining().await, LIMIT - 1, "held while the other rule is asked");
        leaves.abort();
        for _ in 0..500 {
            if remaining().await == LIMIT {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(remaining().await, LIMIT, "{wire:?}: given back");
        assert_eq!(hits.get(), 0, "{wire:?}");
    }
}

#[tokio::test]
async fn a_client_who_leaves_while_he_is_served_has_spent_his_permit() {
    for wire in BOTH {
        let (started, limit) = (Arc::new(Notify::new()), limit());
        let handle = limit.handle();
        let tell = started.clone();
        let serving = move || async move {
            tell.notify_one();
            std::future::pending::<()>().await;
        };
        let app =
            Router::new().route("/slow", get(serving)).route("/a", get(|| async {})).layer(limit);
        let address = serve(app).await;
        for n in 1..=5 {
            let mut connection = Connection::open(address, wire).await;
            let leaves = tokio::spawn(async move { connection.get("/slow").await.status });
            started.notified().await;
            leaves.abort();
            assert!(leaves.await.unwrap_err().is_cancelled());
            let remaining = handle.peek("all", (), 1).await.unwrap().remaining();
            assert_eq!(remaining, LIMIT - n, "{wire:?}");
        }
        let rest = Connection::open(address, wire).await.get_many("/a", 80).await;
        let served = rest.iter().filter(|status| **status == StatusCode::OK).count();
        assert_eq!(served as u64, LIMIT - 5, "{wire:?}");
    }
}
