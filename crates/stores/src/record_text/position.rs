//! Encodes a position as text, and decodes it: `{"finished":7,"offset":"7","enqueued_at":1700000000123}`,
//! `{"start":"earliest"}`, `{"at":7}`, `{"after":7}`, `{"at_offset":"@x"}`, `{"after_offset":"@x"}`,
//! `{"from":1700000000123}`.

use ephor_core::checkpoint::Position;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Unreadable, read, write};

const EARLIEST: &str = "earliest";
const LATEST: &str = "latest";

/// Exactly one of the first seven is set, and names the kind.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    finished: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueued_at: Option<i64>,
}

pub(crate) fn write_position(position: &Position) -> String {
    let mut fields = Fields::default();
    match position {
        Position::Finished { sequence, offset, enqueued_at } => {
            fields.finished = Some(sequence.0);
            fields.offset = offset.as_ref().map(ToString::to_string);
            fields.enqueued_at = enqueued_at.map(|at| at.0);
        }
        Position::Start(StartPosition::Earliest) => fields.start = Some(EARLIEST.into()),
        Position::Start(StartPosition::Latest) => fields.start = Some(LATEST.into()),
        Position::Start(StartPosition::Sequence { number, inclusive: true }) => fields.at = Some(number.0),
        Position::Start(StartPosition::Sequence { number, inclusive: false }) => {
            fields.after = Some(number.0)
        }
        Position::Start(StartPosition::Offset { offset, inclusive: true }) => {
            fields.at_offset = Some(offset.to_string());
        }
        Position::Start(StartPosition::Offset { offset, inclusive: false }) => {
            fields.after_offset = Some(offset.to_string());
        }
        Position::Start(StartPosition::EnqueuedTime(time)) => fields.from = Some(time.0),
    }
    write(&fields)
}

pub(crate) fn read_position(text: &str) -> Result<Position, Unreadable> {
    let fields: Fields = read(text)?;
    let start = match fields {
        Fields { finished: Some(sequence), offset, enqueued_at, .. } => {
            return Ok(Position::Finished {
                sequence: SequenceNumber(sequence),
                offset: offset.as_deref().map(Offset::new),
                enqueued_at: enqueued_at.map(Timestamp),
            });
        }
        Fields { start: Some(start), .. } if start == EARLIEST => StartPosition::Earliest,
        Fields { start: Some(start), .. } if start == LATEST => StartPosition::Latest,
        Fields { at: Some(number), .. } => StartPosition::at(SequenceNumber(number)),
        Fields { after: Some(number), .. } => StartPosition::after(SequenceNumber(number)),
        Fields { at_offset: Some(offset), .. } => {
            StartPosition::Offset { offset: Offset::new(&offset), inclusive: true }
        }
        Fields { after_offset: Some(offset), .. } => {
            StartPosition::Offset { offset: Offset::new(&offset), inclusive: false }
        }
        Fields { from: Some(time), .. } => StartPosition::EnqueuedTime(Timestamp(time)),
        // A guessed position could lose events.
        _ => return Err(format!("unknown kind of position: {text}")),
    };
    Ok(Position::Start(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_stays_readable() {
        let finished = Position::Finished {
            sequence: SequenceNumber(7),
            offset: Some(Offset::new("007")),
            enqueued_at: Some(Timestamp(1_700_000_000_123)),
        };
        let offset = |inclusive| StartPosition::Offset { offset: Offset::new("@x"), inclusive };
        for (text, position) in [
            (r#"{"finished":7,"offset":"007","enqueued_at":1700000000123}"#, finished),
            (r#"{"start":"earliest"}"#, Position::Start(StartPosition::Earliest)),
            (r#"{"start":"latest"}"#, Position::Start(StartPosition::Latest)),
            (r#"{"at":7}"#, Position::Start(StartPosition::at(SequenceNumber(7)))),
            (r#"{"after":7}"#, Position::Start(StartPosition::after(SequenceNumber(7)))),
            (r#"{"at_offset":"@x"}"#, Position::Start(offset(true))),
            (r#"{"after_offset":"@x"}"#, Position::Start(offset(false))),
            (r#"{"from":12}"#, Position::Start(StartPosition::EnqueuedTime(Timestamp(12)))),
        ] {
            assert_eq!(write_position(&position), text);
            assert_eq!(read_position(text), Ok(position));
        }
    }

    #[test]
    fn unknown_fields_are_passed_over_and_unknown_kinds_are_not() {
        let seven = Position::Finished { sequence: SequenceNumber(7), offset: None, enqueued_at: None };
        assert_eq!(read_position(r#"{"finished":7,"shard":"x"}"#), Ok(seven));
        for text in [r#"{"start":"yesterday"}"#, r#"{"before":7}"#, "{}", "", "7", r#"{"finished":-1}"#] {
            assert!(read_position(text).is_err(), "{text}");
        }
    }
}
