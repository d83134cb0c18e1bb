//! One segment file, opened: its header, its index, and reading frames out of it.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use ephor_core::time::Timestamp;

use super::damage::Damage;
use super::index::{INTERVAL, Index};
use super::layout::{
    ALIGNMENT, FRAME_HEADER, FrameHeader, Kind, LARGEST_HEADER, Place, SegmentHeader, Unreadable,
};
use crate::files::File;

/// At most about this much is read from a file at a time.
const CHUNK: u64 = 256 << 10;

/// Events of one partition that were stored together, as they lie in the file. Clones share the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) enqueued_at: Timestamp,
    /// Every section of every message was validated before it was stored.
    pub(crate) validated: bool,
    pub(crate) payload: Bytes,
}

impl Frame {
    /// The number behind the last event.
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
    /// What lies behind is not for readers (yet).
    end: AtomicU64,
    index: RwLock<Index>,
}

/// What a look into a segment yields.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) frames: Vec<Frame>,
    /// Where to go on.
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

    /// Up to where readers may read.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Shows readers what has been written.
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

    /// The frames of a partition from this number on, about as much as the budget says and at least one;
    /// none if there is none in this segment. `loading` hears how many bytes that makes in all, before each frame.
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
        let marks: Vec<u64> = {
            let all = index.marks(partition);
            let first = all.partition_point(|mark| mark.sequence <= from).saturating_sub(1);
            // No budget reaches further than so many marks: each stands for at least one frame.
            all[first..].iter().take(budget / FRAME_HEADER + 2).map(|mark| mark.position).collect()
        };
        drop(index);
        let mut window = Window { segment: self, limit, start: 0, bytes: Bytes::new(), loads: 0, typical: 0 };
        let mut pinned = Pinned::default();
        let mut taken = 0;
        for (at, mark) in marks.iter().enumerate() {
            let neighbourhood = *mark..limit.min(mark + INTERVAL);
            let mut position = neighbourhood.start;
            while position < neighbourhood.end {
                let Some(header) = window.header(position, chunk_behind(position, &marks[at..]))? else {
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

    /// The number of the first event of a partition that was enqueued at this time or later; none if there
    /// is none in this segment.
    pub(crate) fn find_time(&self, partition: u32, time: Timestamp) -> io::Result<Option<u64>> {
        let mark = {
            let index = self.index();
            let marks = index.marks(partition);
            let at = marks.partition_point(|mark| mark.time < time).saturating_sub(1);
            marks.get(at).map(|mark| mark.sequence)
        };
        let Some(mut from) = mark else { return Ok(None) };
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
    /// A frame that does not begin where the one before ended: what is missing lies in what was damaged.
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

/// Frames that are slices of one window. A few small ones shall not keep all of it in memory.
#[derive(Default)]
struct Pinned {
    /// Which window.
    load: u64,
    window_bytes: usize,
    /// The first frame that is a slice of it.
    from: usize,
}

impl Pinned {
    /// A frame is about to come out of this window.
    fn note(&mut self, window: &Window<'_>, frames: &mut [Frame]) {
        if self.load != window.loads {
            self.release(frames);
            *self = Self { load: window.loads, window_bytes: window.bytes.len(), from: frames.len() };
        }
    }

    /// No more frames will come out of the window: those that use little of it get bytes of their own.
    fn release(&self, frames: &mut [Frame]) {
        let mine = frames.get_mut(self.from..).unwrap_or_default();
        if mine.iter().map(|frame| frame.payload.len()).sum::<usize>() < self.window_bytes / 2 {
            mine.iter_mut().for_each(|frame| frame.payload = Bytes::copy_from_slice(&frame.payload));
        }
    }
}

/// How far to read from here: over all marks that are near enough to be read at once.
fn chunk_behind(position: u64, marks: &[u64]) -> u64 {
    let near = marks.partition_point(|mark| *mark <= position + CHUNK - INTERVAL);
    near.checked_sub(1).map_or(INTERVAL, |last| (marks[last] + INTERVAL).saturating_sub(position))
}

/// A part of the file in memory.
struct Window<'a> {
    segment: &'a Segment,
    limit: u64,
    start: u64,
    bytes: Bytes,
    /// How often it was read.
    loads: u64,
    /// How long the last frame was: the next one will be about as long.
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

    /// From a place without header to the next place that has one.
    fn unreadable(&mut self, within: Range<u64>) -> io::Result<Range<u64>> {
        let mut position = within.start + ALIGNMENT as u64;
        while position < within.end && self.header(position, INTERVAL)?.is_none() {
            position += ALIGNMENT as u64;
        }
        Ok(within.start..position.min(within.end))
    }

    /// These bytes, or as many of them as lie before the limit; reads so far ahead if it has to read.
    fn bytes(&mut self, position: u64, length: usize, ahead: u64) -> io::Result<Bytes> {
        let end = self.limit.min(position + length as u64);
        if position < self.start || end > self.start + self.bytes.len() as u64 {
            self.load(position, end.max(self.limit.min(position + ahead.max(self.typical))))?;
        }
        let from = ((position - self.start) as usize).min(self.bytes.len());
        let to = ((end - self.start) as usize).min(self.bytes.len());
        Ok(self.bytes.slice(from..to.max(from)))
    }

    /// Reads up to this end; what is in memory already is not read again.
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

/// Reads a segment's header; tells also whether one of its two copies is damaged.
pub(crate) fn read_header(file: &dyn File) -> io::Result<Result<(SegmentHeader, bool), Unreadable>> {
    /// Both copies of a hub with a hundred partitions fit.
    const FIRST_READ: usize = 8 << 10;
    let mut bytes = vec![0; FIRST_READ];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    let first = SegmentHeader::decode_either(&bytes);
    if matches!(first, Ok((_, false))) || read < FIRST_READ {
        return Ok(first);
    }
    // A larger table, or a damaged length: the second copy may begin anywhere up to the largest size.
    bytes.resize(LARGEST_HEADER, 0);
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(SegmentHeader::decode_either(&bytes))
}
