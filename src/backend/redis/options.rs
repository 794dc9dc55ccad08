//! [`Options`]: the settings of a handle.

use std::{sync::Arc, time::Duration};

use super::{away::Away, fleet::Instances};
use crate::ConfigError;

/// The settings of a handle.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) prefix: Arc<str>,
    pub(super) deadline: Duration,
    pub(super) pipeline: usize,
    pub(super) away: Away,
    pub(super) instances: Instances,
    pub(super) share: Option<f64>,
    pub(super) remembers: bool,
    pub(super) is_given_time: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: Arc::from("sluice"),
            deadline: Duration::from_millis(10),
            pipeline: 1_024,
            away: Away::default(),
            instances: Instances::default(),
            share: None,
            remembers: false,
            is_given_time: false,
        }
    }
}

impl Options {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.deadline.is_zero() {
            return Err(ConfigError::new(
                "deadline",
                "0ns",
                "must be above zero; 10 ms is the default",
            ));
        }
        if self.pipeline == 0 {
            return Err(ConfigError::new("pipeline", 0, "must be at least 1"));
        }
        if matches!(self.instances, Instances::Fixed(0)) {
            return Err(ConfigError::new("instances", 0, "must be at least 1"));
        }
        match self.share {
            Some(share) if !(1.0..=1_000.0).contains(&share) => {
                let reason =
                    "must be from 1.0, which is an instance's even part of the quota, to 1000.0";
                Err(ConfigError::new("share", share, reason))
            }
            _ => Ok(()),
        }
    }
}
