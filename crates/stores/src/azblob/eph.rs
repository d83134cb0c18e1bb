//! The container of an old Event Processor Host: how far its fleet came, read once it is stopped.
//!
//! ```text
//!   [PREFIX]GROUP/PARTITION    .NET, Java, JavaScript; a slash between prefix and group is the prefix's own
//!   PARTITION                  Python, whatever the group is
//! ```
//!
//! Each is a JSON object, with its names in `PascalCase`, `camelCase` or `snake_case`, and is guarded by a real lease of
//! the blob. While it is read here we hold that lease: a fleet that runs is noticed, and one that comes back waits. Nothing
//! is written into the container: what was read goes into another store, by an export and an import.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{ConsumerGroup, GroupId, HostId, HubName, Namespace, PartitionId};
use ephor_core::lease::{ClaimRequest, Lease, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::store::{
    Capabilities, Claim, Founding, GiveAway, HostOrders, Renewal, Save, SaveRequest, Seek, SeekRequest,
    Store, StoreError, StoreFuture, View,
};
use ephor_core::time::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::CLOCK_RESOLUTION;
use super::address::{BlobAddress, Layout};
use super::container::Container;
use super::credential::BlobCredential;
use super::names::group_of;
use super::options::{BlobOptions, ConnectError};

/// The longest lease that the service gives, in seconds.
const LEASE_SECONDS: i32 = 60;

/// What an offset says before the first event.
const BEFORE_ALL: &str = "-1";

/// The positions of a stopped fleet, to be read and taken elsewhere. As a store it shows them and refuses all else.
#[derive(Clone)]
pub struct OldFleet {
    inner: Arc<Inner>,
}

struct Inner {
    container: Container,
    prefix: String,
    namespace: Namespace,
    hub: HubName,
}

/// A blob of the fleet.
struct Found {
    name: String,
    group: Option<ConsumerGroup>,
    fit: Fit,
    partition: PartitionId,
    at: Timestamp,
    modified: Timestamp,
    etag: String,
}

/// How well a blob's name is as it was asked for; the best come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The group is right behind the prefix.
    Exact,
    /// It would be, with a slash more or less.
    Slash,
    /// There is no group in the name.
    NoGroup,
}

/// What a blob says.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    epoch: Epoch,
    position: Option<Position>,
}

impl OldFleet {
    /// The container of an old fleet; the address says of which hub ([`Layout::Eph`]).
    pub fn connect(
        address: &BlobAddress,
        credential: BlobCredential,
        options: &BlobOptions,
    ) -> Result<Self, ConnectError> {
        let Layout::Eph { namespace, hub } = address.layout.clone() else {
            return Err(ConnectError::Address {
                problem: "this is no container of an old fleet: add layout=eph".into(),
            });
        };
        options.check()?;
        let container = Container::new(address, credential, options)?;
        let prefix = address.prefix.clone();
        Ok(Self { inner: Arc::new(Inner { container, prefix, namespace, hub }) })
    }

    /// The same, with what opens the account from the text or the environment.
    pub fn open(text: &str, options: &BlobOptions) -> Result<Self, ConnectError> {
        let address = BlobAddress::parse(text)?;
        let credential = super::store::find_credential(&address)?;
        Self::connect(&address, credential, options)
    }

    /// Whether the container is there. Its fleet has made it: if it is not, its name is wrong.
    pub async fn check(&self) -> Result<(), StoreError> {
        if self.inner.container.exists().await? {
            return Ok(());
        }
        Err(StoreError::Refused {
            message: format!(
                "{}: there is no container of this name, and so no old fleet: correct its name, or the account's",
                self.inner.container.place
            ),
        })
    }
}

impl Inner {
    /// The leases of the fleet; there must be some.
    async fn found(&self) -> Result<Vec<Found>, StoreError> {
        let (_, listed) = self.container.list("").await?;
        if !listed.iter().any(|listed| place(&self.prefix, &listed.name).is_some()) {
            let names: Vec<&str> = listed.iter().map(|listed| listed.name.as_str()).collect();
            let place = &self.container.place;
            return Err(StoreError::Refused { message: format!("{place}: {}", instead(&names)) });
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

    /// Everything, read while we hold the lease of every blob.
    async fn view(&self, group: &GroupId) -> Result<View, StoreError> {
        let mut found = self.found().await?;
        let wanted = |name: &Option<ConsumerGroup>| match name {
            Some(name) => name.as_str().eq_ignore_ascii_case(group.group.as_str()),
            None => true,
        };
        found.retain(|found| wanted(&found.group));
        // What fits less well is of another fleet, if there is what fits better.
        let best = found.iter().map(|found| found.fit).min();
        found.retain(|found| Some(found.fit) == best);
        found.sort_by_key(|found| found.partition);
        let id = lease_id(&format!("{group} {}", self.container.place));
        let mut held: Vec<&str> = Vec::new();
        let mut view = Ok(View::default());
        for found in &found {
            match self.take_in(found, &id, group).await {
                Ok(step) => {
                    held.push(&found.name);
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

    async fn take_in(
        &self,
        found: &Found,
        id: &str,
        group: &GroupId,
    ) -> Result<impl FnOnce(&mut View) + use<>, StoreError> {
        let partition = found.partition;
        if !self.container.lease(&found.name, LEASE_SECONDS, id).await? {
            return Err(StoreError::Refused {
                message: format!(
                    "{}: somebody holds the lease of {}: the old fleet still runs. Stop all its hosts, wait a minute, and \
                     try again",
                    self.container.place, found.name
                ),
            });
        }
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

/// A lease as it is once its fleet is stopped: nobody's.
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
        previous: None,
        quiet: Duration::ZERO,
        heir: None,
    }
}

/// The group and the partition that a blob is of. The last slash of the prefix may be missing, or one too many.
fn place(prefix: &str, name: &str) -> Option<(Option<ConsumerGroup>, PartitionId, Fit)> {
    let Some((folder, last)) = name.rsplit_once('/') else {
        return Some((None, name.parse().ok()?, Fit::NoGroup));
    };
    let partition = last.parse().ok()?;
    let behind = |prefix: &str| folder.strip_prefix(prefix)?.parse::<ConsumerGroup>().ok();
    if let Some(group) = behind(prefix) {
        return Some((Some(group), partition, Fit::Exact));
    }
    let other = match prefix.strip_suffix('/') {
        Some(without) => without.to_owned(),
        None if prefix.is_empty() => return None,
        None => format!("{prefix}/"),
    };
    Some((Some(behind(&other)?), partition, Fit::Slash))
}

/// What to do where no lease of an old fleet was found, by the names that are there.
fn instead(names: &[&str]) -> String {
    let is_lease =
        |name: &str| name.rsplit_once('/').is_some_and(|(_, last)| last.parse::<PartitionId>().is_ok());
    let advice = if names.iter().any(|name| group_of("", name).is_some()) {
        "The blobs here are those of the SDKs of today, or of Ephor: try without layout=eph, or with another prefix".to_owned()
    } else if let Some(name) = names.iter().find(|name| is_lease(name)) {
        format!(
            "There are others, such as {name}: what is before the consumer group in it is the prefix, and belongs behind \
             the container's name"
        )
    } else {
        "Is it the right container?".to_owned()
    };
    format!("there is no lease of an old Event Processor Host here. {advice}")
}

fn unreadable(name: &str, partition: PartitionId, group: &GroupId, why: &str) -> String {
    format!(
        "the lease of partition {partition} of {group}, the blob {name}: {why} (nothing is written into an old fleet's \
         container: put the blob right by hand, or go on without it)"
    )
}

/// The group as hubs call it: the JavaScript host wrote `$default`, Python none at all.
fn plain(group: Option<ConsumerGroup>) -> ConsumerGroup {
    let default = ConsumerGroup::default_group();
    group.filter(|group| !group.as_str().eq_ignore_ascii_case(default.as_str())).unwrap_or(default)
}

/// An id for leases of ours: the same for the same place, so that a second try takes up the first.
fn lease_id(text: &str) -> String {
    let digest = Sha256::digest(text);
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn read(body: &str) -> Result<Record, String> {
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
        return Err("it is no lease of an Event Processor Host".into());
    }
    let number = |name: &str| get(name).and_then(text).and_then(|text| text.parse::<i64>().ok());
    let epoch = Epoch::from_stored(number("epoch").and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or(0));
    let offset = get("offset").and_then(text).filter(|offset| offset != BEFORE_ALL);
    let sequence = number("sequencenumber").and_then(|sequence| u64::try_from(sequence).ok());
    // Without an offset nothing was ever finished: a number beside it is where it began.
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

fn only_read<'a, T: 'a>(inner: &'a Inner) -> StoreFuture<'a, T> {
    let message = format!(
        "{}: this is the container of an old Event Processor Host, which is only read: export its positions, and import \
         them into another store",
        inner.container.place
    );
    Box::pin(async move { Err(StoreError::Refused { message }) })
}

impl fmt::Debug for OldFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldFleet").field("place", &self.inner.container.place).finish_non_exhaustive()
    }
}

impl Store for OldFleet {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: false,
            fences_checkpoints: false,
            keeps_history: false,
            clock_resolution: CLOCK_RESOLUTION,
            epochless_neighbours: false,
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        Box::pin(self.inner.groups())
    }

    fn found<'a>(&'a self, _group: &'a GroupId, _founding: &'a Founding) -> StoreFuture<'a, Founding> {
        only_read(&self.inner)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        Box::pin(self.inner.view(group))
    }

    fn heartbeat<'a>(&'a self, _group: &'a GroupId, _record: &'a HostRecord) -> StoreFuture<'a, HostOrders> {
        only_read(&self.inner)
    }

    fn retire<'a>(&'a self, _group: &'a GroupId, _host: &'a HostId) -> StoreFuture<'a, ()> {
        only_read(&self.inner)
    }

    fn order<'a>(
        &'a self,
        _group: &'a GroupId,
        _host: &'a HostId,
        _orders: HostOrders,
    ) -> StoreFuture<'a, bool> {
        only_read(&self.inner)
    }

    fn claim<'a>(&'a self, _group: &'a GroupId, _request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        only_read(&self.inner)
    }

    fn renew<'a>(
        &'a self,
        _group: &'a GroupId,
        _duration: Duration,
        _tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        only_read(&self.inner)
    }

    fn transfer<'a>(
        &'a self,
        _group: &'a GroupId,
        _request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveAway> {
        only_read(&self.inner)
    }

    fn release<'a>(&'a self, _group: &'a GroupId, _request: &'a ReleaseRequest) -> StoreFuture<'a, GiveAway> {
        only_read(&self.inner)
    }

    fn save<'a>(&'a self, _group: &'a GroupId, _request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        only_read(&self.inner)
    }

    fn seek<'a>(&'a self, _group: &'a GroupId, _request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
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

    #[test]
    fn a_blob_is_found_whatever_is_before_its_group() {
        let named =
            |group: &str, partition, fit| Some((Some(group.parse().unwrap()), PartitionId(partition), fit));
        assert_eq!(place("", "$Default/3"), named("$Default", 3, Fit::Exact));
        assert_eq!(place("blue", "blue$default/12"), named("$default", 12, Fit::Exact));
        assert_eq!(place("blue", "blue/$default/12"), named("$default", 12, Fit::Slash));
        assert_eq!(place("blue/", "blue/alarms/0"), named("alarms", 0, Fit::Exact));
        assert_eq!(place("blue/", "bluealarms/0"), named("alarms", 0, Fit::Slash));
        assert_eq!(place("ns/homes/", "ns/homes/alarms/0"), named("alarms", 0, Fit::Exact));
        assert_eq!(place("", "7"), Some((None, PartitionId(7), Fit::NoGroup)));
        for other in ["eventhub.info", "$Default/x", "a/b/3", "$Default/3/4"] {
            assert_eq!(place("", other), None, "{other}");
        }
        assert_eq!(place("green", "blue$default/12"), None);
    }

    #[test]
    fn an_id_of_a_lease_is_one_and_the_same() {
        let id = lease_id("a");
        assert_eq!((id.len(), id.matches('-').count()), (36, 4));
        assert_eq!(id, lease_id("a"));
        assert_ne!(id, lease_id("b"));
    }
}
