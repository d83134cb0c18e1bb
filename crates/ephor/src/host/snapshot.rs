//! What a host owns and does, at one moment.

use std::time::Duration;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostState, HostStatistics};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::progress::Lag;
use ephor_core::time::Timestamp;

use super::changes::OwnershipReason;
use super::shared::HostShared;
use crate::context::Failing;
use crate::error::StoreCallError;
use crate::lease_state::Stage;
use ephor_core::checkpoint::Position;

/// A host, at one moment.
#[derive(Clone, Debug)]
pub struct HostSnapshot {
    /// Who.
    pub host: HostId,
    /// What it is able and willing to do.
    pub state: HostState,
    /// How many partitions it should have by the last plan.
    pub share: u32,
    /// How many hosts were alive in the last view, itself included.
    pub hosts_alive: usize,
    /// How many partitions the hub has.
    pub hub_partitions: usize,
    /// Views read since the start.
    pub scans: u64,
    /// Figures since the start.
    pub statistics: HostStatistics,
    /// For how long the store has been failing, if it is.
    pub store_failing_for: Option<Duration>,
    /// What is wrong with the store, if it is failing: what the last call got for an answer.
    pub store_error: Option<StoreCallError>,
    /// What it owns, in order.
    pub partitions: Vec<PartitionSnapshot>,
}

impl HostSnapshot {
    /// Whether the host is ready and has nothing to own.
    pub fn is_standby(&self) -> bool {
        self.state == HostState::Standby
    }
}

/// An owned partition, at one moment.
#[derive(Clone, Debug)]
pub struct PartitionSnapshot {
    /// Which.
    pub partition: PartitionId,
    /// In which epoch it is owned.
    pub epoch: Epoch,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: OwnershipReason,
    /// What its pump is doing.
    pub stage: Stage,
    /// Whether a call blocks its thread; the lease is then left to run out.
    pub stuck: bool,
    /// For how long the present call to the processor has run.
    pub in_call_for: Option<Duration>,
    /// How long the lease lasts without another renewal.
    pub lease_left: Duration,
    /// The last event that is finished.
    pub finished: Option<SequenceNumber>,
    /// Events finished since it is owned.
    pub events: u64,
    /// The batch that fails at the moment, if one does.
    pub failing: Option<Failing>,
    /// The last checkpoint that is known to be stored.
    pub checkpoint: Option<Checkpoint>,
    /// How far behind it is.
    pub lag: Lag,
}

impl HostSnapshot {
    pub(crate) fn of(shared: &HostShared) -> Self {
        let now = shared.now();
        let statistics = shared.statistics();
        let partitions = shared
            .slots()
            .iter()
            .map(|(partition, slot)| {
                let lease = &slot.context.inner().lease;
                let lag = slot.context.lag();
                let progress = slot.context.progress();
                PartitionSnapshot {
                    partition: *partition,
                    epoch: slot.token().epoch,
                    since: slot.since,
                    reason: slot.reason,
                    stage: lease.stage(),
                    stuck: lease.is_stuck(),
                    in_call_for: lease.call_running_since().map(|since| now.since(since)),
                    lease_left: lease.deadline().since(now),
                    finished: progress.finished.as_ref().and_then(Position::finished),
                    events: progress.events,
                    failing: progress.failing.clone(),
                    checkpoint: progress.saved.clone(),
                    lag,
                }
            })
            .collect();
        let status = shared.status().clone();
        Self {
            host: shared.me.clone(),
            state: status.state,
            share: status.share,
            hosts_alive: status.hosts_alive,
            hub_partitions: status.partitions,
            scans: status.scans,
            statistics,
            store_failing_for: shared.store.failing_for(now),
            store_error: shared.store.error(),
            partitions,
        }
    }
}
