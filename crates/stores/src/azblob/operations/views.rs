//! Reads a view of a group (leases, checkpoints, host records, origin) from one listing of its blobs, and
//! repairs low fences on the way. Also lists all groups, and writes the origin of a group. The history is in
//! `records/history.rs`.
//!
//! The service lists by name, so checkpoints come before leases. A host that finds itself an owner must see
//! a checkpoint that no earlier owner can still change. A checkpoint whose fence is the lease's epoch is
//! final, whenever it was listed. If its fence is lower, a takeover is in progress or its process died:
//! the view finishes it (raises the fence) and shows the checkpoint that was read with that write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::record::CheckpointRecord;
use ephor_core::store::{FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER, GroupOrigin, StoreError, View};
use ephor_core::time::Timestamp;

use crate::azblob::layout::blob_names::{Kind, Names, group_of};
use crate::azblob::layout::metadata::{escape, pairs, unescape};
use crate::azblob::operations::partition_state::{damaged_epoch, damaged_lease, read_epoch};
use crate::azblob::records::checkpoint;
use crate::azblob::records::hosts::is_drained;
use crate::azblob::records::ownership::{self, Ownership};
use crate::azblob::renewal::batch::RenewalBatch;
use crate::azblob::service::container::{Blob, Listed, Stamp, Write};
use crate::azblob::session::{Session, locked, written_group};
use crate::record_text::{Unreadable, read_origin, write_origin};

const FOUNDING: &str = "founding";

/// The blobs of a group, by kind.
#[derive(Default)]
struct Sorted {
    leases: BTreeMap<PartitionId, (Blob, Timestamp)>,
    checkpoints: BTreeMap<PartitionId, Blob>,
    epochs: BTreeMap<PartitionId, Result<Epoch, Unreadable>>,
    hosts: Vec<(String, Blob, Timestamp)>,
    batches: BTreeMap<String, ListedBatch>,
    origin: Option<Blob>,
    group: Option<Blob>,
}

/// A renewal batch in the listing.
struct ListedBatch {
    batch: Result<RenewalBatch, Unreadable>,
    stamp: Stamp,
    at: Timestamp,
}

/// A lease with its renewal from its owner's batch. The batch was listed earlier, so the age counts from then.
fn with_listed_batch(names: &Names, sorted: &Sorted, lease: &Ownership, at: Timestamp) -> Lease {
    let partition = lease.record.partition;
    let listed =
        lease.batch_renewed_by().and_then(|owner| sorted.batches.get(&names.batch(owner, partition)));
    match listed.map(|listed| (&listed.batch, listed.at)) {
        None => lease.seen_at(at),
        Some((Ok(batch), earlier)) => lease.clone().with_renewal_from(Some(batch)).seen_at(at.min(earlier)),
        // Its owner overwrites it soon. Until then the age of the lease is unknown.
        Some((Err(_), _)) => Lease { age: Duration::ZERO, age_known: false, ..lease.seen_at(at) },
    }
}

fn sort(names: &Names, listed: Vec<Listed>) -> Sorted {
    let mut sorted = Sorted::default();
    for Listed { name, blob, at } in listed {
        match names.kind(&name) {
            Some(Kind::Ownership(partition)) => {
                sorted.leases.insert(partition, (blob, at));
            }
            Some(Kind::Checkpoint(partition)) => {
                sorted.checkpoints.insert(partition, blob);
            }
            Some(Kind::Epoch(partition)) => {
                sorted.epochs.insert(partition, read_epoch(&blob));
            }
            Some(Kind::Host) => sorted.hosts.push((name, blob, at)),
            Some(Kind::RenewalBatch(batch_number)) => {
                let batch = RenewalBatch::read(batch_number, &blob);
                sorted.batches.insert(name, ListedBatch { batch, stamp: blob.stamp, at });
            }
            Some(Kind::Origin) => sorted.origin = Some(blob),
            Some(Kind::Group) => sorted.group = Some(blob),
            Some(Kind::History(_)) | None => {}
        }
    }
    sorted
}

/// The batches of hosts that have no record and own nothing, and that nobody has written for so long that no host
/// renews from its cache what they revoke (`Session::forget_stale_leases`). The leases were listed after them, and
/// a later revocation changes their ETag.
fn unneeded_batches(names: &Names, sorted: &Sorted, view: &View) -> Vec<(String, String)> {
    let owners = view.leases.iter().filter_map(|lease| lease.owner.as_ref());
    let owners: BTreeSet<String> = owners.map(|owner| names.batches(owner)).collect();
    let hosts: BTreeSet<&String> = sorted.hosts.iter().map(|(name, _, _)| name).collect();
    let unneeded = sorted.batches.iter().filter(|(name, listed)| {
        let has_lease = owners.iter().any(|owner| name.starts_with(owner.as_str()));
        let has_record = names.host_of_batch(name).is_none_or(|host| hosts.contains(&host));
        let is_old = listed.at.since(listed.stamp.modified) >= FORGET_HOSTS_AFTER;
        !has_lease && !has_record && is_old
    });
    // An unreadable lease may belong to any host.
    let all_read = view.leases.len() == sorted.leases.len();
    let unneeded = unneeded.filter(|_| all_read);
    unneeded.map(|(name, listed)| (name.clone(), listed.stamp.etag.clone())).collect()
}

impl Session {
    pub(in crate::azblob) async fn view(&self, group: &GroupId) -> Result<View, StoreError> {
        self.ready().await?;
        let names = self.names(group)?;
        let (at, listed) = self.container.list(&names.all()).await?;
        let sorted = sort(&names, listed);
        if let Some(blob) = &sorted.group {
            self.check_group(group, blob)?;
        }
        let mut view = View { at, ..View::default() };
        let damaged = |what: &str, why: &str| format!("{what} of {group}: {why}");
        self.forget_changed_leases(&names, &sorted);
        let mut fenced = self.add_leases(group, &names, &sorted, &mut view).await?;
        for (partition, blob) in &sorted.checkpoints {
            let read = fenced.remove(partition).map_or_else(|| checkpoint::read(blob), Ok);
            match read {
                Ok(record) => {
                    view.checkpoints.extend(record.checkpoint.map(|checkpoint| (*partition, checkpoint)))
                }
                Err(why) => {
                    view.damaged.push(damaged(&format!("the checkpoint of partition {partition}"), &why))
                }
            }
        }
        // Checkpoints that did not exist yet when they would have been listed.
        let late = fenced.into_iter().filter_map(|(partition, record)| Some((partition, record.checkpoint?)));
        view.checkpoints.extend(late);
        self.add_from_other_case(group, &sorted, &mut view).await?;
        view.checkpoints.sort_by_key(|(partition, _)| *partition);
        self.add_hosts(group, &names, &sorted, &mut view).await;
        let origin = sorted.origin.as_ref().map(|blob| self.origin_in(&names, blob));
        match origin {
            None => {}
            Some(origin) => match origin.await {
                Ok(origin) => view.origin = Some(origin),
                Err(why) => view.damaged.push(damaged("the origin record", &why)),
            },
        }
        Ok(view)
    }

    /// For tools: adds the checkpoints under names in the other case, if there is none under ours. Hosts continue
    /// from them at their first claim, and read them only then.
    async fn add_from_other_case(
        &self,
        group: &GroupId,
        sorted: &Sorted,
        view: &mut View,
    ) -> Result<(), StoreError> {
        let other_case = self.names_in_other_case(group).filter(|_| self.is_for_tools());
        let Some(other_case) = other_case else { return Ok(()) };
        let (_, listed) = self.container.list(&other_case.checkpoints()).await?;
        for Listed { name, blob, .. } in listed {
            let Some(Kind::Checkpoint(partition)) = other_case.kind(&name) else { continue };
            if sorted.checkpoints.contains_key(&partition) || view.checkpoint(partition).is_some() {
                continue;
            }
            match checkpoint::read(&blob) {
                Ok(record) => view.checkpoints.extend(record.checkpoint.map(|found| (partition, found))),
                Err(why) => {
                    view.damaged.push(format!("the checkpoint of partition {partition} of {group}: {why}"))
                }
            }
        }
        Ok(())
    }

    /// Drops cached leases that were listed with another ETag: another SDK or a person may have changed them. They
    /// are read again before they are renewed.
    fn forget_changed_leases(&self, names: &Names, sorted: &Sorted) {
        self.leases.retain(names, |partition, lease| {
            sorted.leases.get(&partition).is_some_and(|(blob, _)| blob.stamp.etag == lease.etag)
        });
        self.batches.retain(|name| names.kind(name).is_none() || sorted.batches.contains_key(name));
        for (name, listed) in &sorted.batches {
            if let Ok(batch) = &listed.batch {
                self.batches.note_beat(name, batch.beat());
            }
        }
    }

    /// Adds the leases; returns the checkpoints whose fence was raised.
    async fn add_leases(
        &self,
        group: &GroupId,
        names: &Names,
        sorted: &Sorted,
        view: &mut View,
    ) -> Result<BTreeMap<PartitionId, CheckpointRecord>, StoreError> {
        let mut raised = BTreeMap::new();
        let damaged = sorted.batches.values().filter_map(|listed| listed.batch.as_ref().err());
        view.damaged.extend(damaged.map(|why| format!("the renewal batch of a host of {group}: {why}")));
        for (partition, epoch) in &sorted.epochs {
            if let Err(why) = epoch {
                view.damaged.push(damaged_epoch(names, *partition, group, why).to_string());
            }
        }
        let mut leases = Vec::new();
        for (partition, (blob, at)) in &sorted.leases {
            // An unreadable epoch prevents claims; the owner is shown all the same.
            let taken = sorted.epochs.get(partition).and_then(|epoch| epoch.as_ref().ok()).copied();
            let taken = taken.unwrap_or_default();
            match ownership::read(*partition, blob, taken) {
                Ok(lease) => leases.push((lease, blob, *at)),
                Err(why) => view.damaged.push(damaged_lease(names, *partition, group, &why).to_string()),
            }
        }
        let seen = |lease: &Ownership| sorted.checkpoints.get(&lease.record.partition);
        let low = leases
            .iter()
            .filter(|(lease, blob, _)| self.is_fence_low(group, names, blob, lease, seen(lease)));
        let low: Vec<_> = low.map(|(lease, _, _)| (lease, seen(lease))).collect();
        let mut outcomes = self.repair_fences(group, names, &low).await?;
        for (lease, _, at) in &leases {
            let partition = lease.record.partition;
            match outcomes.remove(&partition) {
                None => {}
                Some(Ok(record)) => raised.extend(record.map(|record| (partition, record))),
                Some(Err(error @ StoreError::Damaged { .. })) => match seen(lease) {
                    // It is under a name in the other case: an owner would start without it.
                    None => {
                        view.damaged.push(error.to_string());
                        continue;
                    }
                    // No host can start from it, and the list of checkpoints has the reason.
                    Some(seen) if checkpoint::fence(seen).is_some() => continue,
                    // Its owner may be working, and continues.
                    Some(_) => {}
                },
                // A permanent error is reported for this partition, and the others continue.
                Some(Err(error)) => {
                    view.damaged.push(format!("the checkpoint of partition {partition} of {group}: {error}"));
                    continue;
                }
            }
            view.leases.push(with_listed_batch(names, sorted, lease, *at));
        }
        Ok(raised)
    }

    async fn add_hosts(&self, group: &GroupId, names: &Names, sorted: &Sorted, view: &mut View) {
        let mut dead = Vec::new();
        for (name, blob, at) in &sorted.hosts {
            match self.host_entry(name, blob, *at).await {
                Ok(entry) => {
                    let limit = if is_drained(&blob.metadata) {
                        FORGET_DRAINED_HOSTS_AFTER
                    } else {
                        FORGET_HOSTS_AFTER
                    };
                    if entry.age >= limit {
                        dead.push((name.clone(), blob.stamp.etag.clone()));
                    }
                    view.hosts.push(entry);
                }
                Err(why) => view.damaged.push(format!("the record of a host of {group}: {why}")),
            }
        }
        view.hosts.sort_by(|one, other| one.record.id.cmp(&other.record.id));
        dead.extend(unneeded_batches(names, sorted, view));
        locked(&self.deletable).insert(names.clone(), dead);
    }

    pub(in crate::azblob) async fn init_group(
        &self,
        group: &GroupId,
        origin: &GroupOrigin,
    ) -> Result<GroupOrigin, StoreError> {
        let names = self.ensure_group(group).await?;
        let text = escape(&write_origin(origin));
        let (metadata, body) = match text.len() {
            short if short <= crate::azblob::layout::metadata::MAX_METADATA => {
                (pairs([(FOUNDING, text)]), String::new())
            }
            _ => (pairs([(FOUNDING, String::new())]), text),
        };
        if self.container.create(&names.origin(), &metadata, &body).await? != Write::Refused {
            return Ok(origin.clone());
        }
        let damaged =
            |why: &str| StoreError::Damaged { what: format!("the origin record of {group}: {why}") };
        let blob = self.container.head(&names.origin()).await?.blob;
        let blob = blob.ok_or_else(|| damaged("it does not exist"))?;
        self.origin_in(&names, &blob).await.map_err(|why| damaged(&why))
    }

    async fn origin_in(&self, names: &Names, blob: &Blob) -> Result<GroupOrigin, String> {
        let text = blob.metadata.get(FOUNDING).cloned().unwrap_or_default();
        if !text.is_empty() {
            return read_origin(&unescape(&text));
        }
        let whole = self.container.body(&names.origin()).await.map_err(|error| error.to_string())?;
        read_origin(&unescape(&whole.map(|(_, body)| body).unwrap_or_default()))
    }

    /// All groups that have records, in order: ours by their stored names, those of other SDKs by the names of their
    /// blobs.
    pub(in crate::azblob) async fn groups(&self) -> Result<Vec<GroupId>, StoreError> {
        self.ready().await?;
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        let (_, listed) = self.container.list(&prefix).await?;
        let mut ours: BTreeMap<Names, GroupId> = BTreeMap::new();
        for found in listed.iter().filter(|found| found.name.ends_with("/ephor/group")) {
            if let Some(group) = written_group(&found.blob)
                && let Ok(names) = self.names(&group)
                && names.group() == found.name
            {
                ours.insert(names, group);
            }
        }
        let mut groups: BTreeSet<GroupId> = ours.values().cloned().collect();
        for found in &listed {
            let Some(group) = group_of(&self.prefix, &found.name) else { continue };
            if self.names(&group).is_ok_and(|names| !ours.contains_key(&names)) {
                groups.insert(group);
            }
        }
        Ok(groups.into_iter().collect())
    }
}
