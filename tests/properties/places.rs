//! Slow model of waiting: who is in a room, and when each will go.

use crate::models::Model;

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) id: usize,
    pub(crate) cost: u64,
    /// The end of his longest wait.
    pub(crate) until: u64,
    /// When he was told that his turn would be.
    pub(crate) promised: u64,
}

/// Those who wait for the permits of one key. They have charged nothing.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) model: Model,
    pub(crate) waiters: Vec<Waiter>,
}

impl Room {
    pub(crate) fn new(model: Model) -> Self {
        Self { model, waiters: Vec::new() }
    }

    /// When a newcomer would go; `None` where the cost never fits.
    pub(crate) fn turn(&self, now: u64, cost: u64) -> Option<u64> {
        let (mut model, mut instant) = (self.model.clone(), now);
        for cost in self.waiters.iter().map(|waiter| waiter.cost).chain([cost]) {
            instant = next(&model, instant, cost)?;
            assert!(model.charge(instant, cost));
        }
        Some(instant)
    }

    /// How long a newcomer would have to wait; nothing where he may pass.
    pub(crate) fn wait(&self, now: u64, cost: u64) -> Option<u64> {
        let turn = self.turn(now, cost)?;
        // Behind others there is always a wait, even if they are due.
        Some((turn - now).max(u64::from(!self.waiters.is_empty())))
    }

    /// When the first will go.
    pub(crate) fn due(&self, now: u64) -> Option<u64> {
        next(&self.model, now, self.waiters.first()?.cost)
    }

    /// Lets all go who are due; they are charged.
    pub(crate) fn depart(&mut self, now: u64) -> Vec<Waiter> {
        let mut gone = Vec::new();
        while self.due(now) == Some(now) {
            let waiter = self.waiters.remove(0);
            assert!(self.model.charge(now, waiter.cost));
            gone.push(waiter);
        }
        gone
    }
}

/// When a charge fits, from `now` on.
fn next(model: &Model, now: u64, cost: u64) -> Option<u64> {
    let mut instant = now;
    loop {
        let said = model.peek(instant, cost);
        if said.allowed {
            return Some(instant);
        }
        instant += said.retry_after?.as_nanos() as u64;
    }
}
