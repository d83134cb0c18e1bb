//! What need not be kept any longer: whole segments, the oldest first.
//!
//! A segment goes when its newest event is past its time, or when the log,
//! with the active segment grown to its full size, would take more than it may.

use std::io;

use ephor_core::time::Timestamp;

use super::Journal;
use super::layout::{SegmentHeader, index_name, segment_name};

/// A segment that is no longer written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// When its newest event was stored, once somebody asked.
    pub(super) newest: Option<Timestamp>,
}

impl Journal {
    /// Whether there is something to free.
    pub(crate) fn is_overdue(&mut self, now: Timestamp) -> bool {
        self.over_size() || self.due().is_some_and(|due| due <= now) || !self.leftovers.is_empty()
    }

    /// Takes what need not be kept from the log, so that no reader finds it any more, and tells which segments
    /// that were. Their files are still there.
    pub(crate) fn expire(&mut self, now: Timestamp) -> io::Result<Vec<u64>> {
        let mut expired = Vec::new();
        loop {
            let is_due = self.due().is_some_and(|due| due <= now);
            if is_due && self.sealed.is_empty() {
                self.roll(now)?;
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

    /// Removes the files of segments that were taken from the log. What cannot be removed is tried again.
    pub(crate) fn remove_files(&mut self, segments: Vec<u64>) -> io::Result<()> {
        self.leftovers.extend(segments);
        // The oldest first: after a crash none is missing between others.
        while let Some(number) = self.leftovers.first().copied() {
            for name in [segment_name(number), index_name(number)] {
                match self.log.files.remove(&self.log.path(&name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            self.leftovers.remove(0);
        }
        Ok(())
    }

    /// When the oldest segment will be past its time; none if it never will.
    pub(crate) fn due(&mut self) -> Option<Timestamp> {
        let age = self.config.retention_age?;
        let newest = match self.sealed.first().map(|oldest| oldest.newest) {
            Some(Some(known)) => Some(known),
            Some(None) => self.newest_of_oldest(),
            None if self.end > self.active.header.first_frame() => newest_event(&self.partitions),
            None => None,
        };
        if let Some(oldest) = self.sealed.first_mut() {
            oldest.newest = newest;
        }
        newest.map(|time| time + age)
    }

    /// The header of a segment says when the newest event before it was stored.
    fn newest_of_oldest(&self) -> Option<Timestamp> {
        let behind = self.sealed.iter().skip(1).find_map(|sealed| self.log.header(sealed.number).ok());
        let SegmentHeader { partitions, created_at, .. } = behind.as_ref().unwrap_or(&self.active.header);
        // One that holds no events goes with the others.
        Some(newest_event(partitions).unwrap_or(*created_at))
    }

    fn over_size(&self) -> bool {
        let sealed: u64 = self.sealed.iter().map(|sealed| sealed.bytes).sum();
        let full = sealed + self.end.max(self.config.segment_bytes);
        self.config.retention_bytes.is_some_and(|limit| full > limit)
    }
}

fn newest_event(partitions: &[super::PartitionStart]) -> Option<Timestamp> {
    partitions.iter().filter_map(|state| Some(state.last?.1)).max()
}
