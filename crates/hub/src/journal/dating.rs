//! Keeps the log's side of the time: what is proven, what its stamps say, and what a jump of the clock does to them.

use ephor_core::time::Timestamp;

use super::Journal;
use super::retention::newest_between;
use crate::time::{LogEnd, Marks, StampJump, TOLERANCE};

impl Journal {
    /// Writes down how late it is, if it is worth it.
    pub(crate) fn note_time(&mut self) {
        self.forget_jumps();
        let noted =
            self.proven.map_or(Ok(()), |proven| self.time.note(&*self.log.files, proven, &self.marks));
        if let Err(error) = noted {
            tracing::debug!(%error, "the time was not written");
        }
    }

    /// The same when the log is closed, and waits.
    pub(super) fn store_time(&mut self) {
        self.forget_jumps();
        let stored =
            self.proven.map_or(Ok(()), |proven| self.time.store(&*self.log.files, proven, &self.marks));
        if let Err(error) = stored {
            tracing::warn!(%error, "the time was not written; events may be kept a little longer");
        }
    }

    /// It is at least this late, and this is what the clock said on the way.
    pub(crate) fn time_is_proven(&mut self, proven: Timestamp, marks: Marks) {
        (self.proven, self.marks) = (Some(proven), marks);
    }

    /// What the clock said when the log was written last, and before.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The time that was proven when the log was written last.
    pub(crate) fn proven(&self) -> Option<Timestamp> {
        self.time.proven()
    }

    /// The latest stamp in the newest segment that holds events.
    pub(crate) fn newest_stamp(&self) -> Option<Timestamp> {
        if let Some(newest) = self.newest {
            return Some(newest.stamp);
        }
        // Not of all partitions: one of them may have been silent since a clock was ahead.
        let mut after = self.active.header.partitions.clone();
        self.sealed.iter().rev().find_map(|sealed| {
            let before = self.log.header(sealed.number).ok()?.partitions;
            let newest = newest_between(&before, &after);
            after = before;
            newest
        })
    }

    /// The stamps' clock jumped while the hub ran: what is there did not become older or younger.
    pub(crate) fn time_jumped(&mut self, jump: StampJump) {
        let end = self.log_end();
        self.time.change(|redating| redating.jumped(jump, end));
        let StampJump { from, to, .. } = jump;
        if to < from {
            return self.nothing_is_later_than(to);
        }
        let by = to.since(from);
        self.bounds().for_each(|not_after| *not_after = *not_after + by);
    }

    /// It is this late by a clock that need not catch up. It may have been put back while the hub was off.
    pub(crate) fn clock_stands_at(&mut self, now: Timestamp) {
        // Within the tolerance it may stay: it only keeps events longer.
        if self.time.redating().is_ahead_of(now + TOLERANCE) {
            self.time.change(|redating| redating.clock_stands_at(now));
        }
    }

    /// Keeps everything for one whole age from now on if the file that tells how to date it was lost.
    pub(crate) fn hold_if_time_is_lost(&mut self, now: Timestamp) {
        if self.time.is_complete() || (self.sealed.is_empty() && self.newest.is_none()) {
            return;
        }
        tracing::warn!(
            log = self.log.files.shown(&self.log.folder),
            "the file \"time\" of a log is missing or damaged: all that is in the log is kept as if it had been stored now"
        );
        let end = self.log_end();
        self.time.change(|redating| redating.hold(end, now));
    }

    /// Dates what an older version wrote down, which knew of stamps only: nothing that comes is meant.
    pub(super) fn end_old_jumps(&mut self) {
        let end = self.log_end();
        self.time.end_old_jumps(end);
    }

    /// How far the log reaches.
    fn log_end(&self) -> LogEnd {
        // What a failed commit left behind may count after a restart; nothing else comes into the segment.
        let position = if self.spoiled { u64::MAX } else { self.end };
        LogEnd { segment: self.active.number, position }
    }

    /// Jumps before the oldest event date nothing any more.
    fn forget_jumps(&mut self) {
        let active = LogEnd { segment: self.active.number, position: self.end };
        let oldest = self.sealed.first().map_or(active, |oldest| oldest.log_end());
        self.time.forget_before(oldest);
    }

    /// It is this late: nothing that is there was stored later.
    pub(crate) fn nothing_is_later_than(&mut self, now: Timestamp) {
        self.bounds().for_each(|not_after| *not_after = (*not_after).min(now));
    }

    fn bounds(&mut self) -> impl Iterator<Item = &mut Timestamp> {
        let active = self.newest.iter_mut().map(|newest| &mut newest.not_after);
        self.sealed.iter_mut().map(|sealed| &mut sealed.not_after).chain(active)
    }
}

/// Whether a stamp is later than it can be now: a clock that was ahead left it.
pub(super) fn is_from_the_future(stamp: Timestamp, now: Timestamp) -> bool {
    stamp > now + TOLERANCE
}
