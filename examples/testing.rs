//! How to test a limit: a small app with a limit per user, and its tests as one would write them.
//!
//! `cargo run --example testing` runs them and says what came; `cargo test --example testing` runs them as tests.
//! What else there is to test, and how: `guide::testing`.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use std::{error::Error, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::get,
};
use tower_sluice::{
    ManualClock, Missing, RateLimitLayer, RateLimitLayerBuilder, Rule, TokenBucket, key,
    testing::{Recorder, admitted},
};

/// The limits of the service. Production builds them as they are; a test adds a clock and an observer.
fn limits() -> RateLimitLayerBuilder {
    RateLimitLayer::builder().rule(
        Rule::new("per-user", TokenBucket::per_second(10).burst(20))
            .key(key::header("x-user")) // which the gateway sets
            .missing(Missing::Refuse(StatusCode::UNAUTHORIZED)),
    )
}

fn app(limits: RateLimitLayer) -> Router {
    Router::new().route("/notes", get(|| async { "milk, bread" })).layer(limits)
}

type Checked = Result<(), Box<dyn Error>>;

fn notes_of(user: &str) -> impl FnMut() -> Request<Body> {
    move || Request::get("/notes").header("x-user", user).body(Body::empty()).unwrap()
}

/// The first test to write: more is sent than may pass.
async fn the_limit_refuses() -> Checked {
    let app = app(limits().clock(ManualClock::new()).build()?);
    assert_eq!(admitted(&app, 25, notes_of("alice")).await, 20);
    Ok(())
}

async fn users_do_not_share() -> Checked {
    let app = app(limits().clock(ManualClock::new()).build()?);
    assert_eq!(admitted(&app, 25, notes_of("alice")).await, 20);
    assert_eq!(admitted(&app, 25, notes_of("bob")).await, 20);
    Ok(())
}

async fn permits_come_back_at_the_rate() -> Checked {
    let clock = ManualClock::new();
    let app = app(limits().clock(clock.clone()).build()?);
    assert_eq!(admitted(&app, 25, notes_of("alice")).await, 20);
    clock.advance(Duration::from_millis(99));
    assert_eq!(admitted(&app, 5, notes_of("alice")).await, 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(admitted(&app, 5, notes_of("alice")).await, 1);
    Ok(())
}

/// No key that never comes, no layer that stands twice: nothing that makes a limit useless without an error.
async fn the_set_up_is_right() -> Checked {
    let told = Recorder::new();
    let app = app(limits().observer(told.clone()).build()?);
    admitted(&app, 5, notes_of("alice")).await;
    assert_eq!(told.faults(), []);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Checked {
    the_limit_refuses().await?;
    println!("the limit refuses: 20 of 25 pass");
    users_do_not_share().await?;
    println!("users do not share: another has 20 of his own");
    permits_come_back_at_the_rate().await?;
    println!("permits come back at the rate: none after 99 ms, one after 100 ms");
    the_set_up_is_right().await?;
    println!("the set-up is right: no fault was raised");
    Ok(())
}

/// In a service these hold the checks themselves; here `main` runs them too.
#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn the_limit_refuses() {
        super::the_limit_refuses().await.unwrap();
    }

    #[tokio::test]
    async fn users_do_not_share() {
        super::users_do_not_share().await.unwrap();
    }

    #[tokio::test]
    async fn permits_come_back_at_the_rate() {
        super::permits_come_back_at_the_rate().await.unwrap();
    }

    #[tokio::test]
    async fn the_set_up_is_right() {
        super::the_set_up_is_right().await.unwrap();
    }
}
