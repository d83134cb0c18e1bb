//! The progress of a graceful shutdown: the results of the partitions so far, and the releases that
//! the store has not confirmed.

use std::collections::BTreeSet;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;

use crate::pump_interface::{Outcome, PumpEnd};
use crate::stop_report::StopReport;

#[derive(Debug, Default)]
pub(super) struct StopProgress {
    report: StopReport,
    unconfirmed: Vec<Unconfirmed>,
}

/// A partition that was given away without a confirmation of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unconfirmed {
    pub(super) partition: PartitionId,
    pub(super) epoch: Epoch,
    pub(super) checkpoint_saved: bool,
}

impl StopProgress {
    /// Notes the end of a pump.
    pub(super) fn pump_ended(&mut self, end: &PumpEnd) {
        let PumpEnd { partition, epoch, checkpoint_saved, given_up, .. } = *end;
        let list = match end.outcome {
            Outcome::Lost { .. } | Outcome::Displaced { .. } => &mut self.report.lost,
            _ if !checkpoint_saved => &mut self.report.unsaved,
            _ if given_up => &mut self.report.given_up,
            Outcome::GivenAway { .. } | Outcome::Failed { .. } => &mut self.report.drained,
        };
        list.push(partition);
        if let Outcome::GivenAway { confirmed: false, .. } | Outcome::Failed { confirmed: false, .. } =
            end.outcome
        {
            self.unconfirmed.push(Unconfirmed { partition, epoch, checkpoint_saved });
        }
    }

    /// Notes a partition whose pump did not end: its lease expires.
    pub(super) fn pump_left(&mut self, partition: PartitionId) {
        self.report.abandoned.push(partition);
    }

    /// Notes that the release of this partition is not confirmed: its lease expires.
    pub(super) fn abandon(&mut self, partition: PartitionId) {
        let StopReport { drained, given_up, unsaved, abandoned, .. } = &mut self.report;
        for list in [drained, given_up, unsaved] {
            list.retain(|other| *other != partition);
        }
        abandoned.push(partition);
    }

    /// The releases without a confirmation. They stay here until they are confirmed or abandoned.
    pub(super) fn unconfirmed(&self) -> &[Unconfirmed] {
        &self.unconfirmed
    }

    /// Notes that a repeated release was confirmed.
    pub(super) fn confirmed(&mut self, partition: PartitionId) {
        self.unconfirmed.retain(|other| other.partition != partition);
    }

    /// Abandons all partitions whose release is not confirmed.
    pub(super) fn abandon_unconfirmed(&mut self) {
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        let partitions: BTreeSet<_> = unconfirmed.iter().map(|release| release.partition).collect();
        partitions.into_iter().for_each(|partition| self.abandon(partition));
    }

    pub(super) fn take_report(&mut self) -> StopReport {
        std::mem::take(&mut self.report)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::processor::CloseReason;

    fn end(partition: u32, checkpoint_saved: bool, given_up: bool, outcome: Outcome) -> PumpEnd {
        let (partition, epoch) = (PartitionId(partition), Epoch::FIRST);
        PumpEnd { partition, epoch, opened: true, checkpoint_saved, given_up, outcome }
    }

    fn released(confirmed: bool) -> Outcome {
        Outcome::GivenAway { reason: CloseReason::Shutdown, to: None, confirmed }
    }

    #[test]
    fn every_partition_is_reported_once_by_its_worst_result() {
        let mut progress = StopProgress::default();
        let failed = Outcome::Failed {
            reason: CloseReason::ProcessorFailed,
            pause: Duration::from_secs(1),
            confirmed: true,
        };
        for end in [
            end(0, true, false, released(true)),
            end(1, true, true, released(true)),
            end(2, false, true, released(true)),
            end(3, true, false, failed),
            end(4, false, false, Outcome::Lost { reason: CloseReason::LeaseLost }),
            end(5, false, false, Outcome::Displaced { epoch: None, by: None }),
        ] {
            progress.pump_ended(&end);
        }
        assert!(progress.unconfirmed().is_empty());
        let ids = |ids: &[u32]| ids.iter().copied().map(PartitionId).collect();
        let expected = StopReport {
            drained: ids(&[0, 3]),
            given_up: ids(&[1]),
            unsaved: ids(&[2]),
            lost: ids(&[4, 5]),
            abandoned: vec![],
        };
        assert_eq!(progress.take_report(), expected);
    }

    #[test]
    fn a_release_without_confirmation_is_repeated_or_abandoned() {
        let mut progress = StopProgress::default();
        for partition in [0, 1] {
            progress.pump_ended(&end(partition, true, false, released(false)));
        }
        assert_eq!(progress.unconfirmed().len(), 2);
        progress.confirmed(PartitionId(0));
        progress.abandon_unconfirmed();
        assert!(progress.unconfirmed().is_empty());
        let report = progress.take_report();
        assert_eq!((report.drained, report.abandoned), (vec![PartitionId(0)], vec![PartitionId(1)]));
    }
}
