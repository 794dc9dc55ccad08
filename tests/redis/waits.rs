//! Requests that wait for their turn: the store gives it, to all processes together.

use std::time::{Duration, Instant};

use axum::body::Body;
use http::Request;
use tokio::task::JoinSet;
use tower_sluice::{
    Backend, LeakyBucket, RateLimitLayer, RejectionPolicy, Rule, TokenBucket,
    backend::{Charge, LimiterSpec, Redis},
    clock::Nanos,
};

use crate::{load::shoot, server::Server, state::exact};

const INTERVAL: Duration = Duration::from_millis(50);

fn layer(shared: &Redis) -> RateLimitLayer {
    let partner = Rule::new("partner", LeakyBucket::new(1, INTERVAL)).backend(shared.clone());
    let queue = RejectionPolicy::queue(Duration::from_secs(10), 1_000);
    RateLimitLayer::builder().rule(partner).rejection(queue).build().unwrap()
}

#[tokio::test]
async fn a_long_queue_keeps_the_pace() {
    let server = Server::start();
    // Two processes, which share the partner.
    let layers = [layer(&exact(server.url()).await), layer(&exact(server.url()).await)];
    let (begun, mut asking) = (Instant::now(), JoinSet::new());
    for n in 0..40 {
        asking.spawn(shoot(layers[n % 2].clone(), Request::new(Body::empty())));
    }
    let mut passed = Vec::new();
    while let Some(shot) = asking.join_next().await {
        let shot = shot.unwrap();
        assert_eq!(shot.status, 200);
        passed.push(shot.at + shot.took);
    }
    passed.sort();
    // Nobody knows how late each is; all together are no sooner than forty turns.
    let all = *passed.last().unwrap() - begun;
    assert!(all >= INTERVAL * 39 - Duration::from_millis(20), "{all:?}");
    assert!(all < INTERVAL * 39 * 2, "{all:?}");
    // In any stretch of ten turns, and what one may be late, no more than that pass.
    for ten in passed.windows(11) {
        assert!(ten[10] - ten[0] >= INTERVAL * 9, "{:?}", ten[10] - ten[0]);
    }
}

#[tokio::test]
async fn turns_far_ahead_are_not_taken_for_a_clock_that_went_back() {
    let server = Server::start();
    let shared = exact(server.url()).await.by_given_time();
    for algorithm in [
        LeakyBucket::per_second(20).into(),
        tower_sluice::Algorithm::from(TokenBucket::per_second(20).burst(3)),
    ] {
        let id = shared
            .register(&LimiterSpec::new(format!("{:.5}", format!("{algorithm:?}")), algorithm))
            .unwrap();
        let now = Nanos::new(1_790_000_000_000_000_000);
        let ask = async |longest| {
            let charge = Charge::new(id, 1).waiting_at_most(longest);
            shared.check(now, &[charge]).resolve().await.unwrap().as_slice()[0]
        };
        let burst = algorithm.quota().max_burst();
        let hour = Duration::from_secs(3_600);
        // One each 50 ms, for ten minutes.
        for n in 0..12_000 + burst {
            let verdict = ask(hour).await;
            let turn = INTERVAL * u32::try_from(n.saturating_sub(burst - 1)).unwrap();
            assert!(verdict.decision().is_allowed(), "turn {n}");
            assert_eq!(verdict.departure(), turn, "turn {n}");
        }
        // Further ahead no turn is given, and who does not wait is told when he may come.
        for longest in [hour, Duration::ZERO] {
            let denied = ask(longest).await.decision();
            assert_eq!(
                denied.retry_after(),
                Some(Duration::from_secs(600) + INTERVAL),
                "{longest:?}"
            );
        }
    }
}

#[tokio::test]
async fn turns_that_were_given_stay_when_the_rate_changes() {
    let server = Server::start();
    let shared = exact(server.url()).await.by_given_time();
    let spec = |rate| LimiterSpec::new("partner", LeakyBucket::per_second(rate));
    let id = shared.register(&spec(10)).unwrap();
    let now = Nanos::new(1_790_000_000_000_000_000);
    let ask = async || {
        let charge = Charge::new(id, 1).waiting_at_most(Duration::from_secs(60));
        shared.check(now, &[charge]).resolve().await.unwrap().as_slice()[0].departure()
    };
    let ms = Duration::from_millis;
    assert_eq!([ask().await, ask().await, ask().await], [ms(0), ms(100), ms(200)]);
    shared.register(&spec(20).replacing(id)).unwrap();
    // After the last that was given, by the new interval.
    assert_eq!([ask().await, ask().await], [ms(250), ms(300)]);
    shared.register(&spec(2).replacing(id)).unwrap();
    assert_eq!(ask().await, ms(800));
}
