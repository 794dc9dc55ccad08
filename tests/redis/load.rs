//! Requests at a steady pace through a layer: how long each took, and what it was answered.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::body::Body;
use http::{Request, Response};
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt, service_fn};
use tower_sluice::{
    Observer, RateLimitLayer,
    backend::Redis,
    event::{SetupFault, StoreChanged, StoreState},
};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shot {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) status: u16,
}

pub(crate) async fn shoot(layer: RateLimitLayer, request: Request<Body>) -> Shot {
    let inner =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let at = Instant::now();
    let answer = layer.layer(inner).oneshot(request).await.unwrap();
    Shot { at, took: at.elapsed(), status: answer.status().as_u16() }
}

/// Sends so many a second for so long.
pub(crate) fn load(
    layer: &RateLimitLayer,
    per_second: u32,
    lasts: Duration,
) -> JoinHandle<Vec<Shot>> {
    let layer = layer.clone();
    tokio::spawn(async move {
        let (begin, mut shots) = (Instant::now(), Vec::new());
        let mut pace = tokio::time::interval(Duration::from_secs(1) / per_second);
        while begin.elapsed() < lasts {
            pace.tick().await;
            shots.push(tokio::spawn(shoot(layer.clone(), Request::new(Body::empty()))));
        }
        let mut done = Vec::new();
        for shot in shots {
            done.push(shot.await.unwrap());
        }
        done
    })
}

/// All that a store tells, with when.
#[derive(Clone, Default)]
pub(crate) struct Told(
    pub(crate) Arc<Mutex<Vec<(Instant, StoreState)>>>,
    pub(crate) Arc<Mutex<Vec<String>>>,
);

impl Observer for Told {
    fn store_changed(&self, changed: &StoreChanged<'_>) {
        self.0.lock().unwrap().push((Instant::now(), changed.state()));
    }

    fn fault(&self, fault: &SetupFault) {
        self.1.lock().unwrap().push(fault.to_string());
    }
}

impl Told {
    pub(crate) fn states(&self) -> Vec<StoreState> {
        self.0.lock().unwrap().iter().map(|(_, state)| *state).collect()
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

/// Waits until its store is away.
pub(crate) async fn goes_away(longest: Duration, shared: &Redis) -> bool {
    eventually(longest, || matches!(shared.state(), StoreState::Away(_))).await
}

/// Waits until this holds.
pub(crate) async fn eventually(longest: Duration, holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + longest;
    while Instant::now() < end {
        if holds() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    holds()
}
