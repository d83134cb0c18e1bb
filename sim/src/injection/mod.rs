//! Injects the faults of a scenario, and undoes each when its time is over.
//!
//! | faults of | are in |
//! |---|---|
//! | a process, its clock, its connections to store and hub, its user code | `machines` |
//! | the store, for all hosts | `stores` |
//! | the hub | `hubs` |
//! | the events that the hub has stored | `logs` |
//! | an operator's actions | `operator` |
//!
//! When all faults have ended, `recovery` restores everything that is still broken.

mod hubs;
mod logs;
mod machines;
mod operator;
mod recovery;
mod stores;

use std::time::Duration;

use ephor::{HostId, PartitionId};

use crate::run::Run;
use crate::scenario::{Fault, Injection};
use crate::stopping::StopCallers;

/// A step for later: a fault to undo or a step to take, and the host that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    Start(usize),
    Resume(usize),
    Drift(usize),
    Store(usize),
    /// `StoreTrouble` ends with an unreachable store.
    StoreCutOff(usize),
    CommonStore,
    HubProperties,
    /// A lagging hub breaks its links.
    HubLinks,
    /// The hub comes back, created again.
    HubRefilled(usize),
    /// Retention removes all but this many events.
    Overtake(PartitionId, u64),
    /// A host is told to stop within this time, and its store hangs.
    Stop {
        host: usize,
        within: Duration,
        hangs: Duration,
        callers: StopCallers,
    },
    Source(usize),
    Processor(usize),
    Drain(HostId),
    Hold(usize, PartitionId),
}

impl Run {
    /// Injects a fault. Returns false if there was nothing that it could hit.
    pub(crate) fn inject(&mut self, injection: &Injection) -> bool {
        match injection.fault {
            Fault::Join | Fault::Namesake => self.add_host(injection),
            Fault::StoreThrottles
            | Fault::StoreWakesNobody
            | Fault::StoreOutage
            | Fault::StoreFailover
            | Fault::StoreRestored => self.inject_into_store(injection),
            Fault::HubRestart
            | Fault::LinkCut
            | Fault::HubLosesPower
            | Fault::HubPropertiesLag
            | Fault::HubRecreated
            | Fault::HubGrows
            | Fault::Retention
            | Fault::ForeignReader => self.inject_into_hub(injection),
            Fault::HubReplicaLags
            | Fault::HubRefilled
            | Fault::RetentionOvertakes
            | Fault::HubDamaged
            | Fault::HubCompacted => self.inject_into_log(injection),
            Fault::Seek => self.operator_seeks(injection),
            Fault::Drain => self.operator_drains(injection),
            Fault::PausePartition => self.operator_holds(injection),
            Fault::Crash
            | Fault::PauseProcess
            | Fault::Freeze
            | Fault::Suspend
            | Fault::Restart
            | Fault::Upgrade
            | Fault::BrokenUpgrade
            | Fault::LongStop
            | Fault::StoreHangsAtStop
            | Fault::Leave
            | Fault::ClockDrift
            | Fault::ClockJump
            | Fault::WallClockSet
            | Fault::StoreTrouble
            | Fault::StoreCutOff
            | Fault::StoreAnswersLost
            | Fault::HostUnseenInStore
            | Fault::HubTrouble
            | Fault::HubCutOff
            | Fault::HubAnswersLost
            | Fault::SlowProcessor
            | Fault::FailingProcessor
            | Fault::BlockedProcessor
            | Fault::HangingProcessor
            | Fault::OddCheckpoints
            | Fault::StopTwice
            | Fault::StopCallerLeaves
            | Fault::StopDuringStart => self.inject_into_host(injection),
        }
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::CommonStore => self.end_store_faults(),
            Undo::HubLinks => self.world.hub.restart(),
            Undo::HubRefilled(target) => self.refill_recreated_hub(target),
            Undo::Overtake(partition, count) => self.retention_overtakes(partition, count),
            Undo::Stop { host, within, hangs, callers } => self.tell_to_stop(host, within, hangs, callers),
            Undo::HubProperties => self.world.hub.hold_properties(false),
            Undo::Drain(host) => self.order_drain(&host, false),
            Undo::Hold(number, partition) => self.end_hold(number, partition),
            Undo::Start(host)
            | Undo::Resume(host)
            | Undo::Drift(host)
            | Undo::Store(host)
            | Undo::StoreCutOff(host)
            | Undo::Source(host)
            | Undo::Processor(host) => self.undo_on_host(host, undo),
        }
    }
}
