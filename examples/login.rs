//! A login that bears guessing: limited by address in a layer, and by account in the handler, since the account
//! is in the body.
//!
//! `cargo run --example login` plays the attacker and checks what he can do.

#![allow(clippy::print_stdout, reason = "it tells what came")]

use std::{net::SocketAddr, time::Duration};

use axum::{
    Form, Router,
    body::Body,
    extract::State,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use tower::ServiceExt;
use tower_sluice::{
    ConfigError, FixedWindow, KeyedLimiter, ManualClock, RateLimitLayer, Rejection, Rule, key,
};

#[derive(serde::Deserialize)]
struct Login {
    name: String,
    password: String,
}

async fn log_in(State(accounts): State<KeyedLimiter>, Form(login): Form<Login>) -> Response {
    // As the account is looked up, so that `Alice` and `alice` are one.
    let account = login.name.trim().to_lowercase();
    // Counted before the password is looked at: guesses that come at once are counted too. And counted
    // whether or not there is such an account, so that the answer does not tell.
    if let Some(rejection) = Rejection::of("per-account", accounts.try_acquire(&account)) {
        return rejection.into_response();
    }
    if login.password != format!("{account}'s password") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    // Who knows the password has not guessed: his slips are forgotten.
    accounts.reset(&account);
    "welcome".into_response()
}

/// Ten tries a minute from each address, three an hour at each account.
fn app(clock: &ManualClock) -> Result<Router, ConfigError> {
    let addresses = RateLimitLayer::builder()
        .rule(Rule::new("per-address", FixedWindow::per_minute(10)).key(key::client_ip()))
        .clock(clock.clone())
        .build()?;
    let accounts = FixedWindow::per_hour(3)
        .keyed_limiter()
        .name("per-account")
        .clock(clock.clone())
        .build()?;
    Ok(Router::new().route("/login", post(log_in).layer(addresses)).with_state(accounts))
}

/// The status, and after how many seconds to come again.
async fn try_login(app: &Router, from: [u8; 4], name: &str, password: &str) -> (u16, Option<u64>) {
    let request = Request::post("/login")
        .header("content-type", "application/x-www-form-urlencoded")
        .extension(SocketAddr::from((from, 4711)))
        .body(Body::from(format!("name={name}&password={password}")));
    let Ok(answer) = app.clone().oneshot(request.unwrap()).await;
    let wait = answer.headers().get("retry-after");
    (answer.status().as_u16(), wait.and_then(|wait| wait.to_str().ok()?.parse().ok()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new(); // stands still unless it is moved, so that the numbers are exact
    let app = app(&clock)?;
    let (home, attacker) = ([192, 0, 2, 7], [198, 51, 100, 1]);

    // Alice mistypes twice, gets in, and has all of her tries again.
    for password in ["alice", "password", "alice's password", "1", "2", "alice's password"] {
        let expected = if password.starts_with("alice's") { 200 } else { 401 };
        assert_eq!(try_login(&app, home, "alice", password).await.0, expected);
    }

    // From one address he tries many accounts: ten guesses, and then he waits. To log in to an account of his
    // own in between helps neither here nor at other accounts.
    for guess in 0..9 {
        let status = try_login(&app, attacker, &format!("user-{guess}"), "123456").await;
        assert_eq!(status, (401, None));
    }
    assert_eq!(try_login(&app, attacker, "mallory", "mallory's password").await.0, 200);
    assert_eq!(try_login(&app, attacker, "user-9", "123456").await, (429, Some(60)));

    // From many addresses he tries one account: three guesses an hour in all, however it is written. Each login
    // of hers gives him three more, so three has to be few.
    let mut guesses = 0;
    for (bot, name) in (1..=200).zip(["alice", "Alice", "ALICE"].into_iter().cycle()) {
        guesses += usize::from(try_login(&app, [203, 0, 113, bot], name, "123456").await.0 == 401);
    }
    assert_eq!(guesses, 3);

    // What he can do is to keep her out as long as he goes on, though no other user. Where that matters, ask for
    // a second proof at this point instead of refusing.
    assert_eq!(try_login(&app, home, "alice", "alice's password").await, (429, Some(3600)));
    assert_eq!(try_login(&app, home, "bob", "bob's password").await.0, 200);
    // Once he has given up she gets in, when she was told to come.
    clock.advance(Duration::from_secs(3600));
    assert_eq!(try_login(&app, home, "alice", "alice's password").await.0, 200);

    println!("one address had 10 tries a minute, and 200 addresses had {guesses} at one account");
    Ok(())
}
