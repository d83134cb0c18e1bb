//! Stores the proven time of a log, and corrects, for retention, the dates of its segments when the clock
//! jumps. Stored events do not change.

use ephor_core::time::Timestamp;

use super::Journal;
use super::retention::newest_between;
use crate::time::{ClockSamples, LogEnd, StampJump, TOLERANCE};

impl Journal {
    /// Stores the proven time, if it moved far enough or the corrections changed.
    pub(crate) fn note_time(&mut self) {
        self.forget_jumps();
        let noted = self
            .proven
            .map_or(Ok(()), |proven| self.time.note(&*self.log.files, proven, &self.clock_samples));
        if let Err(error) = noted {
            tracing::debug!(%error, "could not store the proven time; retrying later");
        }
    }

    /// Stores the proven time when the log is closed.
    pub(super) fn store_time(&mut self) {
        self.forget_jumps();
        let stored = self
            .proven
            .map_or(Ok(()), |proven| self.time.store(&*self.log.files, proven, &self.clock_samples));
        if let Err(error) = stored {
            tracing::warn!(%error, "could not store the proven time; events may be kept a little longer");
        }
    }

    /// Sets the proven time and the clock samples, to be stored later.
    pub(crate) fn set_proven_time(&mut self, proven: Timestamp, clock_samples: ClockSamples) {
        (self.proven, self.clock_samples) = (Some(proven), clock_samples);
    }

    /// Returns the stored clock samples.
    pub(crate) fn clock_samples(&self) -> &ClockSamples {
        &self.clock_samples
    }

    /// Returns the stored proven time.
    pub(crate) fn proven(&self) -> Option<Timestamp> {
        self.time.proven()
    }

    /// Returns the latest stamp in the newest segment that has events.
    pub(crate) fn newest_stamp(&self) -> Option<Timestamp> {
        if let Some(newest) = self.newest {
            return Some(newest.stamp);
        }
        // Only of events in that segment: an idle partition may have an old stamp of a clock that was ahead.
        let mut after = self.active.header.partitions.clone();
        self.sealed.iter().rev().find_map(|sealed| {
            let before = self.log.header(sealed.number).ok()?.partitions;
            let newest = newest_between(&before, &after);
            after = before;
            newest
        })
    }

    /// Corrects dates after a jump of the stamps while the hub ran: stored events did not become older or younger.
    pub(crate) fn time_jumped(&mut self, jump: StampJump) {
        let end = self.log_end();
        self.time.change(|correction| correction.jumped(jump, end));
        let StampJump { from, to, .. } = jump;
        if to < from {
            return self.cap_stored_times(to);
        }
        let by = to.since(from);
        self.bounds().for_each(|not_after| *not_after = *not_after + by);
    }

    /// Undoes corrections if the clock was set back while the hub was off. Not for a clock that may still catch up.
    pub(crate) fn clock_is_at(&mut self, now: Timestamp) {
        // Within the tolerance a correction may stay: it only keeps events longer.
        if self.time.correction().is_ahead_of(now + TOLERANCE) {
            self.time.change(|correction| correction.clock_is_at(now));
        }
    }

    /// Keeps all events for one whole retention age from now on if the file with the corrections was lost.
    pub(crate) fn hold_if_time_is_lost(&mut self, now: Timestamp) {
        if self.time.is_complete() || (self.sealed.is_empty() && self.newest.is_none()) {
            return;
        }
        tracing::warn!(
            log = self.log.files.shown(&self.log.folder),
            "the file \"time\" of a log is missing or damaged: all events in the log are kept as if they had been stored now"
        );
        let end = self.log_end();
        self.time.change(|correction| correction.hold(end, now));
    }

    /// Ends the jumps that an older version stored without a position: they do not apply to later events.
    pub(super) fn end_old_jumps(&mut self) {
        let end = self.log_end();
        self.time.end_old_jumps(end);
    }

    /// Returns the end of the log.
    fn log_end(&self) -> LogEnd {
        // A restart may find the failed commit intact; nothing else is written to the segment.
        let position = if self.poisoned { u64::MAX } else { self.end };
        LogEnd { segment: self.active.number, position }
    }

    /// Drops jumps that are older than the oldest event.
    fn forget_jumps(&mut self) {
        let active = LogEnd { segment: self.active.number, position: self.end };
        let oldest = self.sealed.first().map_or(active, |oldest| oldest.log_end());
        self.time.forget_before(oldest);
    }

    /// Limits the dates of all segments to `now`: no stored event is from the future.
    pub(crate) fn cap_stored_times(&mut self, now: Timestamp) {
        self.bounds().for_each(|not_after| *not_after = (*not_after).min(now));
    }

    fn bounds(&mut self) -> impl Iterator<Item = &mut Timestamp> {
        let active = self.newest.iter_mut().map(|newest| &mut newest.not_after);
        self.sealed.iter_mut().map(|sealed| &mut sealed.not_after).chain(active)
    }
}

/// Whether a stamp is in the future: it comes from a clock that was ahead.
pub(super) fn is_from_the_future(stamp: Timestamp, now: Timestamp) -> bool {
    stamp > now + TOLERANCE
}
