//! The index of a segment: finds the frames of a partition by sequence number and by time.
//!
//! It is sparse. A frame gets an entry if it is the first of its partition, or [`INTERVAL`] or more after the last entry
//! of its partition. So every other frame begins less than `INTERVAL` after an entry of its partition, and a reader scans
//! at most that many bytes.
//!
//! It is stored in a file (`…​.index`), so that a sealed segment need not be scanned: written without waiting for the
//! disk, and built again if it is lost or damaged.
//!
//! ```text
//!  0  "EPHORIDX"                   16  identity    24  segment    32  indexed up to this position
//!  8  version · checksum of 16..   40  partitions (u32) · 0 (u32)
//! 48  per partition: its state after the last frame (32 bytes, as in a segment's header) · entries (u64)
//!     then all entries: sequence number · time · position
//! ```

use ephor_core::time::Timestamp;

use super::layout::{
    FRAME_HEADER, FrameHeader, MAX_PARTITIONS, MAX_SEGMENT, PartitionStart, VERSION, u32_from, u64_from,
};

/// The least distance between two entries of a partition, in bytes.
pub(crate) const INTERVAL: u64 = 32 << 10;

const MAGIC: &[u8; 8] = b"EPHORIDX";
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// The position of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) sequence: u64,
    pub(crate) time: Timestamp,
    pub(crate) position: u64,
}

/// The entries of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    state: PartitionStart,
    entries: Vec<IndexEntry>,
}

impl Row {
    /// Whether this is possible for a segment that ends at `end`.
    fn is_sane(&self, end: u64) -> bool {
        let in_order =
            |pair: &[IndexEntry]| pair[0].position < pair[1].position && pair[0].sequence < pair[1].sequence;
        let last = self.entries.last();
        self.entries.windows(2).all(in_order)
            && last.is_none_or(|entry| entry.position < end && entry.sequence < self.state.next)
    }
}

/// Returns the maximum size of the index of a segment that ends at `end`.
pub(crate) fn max_index_bytes(end: u64) -> u64 {
    let rows = MAX_PARTITIONS * (PartitionStart::LENGTH + 8);
    let entries = end.min(MAX_SEGMENT) / FRAME_HEADER as u64 * ENTRY as u64;
    (HEADER + rows) as u64 + entries
}

/// The index of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    rows: Vec<Row>,
}

impl Index {
    /// Creates the index of a segment without frames, in which the partitions begin with these states.
    pub(crate) fn new(partitions: &[PartitionStart]) -> Self {
        Self { rows: partitions.iter().map(|state| Row { state: *state, entries: Vec::new() }).collect() }
    }

    /// Adds a frame of events.
    pub(crate) fn add(&mut self, frame: &FrameHeader, position: u64) {
        let row = self.row(frame.partition);
        if row.entries.last().is_none_or(|last| position >= last.position + INTERVAL) {
            row.entries.push(IndexEntry { sequence: frame.first, time: frame.enqueued_at, position });
        }
        row.state.next = frame.end();
        row.state.last = Some((frame.end() - 1, frame.enqueued_at));
    }

    /// Skips events that cannot be read.
    pub(crate) fn skip(&mut self, partition: u32, until: u64) {
        let state = &mut self.row(partition).state;
        state.next = state.next.max(until);
    }

    /// Adds reserved numbers.
    pub(crate) fn reserve(&mut self, partition: u32, until: u64) {
        let state = &mut self.row(partition).state;
        state.reserved = state.reserved.max(until);
    }

    /// Returns the state of a partition after the last frame.
    pub(crate) fn state(&self, partition: u32) -> PartitionStart {
        self.rows.get(partition as usize).map(|row| row.state).unwrap_or_default()
    }

    /// Returns the states of all partitions after the last frame.
    pub(crate) fn states(&self) -> impl Iterator<Item = PartitionStart> {
        self.rows.iter().map(|row| row.state)
    }

    /// Returns the entries of a partition, in order.
    pub(crate) fn entries(&self, partition: u32) -> &[IndexEntry] {
        self.rows.get(partition as usize).map(|row| &row.entries[..]).unwrap_or_default()
    }

    fn row(&mut self, partition: u32) -> &mut Row {
        let index = partition as usize;
        if self.rows.len() <= index {
            self.rows.resize_with(index + 1, Row::default);
        }
        &mut self.rows[index]
    }

    /// Encodes the index of everything before `position`, as it is stored.
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
            bytes.extend_from_slice(&(row.entries.len() as u64).to_le_bytes());
        }
        for entry in self.rows.iter().flat_map(|row| &row.entries) {
            bytes.extend_from_slice(&entry.sequence.to_le_bytes());
            bytes.extend_from_slice(&entry.time.0.to_le_bytes());
            bytes.extend_from_slice(&entry.position.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes an index and the position up to which it covers the segment, if it is intact and belongs to this segment.
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
            let entries = usize::try_from(u64_from(&line[PartitionStart::LENGTH..])).ok()?;
            let (mine, others) = rest.split_at_checked(entries.checked_mul(ENTRY)?)?;
            rest = others;
            let entries = mine.chunks_exact(ENTRY).map(|entry| IndexEntry {
                sequence: u64_from(entry),
                time: Timestamp(u64_from(&entry[8..]).cast_signed()),
                position: u64_from(&entry[16..]),
            });
            let row = Row { state: PartitionStart::decode(line)?, entries: entries.collect() };
            rows.push(Some(row).filter(|row| row.is_sane(indexed))?);
        }
        Some((Self { rows }, indexed))
    }
}

#[cfg(test)]
mod tests;
