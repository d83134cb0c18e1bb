//! Turns a stored message into a delivered one: adds the hub's annotations, drops the sender's header, and
//! keeps the rest. For senders, it adds a partition key to a message.

use ephor_amqp::format_codes::section;
use ephor_amqp::message::Section;
use ephor_amqp::{Malformed, Reader, Sections, encode};
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;

use super::{
    ENQUEUED_TIME, LAST_OFFSET, LAST_SEQUENCE_NUMBER, LAST_SEQUENCE_NUMBER_EPOCH, LAST_TIME, NUMBER_EPOCH,
    OFFSET, PARTITION_KEY, RETRIEVAL_TIME, RuntimeMetrics, SEQUENCE_NUMBER, SEQUENCE_NUMBER_EPOCH,
    belongs_to_the_hub, reports_the_end,
};

/// The annotations that the hub adds to an event.
#[derive(Clone, Debug)]
pub struct Stamp<'a> {
    /// The event's sequence number.
    pub sequence: SequenceNumber,
    /// The event's offset: its place in the log.
    pub offset: &'a Offset,
    /// The time at which the event was stored.
    pub enqueued_at: Timestamp,
    /// The partition key that it was sent with.
    pub partition_key: Option<&'a str>,
    /// The end of the log, for a receiver that asked for it.
    pub metrics: Option<&'a RuntimeMetrics>,
    /// The end of the log includes the epoch of its number: the receiver asked for it.
    pub last_number_epoch: bool,
}

/// The most bytes that a delivered message is longer than the one that was sent: all annotations of the hub with
/// the longest key take less than 1,000, and the body of a message that had none takes 5. The rest is for
/// annotations to come.
pub const MAX_ADDED_BYTES: u64 = 4 << 10;

/// An estimate, in bytes, of an event's annotations without its key.
const ANNOTATIONS: usize = 160;
const METRICS: usize = 192;

/// Appends a stored message, as it is delivered, to `into`. If the message is malformed, `into` is unchanged.
///
/// As with the service (REC), the sender's annotations are kept, those of the delivery as well, except those that
/// the hub writes itself, and its header is dropped. Without a key in the hub the delivered message has no key
/// either. Delivery annotations that the sender wrote at the end, as Azure's Python SDK does, go to the place
/// that the specification gives them, since not all readers look for them at the end.
pub fn deliver(message: &[u8], stamp: &Stamp<'_>, into: &mut Vec<u8>) -> Result<(), Malformed> {
    let sections = Sections::scan(message)?;
    let key = stamp.partition_key.map_or(0, str::len);
    into.reserve(message.len() + ANNOTATIONS + key + if stamp.metrics.is_some() { METRICS } else { 0 });
    let start = into.len();
    let written = write_delivery_annotations(message, &sections, stamp, into).and_then(|()| {
        merge(message, sections.message_annotations, belongs_to_the_hub, into, |into| {
            encode::symbol(into, SEQUENCE_NUMBER_EPOCH);
            encode::int(into, NUMBER_EPOCH);
            encode::symbol(into, SEQUENCE_NUMBER);
            encode::long(into, signed(stamp.sequence));
            encode::symbol(into, OFFSET);
            write_offset(stamp.offset, into);
            encode::symbol(into, ENQUEUED_TIME);
            encode::timestamp(into, stamp.enqueued_at.0);
            let Some(key) = stamp.partition_key else { return 4 };
            encode::symbol(into, PARTITION_KEY);
            encode::string(into, key);
            5
        })
    });
    finish(message, &sections, written, start, into)
}

/// Writes the delivery annotations, if there are any: the end of the log for a receiver that asked for it, and
/// those of the sender.
fn write_delivery_annotations(
    message: &[u8],
    sections: &Sections,
    stamp: &Stamp<'_>,
    into: &mut Vec<u8>,
) -> Result<(), Malformed> {
    if stamp.metrics.is_none() && sections.delivery_annotations.is_none() {
        return Ok(());
    }
    let start = into.len();
    encode::described(into, section::DELIVERY_ANNOTATIONS.into());
    let map = encode::begin(into);
    let ours = stamp.metrics.map_or(0, |metrics| write_metrics(metrics, stamp.last_number_epoch, into));
    let pairs = ours + copy_pairs(message, sections.delivery_annotations, reports_the_end, into)?;
    match pairs {
        0 => into.truncate(start),
        pairs => encode::end_map(into, map, pairs),
    }
    Ok(())
}

/// Appends a message on its way to a hub, with its partition key, to `into`. If the message is malformed,
/// `into` is unchanged.
pub fn with_partition_key(message: &[u8], key: &str, into: &mut Vec<u8>) -> Result<(), Malformed> {
    let sections = Sections::scan(message)?;
    into.reserve(message.len() + ANNOTATIONS + key.len());
    let start = into.len();
    for section in [&sections.header, &sections.delivery_annotations].into_iter().flatten() {
        into.extend_from_slice(&message[section.whole()]);
    }
    let written = merge(
        message,
        sections.message_annotations,
        |name| name == PARTITION_KEY,
        into,
        |into| {
            encode::symbol(into, PARTITION_KEY);
            encode::string(into, key);
            1
        },
    );
    finish(message, &sections, written, start, into)
}

/// Appends everything after the annotations, or removes what was written.
fn finish(
    message: &[u8],
    sections: &Sections,
    written: Result<(), Malformed>,
    start: usize,
    into: &mut Vec<u8>,
) -> Result<(), Malformed> {
    match written {
        Ok(()) => into.extend_from_slice(&message[rest(message, sections)]),
        Err(_) => into.truncate(start),
    }
    written
}

/// The range from the first section after the annotations to the last section. Azure's Python SDK writes
/// delivery annotations at the very end; they are excluded.
fn rest(message: &[u8], sections: &Sections) -> std::ops::Range<usize> {
    let body = sections.body.whole.start;
    let early = sections.early_footer();
    let first = [&sections.properties, &sections.application_properties, &early].into_iter().flatten().next();
    let end = match &sections.delivery_annotations {
        Some(late) if late.start >= body => late.start,
        _ => message.len(),
    };
    first.map_or(body, |section| section.start)..end
}

/// Writes message annotations: first `ours`, which returns the number of pairs it wrote, then those of the
/// sender that are not `replaced`, as they were encoded.
fn merge(
    message: &[u8],
    theirs: Option<Section>,
    replaced: impl Fn(&str) -> bool,
    into: &mut Vec<u8>,
    ours: impl FnOnce(&mut Vec<u8>) -> usize,
) -> Result<(), Malformed> {
    encode::described(into, section::MESSAGE_ANNOTATIONS.into());
    let map = encode::begin(into);
    let pairs = ours(into);
    let pairs = pairs + copy_pairs(message, theirs, replaced, into)?;
    encode::end_map(into, map, pairs);
    Ok(())
}

/// Copies the pairs of a map that are not `replaced`, as they were encoded, and returns their number.
fn copy_pairs(
    message: &[u8],
    theirs: Option<Section>,
    replaced: impl Fn(&str) -> bool,
    into: &mut Vec<u8>,
) -> Result<usize, Malformed> {
    let Some(section) = theirs else { return Ok(0) };
    let mut items = Reader::starting(&message[..section.end], section.value).map()?;
    let mut pairs = 0;
    loop {
        let at = items.at();
        let Some(key) = items.next()? else { return Ok(pairs) };
        items.next()?;
        if key.text().is_some_and(&replaced) {
            continue;
        }
        into.extend_from_slice(&message[at..items.at()]);
        pairs += 1;
    }
}

/// Writes the end of the log, and returns the number of pairs.
fn write_metrics(
    RuntimeMetrics { last, retrieved_at }: &RuntimeMetrics,
    last_number_epoch: bool,
    into: &mut Vec<u8>,
) -> usize {
    if last_number_epoch {
        encode::symbol(into, LAST_SEQUENCE_NUMBER_EPOCH);
        encode::int(into, NUMBER_EPOCH);
    }
    encode::symbol(into, LAST_SEQUENCE_NUMBER);
    encode::long(into, signed(last.sequence));
    encode::symbol(into, LAST_OFFSET);
    write_offset(&last.offset, into);
    encode::symbol(into, LAST_TIME);
    encode::timestamp(into, last.enqueued_at.0);
    encode::symbol(into, RETRIEVAL_TIME);
    encode::timestamp(into, retrieved_at.0);
    4 + usize::from(last_number_epoch)
}

/// Sequence numbers are signed on the wire; no real one comes near the maximum.
pub(crate) fn signed(number: SequenceNumber) -> i64 {
    i64::try_from(number.0).unwrap_or(i64::MAX)
}

/// Writes an offset as text. A numeric offset, the usual case, is written without allocating.
pub(crate) fn write_offset(offset: &Offset, into: &mut Vec<u8>) {
    const MAX_DIGITS: usize = 20;
    let Some(mut number) = offset.as_number() else {
        return encode::string(into, &offset.to_string());
    };
    let mut digits = [b'0'; MAX_DIGITS];
    let mut start = MAX_DIGITS;
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&[ephor_amqp::format_codes::STRING_8, (MAX_DIGITS - start) as u8]);
    into.extend_from_slice(&digits[start..]);
}
