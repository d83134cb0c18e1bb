//! Injects the faults of a scenario (its acts), and undoes each when its time is over.
//!
//! | faults of | are in |
//! |---|---|
//! | a process, its clock, its connections to store and hub, its user code | `machines` |
//! | the store, for all hosts | `stores` |
//! | the hub | `hubs` |
//! | the events that the hub has stored | `logs` |
//! | an operator's actions | `people` |
//! | the whole fleet, when all faults end | `rest` |

mod hubs;
mod logs;
mod machines;
mod people;
mod rest;
mod stores;

use std::time::Duration;

use ephor::{HostId, PartitionId};

use crate::run::Run;
use crate::scenario::{Act, Fault};

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
    },
    Source(usize),
    Processor(usize),
    Drain(HostId),
    Hold(usize, PartitionId),
}

impl Run {
    /// Injects a fault. Returns false if there was nothing that it could hit.
    pub(crate) fn carry_out(&mut self, act: &Act) -> bool {
        match act.fault {
            Fault::Join | Fault::Namesake => self.somebody_joins(act),
            Fault::StoreThrottles
            | Fault::StoreWakesNobody
            | Fault::StoreOutage
            | Fault::StoreFailover
            | Fault::StoreRestored => self.happens_to_the_store(act),
            Fault::HubRestart
            | Fault::LinkCut
            | Fault::HubLosesPower
            | Fault::HubPropertiesLag
            | Fault::HubRecreated
            | Fault::HubGrows
            | Fault::Retention
            | Fault::ForeignReader => self.happens_to_the_hub(act),
            Fault::HubReplicaLags | Fault::HubRefilled | Fault::RetentionOvertakes | Fault::HubDamaged => {
                self.happens_to_a_log(act)
            }
            Fault::Seek => self.a_person_seeks(act),
            Fault::Drain => self.a_person_drains(act),
            Fault::Hold => self.a_person_holds(act),
            _ => self.happens_to_a_machine(act),
        }
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::CommonStore => self.the_store_is_well(),
            Undo::HubLinks => self.world.hub.restart(),
            Undo::HubRefilled(target) => self.hub_is_refilled(target),
            Undo::Overtake(partition, left) => self.retention_overtakes(partition, left),
            Undo::Stop { host, within, hangs } => self.is_told_to_stop(host, within, hangs),
            Undo::HubProperties => self.world.hub.hold_properties(false),
            Undo::Drain(host) => self.order_drain(&host, false),
            Undo::Hold(number, partition) => self.let_go(number, partition),
            other => self.undo_on_a_machine(other),
        }
    }
}
