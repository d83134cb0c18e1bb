//! Batches of events: encodes them as records of the log, and decodes them.
//!
//! Senders encode in their own tasks; the appender only adds a header. Readers get slices of bytes that were read once.

mod older_versions;

use bytes::Bytes;
use ephor_amqp::Sections;
use ephor_amqp::validate::conform;
use ephor_core::event::{Event, NewEvent};
use ephor_core::ids::PartitionId;
use ephor_core::partition_key;
use ephor_core::position::SequenceNumber;
use ephor_core::time::Timestamp;
use ephor_wire::message;

use crate::error::SendError;
use crate::journal::layout::{ALIGNMENT, u32_from};
use crate::journal::{Frame, Payload};
use crate::offset::offset_of;
pub(crate) use older_versions::OmissionLog;

/// The maximum size of a batch in bytes.
pub const MAX_BATCH_BYTES: usize = 20 << 20;

/// The length of a record's header, which comes before the key and the message.
const RECORD_HEADER: usize = 8;

/// The length that stands for a missing key.
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

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns its size in the log, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of memory that it takes, which may be more than its size.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Adds an event. If it is refused, the batch stays as it was. The encoded message is valid in every section.
    pub fn push(&mut self, event: &NewEvent) -> Result<(), SendError> {
        let key = event.partition_key.as_deref();
        let key_length = key.map_or(0, str::len);
        // Checked before anything is copied: the body alone may be too large.
        self.check_event(event.body.len() + key_length)?;
        let limit = self.max_event_bytes;
        self.record(key, event.body.len(), |bytes| {
            let before = bytes.len();
            message::encode(event, bytes).map_err(|error| SendError::Unencodable(error.to_string()))?;
            check_event(bytes.len() - before + key_length, limit)
        })
    }

    /// Adds a complete AMQP message. Validates every section first: a message that readers cannot decode would be a poison
    /// event. It is stored byte for byte, but for what makes it readable ([`conform`]).
    ///
    /// Its size is that of the message as it was sent, since that is what a link allows. Its key is a part of it.
    pub fn push_message(&mut self, partition_key: Option<&str>, encoded: &[u8]) -> Result<(), SendError> {
        self.check_event(encoded.len())?;
        let encoded = conform(encoded).map_err(|error| SendError::Unencodable(error.to_string()))?;
        self.record(partition_key, encoded.len(), |bytes| {
            bytes.extend_from_slice(&encoded);
            Ok(())
        })
    }

    /// Writes a record with a message of about `about` bytes. On an error, nothing is written.
    fn record(
        &mut self,
        key: Option<&str>,
        about: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        if let Some(key) = key {
            partition_key::check(key)?;
        }
        let start = self.bytes.len();
        self.bytes.reserve(RECORD_HEADER + key.map_or(0, str::len) + about + ALIGNMENT);
        self.bytes.extend_from_slice(&[0; RECORD_HEADER]);
        self.bytes.extend_from_slice(key.unwrap_or_default().as_bytes());
        let message = self.bytes.len();
        let written = write(&mut self.bytes).and_then(|()| check_batch(self.bytes.len()));
        if let Err(error) = written {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.count += 1;
        let message_length = (self.bytes.len() - message) as u32;
        // The check of the key limits its length far below this.
        let key_length = key.map_or(NO_KEY, |key| key.len() as u16);
        self.bytes[start..start + 4].copy_from_slice(&message_length.to_le_bytes());
        self.bytes[start + 4..start + 6].copy_from_slice(&key_length.to_le_bytes());
        Ok(())
    }

    fn check_event(&self, size: usize) -> Result<(), SendError> {
        check_event(size, self.max_event_bytes)
    }

    /// Reserves memory for `events` more events with a body of about this size.
    pub(crate) fn reserve(&mut self, events: usize, body_bytes: usize) {
        /// The encoding around a body, and a key of usual length.
        const BODY_OVERHEAD: usize = RECORD_HEADER + 40;
        let about = (BODY_OVERHEAD + body_bytes).saturating_mul(events) + ALIGNMENT;
        self.bytes.reserve(about.min(MAX_BATCH_BYTES));
    }

    pub(crate) fn finish(mut self) -> Payload {
        let length = self.bytes.len().next_multiple_of(ALIGNMENT);
        // Exactly, or a few bytes of padding could double the memory of the batch.
        self.bytes.reserve_exact(length - self.bytes.len());
        self.bytes.resize(length, 0);
        let checksum = crc32c::crc32c(&self.bytes);
        Payload { bytes: Bytes::from(self.bytes), count: self.count, checksum }
    }
}

fn check_event(size: usize, limit: u64) -> Result<(), SendError> {
    let size = size as u64;
    if size > limit { Err(SendError::EventTooLarge { size, limit }) } else { Ok(()) }
}

fn check_batch(size: usize) -> Result<(), SendError> {
    let (size, limit) = (size as u64, MAX_BATCH_BYTES as u64);
    if size > limit { Err(SendError::BatchTooLarge { size, limit }) } else { Ok(()) }
}

/// Stored events of one partition, in order. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    first: u64,
    count: u32,
    enqueued_at: Timestamp,
    records: Bytes,
    /// The records of the frame that they are a part of, which is kept whole.
    frame_bytes: usize,
}

/// A stored event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEvent<'a> {
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// When it was stored.
    pub enqueued_at: Timestamp,
    /// The key that it was sent with.
    pub partition_key: Option<&'a str>,
    /// The AMQP message that was sent.
    pub message: &'a [u8],
}

impl StoredBatch {
    /// Returns the events of a frame that this process wrote.
    pub(crate) fn of(frame: &Frame) -> Self {
        debug_assert!(frame.validated, "this process writes validated frames only");
        Self::with(frame, frame.payload.clone())
    }

    /// Returns the events of a frame that an older version may have written. Invalid sections are left out.
    pub(crate) fn of_stored(frame: &Frame, partition: PartitionId, omissions: &OmissionLog) -> Self {
        if frame.validated {
            return Self::with(frame, frame.payload.clone());
        }
        let (records, invalid) = older_versions::valid_records(frame);
        invalid.into_iter().for_each(|(number, malformed)| omissions.report(partition, number, malformed));
        Self::with(frame, records)
    }

    fn with(frame: &Frame, records: Bytes) -> Self {
        let frame_bytes = records.len();
        Self { first: frame.first, count: frame.count, enqueued_at: frame.enqueued_at, records, frame_bytes }
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    /// Returns the bytes of memory that it keeps: all of the frame that it is a part of.
    pub fn memory(&self) -> usize {
        self.frame_bytes
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the sequence number of the first event.
    pub fn first(&self) -> SequenceNumber {
        SequenceNumber(self.first)
    }

    /// Returns when they were stored.
    pub fn enqueued_at(&self) -> Timestamp {
        self.enqueued_at
    }

    /// Returns the number after the last event.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Iterates over the events, in order.
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

    /// Takes events from the front: at most `max_events`, about `max_bytes`, and at least one.
    pub(crate) fn split(&mut self, max_events: usize, max_bytes: usize) -> Self {
        let (mut taken, mut end) = (0, 0);
        while taken < max_events.min(self.count as usize) && (taken == 0 || end < max_bytes) {
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

    /// Decodes the events, as processors get them.
    pub(crate) fn decode_into(&self, into: &mut Vec<Event>) {
        into.reserve(self.len());
        into.extend(self.events().map(|stored| {
            let message = self.records.slice_ref(stored.message);
            let decoded = match Sections::scan(&message) {
                Ok(sections) => message::decode_leniently(&message, &sections),
                // Cannot happen, since such messages are refused. The bytes are returned as the body.
                Err(_) => message::Decoded::only_body(message),
            };
            let event = NewEvent {
                partition_key: stored.partition_key.map(Into::into),
                body: decoded.body,
                properties: decoded.properties,
                system_properties: decoded.system_properties,
            };
            Event::stored(stored.sequence, offset_of(stored.sequence.0), stored.enqueued_at, event)
        }));
    }
}

fn record_length(record: &[u8]) -> usize {
    let Some(header) = record.get(..RECORD_HEADER) else { return record.len() };
    let key = u16::from_le_bytes([header[4], header[5]]);
    let key = if key == NO_KEY { 0 } else { usize::from(key) };
    (RECORD_HEADER + key + u32_from(header) as usize).min(record.len())
}

/// Iterates over the key and the message of each record. A payload with a valid checksum has as many as its header says.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_message_takes_little_more_memory_than_its_record() {
        // Of all lengths modulo the alignment.
        for length in 1_000_000..1_000_000 + ALIGNMENT {
            let mut message = Vec::new();
            message::encode(&NewEvent::new(vec![7; length]), &mut message).unwrap();
            let mut batch = Batch::new(1 << 20);
            batch.push_message(Some("key"), &message).unwrap();
            let (size, memory, place) = (batch.bytes(), batch.memory(), batch.bytes.as_ptr());
            assert!(memory <= size + 2 * ALIGNMENT, "{memory} bytes for {size}");
            // The padding finds room, so nothing is copied.
            assert_eq!(batch.finish().bytes.as_ptr(), place);
        }
    }
}
