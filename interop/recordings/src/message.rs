//! Flattens a message to a map from section and field to text, with the AMQP type of each value.

use ephor_amqp::format_codes::section;
use ephor_amqp::{Encoded, Malformed, Reader, Value};

use crate::fields::{Fields, join};
use crate::normalize_text::normalized;

const HEADER: [&str; 5] = ["durable", "priority", "ttl", "first-acquirer", "delivery-count"];
const PROPERTIES: [&str; 13] = [
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
];

/// Times after this one depend on the run; earlier ones stand for "never". 2001, in milliseconds since 1970.
const FIRST_REAL_TIME: i64 = 1_000_000_000_000;
/// The longest text that is shown whole, in bytes.
const MAX_SHOWN: usize = 300;

/// The positions and times of an event, which depend on the run and are needed to translate filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Offsets by the path of the field.
    pub(crate) offsets: Vec<(String, String)>,
    /// Times by the path of the field, in milliseconds since 1970.
    pub(crate) times: Vec<(String, i64)>,
    /// The sequence number.
    pub(crate) sequence: Option<i64>,
    /// The partition key.
    pub(crate) key: Option<String>,
}

/// The fields of a message, and what depends on the run.
pub(crate) fn flatten(message: &[u8]) -> Result<(Fields, Marks), Malformed> {
    let mut flat = Flat::default();
    let mut reader = Reader::new(message);
    let mut bodies = 0;
    while !reader.is_empty() {
        let Value::Encoded(encoded) = reader.value()? else {
            return Err(Malformed::new(reader.at(), "not a section"));
        };
        let Some((Value::Ulong(code), value)) = Value::Encoded(encoded).described() else {
            return Err(Malformed::new(reader.at(), "not a section"));
        };
        match u8::try_from(code).unwrap_or(0) {
            section::HEADER => flat.list("header", &HEADER, value)?,
            section::DELIVERY_ANNOTATIONS => flat.section("delivery-annotations", value),
            section::MESSAGE_ANNOTATIONS => flat.section("message-annotations", value),
            section::PROPERTIES => flat.list("properties", &PROPERTIES, value)?,
            section::APPLICATION_PROPERTIES => flat.section("application-properties", value),
            section::DATA => flat.body(&mut bodies, "data", value),
            section::AMQP_SEQUENCE => flat.body(&mut bodies, "sequence", value),
            section::AMQP_VALUE => flat.body(&mut bodies, "value", value),
            section::FOOTER => flat.section("footer", value),
            other => flat.put(format!("section {other:#x}"), "present".to_owned()),
        }
    }
    Ok((flat.fields, flat.marks))
}

/// The bytes of a message that a hub does not change: its application properties and its body.
pub(crate) fn content(message: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut reader = Reader::new(message);
    while let Ok(range) = reader.skip() {
        let encoded = &message[range];
        let code = Value::Encoded(encoded).described().and_then(|(code, _)| code.integer());
        if code.is_some_and(|code| (0x74..0x78).contains(&code)) {
            kept.extend_from_slice(encoded);
        }
        if reader.is_empty() {
            break;
        }
    }
    kept
}

#[derive(Default)]
struct Flat {
    fields: Fields,
    marks: Marks,
}

impl Flat {
    fn put(&mut self, path: String, value: String) {
        self.fields.insert(path, value);
    }

    fn list(&mut self, path: &str, names: &[&str], value: Value<'_>) -> Result<(), Malformed> {
        let Value::Encoded(list) = value else { return Ok(()) };
        let mut items = Reader::new(list).list()?;
        for name in names {
            match items.next()? {
                Some(value) => self.value(join(path, name), value),
                None => break,
            }
        }
        Ok(())
    }

    /// A section with a map, whose presence is compared even if it is empty.
    fn section(&mut self, path: &str, value: Value<'_>) {
        self.put(path.to_owned(), "present".to_owned());
        self.value(path.to_owned(), value);
    }

    fn body(&mut self, bodies: &mut usize, kind: &str, value: Value<'_>) {
        let path = match *bodies {
            0 => format!("body.{kind}"),
            number => format!("body{number}.{kind}"),
        };
        *bodies += 1;
        match value {
            Value::Null => self.put(path, "null".to_owned()),
            value => self.value(path, value),
        }
    }

    fn value(&mut self, path: String, value: Value<'_>) {
        let text = match value {
            // An absent field and one that is null mean the same.
            Value::Null => return,
            Value::Timestamp(time) if time >= FIRST_REAL_TIME => {
                self.marks.times.push((path.clone(), time));
                "timestamp …".to_owned()
            }
            Value::String(text)
                if path.ends_with("offset") && text.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                self.marks.offsets.push((path.clone(), text.to_owned()));
                "string offset".to_owned()
            }
            Value::Long(number) if path.ends_with("x-opt-sequence-number") => {
                self.marks.sequence = Some(number);
                format!("long {number}")
            }
            Value::String(text) => {
                if path.ends_with("x-opt-partition-key") {
                    self.marks.key = Some(text.to_owned());
                }
                format!("string {:?}", shown(normalized(text)))
            }
            Value::Symbol(text) => format!("symbol {:?}", shown(normalized(text))),
            Value::Uuid(_) => "uuid …".to_owned(),
            Value::Binary(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if text.len() <= MAX_SHOWN => format!("binary {text:?}"),
                _ => format!("binary of {} bytes, CRC {:08x}", bytes.len(), crc32c::crc32c(bytes)),
            },
            Value::Encoded(bytes) => return self.compound(path, value, bytes),
            value => simple(value),
        };
        self.put(path, text);
    }

    fn compound(&mut self, path: String, value: Value<'_>, bytes: &[u8]) {
        if let Some((descriptor, value)) = value.described() {
            self.value(join(&path, "descriptor"), descriptor);
            return self.value(join(&path, "value"), value);
        }
        if Reader::new(bytes).map().is_ok()
            && let Ok(encoded) = Encoded::copy(bytes)
        {
            for (key, value) in encoded.entries() {
                let key = key.text().map_or_else(|| format!("{key:?}"), str::to_owned);
                self.value(join(&path, &key), value);
            }
            return;
        }
        let names: Vec<_> = match Encoded::copy(bytes) {
            Ok(encoded) => encoded.names().map(str::to_owned).collect(),
            Err(_) => Vec::new(),
        };
        let text = match names.is_empty() {
            false => format!("array {}", names.join(" ")),
            true => format!("{} encoded bytes, CRC {:08x}", bytes.len(), crc32c::crc32c(bytes)),
        };
        self.put(path, text);
    }
}

/// A value with the name of its type.
fn simple(value: Value<'_>) -> String {
    let text = format!("{value:?}");
    match text.split_once('(') {
        Some((kind, rest)) => format!("{} {}", kind.to_lowercase(), rest.trim_end_matches(')')),
        None => text.to_lowercase(),
    }
}

fn shown(text: String) -> String {
    if text.len() <= MAX_SHOWN {
        return text;
    }
    let end = (0..=MAX_SHOWN).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}… ({} bytes)", &text[..end], text.len())
}
