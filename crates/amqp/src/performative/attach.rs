//! `attach`: attaches a link between a source and a target.

use super::descriptor;
use super::fields::{FieldWriter, Fields};
use super::terminus::{Source, Target};
use crate::encoded::Encoded;
use crate::performative::BadPerformative;

/// The role of one side of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends messages.
    Sender,
    /// It receives messages.
    Receiver,
}

impl Role {
    /// The role of the other side.
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    pub(super) fn read(receiver: bool) -> Self {
        if receiver { Self::Receiver } else { Self::Sender }
    }
}

/// The settlement mode of a sender: whether it sends messages settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SenderSettles {
    /// Never.
    Unsettled = 0,
    /// Always.
    Settled = 1,
    /// It decides for each message.
    Mixed = 2,
}

/// The settlement mode of a receiver: when it settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReceiverSettles {
    /// Without waiting for the sender.
    First = 0,
    /// After the sender has settled.
    Second = 1,
}

/// The first frame of each side of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The name of the link.
    pub name: String,
    /// The number that identifies the link in further frames. A connection chooses it.
    pub handle: u32,
    /// The role of the sender of this frame.
    pub role: Role,
    /// The settlement mode of the sender.
    pub sender_settles: Option<SenderSettles>,
    /// The settlement mode of the receiver.
    pub receiver_settles: Option<ReceiverSettles>,
    /// The node that messages come from.
    pub source: Option<Source>,
    /// The node that they go to.
    pub target: Option<Target>,
    /// The number of the first delivery. Mandatory if the role is sender.
    pub initial_delivery_count: Option<u32>,
    /// The largest message that the sender of this frame takes.
    pub max_message_size: Option<u64>,
    /// An array of symbols.
    pub offered_capabilities: Option<Encoded>,
    /// An array of symbols.
    pub desired_capabilities: Option<Encoded>,
    /// A map.
    pub properties: Option<Encoded>,
}

impl Attach {
    /// An attach with a name and a role, and nothing else.
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self {
            name: name.into(),
            handle: 0,
            role,
            sender_settles: None,
            receiver_settles: None,
            source: None,
            target: None,
            initial_delivery_count: None,
            max_message_size: None,
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        }
    }

    /// A link that sends to this address.
    pub fn sender(name: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            source: Some(Source::default()),
            target: Some(Target::to(target)),
            initial_delivery_count: Some(0),
            ..Self::new(name, Role::Sender)
        }
    }

    /// A link that receives from this address.
    pub fn receiver(name: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            source: Some(Source::from(source)),
            target: Some(Target::default()),
            ..Self::new(name, Role::Receiver)
        }
    }

    /// The answer that accepts the link as it was asked for: name, modes, source and target are the same.
    /// Capabilities, properties and the message size are left to the caller.
    pub fn answer(&self) -> Self {
        let role = self.role.other();
        Self {
            sender_settles: self.sender_settles,
            receiver_settles: self.receiver_settles,
            source: self.source.clone(),
            target: self.target.clone(),
            initial_delivery_count: (role == Role::Sender).then_some(0),
            ..Self::new(self.name.clone(), role)
        }
    }

    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, BadPerformative> {
        let name = fields.text("name")?;
        let handle = fields.uint("handle")?;
        let role = fields.bool("role")?;
        let mut attach = Self::new(fields.need(name, "name")?, Role::read(fields.need(role, "role")?));
        attach.handle = fields.need(handle, "handle")?;
        attach.sender_settles = match fields.ubyte("snd-settle-mode")? {
            None => None,
            Some(0) => Some(SenderSettles::Unsettled),
            Some(1) => Some(SenderSettles::Settled),
            Some(2) => Some(SenderSettles::Mixed),
            Some(_) => return Err(fields.wrong("snd-settle-mode", "0, 1 or 2")),
        };
        attach.receiver_settles = match fields.ubyte("rcv-settle-mode")? {
            None => None,
            Some(0) => Some(ReceiverSettles::First),
            Some(1) => Some(ReceiverSettles::Second),
            Some(_) => return Err(fields.wrong("rcv-settle-mode", "0 or 1")),
        };
        attach.source = Source::read(fields.any()?)?;
        attach.target = Target::read(fields.any()?)?;
        // Links are not resumed here, so the peer's unsettled deliveries are ignored.
        let _unsettled = fields.any()?;
        let _incomplete_unsettled = fields.any()?;
        attach.initial_delivery_count = fields.uint("initial-delivery-count")?;
        attach.max_message_size = fields.ulong("max-message-size")?;
        attach.offered_capabilities = fields.encoded()?;
        attach.desired_capabilities = fields.encoded()?;
        attach.properties = fields.encoded()?;
        Ok(attach)
    }

    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::ATTACH)
            .string(&*self.name)
            .uint(self.handle)
            .bool(self.role == Role::Receiver)
            .ubyte(self.sender_settles.map(|mode| mode as u8))
            .ubyte(self.receiver_settles.map(|mode| mode as u8))
            .one(|into| Source::write(self.source.as_ref(), into))
            .one(|into| Target::write(self.target.as_ref(), into))
            .nulls(2)
            .uint(self.initial_delivery_count)
            .ulong(self.max_message_size)
            .encoded(self.offered_capabilities.as_ref())
            .encoded(self.desired_capabilities.as_ref())
            .encoded(self.properties.as_ref())
            .end();
    }
}
