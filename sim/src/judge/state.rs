//! The state of the judge: facts about partitions, hosts and machines, and about faults of the store and the
//! hub.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor::{HostId, PartitionId};
use ephor_core::host_record::{HandoverAnswer, HandoverRequest};
use ephor_core::ids::LogId;
use ephor_core::time::Monotonic;

use super::draining::Draining;
use super::partition_facts::PartitionFacts;
use super::stops::Stopping;
use super::{Caller, Figures, ProcessorEvent, Violation};
use crate::executor::Machine;
use crate::scenario::HostConfig;

/// The grace after a restored copy, or after the store's clock was set: the longest lease. Within it, owners
/// find out that the store has forgotten them.
const RESTORE_GRACE: Duration = Duration::from_secs(60);

/// The time for which past outages of the store are remembered. No lease is longer.
const OUTAGES_KEPT: Duration = Duration::from_secs(120);

/// The facts about one host: one run of its process.
#[derive(Clone, Debug)]
pub(super) struct HostFacts {
    pub(super) machine: Machine,
    pub(super) config: HostConfig,
    /// True once its process is gone.
    pub(super) dead: bool,
    /// Set once it has stopped gracefully: the partitions that it abandoned.
    pub(super) stopped: Option<BTreeSet<PartitionId>>,
    /// Set once it was told to stop.
    pub(super) stopping: Option<Stopping>,
    /// Its requests for partitions, and the times at which they first appeared.
    pub(super) wants: Vec<(HandoverRequest, Monotonic)>,
    /// Its answers to requests, and the times at which they first appeared.
    pub(super) answers: Vec<(HandoverAnswer, Monotonic)>,
    /// Its announcements for partitions that it gives away, kept even if nobody asks any more.
    pub(super) draining: BTreeMap<PartitionId, Draining>,
}

/// The facts about a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MachineFacts {
    /// True while its connection to the store is bad.
    pub(super) store_is_bad: bool,
    /// The time since which `store_is_bad` has its present value.
    pub(super) store_changed_at: Monotonic,
    /// True while its store hangs because its host stops, and has no other fault.
    pub(super) store_hangs: bool,
    /// The time until which its store last hung at a stop.
    pub(super) hung_until: Option<Monotonic>,
    /// The time until which its clock could not be relied on: the machine stood still, slept or blocked its
    /// thread, or its clock jumped or drifted.
    pub(super) time_fault_until: Monotonic,
    /// The time until which it stood still, if the store was restored meanwhile.
    pub(super) slept_through_restore_until: Option<Monotonic>,
    /// The time until which a fault of any kind, sleep included, last affected it.
    pub(super) fault_until: Monotonic,
    /// The same without sleep.
    pub(super) fault_except_sleep_until: Monotonic,
    /// The time at which it last woke up.
    pub(super) woke_at: Option<Monotonic>,
    /// The time until which its clock last stood still. Its conclusions from before then are void.
    pub(super) clock_stopped_until: Option<Monotonic>,
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
pub(super) struct JudgeState {
    pub(super) processor_events: Vec<ProcessorEvent>,
    pub(super) partitions: BTreeMap<PartitionId, PartitionFacts>,
    pub(super) hosts: BTreeMap<HostId, HostFacts>,
    pub(super) machines: BTreeMap<Machine, MachineFacts>,
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

impl MachineFacts {
    /// Notes a fault other than sleep, until then.
    pub(super) fn note_fault_until(&mut self, until: Monotonic) {
        self.fault_until = self.fault_until.max(until);
        self.fault_except_sleep_until = self.fault_except_sleep_until.max(until);
    }
}

impl JudgeState {
    /// A state that knows only the hub's log.
    pub(super) fn new(log: Option<LogId>) -> Self {
        Self {
            processor_events: vec![],
            partitions: BTreeMap::new(),
            hosts: BTreeMap::new(),
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

    /// True if a host's process is there, and has not stopped.
    pub(super) fn runs(&self, host: &HostId) -> bool {
        self.hosts.get(host).is_some_and(|host_facts| !host_facts.dead && host_facts.stopped.is_none())
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
    /// or within `margin` after the answer, unless it had ended `recovery` before it.
    pub(super) fn received_answer(
        &self,
        machine: Machine,
        answer: Monotonic,
        margin: Duration,
        recovery: Duration,
    ) -> bool {
        let concerns = |outage: &&Outage| outage.machine.is_none_or(|of| of == machine);
        self.outages.iter().filter(concerns).all(|outage| {
            answer + margin <= outage.from || outage.until.is_some_and(|until| until + recovery <= answer)
        })
    }

    /// True if an operator holds a partition on its owner's machine.
    pub(super) fn is_held(&self, partition: PartitionId, facts: &PartitionFacts) -> bool {
        let host_facts = facts.owner.as_ref().and_then(|owner| self.hosts.get(owner));
        host_facts.is_some_and(|host_facts| self.held.contains(&(partition, host_facts.machine)))
    }

    /// The generation of the hub's present log.
    pub(super) fn log_generation(&self) -> usize {
        self.logs.len() - 1
    }

    /// True if no fault has affected this machine since then, and the store has been good for it and for all.
    /// Failing user code, odd checkpoints and long stops are no such faults.
    ///
    /// Without it, checks that need a machine free of faults are skipped, because what is due may come late.
    /// The exemption ends when the last fault lies before `since`.
    pub(super) fn free_of_faults(&self, machine: Machine, since: Monotonic) -> bool {
        self.free_of_faults_but_hangs(machine, since)
            && self.hung_until(machine).is_none_or(|until| until <= since)
    }

    /// The same, but the store may have hung at a stop. It must not hang now.
    pub(super) fn free_of_faults_but_hangs(&self, machine: Machine, since: Monotonic) -> bool {
        let machine_facts = self.machines.get(&machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = self.common;
        !machine_facts.store_is_bad && !bad_for_all && machine_facts.fault_until.max(changed_at) <= since
    }

    /// The time until which the store of this machine last hung at a stop.
    pub(super) fn hung_until(&self, machine: Machine) -> Option<Monotonic> {
        self.machines.get(&machine)?.hung_until
    }

    /// True if this machine's clock has run normally since then: the machine did not stand still, sleep or
    /// block its thread, and its clock did not jump or drift.
    ///
    /// Without it, checks of deadlines are skipped, because the host could not measure time. The exemption
    /// ends when the last such fault lies before `since`.
    pub(super) fn time_passed_normally(&self, machine: Machine, since: Monotonic) -> bool {
        self.machines.get(&machine).copied().unwrap_or_default().time_fault_until <= since
    }

    /// True if this machine's connection to the store has been good since then, and the store good for all.
    ///
    /// Without it, checks of reads, renewals and answers are skipped, because they may not have got through.
    /// The exemption ends when the last outage lies before `since`.
    pub(super) fn reached_the_store(&self, machine: Machine, since: Monotonic) -> bool {
        let machine_facts = self.machines.get(&machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = self.common;
        !machine_facts.store_is_bad && !bad_for_all && machine_facts.store_changed_at.max(changed_at) <= since
    }

    /// Exempts a machine whose clock stood still after this grant of its lease: user code may run, or overlap
    /// with the next owner's, after the lease is over by true time.
    ///
    /// The machine cannot notice that time passed. The exemption ends with its next renewal. A call after the
    /// deadline by its own clock is a violation all the same.
    pub(super) fn clock_stopped_since(&self, machine: Machine, granted: Monotonic) -> bool {
        let stopped_until =
            self.machines.get(&machine).and_then(|machine_facts| machine_facts.clock_stopped_until);
        stopped_until.is_some_and(|until| granted <= until)
    }

    /// Exempts a machine that could not know that its lease was claimed as expired: user code may overlap
    /// with the next owner's.
    ///
    /// It applies if the store's clock was set less than 60 s ago, and a fault affected the machine, or kept
    /// it from the store, within the last 60 s: a host that came later may have believed the new clock. The
    /// exemption ends 60 s after the clock was set.
    pub(super) fn cannot_know_of_takeover(&self, machine: Machine, now: Monotonic) -> bool {
        let set = self.store_set_at.is_some_and(|at| now.since(at) < RESTORE_GRACE);
        set && !self.free_of_faults(machine, now.before(RESTORE_GRACE))
    }

    /// Exempts all owners for 60 s (the longest lease) after the store was restored from a copy: they may act
    /// on what the store has forgotten until they read it again.
    pub(super) fn in_restore_grace(&self, now: Monotonic) -> bool {
        self.restored_at.is_some_and(|at| now.since(at) < RESTORE_GRACE)
    }

    /// Exempts an owner that stood still while the store was restored, for 60 s after that: it acts on what the
    /// store has forgotten, as the others did after the restore.
    pub(super) fn slept_through_restore(&self, machine: Machine, now: Monotonic) -> bool {
        let until =
            self.machines.get(&machine).and_then(|machine_facts| machine_facts.slept_through_restore_until);
        until.is_some_and(|until| now.since(until) < RESTORE_GRACE)
    }

    /// Exempts a host whose epoch a restored store has given to another host, too, for 60 s after the
    /// restore: its calls are not compared with the progress of the present owner.
    pub(super) fn epoch_was_reissued(&self, caller: &Caller, now: Monotonic) -> bool {
        let facts = self.partitions.get(&caller.partition);
        let again =
            facts.filter(|facts| facts.epoch == caller.epoch && facts.owner.as_ref() != Some(&caller.host));
        self.in_restore_grace(now) && again.is_some()
    }
}
