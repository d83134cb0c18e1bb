//! The records of one group in a [`MemoryStore`](super::MemoryStore), and the wake-ups of its
//! hosts. No rule of ownership is decided here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::record::{Change, CheckpointRecord, LeaseRecord};
use ephor_core::store::{
    FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER, Founding, HISTORY_PER_PARTITION, HostEntry, HostOrders,
    View,
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
    pub(super) founding: Option<Founding>,
    pub(super) leases: BTreeMap<PartitionId, LeaseRecord>,
    pub(super) checkpoints: BTreeMap<PartitionId, CheckpointRecord>,
    hosts: BTreeMap<HostId, HostRow>,
    /// Kept apart from the host records, which hosts replace with every heartbeat.
    orders: BTreeMap<HostId, HostOrders>,
    /// Oldest first, each with its number among all changes of the group.
    history: BTreeMap<PartitionId, VecDeque<(u64, OwnershipChange)>>,
    changes: u64,
    /// The waker of each host that has a record or waits. A permit stays in it, so that a change
    /// between two waits is not missed.
    bells: BTreeMap<HostId, Arc<Notify>>,
}

impl Records {
    /// True if anything is stored.
    pub(super) fn any(&self) -> bool {
        self.founding.is_some()
            || !self.leases.is_empty()
            || !self.checkpoints.is_empty()
            || !self.hosts.is_empty()
            || !self.history.is_empty()
    }

    /// True if nothing would be lost with it.
    pub(super) fn is_unused(&self) -> bool {
        !self.any() && self.orders.is_empty() && self.bells.is_empty()
    }

    /// A copy of everything but the wakers: the waiting hosts are processes, and in no backup.
    pub(super) fn copy(&self) -> Self {
        let mut copy = self.clone();
        copy.bells.clear();
        copy
    }

    /// Replaces everything by `old`, except for the wakers.
    pub(super) fn restore(&mut self, old: &Self) {
        let bells = std::mem::take(&mut self.bells);
        *self = Self { bells, ..old.copy() };
        self.bells.values().for_each(|bell| bell.notify_one());
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
            founding: self.founding.clone(),
            damaged: vec![],
        }
    }

    /// The epoch that may save.
    pub(super) fn seal(&self, partition: PartitionId) -> Epoch {
        self.checkpoints.get(&partition).map_or(Epoch::NONE, |record| record.seal)
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
        self.checkpoints.entry(partition).or_default().seal = change.seal;
        let history = self.history.entry(partition).or_default();
        if history.len() == usize::from(HISTORY_PER_PARTITION) {
            history.pop_front();
        }
        self.changes += 1;
        history.push_back((self.changes, change.history));
    }

    pub(super) fn history(&self, partition: Option<PartitionId>, most: usize) -> Vec<OwnershipChange> {
        let wanted = self.history.iter().filter(|(of, _)| partition.is_none_or(|only| only == **of));
        let mut changes: Vec<_> = wanted.flat_map(|(_, changes)| changes).collect();
        changes.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        changes.into_iter().take(most).map(|(_, change)| change.clone()).collect()
    }

    pub(super) fn heartbeat(&mut self, record: &HostRecord, now: Timestamp) -> HostOrders {
        let row = HostRow { record: record.clone(), at: now };
        let before = self.hosts.insert(record.id.clone(), row);
        let asked_before = before.map(|row| row.record.wants).unwrap_or_default();
        for want in record.wants.iter().filter(|want| !asked_before.contains(want)) {
            self.wake(&want.owner);
        }
        self.forget(now);
        let hosts = &self.hosts;
        self.bells.retain(|host, bell| hosts.contains_key(host) || Arc::strong_count(bell) > 1);
        self.orders.get(&record.id).copied().unwrap_or_default()
    }

    /// Removes hosts that are long dead, and their orders.
    fn forget(&mut self, now: Timestamp) {
        let orders = &self.orders;
        self.hosts.retain(|host, row| {
            let drains = orders.get(host).is_some_and(|orders| orders.drain);
            now.since(row.at) < if drains { FORGET_DRAINED_HOSTS_AFTER } else { FORGET_HOSTS_AFTER }
        });
        let hosts = &self.hosts;
        self.orders.retain(|host, _| hosts.contains_key(host));
    }

    pub(super) fn retire(&mut self, host: &HostId) {
        self.hosts.remove(host);
        self.orders.remove(host);
        if let Some(bell) = self.bells.remove(host) {
            // A host that waits for this waker would wait for ever.
            bell.notify_waiters();
        }
    }

    pub(super) fn order(&mut self, host: &HostId, orders: HostOrders) -> bool {
        let known = self.hosts.contains_key(host);
        if known {
            self.orders.insert(host.clone(), orders);
            self.wake(host);
        }
        known
    }

    /// The waker of a host; created if there is none.
    pub(super) fn bell(&mut self, host: &HostId) -> Arc<Notify> {
        self.bells.entry(host.clone()).or_default().clone()
    }

    pub(super) fn wake(&self, host: &HostId) {
        if let Some(bell) = self.bells.get(host) {
            bell.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for host in self.hosts.keys() {
            self.wake(host);
        }
    }

    /// The number of wakers, for the test that none are left over.
    #[cfg(test)]
    pub(super) fn bells(&self) -> usize {
        self.bells.len()
    }
}
