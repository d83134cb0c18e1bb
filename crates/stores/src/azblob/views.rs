//! Everything that a group keeps, from one list of its blobs.
//!
//! The service lists by name: checkpoints come before leases. Whoever finds itself an owner must see a checkpoint that no
//! earlier owner can still change, and so it is not enough that both are in the list. But a checkpoint that is sealed
//! with the lease's epoch is such a one, whenever it was listed; where the seal is lower, somebody is in the middle of a change,
//! or died there: then the seal is raised, as the owner would do, and the checkpoint is the one that was read with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::record::CheckpointRecord;
use ephor_core::store::{FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER, Founding, StoreError, View};
use ephor_core::time::Timestamp;

use super::checkpoint;
use super::container::{Blob, Listed, Write};
use super::hosts::is_drained;
use super::metadata::{escape, pairs, unescape};
use super::names::{Kind, Names, group_of};
use super::ownership::{self, Ownership};
use super::roll::Roll;
use super::session::{Session, locked, written_group};
use super::standing::{damaged_epoch, damaged_lease, read_epoch};
use crate::text::{Unreadable, read_founding, write_founding};

const FOUNDING: &str = "founding";

/// The blobs of a group, sorted out.
#[derive(Default)]
struct Sorted {
    leases: BTreeMap<PartitionId, (Blob, Timestamp)>,
    checkpoints: BTreeMap<PartitionId, Blob>,
    epochs: BTreeMap<PartitionId, Result<Epoch, Unreadable>>,
    hosts: Vec<(String, Blob, Timestamp)>,
    rolls: BTreeMap<String, ListedRoll>,
    founding: Option<Blob>,
    group: Option<Blob>,
}

/// A roll in the list.
struct ListedRoll {
    roll: Result<Roll, Unreadable>,
    etag: String,
    at: Timestamp,
}

/// A lease as it is shown, with what its owner's roll says. That was listed earlier, and counts from then.
fn enroll(names: &Names, sorted: &Sorted, lease: &Ownership, at: Timestamp) -> Lease {
    let partition = lease.record.partition;
    let listed = lease.enrolled().and_then(|owner| sorted.rolls.get(&names.roll(owner, partition)));
    match listed.map(|listed| (&listed.roll, listed.at)) {
        None => lease.seen_at(at),
        Some((Ok(roll), earlier)) => lease.clone().renewed_on(Some(roll)).seen_at(at.min(earlier)),
        // Its owner writes it anew soon. Until then nobody can tell how old the lease is.
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
            Some(Kind::Roll(bucket)) => {
                let roll = Roll::read(bucket, &blob);
                sorted.rolls.insert(name, ListedRoll { roll, etag: blob.stamp.etag, at });
            }
            Some(Kind::Founding) => sorted.founding = Some(blob),
            Some(Kind::Group) => sorted.group = Some(blob),
            Some(Kind::History(_)) | None => {}
        }
    }
    sorted
}

/// The rolls of hosts without a record, which own nothing: whatever was struck there is taken away. The leases were listed
/// behind them, and whoever strikes since changes their state.
fn unneeded_rolls(names: &Names, sorted: &Sorted, view: &View) -> Vec<(String, String)> {
    let owners = view.leases.iter().filter_map(|lease| lease.owner.as_ref());
    let owners: BTreeSet<String> = owners.map(|owner| names.rolls(owner)).collect();
    let hosts: BTreeSet<&String> = sorted.hosts.iter().map(|(name, _, _)| name).collect();
    let unneeded = sorted.rolls.iter().filter(|(name, _)| {
        let has_lease = owners.iter().any(|owner| name.starts_with(owner.as_str()));
        !has_lease && names.host_of_roll(name).is_some_and(|host| !hosts.contains(&host))
    });
    // A lease that cannot be read may be anybody's.
    let all_read = view.leases.len() == sorted.leases.len();
    let unneeded = unneeded.filter(|_| all_read);
    unneeded.map(|(name, listed)| (name.clone(), listed.etag.clone())).collect()
}

impl Session {
    pub(super) async fn view(&self, group: &GroupId) -> Result<View, StoreError> {
        self.ready().await?;
        let names = self.names(group)?;
        let (at, listed) = self.container.list(&names.all()).await?;
        let sorted = sort(&names, listed);
        if let Some(blob) = &sorted.group {
            self.must_be(group, blob)?;
        }
        let mut view = View { at, ..View::default() };
        let told = |what: &str, why: &str| format!("{what} of {group}: {why}");
        self.forget_what_has_changed(&names, &sorted);
        let mut sealed = self.take_in_leases(group, &names, &sorted, &mut view).await?;
        for (partition, blob) in &sorted.checkpoints {
            let read = sealed.remove(partition).map_or_else(|| checkpoint::read(blob), Ok);
            match read {
                Ok(record) => {
                    view.checkpoints.extend(record.checkpoint.map(|checkpoint| (*partition, checkpoint)))
                }
                Err(why) => {
                    view.damaged.push(told(&format!("the checkpoint of partition {partition}"), &why))
                }
            }
        }
        // Those that were not there yet when their turn came.
        let late = sealed.into_iter().filter_map(|(partition, record)| Some((partition, record.checkpoint?)));
        view.checkpoints.extend(late);
        self.take_in_elsewhere(group, &sorted, &mut view).await?;
        view.checkpoints.sort_by_key(|(partition, _)| *partition);
        self.take_in_hosts(group, &names, &sorted, &mut view).await;
        let founding = sorted.founding.as_ref().map(|blob| self.founding_in(&names, blob));
        match founding {
            None => {}
            Some(founding) => match founding.await {
                Ok(founding) => view.founding = Some(founding),
                Err(why) => view.damaged.push(told("the founding", &why)),
            },
        }
        Ok(view)
    }

    /// For tools: the checkpoints under names of another case, where there is none under ours. Hosts go on from them at
    /// their first claim, and look for them only then.
    async fn take_in_elsewhere(
        &self,
        group: &GroupId,
        sorted: &Sorted,
        view: &mut View,
    ) -> Result<(), StoreError> {
        let elsewhere = self.names_elsewhere(group).filter(|_| self.is_for_tools());
        let Some(elsewhere) = elsewhere else { return Ok(()) };
        let (_, listed) = self.container.list(&elsewhere.checkpoints()).await?;
        for Listed { name, blob, .. } in listed {
            let Some(Kind::Checkpoint(partition)) = elsewhere.kind(&name) else { continue };
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

    /// What is known and was listed otherwise may have been changed past us, by another SDK or a person: it is read
    /// again before it is renewed.
    fn forget_what_has_changed(&self, names: &Names, sorted: &Sorted) {
        self.leases.retain(names, |partition, lease| {
            sorted.leases.get(&partition).is_some_and(|(blob, _)| blob.stamp.etag == lease.etag)
        });
        self.rolls.retain(|name| names.kind(name).is_none() || sorted.rolls.contains_key(name));
        for (name, listed) in &sorted.rolls {
            if let Ok(roll) = &listed.roll {
                self.rolls.note(name, roll.beat());
            }
        }
    }

    /// Leases, and the checkpoints whose seal had to be raised.
    async fn take_in_leases(
        &self,
        group: &GroupId,
        names: &Names,
        sorted: &Sorted,
        view: &mut View,
    ) -> Result<BTreeMap<PartitionId, CheckpointRecord>, StoreError> {
        let mut raised = BTreeMap::new();
        let damaged = sorted.rolls.values().filter_map(|listed| listed.roll.as_ref().err());
        view.damaged.extend(damaged.map(|why| format!("the renewals of a host of {group}: {why}")));
        for (partition, epoch) in &sorted.epochs {
            if let Err(why) = epoch {
                view.damaged.push(damaged_epoch(names, *partition, group, why).to_string());
            }
        }
        let mut leases = Vec::new();
        for (partition, (blob, at)) in &sorted.leases {
            // Where it cannot be read, nothing is claimed; who owns it is shown all the same.
            let taken = sorted.epochs.get(partition).and_then(|epoch| epoch.as_ref().ok()).copied();
            let taken = taken.unwrap_or_default();
            match ownership::read(*partition, blob, taken) {
                Ok(lease) => leases.push((lease, blob, *at)),
                Err(why) => view.damaged.push(damaged_lease(names, *partition, group, &why).to_string()),
            }
        }
        let seen = |lease: &Ownership| sorted.checkpoints.get(&lease.record.partition);
        let behind =
            leases.iter().filter(|(lease, blob, _)| self.is_behind(group, names, blob, lease, seen(lease)));
        let behind: Vec<_> = behind.map(|(lease, _, _)| (lease, seen(lease))).collect();
        let mut outcomes = self.raise_all(group, names, &behind).await?;
        for (lease, _, at) in &leases {
            let partition = lease.record.partition;
            match outcomes.remove(&partition) {
                None => {}
                Some(Ok(record)) => raised.extend(record.map(|record| (partition, record))),
                Some(Err(error @ StoreError::Damaged { .. })) => match seen(lease) {
                    // It is under a name of another case: whoever found itself an owner here would begin without it.
                    None => {
                        view.damaged.push(error.to_string());
                        continue;
                    }
                    // It is nobody's to begin with, and the list of checkpoints tells why.
                    Some(seen) if checkpoint::seal(seen).is_some() => continue,
                    // Its owner may be at work, and goes on.
                    Some(_) => {}
                },
                // What does not pass is told of this partition, and the others go on.
                Some(Err(error)) => {
                    view.damaged.push(format!("the checkpoint of partition {partition} of {group}: {error}"));
                    continue;
                }
            }
            view.leases.push(enroll(names, sorted, lease, *at));
        }
        Ok(raised)
    }

    async fn take_in_hosts(&self, group: &GroupId, names: &Names, sorted: &Sorted, view: &mut View) {
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
        dead.extend(unneeded_rolls(names, sorted, view));
        locked(&self.dead).insert(names.clone(), dead);
    }

    pub(super) async fn found(&self, group: &GroupId, founding: &Founding) -> Result<Founding, StoreError> {
        let names = self.introduced(group).await?;
        let text = escape(&write_founding(founding));
        let (metadata, body) = match text.len() {
            short if short <= super::metadata::MOST_METADATA => (pairs([(FOUNDING, text)]), String::new()),
            _ => (pairs([(FOUNDING, String::new())]), text),
        };
        if self.container.create(&names.founding(), &metadata, &body).await? != Write::Refused {
            return Ok(founding.clone());
        }
        let told = |why: &str| StoreError::Damaged { what: format!("the founding of {group}: {why}") };
        let blob = self.container.head(&names.founding()).await?.blob;
        let blob = blob.ok_or_else(|| told("it is gone"))?;
        self.founding_in(&names, &blob).await.map_err(|why| told(&why))
    }

    async fn founding_in(&self, names: &Names, blob: &Blob) -> Result<Founding, String> {
        let text = blob.metadata.get(FOUNDING).cloned().unwrap_or_default();
        if !text.is_empty() {
            return read_founding(&unescape(&text));
        }
        let whole = self.container.body(&names.founding()).await.map_err(|error| error.to_string())?;
        read_founding(&unescape(&whole.map(|(_, body)| body).unwrap_or_default()))
    }

    /// All groups that have records, in order: ours by their own word, those of other SDKs by their names.
    pub(super) async fn groups(&self) -> Result<Vec<GroupId>, StoreError> {
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
