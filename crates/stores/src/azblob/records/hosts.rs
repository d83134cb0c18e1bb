//! Reads and writes host records and the desired states of hosts. A heartbeat also deletes a few blobs of
//! hosts that are long dead.
//!
//! | stored name | value |
//! |---|---|
//! | `id` | the host |
//! | `record` | its record as text, as in every store; empty if it is too long for metadata: then it is the blob's body |
//! | `drain` | `true` if an operator has ordered the host to drain |
//! | `at` | when the host wrote, if another process has written since |
//!
//! A host writes its record on the condition that the blob is unchanged. A new desired state changes the blob, so the
//! host does not miss it. It is no sign of life: it stores when the host wrote last.

use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId};
use ephor_core::store::{DesiredState, HostEntry, StoreError};
use ephor_core::time::Timestamp;
use futures_util::future::join_all;

use crate::azblob::CLOCK_RESOLUTION;
use crate::azblob::layout::blob_names::Names;
use crate::azblob::layout::metadata::{MAX_METADATA, Metadata, escape, number, pairs, unescape};
use crate::azblob::service::container::{Blob, Write};
use crate::azblob::session::{ADVISORY_LIMIT, MAX_ATTEMPTS, Session, locked, within};
use crate::record_text::{Unreadable, read_host, write_host};

const ID: &str = "id";
const RECORD: &str = "record";
const DRAIN: &str = "drain";
const AT: &str = "at";

/// The number of dead records that one heartbeat deletes.
const MAX_DELETED_PER_HEARTBEAT: usize = 4;

impl Session {
    pub(in crate::azblob) async fn heartbeat(
        &self,
        group: &GroupId,
        record: &HostRecord,
    ) -> Result<DesiredState, StoreError> {
        let names = self.ensure_group(group).await?;
        let name = names.host(&record.id);
        let mut known = locked(&self.hosts).get(&name).cloned();
        for _ in 0..MAX_ATTEMPTS {
            let before = match known.take() {
                Some(blob) => Some(blob),
                None => self.container.head(&name).await?.blob,
            };
            let desired = before.as_ref().map(desired_state).unwrap_or_default();
            if self.write_host(&name, record, before.as_ref(), desired).await? {
                self.delete_dead_hosts(&names).await;
                return Ok(desired);
            }
        }
        Err(changing(&record.id))
    }

    async fn write_host(
        &self,
        name: &str,
        record: &HostRecord,
        before: Option<&Blob>,
        desired: DesiredState,
    ) -> Result<bool, StoreError> {
        let id = escape(&record.id.to_string());
        let mut text = escape(&write_host(record));
        let mut body = String::new();
        if id.len() + text.len() > MAX_METADATA {
            body = std::mem::take(&mut text);
        }
        let mut metadata = pairs([(ID, id), (RECORD, text)]);
        if desired.drain {
            metadata.insert(DRAIN.into(), "true".into());
        }
        // An old record must not stay in the body: a later reader would take it for the current one.
        let was_long = before.is_some_and(|blob| blob.metadata.get(RECORD).is_some_and(String::is_empty));
        let write = match before {
            None => self.container.create(name, &metadata, &body).await,
            Some(blob) if !body.is_empty() || was_long => {
                self.container.replace(name, &metadata, &body, &blob.stamp.etag).await
            }
            Some(blob) => self.container.update(name, &metadata, &blob.stamp.etag).await,
        };
        let mut hosts = locked(&self.hosts);
        match write {
            Ok(Write::Done(stamp)) => {
                hosts.insert(name.to_owned(), Blob { metadata, stamp });
                Ok(true)
            }
            Ok(Write::Refused) => {
                hosts.remove(name);
                Ok(false)
            }
            Err(error) => {
                hosts.remove(name);
                Err(error)
            }
        }
    }

    pub(in crate::azblob) async fn retire(&self, group: &GroupId, host: &HostId) -> Result<(), StoreError> {
        self.ready().await?;
        let name = self.names(group)?.host(host);
        locked(&self.hosts).remove(&name);
        self.container.delete(&name, None).await
    }

    pub(in crate::azblob) async fn set_desired_state(
        &self,
        group: &GroupId,
        host: &HostId,
        desired: DesiredState,
    ) -> Result<bool, StoreError> {
        self.ready().await?;
        let name = self.names(group)?.host(host);
        for _ in 0..MAX_ATTEMPTS {
            let Some(blob) = self.container.head(&name).await?.blob else { return Ok(false) };
            let mut metadata = blob.metadata.clone();
            metadata.insert(AT.into(), written_at(&blob).0.to_string());
            metadata.remove(DRAIN);
            if desired.drain {
                metadata.insert(DRAIN.into(), "true".into());
            }
            if self.container.update(&name, &metadata, &blob.stamp.etag).await? != Write::Refused {
                return Ok(true);
            }
        }
        Err(changing(host))
    }

    /// Deletes some of the records that the last view found long dead, if they are unchanged.
    async fn delete_dead_hosts(&self, names: &Names) {
        let dead: Vec<(String, String)> = {
            let mut all = locked(&self.deletable);
            let Some(dead) = all.get_mut(names) else { return };
            let some = dead.len().min(MAX_DELETED_PER_HEARTBEAT);
            dead.drain(..some).collect()
        };
        let deletions = dead.iter().map(|(name, etag)| async move {
            // The next view finds it again.
            if let Err(error) = self.container.delete(name, Some(etag)).await {
                tracing::debug!(%error, "the record of a dead host could not be deleted");
            }
        });
        within(ADVISORY_LIMIT, join_all(deletions)).await;
    }

    /// A host's record as a view shows it.
    pub(in crate::azblob) async fn host_entry(
        &self,
        name: &str,
        blob: &Blob,
        now: Timestamp,
    ) -> Result<HostEntry, Unreadable> {
        let value = |name| blob.metadata.get(name).map(|value| unescape(value)).unwrap_or_default();
        let id: HostId = value(ID).parse().map_err(|_| format!("{:?} is not a host id", value(ID)))?;
        let text = match value(RECORD) {
            text if !text.is_empty() => text,
            _ => {
                let whole = self.container.body(name).await.map_err(|error| error.to_string())?;
                let (now, body) = whole.ok_or("it is gone")?;
                // The host may have written a short record meanwhile.
                let short = now.metadata.get(RECORD).filter(|text| !text.is_empty());
                unescape(short.unwrap_or(&body))
            }
        };
        let age = now.since(written_at(blob) + CLOCK_RESOLUTION);
        Ok(HostEntry { record: read_host(id, &text)?, age, age_known: true })
    }
}

fn changing(host: &HostId) -> StoreError {
    StoreError::Unavailable(format!("the record of {host} changes faster than it can be written").into())
}

fn desired_state(blob: &Blob) -> DesiredState {
    DesiredState { drain: is_drained(&blob.metadata) }
}

pub(in crate::azblob) fn is_drained(metadata: &Metadata) -> bool {
    metadata.get(DRAIN).is_some_and(|value| value == "true")
}

/// The time of the host's own last write.
pub(in crate::azblob) fn written_at(blob: &Blob) -> Timestamp {
    number(&blob.metadata, AT).map_or(blob.stamp.modified, Timestamp)
}
