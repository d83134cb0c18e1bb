//! Carrying out what the scenario wants, and undoing it when its time is over.
//!
//! | what happens to | is in |
//! |---|---|
//! | a process, its clock, its ways to store and hub, its users' code | `machines` |
//! | the store as all see it | `stores` |
//! | the hub | `hubs` |
//! | whatever a person does | `people` |
//! | everybody, when the trouble is over | `rest` |

mod hubs;
mod machines;
mod people;
mod rest;
mod stores;

use ephor::{HostId, PartitionId};

use crate::run::Run;
use crate::scenario::{Act, Fault};

/// Something that ends later: what to undo, and for which host.
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
            Fault::Seek => self.a_person_seeks(act),
            Fault::Drain => self.a_person_drains(act),
            Fault::Hold => self.a_person_holds(act),
            _ => self.happens_to_a_machine(act),
        }
    }

    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::CommonStore => self.the_store_is_well(),
            Undo::HubProperties => self.world.hub.hold_properties(false),
            Undo::Drain(host) => self.order_drain(&host, false),
            Undo::Hold(number, partition) => self.let_go(number, partition),
            other => self.undo_on_a_machine(other),
        }
    }
}
