//! A permit taken and given back, without HTTP.

use std::{
    hint::black_box,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::sync::Semaphore;
use tower_sluice::{
    InFlight,
    clock::{BoxFuture, Clock, Nanos},
};

use crate::{
    harness::{Measured, Pace, Rows},
    report::Report,
};

const RIVAL: &str = "tokio's semaphore, owned permit";
const OURS: &str = "**ours**";
const OURS_KEYED: &str = "**ours**, of one key";
const RIVAL_HANDED: &str = "tokio's semaphore, handed to one who waits";
const OURS_HANDED: &str = "**ours**, handed to one who waits";

pub fn run(pace: Pace, report: &mut Report) {
    report.heading("A permit in flight, without HTTP");
    report.table(&["taken and given back", "ns", "of tokio's semaphore", "target"]);
    let measured = measure(pace);
    for name in measured.names() {
        let handed = name == OURS_HANDED || name == RIVAL_HANDED;
        let ratio = measured.ratio(name, if handed { RIVAL_HANDED } else { RIVAL });
        let target = if name == OURS {
            report.target("a permit taken and given back", ratio.median, 0.8, "")
        } else {
            String::new()
        };
        report.row(&[name.into(), measured.ns(name).text(1), ratio.text(2), target]);
    }
    report.end_table();
}

/// Stands still, and wakes nobody: what is measured is the line, not a timer.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    fn sleep_until(&self, _: Nanos) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn utc_at_zero(&self) -> Duration {
        Duration::ZERO
    }
}

/// One waits, the permit is given back, and it is his.
fn handed<P>(held: P, waits: impl Future<Output = P>, cx: &mut Context<'_>) -> P {
    let mut waits = pin!(waits);
    assert!(waits.as_mut().poll(cx).is_pending());
    drop(held);
    let Poll::Ready(permit) = waits.poll(cx) else { panic!("the permit is there") };
    permit
}

fn measure(pace: Pace) -> Measured {
    let semaphore = Arc::new(Semaphore::new(64));
    let ours = InFlight::new("db", 64);
    let one = Arc::new(Semaphore::new(1));
    let ours_one = InFlight::new("one", 1).clock(Still);

    let mut rows = Rows::default();
    rows.add(RIVAL, |n| {
        for _ in 0..n {
            drop(black_box(Arc::clone(&semaphore).try_acquire_owned().expect("a free permit")));
        }
    });
    rows.add(OURS, |n| {
        for _ in 0..n {
            drop(black_box(ours.try_acquire().expect("a free permit")));
        }
    });
    rows.add(OURS_KEYED, |n| {
        for _ in 0..n {
            drop(black_box(ours.try_acquire_by("alice").expect("a free permit")));
        }
    });
    rows.add(RIVAL_HANDED, |n| {
        let mut cx = Context::from_waker(Waker::noop());
        let mut held = Arc::clone(&one).try_acquire_owned().expect("a free permit");
        for _ in 0..n {
            let waits = async { Arc::clone(&one).acquire_owned().await.expect("it stays open") };
            held = black_box(handed(held, waits, &mut cx));
        }
    });
    rows.add(OURS_HANDED, |n| {
        let mut cx = Context::from_waker(Waker::noop());
        let mut held = ours_one.try_acquire().expect("a free permit");
        for _ in 0..n {
            let waits = async {
                let permit = ours_one.acquire(Duration::from_secs(1));
                permit.await.expect("time stands still")
            };
            held = black_box(handed(held, waits, &mut cx));
        }
    });
    rows.measure(pace)
}
