//! Tests of the PostgreSQL store, on a real server that the tests start and stop.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::print_stdout, reason = "a long run prints its figures")]
#![allow(clippy::disallowed_methods, reason = "the server's time is real")]

#[path = "../../../hub/tests/kill_helpers/child_process.rs"]
#[expect(dead_code, reason = "another test has more to do with it")]
mod child_process;
mod clock;
mod conformance;
mod errors;
mod exactly_once;
mod failover;
mod faults;
mod fixture;
mod fleet;
mod golden;
mod guarantees;
#[cfg(feature = "sqlite")]
mod idle_calls;
mod outages;
mod proxy;
mod reserved_connections;
mod round_trips;
mod save_in;
mod schema;
mod security;
mod server;
mod stress;
