//! An open segment file: its header, its index, and methods that read frames.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use ephor_core::time::Timestamp;

use super::damage::Damage;
use super::index::{INTERVAL, Index};
use super::layout::{
    ALIGNMENT, FRAME_HEADER, FrameHeader, Kind, MAX_HEADER, Place, SegmentHeader, Unreadable,
};
use crate::files::File;

/// At most about this much is read from a file at a time.
const CHUNK: u64 = 256 << 10;

/// Events of one partition that were stored together, encoded as in the file. Clones share the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) enqueued_at: Timestamp,
    /// Every section of every message was validated by today's rules before it was stored.
    pub(crate) validated: bool,
    pub(crate) payload: Bytes,
}

impl Frame {
    /// Returns the number after the last event.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: SegmentHeader,
    /// Readers may read up to here.
    end: AtomicU64,
    index: RwLock<Index>,
}

/// The result of reading a segment.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) frames: Vec<Frame>,
    /// The number to continue at.
    pub(crate) next: u64,
    pub(crate) damage: Vec<Damage>,
}

impl Segment {
    pub(crate) fn new(
        name: String,
        file: Arc<dyn File>,
        header: SegmentHeader,
        index: Index,
        end: u64,
    ) -> Self {
        let number = header.number;
        Self { number, name, file, header, end: AtomicU64::new(end), index: RwLock::new(index) }
    }

    /// Returns the position up to which readers may read.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Publishes committed frames to readers.
    pub(crate) fn publish(&self, end: u64, change: impl FnOnce(&mut Index)) {
        let mut index = self.index_mut();
        change(&mut index);
        // Under the same lock, so that a reader sees both or neither.
        self.end.store(end, Ordering::Release);
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads frames of a partition from this number on: about `budget` bytes and at least one frame; none if this segment
    /// has none. Calls `loading` before each frame with the bytes that this makes in all.
    pub(crate) fn read(
        &self,
        partition: u32,
        from: u64,
        budget: usize,
        loading: &mut dyn FnMut(usize),
    ) -> io::Result<Found> {
        let index = self.index();
        let limit = self.end();
        let end = index.state(partition).next;
        let mut found = Found { next: from, ..Found::default() };
        if from >= end {
            return Ok(found);
        }
        let entries: Vec<u64> = {
            let all = index.entries(partition);
            let first = all.partition_point(|entry| entry.sequence <= from).saturating_sub(1);
            // The budget needs no more entries: each stands for at least one frame.
            all[first..].iter().take(budget / FRAME_HEADER + 2).map(|entry| entry.position).collect()
        };
        drop(index);
        let mut window = Window { segment: self, limit, start: 0, bytes: Bytes::new(), loads: 0, typical: 0 };
        let mut pinned = Pinned::default();
        let mut taken = 0;
        for (at, entry) in entries.iter().enumerate() {
            let neighbourhood = *entry..limit.min(entry + INTERVAL);
            let mut position = neighbourhood.start;
            while position < neighbourhood.end {
                let Some(header) = window.header(position, chunk_from(position, &entries[at..]))? else {
                    let range = window.unreadable(position..neighbourhood.end)?;
                    position = range.end;
                    found.damage.push(Damage::new(&self.name, range));
                    continue;
                };
                let start = position;
                position += header.frame_length();
                if header.partition != partition || header.kind != Kind::Events || header.end() <= found.next
                {
                    continue;
                }
                window.typical = header.frame_length();
                loading(taken + header.payload_length as usize);
                let payload = window.bytes(start + FRAME_HEADER as u64, header.payload_length as usize, 0)?;
                let events = found.next.max(header.first)..header.end();
                if payload.len() != header.payload_length as usize
                    || crc32c::crc32c(&payload) != header.payload_checksum
                {
                    found.damage.push(Damage::new(&self.name, start..position).of(partition, events));
                } else {
                    found.note_gap(&self.name, partition, &header, start);
                    pinned.note(&window, &mut found.frames);
                    let FrameHeader { first, count, enqueued_at, validated, .. } = header;
                    found.frames.push(Frame { first, count, enqueued_at, validated, payload });
                    taken += header.payload_length as usize;
                }
                found.next = header.end();
                if taken >= budget {
                    pinned.release(&mut found.frames);
                    return Ok(found);
                }
            }
        }
        if found.frames.is_empty() && found.next < end {
            found.note_missing(&self.name, partition, found.next..end, limit);
            found.next = end;
        }
        pinned.release(&mut found.frames);
        Ok(found)
    }

    /// Returns the number of the first event of a partition that was enqueued at this time or later; none if this segment
    /// has none.
    pub(crate) fn find_time(&self, partition: u32, time: Timestamp) -> io::Result<Option<u64>> {
        let entry = {
            let index = self.index();
            let entries = index.entries(partition);
            let at = entries.partition_point(|entry| entry.time < time).saturating_sub(1);
            entries.get(at).map(|entry| entry.sequence)
        };
        let Some(mut from) = entry else { return Ok(None) };
        loop {
            let found = self.read(partition, from, CHUNK as usize, &mut |_| ())?;
            if let Some(frame) = found.frames.iter().find(|frame| frame.enqueued_at >= time) {
                return Ok(Some(frame.first));
            }
            if found.next <= from {
                return Ok(None);
            }
            from = found.next;
        }
    }
}

impl Found {
    /// Notes a gap between two frames: the missing events are in the damaged part.
    fn note_gap(&mut self, name: &str, partition: u32, header: &FrameHeader, position: u64) {
        if header.first > self.next {
            self.note_missing(name, partition, self.next..header.first, position);
        }
    }

    fn note_missing(&mut self, name: &str, partition: u32, missing: Range<u64>, position: u64) {
        match self.damage.last_mut() {
            Some(damage) => damage.add(partition, missing),
            None => self.damage.push(Damage::new(name, position..position).of(partition, missing)),
        }
    }
}

/// The frames that are slices of one window. Prevents a few small frames from keeping a whole window in memory.
#[derive(Default)]
struct Pinned {
    /// The number of the window's read.
    load: u64,
    window_bytes: usize,
    /// The index of the first frame that is a slice of it.
    from: usize,
}

impl Pinned {
    /// Notes that the next frame is a slice of this window.
    fn note(&mut self, window: &Window<'_>, frames: &mut [Frame]) {
        if self.load != window.loads {
            self.release(frames);
            *self = Self { load: window.loads, window_bytes: window.bytes.len(), from: frames.len() };
        }
    }

    /// Ends the window: if its frames use little of it, their bytes are copied.
    fn release(&self, frames: &mut [Frame]) {
        let mine = frames.get_mut(self.from..).unwrap_or_default();
        if mine.iter().map(|frame| frame.payload.len()).sum::<usize>() < self.window_bytes / 2 {
            mine.iter_mut().for_each(|frame| frame.payload = Bytes::copy_from_slice(&frame.payload));
        }
    }
}

/// Returns how far to read from here: over all entries that are near enough to be read together.
fn chunk_from(position: u64, entries: &[u64]) -> u64 {
    let near = entries.partition_point(|entry| *entry <= position + CHUNK - INTERVAL);
    near.checked_sub(1).map_or(INTERVAL, |last| (entries[last] + INTERVAL).saturating_sub(position))
}

/// A part of the file in memory.
struct Window<'a> {
    segment: &'a Segment,
    limit: u64,
    start: u64,
    bytes: Bytes,
    /// The number of reads so far.
    loads: u64,
    /// The length of the last frame: the next one is probably about as long.
    typical: u64,
}

impl Window<'_> {
    fn header(&mut self, position: u64, ahead: u64) -> io::Result<Option<FrameHeader>> {
        let Segment { number, header, .. } = self.segment;
        let place = Place { identity: header.identity, segment: *number, position };
        let limit = self.limit;
        let header = FrameHeader::decode(&self.bytes(position, FRAME_HEADER, ahead)?, &place);
        Ok(header.filter(|header| position + header.frame_length() <= limit))
    }

    /// Returns the range from a position without a header to the next one with a header.
    fn unreadable(&mut self, within: Range<u64>) -> io::Result<Range<u64>> {
        let mut position = within.start + ALIGNMENT as u64;
        while position < within.end && self.header(position, INTERVAL)?.is_none() {
            position += ALIGNMENT as u64;
        }
        Ok(within.start..position.min(within.end))
    }

    /// Returns these bytes, or as many as there are before the limit. If it has to read, it reads `ahead` bytes.
    fn bytes(&mut self, position: u64, length: usize, ahead: u64) -> io::Result<Bytes> {
        let end = self.limit.min(position + length as u64);
        if position < self.start || end > self.start + self.bytes.len() as u64 {
            self.load(position, end.max(self.limit.min(position + ahead.max(self.typical))))?;
        }
        let from = ((position - self.start) as usize).min(self.bytes.len());
        let to = ((end - self.start) as usize).min(self.bytes.len());
        Ok(self.bytes.slice(from..to.max(from)))
    }

    /// Reads up to `end`. Bytes in memory are not read again.
    fn load(&mut self, position: u64, end: u64) -> io::Result<()> {
        let known = position.checked_sub(self.start).and_then(|from| self.bytes.get(from as usize..));
        let mut bytes = Vec::with_capacity((end - position) as usize);
        bytes.extend_from_slice(known.unwrap_or_default());
        let known = bytes.len();
        bytes.resize((end - position) as usize, 0);
        let read = self.segment.file.read_at(position + known as u64, &mut bytes[known..])?;
        bytes.truncate(known + read);
        (self.start, self.bytes) = (position, Bytes::from(bytes));
        self.loads += 1;
        Ok(())
    }
}

/// Reads a segment's header, and returns whether one of its two copies is damaged.
pub(crate) fn read_header(file: &dyn File) -> io::Result<Result<(SegmentHeader, bool), Unreadable>> {
    /// Enough for both copies of a hub with a hundred partitions.
    const FIRST_READ: usize = 8 << 10;
    let mut bytes = vec![0; FIRST_READ];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    let first = SegmentHeader::decode_either(&bytes);
    if matches!(first, Ok((_, false))) || read < FIRST_READ {
        return Ok(first);
    }
    // A larger table, or a damaged length: the second copy may begin anywhere up to the maximum size.
    bytes.resize(MAX_HEADER, 0);
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(SegmentHeader::decode_either(&bytes))
}
