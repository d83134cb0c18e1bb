//! The PostgreSQL store, on a real server that the tests start and stop.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]
#![allow(clippy::print_stdout, reason = "figures for whoever reads along")]
#![allow(clippy::disallowed_methods, reason = "the server's time is real")]

mod conformance;
mod server;
mod world;
