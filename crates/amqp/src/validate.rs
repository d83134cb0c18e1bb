//! Validates every section of a message, so that all its readers can decode all of it.
//!
//! [`Sections::scan`] finds the sections and checks their outer size. [`validate`] checks their content
//! against the specification (part 3, section 3.2): the fields of the header and of the properties have the
//! right types, the keys of maps are names, and nothing is nested deeper than
//! [`MAX_NESTING`](crate::decode::MAX_NESTING) or claims more items than it has bytes. Some AMQP libraries
//! abort their process on an invalid message, others fail to decode it again after every reconnect, so that a
//! single message would stop all readers of a partition.
//!
//! [`keep_valid`] is for messages that were stored without validation.

use std::borrow::Cow;

use crate::check::check;
use crate::code::section;
use crate::decode::{Malformed, Reader};
use crate::encode;
use crate::message::{Body, BodyKind, Section, Sections};
use crate::value::Value;

/// True if a field may have this value.
type Accepts = fn(Value<'_>) -> bool;

/// The fields of a header: durable, priority, ttl, first-acquirer, delivery-count.
const HEADER: [Accepts; 5] = [boolean, ubyte, uint, boolean, uint];

/// The fields of the properties, from message-id to reply-to-group-id.
const PROPERTIES: [Accepts; 13] =
    [id, binary, text, text, text, id, text, text, timestamp, timestamp, text, uint, text];

fn boolean(value: Value<'_>) -> bool {
    matches!(value, Value::Bool(_))
}

fn ubyte(value: Value<'_>) -> bool {
    matches!(value, Value::Ubyte(_))
}

fn uint(value: Value<'_>) -> bool {
    matches!(value, Value::Uint(_))
}

fn binary(value: Value<'_>) -> bool {
    matches!(value, Value::Binary(_))
}

fn timestamp(value: Value<'_>) -> bool {
    matches!(value, Value::Timestamp(_))
}

/// A string or a symbol. The specification allows only one of them for each field; libraries mix them up and
/// read both.
fn text(value: Value<'_>) -> bool {
    value.text().is_some()
}

fn id(value: Value<'_>) -> bool {
    matches!(value, Value::Ulong(_) | Value::Uuid(_) | Value::Binary(_) | Value::String(_))
}

/// A key of annotations or of the footer.
fn annotation_key(value: Value<'_>) -> bool {
    matches!(value, Value::Symbol(_) | Value::String(_) | Value::Ulong(_))
}

/// Finds the sections of a message, and checks everything in them. A body of bytes is not checked.
pub fn validate(message: &[u8]) -> Result<Sections, Malformed> {
    let found = Sections::scan(message)?;
    for (section, validate) in around_the_body(&found) {
        validate(&message[..section.end], section)?;
    }
    validate_body(message, &found.body)?;
    Ok(found)
}

/// Returns a valid message in place of `message`, and the error of `message`, if it was not valid.
///
/// Sections that cannot be decoded are left out. A body that cannot be decoded becomes a data section with
/// its encoding; so does a message whose sections cannot be told apart.
pub fn keep_valid(message: &[u8]) -> (Cow<'_, [u8]>, Option<Malformed>) {
    let Err(malformed) = validate(message) else { return (Cow::Borrowed(message), None) };
    let Ok(found) = Sections::scan(message) else {
        return (Cow::Owned(as_data(message)), Some(malformed));
    };
    let mut pieces: Vec<(usize, Cow<'_, [u8]>)> = around_the_body(&found)
        .filter(|(section, validate)| validate(&message[..section.end], *section).is_ok())
        .map(|(section, _)| (section.start, Cow::Borrowed(&message[section.whole()])))
        .collect();
    let body = &message[found.body.whole.clone()];
    let body = match validate_body(message, &found.body) {
        Ok(()) => Cow::Borrowed(body),
        Err(_) => Cow::Owned(as_data(body)),
    };
    pieces.push((found.body.whole.start, body));
    pieces.sort_by_key(|(start, _)| *start);
    let kept: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
    (Cow::Owned(kept), Some(malformed))
}

/// Validates a section, which ends where the bytes do.
type Validate = fn(&[u8], Section) -> Result<(), Malformed>;

fn around_the_body(found: &Sections) -> impl Iterator<Item = (Section, Validate)> {
    let sections: [(Option<Section>, Validate); 6] = [
        (found.header, |bytes, section| fields(bytes, section, &HEADER)),
        (found.delivery_annotations, |bytes, section| pairs(bytes, section, annotation_key)),
        (found.message_annotations, |bytes, section| pairs(bytes, section, annotation_key)),
        (found.properties, |bytes, section| fields(bytes, section, &PROPERTIES)),
        (found.application_properties, |bytes, section| pairs(bytes, section, text)),
        (found.footer, |bytes, section| pairs(bytes, section, annotation_key)),
    ];
    sections.into_iter().filter_map(|(section, validate)| Some((section?, validate)))
}

/// A list of fields, each of its own type or null.
fn fields(bytes: &[u8], section: Section, types: &[Accepts]) -> Result<(), Malformed> {
    let mut items = Reader::starting(bytes, section.value).list()?;
    if items.left() > types.len() {
        return Err(Malformed::new(section.value, "more fields than this section has"));
    }
    for accepts in types {
        let at = items.at();
        match items.next()? {
            None => return Ok(()),
            Some(Value::Null) => {}
            Some(value) if accepts(value) => {}
            Some(_) => return Err(Malformed::new(at, "not the type of this field")),
        }
    }
    items.next().map(drop)
}

/// A map with keys of one kind and any values.
fn pairs(bytes: &[u8], section: Section, is_key: Accepts) -> Result<(), Malformed> {
    let mut items = Reader::starting(bytes, section.value).map()?;
    loop {
        let at = items.at();
        let Some(key) = items.next()? else { return Ok(()) };
        if !is_key(key) {
            return Err(Malformed::new(at, "not the type of a key of this section"));
        }
        let at = items.at();
        if let Some(Value::Encoded(value)) = items.next()? {
            check(value).map_err(|inside| Malformed::new(at + inside.at, inside.what))?;
        }
    }
}

fn validate_body(message: &[u8], body: &Body) -> Result<(), Malformed> {
    if body.kind == BodyKind::Data {
        return Ok(());
    }
    let mut reader = Reader::starting(&message[..body.whole.end], body.whole.start);
    while !reader.is_empty() {
        let range = reader.skip()?;
        let at = range.start;
        check(&message[range]).map_err(|inside| Malformed::new(at + inside.at, inside.what))?;
    }
    Ok(())
}

fn as_data(bytes: &[u8]) -> Vec<u8> {
    /// The descriptor, the format code and the length.
    const HEAD: usize = 8;
    let mut data = Vec::with_capacity(HEAD + bytes.len());
    encode::described(&mut data, section::DATA.into());
    encode::binary(&mut data, bytes);
    data
}
