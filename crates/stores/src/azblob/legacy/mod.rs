//! `LegacyContainer`, a read-only store: it reads the checkpoints in the container of a legacy Event
//! Processor Host, after its hosts were stopped, so that they can be imported into another store.
//!
//! ```text
//!   [PREFIX]GROUP/PARTITION    .NET, Java, JavaScript; a slash between prefix and group is a part of the prefix
//!   PARTITION                  Python, for any group
//! ```
//!
//! Each blob is a JSON object, with its names in `PascalCase`, `camelCase` or `snake_case`, and is guarded by
//! the service's lease of the blob. The store takes that lease while it reads: running hosts are noticed, and
//! hosts that start meanwhile wait. The store writes no blob: an export and an import bring the positions
//! into another store.

mod blob_name;
mod lease_record;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{ConsumerGroup, GroupId, HostId, HubName, Namespace, PartitionId};
use ephor_core::lease::{ClaimRequest, Lease, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RefusalCause, RenewalOutcome,
    SaveOutcome, SaveRequest, SeekOutcome, SeekRequest, Store, StoreError, StoreFuture, View,
};
use ephor_core::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::azblob::CLOCK_RESOLUTION;
use crate::azblob::address::{BlobAddress, Layout};
use crate::azblob::options::{BlobOptions, InvalidSettings};
use crate::azblob::service::container::Container;
use crate::azblob::service::credential::BlobCredential;
use blob_name::{Fit, instead, place, plain};
use lease_record::read;

/// The service's longest blob lease, in seconds.
const LEASE_SECONDS: i32 = 60;

/// A read-only store of the positions in the container of an old Event Processor Host. It refuses all writes.
#[derive(Clone)]
pub struct LegacyContainer {
    inner: Arc<Inner>,
}

struct Inner {
    container: Container,
    prefix: String,
    namespace: Namespace,
    hub: HubName,
}

/// A lease blob of an old host.
struct Found {
    name: String,
    group: Option<ConsumerGroup>,
    fit: Fit,
    partition: PartitionId,
    at: Timestamp,
    modified: Timestamp,
    etag: String,
}

impl LegacyContainer {
    /// A container; the address names the hub ([`Layout::Eph`]). The credential is that of the text or of the
    /// environment. It connects with its first call.
    pub fn new(text: &str, options: &BlobOptions) -> Result<Self, InvalidSettings> {
        let address = BlobAddress::parse(text)?;
        let credential = crate::azblob::store::find_credential(&address)?;
        Self::with_credential(&address, credential, options)
    }

    /// As [`new`](Self::new), with your own credential.
    pub fn with_credential(
        address: &BlobAddress,
        credential: BlobCredential,
        options: &BlobOptions,
    ) -> Result<Self, InvalidSettings> {
        let Layout::Eph { namespace, hub } = address.layout.clone() else {
            return Err(InvalidSettings::Address {
                problem: "the address is not one of an old Event Processor Host: add layout=eph".into(),
            });
        };
        options.check()?;
        let container = Container::new(address, credential, options)?;
        let prefix = address.prefix.clone();
        Ok(Self { inner: Arc::new(Inner { container, prefix, namespace, hub }) })
    }

    /// Fails if the container does not exist.
    pub async fn check(&self) -> Result<(), StoreError> {
        if self.inner.container.exists().await? {
            return Ok(());
        }
        let message = format!(
            "{}: the container does not exist, so no Event Processor Host has used it: correct its name, or the account's",
            self.inner.container.place
        );
        Err(StoreError::refused(RefusalCause::NotFound, message))
    }
}

impl Inner {
    /// Lists the leases of the old hosts; fails if there are none.
    async fn found(&self) -> Result<Vec<Found>, StoreError> {
        let (_, listed) = self.container.list("").await?;
        if !listed.iter().any(|listed| place(&self.prefix, &listed.name).is_some()) {
            let names: Vec<&str> = listed.iter().map(|listed| listed.name.as_str()).collect();
            let place = &self.container.place;
            return Err(StoreError::refused(RefusalCause::NotFound, format!("{place}: {}", instead(&names))));
        }
        let found = listed.into_iter().filter_map(|listed| {
            let (group, partition, fit) = place(&self.prefix, &listed.name)?;
            let (at, stamp) = (listed.at, listed.blob.stamp);
            Some(Found {
                name: listed.name,
                group,
                fit,
                partition,
                at,
                modified: stamp.modified,
                etag: stamp.etag,
            })
        });
        Ok(found.collect())
    }

    async fn groups(&self) -> Result<Vec<GroupId>, StoreError> {
        let found = self.found().await?;
        let mut names: Vec<ConsumerGroup> = found.into_iter().map(|found| plain(found.group)).collect();
        names.sort();
        names.dedup();
        let (namespace, hub) = (&self.namespace, &self.hub);
        let group = |group| GroupId { namespace: namespace.clone(), hub: hub.clone(), group };
        Ok(names.into_iter().map(group).collect())
    }

    /// Reads all positions while this process holds the lease of every blob.
    async fn view(&self, group: &GroupId) -> Result<View, StoreError> {
        let mut found = self.found().await?;
        let wanted = |name: &Option<ConsumerGroup>| match name {
            Some(name) => name.as_str().eq_ignore_ascii_case(group.group.as_str()),
            None => true,
        };
        found.retain(|found| wanted(&found.group));
        // Names that match less well belong to another group of hosts.
        let best = found.iter().map(|found| found.fit).min();
        found.retain(|found| Some(found.fit) == best);
        found.sort_by_key(|found| found.partition);
        if let Some(twice) = found.windows(2).find(|pair| pair[0].partition == pair[1].partition) {
            return Err(self.duplicate_lease(group, &twice[0], &twice[1]));
        }
        let id = lease_id(&format!("{group} {}", self.container.place));
        let mut held: Vec<&str> = Vec::new();
        let mut view = Ok(View::default());
        for found in &found {
            if let Err(error) = self.lease(found, &id).await {
                view = Err(error);
                break;
            }
            held.push(&found.name);
            match self.take_in(found, group).await {
                Ok(step) => {
                    if let Ok(view) = &mut view {
                        step(view);
                    }
                }
                Err(error) => {
                    view = Err(error);
                    break;
                }
            }
        }
        for name in held {
            self.container.unlease(name, &id).await;
        }
        view
    }

    /// The error for two blobs of one partition. The hub ignores the case of a group's name, and only an operator
    /// knows which blob is current.
    fn duplicate_lease(&self, group: &GroupId, one: &Found, other: &Found) -> StoreError {
        let message = format!(
            "{}: {} and {} are both the lease of partition {} of {group}, because the hub ignores the case of names: \
             find out which of them the hosts wrote last, and move the other away",
            self.container.place, one.name, other.name, one.partition
        );
        StoreError::refused(RefusalCause::Other, message)
    }

    async fn lease(&self, found: &Found, id: &str) -> Result<(), StoreError> {
        if !self.container.lease(&found.name, LEASE_SECONDS, id).await? {
            let message = format!(
                "{}: another process holds the lease of {}: the old hosts still run. Stop all of them, wait a minute, \
                 and try again",
                self.container.place, found.name
            );
            return Err(StoreError::refused(RefusalCause::Other, message));
        }
        Ok(())
    }

    async fn take_in(
        &self,
        found: &Found,
        group: &GroupId,
    ) -> Result<impl FnOnce(&mut View) + use<>, StoreError> {
        let partition = found.partition;
        let body = self.container.body(&found.name).await?.map(|(_, body)| body).unwrap_or_default();
        let read = read(&body).map_err(|why| unreadable(&found.name, partition, group, &why));
        let (at, modified, etag) = (found.at, found.modified, found.etag.clone());
        Ok(move |view: &mut View| {
            view.at = view.at.max(at);
            match read {
                Ok(record) => {
                    view.leases.push(lease(partition, record.epoch, at, modified, &etag));
                    view.checkpoints.extend(record.position.map(|position| {
                        (
                            partition,
                            Checkpoint { position, log: None, epoch: record.epoch, saved_at: modified },
                        )
                    }));
                }
                Err(why) => view.damaged.push(why),
            }
        })
    }
}

/// The lease of a partition after its hosts were stopped: without an owner.
fn lease(partition: PartitionId, epoch: Epoch, at: Timestamp, modified: Timestamp, etag: &str) -> Lease {
    Lease {
        partition,
        owner: None,
        epoch,
        duration: None,
        acquired_at: modified,
        age: at.since(modified + CLOCK_RESOLUTION),
        age_known: true,
        version: LeaseVersion::tag(etag),
        previous_owner: None,
        takeover_delay: Duration::ZERO,
        successor: None,
    }
}

fn unreadable(name: &str, partition: PartitionId, group: &GroupId, why: &str) -> String {
    format!(
        "the lease of partition {partition} of {group}, the blob {name}: {why} (Ephor writes nothing into the container \
         of an old host: correct the blob by hand, or continue without it)"
    )
}

/// The id of our blob leases: the same for the same container, so that a second attempt continues the first.
fn lease_id(text: &str) -> String {
    let digest = Sha256::digest(text);
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn only_read<'a, T: 'a>(inner: &'a Inner) -> StoreFuture<'a, T> {
    let message = format!(
        "{}: this is the container of an old Event Processor Host, which is read-only: export its positions, and import \
         them into another store",
        inner.container.place
    );
    Box::pin(async move { Err(StoreError::refused(RefusalCause::Other, message)) })
}

impl fmt::Debug for LegacyContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LegacyContainer").field("place", &self.inner.container.place).finish_non_exhaustive()
    }
}

impl Store for LegacyContainer {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: false,
            fences_checkpoints: false,
            keeps_history: false,
            clock_resolution: CLOCK_RESOLUTION,
            shared_with_other_sdks: false,
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        Box::pin(self.inner.groups())
    }

    fn init_group<'a>(
        &'a self,
        _group: &'a GroupId,
        _origin: &'a GroupOrigin,
    ) -> StoreFuture<'a, GroupOrigin> {
        only_read(&self.inner)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        Box::pin(self.inner.view(group))
    }

    fn heartbeat<'a>(
        &'a self,
        _group: &'a GroupId,
        _record: &'a HostRecord,
    ) -> StoreFuture<'a, DesiredState> {
        only_read(&self.inner)
    }

    fn retire<'a>(&'a self, _group: &'a GroupId, _host: &'a HostId) -> StoreFuture<'a, ()> {
        only_read(&self.inner)
    }

    fn set_desired_state<'a>(
        &'a self,
        _group: &'a GroupId,
        _host: &'a HostId,
        _desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        only_read(&self.inner)
    }

    fn claim<'a>(&'a self, _group: &'a GroupId, _request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        only_read(&self.inner)
    }

    fn renew<'a>(
        &'a self,
        _group: &'a GroupId,
        _duration: Duration,
        _tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        only_read(&self.inner)
    }

    fn transfer<'a>(
        &'a self,
        _group: &'a GroupId,
        _request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        only_read(&self.inner)
    }

    fn release<'a>(
        &'a self,
        _group: &'a GroupId,
        _request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        only_read(&self.inner)
    }

    fn save<'a>(&'a self, _group: &'a GroupId, _request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        only_read(&self.inner)
    }

    fn seek<'a>(&'a self, _group: &'a GroupId, _request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        only_read(&self.inner)
    }

    fn history<'a>(
        &'a self,
        _group: &'a GroupId,
        _partition: Option<PartitionId>,
        _most: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        Box::pin(async { Ok(vec![]) })
    }

    fn changed<'a>(&'a self, _group: &'a GroupId, _host: &'a HostId) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

/// Reads a body as the lease of an old host, and a name as that of its blob, for a fuzz target.
#[cfg(feature = "fuzzing")]
pub(super) fn play(name: &str, body: &str) {
    let _ = (read(body), instead(&[name]));
    for prefix in ["", "blue", "blue/"] {
        if let Some((group, ..)) = place(prefix, name) {
            plain(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_lease_is_one_and_the_same() {
        let id = lease_id("a");
        assert_eq!((id.len(), id.matches('-').count()), (36, 4));
        assert_eq!(id, lease_id("a"));
        assert_ne!(id, lease_id("b"));
    }
}
