//! What is on the wire: the fields that tell callers how they stand, read by another's parser; answers to gRPC
//! clients, read by one; and refusals of uploads that are still on their way.
#![allow(clippy::disallowed_methods, reason = "servers and clients run as tasks of the test")]

mod extractors;
mod fields;
mod grpc;
mod support;
#[path = "../shared/upload.rs"]
mod upload;
mod uploads;
