//! `flow`: the windows of a session, and the credit of a link.

use super::descriptor;
use super::fields::{FieldWriter, Fields};
use crate::performative::BadPerformative;

/// The state of a session and, with a handle, of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The number of the next transfer that its sender expects; `None` if it has not received `begin` yet.
    pub next_incoming_id: Option<u32>,
    /// The number of transfers that it accepts from there.
    pub incoming_window: u32,
    /// The number of the next transfer that its sender will send.
    pub next_outgoing_id: u32,
    /// The number of transfers that it may send from there.
    pub outgoing_window: u32,
    /// The link that the following fields are for.
    pub handle: Option<u32>,
    /// The number of deliveries so far.
    pub delivery_count: Option<u32>,
    /// The number of further deliveries that are allowed.
    pub link_credit: Option<u32>,
    /// The number of messages that a sender has ready.
    pub available: Option<u32>,
    /// True if a sender has to use up its credit now, or return it.
    pub drain: Option<bool>,
    /// True if a flow is wanted in return.
    pub echo: bool,
}

impl Flow {
    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, BadPerformative> {
        let next_incoming_id = fields.uint("next-incoming-id")?;
        let incoming_window = fields.uint("incoming-window")?;
        let next_outgoing_id = fields.uint("next-outgoing-id")?;
        let outgoing_window = fields.uint("outgoing-window")?;
        Ok(Self {
            next_incoming_id,
            incoming_window: fields.need(incoming_window, "incoming-window")?,
            next_outgoing_id: fields.need(next_outgoing_id, "next-outgoing-id")?,
            outgoing_window: fields.need(outgoing_window, "outgoing-window")?,
            handle: fields.uint("handle")?,
            delivery_count: fields.uint("delivery-count")?,
            link_credit: fields.uint("link-credit")?,
            available: fields.uint("available")?,
            drain: fields.bool("drain")?,
            echo: fields.bool("echo")?.unwrap_or(false),
        })
    }

    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::FLOW)
            .uint(self.next_incoming_id)
            .uint(self.incoming_window)
            .uint(self.next_outgoing_id)
            .uint(self.outgoing_window)
            .uint(self.handle)
            .uint(self.delivery_count)
            .uint(self.link_credit)
            .uint(self.available)
            .bool(self.drain)
            .bool(self.echo)
            .nulls(1)
            .end();
    }
}
