//! HT: what a client is told of its quota, of an upload, and in gRPC's own words.

use std::time::Duration;

use axum::{Router, routing::any};
use http::{StatusCode, Version};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower_sluice::{Headers, ManualClock, RateLimitLayer, Reset, Rule};

use crate::{
    support::{ask, get_with, request, serve, window},
    support_core::scaled,
    upload::{Upload, send},
};

#[tokio::test]
async fn ht_06_reset_is_in_seconds_and_says_from_when() {
    // 2031-01-01, ten seconds into a minute.
    const UTC: u64 = 1_924_992_000;
    let with = |form| {
        let clock = ManualClock::with_utc(Duration::from_secs(UTC));
        clock.advance(Duration::from_secs(10));
        let layer = RateLimitLayer::builder()
            .rule(Rule::new("r", window(5, 60)).advertise().spread(false))
            .headers(form)
            .headers(Headers::XRateLimit(Reset::Epoch))
            .clock(clock)
            .build()
            .unwrap();
        Router::new().route("/", any(|| async {})).layer(layer)
    };
    let (sixth, eleventh) = (with(Headers::Draft06), with(Headers::Draft11));
    for asked in 1..=7 {
        let answer = ask(&sixth, request("GET", "/", None)).await;
        assert_eq!(answer.is_ok(), asked <= 5);
        assert_eq!(answer.headers["ratelimit-reset"], "50");
        assert_eq!(answer.headers["x-ratelimit-reset"], (UTC + 60).to_string());
        let left = 5_u64.saturating_sub(asked).to_string();
        assert_eq!(answer.headers["ratelimit-remaining"], left);
        let answer = ask(&eleventh, request("GET", "/", None)).await;
        assert_eq!(answer.headers["ratelimit"], format!("\"r\";r={left};t=50"));
        assert_eq!(answer.retry_after(), (asked > 5).then_some(50));
    }
}

#[tokio::test]
async fn ht_11_an_upload_hears_of_its_refusal() {
    let layer = RateLimitLayer::builder().rule(Rule::new("r", window(1, 86_400))).build().unwrap();
    let address = serve(Router::new().route("/", any(|| async {})).layer(layer)).await;
    send(address, Version::HTTP_11, Upload::of(0)).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for n in 0..scaled(100) {
            // 50 MB at 5 MB/s, if anybody read them.
            let upload = Upload::of(50_000_000).slowly(Duration::from_millis(200));
            let upload = if n % 2 == 0 { upload } else { upload.chunked() };
            let (status, headers) = send(address, version, upload).await;
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{version:?}");
            assert!(headers.contains_key("retry-after"));
        }
    }
    for _ in 0..scaled(100) {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 50000000\r\nexpect: 100-continue\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("retry-after: "), "{answer}");
    }
}

/// curl as Debian 12 has it drops an answer whose end comes together with the reset of its stream.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl; scripts/full installs it and runs this"]
async fn ht_11_a_client_of_another_make_hears_of_it_too() {
    let layer = RateLimitLayer::builder().rule(Rule::new("r", window(1, 86_400))).build().unwrap();
    let address = serve(Router::new().route("/", any(|| async {})).layer(layer)).await;
    send(address, Version::HTTP_11, Upload::of(0)).await;
    let file = std::env::temp_dir().join(format!("sluice-upload-{}", std::process::id()));
    std::fs::write(&file, vec![0; 5_000_000]).unwrap();
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for _ in 0..scaled(100) {
            let curl = tokio::process::Command::new("curl")
                .args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", version])
                .arg("--data-binary")
                .arg(format!("@{}", file.display()))
                .arg(format!("http://{address}/"))
                .output()
                .await
                .expect("curl is installed");
            assert_eq!(curl.stdout, b"429", "{version}: {:?}", curl.status);
        }
    }
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn ht_12_grpc_clients_are_answered_in_grpc() {
    let with = |rule: Rule| {
        let layer = RateLimitLayer::builder().rule(rule).clock(ManualClock::new()).build();
        Router::new().route("/", any(|| async {})).layer(layer.unwrap())
    };
    let rule = || Rule::new("r", window(1, 60)).spread(false);
    for (rule, code) in [(rule(), "8"), (rule().status(StatusCode::SERVICE_UNAVAILABLE), "14")] {
        let app = with(rule);
        assert!(ask(&app, request("POST", "/", None)).await.is_ok());
        // A unary call and a streaming one are the same to the head.
        for content_type in ["application/grpc", "application/grpc+proto"] {
            let mut call = get_with("/", None, &[("content-type", content_type)]);
            *call.method_mut() = http::Method::POST;
            let refused = ask(&app, call).await;
            assert_eq!((refused.status, &*refused.body), (StatusCode::OK, ""));
            assert_eq!(refused.headers["content-type"], content_type);
            assert_eq!(refused.headers["grpc-status"], code);
            assert!(!refused.headers["grpc-message"].is_empty());
            assert_eq!(refused.headers["grpc-retry-pushback-ms"], "60000");
        }
    }
    let app = with(rule());
    assert!(ask(&app, request("POST", "/", None)).await.is_ok());
    assert!(ask(&app, request("POST", "/", None)).await.is_refused());
}
