//! A quota for a fleet, in Redis or Valkey: what holds, what does not while the store is away, and what to set.
//!
//! This page answers: How do several processes share a limit? What is admitted while the store is away, and how is that
//! bounded? What does it cost, and what must be set on the server?
//!
#![doc = include_str!("../../docs/redis.md")]
//!
//! # Next
//!
//! [Testing your limits](super::testing): that they refuse, whom, and until when.
//!
//! Used on this page: [`Redis`], [`Rule`], [`RejectionPolicy`], [`LeakyBucket`], [`Observer`], [`Handle`],
//! [`BackendErrorKind`], [`Fault`], [`InFlight`].

#[cfg(doc)]
use crate::{
    BackendErrorKind, Handle, InFlight, LeakyBucket, Observer, RejectionPolicy, Rule,
    backend::Redis, event::Fault,
};
