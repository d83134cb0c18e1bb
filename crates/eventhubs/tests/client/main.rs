//! Tests of the client against the real gateway and against scripted hubs, one file per subject. One test
//! binary, to save build time.
#![allow(clippy::disallowed_methods, reason = "real sockets: tasks and time are the runtime's")]
#![allow(clippy::print_stdout, reason = "a measurement that is printed")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]

mod authentication;
mod common;
mod conformance;
mod duplex;
mod entra;
mod faults;
mod many_partitions;
mod outages;
mod receiving;
mod sending;
mod slow_connections;
