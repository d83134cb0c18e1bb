//! What the judge knows of one partition.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ephor::{Epoch, HostId, SequenceNumber};
use ephor_core::ids::Incarnation;
use ephor_core::time::Monotonic;

use super::calls::Told;
use super::code_side::Span;
use crate::executor::Machine;

/// Where the stored checkpoint says that reading goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// In which life of the hub's log.
    pub(super) life: usize,
    /// The next event to read.
    pub(super) next: SequenceNumber,
}

/// When the store last granted an epoch the lease's full time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    /// In virtual time.
    pub(super) at: Monotonic,
    /// By the owner's own clock.
    pub(super) reading: Monotonic,
    /// Where the owner runs.
    pub(super) machine: Option<Machine>,
}

/// How one epoch reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// The next event that it has not finished, and in which life of the log; none as long as it
    /// has not begun.
    pub(super) next: Option<Standing>,
    /// It said that its position does not exist, and will write down where it goes on.
    pub(super) moving: bool,
    /// Where it said that reading should go on, if it has finished nothing since.
    pub(super) said_at: Option<SequenceNumber>,
    /// Since when something is finished and not saved, and how many events that is.
    pub(super) unsaved: Option<(Monotonic, u64)>,
    /// What its processor has asked for, and was told to wait for.
    pub(super) owed: Option<Owed>,
}

/// A checkpoint by hand that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    /// It is up to here.
    pub(super) next: SequenceNumber,
    /// Since when one has been waiting.
    pub(super) since: Monotonic,
}

/// A batch that fails.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// Whose, and in which epoch.
    pub(super) of: Option<(HostId, Epoch)>,
    pub(super) span: Option<Span>,
    /// How often in a row.
    pub(super) failures: u32,
    /// How often in a row because its time was over.
    pub(super) timeouts: u32,
    /// Who has not been told of the last time.
    pub(super) untold: Vec<Told>,
}

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) machine: Machine,
    /// Of the host, on that machine.
    pub(super) incarnation: Incarnation,
    pub(super) epoch: Epoch,
    /// Since when, in virtual time.
    pub(super) begun: Monotonic,
    /// And by its own clock.
    pub(super) reading: Monotonic,
    /// It blocks its thread until then.
    pub(super) blocked_until: Monotonic,
}

/// What a log of the hub had lost when it was deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct EarlierLog {
    /// The oldest event that was kept.
    pub(super) kept: SequenceNumber,
    /// Numbers whose events were lost, or never were.
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
    /// When a processor was opened last, and in which epoch.
    pub(super) opened_at: Option<(Epoch, Monotonic)>,
    /// Epochs whose processor has opened and is to be closed, and whose it is.
    pub(super) serving: BTreeMap<Epoch, HostId>,
    /// The batch that failed last.
    pub(super) trouble: Trouble,
    /// Who gave it away last, and whether as settled.
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
    /// Numbers of the present log whose events are lost, or never were.
    pub(super) passed_over: Vec<Range<SequenceNumber>>,
    /// The logs that the hub had before, by their life.
    pub(super) earlier: BTreeMap<usize, EarlierLog>,
    /// Where a person has moved it, until the store carries it out.
    pub(super) sought: Option<SequenceNumber>,
    /// The epoch that the last seek took: what older ones finish counts for nothing.
    pub(super) sought_in: Epoch,
    /// Everything before this event may be missing, by right.
    pub(super) excused: SequenceNumber,
}

impl Case {
    /// Whether nobody can finish this event any more, through no fault of a host's.
    pub(super) fn is_gone(&self, event: SequenceNumber) -> bool {
        event < self.kept || self.passed_over.iter().any(|range| range.contains(&event))
    }

    /// Everything before this event is done, by a person's will or because reading began there.
    pub(super) fn excuse_before(&mut self, next: SequenceNumber) {
        self.excused = self.excused.max(next);
        self.done.extend((0..next.0).map(SequenceNumber));
    }
}
