//! The Azure Blob store, on a real Azurite that the tests start and stop.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]
#![allow(clippy::disallowed_methods, reason = "the server's time is real")]

mod calls;
mod clock;
mod conformance;
mod errors;
mod fences;
mod fleet;
mod foreign;
mod mishaps;
mod old_fleet;
mod oracle;
mod prefixes;
mod proxy;
mod races;
#[path = "../shared/raw.rs"]
mod raw;
mod rolls;
mod server;
mod world;
