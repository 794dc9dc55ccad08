//! Several rules: all or nothing, one request after another and with the steps of several interleaved.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::Index};
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Backend, RateLimitLayer, Rejection, Rule,
    backend::{Charge, LimiterId, Local, Receipt},
    clock::{Clock, Nanos},
};

use crate::{
    config,
    models::{Expected, Model},
    quotas::{Cost, Exact, Span, cost, epoch, exact, span},
    subjects::{answer, clock, now as ready_now, request, served},
    undo::{Ledger, base_may_have_moved},
};

const NAMES: [&str; 3] = ["a", "b", "c"];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_request_is_charged_by_all_rules_or_by_none(
        exacts in vec(exact(), 1..=3),
        (built, utc) in epoch(),
        elsewhere in any::<bool>(),
        exposed in any::<bool>(),
        told in any::<bool>(),
        steps in vec((0..3_usize, span(), vec(cost(), 3)), 1..25),
    ) {
        let clock = clock(built, utc);
        let mut builder = RateLimitLayer::builder().clock(clock.clone());
        if elsewhere {
            builder = builder.backend(Arc::new(Local::new()));
        }
        if exposed {
            builder = builder.expose_rejection();
        }
        // Then more than the verdict is wanted of rules in this process.
        if told {
            builder = builder.expose_decision();
        }
        for (exact, name) in exacts.iter().zip(NAMES) {
            let rule = Rule::new(name, exact.algorithm).spread(false);
            builder = builder.rule(rule.cost_fn(move |head| {
                head.header_str(&format!("x-{name}")).unwrap().parse().unwrap()
            }));
        }
        let layer = builder.build().unwrap();
        let mut models: Vec<Model> = exacts.iter().map(|exact| exact.model(built, utc)).collect();
        let mut now = built;
        for (scale, span, costs) in steps {
            now += span.nanos(exacts[scale % exacts.len()].algorithm.quota());
            clock.set(Nanos::new(now));
            let costs: Vec<u64> = exacts
                .iter()
                .zip(costs)
                .map(|(exact, cost)| cost.permits(exact.algorithm.quota()))
                .collect();
            let mut request = request(0, 0);
            for (name, cost) in NAMES.iter().zip(&costs) {
                let name: http::HeaderName = format!("x-{name}").parse().unwrap();
                request.headers_mut().insert(name, (*cost).into());
            }
            let expected: Vec<Expected> =
                models.iter().zip(&costs).map(|(model, cost)| model.peek(now, *cost)).collect();
            let admitted = expected.iter().all(|expected| expected.allowed);
            let response =
                ready_now(layer.layer(service_fn(served)).oneshot(request)).unwrap();
            prop_assert_eq!(response.status().is_success(), admitted);
            if admitted {
                for (model, cost) in models.iter_mut().zip(&costs) {
                    prop_assert!(model.charge(now, *cost));
                }
            } else if exposed {
                let rejection = response.extensions().get::<Rejection>().unwrap();
                let told: Vec<_> = rejection
                    .rules()
                    .iter()
                    .map(|rule| (rule.rule(), Expected::of(&rule.decision().unwrap())))
                    .collect();
                let refusing: Vec<_> = NAMES
                    .into_iter()
                    .zip(expected.iter().copied())
                    .filter(|(_, expected)| !expected.allowed)
                    .collect();
                let never = refusing.iter().any(|(_, expected)| expected.retry_after.is_none());
                let longest = refusing.iter().filter_map(|(_, expected)| expected.retry_after).max();
                prop_assert_eq!(rejection.retry_after(), longest.filter(|_| !never));
                prop_assert_eq!(told, refusing);
            }
            for ((model, name), cost) in models.iter().zip(NAMES).zip(&costs) {
                let handle = layer.handle();
                for cost in [0, *cost] {
                    let told = ready_now(handle.peek(name, (), cost)).unwrap();
                    prop_assert_eq!(Expected::of(&told), model.peek(now, cost));
                }
            }
        }
    }
}

/// A request on several limiters that goes on one step at a time: read all, charge one after another, and
/// if one refuses after all, undo, newest first.
struct Request {
    id: usize,
    charges: Vec<(usize, u64)>,
    made: Vec<(usize, Receipt)>,
    /// How often each limiter had been written when this request's charge on it was made, and when.
    writes: Vec<(u64, u64)>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Read,
    Charge,
    Undo,
    Admitted,
    Denied,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Advance(Span),
    Step(Index),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        1 => span().prop_map(Turn::Advance),
        6 => any::<Index>().prop_map(Turn::Step),
    ];
    vec(turn, 1..60)
}

fn interleave(
    exacts: &[Exact],
    (built, utc): (u64, std::time::Duration),
    requests: &[Vec<(Index, Cost)>],
    turns: &[Turn],
) -> Result<(), TestCaseError> {
    let (clock, backend) = (clock(built, utc), Local::new());
    let mut builder =
        RateLimitLayer::builder().clock(clock.clone()).backend(Arc::new(backend.clone()));
    for (exact, name) in exacts.iter().zip(NAMES) {
        builder = builder.rule(Rule::new(name, exact.algorithm));
    }
    // Registers the limiters.
    let _layer = builder.build().unwrap();
    let mut ledgers: Vec<_> = exacts.iter().map(|e| Ledger::new(e.model(built, utc))).collect();
    let mut writes = vec![0_u64; exacts.len()];
    let on = |limiter: usize, cost: u64| Charge::new(LimiterId(limiter as u64), cost);
    let mut under_way: Vec<_> = requests
        .iter()
        .enumerate()
        .map(|(id, charges)| {
            let mut charges: Vec<_> = charges
                .iter()
                .map(|(index, cost)| {
                    let limiter = index.index(exacts.len());
                    (limiter, cost.permits(exacts[limiter].algorithm.quota()))
                })
                .collect();
            // A layer has each limiter once.
            charges.sort_unstable_by_key(|(limiter, _)| *limiter);
            charges.dedup_by_key(|(limiter, _)| *limiter);
            Request { id, charges, made: Vec::new(), writes: Vec::new(), stage: Stage::Read }
        })
        .collect();
    // At the end everybody is led to an outcome.
    let rest = (0..under_way.len()).flat_map(|which| (0..8).map(move |_| (None, which)));
    let drawn = turns.iter().map(|turn| match turn {
        Turn::Advance(span) => (Some(*span), 0),
        Turn::Step(index) => (None, index.index(requests.len())),
    });
    for (span, which) in drawn.chain(rest) {
        if let Some(span) = span {
            let step = span.nanos(exacts[0].algorithm.quota());
            clock.set(Nanos::new(clock.now().get() + step));
            continue;
        }
        let now = clock.now().get();
        let request = &mut under_way[which];
        match request.stage {
            Stage::Read => {
                let fits = request.charges.iter().all(|(limiter, cost)| {
                    answer(backend.peek(clock.now(), &on(*limiter, *cost))).is_allowed()
                });
                request.stage = if fits { Stage::Charge } else { Stage::Denied };
            }
            Stage::Charge => {
                let Some((limiter, cost)) = request.charges.get(request.made.len()).copied() else {
                    request.stage = Stage::Admitted;
                    continue;
                };
                let expected = ledgers[limiter].model().peek(now, cost);
                let verdicts = answer(backend.check(clock.now(), &[on(limiter, cost)]));
                let verdict = verdicts.as_slice()[0];
                prop_assert_eq!(verdict.decision().is_allowed(), expected.allowed);
                if expected.allowed {
                    writes[limiter] += 1;
                    ledgers[limiter].charged(now, cost, request.id);
                    request.made.push((limiter, verdict.receipt()));
                    request.writes.push((writes[limiter], now));
                } else {
                    request.stage = Stage::Undo;
                }
            }
            Stage::Undo => match (request.made.pop(), request.writes.pop()) {
                (Some((limiter, receipt)), Some((written, charged))) => {
                    backend.undo(clock.now(), &[receipt]);
                    let seen = answer(backend.peek(clock.now(), &on(limiter, 0)));
                    let back = ledgers[limiter].undone(now, request.id, Expected::of(&seen))?;
                    let between =
                        written != writes[limiter] || base_may_have_moved(built, charged, now);
                    prop_assert!(back || between, "burnt without a need");
                    writes[limiter] += 1;
                }
                _ => request.stage = Stage::Denied,
            },
            Stage::Admitted | Stage::Denied => {}
        }
    }
    for request in &under_way {
        prop_assert!(matches!(request.stage, Stage::Admitted | Stage::Denied));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn interleaved_requests_on_several_rules_are_all_or_nothing(
        exacts in vec(exact(), 2..=3),
        epoch in epoch(),
        requests in vec(vec((any::<Index>(), cost()), 1..=3), 2..=5),
        turns in turns(),
    ) {
        interleave(&exacts, epoch, &requests, &turns)?;
    }
}
