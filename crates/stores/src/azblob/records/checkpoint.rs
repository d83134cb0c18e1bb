//! Reads and writes a checkpoint as the metadata of its blob.
//!
//! | stored name | value |
//! |---|---|
//! | `sequencenumber`, `offset` | the last finished event, under the names that all SDKs use. Both are always there; an unknown one is empty |
//! | `ephor` | JSON: `seal`, `position`, `log`, `epoch`, `saved_at` |
//!
//! `seal` is the fence: the epoch that may save. `saved_at` is there if the blob was written later for
//! another reason; otherwise the blob's Last-Modified is the time of the save. Without a `position`
//! nothing is finished; the blob then says -1, before the first event, so that an autoscaler does not
//! count the whole log as a backlog. Other names are not changed.
//!
//! If a host saves a start at an event, that event is the oldest of the log. The sequence number is then
//! the one before it, which autoscalers use, and the offset is -1, before the first event, which other
//! SDKs use.

use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::epoch::Epoch;
use ephor_core::ids::LogId;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::record::CheckpointRecord;
use ephor_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::azblob::layout::metadata::{Metadata, escape, number, unescape};
use crate::azblob::records::ownership::OURS;
use crate::azblob::service::container::Blob;
use crate::record_text::{Unreadable, read_position, write_position};

pub(in crate::azblob) const SEQUENCE: &str = "sequencenumber";
pub(in crate::azblob) const OFFSET: &str = "offset";

/// The offset and sequence number before the first event.
const BEFORE_ALL: &str = "-1";

/// Earlier .NET SDKs wrote this for no offset.
const NO_OFFSET: &str = "no offset";

#[derive(Default, Serialize, Deserialize)]
struct Fields {
    seal: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saved_at: Option<i64>,
}

fn fields(blob: &Blob) -> Option<Result<Fields, Unreadable>> {
    let ours = unescape(blob.metadata.get(OURS)?);
    Some(serde_json::from_str(&ours).map_err(|error| error.to_string()))
}

/// The epoch that may save, stored as `seal`; none if another SDK wrote the blob. It is readable even if
/// the position is not, so that a seek can replace it.
pub(in crate::azblob) fn fence(blob: &Blob) -> Option<Epoch> {
    #[derive(Deserialize)]
    struct StoredFence {
        seal: u64,
    }
    let ours = unescape(blob.metadata.get(OURS)?);
    serde_json::from_str::<StoredFence>(&ours).ok().map(|fields| Epoch::from_stored(fields.seal))
}

pub(in crate::azblob) fn read(blob: &Blob) -> Result<CheckpointRecord, Unreadable> {
    let Some(fields) = fields(blob).transpose()? else {
        return Ok(CheckpointRecord { fence: Epoch::NONE, checkpoint: of_other_sdk(blob) });
    };
    let fence = Epoch::from_stored(fields.seal);
    let position = fields.position.as_ref().map(|text| read_position(text.get())).transpose()?;
    let shown =
        [SEQUENCE, OFFSET].map(|name| blob.metadata.get(name).map(String::as_str).unwrap_or_default());
    let [sequence, offset] = visible(position.as_ref());
    let oldest = position.as_ref().is_some_and(is_at_an_event) && shown[1] == BEFORE_ALL;
    // Another program changed the values that all SDKs use and kept ours: its values count.
    let changed = shown[0] != sequence || (shown[1] != offset && !oldest);
    let checkpoint = match position {
        _ if changed => of_other_sdk(blob),
        None => None,
        Some(position) => Some(Checkpoint {
            position,
            log: fields.log.as_deref().map(LogId::new),
            epoch: fields.epoch.map(Epoch::from_stored).unwrap_or_default(),
            saved_at: fields.saved_at.map_or(blob.stamp.modified, Timestamp),
        }),
    };
    Ok(CheckpointRecord { fence, checkpoint })
}

/// The position that another SDK wrote. Some write the sequence number, some the offset, and an empty
/// text for none.
fn of_other_sdk(blob: &Blob) -> Option<Checkpoint> {
    let text = |name| blob.metadata.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
    let offset = text(OFFSET).filter(|text| !text.eq_ignore_ascii_case(NO_OFFSET));
    let position = match (number::<u64>(&blob.metadata, SEQUENCE), offset) {
        (Some(sequence), offset) => Position::Finished {
            sequence: SequenceNumber(sequence),
            offset: offset.map(Offset::new),
            enqueued_at: None,
        },
        (None, Some(BEFORE_ALL)) => Position::Start(StartPosition::Earliest),
        (None, Some(offset)) => {
            Position::Start(StartPosition::Offset { offset: Offset::new(offset), inclusive: false })
        }
        // Neither is there, as if there were no checkpoint.
        (None, None) => return None,
    };
    Some(Checkpoint { position, log: None, epoch: Epoch::NONE, saved_at: blob.stamp.modified })
}

/// The values that all SDKs use: sequence number and offset of the last finished event.
fn visible(position: Option<&Position>) -> [String; 2] {
    let text = |offset: &Offset| escape(&offset.to_string());
    match position {
        None | Some(Position::Start(StartPosition::Earliest)) => [BEFORE_ALL, BEFORE_ALL].map(str::to_owned),
        Some(Position::Finished { sequence, offset, .. }) => {
            [sequence.to_string(), offset.as_ref().map(text).unwrap_or_default()]
        }
        Some(Position::Start(StartPosition::Sequence { number, inclusive })) => {
            let finished = if *inclusive { i128::from(number.0) - 1 } else { i128::from(number.0) };
            let offset = if finished < 0 { BEFORE_ALL } else { "" };
            [finished.to_string(), offset.to_owned()]
        }
        // The number is unknown. KEDA needs one, and all others use the offset.
        Some(Position::Start(StartPosition::Offset { offset, inclusive: false })) => {
            [BEFORE_ALL.to_owned(), text(offset)]
        }
        // No event is known: readers without another choice start at the beginning of the log.
        Some(Position::Start(_)) => [BEFORE_ALL.to_owned(), String::new()],
    }
}

/// Whether a position is a start at an event, inclusive.
fn is_at_an_event(position: &Position) -> bool {
    matches!(position, Position::Start(StartPosition::Sequence { inclusive: true, .. }))
}

/// The metadata of a save. A host saves a start at an event only if no event precedes it.
pub(in crate::azblob) fn saved(before: Option<&Metadata>, checkpoint: &Checkpoint, fence: Epoch) -> Metadata {
    let mut metadata = write(before, checkpoint, fence);
    if is_at_an_event(&checkpoint.position) {
        metadata.insert(OFFSET.into(), BEFORE_ALL.into());
    }
    metadata
}

/// The metadata of a save or a seek. Its time is the time of the write.
pub(in crate::azblob) fn write(before: Option<&Metadata>, checkpoint: &Checkpoint, fence: Epoch) -> Metadata {
    let [sequence, offset] = visible(Some(&checkpoint.position));
    let fields = Fields { saved_at: None, ..fields_of(checkpoint, fence) };
    let mut metadata = before.cloned().unwrap_or_default();
    metadata.insert(SEQUENCE.into(), sequence);
    metadata.insert(OFFSET.into(), offset);
    metadata.insert(OURS.into(), text_of(&fields));
    metadata
}

/// The same checkpoint with another fence. Values of other programs are not changed.
pub(in crate::azblob) fn with_fence(blob: &Blob, record: &CheckpointRecord, fence: Epoch) -> Metadata {
    let mut metadata = blob.metadata.clone();
    let fields = match &record.checkpoint {
        Some(checkpoint) => fields_of(checkpoint, fence),
        None => Fields { seal: fence.get(), ..Fields::default() },
    };
    metadata.insert(OURS.into(), text_of(&fields));
    metadata
}

/// The metadata of a checkpoint at which nothing is finished.
pub(in crate::azblob) fn synthetic(fence: Epoch) -> Metadata {
    let [sequence, offset] = visible(None);
    let fields = Fields { seal: fence.get(), ..Fields::default() };
    crate::azblob::layout::metadata::pairs([(SEQUENCE, sequence), (OFFSET, offset), (OURS, text_of(&fields))])
}

fn fields_of(checkpoint: &Checkpoint, fence: Epoch) -> Fields {
    Fields {
        seal: fence.get(),
        position: RawValue::from_string(write_position(&checkpoint.position)).ok(),
        log: checkpoint.log.as_ref().map(ToString::to_string),
        epoch: Some(checkpoint.epoch.get()),
        saved_at: Some(checkpoint.saved_at.0),
    }
}

fn text_of(fields: &Fields) -> String {
    // Plain structures with text keys: nothing in them can fail.
    escape(&serde_json::to_string(fields).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::azblob::layout::metadata::pairs;
    use crate::azblob::service::container::Stamp;

    fn blob(metadata: Metadata) -> Blob {
        Blob { metadata, stamp: Stamp { etag: "0x1".into(), modified: Timestamp(5_000) } }
    }

    fn epoch(number: u64) -> Epoch {
        Epoch::from_stored(number)
    }

    fn finished(sequence: u64, offset: Option<&str>) -> Position {
        let offset = offset.map(Offset::new);
        Position::Finished { sequence: SequenceNumber(sequence), offset, enqueued_at: None }
    }

    #[test]
    fn a_save_is_dated_by_being_written_and_a_fence_changes_nothing_but_itself() {
        let log = Some(LogId::new("a 1"));
        let checkpoint = Checkpoint {
            position: finished(7, Some("007")),
            log,
            epoch: epoch(3),
            saved_at: Timestamp(5_000),
        };
        let saved = blob(write(None, &checkpoint, epoch(3)));
        assert_eq!((saved.metadata[SEQUENCE].as_str(), saved.metadata[OFFSET].as_str()), ("7", "007"));
        let record = read(&saved).unwrap();
        assert_eq!(record, CheckpointRecord { fence: epoch(3), checkpoint: Some(checkpoint.clone()) });
        let mut fenced = blob(with_fence(&saved, &record, epoch(4)));
        fenced.stamp.modified = Timestamp(9_000);
        assert_eq!(
            read(&fenced).unwrap(),
            CheckpointRecord { fence: epoch(4), checkpoint: Some(checkpoint) }
        );
        assert_eq!(fence(&fenced), Some(epoch(4)));
    }

    #[test]
    fn a_synthetic_checkpoint_says_that_nothing_is_finished() {
        let metadata = synthetic(epoch(1));
        assert_eq!((metadata[SEQUENCE].as_str(), metadata[OFFSET].as_str()), ("-1", "-1"));
        assert_eq!(read(&blob(metadata)).unwrap(), CheckpointRecord { fence: epoch(1), checkpoint: None });
    }

    #[test]
    fn a_start_at_the_oldest_event_is_before_everything_for_those_who_go_by_offsets() {
        let start = StartPosition::at(SequenceNumber(100));
        let position = Position::Start(start);
        let checkpoint = Checkpoint { position, log: None, epoch: epoch(3), saved_at: Timestamp(5_000) };
        let by_host = blob(saved(None, &checkpoint, epoch(3)));
        assert_eq!((by_host.metadata[SEQUENCE].as_str(), by_host.metadata[OFFSET].as_str()), ("99", "-1"));
        assert_eq!(read(&by_host).unwrap().checkpoint, Some(checkpoint.clone()));
        // One that a person chose has events before it.
        let seek_change = blob(write(None, &checkpoint, epoch(3)));
        assert_eq!(
            (seek_change.metadata[SEQUENCE].as_str(), seek_change.metadata[OFFSET].as_str()),
            ("99", "")
        );
        assert_eq!(read(&seek_change).unwrap().checkpoint, Some(checkpoint));
    }

    #[test]
    fn checkpoints_of_other_sdks_are_read_whatever_is_missing() {
        let at = |offset: &str| {
            let offset = Offset::new(offset);
            Some(Position::Start(StartPosition::Offset { offset, inclusive: false }))
        };
        for (metadata, expected) in [
            (vec![("sequencenumber", "7"), ("offset", "4711")], Some(finished(7, Some("4711")))),
            (
                vec![("sequencenumber", "7"), ("offset", ""), ("clientidentifier", "x")],
                Some(finished(7, None)),
            ),
            (vec![("sequencenumber", "7"), ("offset", "no offset")], Some(finished(7, None))),
            (vec![("sequencenumber", "7")], Some(finished(7, None))),
            (vec![("offset", "4711")], at("4711")),
            (vec![("sequencenumber", ""), ("offset", "4711")], at("4711")),
            (
                vec![("sequencenumber", "-1"), ("offset", "-1")],
                Some(Position::Start(StartPosition::Earliest)),
            ),
            (vec![("sequencenumber", ""), ("offset", "")], None),
            (vec![], None),
        ] {
            let metadata: Metadata =
                metadata.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let record = read(&blob(metadata.clone())).unwrap();
            assert_eq!(record.fence, Epoch::NONE);
            let position = record.checkpoint.map(|checkpoint| checkpoint.position);
            assert_eq!(position, expected, "{metadata:?}");
            assert_eq!(fence(&blob(metadata)), None);
        }
    }

    #[test]
    fn whoever_changes_what_everybody_sees_means_it() {
        let checkpoint =
            Checkpoint { position: finished(7, None), log: None, epoch: epoch(3), saved_at: Timestamp(1) };
        let mut edited = blob(write(None, &checkpoint, epoch(3)));
        edited.metadata.insert(SEQUENCE.into(), "3".into());
        let record = read(&edited).unwrap();
        assert_eq!((record.fence, record.checkpoint.unwrap().position), (epoch(3), finished(3, None)));
        // And what others added stays.
        edited.metadata.insert("clientidentifier".into(), "x".into());
        assert_eq!(write(Some(&edited.metadata), &checkpoint, epoch(3))["clientidentifier"], "x");
    }

    #[test]
    fn damage_is_told_and_the_fence_is_still_there() {
        let damaged = blob(pairs([(OURS, r#"{"seal":4,"position":{"before":7}}"#.into())]));
        assert!(read(&damaged).is_err());
        assert_eq!(fence(&damaged), Some(epoch(4)));
        let nonsense = blob(pairs([(OURS, "nonsense".into())]));
        assert!(read(&nonsense).is_err());
        assert_eq!(fence(&nonsense), None);
    }

    #[test]
    fn every_kind_of_start_shows_where_it_lies_if_that_is_known() {
        let start = Position::Start;
        for (position, sequence, offset) in [
            (start(StartPosition::Earliest), "-1", "-1"),
            (start(StartPosition::at(SequenceNumber(0))), "-1", "-1"),
            (start(StartPosition::at(SequenceNumber(8))), "7", ""),
            (start(StartPosition::after(SequenceNumber(8))), "8", ""),
            (start(StartPosition::Latest), "-1", ""),
            (start(StartPosition::Offset { offset: Offset::new("64"), inclusive: false }), "-1", "64"),
        ] {
            assert_eq!(visible(Some(&position)), [sequence, offset], "{position:?}");
        }
    }
}
