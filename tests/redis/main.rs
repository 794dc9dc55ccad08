#![allow(clippy::disallowed_methods, reason = "a store is in real time")]

mod alone;
mod cluster;
mod differential;
mod failover;
mod faults;
mod front;
mod load;
mod processes;
mod proxy;
mod same;
mod server;
mod setup;
mod state;
