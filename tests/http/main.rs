//! The layer over real loopback sockets, HTTP/1.1 with keep-alive and HTTP/2: a limit of N admits exactly
//! N wherever it is put, and what is refused is told so in exactly these bytes.
#![allow(clippy::disallowed_methods, reason = "servers and clients run as tasks of the test")]

mod degraded;
mod endings;
mod in_flight;
mod inner;
mod mixed;
mod placements;
mod refusals;
mod support;
mod support_in_flight;
mod without_axum;
