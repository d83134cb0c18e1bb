//! The durable log of a hub: one sequence of segment files for all partitions, with one writer.
//!
//!   batches ─commit─► active segment ─full─► sealed segments ─retention─► deleted
//!                          └──────────── Log: what readers see ───────────┘
//!
//! A commit is one write and one sync (`layout.rs` shows the bytes). Readers see it only after the sync has returned. A
//! segment in which a commit failed is poisoned: it is never written again, since nobody knows which part of the commit
//! is on disk. The next commit begins a new segment.

mod commit;
mod damage;
mod durable_mark;
mod frame_iterator;
mod index;
pub(crate) mod layout;
mod log;
mod log_time;
mod open;
mod recovery;
mod retention;
mod segment;
mod time_file;
pub(crate) mod verify;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ephor_core::time::Timestamp;

use self::durable_mark::{DurableMark, DurableMarkFile};
use self::index::Index;
use self::layout::{PartitionStart, SegmentHeader, segment_name};
use self::log::Entry;
use self::retention::{NewestEvent, SealedSegment};
use self::segment::Segment;
use self::time_file::TimeFile;
use crate::files::File;
use crate::time::ClockSamples;

pub use self::damage::Damage;
pub(crate) use self::log::{Cursor, Log, invalid};
pub(crate) use self::segment::Frame;

/// The most sealed segments that are in the page cache only.
pub(super) const MAX_UNSYNCED: usize = 64;

/// The configuration of a journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalConfig {
    /// A segment that is this long is full.
    pub(crate) segment_bytes: u64,
    /// Whether a commit waits for the disk.
    pub(crate) sync: bool,
    pub(crate) retention_age: Option<Duration>,
    pub(crate) retention_bytes: Option<u64>,
}

/// Encoded events of one partition that are stored together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    /// Records, padded to a multiple of 8.
    pub(crate) bytes: Bytes,
    pub(crate) count: u32,
    /// CRC-32C of the bytes.
    pub(crate) checksum: u32,
}

/// The result of opening a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether no recovery was necessary: the log was closed gracefully, or was idle before the crash.
    pub clean: bool,
    /// Bytes of an unfinished commit, which was never acknowledged; unless the end of the log was damaged before the
    /// durable mark covered it: the two look the same.
    pub torn_bytes: u64,
    /// The bytes that were read to open the log.
    pub bytes_read: u64,
    /// The jump of sequence numbers, because lost events may have used some.
    pub jumped: u64,
}

/// The writer of a log.
#[derive(Debug)]
pub(crate) struct Journal {
    config: JournalConfig,
    log: Arc<Log>,
    mark_file: DurableMarkFile,
    durable_mark: Option<DurableMark>,
    time: TimeFile,
    /// The proven time, stored when the hub is idle.
    proven: Option<Timestamp>,
    clock_samples: ClockSamples,
    active: Arc<Segment>,
    /// The position of the next commit.
    end: u64,
    /// The file is allocated up to this position.
    room: u64,
    /// A commit failed: the active segment must not be written any more.
    poisoned: bool,
    partitions: Vec<PartitionStart>,
    /// Sealed segments that were acknowledged from the page cache and may not be on disk yet.
    unsynced: VecDeque<Arc<dyn File>>,
    /// Oldest first.
    sealed: Vec<SealedSegment>,
    /// The newest event of the active segment; none if that is empty.
    newest: Option<NewestEvent>,
    /// Segments that retention removed from the log, and whose files still have to be deleted.
    pending_deletes: Vec<u64>,
    report: RecoveryReport,
}

impl Journal {
    /// Returns what opening found.
    pub(crate) fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// Returns the part that readers share.
    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Returns the partitions as of the last commit.
    pub(crate) fn partitions(&self) -> &[PartitionStart] {
        &self.partitions
    }

    /// Returns the first sequence number of each partition; the next one if the partition is empty.
    pub(crate) fn first_numbers(&self) -> Vec<u64> {
        let entries = self.log.entries().clone();
        let sealed = entries.iter().filter(|entry| entry.number != self.active.number);
        // A segment whose header cannot be read is not served: then the next one is the oldest.
        let oldest = sealed.flat_map(|entry| self.log.header(entry.number)).next();
        let header = oldest.as_ref().unwrap_or(&self.active.header);
        (0..self.partitions.len() as u32).map(|partition| header.partition(partition).next).collect()
    }

    /// Adds empty partitions until there are this many.
    pub(crate) fn grow(&mut self, partitions: u32) {
        let count = self.partitions.len().max(partitions as usize);
        self.partitions.resize_with(count, PartitionStart::default);
    }

    /// Changes the retention.
    pub(crate) fn retain(&mut self, age: Option<Duration>, bytes: Option<u64>) {
        (self.config.retention_age, self.config.retention_bytes) = (age, bytes);
    }

    /// Stores the proven time, and in the durable mark that everything so far is on disk. Called when the hub is idle: no
    /// sender waits for it.
    pub(crate) fn note_durable(&mut self) {
        self.note_time();
        let mark = DurableMark { segment: self.active.number, position: self.end };
        if !self.config.sync || self.poisoned || self.durable_mark == Some(mark) {
            return;
        }
        match self.mark_file.write(mark) {
            Ok(()) => self.durable_mark = Some(mark),
            Err(error) => {
                tracing::debug!(%error, "could not write the durable mark; the next start reads the last segment")
            }
        }
    }

    /// Seals the active segment and begins the next.
    pub(crate) fn roll(&mut self, now: Timestamp) -> io::Result<()> {
        self.roll_for(0, now)
    }

    /// The same, but only if the new segment has room for `bytes`. Otherwise every send on a full disk would leave an empty
    /// segment.
    fn roll_for(&mut self, bytes: u64, now: Timestamp) -> io::Result<()> {
        if !self.poisoned {
            // Best effort: the header of the next segment says where this one ends.
            let _ = self.active.file.set_len(self.end);
        }
        if !self.config.sync {
            // Senders do not wait for the sync of a whole segment: the system writes it in the background.
            self.unsynced.push_back(self.active.file.clone());
            if self.unsynced.len() > MAX_UNSYNCED
                && let Some(oldest) = self.unsynced.pop_front()
            {
                oldest.sync()?;
            }
        }
        let last = self.partitions.iter().filter_map(|state| Some(state.last?.1)).max();
        let header = SegmentHeader {
            identity: self.log.identity,
            number: self.active.number + 1,
            created_at: last.map_or(now, |last| last.max(now)),
            previous_length: self.end,
            partitions: self.partitions.clone(),
        };
        // A failed attempt may leave a header that says where this segment ends: it must not grow any more.
        let next = create_segment(&self.log, header, bytes).inspect_err(|_| self.poisoned = true)?;
        self.log.store_index(self.active.number, self.end, &self.active.index());
        let NewestEvent { stamp, not_after } = self.newest.take().unwrap_or(NewestEvent::at(now));
        let (number, bytes) = (self.active.number, self.end);
        self.sealed.push(SealedSegment { number, bytes, newest: Some(stamp), end: bytes, not_after });
        self.end = next.end();
        self.room = self.end;
        self.active = next;
        self.poisoned = false;
        self.note_time();
        Ok(())
    }

    /// Closes the log gracefully: the next open need not search its end.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        while let Some(oldest) = self.unsynced.pop_front() {
            oldest.sync()?;
        }
        if self.poisoned {
            // Acknowledged commits are on disk, unless they were acknowledged from the page cache.
            return if self.config.sync { Ok(()) } else { self.active.file.sync() };
        }
        self.active.file.set_len(self.end)?;
        self.active.file.sync()?;
        self.log.store_index(self.active.number, self.end, &self.active.index());
        self.store_time();
        self.mark_file.write(DurableMark { segment: self.active.number, position: self.end })?;
        self.mark_file.sync()?;
        self.log.files.sync_folder(&self.log.folder)
    }

    /// Whether a commit waits for the disk.
    pub(crate) fn waits_for_the_disk(&self) -> bool {
        self.config.sync
    }

    /// Returns the size of the log in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>() + self.end
    }

    /// Returns the number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.sealed.len() + 1
    }
}

/// Creates a segment with room for `bytes`. Its name and its header are on disk when it returns.
fn create_segment(log: &Log, header: SegmentHeader, bytes: u64) -> io::Result<Arc<Segment>> {
    let path = log.path(&segment_name(header.number));
    let create = || match log.files.create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Left by a failed attempt: nothing was ever written after its header.
            log.files.remove(&path)?;
            log.files.create(&path)
        }
        created => created,
    };
    let written = || {
        let file = create()?;
        file.write_at(0, &[&header.encode()])?;
        if bytes > 0 {
            file.reserve(header.first_frame() + bytes)?;
        }
        file.sync()?;
        log.files.sync_folder(&log.folder)?;
        Ok(file)
    };
    let file = written().inspect_err(|_: &io::Error| drop(log.files.remove(&path)))?;
    let (end, index) = (header.first_frame(), Index::new(&header.partitions));
    let segment = Arc::new(Segment::new(log.files.shown(&path), file, header, index, end));
    log.change(|entries| entries.push(Entry::opened(&segment)));
    Ok(segment)
}
