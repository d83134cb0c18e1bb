//! The step that an action takes: the next state, what happened (by kind), and a trace for people.

use std::fmt::Arguments;

use ephor_core::ids::PartitionId;

use crate::protocol::Protocol;
use crate::state::{Message, Slot, State, Violation};

/// Kinds of events, counted: a search without one of them has proved nothing about it.
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
    /// A host found that it owns a lease, and serves it.
    Adopted,
    /// A partition was released.
    Released,
    /// A partition that nobody served was released.
    ReleasedUnserved,
    /// Giving away was refused: the lease is not the sender's any more.
    GiveAwayRefused,
    /// An event was delivered and finished.
    Delivered,
    /// A checkpoint was saved.
    Saved,
    /// A checkpoint of an older epoch was refused.
    SaveRefused,
    /// An operator moved the position.
    Sought,
    /// A pump stopped at its deadline.
    SelfFenced,
    /// A host learned that it lost a lease.
    LossNoticed,
    /// A request succeeded after it had timed out.
    LandedLate,
    /// A request was lost.
    RequestLost,
    /// An answer was lost.
    AnswerLost,
    /// A host stopped.
    Stopped,
}

impl Kind {
    /// All kinds, with their descriptions.
    pub const ALL: [(Self, &str); 25] = [
        (Self::Claimed, "claimed, it had no owner"),
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
        (Self::Adopted, "found owned, and served"),
        (Self::Released, "released"),
        (Self::ReleasedUnserved, "released, no host served it"),
        (Self::GiveAwayRefused, "a transfer or release refused"),
        (Self::Delivered, "an event delivered"),
        (Self::Saved, "a checkpoint saved"),
        (Self::SaveRefused, "a checkpoint of an older epoch refused"),
        (Self::Sought, "sought"),
        (Self::SelfFenced, "stopped by itself at its deadline"),
        (Self::LossNoticed, "a host learned that it lost a lease"),
        (Self::LandedLate, "a request succeeded after a timeout"),
        (Self::RequestLost, "a request lost"),
        (Self::AnswerLost, "an answer lost"),
        (Self::Stopped, "a host stopped"),
    ];
}

/// One step of the model.
pub struct Step<'a> {
    /// The rules and limits.
    pub protocol: &'a Protocol,
    /// The next state.
    pub state: State,
    /// The kinds of events, a bit each.
    pub kinds: u32,
    /// The trace as text, if it is wanted.
    pub trace: Option<Vec<String>>,
}

impl Step<'_> {
    /// Notes an event.
    pub fn note(&mut self, kind: Kind) {
        self.kinds |= 1 << kind as u8;
    }

    /// Adds a line to the trace, if it is wanted.
    pub fn log(&mut self, what: Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.push(what.to_string());
        }
    }

    /// Notes a violated property. The first one counts.
    pub fn violate(&mut self, violation: Violation) {
        self.state.violation.get_or_insert(violation);
    }

    /// Returns a host's name.
    pub fn name(&self, host: impl Into<usize>) -> &'static str {
        crate::protocol::NAMES[host.into()]
    }

    /// Returns a partition's id.
    pub fn id(partition: usize) -> PartitionId {
        PartitionId(u32::try_from(partition).unwrap_or(u32::MAX))
    }

    /// Sends a message. If the limit of messages in flight is reached, it arrives at once.
    pub fn send(&mut self, message: Message) {
        let max = self.protocol.bounds.messages;
        match self.state.messages.iter_mut().take(max).find(|place| place.is_none()) {
            Some(free) => *free = Some(message),
            None if message.is_answer() => self.receive_answer(message),
            None => self.apply_request(message),
        }
    }

    /// Returns the slot of a host for a partition.
    pub fn slot(&mut self, host: usize, partition: usize) -> Option<&mut Slot> {
        self.state.hosts[host].slots[partition].as_mut()
    }

    /// Ends the pump of a host for a partition. Its messages in flight may still arrive.
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
