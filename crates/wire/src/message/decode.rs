//! Decodes an AMQP message into the body and properties of an event.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ephor_amqp::message::{BodyKind, Section};
use ephor_amqp::{Malformed, Reader, Sections, Value as AmqpValue};
use ephor_core::event::{Properties, Property, Value};
use ephor_core::time::Timestamp;

use super::fields::FIELDS;
use crate::annotations::belongs_to_the_hub;

/// A decoded message.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The bytes of the data sections, or the content of a value that is text or bytes. For any other body,
    /// its sections as they were encoded.
    pub body: Bytes,
    /// The application properties.
    pub properties: Properties,
    /// The fields of the properties section, and annotations other than the hub's own.
    pub system_properties: Properties,
}

impl Decoded {
    /// A body without properties.
    pub fn only_body(body: Bytes) -> Self {
        Self { body, properties: Properties::default(), system_properties: Properties::default() }
    }
}

/// Decodes a message. The result holds slices of `message`; a body is copied only if it has several data
/// sections, which are joined.
pub fn decode(message: &Bytes) -> Result<Decoded, Malformed> {
    decode_sections(message, &Sections::scan(message)?)
}

/// Decodes a message whose sections are known. If something in it cannot be decoded, such as a property
/// without a name, the result has the body only.
pub fn decode_leniently(message: &Bytes, sections: &Sections) -> Decoded {
    decode_sections(message, sections)
        .unwrap_or_else(|_| Decoded::only_body(message.slice(sections.body.content.clone())))
}

fn decode_sections(message: &Bytes, sections: &Sections) -> Result<Decoded, Malformed> {
    let mut system = Vec::new();
    if let Some(section) = sections.message_annotations {
        annotations(message, section, &mut system)?;
    }
    if let Some(section) = sections.properties {
        fields(message, section, &mut system)?;
    }
    let mut application = Vec::new();
    if let Some(section) = sections.application_properties {
        application_properties(message, section, &mut application)?;
    }
    Ok(Decoded {
        body: body(message, sections)?,
        properties: collect(application),
        system_properties: collect(system),
    })
}

fn collect(properties: Vec<Property>) -> Properties {
    if properties.is_empty() { Properties::default() } else { properties.into_iter().collect() }
}

fn body(message: &Bytes, sections: &Sections) -> Result<Bytes, Malformed> {
    let body = &sections.body;
    match body.kind {
        BodyKind::Data if body.sections == 1 => Ok(message.slice(body.content.clone())),
        BodyKind::Data => {
            let mut all = BytesMut::with_capacity(body.whole.len());
            sections.data(message).for_each(|content| all.extend_from_slice(content));
            Ok(all.freeze())
        }
        BodyKind::Sequence => Ok(message.slice(body.whole.clone())),
        BodyKind::Value => {
            let mut reader = Reader::starting(&message[..body.content.end], body.content.start);
            Ok(match reader.value()? {
                AmqpValue::Binary(content) => message.slice_ref(content),
                AmqpValue::String(text) | AmqpValue::Symbol(text) => message.slice_ref(text.as_bytes()),
                _ => message.slice(body.whole.clone()),
            })
        }
    }
}

fn annotations(message: &Bytes, section: Section, into: &mut Vec<Property>) -> Result<(), Malformed> {
    let mut items = Reader::starting(&message[..section.end], section.value).map()?;
    loop {
        let at = items.at();
        let Some(key) = items.next()? else { return Ok(()) };
        let Some(held) = items.next()? else { return Ok(()) };
        let name: Arc<str> = match key {
            AmqpValue::Symbol(name) | AmqpValue::String(name) if belongs_to_the_hub(name) => continue,
            AmqpValue::Symbol(name) | AmqpValue::String(name) => name.into(),
            // Reserved by the specification for itself, which has never used one.
            AmqpValue::Ulong(number) => number.to_string().into(),
            _ => return Err(Malformed::new(at, "an annotation whose name is not a symbol")),
        };
        into.push((name, value(message, held)));
    }
}

fn fields(message: &Bytes, section: Section, into: &mut Vec<Property>) -> Result<(), Malformed> {
    let mut items = Reader::starting(&message[..section.end], section.value).list()?;
    if items.left() > FIELDS.len() {
        return Err(Malformed::new(section.value, "more fields than the properties section has"));
    }
    let mut names = FIELDS.iter();
    while let Some(held) = items.next()? {
        match (names.next(), held) {
            (_, AmqpValue::Null) | (None, _) => {}
            (Some(name), held) => into.push(((*name).into(), value(message, held))),
        }
    }
    Ok(())
}

/// The maximum capacity that is reserved before the properties are read.
const PROPERTIES_AT_FIRST: usize = 8;

fn application_properties(
    message: &Bytes,
    section: Section,
    into: &mut Vec<Property>,
) -> Result<(), Malformed> {
    let mut items = Reader::starting(&message[..section.end], section.value).map()?;
    into.reserve((items.left() / 2).min(PROPERTIES_AT_FIRST));
    loop {
        let at = items.at();
        let Some(key) = items.next()? else { return Ok(()) };
        let Some(held) = items.next()? else { return Ok(()) };
        let name = key.text().ok_or(Malformed::new(at, "a property whose name is not text"))?;
        into.push((name.into(), value(message, held)));
    }
}

fn value(message: &Bytes, value: AmqpValue<'_>) -> Value {
    match value {
        AmqpValue::Null => Value::Null,
        AmqpValue::Bool(flag) => Value::Bool(flag),
        AmqpValue::Ubyte(number) => Value::UInt(number.into()),
        AmqpValue::Ushort(number) => Value::UInt(number.into()),
        AmqpValue::Uint(number) => Value::UInt(number.into()),
        AmqpValue::Ulong(number) => Value::UInt(number),
        AmqpValue::Byte(number) => Value::Int(number.into()),
        AmqpValue::Short(number) => Value::Int(number.into()),
        AmqpValue::Int(number) => Value::Int(number.into()),
        AmqpValue::Long(number) => Value::Int(number),
        AmqpValue::Float(number) => Value::Float(number.into()),
        AmqpValue::Double(number) => Value::Float(number),
        AmqpValue::Char(character) => Value::Text((&*character.encode_utf8(&mut [0; 4])).into()),
        AmqpValue::String(text) | AmqpValue::Symbol(text) => Value::Text(text.into()),
        AmqpValue::Timestamp(milliseconds) => Value::Time(Timestamp(milliseconds)),
        AmqpValue::Uuid(bytes) => Value::Uuid(bytes),
        AmqpValue::Binary(bytes) => Value::Bytes(message.slice_ref(bytes)),
        AmqpValue::Encoded(bytes) => Value::Encoded(message.slice_ref(bytes)),
    }
}
