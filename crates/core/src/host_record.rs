//! Host records: the state, handover requests, answers, statistics and hub of a host, which it writes with
//! each heartbeat and all others read.

use std::time::Duration;

use crate::epoch::Epoch;
use crate::ids::{HostId, LogId, PartitionId};
use crate::time::Timestamp;

/// The state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HostState {
    /// Owns partitions, or is ready to.
    #[default]
    Active,
    /// Ready, but has nothing to own for now.
    Standby,
    /// Hands its partitions over and takes no new ones.
    Draining,
    /// Unhealthy: it reaches the store, but cannot serve, because it cannot reach the hub or its
    /// processor does not open. Stored as `unfit`.
    Unhealthy,
}

impl HostState {
    /// True if the host counts when the load is shared.
    pub fn takes_part(self) -> bool {
        matches!(self, Self::Active | Self::Standby)
    }
}

/// A request to hand a partition over. It is written in the asker's own record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HandoverRequest {
    /// The partition.
    pub partition: PartitionId,
    /// Its owner, which is asked.
    pub owner: HostId,
    /// The epoch of the owner's lease.
    pub epoch: Epoch,
}

/// An owner's answer to a [`HandoverRequest`]. It is written in the owner's own record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HandoverAnswer {
    /// The partition.
    pub partition: PartitionId,
    /// The host that asked.
    pub asker: HostId,
    /// The answer.
    pub reply: HandoverReply,
}

/// The decision of an owner in a [`HandoverAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum HandoverReply {
    /// Yes: the owner drains the partition and hands it over by this time, by the store's clock.
    DrainingUntil(Timestamp),
    /// No: by the owner's view it does not own more than its share.
    No,
}

/// Statistics of a host, for people and tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HostStatistics {
    /// Partitions owned and served.
    pub owned: u32,
    /// Events finished since the start.
    pub events: u64,
    /// Events not yet finished, over all owned partitions.
    pub lag_events: u64,
    /// Failures of the processor since the start.
    pub failures: u64,
}

/// A host's record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HostRecord {
    /// The host.
    pub id: HostId,
    /// The number of the heartbeat in this incarnation. If it stops growing, other hosts notice.
    pub beat: u64,
    /// Its state.
    pub state: HostState,
    /// The time for which the host counts as alive after a heartbeat; also its lease duration.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::duration_setting::millis"))]
    pub lease_duration: Duration,
    /// The most partitions that it may own.
    pub max_partitions: Option<u32>,
    /// Its requests to owners.
    pub wants: Vec<HandoverRequest>,
    /// Its answers to requests.
    pub answers: Vec<HandoverAnswer>,
    /// For people and tools.
    pub statistics: HostStatistics,
    /// The version of Ephor that it runs.
    pub software: String,
    /// The hub that it reads. `None` if it does not report one: the hub names no log or is
    /// unreachable, or the host runs a version that does not report it yet.
    pub hub: Option<ReadHub>,
}

/// The hub that a host reads, as of the last time that it asked the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ReadHub {
    /// The endpoint of the hub, for people.
    pub endpoint: String,
    /// The log of the hub.
    pub log: LogId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_and_unhealthy_hosts_take_no_part() {
        assert!(HostState::Active.takes_part());
        assert!(HostState::Standby.takes_part());
        assert!(!HostState::Draining.takes_part());
        assert!(!HostState::Unhealthy.takes_part());
    }
}
