//! Carrying out what the scenario wants, and undoing it when its time is over.
//!
//! | what happens to | is in |
//! |---|---|
//! | a process, its clock, its ways to store and hub, its users' code | `machines` |
//! | the store as all see it | `stores` |
//! | the hub | `hubs` |
//! | what the hub has stored | `logs` |
//! | whatever a person does | `people` |
//! | everybody, when the trouble is over | `rest` |

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

/// Something that ends or follows later: what to undo or to do, and for which host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    Start(usize),
    Resume(usize),
    Drift(usize),
    Store(usize),
    /// Trouble with the store ends with the store out of reach.
    StoreCutOff(usize),
    CommonStore,
    HubProperties,
    /// A hub that lags breaks its links.
    HubLinks,
    /// The hub comes back, made anew.
    HubRefilled(usize),
    /// Retention removes all but so many events.
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
    /// Carries out an act. False if there was nobody to do it to.
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
