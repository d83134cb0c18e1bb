//! Checks the hosts' reports of gaps in a log: the first gaps are reported one by one and later ones
//! together, and none is left out.

use std::time::Duration;

use ephor::{PartitionError, PartitionId, SequenceNumber};
use ephor_core::time::Monotonic;

use super::partition_facts::{LogPosition, PartitionFacts, UnreportedGaps};
use super::user_code_side::{Caller, Span};
use super::{Check, Exemption, Judge, JudgeState, Promise};
use crate::executor::Machine;

/// The number of gaps that a host reports one by one before it may report others together.
const SINGLE_REPORTS: u32 = 10;
/// Gaps are reported together at most this long after the first of them was passed over.
const SUMMARY_TIME: Duration = Duration::from_secs(61);

impl PartitionFacts {
    /// Notes that a call begins after a gap that its host may report later. False if it may not. `now` is the time by the
    /// host's own clock.
    pub(super) fn passes_over_gap(&mut self, caller: &Caller, span: Span, now: Monotonic) -> bool {
        let Some(progress) = self.read_progress.get(&caller.epoch) else { return false };
        let Some(LogPosition { log_generation, next }) = progress.next else { return false };
        let gone = (next.0..span.first.0).all(|event| self.is_gone(SequenceNumber(event)));
        let may = progress.gap_reports >= SINGLE_REPORTS && log_generation == span.log_generation;
        if !may || !gone || next >= span.first {
            return false;
        }
        let none = UnreportedGaps {
            host: caller.host.clone(),
            since: now,
            first: next,
            resumes_at: next,
            gone: 0,
            calls: 0,
        };
        let gaps = self.unreported_gaps.entry(caller.epoch).or_insert(none);
        gaps.gone += span.first.0 - next.0;
        gaps.resumes_at = span.first;
        if let Some(progress) = self.read_progress.get_mut(&caller.epoch) {
            progress.next = Some(LogPosition { log_generation, next: span.first });
        }
        true
    }
}

impl Judge {
    /// Returns a violation if gaps that a host passed over are still not reported: a minute after the first of
    /// them, and the calls of one batch later.
    pub(super) fn gaps_are_overdue(
        &self,
        state: &mut JudgeState,
        caller: &Caller,
    ) -> Option<(Promise, String)> {
        let max = state.hosts.get(&caller.host)?.config.max_batch_size;
        let gaps = state.partitions.get_mut(&caller.partition)?.unreported_gaps.get_mut(&caller.epoch)?;
        // The host counts the minute by its own clock, which may stand still.
        let now = self.handle.clock_of(caller.machine).read(self.handle.now());
        let age = now.since(gaps.since);
        gaps.calls += usize::from(age > SUMMARY_TIME);
        (gaps.calls > max).then(|| {
            let what =
                format!("the host has passed over gaps from {:?} on for {age:?} unreported", gaps.first);
            (Promise::AtLeastOnceInOrder, what)
        })
    }

    /// Checks a host's report of gaps that it passed over: it includes all of them, and their events are gone.
    pub fn gaps_were_reported(&self, machine: Machine, partition: PartitionId, error: &PartitionError) {
        let PartitionError::Gaps { gone, first, resumes_at, .. } = error else { return };
        self.history
            .append(format_args!("{} reports about {partition:?}: {error}", self.handle.name_of(machine)));
        let violation = {
            let mut state = self.state();
            // Two owners of one epoch have passed over the gaps in turns.
            let reissued = state.partitions.get(&partition).is_some_and(|facts| {
                facts.last_epoch_of(machine).is_some_and(|epoch| facts.reissued.contains(&epoch))
            });
            // In a hub that was created again the host may report gaps of an earlier log.
            let exempt = self.is_exempt(
                Check::Gaps,
                [
                    (Exemption::EarlierLog, state.log_generation() > 0),
                    (Exemption::StoreRestored, state.in_restore_grace(self.handle.now())),
                    (Exemption::EpochReissued, reissued),
                ],
            );
            let facts = state.partitions.entry(partition).or_default();
            let Some(epoch) = facts.last_epoch_of(machine) else { return };
            let passed_over = facts.unreported_gaps.remove(&epoch);
            let missing =
                (first.0..resumes_at.0).filter(|event| facts.is_gone(SequenceNumber(*event))).count();
            // The last gap may be one after which no call began, because the partition closes.
            let all = passed_over.as_ref().is_none_or(|gaps| {
                gaps.first == *first && gaps.resumes_at <= *resumes_at && gaps.gone <= *gone
            });
            (!exempt && (!all || (missing as u64) < *gone))
                .then(|| format!("the host reported {error}, but it passed over {passed_over:?}"))
        };
        if let Some(what) = violation {
            self.report_violation(Promise::AtLeastOnceInOrder, Some(partition), what);
        }
    }

    /// Gaps that running hosts passed over and never reported.
    pub(super) fn unreported_gaps(&self) -> Vec<(Promise, Option<PartitionId>, String)> {
        let state = self.state();
        let mut violations = vec![];
        for (partition, facts) in &state.partitions {
            let runs = |gaps: &&UnreportedGaps| state.runs(&gaps.host);
            if let Some(gaps) = facts.unreported_gaps.values().find(runs) {
                let what = format!("{} never reported the gaps from {:?} on", gaps.host, gaps.first);
                violations.push((Promise::AtLeastOnceInOrder, Some(*partition), what));
            }
        }
        violations
    }
}
