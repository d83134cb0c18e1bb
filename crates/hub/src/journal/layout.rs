//! The bytes on disk. All numbers are little-endian; everything begins at a multiple of 8.
//!
//! A hub's log is one row of segment files, into which the batches of all
//! partitions go as they come: so a commit is one write and one sync, however
//! many partitions it touches.
//!
//! ```text
//! segment   00000000000000000007.log
//!   header, twice, in different blocks of 4096 (a lost sector must not cost the whole file)
//!     0  "EPHORSEG"                  24  identity of the log      48  length of the segment before
//!     8  version (u32)               32  number of this segment   56  number of partitions (u32)
//!    12  checksum (u32) of 16..end   40  created, ms since 1970   60  0 (u32)
//!    16  length of one header copy
//!    64  per partition, as it stood when the segment began:
//!          next sequence number · numbers reserved up to · 1 + last sequence number, or 0 · its time
//!   frames, one behind the other
//!     0  "EPHF"                      12  checksum of the payload  32  enqueued, ms since 1970
//!     4  checksum (u32) of 8..56     16  partition (u32)          40  where this commit began
//!     8  length of the payload       20  number of events (u32)   48  kind: 0 events, 1 reservation
//!                                    24  first sequence number    52  flags (u32): 1 every message was validated
//!    56  payload, a multiple of 8 long
//!   the file may end in zeros: room that was asked for beforehand
//!
//! Logs that were written before there was the flag have 0 there; readers that do not know it do not look at it.
//!
//! payload of events: one record behind the other, then zeros
//!     0  length of the message (u32) · length of the key (u16), ffff: none · 0 (u16)
//!     8  the key, then the message: one AMQP 1.0 message as it was sent
//! payload of a reservation: per partition its number (u32) · 0 (u32) · numbers reserved up to
//!
//! index     00000000000000000007.index      may be lost: it is made anew from the segment
//! mark      mark                            up to where the log is known to be on disk
//! time      time                            how late it is at least (time_file.rs)
//! ```
//!
//! The checksums are CRC-32C. That of a frame's header also covers the log's
//! identity, the segment's number and the position, so that bytes that belong
//! elsewhere are never taken for a frame.

use ephor_core::time::Timestamp;

/// The version that this code writes, and the only one that it reads.
pub(crate) const VERSION: u32 = 1;

/// No event has a higher number: the offset that is made of it fits the signed numbers that clients read.
pub(crate) const MAX_NUMBER: u64 = 1 << 57;

/// No segment is longer: it is full long before, and a commit is not that large.
pub(crate) const MAX_SEGMENT: u64 = 1 << 40;

/// No record of an event is shorter.
pub(crate) const SHORTEST_RECORD: u64 = 8;

/// Everything begins at a multiple of this.
pub(crate) const ALIGNMENT: usize = 8;

/// What stands before the payload of a frame.
pub(crate) const FRAME_HEADER: usize = 56;

/// No frame has a longer payload: whoever reads a length can trust it with memory.
pub(crate) const MAX_PAYLOAD: usize = 32 << 20;

/// What stands before the partitions in a segment's header.
const SEGMENT_HEADER: usize = 64;

/// The two copies of a header are so far apart at least.
const BLOCK: usize = 4_096;

/// Both copies of any segment's header fit.
pub(crate) const LARGEST_HEADER: usize = 2 * (SEGMENT_HEADER + MAX_PARTITIONS * PARTITION_START) + BLOCK;

/// What a segment's header says of one partition.
const PARTITION_START: usize = 32;

const SEGMENT_MAGIC: &[u8; 8] = b"EPHORSEG";
const FRAME_MAGIC: &[u8; 4] = b"EPHF";

/// The flag of a frame in which every section of every message was validated before it was stored.
const VALIDATED: u32 = 1;

/// A partition at some point of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionStart {
    /// The sequence number that comes next.
    pub(crate) next: u64,
    /// Numbers below this may have been used, even if no event is there that has them.
    pub(crate) reserved: u64,
    /// The newest event before this point.
    pub(crate) last: Option<(u64, Timestamp)>,
}

/// What a segment begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: u64,
    pub(crate) number: u64,
    pub(crate) created_at: Timestamp,
    /// How much of the segment before counts; none if this is the first.
    pub(crate) previous_length: u64,
    pub(crate) partitions: Vec<PartitionStart>,
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Not what was written.
    Damaged,
    /// Written by a later version.
    Version(u32),
}

impl Unreadable {
    /// What people are told.
    pub(crate) fn describe(self, name: &str) -> String {
        match self {
            Self::Damaged => format!("both headers of {name} are damaged; nothing in it can be served"),
            Self::Version(version) => format!(
                "{name} is of version {version}, and this program knows version {VERSION}; use a newer one"
            ),
        }
    }
}

impl SegmentHeader {
    /// How long one copy is.
    fn copy_length(partitions: usize) -> usize {
        SEGMENT_HEADER + partitions * PARTITION_START
    }

    /// Where the second copy begins: no sector is part of both.
    fn second_copy(partitions: usize) -> usize {
        Self::copy_length(partitions).next_multiple_of(BLOCK)
    }

    /// Where the first frame begins: behind both copies.
    pub(crate) fn first_frame(&self) -> u64 {
        let partitions = self.partitions.len();
        (Self::second_copy(partitions) + Self::copy_length(partitions)) as u64
    }

    /// Both copies.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = Self::copy_length(self.partitions.len());
        let mut bytes = Vec::with_capacity(self.first_frame() as usize);
        bytes.extend_from_slice(SEGMENT_MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend_from_slice(&(length as u64).to_le_bytes());
        bytes.extend_from_slice(&self.identity.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.created_at.0.to_le_bytes());
        bytes.extend_from_slice(&self.previous_length.to_le_bytes());
        bytes.extend_from_slice(&(self.partitions.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        self.partitions.iter().for_each(|partition| partition.encode(&mut bytes));
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes.resize(Self::second_copy(self.partitions.len()), 0);
        bytes.extend_from_within(..length);
        bytes
    }

    /// Reads one copy from the beginning of these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let start = bytes.get(..SEGMENT_HEADER).ok_or(Unreadable::Damaged)?;
        if !start.starts_with(SEGMENT_MAGIC) {
            return Err(Unreadable::Damaged);
        }
        let length = usize::try_from(u64_from(&start[16..24])).map_err(|_| Unreadable::Damaged)?;
        let whole = bytes.get(..length).filter(|whole| whole.len() >= SEGMENT_HEADER);
        let whole = whole.ok_or(Unreadable::Damaged)?;
        if crc32c::crc32c(&whole[16..]) != u32_from(&whole[12..16]) {
            return Err(Unreadable::Damaged);
        }
        // Not under the checksum, so that a reader of any version can tell the version first.
        let version = u32_from(&whole[8..12]);
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        let count = u32_from(&whole[56..60]) as usize;
        let table = &whole[SEGMENT_HEADER..];
        if count > MAX_PARTITIONS || table.len() != count * PARTITION_START {
            return Err(Unreadable::Damaged);
        }
        let partitions = table.chunks_exact(PARTITION_START).map(PartitionStart::decode);
        let partitions: Option<Vec<_>> = partitions.collect();
        Ok(Self {
            identity: u64_from(&whole[24..32]),
            number: u64_from(&whole[32..40]),
            created_at: Timestamp(u64_from(&whole[40..48]).cast_signed()),
            previous_length: u64_from(&whole[48..56]),
            partitions: partitions.ok_or(Unreadable::Damaged)?,
        })
    }

    /// Reads the first copy that is intact; tells also whether one of them is damaged.
    pub(crate) fn decode_either(bytes: &[u8]) -> Result<(Self, bool), Unreadable> {
        match Self::decode(bytes) {
            Ok(first) => {
                let (end, start) =
                    (Self::copy_length(first.partitions.len()), Self::second_copy(first.partitions.len()));
                let second = bytes.get(start..).map(Self::decode);
                let same = second.is_some_and(|second| second.as_ref() == Ok(&first));
                let zeros =
                    bytes.get(end..start).is_some_and(|between| between.iter().all(|byte| *byte == 0));
                Ok((first, !same || !zeros))
            }
            // Where the second copy begins stood in the first one: it has to be looked for.
            Err(unreadable) => (BLOCK..bytes.len())
                .step_by(BLOCK)
                .filter(|start| bytes[*start..].starts_with(SEGMENT_MAGIC))
                .find_map(|start| Self::decode(&bytes[start..]).ok())
                .map(|second| (second, true))
                .ok_or(unreadable),
        }
    }

    /// A partition at the beginning of this segment; one that did not exist yet begins at 0.
    pub(crate) fn partition(&self, partition: u32) -> PartitionStart {
        self.partitions.get(partition as usize).copied().unwrap_or_default()
    }
}

/// A hub has no more partitions.
pub(crate) const MAX_PARTITIONS: usize = crate::config::MAX_PARTITIONS as usize;

impl PartitionStart {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let (last, time) = self.last.map_or((0, 0), |(last, time)| (last + 1, time.0));
        into.extend_from_slice(&self.next.to_le_bytes());
        into.extend_from_slice(&self.reserved.to_le_bytes());
        into.extend_from_slice(&last.to_le_bytes());
        into.extend_from_slice(&time.to_le_bytes());
    }

    /// What these bytes say; none if no log can say it, whatever their checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let time = Timestamp(u64_from(&bytes[24..32]).cast_signed());
        let last = u64_from(&bytes[16..24]).checked_sub(1).map(|last| (last, time));
        let state = Self { next: u64_from(&bytes[..8]), reserved: u64_from(&bytes[8..16]), last };
        let sane =
            state.next.max(state.reserved) <= MAX_NUMBER && last.is_none_or(|(last, _)| last < state.next);
        sane.then_some(state)
    }

    /// How many bytes it takes.
    pub(crate) const LENGTH: usize = PARTITION_START;
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Events of one partition.
    Events,
    /// Sequence numbers that may be used before they are on disk.
    Reservation,
}

/// What stands before a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: Kind,
    pub(crate) partition: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) enqueued_at: Timestamp,
    /// Where in the segment the commit began that wrote this frame.
    pub(crate) commit: u64,
    pub(crate) payload_length: u32,
    pub(crate) payload_checksum: u32,
    /// Every section of every message was validated before it was stored.
    pub(crate) validated: bool,
}

impl FrameHeader {
    /// How long the whole frame is.
    pub(crate) fn frame_length(&self) -> u64 {
        FRAME_HEADER as u64 + u64::from(self.payload_length)
    }

    /// The number behind the last event.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    pub(crate) fn encode(&self, place: &Place) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        bytes[..4].copy_from_slice(FRAME_MAGIC);
        bytes[8..12].copy_from_slice(&self.payload_length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_checksum.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.partition.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.enqueued_at.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.commit.to_le_bytes());
        bytes[48..52].copy_from_slice(&u32::from(self.kind == Kind::Reservation).to_le_bytes());
        let flags = if self.validated { VALIDATED } else { 0 };
        bytes[52..56].copy_from_slice(&flags.to_le_bytes());
        let checksum = place.checksum(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header that stands at this place, if an intact one does.
    pub(crate) fn decode(bytes: &[u8], place: &Place) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER).filter(|bytes| bytes.starts_with(FRAME_MAGIC))?;
        if u32_from(&bytes[4..8]) != place.checksum(&bytes[8..]) {
            return None;
        }
        let header = Self {
            kind: match u32_from(&bytes[48..52]) {
                0 => Kind::Events,
                1 => Kind::Reservation,
                _ => return None,
            },
            partition: u32_from(&bytes[16..20]),
            first: u64_from(&bytes[24..32]),
            count: u32_from(&bytes[20..24]),
            enqueued_at: Timestamp(u64_from(&bytes[32..40]).cast_signed()),
            commit: u64_from(&bytes[40..48]),
            payload_length: u32_from(&bytes[8..12]),
            payload_checksum: u32_from(&bytes[12..16]),
            validated: u32_from(&bytes[52..56]) & VALIDATED != 0,
        };
        let sane = header.payload_length as usize <= MAX_PAYLOAD
            && (header.payload_length as usize).is_multiple_of(ALIGNMENT)
            && (header.partition as usize) < MAX_PARTITIONS
            && header.first.checked_add(u64::from(header.count)).is_some_and(|end| end <= MAX_NUMBER)
            && match header.kind {
                Kind::Events => {
                    header.count > 0
                        && u64::from(header.count) <= u64::from(header.payload_length) / SHORTEST_RECORD
                }
                Kind::Reservation => true,
            };
        sane.then_some(header)
    }
}

/// Where a frame stands: part of its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) identity: u64,
    pub(crate) segment: u64,
    pub(crate) position: u64,
}

impl Place {
    fn checksum(&self, bytes: &[u8]) -> u32 {
        let mut place = [0; 24];
        place[..8].copy_from_slice(&self.identity.to_le_bytes());
        place[8..16].copy_from_slice(&self.segment.to_le_bytes());
        place[16..].copy_from_slice(&self.position.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
    }
}

/// One line of a reservation: numbers of this partition below `until` may be used.
pub(crate) fn encode_reservation(lines: &[(u32, u64)]) -> Vec<u8> {
    let line = |(partition, until): &(u32, u64)| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&partition.to_le_bytes());
        bytes[8..].copy_from_slice(&until.to_le_bytes());
        bytes
    };
    lines.iter().flat_map(line).collect()
}

/// The lines of a reservation.
pub(crate) fn decode_reservation(payload: &[u8]) -> impl Iterator<Item = (u32, u64)> {
    let lines = payload.chunks_exact(16).map(|line| (u32_from(&line[..4]), u64_from(&line[8..])));
    lines.filter(|(partition, until)| (*partition as usize) < MAX_PARTITIONS && *until <= MAX_NUMBER)
}

/// The name of a segment's file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}.log")
}

/// The name of a segment's index.
pub(crate) fn index_name(number: u64) -> String {
    format!("{number:020}.index")
}

/// The number of the segment that has this name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// The first position at or behind this one where something may begin.
pub(crate) fn aligned(position: u64) -> u64 {
    position.next_multiple_of(ALIGNMENT as u64)
}

/// The first four bytes as a number. The caller knows that they are there.
pub(crate) fn u32_from(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The first eight bytes as a number. The caller knows that they are there.
pub(crate) fn u64_from(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
