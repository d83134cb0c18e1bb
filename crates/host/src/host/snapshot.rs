//! A snapshot of a host: its partitions and their activity at one moment.

use std::time::Duration;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostState, HostStatistics};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::progress::Lag;
use ephor_core::time::Timestamp;

use super::ownership_changes::OwnershipReason;
use super::running_host::RunningHost;
use crate::error::StoreCallError;
use crate::progress::Failing;
use crate::pump_activity::PumpState;
use ephor_core::checkpoint::Position;

/// A host at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HostSnapshot {
    /// The host.
    pub host: HostId,
    /// Its state.
    pub state: HostState,
    /// The number of partitions that it should have by the last plan.
    pub share: u32,
    /// The number of living hosts in the last view, itself included.
    pub hosts_alive: usize,
    /// The number of partitions of the hub.
    pub hub_partitions: usize,
    /// The number of views read since the start.
    pub scans: u64,
    /// Statistics since the start.
    pub statistics: HostStatistics,
    /// The time for which the store has been failing, if it is.
    #[cfg_attr(feature = "serde", serde(serialize_with = "ephor_core::duration_setting::option::millis"))]
    pub store_failing_for: Option<Duration>,
    /// The error of the last call to the store, if it is failing.
    pub store_error: Option<StoreCallError>,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionSnapshot>,
}

impl HostSnapshot {
    /// True if the host is ready but has nothing to own.
    pub fn is_standby(&self) -> bool {
        self.state == HostState::Standby
    }
}

/// An owned partition at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PartitionSnapshot {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the ownership.
    pub epoch: Epoch,
    /// The time since which it is owned, by this host's wall clock.
    pub since: Timestamp,
    /// The reason why it came.
    pub reason: OwnershipReason,
    /// The state of its pump.
    pub state: PumpState,
    /// True if a call blocks its thread; the lease is then left to expire.
    pub stuck: bool,
    /// The time for which the current call to the processor has run.
    #[cfg_attr(feature = "serde", serde(serialize_with = "ephor_core::duration_setting::option::millis"))]
    pub in_call_for: Option<Duration>,
    /// The time until this host must stop, without another renewal.
    #[cfg_attr(feature = "serde", serde(serialize_with = "ephor_core::duration_setting::millis"))]
    pub lease_left: Duration,
    /// The last finished event.
    pub finished: Option<SequenceNumber>,
    /// The number of events finished since it is owned.
    pub events: u64,
    /// The batch that currently fails, if one does.
    pub failing: Option<Failing>,
    /// The last checkpoint that is known to be stored.
    pub checkpoint: Option<Checkpoint>,
    /// Its lag.
    pub lag: Lag,
}

impl HostSnapshot {
    pub(crate) fn of(running: &RunningHost) -> Self {
        let now = running.now();
        let statistics = running.statistics();
        let partitions = running
            .slots()
            .iter()
            .map(|(partition, slot)| {
                let lease = slot.context.lease();
                let lag = slot.context.lag();
                let progress = slot.context.progress();
                PartitionSnapshot {
                    partition: *partition,
                    epoch: slot.token().epoch,
                    since: slot.since,
                    reason: slot.reason,
                    state: slot.activity.state(),
                    stuck: slot.activity.is_stuck(),
                    in_call_for: slot.activity.call_running_since().map(|since| now.since(since)),
                    lease_left: lease.deadline().since(now),
                    finished: progress.finished.as_ref().and_then(Position::finished),
                    events: progress.events,
                    failing: progress.failing.clone(),
                    checkpoint: progress.saved.clone(),
                    lag,
                }
            })
            .collect();
        let status = running.status().clone();
        Self {
            host: running.me.clone(),
            state: status.state,
            share: status.share,
            hosts_alive: status.hosts_alive,
            hub_partitions: status.partitions,
            scans: status.scans,
            statistics,
            store_failing_for: running.store.failing_for(now),
            store_error: running.store.error(),
            partitions,
        }
    }
}

#[cfg(feature = "serde")]
#[cfg(test)]
mod tests;
