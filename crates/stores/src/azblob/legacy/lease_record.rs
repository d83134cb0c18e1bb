//! Reads a lease blob of the legacy Event Processor Host, in the format of every SDK.

use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use serde_json::{Map, Value};

/// The offset before the first event.
const BEFORE_ALL: &str = "-1";

/// The content of a lease blob.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: Epoch,
    pub(super) position: Option<Position>,
}

pub(super) fn read(body: &str) -> Result<Record, String> {
    let value: Map<String, Value> = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let get = |wanted: &str| {
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        value.iter().find(|(name, _)| plain(name) == wanted).map(|(_, value)| value)
    };
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    if get("partitionid").is_none() {
        return Err("it is not a lease of an Event Processor Host".into());
    }
    let number = |name: &str| get(name).and_then(text).and_then(|text| text.parse::<i64>().ok());
    let epoch = Epoch::from_stored(number("epoch").and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or(0));
    let offset = get("offset").and_then(text).filter(|offset| offset != BEFORE_ALL);
    let sequence = number("sequencenumber").and_then(|sequence| u64::try_from(sequence).ok());
    // Without an offset nothing was finished: the sequence number is the start.
    let position = offset.map(|offset| match sequence {
        Some(sequence) => Position::Finished {
            sequence: SequenceNumber(sequence),
            offset: Some(Offset::new(&offset)),
            enqueued_at: None,
        },
        None => Position::Start(StartPosition::Offset { offset: Offset::new(&offset), inclusive: false }),
    });
    Ok(Record { epoch, position })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(sequence: u64, offset: &str) -> Option<Position> {
        let offset = Some(Offset::new(offset));
        Some(Position::Finished { sequence: SequenceNumber(sequence), offset, enqueued_at: None })
    }

    #[test]
    fn every_spelling_is_read() {
        for (body, epoch, position) in [
            // .NET, as Azure Functions wrote it.
            (
                r#"{"PartitionId":"0","Owner":"681d","Token":"2d0c","Epoch":386,"Offset":"8591964920","SequenceNumber":960180}"#,
                386,
                finished(960_180, "8591964920"),
            ),
            // Java.
            (
                r#"{"partitionId":"0","owner":"h","epoch":4,"offset":"77","sequenceNumber":7,"token":"t"}"#,
                4,
                finished(7, "77"),
            ),
            // JavaScript, before and after its first checkpoint.
            (r#"{"partitionId":"3","owner":"h","epoch":-1,"sequenceNumber":0,"token":""}"#, 0, None),
            (
                r#"{"partitionId":"3","owner":"h","epoch":2,"sequenceNumber":41,"token":"t","offset":"1312"}"#,
                2,
                finished(41, "1312"),
            ),
            // Python, with and without a checkpoint.
            (
                r#"{"partition_id":"1","owner":"h","token":"t","epoch":5,"offset":"99","sequence_number":12,"event_processor_context":null}"#,
                5,
                finished(12, "99"),
            ),
            (
                r#"{"partition_id":"1","owner":null,"token":null,"epoch":0,"offset":"-1","sequence_number":0}"#,
                0,
                None,
            ),
            // A number for an offset, and no number at all.
            (r#"{"partitionId":"0","epoch":1,"offset":15,"sequenceNumber":3}"#, 1, finished(3, "15")),
            (r#"{"PartitionId":"0","Epoch":0,"Offset":null,"SequenceNumber":0}"#, 0, None),
        ] {
            assert_eq!(read(body), Ok(Record { epoch: Epoch::from_stored(epoch), position }), "{body}");
        }
        let only_offset =
            Position::Start(StartPosition::Offset { offset: Offset::new("7"), inclusive: false });
        assert_eq!(read(r#"{"partitionId":"0","offset":"7"}"#).unwrap().position, Some(only_offset));
        for other in ["", "[]", "{}", r#"{"offset":"7"}"#] {
            assert!(read(other).is_err(), "{other}");
        }
    }
}
