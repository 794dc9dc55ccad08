//! Undo is never a gift: what is undone is as if it had never come, or as if it had stayed.

use std::sync::Arc;

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::Index};
use tower_sluice::{
    Backend, Decision, ManualClock, Missing, RateLimitLayer, Rule,
    backend::{Charge, LimiterId, Local, Receipt},
    clock::{Clock, Nanos},
    key,
};

use crate::{
    config,
    models::{Expected, Model},
    quotas::{Cost, Exact, Span, base_stays, cost, epoch, exact, span},
    subjects::{answer, clock},
};

/// The charges on one key, and the model that they give.
pub(crate) struct Ledger {
    fresh: Model,
    /// When, cost, and a number of the caller's.
    charges: Vec<(u64, u64, usize)>,
}

impl Ledger {
    pub(crate) fn new(fresh: Model) -> Self {
        Self { fresh, charges: Vec::new() }
    }

    fn model_without(&self, id: Option<usize>) -> Model {
        let mut model = self.fresh.clone();
        for (now, cost, _) in self.charges.iter().filter(|charge| Some(charge.2) != id) {
            model.charge(*now, *cost);
        }
        model
    }

    pub(crate) fn model(&self) -> Model {
        self.model_without(None)
    }

    pub(crate) fn charged(&mut self, now: u64, cost: u64, id: usize) {
        if cost > 0 {
            self.charges.push((now, cost, id));
        }
    }

    /// Whether nothing was charged after this one.
    fn is_newest(&self, id: usize) -> bool {
        self.charges.last().is_some_and(|charge| charge.2 == id)
    }

    pub(crate) fn forget(&mut self) {
        self.charges.clear();
    }

    /// Takes note of an undo, of which `seen` is what a request of cost 0 is told after it: says
    /// whether the permits came back, and fails where that looks like neither.
    pub(crate) fn undone(
        &mut self,
        now: u64,
        id: usize,
        seen: Expected,
    ) -> Result<bool, TestCaseError> {
        let never_came = self.model_without(Some(id)).peek(now, 0);
        let stayed = self.model().peek(now, 0);
        // Both may look the same today and differ by a fraction of a nanosecond tomorrow.
        if seen == never_came && (seen != stayed || self.is_newest(id)) {
            self.charges.retain(|charge| charge.2 != id);
            return Ok(true);
        }
        prop_assert_eq!(seen, stayed, "without it: {:?}", never_came);
        Ok(seen == never_came)
    }
}

/// Whether the base may have moved between a charge and its undo, which burns what is undone. Not at one
/// instant: the charge has moved it then.
pub(crate) fn base_may_have_moved(built: u64, charged: u64, undone: u64) -> bool {
    charged != undone && !base_stays(built, undone)
}

/// An admitted charge that may be undone.
struct Charged {
    key: usize,
    id: usize,
    at: u64,
    /// How many resets there had been.
    resets: u64,
    receipt: Receipt,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(Span),
    Charge(u8, Cost),
    Undo(Index),
    Reset(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => span().prop_map(Step::Advance),
        8 => (0..2_u8, cost()).prop_map(|(key, cost)| Step::Charge(key, cost)),
        6 => any::<Index>().prop_map(Step::Undo),
        1 => (0..2_u8).prop_map(Step::Reset),
    ];
    vec(step, 1..40)
}

/// A limiter on a `Local`; a layer registers it, which is how specs are made.
fn registered(backend: &Local, exact: Exact, keyed: bool, clock: &ManualClock, max_keys: u64) {
    let mut rule = Rule::new("rule", exact.algorithm);
    if keyed {
        rule = rule.key(key::header("x-key")).missing(Missing::Skip).max_keys(max_keys);
    }
    let layer = RateLimitLayer::builder()
        .clock(clock.clone())
        .backend(Arc::new(backend.clone()))
        .rule(rule);
    let _ = layer.build().unwrap();
}

const ID: LimiterId = LimiterId(0);

fn follow_undo(
    exact: Exact,
    (built, utc): (u64, Duration),
    keyed: bool,
    max_keys: u64,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let (quota, clock, backend) = (exact.algorithm.quota(), clock(built, utc), Local::new());
    registered(&backend, exact, keyed, &clock, max_keys);
    let names: [&[u8]; 2] = if keyed { [b"a", b"b"] } else { [b"", b""] };
    let whose = |key: u8| if keyed { usize::from(key) } else { 0 };
    let mut ledgers = [(); 2].map(|()| Ledger::new(exact.model(built, utc)));
    let (mut admitted, mut resets) = (Vec::new(), 0);
    let peek = |key: usize, cost: u64| -> Decision {
        answer(backend.peek(clock.now(), &Charge::new(ID, cost).key(names[key])))
    };
    for (id, step) in steps.iter().enumerate() {
        let now = clock.now().get();
        match *step {
            Step::Advance(span) => clock.set(Nanos::new(now + span.nanos(quota))),
            Step::Charge(key, cost) => {
                let (key, cost) = (whose(key), cost.permits(quota));
                let expected = ledgers[key].model().peek(now, cost);
                let charge = Charge::new(ID, cost).key(names[key]);
                let verdicts = answer(backend.check(clock.now(), &[charge]));
                let verdict = verdicts.as_slice()[0];
                prop_assert_eq!(verdict.decision().is_allowed(), expected.allowed);
                if expected.allowed {
                    ledgers[key].charged(now, cost, id);
                    let receipt = verdict.receipt();
                    admitted.push(Charged { key, id, at: now, resets, receipt });
                }
            }
            Step::Undo(index) => {
                if admitted.is_empty() {
                    continue;
                }
                let charged: Charged = admitted.swap_remove(index.index(admitted.len()));
                let Charged { key, id, at, receipt, .. } = charged;
                let newest = ledgers[key].is_newest(id);
                backend.undo(clock.now(), &[receipt]);
                let seen = Expected::of(&peek(key, 0));
                if charged.resets != resets {
                    // After a reset, of whichever key, what is undone is burnt.
                    prop_assert_eq!(seen, ledgers[key].model().peek(now, 0));
                    continue;
                }
                let back = ledgers[key].undone(now, id, seen)?;
                let between = !newest || base_may_have_moved(built, at, now);
                prop_assert!(back || between, "nothing came between, and the permits are burnt");
            }
            Step::Reset(key) => {
                let key = whose(key);
                answer(backend.reset(clock.now(), &Charge::new(ID, 0).key(names[key])));
                ledgers[key].forget();
                resets += 1;
            }
        }
        let now = clock.now().get();
        for (key, ledger) in ledgers.iter().enumerate().take(if keyed { 2 } else { 1 }) {
            for cost in [0, 1, quota.max_burst()] {
                prop_assert_eq!(Expected::of(&peek(key, cost)), ledger.model().peek(now, cost));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn undo_is_never_a_gift(
        exact in exact(),
        epoch in epoch(),
        steps in steps(),
    ) {
        follow_undo(exact, epoch, false, 8, &steps)?;
    }

    #[test]
    fn undo_of_a_key_is_never_a_gift_to_it_or_to_another(
        exact in exact(),
        epoch in epoch(),
        max_keys in 2..=8_u64,
        steps in steps(),
    ) {
        follow_undo(exact, epoch, true, max_keys, &steps)?;
    }
}
