//! Test helper: the group that the tests use, a seek request, and the time limit of a test.

#[path = "../shared/store_steps.rs"]
mod store_steps;

use std::time::Duration;

use ephor_core::ids::GroupId;
use ephor_core::store::SeekRequest;

pub(crate) use store_steps::{LEASE, P, claim, finished, host, record, save, stored, transfer, try_claim};

/// Nothing that is to come takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Where the group's blobs are.
pub(crate) const BASE: &str = "ns.example.net/homes/$default";

/// Runs to the end on several threads, or fails after a long time.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("an end in time") })
}

pub(crate) fn group() -> GroupId {
    GroupId {
        namespace: "ns.example.net".parse().unwrap(),
        hub: "Homes".parse().unwrap(),
        group: "$Default".parse().unwrap(),
    }
}

pub(crate) fn seek(sequence: u64) -> SeekRequest {
    SeekRequest { partition: P, position: finished(sequence), log: None, by: "ada".into(), force: false }
}
