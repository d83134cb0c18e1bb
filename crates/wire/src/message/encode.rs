//! Encodes an event as an AMQP message.

use std::collections::BTreeSet;

use ephor_amqp::check::{EmptyElements, TOO_MANY_EMPTY, check_within};
use ephor_amqp::format_codes::section;
use ephor_amqp::validate::is_simple;
use ephor_amqp::{Reader, encode as amqp};
use ephor_core::event::{NewEvent, Properties, Property, Value};

use super::fields::{FIELDS, field};
use crate::annotations::belongs_to_the_hub;

/// An event that AMQP cannot represent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("property {name:?} cannot be sent: {why}")]
pub struct Unencodable {
    /// The property.
    pub name: String,
    /// The problem with it.
    pub why: &'static str,
}

fn unencodable(name: &str, why: &'static str) -> Unencodable {
    Unencodable { name: name.to_owned(), why }
}

/// The maximum size of the head of a section or of a value.
const HEAD: usize = 16;

/// An upper bound of the event's size as a message, in bytes; hardly more than the size itself.
pub fn size_bound(event: &NewEvent) -> usize {
    let value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) | Value::Encoded(bytes) => bytes.len(),
        _ => HEAD,
    };
    let all = |properties: &Properties| -> usize {
        // The name of a field is counted, though not written: that covers the nulls before it.
        let each = properties.iter().map(|(name, held)| name.len() + value(held) + HEAD).sum::<usize>();
        if properties.is_empty() { 0 } else { each + 2 * HEAD }
    };
    event.body.len() + HEAD / 2 + all(&event.properties) + all(&event.system_properties)
}

/// Appends the event as one message to `into`, which is unchanged if that fails.
pub fn encode(event: &NewEvent, into: &mut Vec<u8>) -> Result<(), Unencodable> {
    let size = size_bound(event);
    if size > amqp::MAX_LENGTH {
        return Err(unencodable("body", "the event is larger than an AMQP message can be"));
    }
    into.reserve(size);
    let start = into.len();
    let mut empty = EmptyElements::default();
    let written = annotations_and_fields(&event.system_properties, into, &mut empty)
        .and_then(|()| application_properties(&event.properties, into, &mut empty));
    if let Err(refused) = written {
        into.truncate(start);
        return Err(refused);
    }
    amqp::described(into, section::DATA.into());
    amqp::binary(into, &event.body);
    Ok(())
}

fn annotations_and_fields(
    properties: &Properties,
    into: &mut Vec<u8>,
    empty: &mut EmptyElements,
) -> Result<(), Unencodable> {
    if properties.is_empty() {
        return Ok(());
    }
    refuse_duplicates(properties)?;
    let mut fields: [Option<&Value>; FIELDS.len()] = [None; FIELDS.len()];
    let mut annotations = 0;
    for (name, value) in properties.iter() {
        match field(name) {
            Some(index) => fields[index] = Some(value),
            None => annotations += 1,
        }
    }
    if annotations > 0 {
        amqp::described(into, section::MESSAGE_ANNOTATIONS.into());
        let map = amqp::begin(into);
        for property in properties.iter().filter(|(name, _)| field(name).is_none()) {
            annotation(property, into, empty)?;
        }
        amqp::end_map(into, map, annotations);
    }
    if let Some(last) = fields.iter().rposition(Option::is_some) {
        amqp::described(into, section::PROPERTIES.into());
        let list = amqp::begin(into);
        for (name, value) in FIELDS.iter().zip(&fields[..=last]) {
            match value {
                Some(value) => write_field(name, value, into, empty)?,
                None => amqp::null(into),
            }
        }
        amqp::end_list(into, list, last + 1);
    }
    Ok(())
}

fn annotation(
    (name, value): &Property,
    into: &mut Vec<u8>,
    empty: &mut EmptyElements,
) -> Result<(), Unencodable> {
    if belongs_to_the_hub(name) {
        return Err(unencodable(name, "the hub writes this annotation itself"));
    }
    if !name.is_ascii() {
        return Err(unencodable(name, "the name of an annotation has to be ASCII"));
    }
    amqp::symbol(into, name);
    write_value(name, value, into, empty)
}

fn application_properties(
    properties: &Properties,
    into: &mut Vec<u8>,
    empty: &mut EmptyElements,
) -> Result<(), Unencodable> {
    if properties.is_empty() {
        return Ok(());
    }
    refuse_duplicates(properties)?;
    amqp::described(into, section::APPLICATION_PROPERTIES.into());
    let map = amqp::begin(into);
    let mut pairs = 0;
    for (name, value) in properties.iter() {
        amqp::string(into, name);
        let start = into.len();
        write_value(name, value, into, empty)?;
        if matches!(value, Value::Encoded(_)) && !Reader::starting(into, start).value().is_ok_and(is_simple) {
            return Err(unencodable(
                name,
                "it is a list, a map or an array, which many readers cannot decode here",
            ));
        }
        pairs += 1;
    }
    amqp::end_map(into, map, pairs);
    Ok(())
}

/// Writes a value whose name does not imply its type.
fn write_value(
    name: &str,
    value: &Value,
    into: &mut Vec<u8>,
    empty: &mut EmptyElements,
) -> Result<(), Unencodable> {
    match value {
        Value::Null => amqp::null(into),
        Value::Bool(flag) => amqp::bool(into, *flag),
        Value::Int(number) => amqp::long(into, *number),
        Value::UInt(number) => amqp::ulong(into, *number),
        Value::Float(number) => amqp::double(into, *number),
        Value::Text(text) => amqp::string(into, text),
        Value::Bytes(bytes) => amqp::binary(into, bytes),
        Value::Time(time) => amqp::timestamp(into, time.0),
        Value::Uuid(bytes) => amqp::uuid(into, bytes),
        Value::Encoded(bytes) => match check_within(bytes, empty) {
            Ok(()) => into.extend_from_slice(bytes),
            Err(malformed) if malformed.what == TOO_MANY_EMPTY => {
                return Err(unencodable(name, TOO_MANY_EMPTY));
            }
            Err(_) => return Err(unencodable(name, "its bytes are not one encoded AMQP value")),
        },
        _ => return Err(unencodable(name, "AMQP has no such type")),
    }
    Ok(())
}

/// Writes a field of the properties section, each of which has its own type.
fn write_field(
    name: &str,
    value: &Value,
    into: &mut Vec<u8>,
    empty: &mut EmptyElements,
) -> Result<(), Unencodable> {
    match (name, value) {
        // In this section a null means that the field is absent, so it would be lost.
        (_, Value::Null) => return Err(unencodable(name, "without a value it has to be left out")),
        ("message-id" | "correlation-id", value) => match value {
            Value::UInt(_) | Value::Uuid(_) | Value::Bytes(_) | Value::Text(_) => {
                write_value(name, value, into, empty)?;
            }
            _ => return Err(unencodable(name, "it has to be an unsigned integer, a UUID, bytes or text")),
        },
        ("user-id", Value::Bytes(bytes)) => amqp::binary(into, bytes),
        ("user-id", _) => return Err(unencodable(name, "it has to be bytes")),
        ("content-type" | "content-encoding", Value::Text(text)) if text.is_ascii() => {
            amqp::symbol(into, text)
        }
        ("content-type" | "content-encoding", _) => {
            return Err(unencodable(name, "it has to be text in ASCII"));
        }
        ("absolute-expiry-time" | "creation-time", Value::Time(time)) => amqp::timestamp(into, time.0),
        ("absolute-expiry-time" | "creation-time", _) => {
            return Err(unencodable(name, "it has to be a time"));
        }
        ("group-sequence", Value::UInt(number)) => match u32::try_from(*number) {
            Ok(number) => amqp::uint(into, number),
            Err(_) => return Err(unencodable(name, "it has at most 32 bits")),
        },
        ("group-sequence", _) => return Err(unencodable(name, "it has to be an unsigned integer")),
        (_, Value::Text(text)) => amqp::string(into, text),
        _ => return Err(unencodable(name, "it has to be text")),
    }
    Ok(())
}

/// Up to this number, comparing each pair is faster than a set.
const FEW: usize = 16;

/// Refuses duplicate names: a map must not have a key twice, and a field has room for one value.
fn refuse_duplicates(properties: &Properties) -> Result<(), Unencodable> {
    let names = || properties.iter().map(|(name, _)| &**name);
    let twice = if names().count() <= FEW {
        names().enumerate().find(|(index, name)| names().take(*index).any(|earlier| earlier == *name))
    } else {
        let mut seen = BTreeSet::new();
        names().enumerate().find(|(_, name)| !seen.insert(*name))
    };
    match twice {
        Some((_, name)) => Err(unencodable(name, "it occurs twice")),
        None => Ok(()),
    }
}
