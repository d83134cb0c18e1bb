//! Frames, and the protocol header that a connection begins with (AMQP 1.0, part 2, sections 2.2 and 2.3).
//!
//! ```text
//! 0      4      5      6         8           4 x offset      size
//! ┌──────┬──────┬──────┬─────────┬───────────┬───────────────┐
//! │ size │offset│ type │ channel │ extension │ body          │
//! └──────┴──────┴──────┴─────────┴───────────┴───────────────┘
//! ```
//!
//! The size counts all bytes, the offset counts words of four bytes. A frame without a body is a heartbeat.

/// The size of the smallest frame.
pub const HEADER_SIZE: usize = 8;
/// The type of a frame with a performative.
pub const TYPE_AMQP: u8 = 0;
/// The type of a frame of the SASL layer.
pub const TYPE_SASL: u8 = 1;
/// The frame size that every peer has to accept.
pub const MIN_MAX_FRAME_SIZE: u32 = 512;
/// An empty frame, which shows that its sender is alive.
pub const HEARTBEAT: [u8; HEADER_SIZE] = [0, 0, 0, 8, 2, TYPE_AMQP, 0, 0];

/// The protocol that a peer wants to speak, in version 1.0.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// AMQP itself.
    Amqp,
    /// The SASL layer, and AMQP after it.
    Sasl,
}

impl Protocol {
    /// The protocol header.
    pub fn header(self) -> [u8; 8] {
        let id = match self {
            Self::Amqp => 0,
            Self::Sasl => 3,
        };
        [b'A', b'M', b'Q', b'P', id, 1, 0, 0]
    }

    /// The protocol of a header; `None` if it is another one.
    pub fn of(header: [u8; 8]) -> Option<Self> {
        [Self::Amqp, Self::Sasl].into_iter().find(|protocol| protocol.header() == header)
    }
}

/// The checked header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The size of the whole frame.
    pub size: usize,
    /// The offset of the body.
    pub body: usize,
    /// [`TYPE_AMQP`] or [`TYPE_SASL`]; other values are not checked here.
    pub kind: u8,
    /// The channel; it has no meaning in the SASL layer.
    pub channel: u16,
}

/// An invalid frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The frame is larger than allowed.
    #[error("a frame of {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The size in its header.
        size: u32,
        /// The largest allowed size.
        limit: u32,
    },
    /// The frame is smaller than its own header.
    #[error("a frame of {size} bytes whose body begins at {body}")]
    TooSmall {
        /// The size in its header.
        size: u32,
        /// The offset of the body in its header.
        body: u32,
    },
}

impl FrameHeader {
    /// Reads a frame header; `None` if more bytes are needed. The size is checked before the rest of the
    /// frame is awaited.
    #[inline]
    pub fn read(bytes: &[u8], limit: u32) -> Result<Option<Self>, BadFrame> {
        let Some(&[a, b, c, d, offset, kind, high, low]) = bytes.first_chunk::<HEADER_SIZE>() else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([a, b, c, d]);
        let body = u32::from(offset) * 4;
        if size > limit {
            return Err(BadFrame::TooLarge { size, limit });
        }
        if offset < 2 || body > size {
            return Err(BadFrame::TooSmall { size, body });
        }
        let channel = u16::from_be_bytes([high, low]);
        Ok(Some(Self { size: size as usize, body: body as usize, kind, channel }))
    }
}

/// Begins a frame at the end of `into`. Its body is written after it, and then [`end`] writes its size.
pub(crate) fn begin(into: &mut Vec<u8>, kind: u8, channel: u16) -> usize {
    let start = into.len();
    let [high, low] = channel.to_be_bytes();
    into.extend_from_slice(&[0, 0, 0, 0, 2, kind, high, low]);
    start
}

/// Ends the frame that began at `start`, and returns its size.
pub(crate) fn end(into: &mut [u8], start: usize) -> u32 {
    let size = u32::try_from(into.len() - start).unwrap_or(u32::MAX);
    into[start..start + 4].copy_from_slice(&size.to_be_bytes());
    size
}
