//! Tests of the Azure Blob store, on a real Azurite that the tests start and stop.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "the server's time is real")]

mod batch_deletion;
mod batch_renewals;
mod blob_name_case;
mod clock;
mod conformance;
mod container_signature;
mod contradictions;
mod damaged_blobs;
mod error_pages;
mod errors;
mod fenced_owners;
mod fixture;
mod fleet;
mod golden;
mod interleaved_calls;
mod interrupted_calls;
mod keda;
mod legacy;
mod optional_requests;
mod other_sdks;
mod proxy;
mod races;
#[path = "../shared/raw_blobs.rs"]
mod raw_blobs;
mod renewal_load;
mod renewals;
mod request_counts;
mod server;
mod signatures;
