//! A checkpoint as metadata.
//!
//! | name | value |
//! |---|---|
//! | `sequencenumber`, `offset` | the last finished event: every SDK's names for it. Both are always there; what is not known is empty |
//! | `ephor` | JSON: `seal`, `position`, `log`, `epoch`, `saved_at` |
//!
//! `seal` is the epoch that may write. `saved_at` is there if the blob was written since for another reason; else the
//! blob's Last-Modified is when it was saved. Without a `position` nothing is finished: the checkpoint is there so that
//! an autoscaler does not take the whole log for a backlog, and says -1, before the first event. Other names are left as they are.
//!
//! A start at an event that a host wrote down is the oldest that there was: the number before it is what autoscalers go by,
//! and the offset says -1, before all that there is, which is what other SDKs go by.

use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::epoch::Epoch;
use ephor_core::ids::LogId;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::record::CheckpointRecord;
use ephor_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::container::Blob;
use super::metadata::{Metadata, escape, number, unescape};
use super::ownership::OURS;
use crate::text::{Unreadable, read_position, write_position};

pub(super) const SEQUENCE: &str = "sequencenumber";
pub(super) const OFFSET: &str = "offset";

/// Before the first event.
const BEFORE_ALL: &str = "-1";

/// .NET wrote this once, for none.
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

/// The epoch that may save; none if another SDK wrote it. It is there even where the position cannot be read, so
/// that a seek mends it.
pub(super) fn seal(blob: &Blob) -> Option<Epoch> {
    #[derive(Deserialize)]
    struct Seal {
        seal: u64,
    }
    let ours = unescape(blob.metadata.get(OURS)?);
    serde_json::from_str::<Seal>(&ours).ok().map(|fields| Epoch::from_stored(fields.seal))
}

pub(super) fn read(blob: &Blob) -> Result<CheckpointRecord, Unreadable> {
    let Some(fields) = fields(blob).transpose()? else {
        return Ok(CheckpointRecord { seal: Epoch::NONE, checkpoint: foreign(blob) });
    };
    let seal = Epoch::from_stored(fields.seal);
    let position = fields.position.as_ref().map(|text| read_position(text.get())).transpose()?;
    let shown =
        [SEQUENCE, OFFSET].map(|name| blob.metadata.get(name).map(String::as_str).unwrap_or_default());
    let [sequence, offset] = visible(position.as_ref());
    let oldest = position.as_ref().is_some_and(is_at_an_event) && shown[1] == BEFORE_ALL;
    // Somebody changed what everybody sees, and kept what is ours: that is meant.
    let changed = shown[0] != sequence || (shown[1] != offset && !oldest);
    let checkpoint = match position {
        _ if changed => foreign(blob),
        None => None,
        Some(position) => Some(Checkpoint {
            position,
            log: fields.log.as_deref().map(LogId::new),
            epoch: fields.epoch.map(Epoch::from_stored).unwrap_or_default(),
            saved_at: fields.saved_at.map_or(blob.stamp.modified, Timestamp),
        }),
    };
    Ok(CheckpointRecord { seal, checkpoint })
}

/// The position that another SDK wrote. Some write the one, some the other, and an empty text for none.
fn foreign(blob: &Blob) -> Option<Checkpoint> {
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
        // Nothing is said, as if it were not there.
        (None, None) => return None,
    };
    Some(Checkpoint { position, log: None, epoch: Epoch::NONE, saved_at: blob.stamp.modified })
}

/// What everybody sees: the sequence number and the offset of the last finished event.
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
        // The number is not known. KEDA needs one, and all others go by the offset.
        Some(Position::Start(StartPosition::Offset { offset, inclusive: false })) => {
            [BEFORE_ALL.to_owned(), text(offset)]
        }
        // No event is known: readers that can take nothing else begin where the log does.
        Some(Position::Start(_)) => [BEFORE_ALL.to_owned(), String::new()],
    }
}

/// A start at an event that is read, too.
fn is_at_an_event(position: &Position) -> bool {
    matches!(position, Position::Start(StartPosition::Sequence { inclusive: true, .. }))
}

/// The metadata of a save: hosts begin at an event by its number only where nothing is before it.
pub(super) fn saved(before: Option<&Metadata>, checkpoint: &Checkpoint, seal: Epoch) -> Metadata {
    let mut metadata = write(before, checkpoint, seal);
    if is_at_an_event(&checkpoint.position) {
        metadata.insert(OFFSET.into(), BEFORE_ALL.into());
    }
    metadata
}

/// The metadata of a save or a seek: it is dated by being written.
pub(super) fn write(before: Option<&Metadata>, checkpoint: &Checkpoint, seal: Epoch) -> Metadata {
    let [sequence, offset] = visible(Some(&checkpoint.position));
    let fields = Fields { saved_at: None, ..fields_of(checkpoint, seal) };
    let mut metadata = before.cloned().unwrap_or_default();
    metadata.insert(SEQUENCE.into(), sequence);
    metadata.insert(OFFSET.into(), offset);
    metadata.insert(OURS.into(), text_of(&fields));
    metadata
}

/// The same checkpoint under another seal. What others wrote stays as they wrote it.
pub(super) fn reseal(blob: &Blob, record: &CheckpointRecord, seal: Epoch) -> Metadata {
    let mut metadata = blob.metadata.clone();
    let fields = match &record.checkpoint {
        Some(checkpoint) => fields_of(checkpoint, seal),
        None => Fields { seal: seal.get(), ..Fields::default() },
    };
    metadata.insert(OURS.into(), text_of(&fields));
    metadata
}

/// A checkpoint that says that nothing is finished.
pub(super) fn synthetic(seal: Epoch) -> Metadata {
    let [sequence, offset] = visible(None);
    let fields = Fields { seal: seal.get(), ..Fields::default() };
    super::metadata::pairs([(SEQUENCE, sequence), (OFFSET, offset), (OURS, text_of(&fields))])
}

fn fields_of(checkpoint: &Checkpoint, seal: Epoch) -> Fields {
    Fields {
        seal: seal.get(),
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
    use super::super::container::Stamp;
    use super::super::metadata::pairs;
    use super::*;

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
    fn a_save_is_dated_by_being_written_and_a_seal_changes_nothing_but_itself() {
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
        assert_eq!(record, CheckpointRecord { seal: epoch(3), checkpoint: Some(checkpoint.clone()) });
        let mut sealed = blob(reseal(&saved, &record, epoch(4)));
        sealed.stamp.modified = Timestamp(9_000);
        assert_eq!(read(&sealed).unwrap(), CheckpointRecord { seal: epoch(4), checkpoint: Some(checkpoint) });
        assert_eq!(seal(&sealed), Some(epoch(4)));
    }

    #[test]
    fn a_synthetic_checkpoint_says_that_nothing_is_finished() {
        let metadata = synthetic(epoch(1));
        assert_eq!((metadata[SEQUENCE].as_str(), metadata[OFFSET].as_str()), ("-1", "-1"));
        assert_eq!(read(&blob(metadata)).unwrap(), CheckpointRecord { seal: epoch(1), checkpoint: None });
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
        let sought = blob(write(None, &checkpoint, epoch(3)));
        assert_eq!((sought.metadata[SEQUENCE].as_str(), sought.metadata[OFFSET].as_str()), ("99", ""));
        assert_eq!(read(&sought).unwrap().checkpoint, Some(checkpoint));
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
            assert_eq!(record.seal, Epoch::NONE);
            let position = record.checkpoint.map(|checkpoint| checkpoint.position);
            assert_eq!(position, expected, "{metadata:?}");
            assert_eq!(seal(&blob(metadata)), None);
        }
    }

    #[test]
    fn whoever_changes_what_everybody_sees_means_it() {
        let checkpoint =
            Checkpoint { position: finished(7, None), log: None, epoch: epoch(3), saved_at: Timestamp(1) };
        let mut edited = blob(write(None, &checkpoint, epoch(3)));
        edited.metadata.insert(SEQUENCE.into(), "3".into());
        let record = read(&edited).unwrap();
        assert_eq!((record.seal, record.checkpoint.unwrap().position), (epoch(3), finished(3, None)));
        // And what others added stays.
        edited.metadata.insert("clientidentifier".into(), "x".into());
        assert_eq!(write(Some(&edited.metadata), &checkpoint, epoch(3))["clientidentifier"], "x");
    }

    #[test]
    fn damage_is_told_and_the_seal_is_still_there() {
        let damaged = blob(pairs([(OURS, r#"{"seal":4,"position":{"before":7}}"#.into())]));
        assert!(read(&damaged).is_err());
        assert_eq!(seal(&damaged), Some(epoch(4)));
        let nonsense = blob(pairs([(OURS, "nonsense".into())]));
        assert!(read(&nonsense).is_err());
        assert_eq!(seal(&nonsense), None);
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
