//! Where in a segment the frames of a partition are: by sequence number and by time.
//!
//! It is sparse. A frame gets a mark if it is the first of its partition, or
//! lies [`INTERVAL`] or more behind the last one that got one. So whatever has
//! no mark begins less than `INTERVAL` behind one of its own partition, and a
//! reader has to look at so many bytes at most before it knows.
//!
//! On disk (`…​.index`), so that a closed segment need not be read to find
//! something in it: written without waiting for the disk, made anew if it is
//! lost or damaged.
//!
//! ```text
//!  0  "EPHORIDX"                   16  identity    24  segment    32  indexed up to this position
//!  8  version · checksum of 16..   40  partitions (u32) · 0 (u32)
//! 48  per partition: its state behind the last frame (32 bytes, as in a segment's header) · marks (u64)
//!     then all marks: sequence number · time · position
//! ```

use ephor_core::time::Timestamp;

use super::layout::{
    FRAME_HEADER, FrameHeader, MAX_PARTITIONS, MAX_SEGMENT, PartitionStart, VERSION, u32_from, u64_from,
};

/// How far from its last mark a frame must lie to get one.
pub(crate) const INTERVAL: u64 = 32 << 10;

const MAGIC: &[u8; 8] = b"EPHORIDX";
const HEADER: usize = 48;
const MARK: usize = 24;

/// A frame that can be found at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexMark {
    pub(crate) sequence: u64,
    pub(crate) time: Timestamp,
    pub(crate) position: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    state: PartitionStart,
    marks: Vec<IndexMark>,
}

impl Row {
    /// Whether a segment that ends there can be like this.
    fn is_sane(&self, end: u64) -> bool {
        let in_order =
            |pair: &[IndexMark]| pair[0].position < pair[1].position && pair[0].sequence < pair[1].sequence;
        let last = self.marks.last();
        self.marks.windows(2).all(in_order)
            && last.is_none_or(|mark| mark.position < end && mark.sequence < self.state.next)
    }
}

/// No index of a segment that ends there is longer.
pub(crate) fn longest(end: u64) -> u64 {
    let rows = MAX_PARTITIONS * (PartitionStart::LENGTH + 8);
    let marks = end.min(MAX_SEGMENT) / FRAME_HEADER as u64 * MARK as u64;
    (HEADER + rows) as u64 + marks
}

/// The index of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    rows: Vec<Row>,
}

impl Index {
    /// The index of a segment without frames, in which partitions begin like this.
    pub(crate) fn new(partitions: &[PartitionStart]) -> Self {
        Self { rows: partitions.iter().map(|state| Row { state: *state, marks: Vec::new() }).collect() }
    }

    /// Takes note of a frame of events.
    pub(crate) fn add(&mut self, frame: &FrameHeader, position: u64) {
        let row = self.row(frame.partition);
        if row.marks.last().is_none_or(|last| position >= last.position + INTERVAL) {
            row.marks.push(IndexMark { sequence: frame.first, time: frame.enqueued_at, position });
        }
        row.state.next = frame.end();
        row.state.last = Some((frame.end() - 1, frame.enqueued_at));
    }

    /// Passes over events that cannot be read.
    pub(crate) fn skip(&mut self, partition: u32, until: u64) {
        let state = &mut self.row(partition).state;
        state.next = state.next.max(until);
    }

    /// Takes note of reserved numbers.
    pub(crate) fn reserve(&mut self, partition: u32, until: u64) {
        let state = &mut self.row(partition).state;
        state.reserved = state.reserved.max(until);
    }

    /// A partition behind the last frame.
    pub(crate) fn state(&self, partition: u32) -> PartitionStart {
        self.rows.get(partition as usize).map(|row| row.state).unwrap_or_default()
    }

    /// All partitions behind the last frame.
    pub(crate) fn states(&self) -> impl Iterator<Item = PartitionStart> {
        self.rows.iter().map(|row| row.state)
    }

    /// The marks of a partition, in order.
    pub(crate) fn marks(&self, partition: u32) -> &[IndexMark] {
        self.rows.get(partition as usize).map(|row| &row.marks[..]).unwrap_or_default()
    }

    fn row(&mut self, partition: u32) -> &mut Row {
        let index = partition as usize;
        if self.rows.len() <= index {
            self.rows.resize_with(index + 1, Row::default);
        }
        &mut self.rows[index]
    }

    /// As it stands on disk: the index of everything before `position`.
    pub(crate) fn encode(&self, identity: u64, segment: u64, position: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.rows.len() * (PartitionStart::LENGTH + 8));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        for number in [identity, segment, position, self.rows.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for row in &self.rows {
            row.state.encode(&mut bytes);
            bytes.extend_from_slice(&(row.marks.len() as u64).to_le_bytes());
        }
        for mark in self.rows.iter().flat_map(|row| &row.marks) {
            bytes.extend_from_slice(&mark.sequence.to_le_bytes());
            bytes.extend_from_slice(&mark.time.0.to_le_bytes());
            bytes.extend_from_slice(&mark.position.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The index that these bytes hold, if they are intact and belong to this segment, and up to where it goes.
    pub(crate) fn decode(bytes: &[u8], identity: u64, segment: u64) -> Option<(Self, u64)> {
        let header = bytes.get(..HEADER).filter(|header| header.starts_with(MAGIC))?;
        let intact = u32_from(&header[8..12]) == VERSION
            && u32_from(&header[12..16]) == crc32c::crc32c(&bytes[16..])
            && u64_from(&header[16..24]) == identity
            && u64_from(&header[24..32]) == segment;
        let count = usize::try_from(u64_from(&header[40..48])).ok()?;
        let indexed = u64_from(&header[32..40]);
        if !intact || count > MAX_PARTITIONS {
            return None;
        }
        let (table, mut rest) = bytes[HEADER..].split_at_checked(count * (PartitionStart::LENGTH + 8))?;
        let mut rows = Vec::with_capacity(count);
        for line in table.chunks_exact(PartitionStart::LENGTH + 8) {
            let marks = usize::try_from(u64_from(&line[PartitionStart::LENGTH..])).ok()?;
            let (mine, others) = rest.split_at_checked(marks.checked_mul(MARK)?)?;
            rest = others;
            let marks = mine.chunks_exact(MARK).map(|mark| IndexMark {
                sequence: u64_from(mark),
                time: Timestamp(u64_from(&mark[8..]).cast_signed()),
                position: u64_from(&mark[16..]),
            });
            let row = Row { state: PartitionStart::decode(line)?, marks: marks.collect() };
            rows.push(Some(row).filter(|row| row.is_sane(indexed))?);
        }
        Some((Self { rows }, indexed))
    }
}

#[cfg(test)]
mod tests;
