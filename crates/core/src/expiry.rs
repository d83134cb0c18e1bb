//! Decides whether an owner is dead: liveness of hosts and expiry of leases.
//!
//! Three clocks are at work, the store's, the watching host's and the owner's, and none is trusted
//! alone. The store computes the age of a record from two timestamps of its own clock. The watching
//! host has its own monotonic clock, and knows since when it has seen a record unchanged. If these
//! two advanced differently between two views, one of them jumped (a failover, a machine that was
//! moved), and nobody can tell which: the watch starts over, and ages that the store computed
//! across the jump do not count. A jump of our own clock while a view is in flight looks like a
//! slow answer and is not noticed. Therefore an observation of our own counts only as far as both
//! clocks agree.
//!
//! A jump that ends between two views (a clock that is set back and put right) shows in neither. But
//! a record that changed between them was written after the first was requested, whatever the
//! store's clock said at the time: it cannot be older than that.
//!
//! A host that starts to watch does not know whether the store's clock has just been set forward.
//! It trusts the store's ages only after it has seen no renewal for half a lease.
//!
//! After an outage of the store all records are old. The host that reads first would find itself
//! alone and claim everything, only to hand it over again as the others come back: so the others
//! get a grace period to renew.
//!
//! The owner, on its side, stops by itself a safety margin before any of this can happen:
//! [`deadline`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::epoch::Epoch;
use crate::ids::{HostId, PartitionId};
use crate::lease::LeaseVersion;
use crate::store::View;
use crate::time::{Monotonic, Timestamp};

/// The time at which an owner must have stopped, counted from the instant *before* it sent its last
/// successful renewal.
pub fn deadline(sent: Monotonic, lease_duration: Duration, margin: Duration) -> Monotonic {
    sent + lease_duration.saturating_sub(margin)
}

/// The difference between two clocks over one scan that is not yet a skew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// The part that is always tolerated: a little more than the resolution of the store's clock.
    pub fixed: Duration,
    /// Plus one part in this many of the time between the views.
    pub one_in: u32,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { fixed: Duration::from_secs(1), one_in: 20 }
    }
}

/// The time of a view, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    store: Timestamp,
    sent: Monotonic,
    received: Monotonic,
}

/// An observation: the state of a record, and the time since which it was seen unchanged.
#[derive(Clone, Debug)]
struct Observation<V> {
    version: V,
    /// The time by our own clock.
    since: Monotonic,
    /// The time by the store's clock.
    by_store: Timestamp,
    first_seen: FirstSeen,
}

/// The view that first showed a record in its current state, compared with the view before it. `after`
/// is the time at which the earlier view was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstSeen {
    /// There was no earlier view: the record may have any age.
    InFirstView,
    /// The earlier view did not have the record. It was written after that, or had been left out.
    Appeared { after: Monotonic },
    /// The earlier view had the record in another state, so it was written after that.
    Changed { after: Monotonic },
}

impl<V> Observation<V> {
    /// Starts the observation over: earlier views count no more.
    fn restart_at(&mut self, now: Reading) {
        (self.since, self.by_store) = (now.received, now.store);
    }
}

/// The liveness of owners and hosts, as one view shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Liveness {
    /// True if the store's clock and ours advanced differently. Then nobody was declared dead.
    pub skewed: bool,
    /// Partitions whose owner stopped renewing.
    pub expired: Vec<PartitionId>,
    /// Partitions whose lease may be older than its record says, because a clock was set since it
    /// was written.
    pub ages_unknown: Vec<PartitionId>,
    /// Hosts with a fresh heartbeat or an unexpired lease.
    pub alive: Vec<HostId>,
    /// True if the store was unreachable, and hosts that have not written since count as alive
    /// during the grace period.
    pub grace_after_outage: bool,
}

/// Tracks the liveness of all hosts of a group over the views that one host reads.
#[derive(Debug)]
pub struct LivenessTracker {
    tolerance: Tolerance,
    /// The duration of a lease whose owner wrote none (another SDK).
    other_sdk_lease_duration: Duration,
    last: Option<Reading>,
    /// The time at which the first view arrived.
    watching_since: Option<Monotonic>,
    /// The last clock jump. Only our own observation dates a record that is unchanged since before
    /// it.
    jump: Option<Jump>,
    /// The time of the first failed read since the last success.
    unreachable_since: Option<Monotonic>,
    /// The time at which the store came back, and the length of the outage.
    back: Option<(Monotonic, Duration)>,
    /// By version and epoch: a store that was restored from a backup may give a new lease the
    /// version of an old one.
    leases: BTreeMap<PartitionId, Observation<(LeaseVersion, Epoch)>>,
    hosts: BTreeMap<HostId, Observation<u64>>,
    /// The longest lease in the last view, and in the one before it: an owner that has just lost its
    /// lease may be missing from the last view.
    longest: (Duration, Duration),
}

/// A jump of a clock.
#[derive(Clone, Copy, Debug)]
struct Jump {
    /// The time at which it was noticed.
    at: Monotonic,
    /// The time at which every lease from before it is over.
    until: Monotonic,
}

impl LivenessTracker {
    /// A tracker that has seen nothing yet.
    pub fn new(tolerance: Tolerance, other_sdk_lease_duration: Duration) -> Self {
        Self {
            tolerance,
            other_sdk_lease_duration,
            last: None,
            watching_since: None,
            jump: None,
            unreachable_since: None,
            back: None,
            leases: BTreeMap::new(),
            hosts: BTreeMap::new(),
            longest: (Duration::ZERO, Duration::ZERO),
        }
    }

    /// Notes that a view could not be read, because the store does not answer.
    pub fn store_unreachable(&mut self, now: Monotonic) {
        self.unreachable_since.get_or_insert(now);
    }

    /// Takes in a view that was requested at `sent` and arrived at `received`.
    pub fn observe(&mut self, view: &View, sent: Monotonic, received: Monotonic) -> Liveness {
        let reading = Reading { store: view.at, sent, received };
        let first = self.last.is_none();
        let before = self.last.map(|last| last.sent);
        let watched = sent.since(*self.watching_since.get_or_insert(received));
        let skewed = self.last.is_some_and(|last| self.disagree(last, reading));
        self.last = Some(reading);
        if let Some(lost) = self.unreachable_since.take() {
            self.back = Some((received, received.since(lost)));
        }
        let owned = view.leases.iter().filter(|lease| lease.owner.is_some());
        let durations = owned.map(|lease| lease.duration.unwrap_or(self.other_sdk_lease_duration));
        let durations = durations.chain(view.hosts.iter().map(|host| host.record.lease_duration));
        self.longest = (durations.max().unwrap_or_default(), self.longest.0);
        if skewed {
            // We cannot tell which clock jumped, so our earlier observations are void, too.
            let until = received + self.longest();
            let until = self.jump.map_or(until, |earlier| earlier.until.max(until));
            self.jump = Some(Jump { at: received, until });
            self.leases.values_mut().for_each(|observation| observation.restart_at(reading));
            self.hosts.values_mut().for_each(|observation| observation.restart_at(reading));
        }
        let leases = std::mem::take(&mut self.leases);
        let versions = view.leases.iter().map(|l| (l.partition, (l.version.clone(), l.epoch)));
        self.leases = observations(leases, versions, before, reading);
        let hosts = std::mem::take(&mut self.hosts);
        self.hosts = observations(
            hosts,
            view.hosts.iter().map(|h| (h.record.id.clone(), h.record.beat)),
            before,
            reading,
        );

        let mut liveness = Liveness { skewed, ..Liveness::default() };
        let mut faltering = BTreeSet::new();
        for lease in view.leases.iter().filter(|lease| lease.owner.is_some()) {
            let observation = self.leases.get(&lease.partition);
            let lasts = lease.duration.unwrap_or(self.other_sdk_lease_duration);
            let age = self.age(observation, lease.age, reading);
            if self.jumped_since(observation) {
                liveness.ages_unknown.push(lease.partition);
            }
            let in_grace = age >= lasts && self.in_grace_period(lasts, sent);
            liveness.grace_after_outage |= in_grace;
            // Owners renew at least twice in a lease, so a shorter watch proves nothing, however
            // old the record is: a clock that was set may be years ahead.
            let seen_enough = watched >= lasts / 2;
            // The first view has no other one to compare clocks with, so it declares nobody dead.
            if !skewed && !first && seen_enough && age >= lasts && !in_grace {
                liveness.expired.push(lease.partition);
                faltering.extend(lease.owner.as_ref());
            } else {
                liveness.alive.extend(lease.owner.clone());
            }
        }
        for host in &view.hosts {
            let observation = self.hosts.get(&host.record.id);
            // A host that lets a lease expire gets less credit: its last heartbeat may be newer
            // than its last renewal, and a plan should not count on dead hosts.
            let lasts = host.record.lease_duration;
            let age = self.age(observation, host.age, reading);
            let credit = if faltering.contains(&host.record.id) { lasts * 2 / 3 } else { lasts };
            let in_grace = age >= credit && self.in_grace_period(lasts, sent);
            liveness.grace_after_outage |= in_grace;
            if skewed || age < credit || in_grace {
                liveness.alive.push(host.record.id.clone());
            }
        }
        liveness.alive.sort();
        liveness.alive.dedup();
        liveness
    }

    /// The earliest time at which a lease was written, by our own clock alone; `None` if the first
    /// view had it already.
    pub fn written_after(&self, partition: PartitionId) -> Option<Monotonic> {
        match self.leases.get(&partition)?.first_seen {
            FirstSeen::InFirstView => None,
            FirstSeen::Appeared { after } | FirstSeen::Changed { after } => Some(after),
        }
    }

    /// The time until which a former owner of a partition may still be at work, if a clock jumped since the lease was
    /// taken from it: the store counts the rest of that owner's time by its own clock, and one that was set forward leaves
    /// nothing of it. `None` if no clock jumped. `changed_at` is the time of the last change of owner, by the store's clock.
    pub fn former_owner_until(
        &self,
        partition: PartitionId,
        changed_at: Timestamp,
        now: Monotonic,
    ) -> Option<Monotonic> {
        let last = self.last?;
        let elapsed = now.since(last.sent);
        let tolerated = self.tolerance.fixed + elapsed / self.tolerance.one_in;
        if changed_at.since(last.store) > elapsed + tolerated {
            // The store's clock was set forward between the last view and the claim.
            return Some(now + self.longest());
        }
        let jump = self.jump.filter(|_| self.jumped_since(self.leases.get(&partition)));
        jump.map(|jump| jump.until)
    }

    fn longest(&self) -> Duration {
        self.longest.0.max(self.longest.1)
    }

    /// The age of a record, by everything that is known about it. Our own observation is what both
    /// clocks agree on: a clock that jumped ahead while a view was in flight looks like a slow
    /// answer.
    fn age<V>(&self, observation: Option<&Observation<V>>, by_store: Duration, now: Reading) -> Duration {
        let observed = observation.map_or(Duration::ZERO, |observation| {
            now.sent.since(observation.since).min(now.store.since(observation.by_store))
        });
        if self.jumped_since(observation) {
            return observed;
        }
        let at_most = match observation.map(|observation| observation.first_seen) {
            Some(FirstSeen::Changed { after }) => now.sent.since(after),
            _ => Duration::MAX,
        };
        by_store.min(at_most).max(observed)
    }

    /// True if a clock jumped since this record was first seen in its current state.
    fn jumped_since<V>(&self, observation: Option<&Observation<V>>) -> bool {
        self.jump.is_some_and(|jump| observation.is_some_and(|observation| observation.since <= jump.at))
    }

    /// True during the grace period: the store was away for at least half the duration of a record,
    /// and is back for less than a third of it, so that the owner may not have got through yet. A
    /// record that was written since is younger than that.
    fn in_grace_period(&self, lasts: Duration, sent: Monotonic) -> bool {
        self.back.is_some_and(|(back, away)| away >= lasts / 2 && sent.since(back) < lasts / 3)
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

fn observations<K: Ord, V: PartialEq>(
    mut old: BTreeMap<K, Observation<V>>,
    now: impl Iterator<Item = (K, V)>,
    before: Option<Monotonic>,
    now_at: Reading,
) -> BTreeMap<K, Observation<V>> {
    now.map(|(key, version)| {
        let first_seen = match (before, old.remove(&key)) {
            (_, Some(unchanged)) if unchanged.version == version => return (key, unchanged),
            (None, _) => FirstSeen::InFirstView,
            (Some(after), None) => FirstSeen::Appeared { after },
            (Some(after), Some(_)) => FirstSeen::Changed { after },
        };
        (key, Observation { version, since: now_at.received, by_store: now_at.store, first_seen })
    })
    .collect()
}

#[cfg(test)]
mod tests;
