//! Checks the steps that the store carried out: changes of ownership, renewals and checkpoints.

use std::time::Duration;

use ephor::memory::StoreEvent;
use ephor::{Epoch, HostId, PartitionId, SequenceNumber, StartPosition};
use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::history::{ChangeReason, OwnershipChange};
use ephor_core::lease::{ClaimCause, LeaseToken, ReleaseCause};

use super::case::{Case, Grant, Reading, Standing};
use super::hub_side::{beneath_the_stranger, far_from_its_own};
use super::{Docket, Judge, Promise};

impl Judge {
    /// Checks a step that the store carried out.
    pub fn store_did(&self, event: &StoreEvent) {
        match event {
            StoreEvent::Renewed { token } => {
                let LeaseToken { partition, owner, epoch } = token;
                self.history.tell(format_args!("{} renews {partition:?} in {epoch:?}", owner.name));
                let grant = self.grant(&token.owner);
                let mut docket = self.docket();
                docket.cases.entry(token.partition).or_default().granted.insert(token.epoch, grant);
                let objection = self.renewed_while_stuck(&docket, token);
                drop(docket);
                if let Some((promise, what)) = objection {
                    self.object(promise, Some(token.partition), what);
                }
            }
            StoreEvent::Saved { token, checkpoint } => self.saved(token, checkpoint),
            StoreEvent::Changed { change, settled } => self.ownership_changed(change, *settled),
        }
    }

    /// Notes that an operator is about to move a partition's position.
    pub fn expects_seek(&self, partition: PartitionId, next: SequenceNumber) {
        self.docket().cases.entry(partition).or_default().sought = Some(next);
    }

    /// A grant of a lease from now on.
    fn grant(&self, owner: &HostId) -> Grant {
        let machine = self.docket().seats.get(owner).map(|seat| seat.machine);
        let reading = machine.map_or(self.handle.now(), |it| self.reading(it));
        Grant { at: self.handle.now(), reading, machine }
    }

    fn saved(&self, token: &LeaseToken, checkpoint: &Checkpoint) {
        let partition = token.partition;
        self.history.tell(format_args!(
            "{} saves {partition:?} at {:?} in {:?}",
            token.owner.name, checkpoint.position, token.epoch
        ));
        let mut objections = vec![];
        {
            let mut docket = self.docket();
            docket.figures.saves += 1;
            let seat = docket.seats.get(&token.owner).map(|seat| seat.machine);
            let well = seat.is_some_and(|machine| self.is_well(&docket, machine));
            let life = docket.life_of(checkpoint);
            let present = docket.life();
            let case = docket.cases.entry(partition).or_default();
            let next = next_of(&checkpoint.position, case);
            if token.epoch != case.epoch {
                let what = format!("a save in {:?} was accepted after {:?} began", token.epoch, case.epoch);
                objections.push((Promise::OneOwner, what));
            }
            if let Some(old) = case.standing.filter(|old| (life, next) < (old.life, old.next)) {
                let what = format!("the checkpoint moved back from {:?} to {next:?}", old.next);
                objections.push((Promise::CheckpointsNeverMoveBack, what));
            }
            let founded = partition.0 < self.founded;
            let begins = case.standing.is_none() && self.initial == StartPosition::Latest && founded;
            let goes_on = case.standing.is_none_or(|old| (life, next) > (old.life, old.next));
            let close_failed = case.close_failed == Some(token.epoch);
            let reading = case.readings.entry(token.epoch).or_default();
            reading.unsaved = None;
            let owed = reading.owed.take_if(|owed| owed.next <= next);
            if let Some(later) = &mut reading.owed {
                // A checkpoint that was asked for meanwhile is due next.
                later.since = self.handle.now();
            }
            if close_failed && well && owed.is_none() && goes_on {
                let what =
                    format!("a checkpoint up to {next:?} was written although the processor did not close");
                objections.push((Promise::AtLeastOnceInOrder, what));
            }
            // The checkpoints of other SDKs cannot express a start position: there, a start is stored as if
            // it had been reached. A save of events finished before the move may still be in flight; it is
            // not ahead of them.
            let ahead = reading.next.is_none_or(|reads| reads.life != life || next > reads.next);
            let in_their_words = self.epochless && ((reading.moving && ahead) || begins);
            // A retry of the same save may land late.
            let repeated = case.standing == Some(Standing { life, next });
            if (matches!(checkpoint.position, Position::Start(_)) && !repeated) || in_their_words {
                reading.next = Some(Standing { life, next });
                if std::mem::take(&mut reading.moving) || begins {
                    case.excuse_before(next);
                }
            }
            if life == present {
                let from =
                    case.standing.filter(|old| old.life == life).map_or(SequenceNumber(0), |old| old.next);
                let from = from.max(case.kept);
                let owed = |event: &SequenceNumber| !case.done.contains(event) && !case.is_gone(*event);
                let missing = (from.0..next.0).map(SequenceNumber).find(owed);
                if let Some(missing) = missing {
                    let what =
                        format!("a checkpoint up to {next:?} covers {missing:?}, which nobody finished");
                    objections.push((Promise::AtLeastOnceInOrder, what));
                }
            }
            case.standing = Some(Standing { life, next });
        }
        for (promise, what) in objections {
            self.object(promise, Some(partition), what);
        }
    }

    fn ownership_changed(&self, change: &OwnershipChange, settled: bool) {
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
        let grant = change.to.as_ref().map(|owner| self.grant(owner));
        let mut objections = vec![];
        {
            let mut docket = self.docket();
            docket.last_change = self.handle.now();
            *docket.figures.changes.entry(reason_word(&change.reason)).or_default() += 1;
            let released = matches!(change.reason, ChangeReason::Released(_));
            let given = released || change.reason == ChangeReason::HandedOver;
            docket.figures.unsettled += u64::from(given && !settled);
            if change.reason == ChangeReason::Claimed(ClaimCause::Expired) {
                objections.extend(self.taken_too_early(&docket, change));
                objections.extend(self.expired_in_good_health(&docket, change));
            }
            if given && !settled {
                objections.extend(self.unsettled_in_good_health(&docket, change));
            }
            objections.extend(far_from_its_own(change));
            if change.reason == ChangeReason::Claimed(ClaimCause::Foreign) {
                objections.extend(beneath_the_stranger(&docket, change));
            }
            if change.reason == ChangeReason::Claimed(ClaimCause::Silent) {
                objections.extend(self.robbed_in_good_health(&docket, change));
                objections.extend(self.robbed_against_its_word(&docket, change));
            }
            let present = docket.life();
            let amnesty = docket.in_amnesty(self.handle.now());
            let case = docket.cases.entry(partition).or_default();
            if given && settled && !amnesty {
                objections.extend(not_settled(case));
            }
            // A partition that was released because nobody served it may be settled all the same.
            let told = given && change.reason != ChangeReason::Released(ReleaseCause::Unserved);
            case.given = change.from.clone().filter(|_| told).map(|from| (from, settled));
            if !released {
                if change.epoch <= case.epoch {
                    let what = format!("the epoch went from {:?} to {:?}", case.epoch, change.epoch);
                    objections.push((Promise::OneOwner, what));
                }
                case.epoch = case.epoch.max(change.epoch);
                if matches!(change.reason, ChangeReason::Sought { .. }) {
                    carry_out_seek(case, present, change.epoch);
                }
                let next = case.standing;
                case.readings.insert(change.epoch, Reading { next, ..Reading::default() });
                case.granted.insert(change.epoch, grant.unwrap_or_default());
            }
            case.owner = change.to.clone();
        }
        for (promise, what) in objections {
            self.object(promise, Some(partition), what);
        }
    }

    /// Returns a violation if a lease is claimed as expired before it is over.
    ///
    /// Half a lease is enough if the store's clock was set after the last renewal. Exempt:
    /// - the first 60 s after the store was restored;
    /// - a taker that a fault affected at any time since the store was restored, without a bound in time: the
    ///   restored store counts versions from its copy on, so that a new version may look like one that the
    ///   taker knows;
    /// - a taker whose time did not pass normally since the last renewal (`Docket::in_time`), if the store's
    ///   clock was set since then, too.
    fn taken_too_early(&self, docket: &Docket, change: &OwnershipChange) -> Option<(Promise, String)> {
        let now = self.handle.now();
        let case = docket.cases.get(&change.partition)?;
        let lease = docket.seats.get(change.from.as_ref()?)?.style.lease;
        let age = now.since(case.granted.get(&case.epoch)?.at);
        let granted = case.granted.get(&case.epoch)?.at;
        // A host that began to watch after the store's clock was set waits for half a lease without a
        // renewal.
        let half = docket.store_set_at.is_some_and(|set| set >= granted);
        let lasts = if half { lease / 2 } else { lease };
        // Clocks may run two percent fast, and the store's clock counts whole milliseconds.
        let least = lasts.mul_f64(0.95).saturating_sub(Duration::from_millis(100));
        // A restored store assigns its version numbers again: a taker that read nothing meanwhile may take a
        // new version for the one that it knows.
        let taker = docket.seats.get(change.to.as_ref()?)?.machine;
        let unaware = docket.restored_at.is_some_and(|at| !docket.undisturbed(taker, at));
        // Both clocks that it could compare jumped since the renewal: no host could know better.
        let both = half && !docket.in_time(taker, granted);
        let excused = docket.in_amnesty(now) || unaware || both;
        (age < least && !excused).then(|| {
            let what = format!("taken as expired {age:?} after it was granted, and it lasts {lease:?}");
            (Promise::OneOwner, what)
        })
    }

    /// Returns a violation if a healthy host gives a partition away with finished events that are not saved,
    /// although the policy asks for a checkpoint on close, or with a deferred checkpoint that is not written.
    ///
    /// Exempt: a machine that is not healthy (`Judge::is_well`), and a partition that nobody served. A
    /// processor that failed to close is exempt from the checkpoint on close.
    fn unsettled_in_good_health(
        &self,
        docket: &Docket,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        let seat = docket.seats.get(change.from.as_ref()?)?;
        let case = docket.cases.get(&change.partition)?;
        let served = change.reason != ChangeReason::Released(ReleaseCause::Unserved);
        let asked = seat.style.checkpoint.on_close && case.close_failed != Some(case.epoch);
        let reading = case.readings.get(&case.epoch);
        let unsaved = reading.is_some_and(|reading| reading.unsaved.is_some());
        let owed = reading.is_some_and(|reading| reading.owed.is_some());
        let well = self.is_well(docket, seat.machine);
        (served && (asked && unsaved || owed) && well).then(|| {
            let what = "given away with something finished and not saved, although nothing was in the way"
                .to_owned();
            (Promise::StopMeansStopped, what)
        })
    }
}

impl Docket {
    /// The generation of the log that a checkpoint belongs to.
    fn life_of(&self, checkpoint: &Checkpoint) -> usize {
        let named = checkpoint.log.as_ref();
        self.logs.iter().rposition(|log| named.is_none() || log.as_ref() == named).unwrap_or_default()
    }
}

/// The next event to read after this position.
pub(super) fn next_of(position: &Position, case: &Case) -> SequenceNumber {
    match position.start() {
        StartPosition::Sequence { number, inclusive } => {
            if inclusive {
                number
            } else {
                number.next()
            }
        }
        _ => case.kept,
    }
}

/// Returns a violation if a partition was given away as settled with finished events that are not saved.
fn not_settled(case: &Case) -> Option<(Promise, String)> {
    let finished = case.readings.get(&case.epoch)?.next?;
    let saved =
        case.standing.filter(|saved| saved.life == finished.life).map_or(SequenceNumber(0), |it| it.next);
    let began = case.readings.get(&case.epoch)?.unsaved.is_some();
    (began && saved < finished.next).then(|| {
        let (finished, what) = (finished.next, "given away as settled");
        (
            Promise::StopMeansStopped,
            format!("{what}, finished up to {finished:?} but saved only up to {saved:?}"),
        )
    })
}

/// Carries out an operator's seek: events after the new position must be processed again.
fn carry_out_seek(case: &mut Case, life: usize, epoch: Epoch) {
    let Some(next) = case.sought.take() else { return };
    case.standing = Some(Standing { life, next });
    case.sought_in = epoch;
    case.done.split_off(&next);
    case.excuse_before(next);
}

/// The name of a reason in the table of changes.
fn reason_word(reason: &ChangeReason) -> String {
    match reason {
        ChangeReason::Sought { .. } => "sought".into(),
        other => other.to_string(),
    }
}
