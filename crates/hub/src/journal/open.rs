//! Opens the log of a hub, one for all its partitions: recovers the newest segment, and decides where the
//! sequence numbers of each partition continue.
//!
//! Older segments are not read. Before anything is served, files and folder are synced: a process that was killed may
//! have left its last writes, and the names of its files, in the page cache.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use ephor_core::time::Timestamp;

use super::damage::Damage;
use super::durable_mark::{DurableMark, DurableMarkFile};
use super::frame_iterator::{Step, Walk};
use super::index::Index;
use super::layout::{PartitionStart, SegmentHeader, Unreadable, segment_name, segment_number};
use super::log::{Entry, Log};
use super::recovery::{Recovered, recover};
use super::retention::{NewestEvent, SealedSegment, newest_between};
use super::segment::{Segment, read_header};
use super::time_file::TimeFile;
use super::{Journal, JournalConfig, MAX_UNSYNCED, RecoveryReport, create_segment};
use crate::files::{File, Files, is_disk_full};
use crate::time::ClockSamples;

impl Journal {
    /// Opens the log in this folder, or creates it. Reads at most the newest segment.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        folder: &str,
        identity: u64,
        partitions: u32,
        config: JournalConfig,
        now: Timestamp,
    ) -> io::Result<Self> {
        let (mark_file, durable_mark) = DurableMarkFile::open(&*files, folder, identity)?;
        let time = TimeFile::open(&*files, folder, identity);
        // Makes the names durable: a process that was killed may have left them in the page cache.
        files.sync_folder(folder)?;
        let mut numbers: Vec<u64> =
            files.list(folder)?.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        let log = Arc::new(Log::new(files, folder, identity, &numbers));
        let newest = newest_segment(&log, &mut numbers, durable_mark)?;
        let mut journal = match newest {
            Some(header) => Self::reopen(log, (mark_file, durable_mark), time, header, partitions, config)?,
            None => Self::begin(log, mark_file, time, config, now)?,
        };
        journal.sealed_sizes(&numbers);
        if !journal.report.clean {
            // Segments sealed with durability `page-cache` may be in the page cache only.
            for sealed in journal.sealed.iter().rev().take(MAX_UNSYNCED) {
                journal.log.files.open(&journal.log.path(&segment_name(sealed.number)))?.sync()?;
            }
        }
        journal.grow(partitions);
        journal.missing_segments(&numbers);
        if journal.poisoned {
            match journal.roll(now) {
                // The next commit tries again. Until then the log can be read.
                Err(error) if is_disk_full(&error) => {}
                rolled => rolled?,
            }
        }
        journal.end_old_jumps();
        Ok(journal)
    }

    /// Creates the first segment of a new log.
    fn begin(
        log: Arc<Log>,
        mark_file: DurableMarkFile,
        time: TimeFile,
        config: JournalConfig,
        now: Timestamp,
    ) -> io::Result<Self> {
        let header = SegmentHeader {
            identity: log.identity,
            number: 1,
            created_at: now,
            previous_length: 0,
            partitions: Vec::new(),
        };
        let active = create_segment(&log, header, 0)?;
        let end = active.end();
        let report = RecoveryReport { clean: true, ..RecoveryReport::default() };
        Ok(Self {
            config,
            log,
            mark_file,
            durable_mark: None,
            time,
            proven: None,
            clock_samples: ClockSamples::default(),
            active,
            end,
            room: end,
            poisoned: false,
            partitions: Vec::new(),
            unsynced: VecDeque::new(),
            sealed: Vec::new(),
            newest: None,
            pending_deletes: Vec::new(),
            report,
        })
    }

    /// Opens the newest segment, as far as it is intact.
    fn reopen(
        log: Arc<Log>,
        (mark_file, durable_mark): (DurableMarkFile, Option<DurableMark>),
        time: TimeFile,
        header: SegmentHeader,
        partition_count: u32,
        config: JournalConfig,
    ) -> io::Result<Self> {
        let path = log.path(&segment_name(header.number));
        let file = log.files.open(&path)?;
        let name = log.files.shown(&path);
        let length = file.len()?;
        let start = header.first_frame();
        let proven =
            durable_mark.filter(|mark| mark.segment == header.number).map_or(0, |mark| mark.position);
        let closed = (proven <= length).then(|| log.stored_index(header.number, proven)).flatten();
        let (index, from) = match closed {
            Some(index) => (index, proven),
            None => (Index::new(&header.partitions), start),
        };
        let walk = Walk::new(&*file, log.identity, header.number, from..length);
        let mut found = recover(walk, index, from, proven, &name)?;
        if found.end < proven {
            // The durable mark proves that there were frames, even if only zeros are left.
            found.damage.push(Damage::new(&name, found.end..proven));
            found.untraced += (proven - found.end) / 8;
            found.end = proven;
        }
        let bytes_read = length.min(start) + found.bytes_read;
        let Recovered { index, end, last_commit, torn, mut damage, untraced, .. } = found;
        let clean = end == proven && torn.is_none() && damage.is_empty();
        if !clean {
            // The header is on disk: the first commit waited for it.
            let unsure = if end == start { 0 } else { last_commit.max(proven) };
            make_durable(&*file, unsure..end)?;
        }
        let torn_bytes = torn.map_or(0, |torn| torn.end - torn.start);
        if torn_bytes > 0 {
            tracing::warn!(
                file = name,
                position = end,
                bytes = torn_bytes,
                "truncated an incomplete commit at the end of the log. It was never acknowledged, unless the file was \
                 damaged: then it may have been the last acknowledged one"
            );
        }
        let damaged = !damage.is_empty();
        let mut partitions: Vec<PartitionStart> = index.states().collect();
        // A partition of which nothing is left may also have had events in the damaged part.
        let count = partitions.len().max(partition_count as usize);
        partitions.resize_with(count, PartitionStart::default);
        let mut jumped = 0;
        for (id, partition) in (0..).zip(&mut partitions) {
            let before = partition.next;
            jumped = jumped.max(partition.jump(clean, untraced));
            // It is unknown whose events left no trace: all that may have been there count as affected.
            if let Some(damage) = damage.last_mut().filter(|_| untraced > 0) {
                damage.add(id, before..partition.next);
            }
        }
        damage.into_iter().for_each(|damage| log.damage.report(damage));
        let empty = end == start;
        let newest = newest_between(&header.partitions, &partitions).map(NewestEvent::at);
        let active = Arc::new(Segment::new(name, file, header, index, end));
        log.change(|entries| {
            entries.retain(|entry| entry.number != active.number);
            entries.push(Entry::opened(&active));
        });
        // The next commit begins a new segment, so that recovery never has to tell old remains from new commits.
        let poisoned = !clean && (!empty || damaged || jumped > 0);
        let report = RecoveryReport { clean, torn_bytes, bytes_read, jumped };
        let (sealed, proven, clock_samples) = (Vec::new(), time.proven(), time.clock_samples());
        let mut journal = Self {
            config,
            log,
            mark_file,
            durable_mark,
            time,
            proven,
            clock_samples,
            active,
            end,
            room: end,
            poisoned,
            partitions,
            unsynced: VecDeque::new(),
            sealed,
            newest,
            pending_deletes: Vec::new(),
            report,
        };
        if !poisoned && length > end {
            journal.active.file.set_len(end)?;
        }
        journal.room = end;
        Ok(journal)
    }

    fn sealed_sizes(&mut self, numbers: &[u64]) {
        let sealed = numbers.iter().filter(|number| **number != self.active.number);
        self.sealed = sealed
            .map(|number| {
                let bytes = self.log.files.length(&self.log.path(&segment_name(*number)));
                SealedSegment {
                    number: *number,
                    bytes: bytes.unwrap_or(0),
                    newest: None,
                    end: 0,
                    not_after: Timestamp(i64::MAX),
                }
            })
            .collect();
    }

    /// Reports segments that are missing between others: somebody removed them.
    fn missing_segments(&self, numbers: &[u64]) {
        for pair in numbers.windows(2) {
            let gap: Range<u64> = pair[0] + 1..pair[1];
            for number in gap.take(100) {
                let path = self.log.path(&segment_name(number));
                self.log
                    .damage
                    .report(Damage::new(&format!("{} (missing)", self.log.files.shown(&path)), 0..0));
            }
        }
    }
}

impl PartitionStart {
    /// Skips all numbers that may have been used, and returns how many.
    fn jump(&mut self, clean: bool, untraced: u64) -> u64 {
        let before = self.next;
        if clean {
            // Numbers that are used from now on must be reserved again. Otherwise, if all of them are lost, the log
            // would look as clean as it does now.
            self.reserved = self.next;
        } else {
            self.next = self.next.max(self.reserved) + untraced;
        }
        self.next - before
    }
}

/// Makes the last commit durable, or the header if there is none: a process that was killed may have left it in the page
/// cache. It is written again, since no later sync writes what a failed sync left there. It is then compared with the disk,
/// bypassing the page cache, since a file system may keep a block as never written although it was written again. Earlier
/// commits are on disk, since each commit waits for the one before, except with durability `page-cache`.
fn make_durable(file: &dyn File, unsure: Range<u64>) -> io::Result<()> {
    let mut bytes = vec![0; unsure.end.saturating_sub(unsure.start) as usize];
    let read = file.read_at(unsure.start, &mut bytes)?;
    bytes.truncate(read);
    match file.write_at(unsure.start, &[&bytes]) {
        // Some file systems need space even to overwrite. The log can be read nevertheless.
        Err(error) if is_disk_full(&error) => {}
        written => written?,
    }
    file.sync()?;
    file.ensure_on_disk(unsure)
}

/// Returns the header of the newest segment. Removes one whose creation was not finished: it has no events.
fn newest_segment(
    log: &Log,
    numbers: &mut Vec<u64>,
    durable_mark: Option<DurableMark>,
) -> io::Result<Option<SegmentHeader>> {
    while let Some(number) = numbers.last().copied() {
        let path = log.path(&segment_name(number));
        let file = log.files.open(&path)?;
        // The mark is written only after the segment was created.
        let was_there = durable_mark.is_some_and(|mark| mark.segment >= number);
        if was_there || !is_unfinished(&*file, log.identity, number)? {
            return log.header(number).map(Some);
        }
        log.files.remove(&path)?;
        log.change(|entries| entries.retain(|entry| entry.number != number));
        numbers.pop();
    }
    Ok(None)
}

/// Whether the creation of the newest segment was not finished: its header is incomplete, and nothing follows it.
pub(super) fn is_unfinished(file: &dyn File, identity: u64, number: u64) -> io::Result<bool> {
    if !matches!(read_header(file)?, Ok((_, true)) | Err(Unreadable::Damaged)) {
        return Ok(false);
    }
    let mut walk = Walk::new(file, identity, number, 0..file.len()?);
    while let Some(step) = walk.step()? {
        if !matches!(step, Step::Unreadable { header: None, .. }) {
            return Ok(false);
        }
    }
    Ok(true)
}
