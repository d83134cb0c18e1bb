//! What hosts say to the hub, and are told by it: readers and their epochs.

use ephor::{Epoch, PartitionId};
use ephor_core::history::OwnershipChange;
use ephor_core::source::OpenRequest;

use super::{Docket, Judge, Promise};
use crate::executor::Machine;

impl Judge {
    /// A host begins to read a partition of the hub.
    pub fn reads(&self, machine: Machine, request: &OpenRequest) {
        // Whether the group exists is asked without an epoch, and reads nothing.
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

    /// The hub tells a host that somebody else reads a partition, in this epoch.
    pub fn displaced(&self, machine: Machine, partition: PartitionId, epoch: Epoch) {
        let mut docket = self.docket();
        docket.cases.entry(partition).or_default().displaced_by.insert(machine, epoch);
    }
}

/// Who claims against another reader does so above it: else it is refused again. Unless that reader came with an
/// epoch that nobody follows.
pub(super) fn beneath_the_stranger(docket: &Docket, change: &OwnershipChange) -> Option<(Promise, String)> {
    let machine = docket.seats.get(change.to.as_ref()?)?.machine;
    let stranger = *docket.cases.get(&change.partition)?.displaced_by.get(&machine)?;
    (change.epoch <= stranger && stranger <= Epoch::MAX_FOREIGN).then(|| {
        let what = format!("claimed in {:?} against a reader in {stranger:?}", change.epoch);
        (Promise::LoopNeverDies, what)
    })
}

/// However high a stranger goes, hosts do not use up the epochs that are left: from the last epoch that they follow on
/// they count by themselves, and never so far in one run.
pub(super) fn far_from_its_own(change: &OwnershipChange) -> Option<(Promise, String)> {
    const MOST_CHANGES: u64 = 1_000_000;
    (change.epoch.get() > Epoch::MAX_FOREIGN.get() + MOST_CHANGES).then(|| {
        let what = format!("a stranger drove its epoch to {:?}", change.epoch);
        (Promise::LoopNeverDies, what)
    })
}
