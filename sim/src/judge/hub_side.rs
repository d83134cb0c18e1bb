//! Checks the exchange between hosts and the hub: readers and their epochs.

use ephor::{Epoch, PartitionId};
use ephor_core::history::OwnershipChange;
use ephor_core::source::OpenRequest;

use super::{Docket, Judge, Promise};
use crate::executor::Machine;

impl Judge {
    /// Checks the epoch with which a host begins to read a partition.
    ///
    /// Exempt from "no higher epoch than the store gave out": the first 60 s after the store was restored,
    /// and a machine whose thread is blocked, or whose clock fault lasts, at this moment.
    pub fn reads(&self, machine: Machine, request: &OpenRequest) {
        // A probe checks that the group exists; it has no epoch and reads nothing.
        if request.receiver.ends_with("-probe") {
            return;
        }
        let epoch = {
            let docket = self.docket();
            let known = docket.cases.get(&request.partition).map(|case| case.epoch).unwrap_or_default();
            let excused = docket.in_amnesty(self.handle.now()) || !docket.in_time(machine, self.handle.now());
            request.epoch.map_or(Some(known), |epoch| (epoch > known && !excused).then_some(known))
        };
        if let Some(known) = epoch {
            let what = format!("read in {:?}, and the store knows {known:?}", request.epoch);
            self.object(Promise::OneOwner, Some(request.partition), what);
        }
    }

    /// Notes that the hub disconnects a host because another reader reads the partition in this epoch.
    pub fn displaced(&self, machine: Machine, partition: PartitionId, epoch: Epoch) {
        let mut docket = self.docket();
        docket.cases.entry(partition).or_default().displaced_by.insert(machine, epoch);
    }
}

/// Returns a violation if a host claims a partition back from a foreign reader without going above that
/// reader's epoch: it would be refused again. Exempt: a reader above `Epoch::MAX_FOREIGN`, which hosts do
/// not follow.
pub(super) fn beneath_the_stranger(docket: &Docket, change: &OwnershipChange) -> Option<(Promise, String)> {
    let machine = docket.seats.get(change.to.as_ref()?)?.machine;
    let stranger = *docket.cases.get(&change.partition)?.displaced_by.get(&machine)?;
    (change.epoch <= stranger && stranger <= Epoch::MAX_FOREIGN).then(|| {
        let what = format!("claimed in {:?} against a reader in {stranger:?}", change.epoch);
        (Promise::LoopNeverDies, what)
    })
}

/// Returns a violation if a foreign reader makes hosts use up the remaining epochs. Above
/// `Epoch::MAX_FOREIGN` hosts count by themselves, and never by a million in one run.
pub(super) fn far_from_its_own(change: &OwnershipChange) -> Option<(Promise, String)> {
    const MOST_CHANGES: u64 = 1_000_000;
    (change.epoch.get() > Epoch::MAX_FOREIGN.get() + MOST_CHANGES).then(|| {
        let what = format!("a stranger drove its epoch to {:?}", change.epoch);
        (Promise::LoopNeverDies, what)
    })
}
