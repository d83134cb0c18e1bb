//! The judge: asserts the promises after every step.
//!
//! It hears of everything from two sides: of what the store carried out, and
//! of what the user's code was called with. It believes neither the host nor
//! its words.
//!
//! | promise | how it is judged |
//! |---|---|
//! | one owner | an epoch is never used twice; no save under an older epoch than the newest; no user code of an older epoch runs once a newer one has begun; no two calls at a time; no call after the lease, less its margin, is over |
//! | at least once, in order | each epoch goes on right behind the checkpoint that stood when it began; each call at the next unfinished event; in the end everything is finished |
//! | checkpoints never move back | as the store carries them out |
//! | stop means stopped | what was given away as settled has its checkpoint at the last finished event |
//! | balanced and then still | after the trouble: everything owned, evenly, and nothing moves |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::memory::StoreEvent;
use ephor::{Epoch, HostId, PartitionId, SequenceNumber};
use ephor_core::history::ChangeReason;
use ephor_core::time::Monotonic;

use crate::coverage::PartitionState;
use crate::executor::{Handle, Machine};
use crate::history::History;

/// What the judge knows of a partition.
#[derive(Debug, Default)]
struct Case {
    owner: Option<HostId>,
    /// The newest epoch that the store gave out.
    epoch: Epoch,
    /// The newest epoch whose user code has run.
    begun: Epoch,
    /// When the store last granted each epoch the lease's full time.
    granted: BTreeMap<Epoch, Monotonic>,
    /// The last finished event, by the stored checkpoint.
    saved: Option<SequenceNumber>,
    /// Where each epoch goes on: the next event that it has not finished.
    next: BTreeMap<Epoch, SequenceNumber>,
    /// The call under way: on which machine, in which epoch.
    call: Option<(Machine, Epoch)>,
    /// Epochs whose processor is open.
    open: BTreeSet<Epoch>,
    /// Events finished at least once, or skipped by policy.
    done: BTreeSet<SequenceNumber>,
}

/// Figures of a run.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
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

struct Docket {
    turns: Vec<Turn>,
    cases: BTreeMap<PartitionId, Case>,
    violation: Option<String>,
    figures: Figures,
    last_change: Monotonic,
}

/// The judge of one run. Clones sit on the same bench.
#[derive(Clone)]
pub struct Judge {
    handle: Handle,
    history: History,
    /// A lease's time less the owner's margin: nothing may start later than this after a grant.
    usable: Duration,
    docket: Arc<Mutex<Docket>>,
}

impl Judge {
    /// A judge that knows nothing yet.
    pub fn new(handle: &Handle, history: &History, usable: Duration) -> Self {
        let docket = Docket {
            turns: vec![],
            cases: BTreeMap::new(),
            violation: None,
            figures: Figures::default(),
            last_change: Monotonic(0),
        };
        Self {
            handle: handle.clone(),
            history: history.clone(),
            usable,
            docket: Arc::new(Mutex::new(docket)),
        }
    }

    fn docket(&self) -> MutexGuard<'_, Docket> {
        self.docket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first promise that was broken.
    pub fn violation(&self) -> Option<String> {
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
    pub fn object(&self, partition: Option<PartitionId>, what: String) {
        let mut docket = self.docket();
        if docket.violation.is_none() {
            let place = partition.map_or(String::new(), |partition| format!(" on {partition:?}"));
            self.history.tell(format_args!("VIOLATION{place}: {what}"));
            docket.violation = Some(format!("{what}{place}"));
        }
    }

    /// In what state a partition is, for the table of coverage.
    pub fn state_of(&self, partition: PartitionId) -> PartitionState {
        let docket = self.docket();
        match docket.cases.get(&partition) {
            Some(case) if case.call.is_some() => PartitionState::InCall,
            Some(case) if case.owner.is_none() => PartitionState::Unowned,
            Some(case) if case.open.contains(&case.epoch) => PartitionState::Idle,
            Some(_) => PartitionState::Opening,
            None => PartitionState::Unowned,
        }
    }

    /// The partitions that the store says a host owns, whatever its incarnation.
    pub fn owned_by(&self, name: &str) -> Vec<PartitionId> {
        let docket = self.docket();
        let mine = docket
            .cases
            .iter()
            .filter(|(_, case)| case.owner.as_ref().is_some_and(|owner| owner.name.as_str() == name));
        mine.map(|(partition, _)| *partition).collect()
    }

    /// The store carried out a step.
    pub fn store_did(&self, event: &StoreEvent) {
        let now = self.handle.now();
        match event {
            StoreEvent::Renewed { token } => {
                let mut docket = self.docket();
                let case = docket.cases.entry(token.partition).or_default();
                case.granted.insert(token.epoch, now);
            }
            StoreEvent::Saved { token, checkpoint } => {
                self.history.tell(format_args!(
                    "{} saves {:?} at {:?} in {:?}",
                    token.owner.name, token.partition, checkpoint.position, token.epoch
                ));
                let (newest, saved) = {
                    let mut docket = self.docket();
                    docket.figures.saves += 1;
                    let case = docket.cases.entry(token.partition).or_default();
                    (case.epoch, std::mem::replace(&mut case.saved, checkpoint.position.finished()))
                };
                if token.epoch < newest {
                    let what = format!("a save in {:?} was accepted after {newest:?} began", token.epoch);
                    self.object(Some(token.partition), what);
                }
                if checkpoint.position.finished() < saved {
                    let what =
                        format!("the checkpoint moved back from {saved:?} to {:?}", checkpoint.position);
                    self.object(Some(token.partition), what);
                }
            }
            StoreEvent::Changed { change, settled } => self.ownership_changed(change, *settled, now),
        }
    }

    fn ownership_changed(
        &self,
        change: &ephor_core::history::OwnershipChange,
        settled: bool,
        now: Monotonic,
    ) {
        let name = |host: &Option<HostId>| host.as_ref().map_or("nobody".into(), ToString::to_string);
        let partition = change.partition;
        self.history.tell(format_args!(
            "{partition:?} goes from {} to {} in {:?}: {}{}",
            name(&change.from),
            name(&change.to),
            change.epoch,
            change.reason,
            if settled { ", settled" } else { "" }
        ));
        let mut objection = None;
        {
            let mut docket = self.docket();
            docket.last_change = now;
            *docket.figures.changes.entry(change.reason.to_string()).or_default() += 1;
            let released = matches!(change.reason, ChangeReason::Released(_));
            let given = released || change.reason == ChangeReason::HandedOver;
            docket.figures.unsettled += u64::from(given && !settled);
            let case = docket.cases.entry(partition).or_default();
            if given && settled {
                let finished = case.next.get(&case.epoch).copied().unwrap_or_default();
                let saved = case.saved.map_or(SequenceNumber(0), SequenceNumber::next);
                if saved < finished {
                    objection = Some(format!(
                        "given away as settled, finished up to {finished:?} but saved only up to {saved:?}"
                    ));
                }
            }
            if !released {
                if change.epoch <= case.epoch {
                    objection = Some(format!("the epoch went from {:?} to {:?}", case.epoch, change.epoch));
                }
                case.epoch = case.epoch.max(change.epoch);
                let start = case.saved.map_or(SequenceNumber(0), SequenceNumber::next);
                case.next.insert(change.epoch, start);
                case.granted.insert(change.epoch, now);
            }
            case.owner = change.to.clone();
        }
        if let Some(what) = objection {
            self.object(Some(partition), what);
        }
    }

    /// A processor is opened.
    pub fn opened(&self, partition: PartitionId, epoch: Epoch, who: &str) {
        self.history.tell(format_args!("{who} opens {partition:?} in {epoch:?}"));
        let mut docket = self.docket();
        docket.turns.push(Turn { at: self.handle.now(), partition, opens: true });
        docket.cases.entry(partition).or_default().open.insert(epoch);
        drop(docket);
        self.runs(partition, epoch);
    }

    /// A processor is closed.
    pub fn closed(&self, partition: PartitionId, epoch: Epoch, who: &str, reason: &str) {
        self.history.tell(format_args!("{who} closes {partition:?} in {epoch:?}: {reason}"));
        let mut docket = self.docket();
        docket.turns.push(Turn { at: self.handle.now(), partition, opens: false });
        docket.cases.entry(partition).or_default().open.remove(&epoch);
    }

    /// A call begins, with the events from `first` to `last`.
    pub fn begins(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        machine: Machine,
        events: Option<(SequenceNumber, SequenceNumber)>,
    ) {
        let now = self.handle.now();
        let mut objection = None;
        {
            let mut docket = self.docket();
            let case = docket.cases.entry(partition).or_default();
            if let Some((other, of)) = case.call.filter(|(other, _)| !self.handle.is_paused(*other)) {
                let other = self.handle.name_of(other);
                objection = Some(format!("a call in {epoch:?} while {other} is in a call in {of:?}"));
            }
            let granted = case.granted.get(&epoch).copied().unwrap_or_default();
            let age = now.since(granted);
            if age > self.usable {
                objection = Some(format!("a call began {age:?} after the lease was last granted"));
            }
            let next = case.next.get(&epoch).copied();
            if let Some((first, _)) = events.filter(|(first, _)| Some(*first) != next) {
                objection = Some(format!("{epoch:?} was called with {first:?}, expected {next:?}"));
            }
            case.call = Some((machine, epoch));
        }
        if let Some(what) = objection {
            self.object(Some(partition), what);
        }
        self.runs(partition, epoch);
    }

    /// User code of this epoch is running at this moment.
    pub fn runs(&self, partition: PartitionId, epoch: Epoch) {
        let begun = {
            let mut docket = self.docket();
            let case = docket.cases.entry(partition).or_default();
            case.begun = case.begun.max(epoch);
            case.begun
        };
        if epoch < begun {
            self.object(Some(partition), format!("code of {epoch:?} runs after {begun:?} has begun"));
        }
    }

    /// A call returned `Ok`.
    pub fn finished(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        first: SequenceNumber,
        last: SequenceNumber,
    ) {
        let mut docket = self.docket();
        let (mut fresh, total) = (0, last.0 - first.0 + 1);
        let case = docket.cases.entry(partition).or_default();
        for sequence in first.0..=last.0 {
            fresh += u64::from(case.done.insert(SequenceNumber(sequence)));
        }
        case.next.insert(epoch, last.next());
        docket.figures.finished += total;
        docket.figures.repeated += total - fresh;
    }

    /// The processor is about to checkpoint up to this event, and so says that it is done.
    pub fn vouches(&self, partition: PartitionId, first: SequenceNumber, last: SequenceNumber) {
        let mut docket = self.docket();
        let case = docket.cases.entry(partition).or_default();
        case.done.extend((first.0..=last.0).map(SequenceNumber));
    }

    /// The failure policy gave up on an event.
    pub fn skipped(&self, partition: PartitionId, epoch: Epoch, sequence: SequenceNumber) {
        self.history.tell(format_args!("{partition:?} skips {sequence:?} in {epoch:?}"));
        let mut docket = self.docket();
        docket.figures.skipped += 1;
        let case = docket.cases.entry(partition).or_default();
        case.done.insert(sequence);
        case.next.insert(epoch, sequence.next());
    }

    /// A call is over, or was dropped.
    pub fn ended(&self, partition: PartitionId, epoch: Epoch, machine: Machine) {
        let mut docket = self.docket();
        let case = docket.cases.entry(partition).or_default();
        if case.call == Some((machine, epoch)) {
            case.call = None;
        }
    }

    /// Sums up: everything sent is done, and nothing is owned by nobody.
    pub fn closes_the_case(&self, ends: &[(PartitionId, Option<SequenceNumber>)], alive: &[String]) {
        let mut objections = vec![];
        {
            let docket = self.docket();
            let empty = Case::default();
            let mut owned: BTreeMap<&str, usize> = alive.iter().map(|name| (name.as_str(), 0)).collect();
            for (partition, last) in ends {
                let case = docket.cases.get(partition).unwrap_or(&empty);
                let sent = last.map_or(0, |last| last.0 + 1);
                let missing = (0..sent).find(|n| !case.done.contains(&SequenceNumber(*n)));
                if let Some(missing) = missing {
                    let what = format!("event {missing} of {sent} was never finished");
                    objections.push((Some(*partition), what));
                }
                match case.owner.as_ref().and_then(|owner| owned.get_mut(owner.name.as_str())) {
                    Some(count) => *count += 1,
                    None => objections
                        .push((Some(*partition), format!("owned by {:?}, which is not alive", case.owner))),
                }
            }
            let (least, most) = (ends.len() / alive.len(), ends.len().div_ceil(alive.len()));
            if !owned.values().all(|count| (least..=most).contains(count)) {
                objections.push((None, format!("the load is not even: {owned:?}")));
            }
        }
        for (partition, what) in objections {
            self.object(partition, what);
        }
    }
}
