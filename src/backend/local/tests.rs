//! Promises of the backend that its public surface cannot be brought to show.

use std::{sync::Arc, time::Duration};

use super::Local;
use crate::{
    Backend, Quota, TokenBucket,
    backend::{Answer, Charge, LimiterId, LimiterSpec},
    clock::Nanos,
};

fn spec(quota: Quota) -> LimiterSpec {
    LimiterSpec {
        name: Arc::from("spec"),
        algorithm: TokenBucket::from(quota).into(),
        quotas: vec![quota],
        factors: vec![1],
        keyed: false,
        max_keys: 1,
        utc_at_zero: Duration::ZERO,
        now: Nanos::ZERO,
        replaces: None,
    }
}

#[test]
fn a_check_that_fails_has_charged_nothing() {
    let local = Local::new();
    let known = local.register(&spec(Quota::per_second(1))).expect("a limiter");
    let unknown = LimiterId(7);
    let charges = [Charge::new(known, 1), Charge::new(unknown, 1)];
    assert!(matches!(local.check(Nanos::ZERO, &charges), Answer::Ready(Err(_))));
    let Answer::Ready(Ok(decision)) = local.peek(Nanos::ZERO, &charges[0]) else {
        panic!("the backend answers at once");
    };
    assert_eq!(decision.remaining(), 1);
}
