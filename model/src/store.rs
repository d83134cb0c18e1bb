//! The store of the model: executes requests by the rules of `ephor_core::record`.

use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::epoch::Epoch;
use ephor_core::ids::HostId;
use ephor_core::lease::{
    ClaimCause, ClaimRequest, LeaseToken, LeaseVersion, ReleaseCause, ReleaseRequest, TransferRequest,
};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::record::{self, Change, CheckpointRecord, LeaseRecord, SaveVerdict};
use ephor_core::store::SaveRequest;

use crate::bounds::{LEASE, STORE_NOW, in_ticks, ticks};
use crate::protocol::Protocol;
use crate::state::{Call, ClaimReason, Disposition, EachPartition, Lease, Message, State, Violation};
use crate::step::{Kind, Step};

/// The version of a current lease.
const CURRENT: u64 = 101;
/// The version of an outdated lease.
const OUTDATED: u64 = 100;

/// Why the epochs are never used up.
const EPOCHS: &str = "owners change a bounded number of times";

impl Protocol {
    fn host_id(&self, host: u8) -> HostId {
        self.ids[usize::from(host)].clone()
    }

    fn host_index(&self, id: &HostId) -> Option<u8> {
        self.ids.iter().position(|other| other == id).and_then(|index| u8::try_from(index).ok())
    }

    fn token(&self, host: u8, partition: usize, epoch: u8) -> LeaseToken {
        LeaseToken { partition: Step::id(partition), owner: self.host_id(host), epoch: stored(epoch) }
    }

    /// Returns the lease of a partition as the record of the real code.
    pub fn lease_record(&self, state: &State, partition: usize) -> Option<LeaseRecord> {
        let lease = state.partitions[partition].lease?;
        Some(LeaseRecord {
            partition: Step::id(partition),
            owner: lease.owner.map(|host| self.host_id(host)),
            epoch: stored(lease.epoch),
            duration: lease.owner.map(|_| ticks(LEASE)),
            acquired_at: STORE_NOW - ticks(lease.age),
            renewed_at: STORE_NOW - ticks(lease.age),
            revision: CURRENT,
            previous_owner: lease.previous_owner.map(|host| self.host_id(host)),
            previous_owner_until: STORE_NOW + ticks(lease.takeover_delay),
            successor: lease.successor.map(|host| self.host_id(host)),
        })
    }

    fn lease(&self, record: &LeaseRecord) -> Lease {
        Lease {
            owner: record.owner.as_ref().and_then(|id| self.host_index(id)),
            epoch: small(record.epoch),
            age: in_ticks(STORE_NOW.since(record.renewed_at)),
            previous_owner: record.previous_owner.as_ref().and_then(|id| self.host_index(id)),
            takeover_delay: in_ticks(record.previous_owner_until.since(STORE_NOW)),
            successor: record.successor.as_ref().and_then(|id| self.host_index(id)),
        }
    }
}

fn stored(epoch: u8) -> Epoch {
    Epoch::from_stored(u64::from(epoch))
}

fn small(epoch: Epoch) -> u8 {
    u8::try_from(epoch.get()).unwrap_or(u8::MAX)
}

fn position(finished: u8) -> Position {
    match finished.checked_sub(1) {
        Some(last) => {
            Position::Finished { sequence: SequenceNumber(u64::from(last)), offset: None, enqueued_at: None }
        }
        None => Position::Start(StartPosition::Earliest),
    }
}

fn finished(position: &Position) -> u8 {
    position.finished().map_or(0, |last| u8::try_from(last.0 + 1).unwrap_or(u8::MAX))
}

impl Step<'_> {
    /// Carries out a request. `message` is not in flight any more.
    pub fn apply_request(&mut self, message: Message) {
        let Message { host, awaited, call } = message;
        match call {
            Call::Claim { partition, reason, current, age, viewed_position } => {
                self.apply_claim(message, usize::from(partition), reason, current, (age, viewed_position));
            }
            Call::Renew { epochs, age } => self.apply_renewal(host, awaited, epochs, age),
            Call::Save { partition, epoch, position, before_seek } => {
                self.apply_save(message, usize::from(partition), epoch, position, before_seek);
            }
            Call::Handoff { .. } => self.apply_give_away(message),
            Call::Won { .. } | Call::Renewed { .. } => {}
        }
    }

    /// Writes a lease. Messages with an earlier version of it become outdated.
    fn write_lease(&mut self, partition: usize, record: &LeaseRecord) {
        let changed = record.revision != CURRENT || self.state.partitions[partition].lease.is_none();
        self.state.partitions[partition].lease = Some(self.protocol.lease(record));
        for message in self.state.messages.iter_mut().flatten().filter(|_| changed) {
            match &mut message.call {
                Call::Claim { partition: of, current, .. } if usize::from(*of) == partition => {
                    *current = false;
                }
                _ => {}
            }
        }
    }

    fn write_change(&mut self, partition: usize, change: &Change) {
        let old = self.state.partitions[partition];
        let newest = old.fence.max(old.lease.map_or(0, |lease| lease.epoch));
        let new = small(change.lease.epoch);
        let released = matches!(change.history.reason, ephor_core::history::ChangeReason::Released(_));
        if if released { new != newest } else { new <= newest } {
            self.violate(Violation::EpochTwice);
        }
        self.state.partitions[partition].fence = small(change.fence);
        self.write_lease(partition, &change.lease);
    }

    fn apply_claim(
        &mut self,
        message: Message,
        partition: usize,
        reason: ClaimReason,
        current: bool,
        (age, viewed_position): (u8, u8),
    ) {
        let Message { host, awaited, .. } = message;
        let old = self.protocol.lease_record(&self.state, partition);
        let seen = if current { old.as_ref().map(|record| record.revision) } else { Some(OUTDATED) };
        let request = ClaimRequest {
            partition: Step::id(partition),
            host: self.protocol.host_id(host),
            duration: ticks(LEASE),
            seen: seen.map(LeaseVersion::revision),
            above: Epoch::NONE,
            cause: match reason {
                ClaimReason::Unowned => ClaimCause::Unowned,
                ClaimReason::Expired => ClaimCause::Expired,
                ClaimReason::Unresponsive => ClaimCause::Unresponsive,
            },
        };
        let fence = stored(self.state.partitions[partition].fence);
        let change =
            record::claim(old.as_ref(), fence, &request, STORE_NOW, &self.protocol.rules).expect(EPOCHS);
        let (name, p) = (self.name(host), Step::id(partition));
        let Some(change) = change else {
            self.note(Kind::ClaimRefused);
            return self.log(format_args!(
                "the store refuses {name}'s claim of {p:?}: the lease has changed since it was read"
            ));
        };
        self.note(match reason {
            ClaimReason::Unowned => Kind::Claimed,
            ClaimReason::Expired => Kind::TakenOver,
            ClaimReason::Unresponsive => Kind::Stolen,
        });
        let reason = &change.history.reason;
        self.log(format_args!("the store gives {p:?} to {name} in {:?}: {reason}", change.lease.epoch));
        self.write_change(partition, &change);
        if !awaited {
            return self.note_late();
        }
        let lease = self.protocol.lease(&change.lease);
        let takeover_delay = if lease.previous_owner == Some(host) { 0 } else { lease.takeover_delay };
        let position = self.where_to_begin(partition, viewed_position);
        let partition = u8::try_from(partition).unwrap_or_default();
        let call =
            Call::Won { partition, epoch: lease.epoch, age, position, takeover_delay, before_seek: false };
        self.send(Message { host, awaited: true, call });
    }

    /// Returns the position for a won claim: the checkpoint after it was fenced.
    fn where_to_begin(&self, partition: usize, viewed_position: u8) -> u8 {
        // The mutation: uses the position of the view, although others may have saved since.
        let believed = !self.protocol.rules.claims_bring_the_checkpoint;
        if believed { viewed_position } else { self.state.partitions[partition].position }
    }

    fn note_late(&mut self) {
        self.note(Kind::LandedLate);
        self.log(format_args!("the call has timed out already"));
    }

    fn apply_renewal(&mut self, host: u8, awaited: bool, epochs: EachPartition<Option<u8>>, age: u8) {
        let mut answers = [None; crate::state::MAX_PARTITIONS];
        for (partition, epoch) in epochs.into_iter().enumerate() {
            let Some(epoch) = epoch else { continue };
            let old = self.protocol.lease_record(&self.state, partition);
            let token = self.protocol.token(host, partition, epoch);
            let renewed = record::renew(old.as_ref(), &token, ticks(LEASE), STORE_NOW);
            let (name, p, epoch_id) = (self.name(host), Step::id(partition), token.epoch);
            match &renewed {
                Some(record) => {
                    self.note(Kind::Renewed);
                    self.log(format_args!("the store renews {p:?} for {name} in {epoch_id:?}"));
                    self.write_lease(partition, record);
                }
                None => {
                    self.note(Kind::RenewalRefused);
                    self.log(format_args!("the store refuses to renew {p:?} for {name} in {epoch_id:?}"));
                }
            }
            answers[partition] = Some((epoch, renewed.is_some()));
        }
        if awaited {
            self.send(Message { host, awaited, call: Call::Renewed { epochs: answers, age } });
        } else {
            self.note_late();
        }
    }

    fn apply_save(&mut self, message: Message, partition: usize, epoch: u8, to: u8, before_seek: bool) {
        let Message { host, awaited, .. } = message;
        let old = self.state.partitions[partition];
        let log = None;
        let checkpoint = Checkpoint {
            position: position(old.position),
            log: None,
            epoch: stored(old.fence),
            saved_at: STORE_NOW,
        };
        let record = CheckpointRecord { fence: stored(old.fence), checkpoint: Some(checkpoint) };
        let token = self.protocol.token(host, partition, epoch);
        let request = SaveRequest::new(&token, &position(to), log);
        let verdict = record::save(&record, &request, STORE_NOW, &self.protocol.rules);
        let (name, p) = (self.name(host), Step::id(partition));
        let newest = old.fence.max(old.lease.map_or(0, |lease| lease.epoch));
        match &verdict {
            SaveVerdict::Write(written) => {
                let new = finished(&written.position);
                self.note(Kind::Saved);
                self.log(format_args!(
                    "the store saves position {new} of {p:?} for {name} in {:?}",
                    token.epoch
                ));
                if epoch < newest {
                    self.violate(Violation::OldSave);
                }
                if new < old.position {
                    self.violate(Violation::MovedBack);
                }
                if before_seek {
                    self.violate(Violation::SeekUndone);
                }
                self.state.partitions[partition].position = new;
            }
            SaveVerdict::Behind(_) => self
                .log(format_args!("the checkpoint of {p:?} is already after the position that {name} saves")),
            SaveVerdict::Fenced { epoch } => {
                self.note(Kind::SaveRefused);
                self.log(format_args!(
                    "the store refuses {name}'s save of {p:?} in {:?}: fenced at {epoch:?}",
                    token.epoch
                ));
            }
        }
        if !awaited {
            return self.note_late();
        }
        match verdict {
            SaveVerdict::Fenced { .. } => self.lose_slot(usize::from(host), partition),
            SaveVerdict::Write(_) | SaveVerdict::Behind(_) => {
                if let Some(slot) = self.slot(usize::from(host), partition) {
                    slot.unsaved = false;
                }
            }
        }
    }

    fn apply_give_away(&mut self, message: Message) {
        let Message { host, awaited, call } = message;
        let Call::Handoff { partition, epoch, disposition, checkpoint_saved, finished, unserved } = call
        else {
            return;
        };
        let partition = usize::from(partition);
        let old = self.protocol.lease_record(&self.state, partition);
        let fence = stored(self.state.partitions[partition].fence);
        let token = self.protocol.token(host, partition, epoch);
        let change = match disposition {
            Disposition::HandOver(to) => {
                let to = self.protocol.host_id(to);
                let request = TransferRequest { token, to, duration: ticks(LEASE), checkpoint_saved };
                record::transfer(old.as_ref(), fence, &request, STORE_NOW).expect(EPOCHS)
            }
            Disposition::Release(successor) => {
                let cause = if unserved { ReleaseCause::Unserved } else { ReleaseCause::Shutdown };
                let successor = successor.map(|successor| self.protocol.host_id(successor));
                let request = ReleaseRequest { token, cause, successor, checkpoint_saved };
                record::release(old.as_ref(), fence, &request, STORE_NOW)
            }
        };
        let (name, p) = (self.name(host), Step::id(partition));
        match &change {
            Some(change) => {
                self.note(match disposition {
                    Disposition::HandOver(_) => Kind::HandedOver,
                    Disposition::Release(_) if unserved => Kind::ReleasedUnserved,
                    Disposition::Release(_) => Kind::Released,
                });
                let to = change.lease.owner.as_ref().map_or("nobody", |id| id.name.as_str());
                let word = if checkpoint_saved { ", saved" } else { "" };
                self.log(format_args!("{p:?} moves from {name} to {to} in {:?}{word}", change.lease.epoch));
                if checkpoint_saved && self.state.partitions[partition].position < finished {
                    self.violate(Violation::Unsaved);
                }
                self.write_change(partition, change);
            }
            None => {
                self.note(Kind::GiveAwayRefused);
                self.log(format_args!(
                    "the store refuses to take {p:?} from {name}: it is no longer the owner"
                ));
            }
        }
        if !awaited {
            self.note_late();
        } else if !unserved {
            self.end_slot(usize::from(host), partition);
        }
    }

    /// Lets an operator seek a partition back to its beginning.
    pub fn seek(&mut self, partition: usize) {
        let old = self.protocol.lease_record(&self.state, partition);
        let fence = stored(self.state.partitions[partition].fence);
        let p = Step::id(partition);
        let change =
            record::seek(old.as_ref(), fence, p, "a person", STORE_NOW, &self.protocol.rules).expect(EPOCHS);
        self.note(Kind::Sought);
        self.log(format_args!("a person moves {p:?} back to its beginning, in {:?}", change.lease.epoch));
        self.state.seeks += 1;
        self.write_change(partition, &change);
        self.state.partitions[partition].position = 0;
        self.mark_before_seek(partition);
    }

    /// Marks pumps and messages from before a seek, which must not save over it. Those of older epochs are fenced anyway.
    fn mark_before_seek(&mut self, partition: usize) {
        let fence = self.state.partitions[partition].fence;
        for host in &mut self.state.hosts {
            if let Some(slot) = &mut host.slots[partition] {
                slot.before_seek |= slot.epoch >= fence;
            }
        }
        for message in self.state.messages.iter_mut().flatten() {
            match &mut message.call {
                Call::Won { partition: of, epoch, before_seek, .. }
                | Call::Save { partition: of, epoch, before_seek, .. }
                    if usize::from(*of) == partition =>
                {
                    *before_seek |= *epoch >= fence;
                }
                _ => {}
            }
        }
    }
}
