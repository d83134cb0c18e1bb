//! Test helper: host records, views and times for the unit tests of the manager.

use std::time::Duration;

use ephor_core::host_record::{HostRecord, HostState, HostStatistics};
use ephor_core::ids::{HostId, Incarnation};
use ephor_core::store::{HostEntry, View};
use ephor_core::time::Monotonic;

pub(super) fn at(seconds: u64) -> Monotonic {
    Monotonic(0) + Duration::from_secs(seconds)
}

pub(super) fn host(name: &str, incarnation: u64) -> HostId {
    HostId { name: name.parse().unwrap(), incarnation: Incarnation(incarnation) }
}

pub(super) fn record(id: HostId, beat: u64) -> HostRecord {
    HostRecord {
        id,
        beat,
        state: HostState::Active,
        lease_duration: Duration::from_secs(30),
        max_partitions: None,
        wants: vec![],
        answers: vec![],
        statistics: HostStatistics::default(),
        software: String::new(),
        hub: None,
    }
}

/// A view of these hosts, and of nothing else.
pub(super) fn view_of(records: impl IntoIterator<Item = HostRecord>) -> View {
    let entry = |record| HostEntry { record, age: Duration::ZERO, age_known: true };
    View { hosts: records.into_iter().map(entry).collect(), ..View::default() }
}
