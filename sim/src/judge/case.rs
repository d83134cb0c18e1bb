//! The facts that the judge keeps of one partition (`Case`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ephor::{Epoch, HostId, SequenceNumber};
use ephor_core::ids::Incarnation;
use ephor_core::time::Monotonic;

use super::calls::Told;
use super::code_side::Span;
use crate::executor::Machine;

/// The position at which the stored checkpoint lets reading resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The generation of the hub's log: the number of logs before it.
    pub(super) life: usize,
    /// The next event to read.
    pub(super) next: SequenceNumber,
}

/// The time at which the store last granted an epoch the full duration of its lease.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    /// The virtual time.
    pub(super) at: Monotonic,
    /// The reading of the owner's own clock.
    pub(super) reading: Monotonic,
    /// The owner's machine.
    pub(super) machine: Option<Machine>,
}

/// The reading progress of one epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// The next unfinished event, and the log that it is in. `None` until the epoch has begun.
    pub(super) next: Option<Standing>,
    /// True after the host reported that its position does not exist; it will store the position at which it
    /// resumes.
    pub(super) moving: bool,
    /// The position that the host reported as gone, if it has finished nothing since.
    pub(super) said_at: Option<SequenceNumber>,
    /// The time since which finished events are not saved, and their number.
    pub(super) unsaved: Option<(Monotonic, u64)>,
    /// The checkpoint that the processor asked for and that the host deferred.
    pub(super) owed: Option<Owed>,
}

/// A manual checkpoint that the host deferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    /// The checkpoint covers the events before this one.
    pub(super) next: SequenceNumber,
    /// The time since which one has been waiting.
    pub(super) since: Monotonic,
}

/// A batch that fails, perhaps repeatedly.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// The host that runs it, and its epoch.
    pub(super) of: Option<(HostId, Epoch)>,
    pub(super) span: Option<Span>,
    /// The number of failures in a row.
    pub(super) failures: u32,
    /// The number of failures in a row that were timeouts.
    pub(super) timeouts: u32,
    /// The receivers that have not been told of the last failure.
    pub(super) untold: Vec<Told>,
}

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) machine: Machine,
    /// The incarnation of the host on that machine.
    pub(super) incarnation: Incarnation,
    pub(super) epoch: Epoch,
    /// The virtual time at which it began.
    pub(super) begun: Monotonic,
    /// The same time by the machine's own clock.
    pub(super) reading: Monotonic,
    /// The time until which it blocks its thread.
    pub(super) blocked_until: Monotonic,
}

/// The events that a former log of the hub had lost when it was deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct EarlierLog {
    /// The oldest event that it kept.
    pub(super) kept: SequenceNumber,
    /// Numbers of lost events, and numbers that were never assigned.
    pub(super) passed_over: Vec<Range<SequenceNumber>>,
}

impl EarlierLog {
    pub(super) fn is_gone(&self, event: SequenceNumber) -> bool {
        event < self.kept || self.passed_over.iter().any(|range| range.contains(&event))
    }
}

#[derive(Debug, Default)]
pub(super) struct Case {
    pub(super) owner: Option<HostId>,
    /// The newest epoch that the store gave out.
    pub(super) epoch: Epoch,
    /// The newest epoch whose user code has run.
    pub(super) begun: Epoch,
    pub(super) granted: BTreeMap<Epoch, Grant>,
    pub(super) standing: Option<Standing>,
    pub(super) readings: BTreeMap<Epoch, Reading>,
    pub(super) call: Option<Call>,
    /// The epoch of the other reader that each machine was last told of by the hub.
    pub(super) displaced_by: BTreeMap<Machine, Epoch>,
    /// Epochs whose processor is open.
    pub(super) open: BTreeSet<Epoch>,
    /// The time at which a processor was last opened, and its epoch.
    pub(super) opened_at: Option<(Epoch, Monotonic)>,
    /// Epochs whose processor has opened and must be closed, with their hosts.
    pub(super) serving: BTreeMap<Epoch, HostId>,
    /// The batch that failed last.
    pub(super) trouble: Trouble,
    /// The host that gave it away last, and true if it did so as settled: everything finished was saved.
    pub(super) given: Option<(HostId, bool)>,
    /// The epoch whose processor was closed last.
    pub(super) closing: Option<Epoch>,
    /// The epoch whose processor failed to close.
    pub(super) close_failed: Option<Epoch>,
    /// The epoch whose owner closed its processor in order to give it away.
    pub(super) gives_away: Option<Epoch>,
    /// Events of the present log finished at least once, or skipped by policy.
    pub(super) done: BTreeSet<SequenceNumber>,
    /// The oldest event of the present log that is kept.
    pub(super) kept: SequenceNumber,
    /// Numbers of the present log whose events are lost, and numbers that were never assigned.
    pub(super) passed_over: Vec<Range<SequenceNumber>>,
    /// The former logs of the hub, by their generation.
    pub(super) earlier: BTreeMap<usize, EarlierLog>,
    /// The position to which an operator's seek moves it, until the store carries the seek out.
    pub(super) sought: Option<SequenceNumber>,
    /// The epoch that the last seek took. Events finished by older epochs do not count.
    pub(super) sought_in: Epoch,
    /// Events before this one may be missing: an operator's seek passed over them, or reading began here.
    pub(super) excused: SequenceNumber,
}

impl Case {
    /// True if nobody can finish this event any more, through no fault of a host: retention removed it, or
    /// the hub lost it or never assigned its number.
    pub(super) fn is_gone(&self, event: SequenceNumber) -> bool {
        event < self.kept || self.passed_over.iter().any(|range| range.contains(&event))
    }

    /// Counts every event before this one as done, because an operator's seek passed over them or reading
    /// began here.
    pub(super) fn excuse_before(&mut self, next: SequenceNumber) {
        self.excused = self.excused.max(next);
        self.done.extend((0..next.0).map(SequenceNumber));
    }
}
