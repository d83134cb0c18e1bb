//! The records of one group in a [`MemoryStore`](super::MemoryStore), and the wakers of its hosts.
//!
//! `Records` only applies changes of owners and positions: `store.rs` decides them with [`ephor_core::record`]. It
//! removes the records of hosts that are long dead, and the oldest changes of a long history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::record::{Change, CheckpointRecord, LeaseRecord};
use ephor_core::store::{
    DesiredState, FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER, GroupOrigin, HostEntry,
    MAX_HISTORY_PER_PARTITION, View,
};
use ephor_core::time::Timestamp;
use tokio::sync::Notify;

/// A host's record and the time at which it was written.
#[derive(Clone, Debug)]
struct HostRow {
    record: HostRecord,
    at: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    pub(super) origin: Option<GroupOrigin>,
    pub(super) leases: BTreeMap<PartitionId, LeaseRecord>,
    pub(super) checkpoints: BTreeMap<PartitionId, CheckpointRecord>,
    hosts: BTreeMap<HostId, HostRow>,
    /// Kept apart from the host records, which hosts replace with every heartbeat.
    desired_states: BTreeMap<HostId, DesiredState>,
    /// Oldest first, each with its number among all changes of the group.
    history: BTreeMap<PartitionId, VecDeque<(u64, OwnershipChange)>>,
    changes: u64,
    /// The waker of each host that has a record or waits. A permit stays in it, so that a change
    /// between two waits is not missed.
    wakers: BTreeMap<HostId, Arc<Notify>>,
}

impl Records {
    /// True if anything is stored.
    pub(super) fn any(&self) -> bool {
        self.origin.is_some()
            || !self.leases.is_empty()
            || !self.checkpoints.is_empty()
            || !self.hosts.is_empty()
            || !self.history.is_empty()
    }

    /// True if nothing would be lost with it.
    pub(super) fn is_unused(&self) -> bool {
        !self.any() && self.desired_states.is_empty() && self.wakers.is_empty()
    }

    /// A copy of everything but the wakers: the waiting hosts are processes, and in no backup.
    pub(super) fn copy(&self) -> Self {
        let mut copy = self.clone();
        copy.wakers.clear();
        copy
    }

    /// Replaces everything by `old`, except for the wakers.
    pub(super) fn restore(&mut self, old: &Self) {
        let wakers = std::mem::take(&mut self.wakers);
        *self = Self { wakers, ..old.copy() };
        self.wakers.values().for_each(|waker| waker.notify_one());
    }

    pub(super) fn view(&self, now: Timestamp) -> View {
        let entry =
            |row: &HostRow| HostEntry { record: row.record.clone(), age: now.since(row.at), age_known: true };
        let checkpoint = |(partition, record): (&PartitionId, &CheckpointRecord)| {
            Some((*partition, record.checkpoint.clone()?))
        };
        View {
            at: now,
            hosts: self.hosts.values().map(entry).collect(),
            leases: self.leases.values().map(|lease| lease.seen_at(now)).collect(),
            checkpoints: self.checkpoints.iter().filter_map(checkpoint).collect(),
            origin: self.origin.clone(),
            damaged: vec![],
        }
    }

    /// The epoch that may save.
    pub(super) fn fence(&self, partition: PartitionId) -> Epoch {
        self.checkpoints.get(&partition).map_or(Epoch::NONE, |record| record.fence)
    }

    pub(super) fn checkpoint(&self, partition: PartitionId) -> Option<Checkpoint> {
        self.checkpoints.get(&partition)?.checkpoint.clone()
    }

    pub(super) fn write_position(&mut self, partition: PartitionId, checkpoint: Checkpoint) {
        self.checkpoints.entry(partition).or_default().checkpoint = Some(checkpoint);
    }

    /// Writes the lease, the fence and the entry of the history.
    pub(super) fn apply(&mut self, change: Change) {
        let partition = change.lease.partition;
        self.leases.insert(partition, change.lease);
        self.checkpoints.entry(partition).or_default().fence = change.fence;
        let history = self.history.entry(partition).or_default();
        if history.len() == usize::from(MAX_HISTORY_PER_PARTITION) {
            history.pop_front();
        }
        self.changes += 1;
        history.push_back((self.changes, change.history));
    }

    pub(super) fn history(&self, partition: Option<PartitionId>, max: usize) -> Vec<OwnershipChange> {
        let wanted = self.history.iter().filter(|(of, _)| partition.is_none_or(|only| only == **of));
        let mut changes: Vec<_> = wanted.flat_map(|(_, changes)| changes).collect();
        changes.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        changes.into_iter().take(max).map(|(_, change)| change.clone()).collect()
    }

    pub(super) fn heartbeat(&mut self, record: &HostRecord, now: Timestamp) -> DesiredState {
        let row = HostRow { record: record.clone(), at: now };
        let before = self.hosts.insert(record.id.clone(), row);
        let asked_before = before.map(|row| row.record.wants).unwrap_or_default();
        for want in record.wants.iter().filter(|want| !asked_before.contains(want)) {
            self.wake(&want.owner);
        }
        self.forget(now);
        let hosts = &self.hosts;
        self.wakers.retain(|host, waker| hosts.contains_key(host) || Arc::strong_count(waker) > 1);
        self.desired_states.get(&record.id).copied().unwrap_or_default()
    }

    /// Removes hosts that are long dead, and their desired states.
    fn forget(&mut self, now: Timestamp) {
        let desired_states = &self.desired_states;
        self.hosts.retain(|host, row| {
            let drains = desired_states.get(host).is_some_and(|desired| desired.drain);
            now.since(row.at) < if drains { FORGET_DRAINED_HOSTS_AFTER } else { FORGET_HOSTS_AFTER }
        });
        let hosts = &self.hosts;
        self.desired_states.retain(|host, _| hosts.contains_key(host));
    }

    pub(super) fn retire(&mut self, host: &HostId) {
        self.hosts.remove(host);
        self.desired_states.remove(host);
        if let Some(waker) = self.wakers.remove(host) {
            // A host that waits for this waker would wait for ever.
            waker.notify_waiters();
            // For a call that has found the waker, and does not wait yet.
            waker.notify_one();
        }
    }

    pub(super) fn set_desired_state(&mut self, host: &HostId, desired: DesiredState) -> bool {
        let known = self.hosts.contains_key(host);
        if known {
            self.desired_states.insert(host.clone(), desired);
            self.wake(host);
        }
        known
    }

    /// The waker of a host; created if there is none.
    pub(super) fn waker(&mut self, host: &HostId) -> Arc<Notify> {
        self.wakers.entry(host.clone()).or_default().clone()
    }

    pub(super) fn wake(&self, host: &HostId) {
        if let Some(waker) = self.wakers.get(host) {
            waker.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for host in self.hosts.keys() {
            self.wake(host);
        }
    }

    /// The number of wakers, for the test that none are left over.
    #[cfg(test)]
    pub(super) fn wakers(&self) -> usize {
        self.wakers.len()
    }
}
