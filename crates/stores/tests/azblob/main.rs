//! The Azure Blob store, on a real Azurite that the tests start and stop.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "the server's time is real")]

mod advisory;
mod batch_renewals;
mod calls;
mod clock;
mod conformance;
mod container_signature;
mod errors;
mod fences;
mod fleet;
mod foreign;
mod gateways;
mod golden;
mod keda;
mod legacy;
mod mishaps;
mod oracle;
mod other_case;
mod prefixes;
mod proxy;
mod races;
#[path = "../shared/raw.rs"]
mod raw;
mod renewal_load;
mod renewals;
mod server;
mod signatures;
mod world;
