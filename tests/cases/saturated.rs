//! What cases of other areas say of limits that are full, of requests that wait, and of degraded answers.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use http::StatusCode;
use tokio::{runtime, task::JoinSet};
use tower_http::cors::CorsLayer;
use tower_sluice::{
    FixedWindow, Handle, InFlight, ManualClock, Missing, Observer, RateLimitLayer, RejectionPolicy,
    Rule,
    event::{Admitted, Finished, Rejected},
    key, matcher,
};

use crate::{
    support::{ask, by_user, get_with, request, tally},
    support_core::SECOND,
    support_wire::{Held, until},
};

const DEGRADED: StatusCode = StatusCode::NON_AUTHORITATIVE_INFORMATION;

fn limit(slots: &InFlight) -> RateLimitLayer {
    RateLimitLayer::builder().in_flight(slots.clone()).build().unwrap()
}

#[tokio::test]
async fn ht_09_preflights_pass_while_saturated() {
    for cors_outside in [true, false] {
        let (slots, held) = (InFlight::new("one", 1), Held::new());
        let hold = held.clone();
        let routes = Router::new().route("/held", get(move || async move { hold.wait().await }));
        let cors = CorsLayer::permissive();
        let app = if cors_outside {
            routes.layer(limit(&slots)).layer(cors)
        } else {
            routes.layer(cors).layer(limit(&slots))
        };
        let mut preflight = request("OPTIONS", "/held", None);
        for (name, value) in
            [("origin", "https://app.example"), ("access-control-request-method", "GET")]
        {
            preflight.headers_mut().insert(name, value.parse().unwrap());
        }
        let busy = tokio::spawn({
            let app = app.clone();
            async move { ask(&app, request("GET", "/held", None)).await.status }
        });
        until(|| slots.in_flight() == 1).await;
        let allowed = ask(&app, preflight).await;
        assert!(allowed.is_ok() && allowed.headers.contains_key("access-control-allow-methods"));
        if !cors_outside {
            // One that is none is counted, unless CORS answers it before the limit.
            let bare = ask(&app, request("OPTIONS", "/held", None)).await;
            assert_eq!(bare.status, StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(slots.in_flight(), 1);
        held.let_go(1);
        assert_eq!(busy.await.unwrap(), StatusCode::OK);
        held.assert_exactly(1, &app, &slots).await;
    }
}

#[tokio::test]
async fn ht_15_health_checks_pass_while_saturated() {
    let (slots, held) = (InFlight::new("two", 2), Held::new());
    let hold = held.clone();
    let by_address = Rule::new("ip", FixedWindow::per_minute(60))
        .key(key::client_ip().x_forwarded_for().trusted_proxies(["10.0.0.1"]));
    let layer = RateLimitLayer::builder()
        .rule(by_address)
        .in_flight(slots.clone())
        .exempt_matching(matcher::path("/healthz"))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let app = Router::new()
        .route("/api", get(move || async move { hold.wait().await }))
        .route("/healthz", get(|| async { "alive" }))
        .layer(layer);
    let api = || get_with("/api", Some("10.0.0.1"), &[("x-forwarded-for", "192.0.2.1")]);
    let mut busy = JoinSet::new();
    for _ in 0..2 {
        let (app, api) = (app.clone(), api());
        busy.spawn(async move { ask(&app, api).await.status });
    }
    until(|| slots.in_flight() == 2).await;
    assert_eq!(ask(&app, api()).await.status, StatusCode::SERVICE_UNAVAILABLE);
    for peer in [Some("10.0.0.9"), None] {
        let probes = (0..200).map(|_| request("GET", "/healthz", peer));
        assert_eq!(tally(&app, probes).await, (200, 0));
    }
    assert_eq!(slots.in_flight(), 2);
    held.let_go(2);
    assert_eq!(busy.join_all().await, [StatusCode::OK; 2]);
    // Shed requests spent nothing: there is room for 58 more.
    held.let_go(58);
    assert_eq!(tally(&app, (0..60).map(|_| api())).await, (58, 2));
}

/// Uses the layer's handle and its in-flight limit from wherever it is called.
#[derive(Clone)]
struct Reenter {
    slots: InFlight,
    handle: Arc<OnceLock<Handle>>,
    calls: Arc<AtomicU64>,
}

impl Reenter {
    fn call(&self) {
        let Some(handle) = self.handle.get() else { return };
        assert!(handle.tracked_keys("each").is_ok_and(|keys| keys <= Some(100)));
        assert!(self.slots.in_flight_by("7") <= 2);
        // Counted shard by shard while permits come and go, so no closer than this.
        assert!(self.slots.in_flight() <= 1_000 && self.slots.tracked_keys() <= 1_000);
        assert!(self.slots.waiting() <= 1_000);
        self.slots.set_limit(2).unwrap();
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// The same, and takes a permit; not from where the end of one is told.
    fn call_and_take(&self) {
        self.call();
        drop(self.slots.try_acquire_by("somebody"));
    }
}

impl Observer for Reenter {
    fn admitted(&self, _: &Admitted<'_>) {
        self.call();
    }

    fn rejected(&self, _: &Rejected<'_>) {
        self.call();
    }

    fn finished(&self, _: &Finished) {
        self.call();
    }
}

#[test]
fn me_08_queue_and_degrade_may_reenter() {
    let mut single = runtime::Builder::new_current_thread();
    let mut double = runtime::Builder::new_multi_thread();
    for builder in [&mut single, double.worker_threads(2)] {
        let runtime = builder.enable_all().build().unwrap();
        let slots = InFlight::new("user", 2);
        let reenter =
            Reenter { slots: slots.clone(), handle: Arc::default(), calls: Arc::default() };
        let [keys, degrades, handles] = [(); 3].map(|()| reenter.clone());
        let degrade = RejectionPolicy::degrade(move || {
            degrades.call_and_take();
            async { DEGRADED }
        });
        let key = key::from_owned(move |head| {
            keys.call_and_take();
            Some(head.headers().get("x-user-id")?.to_str().ok()?.to_owned())
        });
        let layer = RateLimitLayer::builder()
            .rule(
                Rule::new("each", FixedWindow::per_day(6))
                    .max_keys(1_000)
                    .key(key.clone())
                    .missing(Missing::Skip),
            )
            .in_flight(slots.clone().key(key).missing(Missing::Skip).observer(reenter.clone()))
            .rejection(RejectionPolicy::queue(5 * SECOND, 1_000).or(degrade))
            .observer(reenter.clone())
            .build()
            .unwrap();
        assert!(reenter.handle.set(layer.handle()).is_ok());
        let handler = move || async move {
            handles.call_and_take();
            tokio::time::sleep(Duration::from_millis(1)).await;
            handles.call_and_take();
        };
        let app = Router::new().route("/", get(handler)).layer(layer);
        let statuses = runtime.block_on(async {
            let mut requests = JoinSet::new();
            for n in 0..1_000 {
                let app = app.clone();
                requests.spawn(async move {
                    let began = Instant::now();
                    let asks = by_user("/", &(n % 100).to_string());
                    (ask(&app, asks).await.status, began.elapsed())
                });
            }
            let all = tokio::time::timeout(60 * SECOND, requests.join_all()).await;
            all.expect("no deadlock")
        });
        // The longest wait and a second.
        assert!(statuses.iter().all(|(_, took)| *took <= 6 * SECOND));
        let count = |wanted| statuses.iter().filter(|(status, _)| *status == wanted).count();
        // Of ten requests of each user six fit; four wait in vain, a day being too long.
        assert_eq!((count(StatusCode::OK), count(DEGRADED)), (600, 400));
        assert!(reenter.calls.load(Ordering::Relaxed) >= 4_000);
        assert_eq!((slots.in_flight(), slots.waiting(), slots.tracked_keys()), (0, 0, 0));
    }
}
