//! Fuzzes batch messages: the ranges of their events, which are found without decoding them, the lookup of
//! partition keys, and packing the events again.

use bytes::Bytes;
use ephor_amqp::{Malformed, Reader, Sections};
use ephor_core::event::NewEvent;
use ephor_wire::annotations::PARTITION_KEY;
use ephor_wire::batch::{Envelope, InvalidKeyType, Packer, Push, partition_key};
use ephor_wire::message::decode;

/// The size limit of the packed batch: room for all events of a batch, and for a longer encoding of them.
const ROOM: usize = 1 << 20;

/// Runs one input.
pub fn run(data: &[u8]) {
    compare_keys(data);
    let Ok(envelope) = Envelope::open(data) else { return };
    assert!(envelope.len() > 0);
    assert_eq!(envelope.events().count(), envelope.len());
    let mut end = 0;
    for (event, range) in envelope.events().zip(envelope.ranges()) {
        assert!(range.start >= end, "events do not overlap");
        end = range.end;
        assert_eq!(event, &data[range]);
        let _ = envelope.key_of(event);
    }
    let _ = envelope.routing_key();
    pack_again(&envelope);
}

/// The fast key lookup finds the same as a full scan.
fn compare_keys(message: &[u8]) {
    let Ok(sections) = Sections::scan(message) else { return };
    let careful = match sections.message_annotations {
        Some(section) => key_in_map(&message[..section.end], section.value),
        None => Ok(None),
    };
    assert_eq!(partition_key(message), careful);
}

fn key_in_map(message: &[u8], at: usize) -> Result<Option<&str>, InvalidKeyType> {
    let mut items = Reader::starting(message, at).map()?;
    while let Some(name) = items.next()? {
        let value = items.next()?.ok_or(Malformed::new(at, "a key without a value"))?;
        if name.text() == Some(PARTITION_KEY) {
            return match value {
                ephor_amqp::Value::Null => Ok(None),
                value => match value.text() {
                    Some(text) => Ok((!text.is_empty()).then_some(text)),
                    None => Err(InvalidKeyType::NotText),
                },
            };
        }
    }
    Ok(None)
}

/// Events that can be decoded make a batch that can be opened.
fn pack_again(envelope: &Envelope<'_>) {
    let mut packer = Packer::new(ROOM, envelope.key());
    let mut packed = Vec::new();
    for event in envelope.events() {
        let Ok(key) = envelope.key_of(event) else { continue };
        let Ok(decoded) = decode(&Bytes::copy_from_slice(event)) else { continue };
        let new = NewEvent {
            body: decoded.body.clone(),
            partition_key: key.map(Into::into),
            properties: decoded.properties,
            system_properties: decoded.system_properties,
        };
        if packer.push(&new) == Ok(Push::Added) {
            packed.push((key, decoded.body));
        }
    }
    assert_eq!(packer.len(), packed.len());
    let Some(batch) = packer.take() else { return };
    let again = Envelope::open(&batch.bytes).expect("a packed batch can be opened");
    assert_eq!(again.key(), envelope.key());
    assert_eq!(again.len(), packed.len());
    for (event, (key, body)) in again.events().zip(packed) {
        assert_eq!(again.key_of(event), Ok(key));
        assert_eq!(
            decode(&Bytes::copy_from_slice(event)).expect("an encoded event can be decoded").body,
            body
        );
    }
}
