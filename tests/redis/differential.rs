//! The same random timeline, in the process and in the store: every decision, what remains and every wait agree.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use tower_sluice::{
    Algorithm, Backend, Calendar, Decision, FixedWindow, LeakyBucket, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
    backend::{Charge, LimiterId, LimiterSpec, Local, Receipt, Redis, Verdict, Verdicts},
    clock::Nanos,
};

use crate::server::Server;

/// What may be done next, some microseconds after the last.
#[derive(Clone, Debug)]
enum Step {
    Check {
        key: u8,
        costs: Vec<u64>,
    },
    Peek {
        key: u8,
        cost: u64,
    },
    Undo {
        back: usize,
    },
    Reset {
        key: u8,
    },
    /// The permits of one limiter times so much, halved.
    Renew {
        limiter: usize,
        halves: u64,
    },
}

fn steps(limiters: usize) -> impl Strategy<Value = Vec<(u64, Step)>> {
    let key = || 0_u8..2;
    let cost = || prop_oneof![4 => Just(1_u64), 2 => 0_u64..4, 1 => 4_u64..40];
    let step = prop_oneof![
        10 => (key(), prop::collection::vec(cost(), limiters)).prop_map(|(key, costs)| Step::Check { key, costs }),
        2 => (key(), cost()).prop_map(|(key, cost)| Step::Peek { key, cost }),
        2 => (0_usize..3).prop_map(|back| Step::Undo { back }),
        1 => key().prop_map(|key| Step::Reset { key }),
        1 => (0..limiters, 1_u64..6).prop_map(|(limiter, halves)| Step::Renew { limiter, halves }),
    ];
    // In thousandths of a period, and some microseconds.
    let pause =
        prop_oneof![3 => Just(0_u64), 2 => 0_u64..5, 4 => 0_u64..300_000, 1 => 0_u64..3_000_000];
    prop::collection::vec((pause, step), 1..40)
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    // So long that nothing expires by the server's own clock while a timeline is played.
    let periods = prop_oneof![
        Just(Duration::from_secs(7 * 60)),
        Just(Duration::from_secs(3_600)),
        Just(Duration::from_secs(86_400))
    ];
    (0_u8..8, 1_u64..20, periods, 1_u64..20).prop_map(|(kind, permits, period, burst)| match kind {
        0 | 1 => TokenBucket::new(permits, period).burst(burst).into(),
        2 => LeakyBucket::new(permits, period).into(),
        3 => FixedWindow::new(permits, period).into(),
        4 => FixedWindow::new(permits, period).aligned().into(),
        5 => FixedWindow::calendar(
            permits,
            [Calendar::Day, Calendar::IsoWeek, Calendar::Month][burst as usize % 3],
        )
        .into(),
        6 => SlidingWindow::new(permits, period).into(),
        _ => SlidingLog::new(permits, period).into(),
    })
}

/// What a decision says, waits in whole microseconds, rounded up.
type Told = (bool, bool, u64, u64, Option<u128>, u128);

fn told(decision: &Decision) -> Told {
    let micros = |wait: Duration| wait.as_nanos().div_ceil(1_000);
    (
        decision.is_allowed(),
        decision.is_never(),
        decision.limit(),
        decision.remaining(),
        decision.retry_after().map(micros),
        micros(decision.reset_after()),
    )
}

/// A backend with its limiters, and what it charged.
struct Side<B> {
    backend: B,
    ids: Vec<LimiterId>,
    receipts: Vec<Vec<Receipt>>,
}

impl<B: Backend> Side<B> {
    fn new(backend: B, specs: &[LimiterSpec]) -> Self {
        let ids = specs.iter().map(|spec| backend.register(spec).unwrap()).collect();
        Self { backend, ids, receipts: Vec::new() }
    }

    async fn check(&mut self, now: Nanos, key: &[u8], costs: &[u64]) -> Verdicts {
        let charge = |(id, cost): (&LimiterId, &u64)| Charge::new(*id, *cost).key(key);
        let charges: Vec<_> = self.ids.iter().zip(costs).map(charge).collect();
        let verdicts = self.backend.check(now, &charges).resolve().await.unwrap();
        if verdicts.all_allowed() {
            self.receipts.push(verdicts.as_slice().iter().map(Verdict::receipt).collect());
        }
        verdicts
    }

    fn undo(&mut self, now: Nanos, back: usize) {
        let index = self.receipts.len().checked_sub(back + 1);
        if let Some(index) = index {
            let receipts = self.receipts.remove(index);
            self.backend.undo(now, &receipts);
        }
    }
}

async fn peeks(
    here: &Side<Local>,
    there: &Side<Redis>,
    now: Nanos,
    limiter: usize,
    key: u8,
    cost: u64,
) -> (Told, Told) {
    let key = [key];
    let ours = here.backend.peek(now, &Charge::new(here.ids[limiter], cost).key(&key));
    let theirs = there.backend.peek(now, &Charge::new(there.ids[limiter], cost).key(&key));
    (told(&ours.resolve().await.unwrap()), told(&theirs.resolve().await.unwrap()))
}

async fn peek(
    here: &Side<Local>,
    there: &Side<Redis>,
    now: Nanos,
    limiter: usize,
    key: u8,
    cost: u64,
) -> Result<(), TestCaseError> {
    let (ours, theirs) = peeks(here, there, now, limiter, key, cost).await;
    prop_assert_eq!(ours, theirs, "peeking at {} of limiter {}", cost, limiter);
    Ok(())
}

async fn reset(
    here: &Side<Local>,
    there: &Side<Redis>,
    now: Nanos,
    limiter: usize,
    key: u8,
) -> Result<(), TestCaseError> {
    let key = [key];
    let ours = here.backend.reset(now, &Charge::new(here.ids[limiter], 1).key(&key));
    let theirs = there.backend.reset(now, &Charge::new(there.ids[limiter], 1).key(&key));
    let (ours, theirs) = (ours.resolve().await.unwrap(), theirs.resolve().await.unwrap());
    prop_assert_eq!(ours, theirs, "resetting limiter {}", limiter);
    Ok(())
}

async fn agree(
    server: Redis,
    algorithms: &[Algorithm],
    steps: &[(u64, Step)],
) -> Result<(), TestCaseError> {
    let specs: Vec<_> = algorithms
        .iter()
        .enumerate()
        .map(|(n, algorithm)| LimiterSpec::new(format!("limiter-{n}"), *algorithm).keyed(1_000))
        .collect();
    let (mut here, mut there) = (Side::new(Local::new(), &specs), Side::new(server, &specs));
    // In the year 2026, by a clock whose zero is 1970.
    let (mut micros, mut quotas) = (1_790_000_000_000_007_u64, algorithms.to_vec());
    for (n, (pause, step)) in steps.iter().enumerate() {
        // The shortest period sets the pace; small pauses are microseconds.
        let period =
            algorithms.iter().map(|a| a.quota().period().as_micros() as u64).min().unwrap();
        micros += if *pause < 5 { *pause } else { period / 1_000 * pause / 1_000 };
        let now = Nanos::new(micros * 1_000);
        match step {
            Step::Check { key, costs } => {
                let ours = here.check(now, &[*key], costs).await;
                let theirs = there.check(now, &[*key], costs).await;
                let say = |verdicts: &Verdicts| -> Vec<_> {
                    verdicts.as_slice().iter().map(|verdict| told(&verdict.decision())).collect()
                };
                prop_assert_eq!(say(&ours), say(&theirs), "step {}: {:?}", n, step);
            }
            Step::Peek { key, cost } => {
                for limiter in 0..quotas.len() {
                    peek(&here, &there, now, limiter, *key, *cost).await?;
                }
            }
            Step::Undo { back } => {
                here.undo(now, *back);
                there.undo(now, *back);
            }
            Step::Reset { key } => {
                for limiter in 0..quotas.len() {
                    reset(&here, &there, now, limiter, *key).await?;
                }
                // In the process a reset ends the receipts of all keys, in the store of this one.
                here.receipts.clear();
                there.receipts.clear();
            }
            Step::Renew { limiter, halves } => {
                let (old, quota) = (quotas[*limiter], algorithms[*limiter].quota());
                let permits = (quota.permits() * halves).div_ceil(2);
                let renewed = Quota::new(permits, quota.period());
                let renewed = match old {
                    Algorithm::TokenBucket(_) => {
                        renewed.burst((quota.max_burst() * halves).div_ceil(2))
                    }
                    Algorithm::LeakyBucket(_) => renewed.burst(1),
                    _ => renewed,
                };
                quotas[*limiter] = old.with_quota(renewed);
                for (backend, id) in [
                    (&here.backend as &dyn Backend, here.ids[*limiter]),
                    (&there.backend, there.ids[*limiter]),
                ] {
                    let spec = LimiterSpec::new(specs[*limiter].name(), quotas[*limiter])
                        .keyed(1_000)
                        .replacing(id)
                        .at(now);
                    backend.register(&spec).unwrap();
                }
                for key in 0..2 {
                    // What a bucket owes is rounded up to a unit of the new quota, here to nanoseconds and there to
                    // microseconds. And from here on it earns by the new rate in the process, in the store when it is
                    // charged.
                    if matches!(old, Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_)) {
                        let (ours, theirs) = peeks(&here, &there, now, *limiter, key, 1).await;
                        let counts = |told: Told| (told.0, told.2, told.3);
                        prop_assert_eq!(counts(ours), counts(theirs), "after another quota");
                        reset(&here, &there, now, *limiter, key).await?;
                    } else {
                        peek(&here, &there, now, *limiter, key, 1).await?;
                    }
                }
                // In the process a new quota may end receipts.
                here.receipts.clear();
                there.receipts.clear();
            }
        }
    }
    Ok(())
}

/// Plays so many timelines of so many limiters that are asked in one call.
fn play(limiters: usize, cases: u32) {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(server.url()).unwrap();
    let connection =
        runtime.block_on(client.get_multiplexed_async_connection_with_config(&config)).unwrap();
    let made = AtomicU32::new(0);
    let store = || {
        Redis::from_connection(connection.clone())
            .prefix(format!("case-{}", made.fetch_add(1, Ordering::Relaxed)))
            .deadline(Duration::from_secs(5))
            .by_given_time()
    };
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let timelines = (prop::collection::vec(algorithm(), limiters), steps(limiters));
    runner
        .run(&timelines, |(algorithms, steps)| {
            runtime.block_on(agree(store(), &algorithms, &steps))
        })
        .unwrap();
}

#[test]
fn one_limiter_decides_as_in_the_process() {
    play(1, 2_000);
}

#[test]
fn three_limiters_in_one_call_decide_as_in_the_process() {
    play(3, 1_000);
}
