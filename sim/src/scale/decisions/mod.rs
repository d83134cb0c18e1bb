//! Simulates the balancing decisions of fleets that are too large for real hosts: each host only reads the
//! shared state and decides, at its own times.
//!
//! ```text
//!   heartbeat ─► scan (liveness, read, plan) ─► claims, 16 at a time ─► announce (wants, answers) ─► wait
//!                         └─► handovers, a little later
//! ```
//!
//! The plan is [`ephor_core::balance::plan`], requests proceed by [`ephor_core::handover::next_step`], and
//! leases change by [`ephor_core::record`]. The store sends no notifications.

mod cost;
mod host;
mod shared_state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ephor::defaults::{
    DEFAULT_FAST_SCAN, DEFAULT_OTHER_SDK_LEASE_DURATION, DEFAULT_RENEW_INTERVAL, DEFAULT_SLOW_SCAN,
};
use ephor_core::balance::{self, Fleet, Plan};
use ephor_core::expiry::{Liveness, LivenessTracker, Tolerance};
use ephor_core::ids::{HostId, Incarnation, PartitionId};
use ephor_core::lease::{ClaimRequest, TransferRequest};
use ephor_core::rules::Rules;
use ephor_core::time::Monotonic;
use fastrand::Rng;

use super::fleet_changes::{Change, Size, fewest, is_even, slow_start};
pub use cost::{Cost, cost};
use host::Host;
use shared_state::SharedState;

/// The shortest duration of a store call, in milliseconds.
const MIN_CALL_MS: u64 = 2;
/// The longest duration of a store call, in milliseconds.
const MAX_CALL_MS: u64 = 8;
/// At most this many claims in flight at a time, as in `crates/host`.
const MAX_CONCURRENT_CLAIMS: usize = 16;
/// Two scans are at least this far apart, as in `crates/host`.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(50);
/// A fleet rests when nothing has changed for this long.
const STILL_TIME: Duration = Duration::from_secs(30);
/// The longest time to come to rest.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The cost of one change.
#[derive(Clone, Debug, PartialEq)]
pub struct Settling {
    /// The change.
    pub change: Change,
    /// The time from the change until every partition was served by its last owner.
    pub after: Duration,
    /// The average number of scans of a host until then.
    pub scans: f64,
    /// The number of changes of owner.
    pub moves: usize,
    /// The fewest that were needed.
    pub fewest: usize,
    /// The number of claims that came too late.
    pub claims_lost: u64,
}

/// The results of one fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    /// Its size.
    pub size: Size,
    /// Changes, in the order in which they were played.
    pub changes: Vec<Settling>,
}

/// Plays one fleet through all changes but a stop. Panics if it does not come to rest.
pub fn play(size: Size, seed: u64) -> Decisions {
    let mut fleet = DecidingFleet::new(size, seed, false);
    let later = Change::LATER.into_iter().filter(|change| *change != Change::Stop);
    let mut changes: Vec<Settling> =
        [Change::ColdStart].into_iter().chain(later).map(|change| fleet.settle(change)).collect();
    changes.push(DecidingFleet::new(size, seed, false).settle(Change::SlowStart));
    Decisions { size, changes }
}

/// A scheduled step of a host.
enum Event {
    Heartbeat { ticket: u64 },
    Scan,
    Claim(ClaimRequest),
    Announce,
    Transfer(TransferRequest),
    Renew,
}

/// The last plan, and its input.
struct Planned {
    change_count: u64,
    liveness: Liveness,
    made: Rc<(Fleet, Plan)>,
}

struct DecidingFleet {
    size: Size,
    now: Monotonic,
    queue: BTreeMap<(Monotonic, u64), (usize, Event)>,
    events: u64,
    shared: SharedState,
    hosts: Vec<Host>,
    random: Rng,
    partitions: Vec<PartitionId>,
    planned: Option<Planned>,
    last: Monotonic,
    /// True if each host also asks a [`LivenessTracker`] about liveness, to compare.
    watched: bool,
}

impl DecidingFleet {
    fn new(size: Size, seed: u64, watched: bool) -> Self {
        let shared = SharedState::new(size.partitions);
        Self {
            size,
            now: Monotonic(0),
            queue: BTreeMap::new(),
            events: 0,
            partitions: shared.view().leases.iter().map(|lease| lease.partition).collect(),
            shared,
            hosts: vec![],
            random: Rng::with_seed(seed),
            planned: None,
            last: Monotonic(0),
            watched,
        }
    }

    fn push(&mut self, at: Monotonic, host: usize, event: Event) -> u64 {
        self.events += 1;
        self.queue.insert((at, self.events), (host, event));
        self.events
    }

    /// Schedules the next scan of a host; the one that was scheduled before does not take place.
    fn push_heartbeat(&mut self, at: Monotonic, host: usize) {
        let ticket = self.events + 1;
        self.push(at, host, Event::Heartbeat { ticket });
        (self.hosts[host].next, self.hosts[host].next_at) = (Some(ticket), at);
    }

    fn call(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(MIN_CALL_MS..=MAX_CALL_MS))
    }

    /// Starts a host at this time.
    fn start(&mut self, at: Monotonic) {
        let number = self.hosts.len();
        let name = format!("host-{number:04}").parse().expect("a valid name");
        let id = HostId { name, incarnation: Incarnation(self.random.u64(..)) };
        let tracker = self
            .watched
            .then(|| LivenessTracker::new(Tolerance::default(), DEFAULT_OTHER_SDK_LEASE_DURATION));
        self.hosts.push(Host::new(id, self.random.fork(), tracker));
        self.push_heartbeat(at, number);
        self.push(at + DEFAULT_RENEW_INTERVAL, number, Event::Renew);
    }

    /// Crashes the oldest running hosts.
    fn crash(&mut self, count: usize) {
        for host in self.hosts.iter_mut().filter(|host| !host.crashed).take(count) {
            host.crashed = true;
        }
    }

    /// The number of partitions of each running host.
    fn held(&self) -> Vec<usize> {
        let running = self.hosts.iter().enumerate().filter(|(_, host)| !host.crashed);
        running.map(|(number, _)| self.shared.held().get(number).copied().unwrap_or(0)).collect()
    }

    fn is_balanced(&self) -> bool {
        let served: usize =
            self.hosts.iter().filter(|host| !host.crashed).map(|host| host.serves.len()).sum();
        is_even(&self.held(), self.size.partitions)
            && served == self.size.partitions
            && self.now.since(self.last) >= STILL_TIME
    }

    /// Makes a change, and runs until the fleet rests.
    fn settle(&mut self, change: Change) -> Settling {
        let start = self.now;
        (self.shared.moves, self.shared.claims_lost) = (0, 0);
        let before: Vec<u64> = self.hosts.iter().map(|host| host.scans).collect();
        match change {
            Change::ColdStart => (0..self.size.hosts).for_each(|_| self.start(start)),
            Change::SlowStart => {
                for moment in slow_start(self.size.hosts, &mut self.random.fork()) {
                    self.start(start + moment);
                }
            }
            Change::Join => self.start(start),
            Change::TenthJoins => (0..self.size.tenth()).for_each(|_| self.start(start)),
            Change::Crash => self.crash(1),
            Change::TenthCrashes => self.crash(self.size.tenth()),
            Change::Stop => unreachable!("a stop is more than a decision"),
        }
        let fewest = fewest(&self.held(), self.size.partitions);
        // The number of scans at the time of the last change so far.
        let mut scans = 0;
        let mut last = self.last;
        while !self.is_balanced() {
            assert!(self.now.since(start) < MAX_WAIT, "{}: {change}: no rest", self.size);
            let until = self.now + Duration::from_secs(1);
            while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until) {
                let ((at, _), (host, event)) = entry.remove_entry();
                self.now = at;
                if !self.hosts[host].crashed {
                    self.take(host, event);
                }
                if self.last != last {
                    last = self.last;
                    let so_far = self.hosts.iter().map(|host| host.scans).sum::<u64>();
                    scans = so_far - before.iter().sum::<u64>();
                }
            }
            self.now = until;
        }
        let running = self.hosts.iter().filter(|host| !host.crashed).count();
        Settling {
            change,
            after: self.last.since(start),
            scans: scans as f64 / running as f64,
            moves: self.shared.moves,
            fewest,
            claims_lost: self.shared.claims_lost,
        }
    }

    fn take(&mut self, number: usize, event: Event) {
        let now = self.now;
        match event {
            Event::Heartbeat { ticket } if self.hosts[number].next == Some(ticket) => {
                let host = &mut self.hosts[number];
                (host.next, host.last_scan) = (None, now);
                let first = host.scans == 0;
                host.heartbeat(&mut self.shared, now);
                // One more call for the record of the group's origin.
                let init_group = if first { self.call() } else { Duration::ZERO };
                let view = self.call();
                self.push(now + init_group + view, number, Event::Scan);
            }
            Event::Heartbeat { .. } => {}
            Event::Scan => self.scan(number),
            Event::Claim(request) => {
                if let Some(epoch) = self.shared.claim(&request, now) {
                    self.hosts[number].serves.insert(request.partition, epoch);
                    self.last = now;
                }
            }
            Event::Announce => {
                let host = &mut self.hosts[number];
                host.heartbeat(&mut self.shared, now);
                let interval = if host.busy { DEFAULT_FAST_SCAN } else { DEFAULT_SLOW_SCAN };
                let mut next = (host.last_scan + host.jitter(interval)).max(now);
                if std::mem::take(&mut host.scan_soon) {
                    next = next.min(now + MIN_SCAN_INTERVAL);
                }
                self.push_heartbeat(next, number);
            }
            Event::Transfer(request) => {
                if self.shared.transfer(&request, now) {
                    self.last = now;
                }
                let host = &mut self.hosts[number];
                host.handed_over(request.token.partition);
                let soon = now + MIN_SCAN_INTERVAL;
                match host.next {
                    None => host.scan_soon = true,
                    Some(_) if host.next_at > soon => self.push_heartbeat(soon, number),
                    Some(_) => {}
                }
            }
            Event::Renew => {
                self.hosts[number].renew(&mut self.shared, now);
                self.push(now + DEFAULT_RENEW_INTERVAL, number, Event::Renew);
            }
        }
    }

    /// Reads the fleet, and takes every step that follows from it.
    fn scan(&mut self, number: usize) {
        let now = self.now;
        let view = self.shared.view_at(now);
        let by_tracker = self.hosts[number].tracker.as_mut().map(|tracker| tracker.observe(view, now, now));
        let liveness = self.shared.liveness(self.hosts[number].scans == 0);
        if let Some(by_tracker) = by_tracker {
            assert_eq!(liveness, by_tracker, "at {now:?}, for {}", self.hosts[number].id);
        }
        self.hosts[number].scans += 1;
        let made = self.plan(liveness);
        let (fleet, plan) = &*made;
        let steps = self.hosts[number].carry_out(&self.shared, fleet, plan, now);
        if steps.adopted {
            self.last = now;
        }
        let mut done = now;
        for some in steps.claims.chunks(MAX_CONCURRENT_CLAIMS) {
            let begun = done;
            for request in some {
                let at = begun + self.call();
                self.push(at, number, Event::Claim(request.clone()));
                done = done.max(at);
            }
        }
        for handover in steps.handovers {
            // Close, save, transfer.
            let at = now + self.call() + self.call() + self.call();
            self.push(at, number, Event::Transfer(handover));
        }
        let announced_at = done + self.call();
        self.push(announced_at, number, Event::Announce);
    }

    /// The plan for the present view. It is computed again only if something has changed: time alone changes
    /// nothing while every partition has a living owner.
    fn plan(&mut self, liveness: Liveness) -> Rc<(Fleet, Plan)> {
        let change_count = self.shared.change_count();
        if let Some(planned) = &self.planned
            && (planned.change_count, &planned.liveness) == (change_count, &liveness)
        {
            return planned.made.clone();
        }
        let (view, patience) = (self.shared.view(), DEFAULT_SLOW_SCAN * 2);
        let fleet = Fleet::read(view, &liveness, &self.partitions, patience, &Rules::default());
        let plan = balance::plan(&fleet);
        let waits = fleet.slots.iter().any(|slot| slot.holder.is_none());
        let made = Rc::new((fleet, plan));
        self.planned = (!waits).then(|| Planned { change_count, liveness, made: made.clone() });
        made
    }
}
