//! The steps of pumps and of the renewer: deliver, save, renew, hand over, and handle answers of the store.

use ephor_core::expiry::deadline;

use crate::bounds::{LEASE, MARGIN, NOW, in_ticks, ticks};
use crate::protocol::Protocol;
use crate::scan::small;
use crate::state::{Call, Disposition, EachPartition, MAX_PARTITIONS, Message, Slot, State, Violation};
use crate::step::{Kind, Step};

/// Returns the ticks until the deadline, if the renewal was sent `age` ticks ago.
fn left(age: u8) -> u8 {
    in_ticks(deadline(NOW.before(ticks(age)), ticks(LEASE), ticks(MARGIN)).since(NOW))
}

impl Protocol {
    /// Whether a host would deliver now.
    pub fn delivers(&self, state: &State, host: usize, partition: usize) -> bool {
        // The mutation: delivers prefetched events after the deadline.
        let believed = !self.rules.loss_comes_before_delivery;
        state.hosts[host].slots[partition].is_some_and(|slot| {
            (slot.left > 0 || believed) && slot.takeover_delay == 0 && slot.disposition.is_none()
        })
    }
}

impl Step<'_> {
    /// Starts the pump of a host for a partition.
    pub fn start(&mut self, host: usize, partition: usize, slot: Slot) {
        let (name, p) = (self.name(host), Step::id(partition));
        let Slot { epoch, left, takeover_delay, finished, .. } = slot;
        self.log(format_args!(
            "{name} serves {p:?} in e{epoch} from event {finished} on, for {left} ticks, after a delay of \
             {takeover_delay}"
        ));
        let kept = self.state.partitions[partition];
        let record = &mut self.state.hosts[host];
        let again = record.served[partition] >= epoch;
        record.served[partition] = epoch;
        record.slots[partition] = Some(slot);
        if again {
            self.violate(Violation::ServedTwice);
        }
        if kept.lease.is_some_and(|lease| lease.epoch == epoch)
            && kept.position != finished
            && !slot.before_seek
        {
            self.violate(Violation::WrongStart);
        }
    }

    /// Ends a pump: its host learned that it lost the lease.
    pub fn lose_slot(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Step::id(partition));
        self.note(Kind::LossNoticed);
        self.log(format_args!("{name} learns that it lost {p:?}, and closes it"));
        self.end_slot(host, partition);
    }

    /// Ends a pump that is past its deadline.
    pub fn notice(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Step::id(partition));
        self.note(Kind::SelfFenced);
        self.log(format_args!("{name} is past its deadline for {p:?}, and closes it"));
        self.end_slot(host, partition);
    }

    /// Delivers an event and finishes it.
    pub fn deliver(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Step::id(partition));
        let Some(slot) = self.slot(host, partition) else { return };
        let (event, epoch) = (slot.finished, slot.epoch);
        slot.finished += 1;
        slot.unsaved = true;
        self.note(Kind::Delivered);
        self.log(format_args!("{name} delivers event {event} of {p:?} in e{epoch}"));
    }

    /// Lets a processor fail.
    pub fn fail(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Step::id(partition));
        self.log(format_args!("{name}'s processor for {p:?} fails: the partition will be released"));
        self.state.failures += 1;
        if let Some(slot) = self.slot(host, partition) {
            slot.disposition = Some(Disposition::Release(None));
        }
    }

    /// Sends a save of the finished events.
    pub fn save(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Step::id(partition));
        let Some(slot) = self.slot(host, partition) else { return };
        let Slot { epoch, finished, before_seek, .. } = *slot;
        self.log(format_args!("{name} sends a save of position {finished} of {p:?} in e{epoch}"));
        let call = Call::Save { partition: small(partition), epoch, position: finished, before_seek };
        self.send(Message { host: small(host), awaited: true, call });
    }

    /// Closes a partition and gives it away. `checkpoint_saved` is false if something is unsaved.
    pub fn give_away(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Step::id(partition));
        let in_order = self.protocol.rules.final_checkpoint_comes_first;
        let Some(slot) = self.slot(host, partition) else { return };
        let Slot { epoch, finished, .. } = *slot;
        let Some(disposition) = slot.disposition else { return };
        // The mutation: gives the partition away before the final checkpoint.
        let checkpoint_saved = !slot.unsaved || !in_order;
        self.log(format_args!("{name} closes {p:?} and gives it away in e{epoch}"));
        let partition = small(partition);
        let call =
            Call::Handoff { partition, epoch, disposition, checkpoint_saved, finished, unserved: false };
        self.send(Message { host: small(host), awaited: true, call });
    }

    /// Sends a renewal of all leases that a host serves and that are valid by its own clock.
    pub fn renew(&mut self, host: usize) {
        let mut epochs: EachPartition<Option<u8>> = [None; MAX_PARTITIONS];
        for (partition, slot) in self.state.hosts[host].slots.iter().enumerate() {
            epochs[partition] = slot.filter(|slot| slot.left > 0).map(|slot| slot.epoch);
        }
        let name = self.name(host);
        self.log(format_args!("{name} sends a renewal"));
        self.send(Message { host: small(host), awaited: true, call: Call::Renew { epochs, age: 0 } });
    }

    /// Handles an answer.
    pub fn receive_answer(&mut self, message: Message) {
        let host = usize::from(message.host);
        match message.call {
            Call::Won { partition, epoch, age, position, takeover_delay, before_seek } => {
                let left = self.left_at_answer(age);
                let slot =
                    Slot { epoch, left, takeover_delay, finished: position, before_seek, ..Slot::default() };
                self.start(host, usize::from(partition), slot);
            }
            Call::Renewed { epochs, age } => {
                let left = self.left_at_answer(age);
                for (partition, answer) in epochs.into_iter().enumerate() {
                    let Some((epoch, renewed)) = answer else { continue };
                    let Some(slot) = self.slot(host, partition).filter(|slot| slot.epoch == epoch) else {
                        continue;
                    };
                    if renewed {
                        slot.left = slot.left.max(left);
                        let (name, p) = (self.name(host), Step::id(partition));
                        self.log(format_args!("{name} learns that {p:?} is renewed, and has {left} ticks"));
                    } else {
                        self.lose_slot(host, partition);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the ticks that are left when an answer arrives: counted from the moment before the request was sent.
    fn left_at_answer(&self, age: u8) -> u8 {
        // The mutation: counts from the arrival of the answer.
        left(if self.protocol.rules.deadlines_count_from_the_request { age } else { 0 })
    }

    /// Lets a call time out.
    pub fn give_up(&mut self, index: usize) {
        let Some(message) = &mut self.state.messages[index] else { return };
        message.awaited = false;
        let message = *message;
        let name = self.name(message.host);
        self.log(format_args!("{name} times out waiting for {}", what(&message)));
        if let Call::Handoff { partition, unserved: false, .. } = message.call {
            self.end_slot(usize::from(message.host), usize::from(partition));
        }
    }

    /// Loses a request or an answer.
    pub fn lose(&mut self, message: Message) {
        self.note(if message.is_answer() { Kind::AnswerLost } else { Kind::RequestLost });
        let name = self.name(message.host);
        self.log(format_args!("{} of {name} is lost", what(&message)));
    }
}

/// Describes a message.
fn what(message: &Message) -> String {
    match message.call {
        Call::Claim { partition, .. } => format!("the claim of p{partition}"),
        Call::Won { partition, .. } => format!("the answer to the claim of p{partition}"),
        Call::Renew { .. } => "the renewal".into(),
        Call::Renewed { .. } => "the answer to the renewal".into(),
        Call::Save { partition, epoch, position, .. } => {
            format!("the save of position {position} of p{partition} in e{epoch}")
        }
        Call::Handoff { partition, disposition: Disposition::HandOver(_), .. } => {
            format!("the transfer of p{partition}")
        }
        Call::Handoff { partition, disposition: Disposition::Release(_), .. } => {
            format!("the release of p{partition}")
        }
    }
}
