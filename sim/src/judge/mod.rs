//! The judge: asserts the promises after every step.
//!
//! It hears of everything from four sides: of what the store carried out
//! (`store_side`), of what the user's code was called with (`code_side`), of
//! what hosts and the hub say to each other (`hub_side`), and of what the
//! director of the play did to whom. It believes neither the host nor its words.
//!
//! | promise | how it is judged |
//! |---|---|
//! | one owner | an epoch is never used twice; no save under an older epoch than the newest; no user code of an older epoch runs once a newer one has begun; no two calls at a time; no call after the lease, less its margin, is over by its machine's own clock; nobody is declared expired who is not; only silence permits theft |
//! | at least once, in order | each epoch goes on right behind the checkpoint that stood when it began; each call at the next unfinished event; what is passed over was said, and is gone; no checkpoint covers what nobody finished; the policy's checkpoints are written in time; in the end everything is finished |
//! | checkpoints never move back | as the store carries them out |
//! | stop means stopped | what was given away as settled has its checkpoint at the last finished event; who has stopped owns nothing and runs nothing; what is held is not delivered; how calls and processors end (`calls`) |
//! | balanced and then still | after the trouble: everything owned, evenly, and nothing moves |
//! | the loop never dies | every host goes on scanning; limits of calls, and who is told of failures (`calls`) |

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
    /// When.
    pub at: Monotonic,
    /// Where.
    pub partition: PartitionId,
    /// Whether it opened; it closed otherwise.
    pub opens: bool,
}

/// What the store said at one moment, to go back to.
#[derive(Clone, Debug)]
pub struct JudgeCopy(BTreeMap<PartitionId, (Option<HostId>, ephor::Epoch, Option<Standing>)>);

/// The judge of one run. Clones sit on the same bench.
#[derive(Clone)]
pub struct Judge {
    handle: Handle,
    history: History,
    initial: StartPosition,
    /// How many partitions there were when the group began: others start at the earliest.
    founded: u32,
    on_invalid: OnInvalidPosition,
    epochless: bool,
    /// The store can wake its users.
    wakes: bool,
    /// Whose clock the store goes by.
    store_clock: Machine,
    docket: Arc<Mutex<Docket>>,
}

impl Judge {
    /// A judge that knows nothing yet but what the hosts were told.
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

    /// The store may be one that wakes nobody.
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

    /// When ownership changed last.
    pub fn last_change(&self) -> Monotonic {
        self.docket().last_change
    }

    /// Declares a promise broken. Only the first counts: what follows follows from it.
    pub fn object(&self, promise: Promise, partition: Option<PartitionId>, what: String) {
        let mut docket = self.docket();
        if docket.violation.is_none() {
            let violation = Violation { promise, partition, what };
            self.history.tell(format_args!("VIOLATION of \"{violation}\""));
            docket.violation = Some(violation);
        }
    }

    /// In what state a partition is, for the table of coverage.
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

    /// The partitions that the store says a machine's hosts own, whatever their incarnation.
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

    /// A host says who it is with its first heartbeat, and what it asks and answers with each.
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

    /// Something happens to a machine, and goes on for so long: what is due may come late.
    pub fn disturbed(&self, machine: Machine, lasting: Duration) {
        let until = self.handle.now() + lasting;
        let mut docket = self.docket();
        docket.machines.entry(machine).or_default().is_disturbed(until);
    }

    /// A machine stands still for so long, or its clock jumps.
    pub fn stands(&self, machine: Machine, lasting: Duration) {
        let until = self.handle.now() + lasting;
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.stood_until = file.stood_until.max(until);
    }

    /// The store's clock was set.
    pub fn store_clock_was_set(&self) {
        let now = self.handle.now();
        self.docket().store_set_at = Some(now);
    }

    /// A machine's way to the store becomes bad, or good again.
    pub fn store_is_bad(&self, machine: Machine, bad: bool) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        // One kind of trouble that follows another makes it no younger.
        if !(bad && file.store_is_bad) {
            (file.store_is_bad, file.store_changed_at) = (bad, now);
        }
        file.is_disturbed(now);
    }

    /// The store becomes bad for all, or good again.
    pub fn store_is_bad_for_all(&self, bad: bool) {
        let now = self.handle.now();
        let mut docket = self.docket();
        if !(bad && docket.common.0) {
            docket.common = (bad, now);
        }
    }

    /// A machine's clock has stood still until now, while time passed.
    pub fn clock_stood(&self, machine: Machine) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.clock_stood_until = Some(now);
        file.is_disturbed(now);
    }

    /// A person holds a partition on a machine, or lets it go.
    pub fn holds(&self, partition: PartitionId, machine: Machine, held: bool) {
        let mut docket = self.docket();
        if held {
            docket.held.insert((partition, machine));
        } else {
            docket.held.remove(&(partition, machine));
        }
    }

    /// All partitions that a person holds, and where.
    pub fn held(&self) -> Vec<(PartitionId, Machine)> {
        self.docket().held.iter().copied().collect()
    }

    /// The process on this machine is gone, and what a person held in it is not held any more.
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

    /// From this event on nothing of a partition is missing.
    pub fn whole_from(&self, partition: PartitionId) -> SequenceNumber {
        let docket = self.docket();
        let Some(case) = docket.cases.get(&partition) else { return SequenceNumber(0) };
        case.passed_over.iter().map(|range| range.end).fold(case.kept, SequenceNumber::max)
    }

    /// Everything of a partition before this event may be missing, by a person's will or because reading began there.
    pub fn excused_before(&self, partition: PartitionId) -> SequenceNumber {
        self.docket().cases.get(&partition).map(|case| case.excused).unwrap_or_default()
    }

    /// How often the hub was made anew.
    pub fn life(&self) -> usize {
        self.docket().life()
    }

    /// The hub was made anew, as this log: what was in it is gone.
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

    /// The hub lost the events of these numbers, or will never give the numbers out.
    pub fn passed_over(&self, partition: PartitionId, numbers: Range<SequenceNumber>) {
        self.docket().cases.entry(partition).or_default().passed_over.push(numbers);
    }

    /// Retention removed all events before this one.
    pub fn removed_before(&self, partition: PartitionId, kept: SequenceNumber) {
        let mut docket = self.docket();
        let case = docket.cases.entry(partition).or_default();
        case.kept = case.kept.max(kept);
    }

    /// What the store holds now, by the judge's files.
    pub fn copy(&self) -> JudgeCopy {
        let docket = self.docket();
        let cases = docket.cases.iter();
        JudgeCopy(cases.map(|(id, case)| (*id, (case.owner.clone(), case.epoch, case.standing))).collect())
    }

    /// The store was restored from a copy that was taken together with this one.
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
            // A seek that the copy does not know of has never been.
            if let Some(next) = standing.filter(|standing| standing.life == present).map(|it| it.next) {
                case.excuse_before(next);
            }
        }
    }

    /// How far a machine's own clock has come.
    fn reading(&self, machine: Machine) -> Monotonic {
        self.handle.clock(machine).now()
    }
}

/// Notes since when each of these has been said.
fn note<T: Clone>(noted: &mut Vec<(T, Monotonic)>, said: &[T], now: Monotonic, same: fn(&T, &T) -> bool) {
    noted.retain(|(old, _)| said.iter().any(|new| same(old, new)));
    for new in said {
        match noted.iter_mut().find(|(old, _)| same(old, new)) {
            Some((old, _)) => old.clone_from(new),
            None => noted.push((new.clone(), now)),
        }
    }
}

/// An answer stays the same, also if the time that it names is counted anew.
fn same_answer(one: &Answer, other: &Answer) -> bool {
    (one.partition, &one.asker) == (other.partition, &other.asker)
        && std::mem::discriminant(&one.reply) == std::mem::discriminant(&other.reply)
}
