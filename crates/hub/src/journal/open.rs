//! Opening a log: what is left of the newest segment, and where sequence numbers go on.
//!
//! Older segments are not read. What counts from now on is on disk before anybody sees it: a process that
//! was killed may have left its last writes, and the names of its files, in the page cache.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use ephor_core::time::Timestamp;

use super::damage::Damage;
use super::index::Index;
use super::layout::{PartitionStart, SegmentHeader, Unreadable, segment_name, segment_number};
use super::log::{Entry, Log};
use super::mark::{Mark, MarkFile};
use super::recovery::{Recovered, recover};
use super::retention::{Newest, Sealed, newest_between};
use super::segment::{Segment, read_header};
use super::time_file::TimeFile;
use super::walk::{Step, Walk};
use super::{Journal, JournalConfig, MOST_UNSYNCED, RecoveryReport, create_segment};
use crate::files::{File, Files, is_disk_full};
use crate::time::Marks;

impl Journal {
    /// Opens the log in this folder, or begins it. Reads the newest segment at most.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        folder: &str,
        identity: u64,
        partitions: u32,
        config: JournalConfig,
        now: Timestamp,
    ) -> io::Result<Self> {
        let (mark, marked) = MarkFile::open(&*files, folder, identity)?;
        let time = TimeFile::open(&*files, folder, identity);
        // A process that was killed may have left names that are not on disk yet. From now on they count.
        files.sync_folder(folder)?;
        let mut numbers: Vec<u64> =
            files.list(folder)?.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        let log = Arc::new(Log::new(files, folder, identity, &numbers));
        let newest = newest_segment(&log, &mut numbers, marked)?;
        let mut journal = match newest {
            Some(header) => Self::reopen(log, (mark, marked), time, header, partitions, config)?,
            None => Self::begin(log, mark, time, config, now)?,
        };
        journal.sealed_sizes(&numbers);
        if !journal.report.clean {
            // Sealed in relaxed mode they may be in the page cache only. What is served from now on is on disk.
            for sealed in journal.sealed.iter().rev().take(MOST_UNSYNCED) {
                journal.log.files.open(&journal.log.path(&segment_name(sealed.number)))?.sync()?;
            }
        }
        journal.grow(partitions);
        journal.missing_segments(&numbers);
        if journal.spoiled {
            match journal.roll(now) {
                // The next commit tries again; until then there is much to read.
                Err(error) if is_disk_full(&error) => {}
                rolled => rolled?,
            }
        }
        journal.end_old_jumps();
        Ok(journal)
    }

    /// The first segment of a new log.
    fn begin(
        log: Arc<Log>,
        mark: MarkFile,
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
            mark,
            marked: None,
            time,
            proven: None,
            marks: Marks::default(),
            active,
            end,
            room: end,
            spoiled: false,
            partitions: Vec::new(),
            unsynced: VecDeque::new(),
            sealed: Vec::new(),
            newest: None,
            leftovers: Vec::new(),
            report,
        })
    }

    /// The newest segment, as far as it is intact.
    fn reopen(
        log: Arc<Log>,
        (mark, marked): (MarkFile, Option<Mark>),
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
        let proven = marked.filter(|mark| mark.segment == header.number).map_or(0, |mark| mark.position);
        let closed = (proven <= length).then(|| log.stored_index(header.number, proven)).flatten();
        let (index, from) = match closed {
            Some(index) => (index, proven),
            None => (Index::new(&header.partitions), start),
        };
        let walk = Walk::new(&*file, log.identity, header.number, from..length);
        let mut found = recover(walk, index, from, proven, &name)?;
        if found.end < proven {
            // Even the zeros at the end were something once.
            found.damage.push(Damage::new(&name, found.end..proven));
            found.untraced += (proven - found.end) / 8;
            found.end = proven;
        }
        let bytes_read = length.min(start) + found.bytes_read;
        let Recovered { index, end, last_commit, torn, mut damage, untraced, .. } = found;
        let clean = end == proven && torn.is_none() && damage.is_empty();
        if !clean {
            // The header was on disk before the first commit began.
            let unsure = if end == start { 0 } else { last_commit.max(proven) };
            make_durable(&*file, unsure..end)?;
        }
        let torn_bytes = torn.map_or(0, |torn| torn.end - torn.start);
        if torn_bytes > 0 {
            tracing::warn!(
                file = name,
                position = end,
                bytes = torn_bytes,
                "cut off the end of the log, which is no whole commit: one that was not finished, so that nobody was \
                 told that it was stored; unless the file was damaged, then it may have been the last that was"
            );
        }
        let damaged = !damage.is_empty();
        let mut partitions: Vec<PartitionStart> = index.states().collect();
        // Also one of which nothing is left may have been in what is damaged.
        let count = partitions.len().max(partition_count as usize);
        partitions.resize_with(count, PartitionStart::default);
        let mut jumped = 0;
        for (id, partition) in (0..).zip(&mut partitions) {
            let before = partition.next;
            jumped = jumped.max(partition.jump(clean, untraced));
            // Whose events left no trace is not known: all are in doubt that may have been.
            if let Some(damage) = damage.last_mut().filter(|_| untraced > 0) {
                damage.add(id, before..partition.next);
            }
        }
        damage.into_iter().for_each(|damage| log.damage.report(damage));
        let empty = end == start;
        let newest = newest_between(&header.partitions, &partitions).map(Newest::at);
        let active = Arc::new(Segment::new(name, file, header, index, end));
        log.change(|entries| {
            entries.retain(|entry| entry.number != active.number);
            entries.push(Entry::opened(&active));
        });
        // What nobody can tell apart any more is left behind in a segment of its own.
        let spoiled = !clean && (!empty || damaged || jumped > 0);
        let report = RecoveryReport { clean, torn_bytes, bytes_read, jumped };
        let (sealed, proven, marks) = (Vec::new(), time.proven(), time.marks());
        let mut journal = Self {
            config,
            log,
            mark,
            marked,
            time,
            proven,
            marks,
            active,
            end,
            room: end,
            spoiled,
            partitions,
            unsynced: VecDeque::new(),
            sealed,
            newest,
            leftovers: Vec::new(),
            report,
        };
        if !spoiled && length > end {
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
                Sealed {
                    number: *number,
                    bytes: bytes.unwrap_or(0),
                    newest: None,
                    end: 0,
                    not_after: Timestamp(i64::MAX),
                }
            })
            .collect();
    }

    /// A segment between others that is not there: somebody removed it.
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
    /// Moves beyond all numbers that may have been used, and tells by how much.
    fn jump(&mut self, clean: bool, untraced: u64) -> u64 {
        let before = self.next;
        if clean {
            // What is used from now on must be set aside anew: otherwise, if all of it is lost, the log looks
            // as clean as it does now.
            self.reserved = self.next;
        } else {
            self.next = self.next.max(self.reserved) + untraced;
        }
        self.next - before
    }
}

/// Puts the last commit on disk, or a header without any: a process that was killed may have left it in the
/// page cache. It is written again, since what a failed sync left there no later sync writes, and looked at past the
/// page cache, since a file system may keep a block as never written although it was written again. All before it is on
/// disk: each commit waits for that, except those that are acknowledged from the page cache, which a power failure may take.
fn make_durable(file: &dyn File, unsure: Range<u64>) -> io::Result<()> {
    let mut bytes = vec![0; unsure.end.saturating_sub(unsure.start) as usize];
    let read = file.read_at(unsure.start, &mut bytes)?;
    bytes.truncate(read);
    match file.write_at(unsure.start, &[&bytes]) {
        // Some file systems need room even for what is there already; it can be read all the same.
        Err(error) if is_disk_full(&error) => {}
        written => written?,
    }
    file.sync()?;
    file.ensure_on_disk(unsure)
}

/// The header of the newest segment. One whose creation was cut short is removed: nothing can be in it.
fn newest_segment(
    log: &Log,
    numbers: &mut Vec<u64>,
    marked: Option<Mark>,
) -> io::Result<Option<SegmentHeader>> {
    while let Some(number) = numbers.last().copied() {
        let path = log.path(&segment_name(number));
        let file = log.files.open(&path)?;
        // The mark is written only when the segment is there.
        let was_there = marked.is_some_and(|mark| mark.segment >= number);
        if was_there || !is_unfinished(&*file, log.identity, number)? {
            return log.header(number).map(Some);
        }
        log.files.remove(&path)?;
        log.change(|entries| entries.retain(|entry| entry.number != number));
        numbers.pop();
    }
    Ok(None)
}

/// Whether the creation of the newest segment was cut short: its header is not whole, and nothing is behind it.
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
