//! What the judge knows: of partitions, hosts and machines, and of what was done to the store and the hub.

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

/// How long owners may take to find out that the store has forgotten them: the longest lease.
const AMNESTY: Duration = Duration::from_secs(60);

/// One run of a host's process, as it introduced itself.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) machine: Machine,
    pub(super) style: Style,
    /// Its process is gone.
    pub(super) dead: bool,
    /// It has stopped in good order, and abandoned these.
    pub(super) stopped: Option<BTreeSet<PartitionId>>,
    /// It was told to stop.
    pub(super) stopping: Option<Stopping>,
    /// What it asks for, and since when.
    pub(super) wants: Vec<(Want, Monotonic)>,
    /// What it answers, and since when.
    pub(super) answers: Vec<(Answer, Monotonic)>,
    /// What it has said of partitions that it gives away, also if nobody asks any more.
    pub(super) draining: BTreeMap<PartitionId, Draining>,
}

/// What the judge knows of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MachineFile {
    /// Its way to the store is bad at the moment.
    pub(super) store_is_bad: bool,
    /// Since when that is so.
    pub(super) store_changed_at: Monotonic,
    /// Until when its time did not pass as it should: it stood still, or jumped.
    pub(super) stood_until: Monotonic,
    /// Until when it was last disturbed in any way.
    pub(super) disturbed_until: Monotonic,
    /// The same, but that it slept.
    pub(super) troubled_until: Monotonic,
    /// When it last woke up.
    pub(super) woke_at: Option<Monotonic>,
    /// When its clock last stood still; what it believed then is worth nothing.
    pub(super) clock_stood_until: Option<Monotonic>,
}

/// Everything that the judge knows.
pub(super) struct Docket {
    pub(super) turns: Vec<Turn>,
    pub(super) cases: BTreeMap<PartitionId, Case>,
    pub(super) seats: BTreeMap<HostId, Seat>,
    pub(super) machines: BTreeMap<Machine, MachineFile>,
    /// Whether the store is bad for all, and since when that is so.
    pub(super) common: (bool, Monotonic),
    /// Partitions that a person holds, and on which machine.
    pub(super) held: BTreeSet<(PartitionId, Machine)>,
    /// The logs that the hub has had, in order; the last one is its present one.
    pub(super) logs: Vec<Option<LogId>>,
    /// When the store's clock was last set.
    pub(super) store_set_at: Option<Monotonic>,
    /// When the store was last restored from a copy.
    pub(super) restored_at: Option<Monotonic>,
    pub(super) violation: Option<Violation>,
    pub(super) figures: Figures,
    pub(super) last_change: Monotonic,
}

impl MachineFile {
    /// Something happens to it, until then.
    pub(super) fn is_disturbed(&mut self, until: Monotonic) {
        self.disturbed_until = self.disturbed_until.max(until);
        self.troubled_until = self.troubled_until.max(until);
    }
}

impl Docket {
    /// Nothing is known yet but the hub's log.
    pub(super) fn new(log: Option<LogId>) -> Self {
        Self {
            turns: vec![],
            cases: BTreeMap::new(),
            seats: BTreeMap::new(),
            machines: BTreeMap::new(),
            common: (false, Monotonic(0)),
            held: BTreeSet::new(),
            logs: vec![log],
            store_set_at: None,
            restored_at: None,
            violation: None,
            figures: Figures::default(),
            last_change: Monotonic(0),
        }
    }

    /// Whether a person holds a partition where it is.
    pub(super) fn is_held(&self, partition: PartitionId, case: &Case) -> bool {
        let seat = case.owner.as_ref().and_then(|owner| self.seats.get(owner));
        seat.is_some_and(|seat| self.held.contains(&(partition, seat.machine)))
    }

    /// The present life of the hub's log.
    pub(super) fn life(&self) -> usize {
        self.logs.len() - 1
    }

    /// Whether nothing has kept this machine from the store for so long.
    pub(super) fn undisturbed(&self, machine: Machine, since: Monotonic) -> bool {
        let file = self.machines.get(&machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = self.common;
        !file.store_is_bad && !bad_for_all && file.disturbed_until.max(changed_at) <= since
    }

    /// Whether this machine's time has passed as it should for so long.
    pub(super) fn in_time(&self, machine: Machine, since: Monotonic) -> bool {
        self.machines.get(&machine).copied().unwrap_or_default().stood_until <= since
    }

    /// Whether this machine has had a good way to the store for so long.
    pub(super) fn reached_the_store(&self, machine: Machine, since: Monotonic) -> bool {
        let file = self.machines.get(&machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = self.common;
        !file.store_is_bad && !bad_for_all && file.store_changed_at.max(changed_at) <= since
    }

    /// Whether what this machine believes of a lease granted at this time is worth nothing: its
    /// clock has stood still since, and it could not notice.
    pub(super) fn misled(&self, machine: Machine, granted: Monotonic) -> bool {
        let stood = self.machines.get(&machine).and_then(|file| file.clock_stood_until);
        stood.is_some_and(|until| granted <= until)
    }

    /// Whether this machine could not know that it was taken for dead: the store's clock was set,
    /// somebody who came later believed it, and the machine did not reach the store.
    pub(super) fn was_overtaken(&self, machine: Machine, now: Monotonic) -> bool {
        let set = self.store_set_at.is_some_and(|at| now.since(at) < AMNESTY);
        set && !self.undisturbed(machine, now.before(AMNESTY))
    }

    /// After a restored copy, owners may go on until they look again.
    pub(super) fn in_amnesty(&self, now: Monotonic) -> bool {
        self.restored_at.is_some_and(|at| now.since(at) < AMNESTY)
    }
}
