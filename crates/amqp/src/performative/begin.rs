//! `begin`: begins a session on a channel.

use super::descriptor;
use super::fields::{FieldWriter, Fields};
use crate::encoded::Encoded;
use crate::performative::BadPerformative;

/// The first frame on a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// In an answer: the channel of the session that is answered.
    pub remote_channel: Option<u16>,
    /// The number of the first transfer that will be sent.
    pub next_outgoing_id: u32,
    /// The number of transfers that are accepted before the next flow.
    pub incoming_window: u32,
    /// The number of transfers that are sent before the next flow.
    pub outgoing_window: u32,
    /// The highest handle that may be used; without it, any.
    pub handle_max: Option<u32>,
    /// An array of symbols.
    pub offered_capabilities: Option<Encoded>,
    /// An array of symbols.
    pub desired_capabilities: Option<Encoded>,
    /// A map.
    pub properties: Option<Encoded>,
}

impl Begin {
    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, BadPerformative> {
        let remote_channel = fields.ushort("remote-channel")?;
        let next_outgoing_id = fields.uint("next-outgoing-id")?;
        let incoming_window = fields.uint("incoming-window")?;
        let outgoing_window = fields.uint("outgoing-window")?;
        Ok(Self {
            remote_channel,
            next_outgoing_id: fields.need(next_outgoing_id, "next-outgoing-id")?,
            incoming_window: fields.need(incoming_window, "incoming-window")?,
            outgoing_window: fields.need(outgoing_window, "outgoing-window")?,
            handle_max: fields.uint("handle-max")?,
            offered_capabilities: fields.encoded()?,
            desired_capabilities: fields.encoded()?,
            properties: fields.encoded()?,
        })
    }

    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::BEGIN)
            .ushort(self.remote_channel)
            .uint(self.next_outgoing_id)
            .uint(self.incoming_window)
            .uint(self.outgoing_window)
            .uint(self.handle_max)
            .encoded(self.offered_capabilities.as_ref())
            .encoded(self.desired_capabilities.as_ref())
            .encoded(self.properties.as_ref())
            .end();
    }
}
