//! The segments of a hub's log, shared by all readers: reads frames and finds times across segments, despite
//! damage. The writer ([`Journal`](super::Journal)) adds and removes segments.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

use ephor_core::time::Timestamp;

use super::damage::{Damage, KnownDamage};
use super::frame_iterator::Walk;
use super::index::{Index, max_index_bytes};
use super::layout::{PartitionStart, SegmentHeader, index_name, segment_name};
use super::recovery::recover;
use super::segment::{Frame, Segment, read_header};
use crate::files::Files;

/// A reader gives up after retention has deleted this many segments in a row right before it opens them.
const MAX_OVERTAKEN: usize = 100;

/// A segment that is opened when a reader needs it, and closed when no reader does.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    open: Mutex<Weak<Segment>>,
}

impl Entry {
    pub(crate) fn closed(number: u64) -> Arc<Self> {
        Arc::new(Self { number, open: Mutex::new(Weak::new()) })
    }

    pub(crate) fn opened(segment: &Arc<Segment>) -> Arc<Self> {
        Arc::new(Self { number: segment.number, open: Mutex::new(Arc::downgrade(segment)) })
    }
}

/// The position of a reader.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) next: u64,
    /// The number of events that were skipped because they cannot be read.
    pub(crate) lost: u64,
    segment: Option<Arc<Segment>>,
}

impl Cursor {
    pub(crate) fn at(next: u64) -> Self {
        Self { next, lost: 0, segment: None }
    }
}

/// The segments, oldest first.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) folder: String,
    pub(crate) identity: u64,
    pub(crate) damage: KnownDamage,
    entries: RwLock<Vec<Arc<Entry>>>,
}

impl Log {
    pub(crate) fn new(files: Arc<dyn Files>, folder: &str, identity: u64, numbers: &[u64]) -> Self {
        let entries = numbers.iter().map(|number| Entry::closed(*number)).collect();
        let folder = folder.to_owned();
        Self { files, folder, identity, damage: KnownDamage::default(), entries: RwLock::new(entries) }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    pub(crate) fn entries(&self) -> RwLockReadGuard<'_, Vec<Arc<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<Arc<Entry>>)) {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the state of a partition at the beginning of a segment.
    pub(crate) fn start_of(&self, entry: &Entry, partition: u32) -> io::Result<PartitionStart> {
        let open = entry.open.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        match open {
            Some(segment) => Ok(segment.header.partition(partition)),
            None => Ok(self.header(entry.number)?.partition(partition)),
        }
    }

    /// Retries without the segments that are completely unreadable: the rest is served.
    fn despite_damage<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let attempts = self.entries().len() + MAX_OVERTAKEN;
        for _ in 0..attempts {
            match attempt() {
                // The file is gone: deleted by retention, or removed by somebody.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) => {}
                done => return done,
            }
        }
        attempt()
    }

    fn holds(&self, number: u64) -> bool {
        self.entries().iter().any(|entry| entry.number == number)
    }

    /// Excludes a segment from reading. Its file stays for analysis.
    fn exclude(&self, number: u64, error: &io::Error) {
        let path = self.path(&segment_name(number));
        let length = self.files.open(&path).and_then(|file| file.len()).unwrap_or(0);
        tracing::error!(%error, "a segment cannot be read and is not served; its file is kept");
        self.damage.report(Damage::new(&self.files.shown(&path), 0..length));
        self.change(|entries| entries.retain(|entry| entry.number != number));
    }

    /// Reads frames of a partition from the cursor on, about `budget` bytes; none at the end of the log. Reports and skips
    /// what cannot be read. Calls `loading` with the number of bytes before they are read.
    pub(crate) fn read(
        &self,
        partition: u32,
        cursor: &mut Cursor,
        budget: usize,
        loading: &mut dyn FnMut(usize),
    ) -> io::Result<Vec<Frame>> {
        self.despite_damage(|| self.try_read(partition, cursor, budget, loading))
    }

    fn try_read(
        &self,
        partition: u32,
        cursor: &mut Cursor,
        budget: usize,
        loading: &mut dyn FnMut(usize),
    ) -> io::Result<Vec<Frame>> {
        loop {
            let segment = match &cursor.segment {
                Some(segment) => segment.clone(),
                None => match self.find(partition, cursor.next)? {
                    Some(segment) => segment,
                    None => return Ok(Vec::new()),
                },
            };
            // Retention may have deleted earlier events.
            let begins = segment.header.partition(partition).next;
            if begins > cursor.next {
                let freed = self.entries().first().is_none_or(|oldest| oldest.number >= segment.number);
                cursor.lost += if freed { begins - cursor.next } else { 0 };
                cursor.next = begins;
            }
            // Determined before the read: if there is a next segment now, this one is sealed and complete.
            let following = self.entries().iter().find(|entry| entry.number > segment.number).cloned();
            let found = segment.read(partition, cursor.next, budget, loading)?;
            for damage in found.damage {
                cursor.lost += damage.count(partition);
                self.damage.report(damage);
            }
            let moved = found.next > cursor.next;
            cursor.next = found.next;
            cursor.segment = Some(segment.clone());
            if !found.frames.is_empty() {
                return Ok(found.frames);
            }
            if !moved {
                let Some(entry) = following else { return Ok(Vec::new()) };
                let next = self.open(&entry)?;
                self.note_missing(partition, cursor, &segment, &next);
                // Numbers may jump between segments, never within one.
                cursor.next = cursor.next.max(next.header.partition(partition).next);
                cursor.segment = Some(next);
            }
        }
    }

    /// Notes events that are missing between two segments: the next one has a higher number than the last one ended with.
    fn note_missing(&self, partition: u32, cursor: &mut Cursor, segment: &Segment, next: &Segment) {
        let last = next.header.partition(partition).last;
        let Some((last, _)) = last.filter(|(last, _)| *last >= cursor.next) else { return };
        let (missing, end) = (cursor.next..last + 1, segment.end());
        cursor.lost += missing.end - missing.start;
        // If retention has deleted the segment meanwhile, nothing is damaged.
        if self.holds(segment.number) {
            self.damage.report(Damage::new(&segment.name, end..end).of(partition, missing));
        }
    }

    /// Returns the number of the first event of a partition that was enqueued at this time or later, if any.
    pub(crate) fn find_time(&self, partition: u32, time: Timestamp) -> io::Result<Option<u64>> {
        self.despite_damage(|| self.try_find_time(partition, time))
    }

    fn try_find_time(&self, partition: u32, time: Timestamp) -> io::Result<Option<u64>> {
        let entries = self.entries().clone();
        // Finds the last segment before which everything is older.
        let older = |entry: &Arc<Entry>| {
            let last = self.start_of(entry, partition)?.last;
            io::Result::Ok(last.is_none_or(|(_, last)| last < time))
        };
        let at = partition_point(&entries, older)?.saturating_sub(1);
        for entry in &entries[at.min(entries.len())..] {
            if let Some(number) = self.open(entry)?.find_time(partition, time)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Returns the segment that has this number, or would have it.
    fn find(&self, partition: u32, number: u64) -> io::Result<Option<Arc<Segment>>> {
        let entries = self.entries().clone();
        let before = |entry: &Arc<Entry>| Ok(self.start_of(entry, partition)?.next <= number);
        let at = partition_point(&entries, before)?.saturating_sub(1);
        entries.get(at).map(|entry| self.open(entry)).transpose()
    }

    /// Opens a segment, or returns it if a reader has it open.
    pub(crate) fn open(&self, entry: &Entry) -> io::Result<Arc<Segment>> {
        let mut open = entry.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = open.upgrade() {
            return Ok(segment);
        }
        let segment = Arc::new(self.load(entry.number)?);
        *open = Arc::downgrade(&segment);
        Ok(segment)
    }

    /// Reads the header of a segment. If both copies are damaged, the segment is excluded.
    pub(crate) fn header(&self, number: u64) -> io::Result<SegmentHeader> {
        let path = self.path(&segment_name(number));
        let file = self.files.open(&path).inspect_err(|error| {
            if error.kind() == io::ErrorKind::NotFound && self.holds(number) {
                self.exclude(number, error);
            }
        })?;
        let name = self.files.shown(&path);
        let error = match read_header(&*file)? {
            Ok((header, one_damaged)) if header.identity == self.identity && header.number == number => {
                if one_damaged {
                    self.damage.report(Damage::new(&name, 0..header.first_frame()));
                }
                return Ok(header);
            }
            Ok(_) => invalid(format!("{name} belongs to another log")),
            Err(unreadable) => invalid(unreadable.describe(&name)),
        };
        self.exclude(number, &error);
        Err(error)
    }

    /// Opens a sealed segment. The header of the next one says where it ends.
    fn load(&self, number: u64) -> io::Result<Segment> {
        let header = self.header(number)?;
        let path = self.path(&segment_name(number));
        let file = self.files.open(&path)?;
        let name = self.files.shown(&path);
        let length = file.len()?;
        let proven = if self.holds(number + 1) { self.header(number + 1)?.previous_length } else { length };
        let end = proven.min(length);
        if end < proven {
            self.damage.report(Damage::new(&name, end..proven));
        }
        let index = match self.stored_index(number, end) {
            Some(index) => index,
            None => {
                let start = header.first_frame();
                let walk = Walk::new(&*file, self.identity, number, start..end);
                let found = recover(walk, Index::new(&header.partitions), start, end, &name)?;
                found.damage.into_iter().for_each(|damage| self.damage.report(damage));
                self.store_index(number, end, &found.index);
                found.index
            }
        };
        Ok(Segment::new(name, file, header, index, end))
    }

    /// Reads the index from disk, if it is intact and covers the segment up to this position.
    pub(crate) fn stored_index(&self, number: u64, end: u64) -> Option<Index> {
        let file = self.files.open(&self.path(&index_name(number))).ok()?;
        let length = file.len().ok().filter(|length| *length <= max_index_bytes(end))?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        let read = file.read_at(0, &mut bytes).ok()?;
        let (index, indexed) = Index::decode(&bytes[..read], self.identity, number)?;
        (indexed == end).then_some(index)
    }

    /// Writes the index without waiting for the disk. Errors are ignored, since it can be built again.
    pub(crate) fn store_index(&self, number: u64, end: u64, index: &Index) {
        let path = self.path(&index_name(number));
        let write = || {
            let file = match self.files.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.files.create(&path)?,
                opened => opened?,
            };
            let bytes = index.encode(self.identity, number, end);
            file.write_at(0, &[&bytes])?;
            file.set_len(bytes.len() as u64)
        };
        if let Err(error) = write() {
            tracing::debug!(index = self.files.shown(&path), %error, "could not write the index of a segment; it is built again when it is needed");
        }
    }
}

pub(crate) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// `slice::partition_point` with a predicate that may fail.
fn partition_point<T>(items: &[T], mut yes: impl FnMut(&T) -> io::Result<bool>) -> io::Result<usize> {
    let (mut low, mut high) = (0, items.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if yes(&items[middle])? { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}
