//! Turns a delivered message into an event, on the client's side.

use bytes::Bytes;
use ephor_amqp::message::Section;
use ephor_amqp::{Malformed, Reader, Sections, Value};
use ephor_core::event::{Event, NewEvent};
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::source::LastEnqueued;
use ephor_core::time::Timestamp;

use super::{
    ENQUEUED_TIME, LAST_OFFSET, LAST_SEQUENCE_NUMBER, LAST_TIME, OFFSET, PARTITION_KEY, RETRIEVAL_TIME,
    RuntimeMetrics, SEQUENCE_NUMBER,
};
use crate::message;

/// The maximum length of an offset. A longer text is ignored, as if there were no offset.
const MAX_OFFSET_LENGTH: usize = 256;

/// The hub's annotations of an event, and the ranges of the message's sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<'a> {
    /// The event's sequence number.
    pub sequence: SequenceNumber,
    /// The event's offset: its place in the log.
    pub offset: Offset,
    /// The time at which the event was stored.
    pub enqueued_at: Timestamp,
    /// The partition key that it was sent with.
    pub partition_key: Option<&'a str>,
    /// The end of the partition's log, if the hub sent it.
    pub metrics: Option<RuntimeMetrics>,
    /// True if the sender wrote annotations, too.
    pub annotated: bool,
    /// The ranges of the sections in the message.
    pub sections: Sections,
}

impl<'a> Delivered<'a> {
    /// Reads the hub's annotations, and leaves everything else undecoded.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let sections = Sections::scan(message)?;
        let section =
            sections.message_annotations.ok_or(Malformed::new(0, "a delivery without annotations"))?;
        let missing = |what| move || Malformed::new(section.start, what);
        let (mut sequence, mut offset, mut time, mut partition_key) = (None, None, None, None);
        let mut annotated = false;
        each(message, section, |name, value| match name {
            Some(SEQUENCE_NUMBER) => sequence = number(value),
            Some(OFFSET) => offset = place(value),
            Some(ENQUEUED_TIME) => time = instant(value),
            Some(PARTITION_KEY) => partition_key = value.text(),
            _ => annotated = true,
        })?;
        let metrics = match sections.delivery_annotations {
            Some(section) => metrics(message, section)?,
            None => None,
        };
        Ok(Self {
            sequence: sequence.ok_or_else(missing("a delivery without its sequence number"))?,
            offset: offset.ok_or_else(missing("a delivery without its offset"))?,
            enqueued_at: time.ok_or_else(missing("a delivery without its enqueued time"))?,
            partition_key,
            metrics,
            annotated,
            sections,
        })
    }
}

/// Reads a delivered message as an event, and the end of the partition's log, if the hub sent it. The event
/// holds slices of `message`.
///
/// A property that cannot be decoded is no error, because a reader could never get past the event: the event
/// then has its body and no properties.
pub fn received(message: &Bytes) -> Result<(Event, Option<RuntimeMetrics>), Malformed> {
    let mut delivered = Delivered::read(message)?;
    if !delivered.annotated {
        // The hub's own annotations have been read, and there are no others.
        delivered.sections.message_annotations = None;
    }
    let decoded = message::decode_leniently(message, &delivered.sections);
    let event = NewEvent {
        partition_key: delivered.partition_key.map(Into::into),
        body: decoded.body,
        properties: decoded.properties,
        system_properties: decoded.system_properties,
    };
    let event = Event::stored(delivered.sequence, delivered.offset, delivered.enqueued_at, event);
    Ok((event, delivered.metrics))
}

fn metrics(message: &[u8], section: Section) -> Result<Option<RuntimeMetrics>, Malformed> {
    let (mut sequence, mut offset, mut time, mut retrieved) = (None, None, None, None);
    each(message, section, |name, value| match name {
        Some(LAST_SEQUENCE_NUMBER) => sequence = number(value),
        Some(LAST_OFFSET) => offset = place(value),
        Some(LAST_TIME) => time = instant(value),
        Some(RETRIEVAL_TIME) => retrieved = instant(value),
        _ => {}
    })?;
    let (Some(sequence), Some(offset), Some(enqueued_at), Some(retrieved_at)) =
        (sequence, offset, time, retrieved)
    else {
        return Ok(None);
    };
    Ok(Some(RuntimeMetrics { last: LastEnqueued { sequence, offset, enqueued_at }, retrieved_at }))
}

fn each<'a>(
    message: &'a [u8],
    section: Section,
    mut take: impl FnMut(Option<&str>, Value<'a>),
) -> Result<(), Malformed> {
    let mut items = Reader::starting(&message[..section.end], section.value).map()?;
    while let Some(key) = items.next()? {
        let Some(value) = items.next()? else { break };
        take(key.text(), value);
    }
    Ok(())
}

/// The service writes a long; other hubs may not be as exact.
fn number(value: Value<'_>) -> Option<SequenceNumber> {
    let number = match value {
        Value::Long(number) => u64::try_from(number).ok()?,
        Value::Int(number) => u64::try_from(number).ok()?,
        Value::Ulong(number) => number,
        Value::Uint(number) => number.into(),
        _ => return None,
    };
    Some(SequenceNumber(number))
}

fn place(value: Value<'_>) -> Option<Offset> {
    match value {
        Value::Long(number) => Some(Offset::new(&number.to_string())),
        value => value.text().filter(|text| text.len() <= MAX_OFFSET_LENGTH).map(offset),
    }
}

/// Same as [`Offset::new`], which formats a number again to compare it. For most offsets the text alone shows
/// that it is a number, and that is faster.
fn offset(text: &str) -> Offset {
    const ALWAYS_FIT: usize = 19;
    let plain = match text.as_bytes() {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.len() < ALWAYS_FIT && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    match text.parse() {
        Ok(number) if plain => Offset::number(number),
        _ => Offset::new(text),
    }
}

fn instant(value: Value<'_>) -> Option<Timestamp> {
    match value {
        Value::Timestamp(milliseconds) => Some(Timestamp(milliseconds)),
        _ => None,
    }
}
