//! Handles gaps: sequence numbers that no event has, between events that are read.
//!
//! A log may have a gap at every second event, such as one that was compacted. Therefore only the
//! first gaps are reported one by one; the others are counted, and reported together.

use std::time::Duration;

use ephor_core::event::Event;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::resume::{OnInvalidPosition, PositionGone};
use ephor_core::time::Monotonic;

use super::{Ending, Pump};
use crate::error::{HostError, PartitionError};
use crate::processor::EventProcessor;

/// The number of gaps that are reported one by one, until an interval passes without one.
const MAX_SINGLE_REPORTS: u32 = 10;
/// The time between two summaries.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(60);

/// The reports of gaps in one partition.
#[derive(Debug, Default)]
pub(super) struct GapReports {
    /// The start of the current interval.
    since: Monotonic,
    /// The number of gaps that were reported one by one.
    reported: u32,
    pending: Option<Summary>,
}

/// The gaps that are not reported yet.
#[derive(Debug)]
struct Summary {
    gaps: u64,
    gone: u64,
    first: SequenceNumber,
    resumes_at: SequenceNumber,
}

impl GapReports {
    /// True if the next gap is to be reported by itself.
    fn admit(&mut self, now: Monotonic) -> bool {
        if self.pending.is_none() && (self.reported == 0 || now >= self.since + SUMMARY_INTERVAL) {
            (self.since, self.reported) = (now, 0);
        }
        let admitted = self.reported < MAX_SINGLE_REPORTS;
        self.reported += u32::from(admitted);
        admitted
    }

    /// Counts a gap for the next summary.
    fn add(&mut self, wanted: SequenceNumber, resumes_at: SequenceNumber) {
        let none = Summary { gaps: 0, gone: 0, first: wanted, resumes_at };
        let summary = self.pending.get_or_insert(none);
        summary.gaps += 1;
        summary.gone += resumes_at.0 - wanted.0;
        summary.resumes_at = resumes_at;
    }

    /// The time of the next summary.
    pub(super) fn due_at(&self) -> Monotonic {
        self.pending.as_ref().map_or(Monotonic::NEVER, |_| self.since + SUMMARY_INTERVAL)
    }

    /// The summary, if it is due.
    fn take_due(&mut self, now: Monotonic) -> Option<PartitionError> {
        if now < self.due_at() {
            return None;
        }
        // While gaps go on, only summaries follow.
        self.since = now;
        self.take()
    }

    /// The summary, due or not.
    fn take(&mut self) -> Option<PartitionError> {
        let Summary { gaps, gone, first, resumes_at } = self.pending.take()?;
        Some(PartitionError::Gaps { gaps, gone, first, resumes_at })
    }
}

impl<P: EventProcessor> Pump<P> {
    /// Reports a gap before these events. Returns the position to start from instead, if reading
    /// does not just go on.
    pub(super) async fn report_gap(&mut self, events: &[Event]) -> Result<Option<StartPosition>, Ending> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(None) };
        let wanted = self.expected.replace(last.sequence.next());
        let resumes_at = first.sequence;
        let Some(wanted) = wanted.filter(|wanted| resumes_at > *wanted) else { return Ok(None) };
        let cause = PositionGone::EventsGone { wanted, oldest: resumes_at };
        let on_invalid = self.services.options.on_invalid_position;
        if on_invalid == OnInvalidPosition::Stop {
            return Err(self.halt(cause).await);
        }
        if !self.gaps.admit(self.now()) {
            self.gaps.add(wanted, resumes_at);
            return Ok(None);
        }
        if on_invalid == OnInvalidPosition::Latest {
            let properties = self.properties().await?;
            if !cause.is_inside(&properties) {
                return self.begin_at_replacement(cause, &properties).await.map(Some);
            }
        }
        self.report_error(PartitionError::PositionGone { cause, resumes_at, skipped: 0 }).await?;
        Ok(None)
    }

    /// Reports the gaps of the last interval together, if that is due.
    pub(super) async fn summarise_gaps(&mut self) -> Result<(), Ending> {
        match self.gaps.take_due(self.now()) {
            Some(summary) => self.report_error(summary).await,
            None => Ok(()),
        }
    }

    /// Reports the gaps that no summary included, because the partition closes.
    pub(super) fn report_last_gaps(&mut self) {
        if let Some(error) = self.gaps.take() {
            let partition = self.context.partition();
            self.services.reporter.report(&HostError::Partition { partition, error });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_gaps_are_named_again_after_an_interval_without_one() {
        let at = |seconds| Monotonic(0) + Duration::from_secs(seconds);
        let mut reports = GapReports::default();
        let named = (0..100).filter(|_| reports.admit(at(5))).count();
        assert_eq!(named, MAX_SINGLE_REPORTS as usize);
        reports.add(SequenceNumber(31), SequenceNumber(33));
        reports.add(SequenceNumber(40), SequenceNumber(41));
        assert_eq!(reports.due_at(), at(65));
        assert!(reports.take_due(at(64)).is_none());
        let summary = reports.take_due(at(70)).unwrap().to_string();
        assert!(summary.starts_with("3 more events are gone in 2 gaps from 31 to 40 ("), "{summary}");
        assert_eq!(reports.due_at(), Monotonic::NEVER);
        assert!(!reports.admit(at(129)), "they go on");
        reports.add(SequenceNumber(50), SequenceNumber(60));
        assert!(reports.take_due(at(130)).is_some());
        assert!(reports.admit(at(190)), "an interval without one has passed");
        assert!(reports.take().is_none());
    }
}
