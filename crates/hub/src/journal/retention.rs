//! Frees what need not be kept any longer: whole segments, the oldest first.
//!
//! A segment goes when its newest event is past its time, or when the log,
//! with the active segment grown to its full size, would take more than it may.
//! Past its time is what is so by the proven time (`time.rs`): a wall clock that
//! jumps makes nothing older.

use std::io;

use ephor_core::time::Timestamp;

use super::Journal;
use super::layout::{PartitionStart, index_name, segment_name};
use crate::time::{HubTime, LogEnd};

/// A segment that is no longer written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// The stamp of its newest event, once somebody asked.
    pub(super) newest: Option<Timestamp>,
    /// Where its last commit ends, as far as that is known; the file may be longer.
    pub(super) end: u64,
    /// It was stored by then at the latest, whatever a clock that was ahead left as its stamps.
    pub(super) not_after: Timestamp,
}

impl Sealed {
    pub(super) fn log_end(&self) -> LogEnd {
        LogEnd { segment: self.number, position: self.end }
    }
}

/// The newest event of the active segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    /// The latest stamp in the segment.
    pub(super) stamp: Timestamp,
    /// It was stored by then at the latest: the clock may have gone back since.
    pub(super) not_after: Timestamp,
}

impl Newest {
    pub(super) fn at(stamp: Timestamp) -> Self {
        Self { stamp, not_after: stamp }
    }
}

impl Journal {
    /// Whether there is something to free.
    pub(crate) fn is_overdue(&mut self, now: HubTime) -> bool {
        self.over_size() || self.is_due(now.proven) || !self.leftovers.is_empty()
    }

    /// Whether something would be past its age if the stamps' clock were proven to be right.
    pub(crate) fn awaits_proof(&mut self, now: HubTime) -> bool {
        self.is_due(now.stamp) && !self.is_due(now.proven)
    }

    /// Takes what need not be kept from the log, so that no reader finds it any more, and tells which segments
    /// that were. Their files are still there.
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

    /// Removes the files of segments that were taken from the log, so that none is back after a power failure. What
    /// cannot be removed is tried again.
    pub(crate) fn remove_files(&mut self, segments: Vec<u64>) -> io::Result<()> {
        self.leftovers.extend(segments);
        if self.leftovers.is_empty() {
            return Ok(());
        }
        // The oldest first: after a crash none is missing between others.
        for number in &self.leftovers {
            for name in [segment_name(*number), index_name(*number)] {
                match self.log.files.remove(&self.log.path(&name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        self.log.files.sync_folder(&self.log.folder)?;
        self.leftovers.clear();
        Ok(())
    }

    /// When the oldest segment will be past its time; none if it never will.
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
        let redating = self.time.redating();
        let stored = stored.map(|(stamp, not_after, end)| redating.date(stamp, end).min(not_after));
        stored.map(|time| time + age)
    }

    fn is_due(&mut self, now: Timestamp) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// The stamp of the newest event in the oldest segment, and where that ends. The header of a segment says which event
    /// of each partition came before it, and when it was stored.
    fn newest_of(&self, oldest: u64) -> (Timestamp, u64) {
        let own = self.log.header(oldest).ok();
        let behind = self.sealed.iter().skip(1).find_map(|sealed| self.log.header(sealed.number).ok());
        let behind = behind.as_ref().unwrap_or(&self.active.header);
        let before = own.map(|own| own.partitions).unwrap_or_default();
        // One that holds no events goes with the others.
        let newest = newest_between(&before, &behind.partitions).unwrap_or(behind.created_at);
        // If the next is not there, nobody knows; the shorter it is, the longer it is kept.
        let end = if behind.number == oldest + 1 { behind.previous_length } else { 0 };
        (newest, end)
    }

    fn over_size(&self) -> bool {
        let sealed: u64 = self.sealed.iter().map(|sealed| sealed.bytes).sum();
        let full = sealed + self.end.max(self.config.segment_bytes);
        self.config.retention_bytes.is_some_and(|limit| full > limit)
    }
}

/// The latest stamp of the events between two states of the log. Partitions without an event in between do not
/// count: what they last held may carry any time.
pub(super) fn newest_between(before: &[PartitionStart], after: &[PartitionStart]) -> Option<Timestamp> {
    let stamps = after.iter().enumerate().filter_map(|(id, state)| {
        let begins = before.get(id).map_or(0, |state| state.next);
        state.last.filter(|(number, _)| *number >= begins).map(|(_, stamp)| stamp)
    });
    stamps.max()
}
