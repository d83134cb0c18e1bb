//! The durable log of a hub: one writer, one row of segment files for all partitions.
//!
//!   batches ─commit─► active segment ─full─► sealed segments ─retention─► gone
//!                          └──────────── Log: what readers see ───────────┘
//!
//! A commit is one write and one sync (`layout.rs` draws the bytes). It counts
//! only when the sync returned: before that no reader sees it. A segment into
//! which a commit failed is never written again, since nobody knows what of it
//! is on disk; the next commit begins a new one.

mod commit;
mod damage;
mod dating;
mod index;
pub(crate) mod layout;
mod log;
mod mark;
mod open;
mod recovery;
mod retention;
mod segment;
mod time_file;
pub(crate) mod verify;
mod walk;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ephor_core::time::Timestamp;

use self::index::Index;
use self::layout::{PartitionStart, SegmentHeader, segment_name};
use self::log::Entry;
use self::mark::{Mark, MarkFile};
use self::retention::{Newest, Sealed};
use self::segment::Segment;
use self::time_file::TimeFile;
use crate::files::File;
use crate::time::Marks;

pub use self::damage::Damage;
pub(crate) use self::log::{Cursor, Log, invalid};
pub(crate) use self::segment::Frame;

/// So many sealed segments may wait to be written by the system.
pub(super) const MOST_UNSYNCED: usize = 64;

/// How a journal is kept.
#[derive(Clone, Debug)]
pub(crate) struct JournalConfig {
    /// A segment that is this long is followed by a new one.
    pub(crate) segment_bytes: u64,
    /// Whether a commit waits for the disk.
    pub(crate) sync: bool,
    pub(crate) retention_age: Option<Duration>,
    pub(crate) retention_bytes: Option<u64>,
}

/// Events of one partition that are stored together or not at all, encoded by whoever sends them.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    /// Records, padded to a multiple of 8.
    pub(crate) bytes: Bytes,
    pub(crate) count: u32,
    /// CRC-32C of the bytes.
    pub(crate) checksum: u32,
}

/// What opening a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether nothing had to be looked for: the log was closed in good order, or had nothing to do for a while.
    pub clean: bool,
    /// Bytes of a commit that was cut short. Nobody was told that it was stored, unless the end of the log was damaged
    /// before the mark said that it is on disk: the two look the same.
    pub torn_bytes: u64,
    /// How many bytes were read to open the log.
    pub bytes_read: u64,
    /// How far sequence numbers jumped, because some may have been used for events that are gone.
    pub jumped: u64,
}

/// The writer of a log.
#[derive(Debug)]
pub(crate) struct Journal {
    config: JournalConfig,
    log: Arc<Log>,
    mark: MarkFile,
    marked: Option<Mark>,
    time: TimeFile,
    /// What the hub knows of the time, to be written when there is nothing else to do.
    proven: Option<Timestamp>,
    marks: Marks,
    active: Arc<Segment>,
    /// Where the next commit goes.
    end: u64,
    /// Room that was asked for.
    room: u64,
    /// The active segment must not be written any more.
    spoiled: bool,
    partitions: Vec<PartitionStart>,
    /// Sealed segments that were acknowledged from the page cache and may not be on disk yet.
    unsynced: VecDeque<Arc<dyn File>>,
    /// Oldest first.
    sealed: Vec<Sealed>,
    /// In the active segment; none if that is empty.
    newest: Option<Newest>,
    /// Segments that are gone for readers, and whose files are still there.
    leftovers: Vec<u64>,
    report: RecoveryReport,
}

impl Journal {
    /// What opening found.
    pub(crate) fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// What readers see.
    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// All partitions behind the last commit.
    pub(crate) fn partitions(&self) -> &[PartitionStart] {
        &self.partitions
    }

    /// The oldest sequence number of each partition that is kept, or the next one.
    pub(crate) fn first_numbers(&self) -> Vec<u64> {
        let entries = self.log.entries().clone();
        let sealed = entries.iter().filter(|entry| entry.number != self.active.number);
        // A segment whose header cannot be read is not served, and the next one is the oldest.
        let oldest = sealed.flat_map(|entry| self.log.header(entry.number)).next();
        let header = oldest.as_ref().unwrap_or(&self.active.header);
        (0..self.partitions.len() as u32).map(|partition| header.partition(partition).next).collect()
    }

    /// Adds empty partitions until there are this many.
    pub(crate) fn grow(&mut self, partitions: u32) {
        let count = self.partitions.len().max(partitions as usize);
        self.partitions.resize_with(count, PartitionStart::default);
    }

    /// From now on this much is kept.
    pub(crate) fn retain(&mut self, age: Option<Duration>, bytes: Option<u64>) {
        (self.config.retention_age, self.config.retention_bytes) = (age, bytes);
    }

    /// Writes down what nobody waits for: the proven time, and in the mark that everything so far is on disk.
    /// For when there is nothing else to do.
    pub(crate) fn note_durable(&mut self) {
        self.note_time();
        let mark = Mark { segment: self.active.number, position: self.end };
        if !self.config.sync || self.spoiled || self.marked == Some(mark) {
            return;
        }
        match self.mark.write(mark) {
            Ok(()) => self.marked = Some(mark),
            Err(error) => tracing::debug!(%error, "the mark was not written"),
        }
    }

    /// Seals the active segment and begins the next.
    pub(crate) fn roll(&mut self, now: Timestamp) -> io::Result<()> {
        self.roll_for(0, now)
    }

    /// The same, if there is room for so much in the next: otherwise every attempt of a sender on a full disk
    /// would leave an empty segment behind.
    fn roll_for(&mut self, bytes: u64, now: Timestamp) -> io::Result<()> {
        if !self.spoiled {
            // Best effort: the next segment says where this one ends.
            let _ = self.active.file.set_len(self.end);
        }
        if !self.config.sync {
            // Senders shall not wait for a whole segment: the system writes it meanwhile.
            self.unsynced.push_back(self.active.file.clone());
            if self.unsynced.len() > MOST_UNSYNCED
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
        // What an attempt left behind says where this segment ends: it must not grow any more.
        let next = create_segment(&self.log, header, bytes).inspect_err(|_| self.spoiled = true)?;
        self.log.store_index(self.active.number, self.end, &self.active.index());
        let Newest { stamp, not_after } = self.newest.take().unwrap_or(Newest::at(now));
        let (number, bytes) = (self.active.number, self.end);
        self.sealed.push(Sealed { number, bytes, newest: Some(stamp), end: bytes, not_after });
        self.end = next.end();
        self.room = self.end;
        self.active = next;
        self.spoiled = false;
        self.note_time();
        Ok(())
    }

    /// Closes the log in good order: opening it again need not look for its end.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        while let Some(oldest) = self.unsynced.pop_front() {
            oldest.sync()?;
        }
        if self.spoiled {
            // What counts of it is on disk unless it was acknowledged from the page cache.
            return if self.config.sync { Ok(()) } else { self.active.file.sync() };
        }
        self.active.file.set_len(self.end)?;
        self.active.file.sync()?;
        self.log.store_index(self.active.number, self.end, &self.active.index());
        self.store_time();
        self.mark.write(Mark { segment: self.active.number, position: self.end })?;
        self.mark.sync()?;
        self.log.files.sync_folder(&self.log.folder)
    }

    /// Whether a commit is on disk when it returns.
    pub(crate) fn waits_for_the_disk(&self) -> bool {
        self.config.sync
    }

    /// How many bytes the log takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed.iter().map(|sealed| sealed.bytes).sum::<u64>() + self.end
    }

    /// How many segments there are.
    pub(crate) fn segments(&self) -> usize {
        self.sealed.len() + 1
    }
}

/// Creates a segment: on disk, name and header, when it returns. There is room for so many bytes in it.
fn create_segment(log: &Log, header: SegmentHeader, bytes: u64) -> io::Result<Arc<Segment>> {
    let path = log.path(&segment_name(header.number));
    let create = || match log.files.create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Left by an attempt that failed half-way: nothing was ever written behind its header.
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
