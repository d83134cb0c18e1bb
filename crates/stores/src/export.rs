//! Writes the checkpoints of a group as JSON text, and reads such a text, to copy them from one store to
//! another. It accesses neither files nor stores.
//!
//! ```json
//! {"ephor":1,"namespace":"contoso.servicebus.windows.net","hub":"homes","group":"$Default",
//!  "checkpoints":[{"partition":0,"position":{"finished":812443},"log":"a1b2","saved_at":1700000000123}]}
//! ```
//!
//! Positions have the format of the stores. The file contains no epoch, because epochs belong to the leases
//! of one store.

use std::fmt;

use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::ids::{GroupId, InvalidName, LogId, PartitionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::record_text::{read_position, write_position};

/// The version of the format. A newer one is refused.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    ephor: u32,
    namespace: String,
    hub: String,
    group: String,
    checkpoints: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    partition: u32,
    position: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saved_at: Option<i64>,
}

/// The content of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The group that it was written for.
    pub group: GroupId,
    /// Its positions, in order of the partitions.
    pub checkpoints: Vec<Exported>,
}

/// An exported position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The partition.
    pub partition: PartitionId,
    /// The position of the group.
    pub position: Position,
    /// The log that the position belongs to.
    pub log: Option<LogId>,
}

/// Why a file is not a valid export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Writes the checkpoints of a group as text.
pub fn write(group: &GroupId, checkpoints: &[(PartitionId, Checkpoint)]) -> String {
    let entry = |(partition, checkpoint): &(PartitionId, Checkpoint)| {
        Some(Entry {
            partition: partition.0,
            position: RawValue::from_string(write_position(&checkpoint.position)).ok()?,
            log: checkpoint.log.as_ref().map(ToString::to_string),
            saved_at: Some(checkpoint.saved_at.0),
        })
    };
    let file = File {
        ephor: VERSION,
        namespace: group.namespace.to_string(),
        hub: group.hub.to_string(),
        group: group.group.to_string(),
        checkpoints: checkpoints.iter().filter_map(entry).collect(),
    };
    serde_json::to_string_pretty(&file).unwrap_or_default()
}

/// Reads an export. One unreadable position fails the whole, so that no import is incomplete.
pub fn read(text: &str) -> Result<Export, Unreadable> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| Unreadable(format!("this is not an export of checkpoints: {error}")))?;
    if file.ephor > VERSION {
        return Err(Unreadable(format!(
            "this export has version {}, and this release reads up to version {VERSION}: use the release that wrote it, or a newer one",
            file.ephor
        )));
    }
    let exported = |entry: &Entry| {
        let position = read_position(entry.position.get())
            .map_err(|error| Unreadable(format!("partition {}: {error}", entry.partition)))?;
        let log = entry.log.as_deref().map(LogId::new);
        Ok(Exported { partition: PartitionId(entry.partition), position, log })
    };
    let refuse = |error: InvalidName| Unreadable(error.to_string());
    let group = GroupId {
        namespace: file.namespace.parse().map_err(refuse)?,
        hub: file.hub.parse().map_err(refuse)?,
        group: file.group.parse().map_err(refuse)?,
    };
    let mut all = file.checkpoints.iter().map(exported).collect::<Result<Vec<_>, _>>()?;
    all.sort_by_key(|exported| exported.partition);
    match all.windows(2).find(|pair| pair[0].partition == pair[1].partition) {
        Some(pair) => Err(Unreadable(format!("partition {} occurs twice", pair[0].partition))),
        None => Ok(Export { group, checkpoints: all }),
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::epoch::Epoch;
    use ephor_core::position::{SequenceNumber, StartPosition};
    use ephor_core::time::Timestamp;

    use super::*;

    fn group() -> GroupId {
        GroupId {
            namespace: "contoso.example.net".parse().unwrap(),
            hub: "a/b".parse().unwrap(),
            group: "$Default".parse().unwrap(),
        }
    }

    #[test]
    fn what_is_exported_reads_back() {
        let finished = Position::Finished { sequence: SequenceNumber(7), offset: None, enqueued_at: None };
        let positions = [finished, Position::Start(StartPosition::Latest)];
        let checkpoints: Vec<_> = positions
            .into_iter()
            .zip(0..)
            .map(|(position, partition)| {
                let log = (partition == 0).then(|| LogId::new("a \"b\""));
                let epoch = Epoch::from_stored(9);
                (PartitionId(partition), Checkpoint { position, log, epoch, saved_at: Timestamp(12) })
            })
            .collect();
        let read = read(&write(&group(), &checkpoints)).unwrap();
        let expected: Vec<_> = checkpoints
            .into_iter()
            .map(|(partition, Checkpoint { position, log, .. })| Exported { partition, position, log })
            .collect();
        assert_eq!(read, Export { group: group(), checkpoints: expected });
    }

    #[test]
    fn what_is_no_export_is_refused_as_a_whole() {
        let file = |entries: &str| {
            format!(r#"{{"ephor":1,"namespace":"n","hub":"h","group":"g","checkpoints":[{entries}]}}"#)
        };
        let good = r#"{"partition":1,"position":{"finished":7}}"#;
        assert_eq!(read(&file(good)).unwrap().checkpoints.len(), 1);
        for (text, part) in [
            (String::new(), "not an export"),
            ("[]".into(), "not an export"),
            (file(good).replace(":1,", ":2,"), "reads up to version 1"),
            (file(good).replace("\"h\"", "\"h h\""), "hub name"),
            (file(&format!("{good},{good}")), "partition 1 occurs twice"),
            (file(&format!(r#"{good},{{"partition":2,"position":{{"yesterday":1}}}}"#)), "partition 2"),
        ] {
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
