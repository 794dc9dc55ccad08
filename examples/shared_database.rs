//! One database, two kinds of callers: pages that people look at may wait for a connection, a crawler's
//! sitemap may not, and a nightly job takes its connections from the same limit.
//!
//! `cargo run --example shared_database` tries it and checks what comes.

#![allow(clippy::print_stdout, reason = "it tells what came")]
#![allow(clippy::disallowed_methods, reason = "handlers of a service sleep as they like")]

use std::time::Duration;

use axum::{Router, body::Body, http::Request, routing::get};
use tower::ServiceExt;
use tower_sluice::{ConfigError, InFlight, RateLimitLayer, RejectionPolicy};

/// Waits on the database, as it were.
async fn query() -> &'static str {
    tokio::time::sleep(Duration::from_millis(50)).await;
    "rows"
}

fn app(database: &InFlight) -> Result<Router, ConfigError> {
    let people = database.clone().rejection(RejectionPolicy::queue(Duration::from_secs(1), 100));
    let crawlers = database.clone().retry_after(Duration::from_secs(60)).spread(false);
    Ok(Router::new()
        .route("/page", get(query).layer(RateLimitLayer::builder().in_flight(people).build()?))
        .route(
            "/sitemap",
            get(query).layer(RateLimitLayer::builder().in_flight(crawlers).build()?),
        ))
}

async fn ask(app: &Router, path: &str) -> (u16, Option<String>) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let Ok(answer) = app.clone().oneshot(request).await;
    let hint = answer.headers().get("retry-after");
    (answer.status().as_u16(), hint.map(|hint| hint.to_str().unwrap().to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = InFlight::new("database", 2);
    let app = app(&database)?;

    // Two connections, four pages: two wait for the others. The sitemap does not, nor does it overtake.
    let pages = async {
        tokio::join!(ask(&app, "/page"), ask(&app, "/page"), ask(&app, "/page"), ask(&app, "/page"))
    };
    let sitemap = async {
        tokio::task::yield_now().await;
        assert_eq!((database.in_flight(), database.waiting()), (2, 2));
        ask(&app, "/sitemap").await
    };
    let (pages, sitemap) = tokio::join!(pages, sitemap);
    assert_eq!([pages.0.0, pages.1.0, pages.2.0, pages.3.0], [200; 4]);
    assert_eq!(sitemap, (503, Some("60".to_owned())));

    // A job holds its connection as long as it likes; what is served goes on with the rest.
    let job = database.try_acquire().expect("nothing is in flight");
    assert_eq!(ask(&app, "/sitemap").await.0, 200);
    // At night there are more connections to be had.
    database.set_limit(8)?;
    drop(job);
    assert_eq!((database.limit(), database.in_flight()), (8, 0));
    println!("four pages shared two connections, the sitemap was told to come back in 60 s");
    Ok(())
}
