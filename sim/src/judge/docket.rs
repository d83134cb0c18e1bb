//! The state of the judge: facts about partitions, hosts and machines, and about faults of the store and the
//! hub.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor::{HostId, PartitionId};
use ephor_core::host_record::{Answer, Want};
use ephor_core::ids::LogId;
use ephor_core::time::Monotonic;

use super::case::Case;
use super::draining::Draining;
use super::stops::Stopping;
use super::{Figures, Turn, Violation};
use crate::executor::Machine;
use crate::scenario::Style;

/// The grace after a restored copy, or after the store's clock was set: the longest lease. Within it, owners
/// find out that the store has forgotten them.
const AMNESTY: Duration = Duration::from_secs(60);

/// The time for which past outages of the store are remembered. No lease is longer.
const OUTAGES_KEPT: Duration = Duration::from_secs(120);

/// The facts about one host: one run of its process.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) machine: Machine,
    pub(super) style: Style,
    /// True once its process is gone.
    pub(super) dead: bool,
    /// Set once it has stopped gracefully: the partitions that it abandoned.
    pub(super) stopped: Option<BTreeSet<PartitionId>>,
    /// Set once it was told to stop.
    pub(super) stopping: Option<Stopping>,
    /// Its requests for partitions, and the times at which they first appeared.
    pub(super) wants: Vec<(Want, Monotonic)>,
    /// Its answers to requests, and the times at which they first appeared.
    pub(super) answers: Vec<(Answer, Monotonic)>,
    /// Its announcements for partitions that it gives away, kept even if nobody asks any more.
    pub(super) draining: BTreeMap<PartitionId, Draining>,
}

/// The facts about a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MachineFile {
    /// True while its connection to the store is bad.
    pub(super) store_is_bad: bool,
    /// The time since which `store_is_bad` has its present value.
    pub(super) store_changed_at: Monotonic,
    /// The time until which its clock could not be relied on: the machine stood still, slept or blocked its
    /// thread, or its clock jumped or drifted.
    pub(super) stood_until: Monotonic,
    /// The time until which a fault of any kind, sleep included, last affected it.
    pub(super) disturbed_until: Monotonic,
    /// The same without sleep.
    pub(super) troubled_until: Monotonic,
    /// The time at which it last woke up.
    pub(super) woke_at: Option<Monotonic>,
    /// The time until which its clock last stood still. Its conclusions from before then are void.
    pub(super) clock_stood_until: Option<Monotonic>,
}

/// A time in which the store was bad.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// The machine that could not use it; `None` for all of them.
    machine: Option<Machine>,
    from: Monotonic,
    /// `None` while it lasts.
    until: Option<Monotonic>,
}

/// The whole state of the judge.
pub(super) struct Docket {
    pub(super) turns: Vec<Turn>,
    pub(super) cases: BTreeMap<PartitionId, Case>,
    pub(super) seats: BTreeMap<HostId, Seat>,
    pub(super) machines: BTreeMap<Machine, MachineFile>,
    /// True while the store is bad for all hosts, and the time since which that value holds.
    pub(super) common: (bool, Monotonic),
    /// The times in which the store was bad, as far back as a lease may reach.
    outages: Vec<Outage>,
    /// Partitions that an operator holds, and on which machine.
    pub(super) held: BTreeSet<(PartitionId, Machine)>,
    /// The logs that the hub has had, in order; the last one is the present one.
    pub(super) logs: Vec<Option<LogId>>,
    /// The time at which the store's clock was last set.
    pub(super) store_set_at: Option<Monotonic>,
    /// The time at which the store was last restored from a copy.
    pub(super) restored_at: Option<Monotonic>,
    pub(super) violation: Option<Violation>,
    pub(super) figures: Figures,
    pub(super) last_change: Monotonic,
}

impl MachineFile {
    /// Notes a fault other than sleep, until then.
    pub(super) fn is_disturbed(&mut self, until: Monotonic) {
        self.disturbed_until = self.disturbed_until.max(until);
        self.troubled_until = self.troubled_until.max(until);
    }
}

impl Docket {
    /// A state that knows only the hub's log.
    pub(super) fn new(log: Option<LogId>) -> Self {
        Self {
            turns: vec![],
            cases: BTreeMap::new(),
            seats: BTreeMap::new(),
            machines: BTreeMap::new(),
            common: (false, Monotonic(0)),
            outages: vec![],
            held: BTreeSet::new(),
            logs: vec![log],
            store_set_at: None,
            restored_at: None,
            violation: None,
            figures: Figures::default(),
            last_change: Monotonic(0),
        }
    }

    /// Notes that the store becomes bad, or good again, for one machine or for all.
    pub(super) fn note_outage(&mut self, machine: Option<Machine>, bad: bool, now: Monotonic) {
        let lasts = |outage: &&mut Outage| outage.machine == machine && outage.until.is_none();
        match self.outages.iter_mut().find(lasts) {
            Some(outage) if !bad => outage.until = Some(now),
            None if bad => self.outages.push(Outage { machine, from: now, until: None }),
            _ => {}
        }
        self.outages.retain(|outage| outage.until.is_none_or(|until| now.since(until) < OUTAGES_KEPT));
    }

    /// True if a machine has certainly received an answer that the store gave at this time: no outage began before
    /// or within `margin` after the answer, unless it had ended `settled` before it.
    pub(super) fn has_heard_of(
        &self,
        machine: Machine,
        answer: Monotonic,
        margin: Duration,
        settled: Duration,
    ) -> bool {
        let concerns = |outage: &&Outage| outage.machine.is_none_or(|of| of == machine);
        self.outages.iter().filter(concerns).all(|outage| {
            answer + margin <= outage.from || outage.until.is_some_and(|until| until + settled <= answer)
        })
    }

    /// True if an operator holds a partition on its owner's machine.
    pub(super) fn is_held(&self, partition: PartitionId, case: &Case) -> bool {
        let seat = case.owner.as_ref().and_then(|owner| self.seats.get(owner));
        seat.is_some_and(|seat| self.held.contains(&(partition, seat.machine)))
    }

    /// The generation of the hub's present log.
    pub(super) fn life(&self) -> usize {
        self.logs.len() - 1
    }

    /// True if no fault has affected this machine since then, and the store has been good for it and for all.
    /// Failing user code, odd checkpoints and long stops are no such faults.
    ///
    /// Without it, checks that need a machine free of faults are skipped, because what is due may come late.
    /// The exemption ends when the last fault lies before `since`.
    pub(super) fn undisturbed(&self, machine: Machine, since: Monotonic) -> bool {
        let file = self.machines.get(&machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = self.common;
        !file.store_is_bad && !bad_for_all && file.disturbed_until.max(changed_at) <= since
    }

    /// True if this machine's clock has run normally since then: the machine did not stand still, sleep or
    /// block its thread, and its clock did not jump or drift.
    ///
    /// Without it, checks of deadlines are skipped, because the host could not measure time. The exemption
    /// ends when the last such fault lies before `since`.
    pub(super) fn in_time(&self, machine: Machine, since: Monotonic) -> bool {
        self.machines.get(&machine).copied().unwrap_or_default().stood_until <= since
    }

    /// True if this machine's connection to the store has been good since then, and the store good for all.
    ///
    /// Without it, checks of reads, renewals and answers are skipped, because they may not have got through.
    /// The exemption ends when the last outage lies before `since`.
    pub(super) fn reached_the_store(&self, machine: Machine, since: Monotonic) -> bool {
        let file = self.machines.get(&machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = self.common;
        !file.store_is_bad && !bad_for_all && file.store_changed_at.max(changed_at) <= since
    }

    /// Exempts a machine whose clock stood still after this grant of its lease: user code may run, or overlap
    /// with the next owner's, after the lease is over by true time.
    ///
    /// The machine cannot notice that time passed. The exemption ends with its next renewal. A call after the
    /// deadline by its own clock is a violation all the same.
    pub(super) fn misled(&self, machine: Machine, granted: Monotonic) -> bool {
        let stood = self.machines.get(&machine).and_then(|file| file.clock_stood_until);
        stood.is_some_and(|until| granted <= until)
    }

    /// Exempts a machine that could not know that its lease was claimed as expired: user code may overlap
    /// with the next owner's.
    ///
    /// It applies if the store's clock was set less than 60 s ago, and a fault affected the machine, or kept
    /// it from the store, within the last 60 s: a host that came later may have believed the new clock. The
    /// exemption ends 60 s after the clock was set.
    pub(super) fn was_overtaken(&self, machine: Machine, now: Monotonic) -> bool {
        let set = self.store_set_at.is_some_and(|at| now.since(at) < AMNESTY);
        set && !self.undisturbed(machine, now.before(AMNESTY))
    }

    /// Exempts all owners for 60 s (the longest lease) after the store was restored from a copy: they may act
    /// on what the store has forgotten until they read it again.
    pub(super) fn in_amnesty(&self, now: Monotonic) -> bool {
        self.restored_at.is_some_and(|at| now.since(at) < AMNESTY)
    }
}
