//! What pumps and the renewer do, and what an answer means to them.

use ephor_core::expiry::deadline;

use crate::bounds::{LEASE, MARGIN, NOW, in_ticks, ticks};
use crate::protocol::Protocol;
use crate::scan::small;
use crate::state::{Broken, Call, EachPartition, MOST_PARTITIONS, Message, Slot, State, Way};
use crate::turn::{Kind, Turn};

/// Ticks until nothing may be delivered, if the renewal was sent that long ago.
fn left(age: u8) -> u8 {
    in_ticks(deadline(NOW.before(ticks(age)), ticks(LEASE), ticks(MARGIN)).since(NOW))
}

impl Protocol {
    /// Whether a host would deliver now.
    pub fn delivers(&self, state: &State, host: usize, partition: usize) -> bool {
        // The planted bug, which believes that what was fetched is still its own.
        let believed = !self.rules.loss_comes_before_delivery;
        state.hosts[host].slots[partition]
            .is_some_and(|slot| (slot.left > 0 || believed) && slot.quiet == 0 && slot.way.is_none())
    }
}

impl Turn<'_> {
    /// A host begins to serve a partition.
    pub fn start(&mut self, host: usize, partition: usize, slot: Slot) {
        let (name, p) = (self.name(host), Turn::id(partition));
        let Slot { epoch, left, quiet, finished, .. } = slot;
        self.tell(format_args!(
            "{name} serves {p:?} in e{epoch} from event {finished} on, for {left} ticks, after {quiet} of quiet"
        ));
        let kept = self.state.partitions[partition];
        let record = &mut self.state.hosts[host];
        let again = record.served[partition] >= epoch;
        record.served[partition] = epoch;
        record.slots[partition] = Some(slot);
        if again {
            self.object(Broken::ServedTwice);
        }
        if kept.lease.is_some_and(|lease| lease.epoch == epoch) && kept.position != finished && !slot.bygone {
            self.object(Broken::WrongStart);
        }
    }

    /// A host learns that a lease is not its own any more.
    pub fn lose_slot(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Turn::id(partition));
        self.note(Kind::Disabused);
        self.tell(format_args!("{name} learns that {p:?} is not its own any more, and closes it"));
        self.end_slot(host, partition);
    }

    /// A pump finds that its time is over.
    pub fn notice(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Turn::id(partition));
        self.note(Kind::SelfFenced);
        self.tell(format_args!("{name} finds that its time with {p:?} is over, and closes it"));
        self.end_slot(host, partition);
    }

    /// An event is delivered and finished.
    pub fn deliver(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Turn::id(partition));
        let Some(slot) = self.slot(host, partition) else { return };
        let (event, epoch) = (slot.finished, slot.epoch);
        slot.finished += 1;
        slot.unsaved = true;
        self.note(Kind::Delivered);
        self.tell(format_args!("{name} delivers event {event} of {p:?} in e{epoch}"));
    }

    /// A processor fails.
    pub fn fail(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Turn::id(partition));
        self.tell(format_args!("{name}'s processor for {p:?} fails: it will be given back"));
        self.state.failures += 1;
        if let Some(slot) = self.slot(host, partition) {
            slot.way = Some(Way::Release(None));
        }
    }

    /// What is finished is saved.
    pub fn save(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Turn::id(partition));
        let Some(slot) = self.slot(host, partition) else { return };
        let Slot { epoch, finished, bygone, .. } = *slot;
        self.tell(format_args!("{name} sends a save of {finished} finished of {p:?} in e{epoch}"));
        let call = Call::Save { partition: small(partition), epoch, position: finished, bygone };
        self.send(Message { host: small(host), awaited: true, call });
    }

    /// A partition is closed and given away. With something unsaved it is not settled.
    pub fn give_away(&mut self, host: usize, partition: usize) {
        let (name, p) = (self.name(host), Turn::id(partition));
        let in_order = self.protocol.rules.final_checkpoint_comes_first;
        let Some(slot) = self.slot(host, partition) else { return };
        let Slot { epoch, finished, .. } = *slot;
        let Some(way) = slot.way else { return };
        // The planted bug, which believes that the order does not matter.
        let settled = !slot.unsaved || !in_order;
        self.tell(format_args!("{name} closes {p:?} and sends it away in e{epoch}"));
        let partition = small(partition);
        let call = Call::GiveAway { partition, epoch, way, settled, finished, unserved: false };
        self.send(Message { host: small(host), awaited: true, call });
    }

    /// A renewal of everything that a host serves and that is its own by its own clock.
    pub fn renew(&mut self, host: usize) {
        let mut epochs: EachPartition<Option<u8>> = [None; MOST_PARTITIONS];
        for (partition, slot) in self.state.hosts[host].slots.iter().enumerate() {
            epochs[partition] = slot.filter(|slot| slot.left > 0).map(|slot| slot.epoch);
        }
        let name = self.name(host);
        self.tell(format_args!("{name} sends a renewal"));
        self.send(Message { host: small(host), awaited: true, call: Call::Renew { epochs, age: 0 } });
    }

    /// An answer arrives.
    pub fn hear(&mut self, message: Message) {
        let host = usize::from(message.host);
        match message.call {
            Call::Won { partition, epoch, age, position, quiet, bygone } => {
                let left = self.left_at_answer(age);
                let slot = Slot { epoch, left, quiet, finished: position, bygone, ..Slot::default() };
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
                        let (name, p) = (self.name(host), Turn::id(partition));
                        self.tell(format_args!("{name} hears that {p:?} is renewed, and has {left} ticks"));
                    } else {
                        self.lose_slot(host, partition);
                    }
                }
            }
            _ => {}
        }
    }

    /// What is left of a lease when its answer arrives: counted from the instant before the request was sent.
    fn left_at_answer(&self, age: u8) -> u8 {
        // The planted bug, which believes that an answer is as young as its arrival.
        left(if self.protocol.rules.deadlines_count_from_the_request { age } else { 0 })
    }

    /// A host does not wait any longer.
    pub fn give_up(&mut self, index: usize) {
        let Some(message) = &mut self.state.messages[index] else { return };
        message.awaited = false;
        let message = *message;
        let name = self.name(message.host);
        self.tell(format_args!("{name} does not wait any longer for {}", what(&message)));
        if let Call::GiveAway { partition, unserved: false, .. } = message.call {
            self.end_slot(usize::from(message.host), usize::from(partition));
        }
    }

    /// A request or an answer is lost.
    pub fn lose(&mut self, message: Message) {
        self.note(if message.is_answer() { Kind::AnswerLost } else { Kind::RequestLost });
        let name = self.name(message.host);
        self.tell(format_args!("{} of {name} is lost", what(&message)));
    }
}

/// A message in words.
fn what(message: &Message) -> String {
    match message.call {
        Call::Claim { partition, .. } => format!("the claim of p{partition}"),
        Call::Won { partition, .. } => format!("the answer to the claim of p{partition}"),
        Call::Renew { .. } => "the renewal".into(),
        Call::Renewed { .. } => "the answer to the renewal".into(),
        Call::Save { partition, epoch, position, .. } => {
            format!("the save of {position} finished of p{partition} in e{epoch}")
        }
        Call::GiveAway { partition, way: Way::HandOver(_), .. } => format!("the transfer of p{partition}"),
        Call::GiveAway { partition, way: Way::Release(_), .. } => format!("the release of p{partition}"),
    }
}
