//! Degraded answers, and which chain answers when several limits refuse.

use std::{future::pending, time::Duration};

use axum::{
    Extension, Router,
    extract::{Path, Query, Request},
    response::IntoResponse,
    routing::{get, post},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_sluice::{
    Decline, FixedWindow, InFlight, ManualClock, RateLimitLayer, Rejection, RejectionPolicy, Rule,
    event::Reason,
};

use crate::{
    support::{BOTH, Connection, Hits, get as request, serve},
    support_in_flight::{Hold, until},
};

const DEGRADED: StatusCode = StatusCode::NON_AUTHORITATIVE_INFORMATION;

/// A layer whose limit is full, as long as what comes with it is kept.
fn full(policy: RejectionPolicy) -> (RateLimitLayer, InFlight, impl Sized + use<>) {
    let slots = InFlight::new("one", 1);
    let taken = slots.try_acquire().unwrap();
    let limit = slots.clone().rejection(policy).spread(false);
    (RateLimitLayer::builder().in_flight(limit).build().unwrap(), slots, taken)
}

fn by_post(body: &'static str) -> http::Request<Full<Bytes>> {
    http::Request::post("/lists/7?page=3")
        .header("x-client", "a browser")
        .body(Full::from(body))
        .unwrap()
}

/// Says what it was given.
async fn tells(
    Path(list): Path<u32>,
    Query(query): Query<std::collections::BTreeMap<String, String>>,
    Extension(rejection): Extension<Rejection>,
    headers: HeaderMap,
    request: Request,
) -> impl IntoResponse {
    let method = request.method().clone();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(rejection.reason(), Reason::InFlight);
    let by = (rejection.rules()[0].rule(), rejection.status(), rejection.retry_after_secs());
    assert_eq!(by, ("one", StatusCode::SERVICE_UNAVAILABLE, Some(1)));
    let client = headers["x-client"].to_str().unwrap();
    (DEGRADED, format!("{method} {list} {} {client} {body:?}", query["page"]))
}

#[tokio::test]
async fn the_handler_gets_the_head_and_the_body_where_it_asks_for_it() {
    for wire in BOTH {
        for (takes, body) in [(false, r#"b"""#), (true, r#"b"an order""#)] {
            let policy = RejectionPolicy::degrade(tells);
            let policy = if takes { policy.taking_body() } else { policy };
            let (layer, slots, _taken) = full(policy);
            let hits = Hits::default();
            let app = Router::new().route("/lists/{list}", post(hits.handler())).layer(layer);
            let mut connection = Connection::open(serve(app).await, wire).await;
            let answer = connection.send(by_post("an order")).await;
            assert_eq!(answer.status, DEGRADED, "{wire:?}, takes the body: {takes}");
            assert_eq!(answer.body, format!("POST 7 3 a browser {body}"));
            assert!(!answer.headers.contains_key("retry-after"), "it is sent as it was made");
            assert_eq!((hits.get(), slots.in_flight()), (0, 1));
        }
    }
}

#[tokio::test]
async fn who_declines_hands_on_the_whole_request() {
    for wire in BOTH {
        let decline = RejectionPolicy::degrade(|| async { Err::<(), _>(Decline) });
        let queue = RejectionPolicy::queue(Duration::from_secs(3_600), 1);
        let (layer, slots, taken) = full(decline.or(queue));
        let echo = |body: String| async { body };
        let app = Router::new().route("/lists/{list}", post(echo)).layer(layer);
        let address = serve(app).await;
        let waits = tokio::spawn(async move {
            Connection::open(address, wire).await.send(by_post("an order")).await
        });
        until(|| slots.waiting() == 1).await;
        // The queue is full, and behind it comes the end of the chain.
        let refused = Connection::open(address, wire).await.send(by_post("another")).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers["retry-after"], "1");
        drop(taken);
        let served = waits.await.unwrap();
        assert_eq!((served.status, &*served.body), (StatusCode::OK, &b"an order"[..]), "{wire:?}");
        until(|| slots.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn who_took_the_body_and_declines_is_refused() {
    for wire in BOTH {
        let took = async |body: String| {
            assert_eq!(body, "an order");
            Err::<(), _>(Decline)
        };
        let policy = RejectionPolicy::degrade(took)
            .taking_body()
            .or(RejectionPolicy::respond_with(|rejection, _| rejection.reason().as_str()));
        let (layer, _slots, _taken) = full(policy);
        let app = Router::new().route("/lists/{list}", post(|| async {})).layer(layer);
        let refused =
            Connection::open(serve(app).await, wire).await.send(by_post("an order")).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{wire:?}");
        assert_eq!(refused.body, Reason::InFlight.as_str());
        assert_eq!(refused.headers["retry-after"], "1");
    }
}

#[tokio::test]
async fn above_256_degraded_answers_the_chain_goes_on() {
    for wire in BOTH {
        let (begin, mut begun) = mpsc::unbounded_channel();
        let hold = Hold::default();
        let held = hold.clone();
        let policy = RejectionPolicy::degrade(move || {
            begin.send(()).unwrap();
            let held = held.clone();
            async move {
                held.wait().await;
                DEGRADED
            }
        });
        let (layer, _slots, _taken) = full(policy);
        let address = serve(Router::new().route("/", get(|| async {})).layer(layer)).await;
        let mut degraded = Vec::new();
        for _ in 0..256 {
            // A connection each, since a server has an opinion on how many streams one may have.
            degraded.push(tokio::spawn(async move {
                Connection::open(address, wire).await.get("/").await.status
            }));
            begun.recv().await.unwrap();
        }
        let mut next = Connection::open(address, wire).await;
        let above = tokio::time::timeout(Duration::from_secs(10), next.get("/")).await;
        let above = above.expect("a 257th answer is under way").status;
        assert_eq!(above, StatusCode::SERVICE_UNAVAILABLE, "{wire:?}");
        // One that leaves makes way for another.
        degraded.pop().unwrap().abort();
        degraded.push(tokio::spawn(async move {
            loop {
                let status = next.get("/").await.status;
                if status != StatusCode::SERVICE_UNAVAILABLE {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }));
        let begins = tokio::time::timeout(Duration::from_secs(10), begun.recv()).await;
        begins.expect("the place is given back").unwrap();
        hold.let_go(256);
        let mut ended = 0;
        for answer in degraded {
            ended += u32::from(answer.await.unwrap() == DEGRADED);
        }
        assert_eq!(ended, 256, "{wire:?}");
    }
}

#[tokio::test]
async fn a_degrade_handler_that_panics_or_never_ends_leaves_nothing_behind() {
    for wire in BOTH {
        let answers = async |request: Request| match request.uri().path() {
            "/panics" => std::panic::resume_unwind(Box::new("as intended")),
            "/never" => pending().await,
            _ => DEGRADED,
        };
        // One at a time, so that one that is not given back is seen at once.
        let (layer, slots, taken) = full(RejectionPolicy::degrade(answers).max_degraded(1));
        let limited = Router::new().fallback(|| async {}).layer(layer);
        let plain = serve(limited.clone()).await;
        let caught = serve(limited.layer(CatchPanicLayer::new())).await;
        for _ in 0..10 {
            let mut closed = Connection::open(plain, wire).await;
            assert!(closed.try_begin(request("/panics")).await.is_err(), "{wire:?}");
            let mut open = Connection::open(caught, wire).await;
            assert_eq!(open.get("/panics").await.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(open.get("/").await.status, DEGRADED, "{wire:?}");
        }
        let mut stays = Connection::open(plain, wire).await;
        let stays = tokio::spawn(async move { stays.get("/never").await.status });
        let mut other = Connection::open(plain, wire).await;
        // A timer would be a guess: it is at work once nobody else gets the place.
        let mut statuses = Vec::new();
        while statuses.last() != Some(&StatusCode::SERVICE_UNAVAILABLE) {
            statuses.push(other.get("/").await.status);
            assert!(statuses.len() < 10_000, "{wire:?}: it holds no place");
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            assert_eq!(other.get("/").await.status, StatusCode::SERVICE_UNAVAILABLE);
        }
        assert!(!stays.is_finished());
        stays.abort();
        let mut tries = 0;
        while other.get("/").await.status != DEGRADED {
            tries += 1;
            assert!(tries < 1_000, "{wire:?}: its client has left");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!((slots.in_flight(), slots.waiting()), (1, 0));
        drop(taken);
        assert_eq!(other.get("/").await.status, StatusCode::OK);
    }
}

/// Which chain answers, of a rate rule that may be spent and a limit that may be full.
async fn answers(
    rule: Option<RejectionPolicy>,
    slots: Option<RejectionPolicy>,
    layer: RejectionPolicy,
) -> [(u16, Option<String>, Bytes); 3] {
    let with = |spent: bool, is_full: bool| {
        let (rule, slots, layer) = (rule.clone(), slots.clone(), layer.clone());
        async move {
            let daily = Rule::new("daily", FixedWindow::new(1, Duration::from_secs(60)))
                .spread(false)
                .when(move |_| spent);
            let one = InFlight::new("one", 1).spread(false);
            let layer = RateLimitLayer::builder()
                .rule(match rule {
                    Some(policy) => daily.rejection(policy),
                    None => daily,
                })
                .in_flight(match slots {
                    Some(policy) => one.clone().rejection(policy),
                    None => one.clone(),
                })
                .rejection(layer)
                .clock(ManualClock::new())
                .build()
                .unwrap();
            let app = Router::new().route("/", get(|| async {})).layer(layer);
            let mut connection =
                Connection::open(serve(app).await, crate::support::Wire::Http1).await;
            if spent {
                assert_eq!(connection.get("/").await.status, StatusCode::OK);
                until(|| one.in_flight() == 0).await;
            }
            let _taken = is_full.then(|| one.try_acquire().unwrap());
            let answer = connection.get("/").await;
            let retry = answer.headers.get("retry-after");
            let retry = retry.map(|value| value.to_str().unwrap().to_owned());
            (answer.status.as_u16(), retry, answer.body)
        }
    };
    [with(true, false).await, with(false, true).await, with(true, true).await]
}

fn says(text: &'static str) -> RejectionPolicy {
    RejectionPolicy::respond_with(move |_, _| text)
}

fn degrades(text: &'static str) -> RejectionPolicy {
    RejectionPolicy::degrade(move || async move { (DEGRADED, text) })
}

#[tokio::test]
async fn statuses_and_hints_are_those_of_who_refuses() {
    let [rate, full, both] = answers(None, None, RejectionPolicy::respond()).await;
    assert_eq!((rate.0, rate.1.as_deref()), (429, Some("60")));
    assert_eq!((full.0, full.1.as_deref()), (503, Some("1")));
    assert_eq!((both.0, both.1.as_deref()), (429, Some("60")), "the rate's answer");
    let text = std::str::from_utf8(&both.2).unwrap();
    assert!(text.ends_with(r#""violated-policies":["daily","one"]}"#), "{text}");
}

#[tokio::test]
async fn of_several_that_refuse_one_chain_answers() {
    let texts = async |rule, slots, layer| {
        answers(rule, slots, layer).await.map(|(status, retry, body)| {
            let body = String::from_utf8(body.to_vec()).unwrap();
            (status, retry.unwrap_or_default(), body)
        })
    };
    let expect = |rows: [(u16, &str, &str); 3]| {
        rows.map(|(status, retry, body)| (status, retry.to_owned(), body.to_owned()))
    };
    // Both respond alone: the first of them.
    let seen = texts(Some(says("rate")), Some(says("full")), says("layer")).await;
    assert_eq!(seen, expect([(429, "60", "rate"), (503, "1", "full"), (429, "60", "rate")]));
    // One has respond alone: that one, with the longest wait as the hint.
    let seen = texts(Some(degrades("rate")), Some(says("full")), says("layer")).await;
    assert_eq!(seen, expect([(203, "", "rate"), (503, "1", "full"), (429, "60", "full")]));
    let seen = texts(Some(says("rate")), Some(degrades("full")), says("layer")).await;
    assert_eq!(seen, expect([(429, "60", "rate"), (203, "", "full"), (429, "60", "rate")]));
    // Neither has: the first, rules before in-flight limits.
    let seen = texts(Some(degrades("rate")), Some(degrades("full")), says("layer")).await;
    assert_eq!(seen, expect([(203, "", "rate"), (203, "", "full"), (203, "", "rate")]));
    // What has none of its own has the layer's.
    let seen = texts(None, Some(degrades("full")), says("layer")).await;
    assert_eq!(seen, expect([(429, "60", "layer"), (203, "", "full"), (429, "60", "layer")]));
}
