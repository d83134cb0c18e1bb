//! One step under way: the state as it becomes, what kind of thing happened, and words for it.

use std::fmt::Arguments;

use ephor_core::ids::PartitionId;

use crate::protocol::Protocol;
use crate::state::{Broken, Message, Slot, State};

/// Things that happen, to be counted: a search in which one of them never happens has proved nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A free partition was claimed.
    Claimed,
    /// A partition was claimed whose owner had stopped renewing.
    TakenOver,
    /// A partition was taken from an owner that did not answer.
    Stolen,
    /// A claim came too late.
    ClaimRefused,
    /// A lease was renewed.
    Renewed,
    /// A renewal was refused.
    RenewalRefused,
    /// A host asked for a partition.
    Asked,
    /// An owner agreed.
    Agreed,
    /// An owner said no.
    Declined,
    /// A request was taken back.
    Withdrawn,
    /// A partition was handed over.
    HandedOver,
    /// A host found a lease in its name and serves it.
    Adopted,
    /// A partition was given back.
    Released,
    /// A partition was given back that nobody served.
    ReleasedUnserved,
    /// Giving away was refused: the lease is not the sender's any more.
    GiveAwayRefused,
    /// An event was delivered and finished.
    Delivered,
    /// A checkpoint was saved.
    Saved,
    /// A checkpoint of an older epoch was refused.
    SaveRefused,
    /// A person moved the position.
    Sought,
    /// A pump found its time over.
    SelfFenced,
    /// A host that still believed in a lease learned that it is another's.
    Disabused,
    /// A request landed, and did what it asked, after its host had given it up.
    LandedLate,
    /// A request was lost.
    RequestLost,
    /// An answer was lost.
    AnswerLost,
    /// A host stopped.
    Stopped,
}

impl Kind {
    /// All of them, with words.
    pub const ALL: [(Self, &str); 25] = [
        (Self::Claimed, "claimed, nobody owned it"),
        (Self::TakenOver, "claimed, its owner had stopped renewing"),
        (Self::Stolen, "stolen, its owner did not answer"),
        (Self::ClaimRefused, "a claim refused"),
        (Self::Renewed, "renewed"),
        (Self::RenewalRefused, "a renewal refused"),
        (Self::Asked, "asked for"),
        (Self::Agreed, "agreed to hand over"),
        (Self::Declined, "declined to hand over"),
        (Self::Withdrawn, "a request withdrawn"),
        (Self::HandedOver, "handed over"),
        (Self::Adopted, "found to be ours, and served"),
        (Self::Released, "released"),
        (Self::ReleasedUnserved, "released, nobody served it"),
        (Self::GiveAwayRefused, "a transfer or release refused"),
        (Self::Delivered, "an event delivered"),
        (Self::Saved, "a checkpoint saved"),
        (Self::SaveRefused, "a checkpoint of an older epoch refused"),
        (Self::Sought, "sought"),
        (Self::SelfFenced, "stopped by itself at its deadline"),
        (Self::Disabused, "a host learned that a lease is not its own any more"),
        (Self::LandedLate, "a request landed after it was given up"),
        (Self::RequestLost, "a request lost"),
        (Self::AnswerLost, "an answer lost"),
        (Self::Stopped, "a host told to stop"),
    ];
}

/// One step under way.
pub struct Turn<'a> {
    /// Under these rules and bounds.
    pub protocol: &'a Protocol,
    /// The state as it becomes.
    pub state: State,
    /// The kinds of things that happened, a bit each.
    pub kinds: u32,
    /// What happened in words, if anybody listens.
    pub words: Option<Vec<String>>,
}

impl Turn<'_> {
    /// Takes note that something happened.
    pub fn note(&mut self, kind: Kind) {
        self.kinds |= 1 << kind as u8;
    }

    /// Says what happened, if anybody listens.
    pub fn tell(&mut self, what: Arguments<'_>) {
        if let Some(words) = &mut self.words {
            words.push(what.to_string());
        }
    }

    /// Declares a promise broken. The first one counts.
    pub fn object(&mut self, broken: Broken) {
        self.state.broken.get_or_insert(broken);
    }

    /// A host's name.
    pub fn name(&self, host: impl Into<usize>) -> &'static str {
        crate::protocol::NAMES[host.into()]
    }

    /// A partition's id.
    pub fn id(partition: usize) -> PartitionId {
        PartitionId(u32::try_from(partition).unwrap_or(u32::MAX))
    }

    /// Sends a message. Only so many are on their way for longer; without room for it, it arrives at once.
    pub fn send(&mut self, message: Message) {
        let most = self.protocol.bounds.messages;
        match self.state.messages.iter_mut().take(most).find(|place| place.is_none()) {
            Some(free) => *free = Some(message),
            None if message.is_answer() => self.hear(message),
            None => self.land(message),
        }
    }

    /// The slot of a host for a partition.
    pub fn slot(&mut self, host: usize, partition: usize) -> Option<&mut Slot> {
        self.state.hosts[host].slots[partition].as_mut()
    }

    /// A host's pump for a partition ends. What it has on its way may land all the same.
    pub fn end_slot(&mut self, host: usize, partition: usize) {
        self.state.hosts[host].slots[partition] = None;
        for message in self.state.messages.iter_mut().flatten() {
            let of_pump = !message.of_manager() && !message.of_renewer();
            if usize::from(message.host) == host && of_pump && message.partition() == Some(partition) {
                message.awaited = false;
            }
        }
    }
}
