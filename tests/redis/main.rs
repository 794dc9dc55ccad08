//! One quota for a fleet, on real servers that each test starts and stops. In real time, which is a server's: what is
//! asserted is the order of events, or a bound ten times the expected.

#![allow(clippy::disallowed_methods, reason = "a store is in real time")]
#![allow(clippy::print_stdout, reason = "figures of a run, shown by --nocapture")]

mod alone;
mod breaks;
mod cluster;
mod differential;
mod failover;
mod faults;
mod front;
mod load;
mod log;
mod processes;
mod proxy;
mod same;
mod server;
mod setup;
mod state;
mod waits;
