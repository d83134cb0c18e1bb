//! Validates every section of a message, so that all its readers can decode all of it.
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
//! A list, map or array as an application property is refused, though the service accepts it: there is no type
//! to turn it into, and the .NET and Rust SDKs cannot read it.
//!
//! [`keep_valid`] is for messages that were stored without validation, or by laxer rules.

use std::borrow::Cow;
use std::ops::Range;

use crate::check::{EmptyElements, check_within};
use crate::code::{self, section};
use crate::decode::{Items, Malformed, Reader};
use crate::encode;
use crate::message::{Body, BodyKind, Section, Sections};
use crate::value::Value;

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

/// What the sections of one message share.
#[derive(Default)]
struct Seen {
    empty: EmptyElements,
    /// The places of the format codes of text that has the other type.
    other_text: Vec<usize>,
}

impl Seen {
    /// Checks something that can be left out: if it is invalid, it does not count.
    fn attempt(&mut self, check: impl FnOnce(&mut Self) -> Result<(), Malformed>) -> Result<(), Malformed> {
        let (empty, texts) = (self.empty, self.other_text.len());
        let checked = check(self);
        if checked.is_err() {
            self.empty = empty;
            self.other_text.truncate(texts);
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

    /// The message with the right type of each text.
    fn corrected<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        /// The difference between the format codes of strings and symbols, of both lengths.
        const OTHER_TEXT: u8 = code::STRING_8 ^ code::SYMBOL_8;
        let mut corrected = Cow::Borrowed(message);
        for at in &self.other_text {
            corrected.to_mut()[*at] ^= OTHER_TEXT;
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
    match seen.other_text.first() {
        None => Ok(found),
        Some(at) => {
            Err(Malformed::new(*at, "a string in the place of a symbol, or a symbol in that of a string"))
        }
    }
}

/// Returns the message as [`validate`] accepts it, with the right type of each text and the footer at its end;
/// see above. It is as long as before, and unchanged if it was valid.
pub fn conform(message: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    let (found, seen) = check_sections(message)?;
    let mut conforming = seen.corrected(message);
    if let Some(footer) = found.early_footer() {
        conforming.to_mut()[footer.start..found.body.whole.end].rotate_left(footer.whole().len());
    }
    Ok(conforming)
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

/// The part of a section or of a body that is kept.
enum Kept {
    Whole(Range<usize>),
    /// The encoding becomes the content of a data section.
    AsData(Range<usize>),
    /// Some pairs of the application properties.
    Pairs(Vec<Range<usize>>),
}

/// Returns a valid message in place of `message`, and the error of `message`, if something was left out.
///
/// Text gets its right type, as by [`conform`]. Sections that cannot be decoded are left out; of the
/// application properties only the invalid ones, if the others can be told apart. A body that cannot be
/// decoded becomes a data section with its encoding; so does a message whose sections cannot be told apart.
pub fn keep_valid(message: &[u8]) -> (Cow<'_, [u8]>, Option<Malformed>) {
    let malformed = match conform(message) {
        Ok(conforming) => return (conforming, None),
        Err(malformed) => malformed,
    };
    let Ok(found) = Sections::scan(message) else {
        return (Cow::Owned(as_data(message)), Some(malformed));
    };
    let mut seen = Seen::default();
    // If there are too many elements without bytes, the body is kept rather than what is around it.
    let body = found.body.whole.clone();
    let mut pieces = vec![match seen.attempt(|seen| check_body(message, &found.body, seen)) {
        Ok(()) => (body.start, Kept::Whole(body)),
        Err(_) => (body.start, Kept::AsData(body)),
    }];
    for (section, check) in around_the_body(&found) {
        let bytes = &message[..section.end];
        let kept = match seen.attempt(|seen| check(bytes, section, seen)) {
            Ok(()) => Kept::Whole(section.whole()),
            Err(_) if found.application_properties == Some(section) => {
                match valid_pairs(bytes, section, &mut seen) {
                    Ok(pairs) if !pairs.is_empty() => Kept::Pairs(pairs),
                    _ => continue,
                }
            }
            Err(_) => continue,
        };
        // A footer before the body goes right after it.
        let early = found.early_footer() == Some(section);
        pieces.push((if early { found.body.whole.start + 1 } else { section.start }, kept));
    }
    pieces.sort_by_key(|(start, _)| *start);
    let corrected = seen.corrected(message);
    let mut kept = Vec::with_capacity(message.len());
    for (_, piece) in pieces {
        match piece {
            Kept::Whole(range) => kept.extend_from_slice(&corrected[range]),
            Kept::AsData(range) => kept.extend(as_data(&corrected[range])),
            Kept::Pairs(pairs) => {
                encode::described(&mut kept, section::APPLICATION_PROPERTIES.into());
                let map = encode::begin(&mut kept);
                pairs.iter().for_each(|pair| kept.extend_from_slice(&corrected[pair.clone()]));
                encode::end_map(&mut kept, map, pairs.len());
            }
        }
    }
    (Cow::Owned(kept), Some(malformed))
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

/// The places of those application properties that are valid.
fn valid_pairs(bytes: &[u8], section: Section, seen: &mut Seen) -> Result<Vec<Range<usize>>, Malformed> {
    let mut items = Reader::starting(bytes, section.value).map()?;
    let mut valid = Vec::new();
    loop {
        let (start, mut checked) = (items.at(), items.clone());
        if items.next()?.is_none() {
            return Ok(valid);
        }
        items.next()?;
        if seen.attempt(|seen| property(&mut checked, seen).map(drop)).is_ok() {
            valid.push(start..items.at());
        }
    }
}

/// A pair of annotations or of a footer.
fn annotation(items: &mut Items<'_>, seen: &mut Seen) -> Result<bool, Malformed> {
    Ok(pair(items, annotation_key, seen)?.is_some())
}

fn property(items: &mut Items<'_>, seen: &mut Seen) -> Result<bool, Malformed> {
    match pair(items, string, seen)? {
        None => Ok(false),
        Some((_, value)) if is_simple(value) => Ok(true),
        Some((at, _)) => Err(Malformed::new(
            at,
            "a list, map or array as an application property; these have simple types only",
        )),
    }
}

/// Checks a key and a value, and returns the value and its place.
fn pair<'a>(
    items: &mut Items<'a>,
    is_key: Fits,
    seen: &mut Seen,
) -> Result<Option<(usize, Value<'a>)>, Malformed> {
    let at = items.at();
    let Some(key) = items.next()? else { return Ok(None) };
    seen.fit(is_key(key), at, "not the type of a key of this section")?;
    let at = items.at();
    let Some(value) = items.next()? else { return Ok(None) };
    if let Value::Encoded(encoded) = value {
        check_at(encoded, at, seen)?;
    }
    Ok(Some((at, value)))
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
