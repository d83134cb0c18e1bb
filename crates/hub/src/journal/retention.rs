//! Retention: deletes whole segments, the oldest first.
//!
//! A segment expires when its newest event is older than the retention age, or when the log, with a full active
//! segment, would exceed the retention size. Age is measured by the proven time (`time.rs`), so that a jump of the wall
//! clock deletes nothing.

use std::io;

use ephor_core::time::Timestamp;

use super::Journal;
use super::layout::{PartitionStart, index_name, segment_name};
use crate::time::{HubTime, LogEnd};

/// A segment that is not written any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealedSegment {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// The stamp of its newest event; none until it is needed.
    pub(super) newest: Option<Timestamp>,
    /// The end of its last commit, if it is known; the file may be longer.
    pub(super) end: u64,
    /// Its newest event was stored by then at the latest, whatever its stamp says.
    pub(super) not_after: Timestamp,
}

impl SealedSegment {
    pub(super) fn log_end(&self) -> LogEnd {
        LogEnd { segment: self.number, position: self.end }
    }
}

/// The newest event of the active segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewestEvent {
    /// The latest stamp in the segment.
    pub(super) stamp: Timestamp,
    /// It was stored by then at the latest: the clock may have been set back since.
    pub(super) not_after: Timestamp,
}

impl NewestEvent {
    pub(super) fn at(stamp: Timestamp) -> Self {
        Self { stamp, not_after: stamp }
    }
}

impl Journal {
    /// Whether there is something to delete.
    pub(crate) fn is_overdue(&mut self, now: HubTime) -> bool {
        self.over_size() || self.is_due(now.proven) || !self.pending_deletes.is_empty()
    }

    /// Whether a segment is expired by the stamps, but not yet by the proven time.
    pub(crate) fn awaits_proof(&mut self, now: HubTime) -> bool {
        self.is_due(now.stamp) && !self.is_due(now.proven)
    }

    /// Removes expired segments from the log, so that readers do not find them any more, and returns their numbers. Their
    /// files are still there.
    pub(crate) fn expire(&mut self, now: HubTime) -> io::Result<Vec<u64>> {
        let mut expired = Vec::new();
        loop {
            let is_due = self.is_due(now.proven);
            if is_due && self.sealed.is_empty() {
                self.roll(now.stamp)?;
            }
            let Some(oldest) = self.sealed.first().copied().filter(|_| is_due || self.over_size()) else {
                break;
            };
            self.log.change(|entries| entries.retain(|entry| entry.number != oldest.number));
            self.sealed.remove(0);
            expired.push(oldest.number);
        }
        Ok(expired)
    }

    /// Deletes the files of these segments, so that none returns after a power failure. Files that cannot be deleted are
    /// tried again later.
    pub(crate) fn remove_files(&mut self, segments: Vec<u64>) -> io::Result<()> {
        self.pending_deletes.extend(segments);
        if self.pending_deletes.is_empty() {
            return Ok(());
        }
        // The oldest first, so that a crash leaves no gap.
        for number in &self.pending_deletes {
            for name in [segment_name(*number), index_name(*number)] {
                match self.log.files.remove(&self.log.path(&name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        self.log.files.sync_folder(&self.log.folder)?;
        self.pending_deletes.clear();
        Ok(())
    }

    /// Returns when the oldest segment expires by age; none if it never does.
    pub(crate) fn due(&mut self) -> Option<Timestamp> {
        let age = self.config.retention_age?;
        if let Some(oldest) = self.sealed.first().filter(|oldest| oldest.newest.is_none()) {
            let (newest, end) = self.newest_of(oldest.number);
            (self.sealed[0].newest, self.sealed[0].end) = (Some(newest), end);
        }
        let stored = match self.sealed.first() {
            Some(oldest) => oldest.newest.map(|newest| (newest, oldest.not_after, oldest.log_end())),
            None => self.newest.map(|newest| {
                let end = LogEnd { segment: self.active.number, position: self.end };
                (newest.stamp, newest.not_after, end)
            }),
        };
        let correction = self.time.correction();
        let stored = stored.map(|(stamp, not_after, end)| correction.date(stamp, end).min(not_after));
        stored.map(|time| time + age)
    }

    fn is_due(&mut self, now: Timestamp) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Returns the stamp of the newest event in the oldest segment, and the end of that segment. The header of the next
    /// segment has the last event of each partition before it.
    fn newest_of(&self, oldest: u64) -> (Timestamp, u64) {
        let own = self.log.header(oldest).ok();
        let next = self.sealed.iter().skip(1).find_map(|sealed| self.log.header(sealed.number).ok());
        let next = next.as_ref().unwrap_or(&self.active.header);
        let before = own.map(|own| own.partitions).unwrap_or_default();
        // A segment without events counts by its creation.
        let newest = newest_between(&before, &next.partitions).unwrap_or(next.created_at);
        // Unknown if the next segment is missing. A smaller value only keeps the segment longer.
        let end = if next.number == oldest + 1 { next.previous_length } else { 0 };
        (newest, end)
    }

    fn over_size(&self) -> bool {
        let sealed: u64 = self.sealed.iter().map(|sealed| sealed.bytes).sum();
        let full = sealed + self.end.max(self.config.segment_bytes);
        self.config.retention_bytes.is_some_and(|limit| full > limit)
    }
}

/// Returns the latest stamp of the events between two states of the log. Partitions without an event in between are
/// ignored: their last event may have any stamp.
pub(super) fn newest_between(before: &[PartitionStart], after: &[PartitionStart]) -> Option<Timestamp> {
    let stamps = after.iter().enumerate().filter_map(|(id, state)| {
        let begins = before.get(id).map_or(0, |state| state.next);
        state.last.filter(|(number, _)| *number >= begins).map(|(_, stamp)| stamp)
    });
    stamps.max()
}
