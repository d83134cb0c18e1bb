//! Flattens a frame to a map from field to text, the same way for a recorded frame and for one from the
//! wire.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ephor_amqp::{Encoded, Malformed, Reader, Value};
use serde_json::Value as Json;

use crate::normalize_text::normalized;
use crate::schema::{Field, Kind, Performative};

/// The fields of an answer: paths such as `source.address`, and their values. Absent fields are not listed.
pub(crate) type Fields = BTreeMap<String, String>;

/// The value of a field of which only the presence is compared.
pub(crate) const PRESENT: &str = "present";

/// The fields of a recorded frame.
pub(crate) fn of_recorded(performative: &Performative, body: &Json) -> Fields {
    let mut fields = Fields::new();
    recorded_fields("", performative.fields, body, &mut fields);
    fields
}

fn recorded_fields(path: &str, schema: &[Field], body: &Json, into: &mut Fields) {
    for field in schema {
        let path = join(path, field.name);
        let value = body.get(field.recorded).unwrap_or(&Json::Null);
        match field.kind {
            Kind::Skipped => {}
            _ if value.is_null() => default(field, path, into),
            Kind::Plain => recorded_plain(path, value, into),
            Kind::Id => put(into, path, PRESENT),
            Kind::Duration => {
                put(into, path, (value.as_u64().unwrap_or(0) / 1_000_000).to_string());
            }
            Kind::Bytes => {
                let bytes = BASE64.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
                put(into, path, String::from_utf8_lossy(&bytes));
            }
            Kind::Nested(schema) => {
                put(into, path.clone(), PRESENT);
                recorded_fields(&path, schema, value, into);
            }
            // The recorder writes outcomes without fields as an empty object: accepted and released look the same, and
            // only accepted occurs.
            Kind::State => match value.get("Error") {
                Some(error) => recorded_plain(join(&path, "rejected"), error, into),
                None => put(into, path, "accepted"),
            },
        }
    }
}

fn recorded_plain(path: String, value: &Json, into: &mut Fields) {
    match value {
        Json::Null => {}
        Json::Bool(value) => put(into, path, value.to_string()),
        Json::Number(number) => put(into, path, number.to_string()),
        Json::String(text) => put(into, path, normalized(text)),
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| item.as_str().unwrap_or("?")).collect();
            put(into, path, items.join(" "));
        }
        Json::Object(map) => {
            for (key, value) in map {
                let key = match key.as_str() {
                    "Descriptor" => "descriptor",
                    "Value" => "value",
                    key => key,
                };
                recorded_plain(join(&path, key), value, into);
            }
        }
    }
}

/// The fields of a performative's list from the wire.
pub(crate) fn of_wire(performative: &Performative, list: &[u8]) -> Result<Fields, Malformed> {
    let mut fields = Fields::new();
    wire_fields("", performative.fields, list, &mut fields)?;
    Ok(fields)
}

fn wire_fields(path: &str, schema: &[Field], list: &[u8], into: &mut Fields) -> Result<(), Malformed> {
    let mut items = Reader::new(list).list()?;
    for field in schema {
        let path = join(path, field.name);
        let value = items.next()?.unwrap_or(Value::Null);
        match (field.kind, value) {
            (Kind::Skipped, _) => {}
            (_, Value::Null) => default(field, path, into),
            (Kind::Id, _) => put(into, path, PRESENT),
            (Kind::Nested(schema), value) => match value.described() {
                Some((_, Value::Encoded(list))) => {
                    put(into, path.clone(), PRESENT);
                    wire_fields(&path, schema, list, into)?;
                }
                _ => put(into, path, "not a list with a descriptor"),
            },
            (Kind::State, value) => state(path, value, into)?,
            (Kind::Plain | Kind::Duration | Kind::Bytes, value) => wire_plain(path, value, into),
        }
    }
    Ok(())
}

fn state(path: String, value: Value<'_>, into: &mut Fields) -> Result<(), Malformed> {
    const ACCEPTED: Value<'_> = Value::Ulong(0x24);
    const REJECTED: Value<'_> = Value::Ulong(0x25);
    match value.described() {
        Some((ACCEPTED, _)) => put(into, path, "accepted"),
        Some((REJECTED, Value::Encoded(list))) => {
            let path = join(&path, "rejected");
            match Reader::new(list).list()?.next()?.and_then(Value::described) {
                Some((_, Value::Encoded(error))) => {
                    let mut error = Reader::new(error).list()?;
                    for name in ["Condition", "Description"] {
                        wire_plain(join(&path, name), error.next()?.unwrap_or(Value::Null), into);
                    }
                }
                _ => put(into, path, PRESENT),
            }
        }
        Some((Value::Ulong(other), _)) => put(into, path, format!("state {other:#x}")),
        _ => put(into, path, "not a state"),
    }
    Ok(())
}

fn wire_plain(path: String, value: Value<'_>, into: &mut Fields) {
    match value {
        Value::Null => {}
        Value::Bool(value) => put(into, path, value.to_string()),
        Value::Ulong(number) => put(into, path, number.to_string()),
        Value::String(text) | Value::Symbol(text) => put(into, path, normalized(text)),
        Value::Binary(bytes) => put(into, path, String::from_utf8_lossy(bytes)),
        Value::Encoded(bytes) => wire_compound(path, value, bytes, into),
        value => match value.integer() {
            Some(number) => put(into, path, number.to_string()),
            None => put(into, path, format!("{value:?}")),
        },
    }
}

fn wire_compound(path: String, value: Value<'_>, bytes: &[u8], into: &mut Fields) {
    if let Some((descriptor, value)) = value.described() {
        wire_plain(join(&path, "descriptor"), descriptor, into);
        return wire_plain(join(&path, "value"), value, into);
    }
    let Ok(encoded) = Encoded::copy(bytes) else { return put(into, path, "malformed") };
    if Reader::new(bytes).map().is_ok() {
        for (key, value) in encoded.entries() {
            wire_plain(join(&path, key.text().unwrap_or("?")), value, into);
        }
        return;
    }
    put(into, path, encoded.names().collect::<Vec<_>>().join(" "));
}

fn default(field: &Field, path: String, into: &mut Fields) {
    if !field.default.is_empty() {
        put(into, path, field.default);
    }
}

/// Recordings show an absent text as an empty one, so neither is listed.
fn put(into: &mut Fields, path: String, value: impl Into<String>) {
    let value = value.into();
    if !value.is_empty() {
        into.insert(path, value);
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
