//! When an owner is dead.
//!
//! Three clocks are at work and none is trusted alone. The store says how old
//! a record is, by its own two timestamps. The watcher has its own clock, and
//! knows since when it has seen a record unchanged. If the two advanced
//! differently between two views, one of them was set (a failover, a machine
//! that was moved), and nobody can tell which: the watch begins anew, and ages
//! that the store computed across the jump do not count. A jump of our own clock
//! while a view is on its way looks like a slow answer, and is not noticed: so of
//! what we saw ourselves only that counts on which both clocks agree.
//!
//! Whoever begins to watch does not know whether the store's clock has just
//! been set forward: it takes the store's word for an age only once it has seen
//! for half a lease that nobody renews.
//!
//! If the store was away, everybody's records are old, and nobody is to blame.
//! Whoever looks first would find itself alone and take everything, only to hand
//! it over again as the others come back: so they are given a while to do so.
//!
//! The owner, on its side, stops by itself a margin before any of this can
//! happen: [`deadline`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::epoch::Epoch;
use crate::ids::{HostId, PartitionId};
use crate::lease::LeaseVersion;
use crate::store::View;
use crate::time::{Monotonic, Timestamp};

/// When an owner must have stopped, counted from the instant *before* it sent
/// the renewal that succeeded last.
pub fn deadline(sent: Monotonic, lease_duration: Duration, margin: Duration) -> Monotonic {
    sent + lease_duration.saturating_sub(margin)
}

/// How far two clocks may differ over one scan before they disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// At least this much is always tolerated: the store's clock resolution and a bit.
    pub fixed: Duration,
    /// And one part in this many of the time between the views.
    pub one_in: u32,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { fixed: Duration::from_secs(1), one_in: 20 }
    }
}

/// When a view was taken, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    store: Timestamp,
    sent: Monotonic,
    received: Monotonic,
}

/// A record's state, and since when it was seen unchanged.
#[derive(Clone, Debug)]
struct Sighting<V> {
    version: V,
    /// By our own clock.
    since: Monotonic,
    /// And by the store's.
    by_store: Timestamp,
    /// When the last view was asked for in which it was not as it is now: it was written after that.
    after: Option<Monotonic>,
}

impl<V> Sighting<V> {
    /// What was seen before counts no more.
    fn begins_at(&mut self, now: Reading) {
        (self.since, self.by_store) = (now.received, now.store);
    }
}

/// What one view says about who is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The store's clock and ours advanced differently: nobody was declared dead.
    pub skewed: bool,
    /// Partitions whose owner stopped renewing.
    pub expired: Vec<PartitionId>,
    /// Partitions whose lease is older than its record says, or may be: a clock was set since it was written.
    pub ages_unknown: Vec<PartitionId>,
    /// Hosts that show signs of life: a fresh heartbeat or an unexpired lease.
    pub alive: Vec<HostId>,
    /// The store was away, and some that have not been heard of since count as alive for a while.
    pub lenient: bool,
}

/// Watches the views of one host, one after the other.
#[derive(Debug)]
pub struct Watch {
    tolerance: Tolerance,
    /// Applies to records whose owner did not say how long they last.
    foreign_expiry: Duration,
    last: Option<Reading>,
    /// When the first view had arrived.
    watching_since: Option<Monotonic>,
    /// What was unchanged since before this instant has an age that only we know.
    jumped_at: Option<Monotonic>,
    /// When the first look failed of those that failed without a success in between.
    lost_sight_at: Option<Monotonic>,
    /// When the store was back, and for how long it had been away.
    back: Option<(Monotonic, Duration)>,
    /// By version and epoch: a store that was restored from a copy may give a new lease the version of another one.
    leases: BTreeMap<PartitionId, Sighting<(LeaseVersion, Epoch)>>,
    hosts: BTreeMap<HostId, Sighting<u64>>,
}

impl Watch {
    /// A watch that has seen nothing yet.
    pub fn new(tolerance: Tolerance, foreign_expiry: Duration) -> Self {
        Self {
            tolerance,
            foreign_expiry,
            last: None,
            watching_since: None,
            jumped_at: None,
            lost_sight_at: None,
            back: None,
            leases: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// There was no view to take in: the store does not answer.
    pub fn lost_sight(&mut self, now: Monotonic) {
        self.lost_sight_at.get_or_insert(now);
    }

    /// Takes in a view that was asked for at `sent` and had arrived at `received`.
    pub fn observe(&mut self, view: &View, sent: Monotonic, received: Monotonic) -> Judgement {
        let reading = Reading { store: view.at, sent, received };
        let first = self.last.is_none();
        let before = self.last.map(|last| last.sent);
        let watched = sent.since(*self.watching_since.get_or_insert(received));
        let skewed = self.last.is_some_and(|last| self.disagree(last, reading));
        self.last = Some(reading);
        if let Some(lost) = self.lost_sight_at.take() {
            self.back = Some((received, received.since(lost)));
        }
        if skewed {
            // Whose fault it is cannot be told: what we saw proves nothing any more, either.
            self.jumped_at = Some(received);
            self.leases.values_mut().for_each(|sighting| sighting.begins_at(reading));
            self.hosts.values_mut().for_each(|sighting| sighting.begins_at(reading));
        }
        let leases = std::mem::take(&mut self.leases);
        let versions = view.leases.iter().map(|l| (l.partition, (l.version.clone(), l.epoch)));
        self.leases = sightings(leases, versions, before, reading);
        let hosts = std::mem::take(&mut self.hosts);
        self.hosts = sightings(
            hosts,
            view.hosts.iter().map(|h| (h.record.id.clone(), h.record.beat)),
            before,
            reading,
        );

        let mut judgement = Judgement { skewed, ..Judgement::default() };
        let mut faltering = BTreeSet::new();
        for lease in view.leases.iter().filter(|lease| lease.owner.is_some()) {
            let sighting = self.leases.get(&lease.partition);
            let lasts = lease.duration.unwrap_or(self.foreign_expiry);
            let age = self.age(sighting, lease.age, reading);
            if self.jumped_since(sighting) {
                judgement.ages_unknown.push(lease.partition);
            }
            let excused = age >= lasts && self.excuses(sighting, lasts, sent);
            judgement.lenient |= excused;
            // Owners renew at least twice in a lease: who watches for less cannot tell. However old the record
            // is: a clock that is set may be years ahead.
            let seen_enough = watched >= lasts / 2;
            // The first view has no other to compare clocks with: it buries nobody.
            if !skewed && !first && seen_enough && age >= lasts && !excused {
                judgement.expired.push(lease.partition);
                faltering.extend(lease.owner.as_ref());
            } else {
                judgement.alive.extend(lease.owner.clone());
            }
        }
        for host in &view.hosts {
            let sighting = self.hosts.get(&host.record.id);
            // A host that lets a lease expire is given less credit: its last heartbeat may be
            // younger than its last renewal, and a plan should not count on the dead.
            let lasts = host.record.lease_duration;
            let age = self.age(sighting, host.age, reading);
            let credit = if faltering.contains(&host.record.id) { lasts * 2 / 3 } else { lasts };
            let excused = age >= credit && self.excuses(sighting, lasts, sent);
            judgement.lenient |= excused;
            if skewed || age < credit || excused {
                judgement.alive.push(host.record.id.clone());
            }
        }
        judgement.alive.sort();
        judgement.alive.dedup();
        judgement
    }

    /// When a lease was written at the earliest, by our own clock alone; none if the first view had it already.
    pub fn written_after(&self, partition: PartitionId) -> Option<Monotonic> {
        self.leases.get(&partition)?.after
    }

    /// How old a record is, by everything that is known about it. What we observed is what both clocks agree on: one
    /// that was set ahead while a view was on its way cannot be told from a slow answer.
    fn age<V>(&self, sighting: Option<&Sighting<V>>, by_store: Duration, now: Reading) -> Duration {
        let observed = sighting.map_or(Duration::ZERO, |sighting| {
            now.sent.since(sighting.since).min(now.store.since(sighting.by_store))
        });
        if self.jumped_since(sighting) { observed } else { by_store.max(observed) }
    }

    /// Whether a clock was set since this record was first seen as it is.
    fn jumped_since<V>(&self, sighting: Option<&Sighting<V>>) -> bool {
        self.jumped_at.is_some_and(|jump| sighting.is_some_and(|sighting| sighting.since <= jump))
    }

    /// The store was away for about as long as this record lasts, and is back for less than a third of that:
    /// its owner may not have got through yet.
    fn excuses<V>(&self, sighting: Option<&Sighting<V>>, lasts: Duration, sent: Monotonic) -> bool {
        self.back.is_some_and(|(back, away)| {
            let unheard = sighting.is_none_or(|sighting| sighting.since <= back);
            unheard && away >= lasts / 2 && sent.since(back) < lasts / 3
        })
    }

    fn disagree(&self, last: Reading, now: Reading) -> bool {
        let at_least = now.sent.since(last.received);
        let at_most = now.received.since(last.sent);
        let tolerated = self.tolerance.fixed + at_most / self.tolerance.one_in;
        let went_back = last.store.since(now.store);
        let by_store = now.store.since(last.store);
        went_back > tolerated || by_store + tolerated < at_least || by_store > at_most + tolerated
    }
}

fn sightings<K: Ord, V: PartialEq>(
    mut old: BTreeMap<K, Sighting<V>>,
    now: impl Iterator<Item = (K, V)>,
    before: Option<Monotonic>,
    now_at: Reading,
) -> BTreeMap<K, Sighting<V>> {
    now.map(|(key, version)| {
        let unchanged = old.remove(&key).filter(|sighting| sighting.version == version);
        let new = || Sighting { version, since: now_at.received, by_store: now_at.store, after: before };
        (key, unchanged.unwrap_or_else(new))
    })
    .collect()
}

#[cfg(test)]
mod tests;
