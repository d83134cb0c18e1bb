//! Validates every section of a message, and corrects deviations of known SDKs, so that every client that
//! receives the message can decode it.
//!
//! [`Sections::scan`] finds the sections and checks their outer size. [`validate`] checks their content
//! against the specification (part 3, section 3.2): the fields of the header and of the properties and the
//! keys of maps have the right types, application properties are of simple types, descriptors are numbers or
//! names, nothing is nested deeper than [`MAX_NESTING`](crate::decode::MAX_NESTING) or claims more items than it
//! has bytes, and the whole message has at most [`MAX_EMPTY_ELEMENTS`](crate::check::MAX_EMPTY_ELEMENTS)
//! elements that take no bytes. Some AMQP libraries abort their process on an invalid message, others fail to
//! decode it again after every reconnect, so that a single message would stop all readers of a partition.
//!
//! Strings and symbols are mixed up in practice: Azure's Java SDK and rhea, on which the JavaScript SDK is
//! based, write the keys of a footer as strings, and most readers take both. fe2o3, on which the Rust SDK is
//! based, does not. So [`conform`] gives such text the type of the specification; both types have the same
//! layout. And it moves a footer that rhea wrote before the body.
//!
//! uAMQP, on which Azure's Python SDK was based up to 5.10, writes an application property of bytes as a string.
//! If that is not UTF-8, no other library can read it; `conform` makes it binary, as the sender meant it. And
//! it gives an empty body of data to a message without a body, which not all readers expect. It is not known
//! what the service does with either.
//!
//! rhea writes a body of `null` as data, where the specification has bytes only. `conform` makes it a value, as which
//! the JavaScript SDK gets it back.
//!
//! A list, map or array as an application property is refused, though the service accepts it: there is no type
//! to turn it into, and the .NET and Rust SDKs cannot read it.
//!
//! [`keep_valid`] is for messages that were stored without validation, or by laxer rules.

mod valid_sections;

use std::borrow::Cow;

use crate::check::{EmptyElements, check_within};
use crate::decode::{Items, Malformed, NOT_UTF_8, Reader};
use crate::encode;
use crate::format_codes::{self as code, section};
use crate::message::{Body, BodyKind, NOT_THE_TYPE, Section, Sections};
use crate::value::Value;
pub use valid_sections::keep_valid;

/// How a value fits its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Right,
    /// A string in the place of a symbol, or a symbol in the place of a string.
    OtherText,
    Wrong,
}

impl From<bool> for Fit {
    fn from(right: bool) -> Self {
        if right { Self::Right } else { Self::Wrong }
    }
}

/// Tells how a value fits a field or a key.
type Fits = fn(Value<'_>) -> Fit;

/// The fields of a header: durable, priority, ttl, first-acquirer, delivery-count.
const HEADER: [Fits; 5] = [boolean, ubyte, uint, boolean, uint];

/// The fields of the properties, from message-id to reply-to-group-id.
const PROPERTIES: [Fits; 13] =
    [id, binary, string, string, string, id, symbol, symbol, timestamp, timestamp, string, uint, string];

fn boolean(value: Value<'_>) -> Fit {
    matches!(value, Value::Bool(_)).into()
}

fn ubyte(value: Value<'_>) -> Fit {
    matches!(value, Value::Ubyte(_)).into()
}

fn uint(value: Value<'_>) -> Fit {
    matches!(value, Value::Uint(_)).into()
}

fn binary(value: Value<'_>) -> Fit {
    matches!(value, Value::Binary(_)).into()
}

fn timestamp(value: Value<'_>) -> Fit {
    matches!(value, Value::Timestamp(_)).into()
}

/// A text field, or the key of an application property.
fn string(value: Value<'_>) -> Fit {
    match value {
        Value::String(_) => Fit::Right,
        Value::Symbol(_) => Fit::OtherText,
        _ => Fit::Wrong,
    }
}

/// The content-type or the content-encoding.
fn symbol(value: Value<'_>) -> Fit {
    match value {
        Value::Symbol(_) => Fit::Right,
        Value::String(_) => Fit::OtherText,
        _ => Fit::Wrong,
    }
}

fn id(value: Value<'_>) -> Fit {
    matches!(value, Value::Ulong(_) | Value::Uuid(_) | Value::Binary(_) | Value::String(_)).into()
}

/// A key of annotations or of the footer.
fn annotation_key(value: Value<'_>) -> Fit {
    if matches!(value, Value::Ulong(_)) { Fit::Right } else { symbol(value) }
}

/// True if a well-formed value is of a simple type, as all application properties are: not a list, a map or an
/// array. Azure's .NET and Java SDKs describe simple values: times, durations, addresses.
pub fn is_simple(value: Value<'_>) -> bool {
    match (value, value.described()) {
        (_, Some((_, described))) => is_simple(described),
        (Value::Encoded([format, ..]), None) => {
            matches!(*format, code::DECIMAL_32 | code::DECIMAL_64 | code::DECIMAL_128)
        }
        _ => true,
    }
}

/// The state that the checks of one message's sections share.
#[derive(Default)]
struct Seen {
    empty: EmptyElements,
    /// The places of the format codes of text that has the other type.
    other_text: Vec<usize>,
    /// The places of the format codes of strings that are not UTF-8.
    bytes_as_text: Vec<usize>,
}

impl Seen {
    /// Checks something that can be left out: if it is invalid, it does not count.
    fn attempt(&mut self, check: impl FnOnce(&mut Self) -> Result<(), Malformed>) -> Result<(), Malformed> {
        let (empty, texts, bytes) = (self.empty, self.other_text.len(), self.bytes_as_text.len());
        let checked = check(self);
        if checked.is_err() {
            self.empty = empty;
            self.other_text.truncate(texts);
            self.bytes_as_text.truncate(bytes);
        }
        checked
    }

    fn fit(&mut self, fit: Fit, at: usize, what: &'static str) -> Result<(), Malformed> {
        match fit {
            Fit::Right => {}
            Fit::OtherText => self.other_text.push(at),
            Fit::Wrong => return Err(Malformed::new(at, what)),
        }
        Ok(())
    }

    /// The message with the right type of each text, and of bytes that were written as text.
    fn corrected<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        /// The differences between the format codes of strings and symbols, and of strings and binary, of
        /// both lengths.
        const OTHER_TEXT: u8 = code::STRING_8 ^ code::SYMBOL_8;
        const BYTES_AS_TEXT: u8 = code::STRING_8 ^ code::BINARY_8;
        let mut corrected = Cow::Borrowed(message);
        for at in &self.other_text {
            corrected.to_mut()[*at] ^= OTHER_TEXT;
        }
        for at in &self.bytes_as_text {
            corrected.to_mut()[*at] ^= BYTES_AS_TEXT;
        }
        corrected
    }
}

/// Finds the sections of a message, and checks everything in them. A body of bytes is not checked.
pub fn validate(message: &[u8]) -> Result<Sections, Malformed> {
    let (found, seen) = check_sections(message)?;
    if let Some(footer) = found.early_footer() {
        return Err(Malformed::new(footer.start, "a footer before the body"));
    }
    if found.body.sections == 0 {
        return Err(Malformed::new(found.body.whole.start, "a message without a body"));
    }
    if let Some(at) = seen.bytes_as_text.first() {
        return Err(Malformed::new(*at, NOT_UTF_8));
    }
    match seen.other_text.first() {
        None => Ok(found),
        Some(at) => {
            Err(Malformed::new(*at, "a string in the place of a symbol, or a symbol in that of a string"))
        }
    }
}

/// Returns the message as [`validate`] accepts it, with the right type of each text, the footer at its end and a
/// body; see above. It is as long as before, but for an empty body, and unchanged if it was valid.
pub fn conform(message: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    let (found, seen) = match check_sections(message) {
        Err(malformed) if is_null_data(message, malformed) => {
            let mut value = message.to_vec();
            value[malformed.at - 1] = section::AMQP_VALUE;
            return Ok(Cow::Owned(conform_sections(&value)?.into_owned()));
        }
        checked => checked?,
    };
    Ok(conformed(message, &found, &seen))
}

/// True if the message was refused because of a section of data that holds null: `00 53 75 40`.
fn is_null_data(message: &[u8], malformed: Malformed) -> bool {
    let start = malformed.at.checked_sub(3).filter(|_| malformed.what == NOT_THE_TYPE);
    let found = start.and_then(|start| message.get(start..=malformed.at));
    found == Some(&[code::DESCRIBED, code::SMALL_ULONG, section::DATA, code::NULL])
}

fn conform_sections(message: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    let (found, seen) = check_sections(message)?;
    Ok(conformed(message, &found, &seen))
}

fn conformed<'a>(message: &'a [u8], found: &Sections, seen: &Seen) -> Cow<'a, [u8]> {
    let mut conforming = seen.corrected(message);
    if let Some(footer) = found.early_footer() {
        conforming.to_mut()[footer.start..found.body.whole.end].rotate_left(footer.whole().len());
    }
    if found.body.sections == 0 {
        let message = conforming.to_mut();
        let after = message.split_off(found.body.whole.start);
        message.extend(as_data(&[]).into_iter().chain(after));
    }
    conforming
}

fn check_sections(message: &[u8]) -> Result<(Sections, Seen), Malformed> {
    let found = Sections::scan(message)?;
    let mut seen = Seen::default();
    for (section, check) in around_the_body(&found) {
        check(&message[..section.end], section, &mut seen)?;
    }
    check_body(message, &found.body, &mut seen)?;
    Ok((found, seen))
}

/// Checks a section, which ends where the bytes do.
type Check = fn(&[u8], Section, &mut Seen) -> Result<(), Malformed>;

fn around_the_body(found: &Sections) -> impl Iterator<Item = (Section, Check)> {
    let sections: [(Option<Section>, Check); 6] = [
        (found.header, |bytes, section, seen| fields(bytes, section, &HEADER, seen)),
        (found.delivery_annotations, |bytes, section, seen| pairs(bytes, section, annotation, seen)),
        (found.message_annotations, |bytes, section, seen| pairs(bytes, section, annotation, seen)),
        (found.properties, |bytes, section, seen| fields(bytes, section, &PROPERTIES, seen)),
        (found.application_properties, |bytes, section, seen| pairs(bytes, section, property, seen)),
        (found.footer, |bytes, section, seen| pairs(bytes, section, annotation, seen)),
    ];
    sections.into_iter().filter_map(|(section, check)| Some((section?, check)))
}

/// A list of fields, each of its own type or null.
fn fields(bytes: &[u8], section: Section, types: &[Fits], seen: &mut Seen) -> Result<(), Malformed> {
    let mut items = Reader::starting(bytes, section.value).list()?;
    if items.left() > types.len() {
        return Err(Malformed::new(section.value, "more fields than this section has"));
    }
    for fits in types {
        let at = items.at();
        match items.next()? {
            None => return Ok(()),
            Some(Value::Null) => {}
            Some(value) => seen.fit(fits(value), at, "not the type of this field")?,
        }
    }
    items.next().map(drop)
}

/// Checks the next key and value of a map; false after the last.
type Pair = fn(&mut Items<'_>, &mut Seen) -> Result<bool, Malformed>;

fn pairs(bytes: &[u8], section: Section, pair: Pair, seen: &mut Seen) -> Result<(), Malformed> {
    let mut items = Reader::starting(bytes, section.value).map()?;
    while pair(&mut items, seen)? {}
    Ok(())
}

/// A pair of annotations or of a footer.
fn annotation(items: &mut Items<'_>, seen: &mut Seen) -> Result<bool, Malformed> {
    if !key(items, annotation_key, seen)? {
        return Ok(false);
    }
    let at = items.at();
    let Some(value) = items.next()? else { return Ok(false) };
    check_value(value, at, seen)?;
    Ok(true)
}

fn property(items: &mut Items<'_>, seen: &mut Seen) -> Result<bool, Malformed> {
    if !key(items, string, seen)? {
        return Ok(false);
    }
    let (at, format) = (items.at(), items.peek());
    match items.next() {
        Ok(None) => Ok(false),
        Ok(Some(held)) => {
            check_value(held, at, seen)?;
            if is_simple(held) {
                return Ok(true);
            }
            let what = "a list, map or array as an application property; these have simple types only";
            Err(Malformed::new(at, what))
        }
        // It has been consumed.
        Err(malformed)
            if malformed.what == NOT_UTF_8 && matches!(format, Some(code::STRING_8 | code::STRING_32)) =>
        {
            seen.bytes_as_text.push(at);
            Ok(true)
        }
        Err(malformed) => Err(malformed),
    }
}

/// Checks the next key; false after the last pair.
fn key(items: &mut Items<'_>, is_key: Fits, seen: &mut Seen) -> Result<bool, Malformed> {
    let at = items.at();
    let Some(key) = items.next()? else { return Ok(false) };
    seen.fit(is_key(key), at, "not the type of a key of this section")?;
    Ok(true)
}

/// Checks a value of a map.
fn check_value(value: Value<'_>, at: usize, seen: &mut Seen) -> Result<(), Malformed> {
    match value {
        Value::Encoded(encoded) => check_at(encoded, at, seen),
        _ => Ok(()),
    }
}

fn check_body(message: &[u8], body: &Body, seen: &mut Seen) -> Result<(), Malformed> {
    if body.kind == BodyKind::Data {
        return Ok(());
    }
    let mut reader = Reader::starting(&message[..body.whole.end], body.whole.start);
    while !reader.is_empty() {
        let range = reader.skip()?;
        let at = range.start;
        check_at(&message[range], at, seen)?;
    }
    Ok(())
}

/// Checks a value that begins at this place of the message.
fn check_at(value: &[u8], at: usize, seen: &mut Seen) -> Result<(), Malformed> {
    check_within(value, &mut seen.empty).map_err(|inside| Malformed::new(at + inside.at, inside.what))
}

fn as_data(bytes: &[u8]) -> Vec<u8> {
    /// The descriptor, the format code and the length.
    const HEAD: usize = 8;
    let mut data = Vec::with_capacity(HEAD + bytes.len());
    encode::described(&mut data, section::DATA.into());
    encode::binary(&mut data, bytes);
    data
}
