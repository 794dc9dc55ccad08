//! Real processes that share a quota.

use std::{
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tower_sluice::{FixedWindow, RateLimitLayer, Rule, TokenBucket, backend::Redis};

use crate::{load::load, server::Server, state::exact};

const RATE: u64 = 100;
const BURST: u64 = 100;

fn millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn told<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// One process of the tests below, which start it; alone it does nothing.
#[tokio::test]
async fn a_process_that_others_start() {
    let Some(url) = told::<String>("SLUICE_TEST_URL") else { return };
    let (offered, lasts) =
        (told("SLUICE_TEST_OFFERED").unwrap(), told("SLUICE_TEST_LASTS").unwrap());
    let (begins, mode) =
        (told::<u64>("SLUICE_TEST_BEGINS").unwrap(), told::<String>("SLUICE_TEST_MODE"));
    let shared: Redis = exact(url).await;
    let rule = match mode.as_deref() {
        Some("window") => Rule::new("all", FixedWindow::per_hour(RATE)),
        _ => Rule::new("all", TokenBucket::per_second(RATE).burst(BURST)),
    };
    let layer = RateLimitLayer::builder().rule(rule.backend(shared)).build().unwrap();
    tokio::time::sleep(Duration::from_millis(begins.saturating_sub(millis()))).await;
    let begun = millis();
    let shots = load(&layer, offered, Duration::from_millis(lasts)).await.unwrap();
    let admitted = shots.iter().filter(|shot| shot.status == 200).count();
    let refused = shots.iter().filter(|shot| shot.status == 429).count();
    assert_eq!(admitted + refused, shots.len());
    println!("\nadmitted {admitted} {begun} {} {refused}", millis());
}

/// What a process tells: admitted, from when to when, refused.
fn processes(server: &Server, mode: &str, offered: &[u32], lasts: Duration) -> Vec<[u64; 4]> {
    let begins = millis() + 700;
    let start = |offered: &u32| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::a_process_that_others_start", "--nocapture"])
            .env("SLUICE_TEST_URL", server.url())
            .env("SLUICE_TEST_MODE", mode)
            .env("SLUICE_TEST_OFFERED", offered.to_string())
            .env("SLUICE_TEST_LASTS", lasts.as_millis().to_string())
            .env("SLUICE_TEST_BEGINS", begins.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = offered.iter().map(start).collect();
    let tells = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("admitted "));
        let numbers =
            line.unwrap_or_else(|| panic!("{text}")).split(' ').map(|n| n.parse().unwrap());
        numbers.collect::<Vec<u64>>().try_into().unwrap()
    };
    running.into_iter().map(tells).collect()
}

/// 3 s; with `SLUICE_SCALE=20` it is 30 s.
#[test]
fn two_processes_under_skewed_load_spend_the_quota_and_no_more() {
    let full = told::<u64>("SLUICE_SCALE").is_some_and(|scale| scale >= 20);
    let server = Server::start();
    let lasts = Duration::from_secs(if full { 31 } else { 4 });
    let told = processes(&server, "bucket", &[300, 20], lasts);
    let admitted: u64 = told.iter().map(|[admitted, ..]| admitted).sum();
    // From before the first request until after the last answer.
    let begun = told.iter().map(|[_, begun, ..]| *begun).min().unwrap();
    let ended = told.iter().map(|[_, _, ended, _]| *ended).max().unwrap();
    let seconds = (ended - begun + 1) as f64 / 1_000.0;
    // The burst is there at the start, and drained within half a second.
    let spent = (admitted - BURST) as f64 / (RATE as f64 * seconds);
    println!(
        "{admitted} admitted in {seconds} s: {spent:.3} of the quota after the burst, {told:?}"
    );
    assert!((0.97..=1.0).contains(&spent), "{spent:.3} of the quota: {told:?}");
}

#[test]
fn four_processes_at_once_get_the_limit_together() {
    let server = Server::start();
    let told = processes(&server, "window", &[200, 200, 200, 200], Duration::from_millis(500));
    let admitted: u64 = told.iter().map(|[admitted, ..]| admitted).sum();
    assert_eq!(admitted, RATE, "{told:?}");
}
