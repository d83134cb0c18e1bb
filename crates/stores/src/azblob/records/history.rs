//! Reads and writes the history: one blob for each partition, a JSON list with the newest change last.
//!
//! It is for operators. It is written after the change: a process that dies in between leaves one entry out.

use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::store::{MAX_HISTORY_PER_PARTITION, StoreError};
use ephor_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::azblob::layout::blob_names::{Kind, Names};
use crate::azblob::layout::metadata::Metadata;
use crate::azblob::service::container::Write;
use crate::azblob::session::{MAX_ATTEMPTS, Session};
use crate::record_text::{Unreadable, read_reason, write_reason};

#[derive(Serialize, Deserialize)]
struct Line {
    at: i64,
    epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    reason: String,
}

fn line(change: &OwnershipChange) -> Line {
    Line {
        at: change.at.0,
        epoch: change.epoch.get(),
        from: change.from.as_ref().map(ToString::to_string),
        to: change.to.as_ref().map(ToString::to_string),
        reason: write_reason(&change.reason),
    }
}

fn change(partition: PartitionId, line: Line) -> Result<OwnershipChange, Unreadable> {
    let host = |text: Option<String>| {
        text.map(|text| text.parse().map_err(|_| format!("{text:?} is not a host id"))).transpose()
    };
    Ok(OwnershipChange {
        at: Timestamp(line.at),
        partition,
        epoch: Epoch::from_stored(line.epoch),
        from: host(line.from)?,
        to: host(line.to)?,
        reason: read_reason(&line.reason)?,
    })
}

fn lines(text: &str) -> Vec<Line> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Reads a body as the history of a partition: for a fuzz target.
#[cfg(feature = "fuzzing")]
pub(in crate::azblob) fn play(body: &str) {
    for found in lines(body) {
        let Ok(read) = change(PartitionId(7), found) else { continue };
        assert_eq!(change(PartitionId(7), line(&read)), Ok(read));
    }
}

impl Session {
    /// Appends an entry. The change itself is done, so a failure is only logged.
    pub(in crate::azblob) async fn append_history(
        &self,
        group: &GroupId,
        names: &Names,
        change: OwnershipChange,
    ) {
        let partition = change.partition;
        if let Err(error) = self.try_append_history(names, &change).await {
            tracing::warn!(%group, %partition, %error, "a change of owner is missing in the history");
        }
    }

    async fn try_append_history(&self, names: &Names, change: &OwnershipChange) -> Result<(), StoreError> {
        let name = names.history(change.partition);
        for _ in 0..MAX_ATTEMPTS {
            let before = self.container.body(&name).await?;
            let mut all = before.as_ref().map(|(_, text)| lines(text)).unwrap_or_default();
            all.push(line(change));
            let max = usize::from(MAX_HISTORY_PER_PARTITION);
            all.drain(..all.len().saturating_sub(max));
            let text = serde_json::to_string(&all).unwrap_or_default();
            let write = match &before {
                None => self.container.create(&name, &Metadata::new(), &text).await?,
                Some((blob, _)) => {
                    self.container.replace(&name, &Metadata::new(), &text, &blob.stamp.etag).await?
                }
            };
            if write != Write::Refused {
                return Ok(());
            }
        }
        Err(crate::azblob::operations::fencing::too_many_conflicts(change.partition))
    }

    pub(in crate::azblob) async fn history(
        &self,
        group: &GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> Result<Vec<OwnershipChange>, StoreError> {
        self.ready().await?;
        let names = self.names(group)?;
        let partitions = match partition {
            Some(partition) => vec![partition],
            None => self.partitions_with_history(&names).await?,
        };
        let mut all = Vec::new();
        for partition in partitions {
            let text = self.container.body(&names.history(partition)).await?.map(|(_, text)| text);
            let read = |(place, line)| Some((place, change(partition, line).ok()?));
            all.extend(lines(&text.unwrap_or_default()).into_iter().enumerate().filter_map(read));
        }
        // Within one second the later entry of a partition comes first.
        all.sort_by_key(|(place, change)| std::cmp::Reverse((change.at, *place)));
        Ok(all.into_iter().map(|(_, change)| change).take(max).collect())
    }

    async fn partitions_with_history(&self, names: &Names) -> Result<Vec<PartitionId>, StoreError> {
        let (_, listed) = self.container.list(&names.histories()).await?;
        let partition = |name: &str| match names.kind(name) {
            Some(Kind::History(partition)) => Some(partition),
            _ => None,
        };
        Ok(listed.iter().filter_map(|listed| partition(&listed.name)).collect())
    }
}
