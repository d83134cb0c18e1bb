//! Host records, and what is wanted of hosts.
//!
//! | name | value |
//! |---|---|
//! | `id` | the host |
//! | `record` | what it says of itself, as in every store; empty if that is too much for metadata: then it is in the blob |
//! | `drain` | `true` if somebody wants it to |
//! | `at` | when the host wrote, if somebody else has written since |
//!
//! A host writes its own record, on the condition that nobody has: an order changes its state, and so is not missed. An
//! order is no sign of life: it writes down when there was one.

use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId};
use ephor_core::store::{HostEntry, HostOrders, StoreError};
use ephor_core::time::Timestamp;
use futures_util::future::join_all;

use super::CLOCK_RESOLUTION;
use super::container::{Blob, Write};
use super::metadata::{MOST_METADATA, Metadata, escape, number, pairs, unescape};
use super::names::Names;
use super::session::{ADVISORY_LIMIT, MOST_ATTEMPTS, Session, locked, within};
use crate::text::{Unreadable, read_host, write_host};

const ID: &str = "id";
const RECORD: &str = "record";
const DRAIN: &str = "drain";
const AT: &str = "at";

/// So many records of the dead are forgotten with one heartbeat.
const FORGOTTEN_AT_ONCE: usize = 4;

impl Session {
    pub(super) async fn heartbeat(
        &self,
        group: &GroupId,
        record: &HostRecord,
    ) -> Result<HostOrders, StoreError> {
        let names = self.introduced(group).await?;
        let name = names.host(&record.id);
        let mut known = locked(&self.hosts).get(&name).cloned();
        for _ in 0..MOST_ATTEMPTS {
            let before = match known.take() {
                Some(blob) => Some(blob),
                None => self.container.head(&name).await?.blob,
            };
            let orders = before.as_ref().map(orders).unwrap_or_default();
            if self.write_host(&name, record, before.as_ref(), orders).await? {
                self.forget_the_dead(&names).await;
                return Ok(orders);
            }
        }
        Err(changing(&record.id))
    }

    async fn write_host(
        &self,
        name: &str,
        record: &HostRecord,
        before: Option<&Blob>,
        orders: HostOrders,
    ) -> Result<bool, StoreError> {
        let id = escape(&record.id.to_string());
        let mut text = escape(&write_host(record));
        let mut body = String::new();
        if id.len() + text.len() > MOST_METADATA {
            body = std::mem::take(&mut text);
        }
        let mut metadata = pairs([(ID, id), (RECORD, text)]);
        if orders.drain {
            metadata.insert(DRAIN.into(), "true".into());
        }
        // One that was in the blob must not stay there: whoever reads it later would take it for the present.
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

    pub(super) async fn retire(&self, group: &GroupId, host: &HostId) -> Result<(), StoreError> {
        self.ready().await?;
        let name = self.names(group)?.host(host);
        locked(&self.hosts).remove(&name);
        self.container.delete(&name, None).await
    }

    pub(super) async fn order(
        &self,
        group: &GroupId,
        host: &HostId,
        orders: HostOrders,
    ) -> Result<bool, StoreError> {
        self.ready().await?;
        let name = self.names(group)?.host(host);
        for _ in 0..MOST_ATTEMPTS {
            let Some(blob) = self.container.head(&name).await?.blob else { return Ok(false) };
            let mut metadata = blob.metadata.clone();
            metadata.insert(AT.into(), written_at(&blob).0.to_string());
            metadata.remove(DRAIN);
            if orders.drain {
                metadata.insert(DRAIN.into(), "true".into());
            }
            if self.container.update(&name, &metadata, &blob.stamp.etag).await? != Write::Refused {
                return Ok(true);
            }
        }
        Err(changing(host))
    }

    /// Forgets some of those that the last view found long dead, if they are still as they were seen.
    async fn forget_the_dead(&self, names: &Names) {
        let dead: Vec<(String, String)> = {
            let mut all = locked(&self.dead);
            let Some(dead) = all.get_mut(names) else { return };
            let some = dead.len().min(FORGOTTEN_AT_ONCE);
            dead.drain(..some).collect()
        };
        let deletions = dead.iter().map(|(name, etag)| async move {
            // It comes up again with the next view.
            if let Err(error) = self.container.delete(name, Some(etag)).await {
                tracing::debug!(%error, "the record of a dead host is still there");
            }
        });
        within(ADVISORY_LIMIT, join_all(deletions)).await;
    }

    /// A host's record as a view shows it.
    pub(super) async fn host_entry(
        &self,
        name: &str,
        blob: &Blob,
        now: Timestamp,
    ) -> Result<HostEntry, Unreadable> {
        let value = |name| blob.metadata.get(name).map(|value| unescape(value)).unwrap_or_default();
        let id: HostId = value(ID).parse().map_err(|_| format!("{:?} is no host", value(ID)))?;
        let text = match value(RECORD) {
            text if !text.is_empty() => text,
            _ => {
                let whole = self.container.body(name).await.map_err(|error| error.to_string())?;
                let (now, body) = whole.ok_or("it is gone")?;
                // It may have become short meanwhile.
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

fn orders(blob: &Blob) -> HostOrders {
    HostOrders { drain: is_drained(&blob.metadata) }
}

pub(super) fn is_drained(metadata: &Metadata) -> bool {
    metadata.get(DRAIN).is_some_and(|value| value == "true")
}

/// When the host itself wrote.
pub(super) fn written_at(blob: &Blob) -> Timestamp {
    number(&blob.metadata, AT).map_or(blob.stamp.modified, Timestamp)
}
