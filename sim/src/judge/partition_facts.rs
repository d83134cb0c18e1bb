//! The facts that the judge keeps of one partition (`PartitionFacts`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ephor::{Epoch, HostId, SequenceNumber};
use ephor_core::ids::Incarnation;
use ephor_core::time::Monotonic;

use super::calls::ReportTarget;
use super::user_code_side::Span;
use crate::executor::Machine;

/// A position in one of the hub's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogPosition {
    /// The generation of the hub's log: the number of logs before it.
    pub(super) log_generation: usize,
    /// The next event to read.
    pub(super) next: SequenceNumber,
}

/// The time at which the store last granted an epoch the full duration of its lease.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    /// The virtual time.
    pub(super) at: Monotonic,
    /// The reading of the owner's own clock.
    pub(super) own_time: Monotonic,
}

/// The reading progress of one epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadProgress {
    /// The next unfinished event, and the log that it is in. `None` until the epoch has begun.
    pub(super) next: Option<LogPosition>,
    /// True after the host reported that its position does not exist; it will store the position at which it
    /// resumes.
    pub(super) moving: bool,
    /// The position that the host reported as gone, if it has finished nothing since.
    pub(super) reported_gone: Option<SequenceNumber>,
    /// The number of gaps that the host has reported one by one.
    pub(super) gap_reports: u32,
    /// The time since which finished events are not saved, and their number.
    pub(super) unsaved: Option<(Monotonic, u64)>,
    /// The checkpoint that the processor asked for and that the host deferred.
    pub(super) deferred: Option<DeferredCheckpoint>,
}

/// A manual checkpoint that the host deferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeferredCheckpoint {
    /// The checkpoint covers the events before this one.
    pub(super) next: SequenceNumber,
    /// The time since which one has been waiting.
    pub(super) since: Monotonic,
}

/// Gaps that a host passed over, and that it has to report together.
#[derive(Clone, Debug)]
pub(super) struct UnreportedGaps {
    pub(super) host: HostId,
    /// The time at which it passed over the first of them.
    pub(super) since: Monotonic,
    /// The first missing event.
    pub(super) first: SequenceNumber,
    /// The event after the last of them.
    pub(super) resumes_at: SequenceNumber,
    /// The number of missing events in all of them.
    pub(super) gone: u64,
    /// The number of calls that have begun although the report is overdue.
    pub(super) calls: usize,
}

/// A batch that fails, perhaps repeatedly.
#[derive(Clone, Debug, Default)]
pub(super) struct FailingBatch {
    /// The host that runs it, and its epoch.
    pub(super) of: Option<(HostId, Epoch)>,
    pub(super) span: Option<Span>,
    /// The number of failures in a row.
    pub(super) failures: u32,
    /// The number of failures in a row that were timeouts.
    pub(super) timeouts: u32,
    /// The receivers that have not been told of the last failure.
    pub(super) unreported_to: Vec<ReportTarget>,
}

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) machine: Machine,
    /// The incarnation of the host on that machine.
    pub(super) incarnation: Incarnation,
    pub(super) epoch: Epoch,
    /// The virtual time at which it began.
    pub(super) begun: Monotonic,
    /// The same time by the machine's own clock.
    pub(super) own_time: Monotonic,
    /// The time until which it blocks its thread.
    pub(super) blocked_until: Monotonic,
}

/// The events that a former log of the hub had lost when it was deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct EarlierLog {
    /// The oldest event that it kept.
    pub(super) oldest_kept: SequenceNumber,
    /// Numbers of lost events, and numbers that were never assigned.
    pub(super) passed_over: Vec<Range<SequenceNumber>>,
}

impl EarlierLog {
    pub(super) fn is_gone(&self, event: SequenceNumber) -> bool {
        event < self.oldest_kept || self.passed_over.iter().any(|range| range.contains(&event))
    }
}

/// The facts about one partition.
#[derive(Debug, Default)]
pub(super) struct PartitionFacts {
    pub(super) owner: Option<HostId>,
    /// The newest epoch that the store gave out.
    pub(super) epoch: Epoch,
    /// The newest epoch whose user code has run.
    pub(super) begun: Epoch,
    /// The last grant of each epoch to each machine: a restored store may give an epoch to another host, too.
    pub(super) granted: BTreeMap<(Epoch, Machine), Grant>,
    /// The position at which the stored checkpoint lets reading resume.
    pub(super) stored_position: Option<LogPosition>,
    /// The position that the present owner knows to be saved: `stored_position`, or what that was before a restore of
    /// the store undid it.
    pub(super) known_saved: Option<LogPosition>,
    pub(super) read_progress: BTreeMap<Epoch, ReadProgress>,
    pub(super) call: Option<Call>,
    /// The epoch of the other reader that each machine was last told of by the hub.
    pub(super) displaced_by: BTreeMap<Machine, Epoch>,
    /// Epochs whose processor is open.
    pub(super) open: BTreeSet<Epoch>,
    /// The time at which a processor was last opened, and its epoch.
    pub(super) opened_at: Option<(Epoch, Monotonic)>,
    /// Epochs whose processor has opened and must be closed, with their hosts.
    pub(super) serving: BTreeMap<Epoch, HostId>,
    /// The batch that failed last.
    pub(super) failing_batch: FailingBatch,
    /// The host that gave it away last, and true if it did so as saved: everything finished was saved.
    pub(super) last_given_away: Option<(HostId, bool)>,
    /// The epoch whose processor was closed last.
    pub(super) last_closed: Option<Epoch>,
    /// The time at which that was.
    pub(super) closed_at: Monotonic,
    /// The host and the epoch whose processor failed to close. A restored store may give the epoch to another host.
    pub(super) close_failed: Option<(HostId, Epoch)>,
    /// The epoch whose owner closed its processor in order to give it away.
    pub(super) closing_to_give_away: Option<Epoch>,
    /// Events of the present log finished at least once, or skipped by policy.
    pub(super) done: BTreeSet<SequenceNumber>,
    /// The oldest event of the present log that is kept.
    pub(super) oldest_kept: SequenceNumber,
    /// Numbers of the present log whose events are lost, and numbers that were never assigned.
    pub(super) passed_over: Vec<Range<SequenceNumber>>,
    /// The epochs that a restored store gave out once more: to another machine, or to a seek.
    pub(super) reissued: BTreeSet<Epoch>,
    /// The gaps that each epoch has passed over and not reported yet.
    pub(super) unreported_gaps: BTreeMap<Epoch, UnreportedGaps>,
    /// The former logs of the hub, by their generation.
    pub(super) earlier: BTreeMap<usize, EarlierLog>,
    /// The position to which an operator's seek moves it, until the store carries the seek out.
    pub(super) expected_seek: Option<SequenceNumber>,
    /// The epoch that the last seek took. Events finished by older epochs do not count.
    pub(super) last_seek_epoch: Epoch,
    /// Finished events that do not count because of a seek, by the epoch that it took. They count again if a restore of
    /// the store undoes the seek: the owner before it then continues after them.
    pub(super) discarded_by_seeks: BTreeMap<Epoch, BTreeSet<SequenceNumber>>,
    /// Events before this one may be missing: an operator's seek passed over them, or reading began here.
    pub(super) excused_before: SequenceNumber,
}

impl PartitionFacts {
    /// True if the processor of this host failed to close in this epoch.
    pub(super) fn failed_to_close(&self, host: &HostId, epoch: Epoch) -> bool {
        self.close_failed.as_ref().is_some_and(|(failed, of)| failed == host && *of == epoch)
    }

    /// True if nobody can finish this event any more, through no fault of a host: retention removed it, or
    /// the hub lost it or never assigned its number.
    pub(super) fn is_gone(&self, event: SequenceNumber) -> bool {
        event < self.oldest_kept || self.passed_over.iter().any(|range| range.contains(&event))
    }

    /// The last grant of an epoch to a machine.
    pub(super) fn grant(&self, epoch: Epoch, machine: Machine) -> Option<Grant> {
        self.granted.get(&(epoch, machine)).copied()
    }

    /// The last grant of an epoch, to whichever machine.
    pub(super) fn last_grant(&self, epoch: Epoch) -> Option<Grant> {
        let of_epoch = self.granted.iter().filter(|((of, _), _)| *of == epoch);
        of_epoch.map(|(_, grant)| *grant).max_by_key(|grant| grant.at)
    }

    /// The epoch that a machine was granted last.
    pub(super) fn last_epoch_of(&self, machine: Machine) -> Option<Epoch> {
        let own = self.granted.iter().filter(|((_, of), _)| *of == machine);
        own.max_by_key(|(_, grant)| grant.at).map(|((epoch, _), _)| *epoch)
    }

    /// Counts these events as done, unless a seek has discarded what this epoch finishes. Returns the number of those
    /// that were not done yet.
    pub(super) fn finish(&mut self, epoch: Epoch, events: impl Iterator<Item = SequenceNumber>) -> u64 {
        if epoch < self.last_seek_epoch {
            self.discarded_by_seeks.entry(self.last_seek_epoch).or_default().extend(events);
            return 0;
        }
        events.filter(|event| self.done.insert(*event)).count() as u64
    }

    /// Carries out an operator's seek: events from this one on must be processed again.
    pub(super) fn seek(&mut self, next: SequenceNumber, epoch: Epoch) {
        self.last_seek_epoch = epoch;
        self.discarded_by_seeks.insert(epoch, self.done.split_off(&next));
        self.excuse_before(next);
    }

    /// Undoes the seeks after this epoch, because the store was restored from a copy that has not heard of them.
    pub(super) fn undo_seeks_after(&mut self, epoch: Epoch) {
        self.last_seek_epoch = self.last_seek_epoch.min(epoch);
        let undone = self.discarded_by_seeks.extract_if(.., |seek, _| *seek > epoch);
        self.done.extend(undone.flat_map(|(_, events)| events));
    }

    /// Counts every event before this one as done, because an operator's seek passed over them or reading
    /// began here.
    pub(super) fn excuse_before(&mut self, next: SequenceNumber) {
        self.excused_before = self.excused_before.max(next);
        self.done.extend((0..next.0).map(SequenceNumber));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64) -> Epoch {
        Epoch::from_stored(number)
    }

    fn numbers(range: Range<u64>) -> impl Iterator<Item = SequenceNumber> {
        range.map(SequenceNumber)
    }

    #[test]
    fn events_before_an_undone_seek_count_again() {
        let mut facts = PartitionFacts::default();
        assert_eq!(facts.finish(epoch(1), numbers(0..4)), 4);
        facts.seek(SequenceNumber(1), epoch(2));
        facts.finish(epoch(1), numbers(4..6));
        assert_eq!(facts.done, BTreeSet::from([SequenceNumber(0)]));
        facts.undo_seeks_after(epoch(1));
        assert_eq!(facts.done, numbers(0..6).collect());
    }

    #[test]
    fn a_seek_that_the_copy_knows_is_not_undone() {
        let mut facts = PartitionFacts::default();
        facts.finish(epoch(1), numbers(0..4));
        facts.seek(SequenceNumber(1), epoch(2));
        facts.undo_seeks_after(epoch(2));
        assert_eq!((facts.done.len(), facts.last_seek_epoch), (1, epoch(2)));
    }
}
