//! `open`: the first AMQP frame of each side: its container id, limits, capabilities and properties.

use super::descriptor;
use super::fields::{FieldWriter, Fields};
use crate::encoded::Encoded;
use crate::performative::BadPerformative;

/// The first frame of each side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The container id of the peer.
    pub container_id: String,
    /// The host name that the client wants to reach.
    pub hostname: Option<String>,
    /// The largest frame that the sender of this frame takes; without it, any size.
    pub max_frame_size: Option<u32>,
    /// The highest channel that may be used; without it, 65535.
    pub channel_max: Option<u16>,
    /// The idle timeout of the sender of this frame, in milliseconds: it closes the connection if no frame
    /// comes.
    pub idle_time_out: Option<u32>,
    /// An array of symbols.
    pub offered_capabilities: Option<Encoded>,
    /// An array of symbols.
    pub desired_capabilities: Option<Encoded>,
    /// A map: product, version and the like.
    pub properties: Option<Encoded>,
}

impl Open {
    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, BadPerformative> {
        let container_id = fields.text("container-id")?;
        let open = Self {
            container_id: fields.need(container_id, "container-id")?,
            hostname: fields.text("hostname")?,
            max_frame_size: fields.uint("max-frame-size")?,
            channel_max: fields.ushort("channel-max")?,
            idle_time_out: fields.uint("idle-time-out")?,
            ..Self::default()
        };
        let _outgoing_locales = fields.any()?;
        let _incoming_locales = fields.any()?;
        Ok(Self {
            offered_capabilities: fields.encoded()?,
            desired_capabilities: fields.encoded()?,
            properties: fields.encoded()?,
            ..open
        })
    }

    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::OPEN)
            .string(&*self.container_id)
            .string(self.hostname.as_deref())
            .uint(self.max_frame_size)
            .ushort(self.channel_max)
            .uint(self.idle_time_out)
            .nulls(2)
            .encoded(self.offered_capabilities.as_ref())
            .encoded(self.desired_capabilities.as_ref())
            .encoded(self.properties.as_ref())
            .end();
    }
}
