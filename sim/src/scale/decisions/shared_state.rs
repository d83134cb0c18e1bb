//! The shared state that all hosts see: leases and host records, changed only by the rules of
//! [`ephor_core::record`]. Calls take no time; conflicts come from hosts that read and act at different
//! times.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::expiry::Liveness;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, LeaseVersion, TransferRequest};
use ephor_core::record::{self, Change, LeaseRecord};
use ephor_core::rules::Rules;
use ephor_core::store::{HostEntry, View};
use ephor_core::time::{Monotonic, Timestamp};

/// The store's time: virtual time in milliseconds.
pub(super) fn stamp(now: Monotonic) -> Timestamp {
    Timestamp(i64::try_from(now.0 / 1_000_000).unwrap_or(i64::MAX))
}

pub(super) struct SharedState {
    /// The view, updated with every change; [`SharedState::view_at`] sets the values that depend on the time.
    view: View,
    records: Vec<LeaseRecord>,
    /// The time at which each host wrote its record.
    written: Vec<Timestamp>,
    numbers: BTreeMap<HostId, usize>,
    /// The owner of each partition, by its number.
    owners: Vec<Option<usize>>,
    /// The number of partitions of each host.
    held: Vec<usize>,
    /// A counter that grows with every change that a plan depends on, except time.
    change_count: u64,
    pub(super) moves: usize,
    pub(super) claims_lost: u64,
}

impl SharedState {
    /// A state in which nothing has been owned yet.
    pub(super) fn new(partitions: usize) -> Self {
        let record = |number: u32| LeaseRecord {
            partition: PartitionId(number),
            owner: None,
            epoch: Epoch::NONE,
            duration: None,
            acquired_at: Timestamp(0),
            renewed_at: Timestamp(0),
            revision: 0,
            previous_owner: None,
            previous_owner_until: Timestamp(0),
            successor: None,
        };
        let last = u32::try_from(partitions).expect("a hub has fewer partitions");
        let records: Vec<LeaseRecord> = (0..last).map(record).collect();
        let leases = records.iter().map(|record| record.seen_at(Timestamp(0))).collect();
        Self {
            view: View { leases, ..View::default() },
            owners: vec![None; records.len()],
            records,
            written: vec![],
            numbers: BTreeMap::new(),
            held: vec![],
            change_count: 0,
            moves: 0,
            claims_lost: 0,
        }
    }

    /// The view at this time.
    pub(super) fn view_at(&mut self, now: Monotonic) -> &View {
        self.view.at = stamp(now);
        for (lease, record) in self.view.leases.iter_mut().zip(&self.records) {
            lease.age = self.view.at.since(record.renewed_at);
        }
        for (entry, written) in self.view.hosts.iter_mut().zip(&self.written) {
            entry.age = self.view.at.since(*written);
        }
        &self.view
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    pub(super) fn change_count(&self) -> u64 {
        self.change_count
    }

    /// The liveness of hosts, by the ages in the store: the result of [`ephor_core::expiry::LivenessTracker`] while all
    /// clocks are right and the reader has watched for a while. A test compares the two.
    pub(super) fn liveness(&self, first: bool) -> Liveness {
        let mut liveness = Liveness::default();
        let mut alive = vec![false; self.held.len()];
        let mut faltering = vec![false; self.held.len()];
        for (lease, owner) in self.view.leases.iter().zip(&self.owners) {
            let (Some(owner), Some(lasts)) = (*owner, lease.duration) else { continue };
            if lease.age >= lasts && !first {
                liveness.expired.push(lease.partition);
                faltering[owner] = true;
            } else {
                alive[owner] = true;
            }
        }
        for (number, entry) in self.view.hosts.iter().enumerate() {
            let lasts = entry.record.lease_duration;
            let credit = if faltering[number] { lasts * 2 / 3 } else { lasts };
            alive[number] |= entry.age < credit;
        }
        let living = self.view.hosts.iter().zip(alive).filter(|(_, alive)| *alive);
        liveness.alive = living.map(|(entry, _)| entry.record.id.clone()).collect();
        liveness
    }

    /// Writes a host's record. A new host comes after all others, by its name.
    pub(super) fn heartbeat(&mut self, record: &HostRecord, now: Monotonic) {
        let entry = HostEntry { record: record.clone(), age: Duration::ZERO, age_known: true };
        match self.numbers.get(&record.id) {
            Some(&number) => {
                let old = &self.view.hosts[number].record;
                if (&old.wants, &old.answers) != (&record.wants, &record.answers) {
                    self.change_count += 1;
                }
                self.view.hosts[number] = entry;
                self.written[number] = stamp(now);
            }
            None => {
                let last = self.view.hosts.last().map(|last| &last.record.id);
                assert!(last.is_none_or(|last| *last < record.id), "hosts are named in order");
                self.numbers.insert(record.id.clone(), self.view.hosts.len());
                self.view.hosts.push(entry);
                self.written.push(stamp(now));
                self.held.push(0);
                self.change_count += 1;
            }
        }
    }

    pub(super) fn claim(&mut self, request: &ClaimRequest, now: Monotonic) -> Option<Epoch> {
        let old = &self.records[request.partition.0 as usize];
        let change = record::claim(Some(old), old.epoch, request, stamp(now), &Rules::default())
            .expect("a fleet is dropped long before its epochs are used up");
        if change.is_none() {
            self.claims_lost += 1;
        }
        change.map(|change| self.apply(change, now))
    }

    pub(super) fn transfer(&mut self, request: &TransferRequest, now: Monotonic) -> bool {
        let old = &self.records[request.token.partition.0 as usize];
        let change = record::transfer(Some(old), old.epoch, request, stamp(now))
            .expect("a fleet is dropped long before its epochs are used up");
        change.map(|change| self.apply(change, now)).is_some()
    }

    /// Returns false if the lease is not the host's any more.
    pub(super) fn renew(&mut self, token: &LeaseToken, lasts: Duration, now: Monotonic) -> bool {
        let index = token.partition.0 as usize;
        let Some(lease) = record::renew(Some(&self.records[index]), token, lasts, stamp(now)) else {
            return false;
        };
        self.view.leases[index].version = LeaseVersion::revision(lease.revision);
        self.records[index] = lease;
        true
    }

    fn apply(&mut self, change: Change, now: Monotonic) -> Epoch {
        let index = change.lease.partition.0 as usize;
        let owner = change.lease.owner.as_ref().map(|owner| self.numbers[owner]);
        if let Some(before) = std::mem::replace(&mut self.owners[index], owner) {
            self.held[before] -= 1;
        }
        if let Some(owner) = owner {
            self.held[owner] += 1;
            self.moves += 1;
        }
        self.change_count += 1;
        let epoch = change.lease.epoch;
        self.view.leases[index] = change.lease.seen_at(stamp(now));
        self.records[index] = change.lease;
        epoch
    }

    /// The number of partitions of each host, by its number; hosts without a record are left out.
    pub(super) fn held(&self) -> &[usize] {
        &self.held
    }

    /// The partitions of a host, in order.
    pub(super) fn owned_by(&self, number: usize) -> impl Iterator<Item = (PartitionId, Epoch)> {
        let records = self.records.iter().zip(&self.owners);
        let mine = records.filter(move |(_, owner)| **owner == Some(number));
        mine.map(|(record, _)| (record.partition, record.epoch))
    }

    /// The number of a host that has a record.
    pub(super) fn number(&self, id: &HostId) -> Option<usize> {
        self.numbers.get(id).copied()
    }
}
