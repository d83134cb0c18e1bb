//! The judge: checks the guarantees of the host after every step of a simulated run.
//!
//! The judge learns facts from four sides: the steps that the store carried out (`store_side`), the calls of
//! user code (`user_code_side`, `calls`), the exchange between hosts and the hub (`hub_side`,
//! `positions_gone`), and the faults that `crate::injection` injected (`injected_faults`). It trusts no host's
//! own account: reports and answers of hosts are checked against these facts. `state` holds the state of the
//! judge, `partition_facts` the facts of one partition.
//!
//! | promise | how it is judged |
//! |---|---|
//! | one owner | an epoch is never used twice; no save under an older epoch than the newest; no user code of an older epoch runs once a newer one has begun; no two calls at a time; no call after the lease, less its margin, is over by its machine's own clock; no lease is claimed as expired too early; only an unresponsive owner's lease may be stolen |
//! | at least once, in order | each epoch resumes right after the checkpoint that was stored when it began; each call begins at the next unfinished event; events that are passed over were reported, and are gone; no checkpoint covers an unfinished event; the policy's checkpoints are written in time; in the end everything is finished |
//! | checkpoints never move back | as the store carries them out |
//! | stop means stopped | a partition given away as saved has its checkpoint at the last finished event; a stopped host owns nothing and runs nothing; a held partition gets no calls; how calls and processors end (`calls`) |
//! | balanced and then still | after the faults: everything is owned, evenly, and nothing moves |
//! | the loop never dies | every host goes on scanning; limits of calls, and reports of failures (`calls`) |
//!
//! A check is skipped where no host could know better: `exemptions` has the table of these exemptions, each with
//! its reason and its bound, and counts them. A check says which of them it allows.

mod calls;
mod draining;
mod exemptions;
mod final_state;
mod gaps;
mod hub_side;
mod injected_faults;
mod partition_facts;
mod positions_gone;
mod promise;
mod state;
mod steals;
mod stops;
mod store_side;
mod suspended_machines;
mod user_code_side;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor::{HostId, OnInvalidPosition, PartitionId, StartPosition};
use ephor_core::host_record::{HandoverAnswer, HostRecord};
use ephor_core::ids::LogId;
use ephor_core::position::SequenceNumber;
use ephor_core::time::{Clock, Monotonic};

use crate::coverage::PartitionState;
use crate::executor::{Handle, Machine};
use crate::history::History;
use crate::scenario::{HostConfig, Scenario};
pub use calls::ReportTarget;
pub use exemptions::{Check, Exemption, ExemptionCounts};
pub use final_state::{FinalState, RunningHost};
use partition_facts::LogPosition;
pub use promise::{Promise, Violation};
use state::{HostFacts, JudgeState};
pub use user_code_side::{Caller, Span};

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
    pub unsaved: u64,
    /// Checkpoints stored.
    pub saves: u64,
}

/// A processor opened or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorEvent {
    /// The time at which it opened or closed.
    pub at: Monotonic,
    /// The partition.
    pub partition: PartitionId,
    /// True if it opened, false if it closed.
    pub opens: bool,
}

/// The judge's facts about the store at one moment, restored together with a copy of the store.
#[derive(Clone, Debug)]
pub struct JudgeCopy(BTreeMap<PartitionId, (Option<HostId>, ephor::Epoch, Option<LogPosition>)>);

/// The judge of one run. Clones share one state.
#[derive(Clone)]
pub struct Judge {
    handle: Handle,
    history: History,
    initial: StartPosition,
    /// The number of partitions when the group was created. Partitions added later start at the earliest
    /// event.
    initial_partitions: u32,
    on_invalid: OnInvalidPosition,
    shared_with_other_sdks: bool,
    /// True if the store notifies hosts of changes.
    wakes: bool,
    /// The machine whose clock the store uses.
    store_clock: Machine,
    state: Arc<Mutex<JudgeState>>,
    exemptions: Arc<Mutex<ExemptionCounts>>,
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
            initial_partitions: scenario.partitions,
            on_invalid: scenario.on_invalid,
            shared_with_other_sdks: scenario.shared_with_other_sdks,
            wakes: scenario.wakes,
            store_clock,
            state: Arc::new(Mutex::new(JudgeState::new(log))),
            exemptions: Arc::default(),
        }
    }

    /// Expects no notifications from the store, as a user's own store may send none.
    pub fn without_wakes(self) -> Self {
        Self { wakes: false, ..self }
    }

    fn state(&self) -> MutexGuard<'_, JudgeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first promise that was broken.
    pub fn violation(&self) -> Option<Violation> {
        self.state().violation.clone()
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        self.state().figures.clone()
    }

    /// All openings and closings, in order.
    pub fn processor_events(&self) -> Vec<ProcessorEvent> {
        self.state().processor_events.clone()
    }

    /// The time of the last change of ownership.
    pub fn last_change(&self) -> Monotonic {
        self.state().last_change
    }

    /// Records a violation. Only the first one counts, because later ones may follow from it.
    pub fn report_violation(&self, promise: Promise, partition: Option<PartitionId>, what: String) {
        let mut state = self.state();
        if state.violation.is_none() {
            let violation = Violation { promise, partition, what };
            self.history.append(format_args!("VIOLATION of \"{violation}\""));
            state.violation = Some(violation);
        }
    }

    /// Records that a host reported something of which no check says what it means.
    pub fn does_not_know(&self, report: &impl std::fmt::Debug) {
        self.report_violation(Promise::LoopNeverDies, None, format!("the judge does not know {report:?}"));
    }

    /// The state of a partition, for the coverage table.
    pub fn state_of(&self, partition: PartitionId) -> PartitionState {
        let state = self.state();
        match state.partitions.get(&partition) {
            Some(facts) if facts.owner.is_none() => PartitionState::Unowned,
            Some(facts) if state.is_held(partition, facts) => PartitionState::Held,
            Some(facts) if facts.call.is_some() => PartitionState::InCall,
            Some(facts) if facts.open.contains(&facts.epoch) => PartitionState::Idle,
            Some(facts) if facts.last_closed == Some(facts.epoch) => PartitionState::Closing,
            Some(_) => PartitionState::Opening,
            None => PartitionState::Unowned,
        }
    }

    /// The partitions that the store assigns to the hosts of a machine, of any incarnation.
    pub fn owned_by(&self, machine: Machine) -> Vec<PartitionId> {
        let state = self.state();
        let runs_there =
            |host: &HostId| state.hosts.get(host).is_some_and(|host_facts| host_facts.machine == machine);
        let mine = state.partitions.iter().filter(|(_, facts)| facts.owner.as_ref().is_some_and(runs_there));
        mine.map(|(partition, _)| *partition).collect()
    }

    /// The machine of the host that owns a partition.
    pub fn owner_of(&self, partition: PartitionId) -> Option<Machine> {
        let state = self.state();
        let owner = state.partitions.get(&partition)?.owner.as_ref()?;
        state.hosts.get(owner).map(|host_facts| host_facts.machine)
    }

    /// Notes a host's heartbeat: its identity, its requests for partitions and its answers to requests.
    pub fn note_heartbeat(&self, record: &HostRecord, machine: Machine, config: &HostConfig) {
        let now = self.handle.now();
        let mut state = self.state();
        let host_facts = state.hosts.entry(record.id.clone()).or_insert_with(|| HostFacts {
            machine,
            config: config.clone(),
            dead: false,
            stopped: None,
            stopping: None,
            wants: vec![],
            answers: vec![],
            draining: BTreeMap::new(),
        });
        keep_first_times(&mut host_facts.wants, &record.wants, now, PartialEq::eq);
        keep_first_times(&mut host_facts.answers, &record.answers, now, same_answer);
        self.note_draining(&mut state, record);
    }

    /// Notes that an operator holds a partition on a machine, or lets it go.
    pub fn note_hold(&self, partition: PartitionId, machine: Machine, held: bool) {
        let mut state = self.state();
        if held {
            state.held.insert((partition, machine));
        } else {
            state.held.remove(&(partition, machine));
        }
    }

    /// All partitions that an operator holds, and on which machine.
    pub fn held(&self) -> Vec<(PartitionId, Machine)> {
        self.state().held.iter().copied().collect()
    }

    /// Notes that the process on this machine is gone. An operator's holds in it end with it.
    pub fn note_process_gone(&self, machine: Machine) {
        let mut state = self.state();
        state.held.retain(|(_, on)| *on != machine);
        state
            .hosts
            .values_mut()
            .filter(|host_facts| host_facts.machine == machine)
            .for_each(|host_facts| host_facts.dead = true);
    }

    /// The newest epoch of a partition.
    pub fn epoch_of(&self, partition: PartitionId) -> ephor::Epoch {
        self.state().partitions.get(&partition).map(|facts| facts.epoch).unwrap_or_default()
    }

    /// The oldest event of a partition that is kept.
    pub fn oldest_kept(&self, partition: PartitionId) -> SequenceNumber {
        self.state().partitions.get(&partition).map(|facts| facts.oldest_kept).unwrap_or_default()
    }

    /// The first event of a partition from which on none is missing.
    pub fn complete_from(&self, partition: PartitionId) -> SequenceNumber {
        let state = self.state();
        let Some(facts) = state.partitions.get(&partition) else { return SequenceNumber(0) };
        facts.passed_over.iter().map(|range| range.end).fold(facts.oldest_kept, SequenceNumber::max)
    }

    /// Events of a partition before this one may be missing: an operator's seek passed over them, or reading
    /// began here.
    pub fn excused_before(&self, partition: PartitionId) -> SequenceNumber {
        self.state().partitions.get(&partition).map(|facts| facts.excused_before).unwrap_or_default()
    }

    /// The number of times that the hub was deleted and created again.
    pub fn log_generation(&self) -> usize {
        self.state().log_generation()
    }

    /// A copy of the judge's facts about the store.
    pub fn copy(&self) -> JudgeCopy {
        let state = self.state();
        let partitions = state.partitions.iter();
        JudgeCopy(
            partitions
                .map(|(id, facts)| (*id, (facts.owner.clone(), facts.epoch, facts.stored_position)))
                .collect(),
        )
    }

    /// Notes that the store was restored from a copy taken together with this one.
    pub fn note_store_restored(&self, copy: &JudgeCopy) {
        let now = self.handle.now();
        let mut state = self.state();
        state.restored_at = Some(now);
        for machine_facts in state.machines.values_mut() {
            let until = machine_facts.time_fault_until;
            machine_facts.slept_through_restore_until = (until > now).then_some(until);
        }
        let present = state.log_generation();
        state.last_change = now;
        for (partition, facts) in &mut state.partitions {
            let (owner, epoch, position) = copy.0.get(partition).cloned().unwrap_or_default();
            (facts.owner, facts.epoch, facts.begun, facts.stored_position) = (owner, epoch, epoch, position);
            facts.undo_seeks_after(epoch);
            if let Some(next) =
                position.filter(|position| position.log_generation == present).map(|it| it.next)
            {
                facts.excuse_before(next);
            }
        }
    }

    /// The present reading of a machine's own monotonic clock.
    fn own_time(&self, machine: Machine) -> Monotonic {
        self.handle.clock(machine).now()
    }
}

/// Keeps the time at which each of these requests or answers first appeared.
fn keep_first_times<T: Clone>(
    noted: &mut Vec<(T, Monotonic)>,
    said: &[T],
    now: Monotonic,
    same: fn(&T, &T) -> bool,
) {
    noted.retain(|(old, _)| said.iter().any(|new| same(old, new)));
    for new in said {
        match noted.iter_mut().find(|(old, _)| same(old, new)) {
            Some((old, _)) => old.clone_from(new),
            None => noted.push((new.clone(), now)),
        }
    }
}

/// True for the same kind of answer to the same host about the same partition, even if its deadline differs.
fn same_answer(one: &HandoverAnswer, other: &HandoverAnswer) -> bool {
    (one.partition, &one.asker) == (other.partition, &other.asker)
        && std::mem::discriminant(&one.reply) == std::mem::discriminant(&other.reply)
}
