//! Events on their way into the log, and out of it: records, one behind the other.
//!
//! Whoever sends encodes, in its own task; the one who writes the log only puts
//! a header in front. Whoever reads gets slices of what was read once.

mod unvalidated;

use bytes::Bytes;
use ephor_amqp::Sections;
use ephor_amqp::validate::validate;
use ephor_core::event::{Event, NewEvent};
use ephor_core::ids::PartitionId;
use ephor_core::partition_key;
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;
use ephor_wire::message;

use crate::error::SendError;
use crate::journal::layout::{ALIGNMENT, u32_from};
use crate::journal::{Frame, Payload};
pub(crate) use unvalidated::LeftOut;

/// A batch takes no more bytes than this, all in all.
pub const MAX_BATCH_BYTES: usize = 20 << 20;

/// What stands before the key and the message in a record.
const RECORD_HEADER: usize = 8;

/// The length of a key that is not there.
const NO_KEY: u16 = u16::MAX;

/// Events that are stored together or not at all, in one partition.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    count: u32,
    max_event_bytes: u64,
}

impl Batch {
    pub(crate) fn new(max_event_bytes: u64) -> Self {
        Self { bytes: Vec::new(), count: 0, max_event_bytes }
    }

    /// How many events it holds.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes it will take in the log.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an event. One that is refused leaves the batch as it was. What is written is valid in every section.
    pub fn push(&mut self, event: &NewEvent) -> Result<(), SendError> {
        self.record(event.partition_key.as_deref(), event.body.len(), |bytes| {
            message::encode(event, bytes).map_err(|error| SendError::Unencodable(error.to_string()))
        })
    }

    /// Adds a complete AMQP message, which is kept as it is, byte for byte. Every section of it is validated first:
    /// what readers cannot decode would stop them at this event.
    pub fn push_message(&mut self, partition_key: Option<&str>, encoded: &[u8]) -> Result<(), SendError> {
        validate(encoded).map_err(|error| SendError::Unencodable(error.to_string()))?;
        self.record(partition_key, encoded.len(), |bytes| {
            bytes.extend_from_slice(encoded);
            Ok(())
        })
    }

    /// Writes a record around a message of about this size. If anything is wrong, nothing is written.
    fn record(
        &mut self,
        key: Option<&str>,
        about: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        if let Some(key) = key {
            partition_key::check(key)?;
        }
        // Known before anything is copied, if the body alone is too large.
        self.check_event(about + key.map_or(0, str::len))?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER]);
        self.bytes.extend_from_slice(key.unwrap_or_default().as_bytes());
        let message = self.bytes.len();
        let written = write(&mut self.bytes)
            .and_then(|()| self.check_event(self.bytes.len() - start - RECORD_HEADER))
            .and_then(|()| check_batch(self.bytes.len()));
        if let Err(error) = written {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.count += 1;
        let message_length = (self.bytes.len() - message) as u32;
        // A key that was checked is far shorter.
        let key_length = key.map_or(NO_KEY, |key| key.len() as u16);
        self.bytes[start..start + 4].copy_from_slice(&message_length.to_le_bytes());
        self.bytes[start + 4..start + 6].copy_from_slice(&key_length.to_le_bytes());
        Ok(())
    }

    fn check_event(&self, size: usize) -> Result<(), SendError> {
        let (size, limit) = (size as u64, self.max_event_bytes);
        if size > limit { Err(SendError::EventTooLarge { size, limit }) } else { Ok(()) }
    }

    /// Makes room for so many more events with a body of about this size.
    pub(crate) fn reserve(&mut self, events: usize, body_bytes: usize) {
        /// What a body is wrapped in, and a key as long as most are.
        const AROUND_A_BODY: usize = RECORD_HEADER + 40;
        let about = (AROUND_A_BODY + body_bytes).saturating_mul(events) + ALIGNMENT;
        self.bytes.reserve(about.min(MAX_BATCH_BYTES));
    }

    pub(crate) fn finish(mut self) -> Payload {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let checksum = crc32c::crc32c(&self.bytes);
        Payload { bytes: Bytes::from(self.bytes), count: self.count, checksum }
    }
}

fn check_batch(size: usize) -> Result<(), SendError> {
    let (size, limit) = (size as u64, MAX_BATCH_BYTES as u64);
    if size > limit { Err(SendError::BatchTooLarge { size, limit }) } else { Ok(()) }
}

/// Events of one partition, in order, as they were read. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    first: u64,
    count: u32,
    enqueued_at: Timestamp,
    records: Bytes,
    /// The records of the frame that they are a part of, which is kept whole.
    frame_bytes: usize,
}

/// An event as it lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEvent<'a> {
    /// Its number.
    pub sequence: SequenceNumber,
    /// When it was stored.
    pub enqueued_at: Timestamp,
    /// The key that it was sent with.
    pub partition_key: Option<&'a str>,
    /// The AMQP message that was sent.
    pub message: &'a [u8],
}

impl StoredBatch {
    /// The events of a frame that was written by this process.
    pub(crate) fn of(frame: &Frame) -> Self {
        debug_assert!(frame.validated, "it is written only so");
        Self::with(frame, frame.payload.clone())
    }

    /// The events of a frame of a log that others may have written, valid whatever is stored.
    pub(crate) fn of_stored(frame: &Frame, partition: PartitionId, left_out: &LeftOut) -> Self {
        if frame.validated {
            return Self::with(frame, frame.payload.clone());
        }
        let (records, invalid) = unvalidated::valid_records(frame);
        invalid.into_iter().for_each(|(number, malformed)| left_out.report(partition, number, malformed));
        Self::with(frame, records)
    }

    fn with(frame: &Frame, records: Bytes) -> Self {
        let frame_bytes = records.len();
        Self { first: frame.first, count: frame.count, enqueued_at: frame.enqueued_at, records, frame_bytes }
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    /// How many bytes of memory it keeps: all of the frame that it is a part of.
    pub fn memory(&self) -> usize {
        self.frame_bytes
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of the first event.
    pub fn first(&self) -> SequenceNumber {
        SequenceNumber(self.first)
    }

    /// When they were stored.
    pub fn enqueued_at(&self) -> Timestamp {
        self.enqueued_at
    }

    /// The number behind the last event.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// The events, in order.
    pub fn events(&self) -> impl Iterator<Item = StoredEvent<'_>> {
        let (enqueued_at, numbers) = (self.enqueued_at, self.first..self.end());
        numbers.zip(records(&self.records)).map(move |(number, (partition_key, message))| StoredEvent {
            sequence: SequenceNumber(number),
            enqueued_at,
            partition_key,
            message,
        })
    }

    /// Drops the events before this number.
    pub(crate) fn skip_to(&mut self, number: u64) {
        let skipped = number.clamp(self.first, self.end()) - self.first;
        drop(self.split(skipped as usize, usize::MAX));
    }

    /// Takes events from the front: at most so many, about as many bytes, and at least one.
    pub(crate) fn split(&mut self, most: usize, most_bytes: usize) -> Self {
        let (mut taken, mut end) = (0, 0);
        while taken < most.min(self.count as usize) && (taken == 0 || end < most_bytes) {
            end += record_length(self.records.get(end..).unwrap_or_default());
            taken += 1;
        }
        let front = Self {
            first: self.first,
            count: taken as u32,
            enqueued_at: self.enqueued_at,
            records: self.records.split_to(end.min(self.records.len())),
            frame_bytes: self.frame_bytes,
        };
        self.first += taken as u64;
        self.count -= taken as u32;
        front
    }

    /// The events as processors get them.
    pub(crate) fn decode_into(&self, into: &mut Vec<Event>) {
        into.reserve(self.len());
        into.extend(self.events().map(|stored| {
            let message = self.records.slice_ref(stored.message);
            let decoded = match Sections::scan(&message) {
                Ok(sections) => message::decode_leniently(&message, &sections),
                // Refused at the door: it cannot be here. If it is, it is handed on as it is.
                Err(_) => message::Decoded::only_body(message),
            };
            Event {
                sequence: stored.sequence,
                offset: offset_of(stored.sequence.0),
                enqueued_at: stored.enqueued_at,
                partition_key: stored.partition_key.map(Into::into),
                body: decoded.body,
                properties: decoded.properties,
                system_properties: decoded.system_properties,
            }
        }));
    }
}

fn record_length(record: &[u8]) -> usize {
    let Some(header) = record.get(..RECORD_HEADER) else { return record.len() };
    let key = u16::from_le_bytes([header[4], header[5]]);
    let key = if key == NO_KEY { 0 } else { usize::from(key) };
    (RECORD_HEADER + key + u32_from(header) as usize).min(record.len())
}

/// The key and the message of each record. A payload whose checksum fits holds as many as its header says.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (Option<&str>, &[u8])> {
    std::iter::from_fn(move || {
        let (record, rest) = bytes.split_at(record_length(bytes));
        bytes = rest;
        let (key, message) = record_parts(record)?;
        Some((key.and_then(|key| std::str::from_utf8(key).ok()), message))
    })
}

fn record_parts(record: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let header = record.get(..RECORD_HEADER)?;
    let key = u16::from_le_bytes([header[4], header[5]]);
    let length = if key == NO_KEY { 0 } else { usize::from(key) };
    let (text, message) = record[RECORD_HEADER..].split_at_checked(length)?;
    Some(((key != NO_KEY).then_some(text), message))
}

/// Offsets begin here, and an event follows the one before at this distance: an offset is made of the
/// number, so that it can be turned back into it, but it is not the number, so that nobody takes one for the other.
const FIRST_OFFSET: u64 = 64;
const OFFSET_STEP: u64 = 32;

/// The offset of an event.
pub fn offset_of(number: u64) -> Offset {
    Offset::number(FIRST_OFFSET + number * OFFSET_STEP)
}

/// The event that has this offset; none if no event can have it.
pub(crate) fn number_of(offset: &Offset) -> Option<u64> {
    let distance = offset.as_number()?.checked_sub(FIRST_OFFSET)?;
    distance.is_multiple_of(OFFSET_STEP).then_some(distance / OFFSET_STEP)
}
