//! Checks the calls between hosts and the hub: readers and their epochs.

use ephor::{Epoch, PartitionId};
use ephor_core::history::OwnershipChange;
use ephor_core::source::OpenRequest;

use super::{Check, Exemption, Judge, JudgeState, Promise};
use crate::executor::Machine;

impl Judge {
    /// Checks the epoch with which a host begins to read a partition.
    pub fn reads(&self, machine: Machine, request: &OpenRequest) {
        // A probe checks that the group exists; it has no epoch and reads nothing.
        if request.receiver.ends_with("-probe") {
            return;
        }
        let epoch = {
            let state = self.state();
            let known = state.partitions.get(&request.partition).map(|facts| facts.epoch).unwrap_or_default();
            let now = self.handle.now();
            let exempt = self.is_exempt(
                Check::ReaderEpoch,
                [
                    (
                        Exemption::StoreRestored,
                        state.in_restore_grace(now) || state.slept_through_restore(machine, now),
                    ),
                    (Exemption::TimeFault, !state.time_passed_normally(machine, now)),
                ],
            );
            request.epoch.map_or(Some(known), |epoch| (epoch > known && !exempt).then_some(known))
        };
        if let Some(known) = epoch {
            let what = format!("a host read in {:?}, but the store has issued only {known:?}", request.epoch);
            self.report_violation(Promise::OneOwner, Some(request.partition), what);
        }
    }

    /// Notes that the hub disconnects a host because another reader reads the partition in this epoch.
    pub fn displaced(&self, machine: Machine, partition: PartitionId, epoch: Epoch) {
        let mut state = self.state();
        state.partitions.entry(partition).or_default().displaced_by.insert(machine, epoch);
    }

    /// Returns a violation if a host claims a partition back from a foreign reader without going above that
    /// reader's epoch: it would be refused again.
    pub(super) fn not_above_foreign_reader(
        &self,
        state: &JudgeState,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        let machine = state.hosts.get(change.to.as_ref()?)?.machine;
        let foreign = *state.partitions.get(&change.partition)?.displaced_by.get(&machine)?;
        let too_high = foreign > Epoch::MAX_FOREIGN;
        let exempt = self.is_exempt(Check::AboveForeignReader, [(Exemption::EpochTooHigh, too_high)]);
        (change.epoch <= foreign && !exempt).then(|| {
            let what =
                format!("a host claimed in {:?}, not above the foreign reader in {foreign:?}", change.epoch);
            (Promise::LoopNeverDies, what)
        })
    }
}

/// Returns a violation if a foreign reader makes hosts use up the remaining epochs. Above
/// `Epoch::MAX_FOREIGN` hosts count by themselves, and never by a million in one run.
pub(super) fn used_up_epochs(change: &OwnershipChange) -> Option<(Promise, String)> {
    const MAX_CHANGES: u64 = 1_000_000;
    (change.epoch.get() > Epoch::MAX_FOREIGN.get() + MAX_CHANGES).then(|| {
        let what = format!("a foreign reader drove the epoch to {:?}", change.epoch);
        (Promise::LoopNeverDies, what)
    })
}
