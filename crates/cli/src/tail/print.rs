//! Formats an event as one line: text for people, or JSON for programs.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ephor_core::event::{Event, Properties, Value};
use ephor_core::ids::PartitionId;
use serde_json::{Map, Value as Json, json};

pub(super) fn line(partition: PartitionId, event: &Event) -> String {
    let mut line = format!("{} {partition}/{}", event.enqueued_at, event.sequence);
    if let Some(key) = event.partition_key.as_deref() {
        line.push_str(" key=");
        push_visible(&mut line, key);
    }
    line.push(' ');
    match event.text() {
        Some(text) => push_visible(&mut line, text),
        // Writing to a string does not fail.
        None => drop(write!(line, "({} bytes)", event.body.len())),
    }
    line
}

/// All fields of the event. A body that is not text is `body_base64` instead of `body`.
pub(super) fn json(partition: PartitionId, event: &Event) -> Json {
    let mut object = json!({
        "partition": partition.0,
        "sequence": event.sequence.0,
        "offset": event.offset.to_string(),
        "enqueued_at": event.enqueued_at.to_string(),
        "key": event.partition_key.as_deref(),
        "properties": properties(&event.properties),
        "system_properties": properties(&event.system_properties),
    });
    match event.text() {
        Some(text) => object["body"] = text.into(),
        None => object["body_base64"] = BASE64.encode(&event.body).into(),
    }
    object
}

fn properties(properties: &Properties) -> Json {
    let fields = properties.iter().map(|(name, value)| (name.to_string(), property(value)));
    Json::Object(fields.collect::<Map<_, _>>())
}

/// The JSON type of the value, if there is one; otherwise text.
fn property(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Int(number) => (*number).into(),
        Value::UInt(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Text(text) => text.as_ref().into(),
        Value::Time(time) => time.to_string().into(),
        Value::Uuid(bytes) => uuid(bytes).into(),
        Value::Bytes(bytes) | Value::Encoded(bytes) => BASE64.encode(bytes).into(),
        // A kind that does not exist yet.
        _ => Json::Null,
    }
}

/// `00112233-4455-6677-8899-aabbccddeeff`
fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

/// Escapes line breaks and terminal control characters.
fn push_visible(line: &mut String, text: &str) {
    for letter in text.chars() {
        match letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
            true => line.extend(letter.escape_default()),
            false => line.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::event::NewEvent;
    use ephor_core::position::{Offset, SequenceNumber};
    use ephor_core::time::Timestamp;

    use super::*;

    #[test]
    fn in_json_nothing_of_an_event_is_missing() {
        let properties: [(&str, Value); 5] = [
            ("text", "é\n".into()),
            ("count", Value::UInt(u64::MAX)),
            ("bytes", Value::Bytes(vec![255, 0].into())),
            ("id", Value::Uuid([0x11; 16])),
            ("at", Value::Time(Timestamp(0))),
        ];
        let sent = NewEvent {
            properties: properties.into_iter().collect(),
            ..NewEvent::new("two\nlines").with_key("home-7")
        };
        let at = Timestamp(1_700_000_000_123);
        let mut event = Event::stored(SequenceNumber(7), Offset::new("288"), at, sent);
        let shown = json(PartitionId(3), &event).to_string();
        assert!(!shown.contains('\n'), "{shown}");
        assert_eq!(
            serde_json::from_str::<Json>(&shown).unwrap(),
            json!({
                "partition": 3, "sequence": 7, "offset": "288", "enqueued_at": "2023-11-14T22:13:20.123Z",
                "key": "home-7", "body": "two\nlines", "system_properties": {},
                "properties": {
                    "text": "é\n", "count": u64::MAX, "bytes": "/wA=", "at": "1970-01-01T00:00:00.000Z",
                    "id": "11111111-1111-1111-1111-111111111111",
                },
            })
        );
        event.body = vec![0xff, 0xfe].into();
        let shown = json(PartitionId(3), &event);
        assert_eq!((&shown["body_base64"], &shown["body"]), (&json!("//4="), &Json::Null));
    }

    #[test]
    fn what_would_break_the_line_is_escaped_and_nothing_else() {
        let mut line = String::new();
        push_visible(&mut line, "a\r\n\tb\u{1b}[31m \u{85}\u{2028}\\ \"é\" 🚪");
        assert_eq!(line, "a\\r\\n\\tb\\u{1b}[31m \\u{85}\\u{2028}\\ \"é\" 🚪");
    }
}
