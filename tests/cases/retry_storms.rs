//! RS: retry storms.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use axum::{Router, routing::get};
use tower_sluice::{FixedWindow, ManualClock, Missing, RateLimitLayer, Rule, key};

use crate::support::{ask, by_user};

/// Twenty times the case's, so that chance cannot bring a tenth of them into one of thirteen seconds.
const CLIENTS: usize = 20_000;

/// The largest part of all clients that comes in one second after the first, where each asks until it is
/// refused and comes back when it was told to, for five minutes.
async fn largest_later_second(rule: Rule) -> f64 {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let users: Vec<_> = (0..CLIENTS).map(|client| client.to_string()).collect();
    let mut due: BTreeMap<u64, Vec<usize>> = BTreeMap::from([(0, (0..CLIENTS).collect())]);
    let (mut now, mut largest, mut seconds) = (0, 0, BTreeSet::new());
    while let Some((second, clients)) = due.pop_first() {
        if second > 300 {
            break;
        }
        clock.advance(Duration::from_secs(second - now));
        now = second;
        if now > 0 {
            largest = largest.max(clients.len());
            seconds.insert(now);
        }
        for client in clients {
            let mut admitted = 0;
            let wait = loop {
                let answer = ask(&app, by_user("/", &users[client])).await;
                match answer.retry_after() {
                    Some(seconds) => break seconds,
                    None => admitted += 1,
                }
            };
            assert!(admitted <= 2_000);
            due.entry(now + wait).or_default().push(client);
        }
    }
    assert!(seconds.len() > 20, "they came back in {seconds:?} alone");
    largest as f64 / CLIENTS as f64
}

fn per_user() -> Rule {
    Rule::new("user", FixedWindow::per_minute(5))
        .key(key::header("x-user-id"))
        .missing(Missing::Skip)
}

#[tokio::test]
async fn rs_01_clients_that_obey_do_not_come_back_together() {
    let users = largest_later_second(per_user().spread(true)).await;
    assert!(users < 0.1, "{users}");
    // A rule that all share is spread unless told otherwise.
    let shared = largest_later_second(Rule::new("route", FixedWindow::per_minute(2_000))).await;
    assert!(shared < 0.1, "{shared}");
}

#[tokio::test]
async fn rs_01_the_spread_is_only_ever_added() {
    let clock = ManualClock::new();
    let rule = Rule::new("route", FixedWindow::per_minute(1));
    let layer = RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().unwrap();
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    assert!(ask(&app, by_user("/", "alice")).await.is_ok());
    for _ in 0..500 {
        let told = ask(&app, by_user("/", "alice")).await.retry_after().unwrap();
        assert!((60..=72).contains(&told), "{told}");
    }
}
