//! The binary format of the log on disk. All numbers are little-endian, and everything is aligned to 8
//! bytes.
//!
//! A hub's log is one sequence of segment files, which contain the batches of all partitions in the order of arrival. So
//! a commit is one write and one sync, however many partitions it has batches for.
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
//!   frames, one after the other
//!     0  "EPHF"                      12  checksum of the payload  32  enqueued, ms since 1970
//!     4  checksum (u32) of 8..56     16  partition (u32)          40  where this commit began
//!     8  length of the payload       20  number of events (u32)   48  kind: 0 events, 1 reservation
//!                                    24  first sequence number    52  flags (u32): what validated every message
//!    56  payload, a multiple of 8 long
//!   the file may end in zeros: space that was allocated ahead
//!
//! flags of a frame: 0 from versions that did not validate every section; 1 from those with the first rules, which were
//! laxer; 3 with today's. Readers validate what has no flag of their own rules, and ignore flags that they do not know.
//!
//! payload of events: one record after the other, then zeros
//!     0  length of the message (u32) · length of the key (u16), ffff: none · 0 (u16)
//!     8  the key, then the message: one AMQP 1.0 message as it was sent
//! payload of a reservation: per partition its number (u32) · 0 (u32) · numbers reserved up to
//!
//! index     00000000000000000007.index      may be lost: it is built again from the segment
//! mark      mark                            the durable mark (durable_mark.rs)
//! time      time                            the proven time (time_file.rs)
//! ```
//!
//! The checksums are CRC-32C. The checksum of a frame's header also covers the log's identity, the segment's number and
//! the position, so that bytes of another place are never taken for a frame.

use ephor_core::time::Timestamp;

/// The version that this code writes, and the only one that it reads.
pub(crate) const VERSION: u32 = 1;

/// The maximum sequence number: the offset that is computed from it fits a signed 64-bit number.
pub(crate) const MAX_NUMBER: u64 = 1 << 57;

/// The maximum length of a segment, far above any configured size.
pub(crate) const MAX_SEGMENT: u64 = 1 << 40;

/// The minimum length of an event's record.
pub(crate) const MIN_RECORD: u64 = 8;

/// Everything begins at a multiple of this.
pub(crate) const ALIGNMENT: usize = 8;

/// The length of a frame's header, which comes before the payload.
pub(crate) const FRAME_HEADER: usize = 56;

/// The maximum length of a frame's payload, so that a reader can allocate it safely.
pub(crate) const MAX_PAYLOAD: usize = 32 << 20;

/// The length of a segment's header before its table of partitions.
const SEGMENT_HEADER: usize = 64;

/// The two copies of a header begin in different blocks of this size.
const BLOCK: usize = 4_096;

/// The maximum length of both copies of a segment's header.
pub(crate) const MAX_HEADER: usize = 2 * (SEGMENT_HEADER + MAX_PARTITIONS * PARTITION_START) + BLOCK;

/// The length of one partition's state in a segment's header.
const PARTITION_START: usize = 32;

const SEGMENT_MAGIC: &[u8; 8] = b"EPHORSEG";
const FRAME_MAGIC: &[u8; 4] = b"EPHF";

/// The flags of a frame in which every section of every message was validated before it was stored: by the first rules,
/// which were laxer, and by today's. Stricter rules get a flag of their own.
const VALIDATED_LAXLY: u32 = 1;
const VALIDATED: u32 = 2;

/// The state of a partition at some point of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionStart {
    /// The sequence number that comes next.
    pub(crate) next: u64,
    /// Numbers below this may have been used, even by events that are lost.
    pub(crate) reserved: u64,
    /// The newest event before this point.
    pub(crate) last: Option<(u64, Timestamp)>,
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: u64,
    pub(crate) number: u64,
    pub(crate) created_at: Timestamp,
    /// The length of the previous segment; 0 if this is the first.
    pub(crate) previous_length: u64,
    pub(crate) partitions: Vec<PartitionStart>,
}

/// Why a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is damaged.
    Damaged,
    /// A later version wrote it.
    Version(u32),
}

impl Unreadable {
    /// Describes the problem for errors.
    pub(crate) fn describe(self, name: &str) -> String {
        match self {
            Self::Damaged => format!("both headers of {name} are damaged; its events cannot be read"),
            Self::Version(version) => format!(
                "{name} has version {version}, and this program reads version {VERSION}; use a newer program"
            ),
        }
    }
}

impl SegmentHeader {
    /// Returns the length of one copy.
    fn copy_length(partitions: usize) -> usize {
        SEGMENT_HEADER + partitions * PARTITION_START
    }

    /// Returns the position of the second copy: no sector is part of both.
    fn second_copy(partitions: usize) -> usize {
        Self::copy_length(partitions).next_multiple_of(BLOCK)
    }

    /// Returns the position of the first frame: after both copies.
    pub(crate) fn first_frame(&self) -> u64 {
        let partitions = self.partitions.len();
        (Self::second_copy(partitions) + Self::copy_length(partitions)) as u64
    }

    /// Encodes both copies.
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

    /// Decodes one copy from the beginning of these bytes.
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
        // Not covered by the checksum, so that every version can read the version first.
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

    /// Decodes the first intact copy, and returns whether one of them is damaged.
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
            // The first copy says where the second begins. It is damaged, so the second has to be searched.
            Err(unreadable) => (BLOCK..bytes.len())
                .step_by(BLOCK)
                .filter(|start| bytes[*start..].starts_with(SEGMENT_MAGIC))
                .find_map(|start| Self::decode(&bytes[start..]).ok())
                .map(|second| (second, true))
                .ok_or(unreadable),
        }
    }

    /// Returns the state of a partition at the beginning of this segment; one that did not exist yet begins at 0.
    pub(crate) fn partition(&self, partition: u32) -> PartitionStart {
        self.partitions.get(partition as usize).copied().unwrap_or_default()
    }
}

/// The maximum number of partitions.
pub(crate) const MAX_PARTITIONS: usize = crate::config::MAX_PARTITIONS as usize;

impl PartitionStart {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let (last, time) = self.last.map_or((0, 0), |(last, time)| (last + 1, time.0));
        into.extend_from_slice(&self.next.to_le_bytes());
        into.extend_from_slice(&self.reserved.to_le_bytes());
        into.extend_from_slice(&last.to_le_bytes());
        into.extend_from_slice(&time.to_le_bytes());
    }

    /// Decodes a state; none if it is impossible, whatever the checksum says.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let time = Timestamp(u64_from(&bytes[24..32]).cast_signed());
        let last = u64_from(&bytes[16..24]).checked_sub(1).map(|last| (last, time));
        let state = Self { next: u64_from(&bytes[..8]), reserved: u64_from(&bytes[8..16]), last };
        let sane =
            state.next.max(state.reserved) <= MAX_NUMBER && last.is_none_or(|(last, _)| last < state.next);
        sane.then_some(state)
    }

    /// The encoded length.
    pub(crate) const LENGTH: usize = PARTITION_START;
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Events of one partition.
    Events,
    /// Sequence numbers that may be used before they are on disk.
    Reservation,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: Kind,
    pub(crate) partition: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) enqueued_at: Timestamp,
    /// The position in the segment at which the commit of this frame began.
    pub(crate) commit: u64,
    pub(crate) payload_length: u32,
    pub(crate) payload_checksum: u32,
    /// Every section of every message was validated by today's rules before it was stored.
    pub(crate) validated: bool,
}

impl FrameHeader {
    /// Returns the length of the whole frame.
    pub(crate) fn frame_length(&self) -> u64 {
        FRAME_HEADER as u64 + u64::from(self.payload_length)
    }

    /// Returns the number after the last event.
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
        let flags = if self.validated { VALIDATED_LAXLY | VALIDATED } else { 0 };
        bytes[52..56].copy_from_slice(&flags.to_le_bytes());
        let checksum = place.checksum(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header at this place, if it is intact.
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
                        && u64::from(header.count) <= u64::from(header.payload_length) / MIN_RECORD
                }
                Kind::Reservation => true,
            };
        sane.then_some(header)
    }
}

/// The place of a frame, which is part of its checksum.
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

/// Encodes a reservation: for each partition, numbers below `until` may be used.
pub(crate) fn encode_reservation(rows: &[(u32, u64)]) -> Vec<u8> {
    let row = |(partition, until): &(u32, u64)| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&partition.to_le_bytes());
        bytes[8..].copy_from_slice(&until.to_le_bytes());
        bytes
    };
    rows.iter().flat_map(row).collect()
}

/// Decodes a reservation.
pub(crate) fn decode_reservation(payload: &[u8]) -> impl Iterator<Item = (u32, u64)> {
    let rows = payload.chunks_exact(16).map(|row| (u32_from(&row[..4]), u64_from(&row[8..])));
    rows.filter(|(partition, until)| (*partition as usize) < MAX_PARTITIONS && *until <= MAX_NUMBER)
}

/// Returns the file name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}.log")
}

/// Returns the file name of a segment's index.
pub(crate) fn index_name(number: u64) -> String {
    format!("{number:020}.index")
}

/// Returns the number of the segment with this file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Returns the first aligned position at or after this one.
pub(crate) fn aligned(position: u64) -> u64 {
    position.next_multiple_of(ALIGNMENT as u64)
}

/// Reads the first four bytes as a number. The caller has checked the length.
pub(crate) fn u32_from(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Reads the first eight bytes as a number. The caller has checked the length.
pub(crate) fn u64_from(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
