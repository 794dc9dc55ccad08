//! An observer is told exactly once how each admitted request ended.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sluice::{FixedWindow, RateLimitLayer, Rule, event::Outcome};

use crate::support::{BOTH, Connection, Later, Record, get as request, serve};

fn observed(limit: u64) -> (RateLimitLayer, Record) {
    let record = Record::default();
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("all", FixedWindow::per_day(limit)))
        .exempt(|head| head.path() == "/exempt")
        .observer(record.clone())
        .build()
        .unwrap();
    (layer, record)
}

/// A body of these frames; `None` waits for ever.
fn frames(frames: &'static [Option<Result<&'static str, &'static str>>]) -> Body {
    Body::new(Frames(frames))
}

struct Frames(&'static [Option<Result<&'static str, &'static str>>]);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let Some((first, rest)) = self.0.split_first() else { return Poll::Ready(None) };
        let Some(frame) = first else { return Poll::Pending };
        self.0 = rest;
        Poll::Ready(Some(frame.map(|text| Frame::data(Bytes::from(text)))))
    }
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/text", get(|| async { "text" }).head(|| async { "text" }))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
        .route("/stream", get(|| async { frames(&[Some(Ok("one")), Some(Ok("two"))]) }))
        .route("/breaks", get(|| async { frames(&[Some(Ok("one")), Some(Err("broken"))]) }))
        .route("/stalls", get(|| async { frames(&[Some(Ok("one")), None]) }))
        .route(
            "/sized",
            get(|| async {
                ([("content-length", "6")], frames(&[Some(Ok("one")), Some(Ok("two"))]))
            }),
        )
        .route("/none", get(|| async { (StatusCode::NO_CONTENT, frames(&[])) }))
        .route("/same", get(|| async { (StatusCode::NOT_MODIFIED, frames(&[])) }))
        .route("/exempt", get(|| async {}))
        .layer(layer)
}

#[tokio::test]
async fn bodies_that_reach_their_end_are_completed() {
    for wire in BOTH {
        let (layer, record) = observed(100);
        let address = serve(app(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        for (n, (path, status)) in
            [("/text", 200), ("/empty", 204), ("/stream", 200), ("/nowhere", 404), ("/sized", 200)]
                .into_iter()
                .enumerate()
        {
            assert_eq!(connection.get(path).await.status.as_u16(), status);
            let endings = record.endings(n + 1).await;
            assert_eq!(endings[n], Outcome::Completed(status), "{wire:?} {path}");
        }
        assert_eq!(record.told().admitted, 5);
    }
}

#[tokio::test]
async fn answers_to_head_are_completed() {
    for wire in BOTH {
        let (layer, record) = observed(100);
        let address = serve(app(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        for path in ["/text", "/stream", "/stalls"] {
            let mut head = request(path);
            *head.method_mut() = http::Method::HEAD;
            let answer = connection.send(head).await;
            assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0));
        }
        assert_eq!(record.endings(3).await, [Outcome::Completed(200); 3], "{wire:?}");
    }
}

/// Whatever the handler gives as their body.
#[tokio::test]
async fn answers_that_can_have_no_body_are_completed() {
    for wire in BOTH {
        let (layer, record) = observed(100);
        let address = serve(app(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        for (path, status) in [("/none", 204), ("/same", 304)] {
            assert_eq!(connection.get(path).await.status.as_u16(), status);
        }
        let completed = [204, 304].map(Outcome::Completed);
        assert_eq!(record.endings(2).await, completed, "{wire:?}");
    }
}

#[tokio::test]
async fn bodies_that_break_have_failed() {
    for wire in BOTH {
        let (layer, record) = observed(100);
        let address = serve(app(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        // On HTTP/1.1 the head may not have been sent by then.
        if let Ok(answer) = connection.try_begin(request("/breaks")).await {
            assert!(answer.into_body().collect().await.is_err());
        }
        assert_eq!(record.endings(1).await, [Outcome::Failed], "{wire:?}");
    }
}

#[tokio::test]
async fn bodies_that_nobody_reads_to_the_end_are_dropped() {
    for wire in BOTH {
        let (layer, record) = observed(100);
        let address = serve(app(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        let mut answer = connection.begin(request("/stalls")).await;
        assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        assert_eq!(record.told().finished, [], "{wire:?}: its body is still running");
        drop((answer, connection));
        assert_eq!(record.endings(1).await, [Outcome::Dropped], "{wire:?}");
    }
}

#[tokio::test]
async fn requests_whose_client_left_before_the_answer_are_dropped() {
    for wire in BOTH {
        let (layer, record) = observed(100);
        let started = Arc::new(Notify::new());
        let tell = started.clone();
        let serving = move || async move {
            tell.notify_one();
            std::future::pending::<()>().await;
        };
        let address = serve(Router::new().route("/slow", get(serving)).layer(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        let leaves = tokio::spawn(async move { connection.get("/slow").await.status });
        started.notified().await;
        assert_eq!(record.told().finished, []);
        leaves.abort();
        assert_eq!(record.endings(1).await, [Outcome::Dropped], "{wire:?}");
    }
}

#[tokio::test]
async fn handlers_that_panic_are_told_once() {
    let (layer, record) = observed(100);
    let panics = || async {
        if true {
            panic!("of the handler, as intended");
        }
    };
    let app = Router::new().route("/panics", get(panics)).layer(layer);
    let call = tokio::spawn(app.oneshot(Request::get("/panics").body(Body::empty()).unwrap()));
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(record.endings(1).await, [Outcome::Dropped]);
}

#[tokio::test]
async fn errors_of_the_inner_service_have_failed_and_come_out_unchanged() {
    let (layer, record) = observed(100);
    let failing = layer.layer(service_fn(|_: Request| async {
        Err::<Response, _>(std::io::Error::other("inner"))
    }));
    let error = failing.oneshot(Request::new(Body::empty())).await.unwrap_err();
    assert_eq!(error.to_string(), "inner");
    assert_eq!(record.endings(1).await, [Outcome::Failed]);
}

/// Not ready when it is asked a second time; a clone has been asked as often.
#[derive(Clone)]
struct ReadyOnce(Arc<AtomicU32>);

impl Service<Request> for ReadyOnce {
    type Response = Response;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        let first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        Poll::Ready(if first { Ok(()) } else { Err("broke meanwhile") })
    }

    fn call(&mut self, _: Request) -> Self::Future {
        std::future::ready(Ok("served".into_response()))
    }
}

#[tokio::test]
async fn inner_services_that_break_while_a_backend_is_asked_have_failed() {
    let record = Record::default();
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("all", FixedWindow::per_day(9)))
        .backend(Later::default())
        .observer(record.clone())
        .build()
        .unwrap();
    let call = layer.layer(ReadyOnce(Arc::default())).oneshot(Request::new(Body::empty()));
    assert_eq!(call.await.unwrap_err(), "broke meanwhile");
    assert_eq!(record.endings(1).await, [Outcome::Failed]);
    assert_eq!(record.told().admitted, 1);
}

#[tokio::test]
async fn requests_a_backend_allowed_are_told_of_like_others() {
    for wire in BOTH {
        let record = Record::default();
        let layer = RateLimitLayer::builder()
            .rule(Rule::new("all", FixedWindow::per_day(2)))
            .backend(Later::default())
            .observer(record.clone())
            .build()
            .unwrap();
        let address = serve(app(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        for status in [200, 200, 429] {
            assert_eq!(connection.get("/stream").await.status.as_u16(), status);
        }
        assert_eq!(record.endings(2).await, [Outcome::Completed(200); 2], "{wire:?}");
        assert_eq!((record.told().admitted, record.told().rejected), (2, vec![429]));
    }
}

#[tokio::test]
async fn futures_that_were_never_polled_are_dropped() {
    let (layer, record) = observed(100);
    let mut service = layer
        .layer(service_fn(|_: Request| async { Ok::<_, Infallible>("served".into_response()) }));
    let future = service.ready().await.unwrap().call(Request::new(Body::empty()));
    drop(future);
    assert_eq!(record.endings(1).await, [Outcome::Dropped]);
}

#[tokio::test]
async fn kept_bodies_are_told_of_like_axums() {
    let (layer, record) = observed(100);
    let kept = layer.keep_body().layer(service_fn(|request: Request| async move {
        let body = if request.uri().path() == "/empty" { Bytes::new() } else { "kept".into() };
        Ok::<_, Infallible>(http::Response::new(Full::new(body)))
    }));
    let call = |path| kept.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
    assert_eq!(call("/a").await.unwrap().into_body().collect().await.unwrap().to_bytes(), "kept");
    drop(call("/empty").await.unwrap());
    drop(call("/a").await.unwrap());
    let expected = [Outcome::Completed(200), Outcome::Completed(200), Outcome::Dropped];
    assert_eq!(record.endings(3).await, expected);
}

#[tokio::test]
async fn exempt_and_refused_requests_have_no_ending() {
    for wire in BOTH {
        let (layer, record) = observed(1);
        let address = serve(app(layer)).await;
        let mut connection = Connection::open(address, wire).await;
        assert_eq!(connection.get("/text").await.status, StatusCode::OK);
        for _ in 0..3 {
            assert_eq!(connection.get("/exempt").await.status, StatusCode::OK);
            assert_eq!(connection.get("/text").await.status, StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(record.endings(1).await, [Outcome::Completed(200)], "{wire:?}");
        assert_eq!(record.told().rejected, [429; 3]);
        assert_eq!(record.told().admitted, 4, "exempt ones are told as admitted");
    }
}

#[tokio::test(start_paused = true)]
async fn elapsed_is_from_admission_to_the_end_of_the_body() {
    use std::sync::Mutex;
    use tower_sluice::{Observer, TokioClock, event::Finished};

    #[derive(Clone, Default)]
    struct Elapsed(Arc<Mutex<Vec<Duration>>>);
    impl Observer for Elapsed {
        fn finished(&self, finished: &Finished) {
            self.0.lock().unwrap().push(finished.elapsed());
        }
    }
    let elapsed = Elapsed::default();
    let layer = RateLimitLayer::builder()
        .rule(Rule::new("all", FixedWindow::per_day(10)))
        .clock(TokioClock)
        .observer(elapsed.clone())
        .build()
        .unwrap();
    let app = Router::new()
        .route(
            "/a",
            get(|| async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                "body"
            }),
        )
        .layer(layer);
    let request = Request::get("/a").body(Body::empty()).unwrap();
    let response = app.oneshot(request).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    response.into_body().collect().await.unwrap();
    assert_eq!(*elapsed.0.lock().unwrap(), [Duration::from_secs(5)]);
}
