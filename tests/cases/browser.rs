//! HT-08 in a real browser: `scripts/full` installs Chromium and runs it.

use std::{process::Stdio, time::Duration};

use axum::{
    Router,
    response::Html,
    routing::{get, post},
};
use tower_http::cors::CorsLayer;
use tower_sluice::{
    Headers, ManualClock, Missing, RateLimitLayer, Reset, Rule, exposed_headers, key,
};

use crate::support::{serve, window};

/// A page that posts three times to another origin, with a header that makes the browser ask first, and writes
/// down what it may read of the answers.
const PAGE: &str = r#"<!doctype html><title>page</title><pre id="seen"></pre><script>
const fields = ["retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-reset"];
(async () => {
  let seen = "";
  for (let n = 0; n < 3; n++) {
    try {
      const answer = await fetch("API", { method: "POST", headers: { "x-user-id": "alice" } });
      const body = await answer.text();
      seen += [answer.status, ...fields.map(name => answer.headers.get(name)), body].join("|") + "\n";
    } catch (error) { seen += error + "\n"; }
  }
  document.getElementById("seen").textContent = seen + "END";
})();
</script>"#;

/// What Chromium has in the page once its scripts have come to rest.
async fn visit(url: &str, profile: &std::path::Path) -> String {
    let browser = tokio::process::Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--virtual-time-budget=10000", "--dump-dom", url])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), browser).await;
    let output = output.expect("an answer within a minute").expect("chromium is installed");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium; scripts/full installs and runs it"]
async fn ht_08_a_real_browser_reads_the_429() {
    // As the documentation of `exposed_headers` has it: CORS is added last, so it is outside.
    let limit = RateLimitLayer::builder()
        .rule(
            Rule::new("user", window(2, 60))
                .key(key::header("x-user-id"))
                .missing(Missing::Refuse(http::StatusCode::UNAUTHORIZED)),
        )
        .headers(Headers::Draft11)
        .headers(Headers::XRateLimit(Reset::After))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let cors = CorsLayer::new()
        .allow_origin(tower_http::cors::Any)
        .allow_headers([http::HeaderName::from_static("x-user-id")])
        .expose_headers(exposed_headers());
    let api = Router::new().route("/", post(|| async { "served" })).layer(limit).layer(cors);
    let api = serve(api).await;
    let page = PAGE.replace("API", &format!("http://{api}/"));
    let site = serve(Router::new().route("/", get(|| async move { Html(page) }))).await;

    let profile = std::env::temp_dir().join(format!("sluice-browser-{}", std::process::id()));
    let dom = visit(&format!("http://{site}/"), &profile).await;
    let _ = std::fs::remove_dir_all(&profile);
    let (_, seen) = dom.split_once(r#"<pre id="seen">"#).expect("the page");
    let lines: Vec<_> = seen.split('\n').take(4).collect();
    assert_eq!(lines[0], r#"200||"user";r=1;t=60|"user";q=2;w=60|60|served"#, "{dom}");
    assert_eq!(lines[1], r#"200||"user";r=0;t=60|"user";q=2;w=60|60|served"#, "{dom}");
    let refused = r#"429|60|"user";r=0;t=60|"user";q=2;w=60|60|{"type":"#;
    assert!(lines[2].starts_with(refused), "{dom}");
    assert!(lines[3].starts_with("END"), "{dom}");
}
