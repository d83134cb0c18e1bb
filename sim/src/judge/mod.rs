//! Checks the promises of the host after every step of a simulated run.
//!
//! The judge learns facts from four sides: the steps that the store carried out (`store_side`), the calls of
//! user code (`code_side`, `calls`), the exchange between hosts and the hub (`hub_side`, `lost_ground`), and
//! the faults that `crate::acts` injected. It trusts no host's own account: reports and answers of hosts are
//! checked against these facts. `docket` holds the state of the judge, `case` the facts of one partition.
//!
//! | promise | how it is judged |
//! |---|---|
//! | one owner | an epoch is never used twice; no save under an older epoch than the newest; no user code of an older epoch runs once a newer one has begun; no two calls at a time; no call after the lease, less its margin, is over by its machine's own clock; no lease is claimed as expired too early; only an unresponsive owner's lease may be stolen |
//! | at least once, in order | each epoch resumes right after the checkpoint that was stored when it began; each call begins at the next unfinished event; events that are passed over were reported, and are gone; no checkpoint covers an unfinished event; the policy's checkpoints are written in time; in the end everything is finished |
//! | checkpoints never move back | as the store carries them out |
//! | stop means stopped | a partition given away as settled has its checkpoint at the last finished event; a stopped host owns nothing and runs nothing; a held partition gets no calls; how calls and processors end (`calls`) |
//! | balanced and then still | after the faults: everything is owned, evenly, and nothing moves |
//! | the loop never dies | every host goes on scanning; limits of calls, and reports of failures (`calls`) |
//!
//! A check is skipped where no host could know better. Each exemption that several checks share is a
//! predicate that says what it exempts, why, and for how long; all others are listed at their checks.
//!
//! | exemption | reason | bound |
//! |---|---|---|
//! | `Docket::in_amnesty` | the store was restored from an old copy, and owners do not know yet | 60 s |
//! | `Docket::was_restored_lately` | the same, for leases that run out and for calls that a stop cuts short | 120 s |
//! | `Docket::has_it_from_another_time` | a restored store gave the same epoch to another host | 60 s |
//! | `Docket::misled` | the machine's clock stood still, so it cannot see that its lease is over | until its next renewal |
//! | `Docket::was_overtaken` | the store's clock was set, and a fault affected the machine or kept it from the store | 60 s |
//! | `Docket::in_time` | the machine stood still, slept or blocked its thread, or its clock jumped or drifted | until that ended |
//! | `Docket::undisturbed` | a fault hit the machine, or the store was bad for it | until that ended |
//! | `Docket::reached_the_store` | the store was bad for the machine | until that ended |
//! | `Judge::is_well` | a fault hit the machine, the store was bad for it, or the store was restored | 60 s after that |
//!
//! Saves are never exempt from fencing.

mod calls;
mod case;
mod code_side;
mod docket;
mod draining;
mod hub_side;
mod lost_ground;
mod promise;
mod rest;
mod robbery;
mod sleep;
mod stops;
mod store_side;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::{HostId, OnInvalidPosition, PartitionId, StartPosition};
use ephor_core::host_record::{Answer, HostRecord};
use ephor_core::ids::LogId;
use ephor_core::position::SequenceNumber;
use ephor_core::time::{Clock, Monotonic};

use crate::coverage::PartitionState;
use crate::executor::{Handle, Machine};
use crate::history::History;
use crate::scenario::{Scenario, Style};
pub use calls::Told;
use case::{EarlierLog, Standing};
pub use code_side::{Caller, Span};
use docket::{Docket, Seat};
pub use promise::{Promise, Violation};
pub use rest::{Alive, Rest};

/// Figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// Events finished, repetitions included.
    pub finished: u64,
    /// Events finished again.
    pub repeated: u64,
    /// Events that the failure policy skipped.
    pub skipped: u64,
    /// Changes of owner, by reason.
    pub changes: BTreeMap<String, u64>,
    /// Given away with something finished but not saved.
    pub unsettled: u64,
    /// Checkpoints stored.
    pub saves: u64,
}

/// A processor opened or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The time at which it opened or closed.
    pub at: Monotonic,
    /// The partition.
    pub partition: PartitionId,
    /// True if it opened, false if it closed.
    pub opens: bool,
}

/// The judge's facts about the store at one moment, restored together with a copy of the store.
#[derive(Clone, Debug)]
pub struct JudgeCopy(BTreeMap<PartitionId, (Option<HostId>, ephor::Epoch, Option<Standing>)>);

/// The judge of one run. Clones share one state.
#[derive(Clone)]
pub struct Judge {
    handle: Handle,
    history: History,
    initial: StartPosition,
    /// The number of partitions when the group was created. Partitions added later start at the earliest
    /// event.
    founded: u32,
    on_invalid: OnInvalidPosition,
    epochless: bool,
    /// True if the store notifies hosts of changes.
    wakes: bool,
    /// The machine whose clock the store uses.
    store_clock: Machine,
    docket: Arc<Mutex<Docket>>,
}

impl Judge {
    /// A judge that knows only the configuration of the hosts.
    pub fn new(
        handle: &Handle,
        history: &History,
        scenario: &Scenario,
        log: Option<LogId>,
        store_clock: Machine,
    ) -> Self {
        Self {
            handle: handle.clone(),
            history: history.clone(),
            initial: scenario.initial.clone(),
            founded: scenario.partitions,
            on_invalid: scenario.on_invalid,
            epochless: scenario.epochless,
            wakes: scenario.wakes,
            store_clock,
            docket: Arc::new(Mutex::new(Docket::new(log))),
        }
    }

    /// Expects no notifications from the store, as a user's own store may send none.
    pub fn without_wakes(self) -> Self {
        Self { wakes: false, ..self }
    }

    fn docket(&self) -> MutexGuard<'_, Docket> {
        self.docket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first promise that was broken.
    pub fn violation(&self) -> Option<Violation> {
        self.docket().violation.clone()
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        self.docket().figures.clone()
    }

    /// All openings and closings, in order.
    pub fn turns(&self) -> Vec<Turn> {
        self.docket().turns.clone()
    }

    /// The time of the last change of ownership.
    pub fn last_change(&self) -> Monotonic {
        self.docket().last_change
    }

    /// Records a violation. Only the first one counts, because later ones may follow from it.
    pub fn object(&self, promise: Promise, partition: Option<PartitionId>, what: String) {
        let mut docket = self.docket();
        if docket.violation.is_none() {
            let violation = Violation { promise, partition, what };
            self.history.tell(format_args!("VIOLATION of \"{violation}\""));
            docket.violation = Some(violation);
        }
    }

    /// The state of a partition, for the coverage table.
    pub fn state_of(&self, partition: PartitionId) -> PartitionState {
        let docket = self.docket();
        match docket.cases.get(&partition) {
            Some(case) if case.owner.is_none() => PartitionState::Unowned,
            Some(case) if docket.is_held(partition, case) => PartitionState::Held,
            Some(case) if case.call.is_some() => PartitionState::InCall,
            Some(case) if case.open.contains(&case.epoch) => PartitionState::Idle,
            Some(case) if case.closing == Some(case.epoch) => PartitionState::Closing,
            Some(_) => PartitionState::Opening,
            None => PartitionState::Unowned,
        }
    }

    /// The partitions that the store assigns to the hosts of a machine, of any incarnation.
    pub fn owned_by(&self, machine: Machine) -> Vec<PartitionId> {
        let docket = self.docket();
        let sits = |host: &HostId| docket.seats.get(host).is_some_and(|seat| seat.machine == machine);
        let mine = docket.cases.iter().filter(|(_, case)| case.owner.as_ref().is_some_and(sits));
        mine.map(|(partition, _)| *partition).collect()
    }

    /// The machine of the host that owns a partition.
    pub fn owner_of(&self, partition: PartitionId) -> Option<Machine> {
        let docket = self.docket();
        let owner = docket.cases.get(&partition)?.owner.as_ref()?;
        docket.seats.get(owner).map(|seat| seat.machine)
    }

    /// Notes a host's heartbeat: its identity, its requests for partitions and its answers to requests.
    pub fn meets(&self, record: &HostRecord, machine: Machine, style: &Style) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let seat = docket.seats.entry(record.id.clone()).or_insert_with(|| Seat {
            machine,
            style: style.clone(),
            dead: false,
            stopped: None,
            stopping: None,
            wants: vec![],
            answers: vec![],
            draining: BTreeMap::new(),
        });
        note(&mut seat.wants, &record.wants, now, PartialEq::eq);
        note(&mut seat.answers, &record.answers, now, same_answer);
        self.note_draining(&mut docket, record);
    }

    /// Notes a fault on a machine that lasts this long, so that actions of its host may be late.
    pub fn disturbed(&self, machine: Machine, lasting: Duration) {
        let until = self.handle.now() + lasting;
        let mut docket = self.docket();
        docket.machines.entry(machine).or_default().is_disturbed(until);
    }

    /// Notes that a machine stands still or blocks its thread for this long, or that its clock jumps or
    /// drifts.
    pub fn stands(&self, machine: Machine, lasting: Duration) {
        let until = self.handle.now() + lasting;
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.stood_until = file.stood_until.max(until);
    }

    /// Notes that the store's clock was set.
    pub fn store_clock_was_set(&self) {
        let now = self.handle.now();
        self.docket().store_set_at = Some(now);
    }

    /// Notes that a machine's connection to the store becomes bad, or good again.
    pub fn store_is_bad(&self, machine: Machine, bad: bool) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        // If one kind of trouble follows another, the time counts from the first.
        if !(bad && file.store_is_bad) {
            (file.store_is_bad, file.store_changed_at) = (bad, now);
        }
        file.is_disturbed(now);
        docket.note_outage(Some(machine), bad, now);
    }

    /// Notes that the store becomes bad for all hosts, or good again.
    pub fn store_is_bad_for_all(&self, bad: bool) {
        let now = self.handle.now();
        let mut docket = self.docket();
        if !(bad && docket.common.0) {
            docket.common = (bad, now);
        }
        docket.note_outage(None, bad, now);
    }

    /// Notes that a machine's clock stood still until now while time passed.
    pub fn clock_stood(&self, machine: Machine) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.clock_stood_until = Some(now);
        file.is_disturbed(now);
    }

    /// Notes that an operator holds a partition on a machine, or lets it go.
    pub fn holds(&self, partition: PartitionId, machine: Machine, held: bool) {
        let mut docket = self.docket();
        if held {
            docket.held.insert((partition, machine));
        } else {
            docket.held.remove(&(partition, machine));
        }
    }

    /// All partitions that an operator holds, and on which machine.
    pub fn held(&self) -> Vec<(PartitionId, Machine)> {
        self.docket().held.iter().copied().collect()
    }

    /// Notes that the process on this machine is gone. An operator's holds in it end with it.
    pub fn lets_go(&self, machine: Machine) {
        let mut docket = self.docket();
        docket.held.retain(|(_, on)| *on != machine);
        docket.seats.values_mut().filter(|seat| seat.machine == machine).for_each(|seat| seat.dead = true);
    }

    /// The newest epoch of a partition.
    pub fn epoch_of(&self, partition: PartitionId) -> ephor::Epoch {
        self.docket().cases.get(&partition).map(|case| case.epoch).unwrap_or_default()
    }

    /// The oldest event of a partition that is kept.
    pub fn kept(&self, partition: PartitionId) -> SequenceNumber {
        self.docket().cases.get(&partition).map(|case| case.kept).unwrap_or_default()
    }

    /// The first event of a partition from which on none is missing.
    pub fn whole_from(&self, partition: PartitionId) -> SequenceNumber {
        let docket = self.docket();
        let Some(case) = docket.cases.get(&partition) else { return SequenceNumber(0) };
        case.passed_over.iter().map(|range| range.end).fold(case.kept, SequenceNumber::max)
    }

    /// Events of a partition before this one may be missing: an operator's seek passed over them, or reading
    /// began here.
    pub fn excused_before(&self, partition: PartitionId) -> SequenceNumber {
        self.docket().cases.get(&partition).map(|case| case.excused).unwrap_or_default()
    }

    /// The number of times that the hub was deleted and created again.
    pub fn life(&self) -> usize {
        self.docket().life()
    }

    /// Notes that the hub was deleted and created again with this log. Its former events are gone.
    pub fn hub_was_made_anew(&self, log: Option<LogId>) {
        let mut docket = self.docket();
        let deleted = docket.life();
        docket.logs.push(log);
        for case in docket.cases.values_mut() {
            let (kept, passed_over) = (std::mem::take(&mut case.kept), std::mem::take(&mut case.passed_over));
            case.earlier.insert(deleted, EarlierLog { kept, passed_over });
            case.done.clear();
            case.excused = SequenceNumber(0);
        }
    }

    /// Notes that the hub lost the events of these numbers, or will never assign the numbers.
    pub fn passed_over(&self, partition: PartitionId, numbers: Range<SequenceNumber>) {
        self.docket().cases.entry(partition).or_default().passed_over.push(numbers);
    }

    /// Notes that retention removed all events before this one.
    pub fn removed_before(&self, partition: PartitionId, kept: SequenceNumber) {
        let mut docket = self.docket();
        let case = docket.cases.entry(partition).or_default();
        case.kept = case.kept.max(kept);
    }

    /// A copy of the judge's facts about the store.
    pub fn copy(&self) -> JudgeCopy {
        let docket = self.docket();
        let cases = docket.cases.iter();
        JudgeCopy(cases.map(|(id, case)| (*id, (case.owner.clone(), case.epoch, case.standing))).collect())
    }

    /// Notes that the store was restored from a copy taken together with this one.
    pub fn store_was_restored(&self, copy: &JudgeCopy) {
        let now = self.handle.now();
        let mut docket = self.docket();
        docket.restored_at = Some(now);
        let present = docket.life();
        docket.last_change = now;
        for (partition, case) in &mut docket.cases {
            let (owner, epoch, standing) = copy.0.get(partition).cloned().unwrap_or_default();
            (case.owner, case.epoch, case.begun, case.standing) = (owner, epoch, epoch, standing);
            case.sought_in = case.sought_in.min(epoch);
            // A seek that is newer than the copy is undone with it.
            if let Some(next) = standing.filter(|standing| standing.life == present).map(|it| it.next) {
                case.excuse_before(next);
            }
        }
    }

    /// The present reading of a machine's own monotonic clock.
    fn reading(&self, machine: Machine) -> Monotonic {
        self.handle.clock(machine).now()
    }
}

/// Keeps the time at which each of these requests or answers first appeared.
fn note<T: Clone>(noted: &mut Vec<(T, Monotonic)>, said: &[T], now: Monotonic, same: fn(&T, &T) -> bool) {
    noted.retain(|(old, _)| said.iter().any(|new| same(old, new)));
    for new in said {
        match noted.iter_mut().find(|(old, _)| same(old, new)) {
            Some((old, _)) => old.clone_from(new),
            None => noted.push((new.clone(), now)),
        }
    }
}

/// True for the same kind of answer to the same host about the same partition, even if its deadline differs.
fn same_answer(one: &Answer, other: &Answer) -> bool {
    (one.partition, &one.asker) == (other.partition, &other.asker)
        && std::mem::discriminant(&one.reply) == std::mem::discriminant(&other.reply)
}
