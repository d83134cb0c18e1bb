//! What a host says of itself: written by that host alone, read by all.

use std::time::Duration;

use crate::epoch::Epoch;
use crate::ids::{HostId, LogId, PartitionId};
use crate::time::Timestamp;

/// What a host is able and willing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum HostState {
    /// Owns partitions, or will.
    #[default]
    Active,
    /// Ready, with nothing to own for now.
    Standby,
    /// Gives its partitions away and takes no new ones.
    Draining,
    /// Reaches the store, but cannot serve: the hub is out of its reach, or its
    /// processor does not open.
    Unfit,
}

impl HostState {
    /// Whether the host counts when the load is shared.
    pub fn takes_part(self) -> bool {
        matches!(self, Self::Active | Self::Standby)
    }
}

/// A request to hand a partition over. It stands in the asker's own record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The partition.
    pub partition: PartitionId,
    /// Who owns it, and is asked.
    pub owner: HostId,
    /// In which epoch.
    pub epoch: Epoch,
}

/// An owner's answer to a [`Want`]. It stands in the owner's own record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The partition.
    pub partition: PartitionId,
    /// Who asked.
    pub asker: HostId,
    /// What the owner says.
    pub reply: Reply,
}

/// What an owner says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It will be handed over by then, by the store's clock.
    DrainingUntil(Timestamp),
    /// No: by the owner's view it is not above its share.
    No,
}

/// Small figures that ride along for people and tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
pub struct HostRecord {
    /// Who.
    pub id: HostId,
    /// Counts the heartbeats of this incarnation: a record that stands still is seen to.
    pub beat: u64,
    /// What it is able and willing to do.
    pub state: HostState,
    /// The host is alive for this long after a heartbeat; also its lease duration.
    pub lease_duration: Duration,
    /// It never owns more partitions than this.
    pub max_partitions: Option<u32>,
    /// What it asks of others.
    pub wants: Vec<Want>,
    /// What it answers others.
    pub answers: Vec<Answer>,
    /// For people and tools.
    pub statistics: HostStatistics,
    /// The version of Ephor that it runs.
    pub software: String,
    /// The hub that it reads. None if it does not tell: the hub names no log or is away, or the host is of a version
    /// that did not tell yet.
    pub hub: Option<ReadHub>,
}

/// The hub that a host reads, as of its last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadHub {
    /// Where the hub is, for people.
    pub endpoint: String,
    /// Which log it is.
    pub log: LogId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_and_unfit_hosts_take_no_part() {
        assert!(HostState::Active.takes_part());
        assert!(HostState::Standby.takes_part());
        assert!(!HostState::Draining.takes_part());
        assert!(!HostState::Unfit.takes_part());
    }
}
