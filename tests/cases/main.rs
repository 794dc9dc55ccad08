//! The faults of `docs/cases.md`, each as a test named after its id.
#![allow(clippy::disallowed_methods, reason = "some cases want real sockets and tasks")]

mod combined;
mod http_surface;
mod keys;
mod mechanics;
mod support;
