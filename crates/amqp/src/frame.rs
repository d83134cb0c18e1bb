//! Frames, and the header that a connection begins with (AMQP 1.0, part 2, sections 2.2 and 2.3).
//!
//! ```text
//! 0      4      5      6         8           4 x offset      size
//! ┌──────┬──────┬──────┬─────────┬───────────┬───────────────┐
//! │ size │offset│ type │ channel │ extension │ body          │
//! └──────┴──────┴──────┴─────────┴───────────┴───────────────┘
//! ```
//!
//! The size counts everything, the offset counts words of four bytes. A frame without a body says only
//! that its sender is alive.

/// The size of the smallest frame.
pub const HEADER_SIZE: usize = 8;
/// The type of a frame with a performative.
pub const TYPE_AMQP: u8 = 0;
/// The type of a frame of the SASL layer.
pub const TYPE_SASL: u8 = 1;
/// Every peer takes frames of this size.
pub const MIN_MAX_FRAME_SIZE: u32 = 512;
/// Says that its sender is alive.
pub const HEARTBEAT: [u8; HEADER_SIZE] = [0, 0, 0, 8, 2, TYPE_AMQP, 0, 0];

/// What a peer wants to speak, version 1.0.0 of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// AMQP itself.
    Amqp,
    /// The SASL layer, and AMQP after it.
    Sasl,
}

impl Protocol {
    /// The header that says so.
    pub fn header(self) -> [u8; 8] {
        let id = match self {
            Self::Amqp => 0,
            Self::Sasl => 3,
        };
        [b'A', b'M', b'Q', b'P', id, 1, 0, 0]
    }

    /// What a header says; `None` if it is none of these.
    pub fn of(header: [u8; 8]) -> Option<Self> {
        [Self::Amqp, Self::Sasl].into_iter().find(|protocol| protocol.header() == header)
    }
}

/// The first bytes of a frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Of the whole frame.
    pub size: usize,
    /// Where the body begins.
    pub body: usize,
    /// [`TYPE_AMQP`] or [`TYPE_SASL`], or what nobody knows.
    pub kind: u8,
    /// The channel; means nothing in the SASL layer.
    pub channel: u16,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// Larger than is allowed now.
    #[error("a frame of {size} bytes, of which at most {limit} are allowed")]
    TooLarge {
        /// What it says its size is.
        size: u32,
        /// What is allowed.
        limit: u32,
    },
    /// Smaller than its own header.
    #[error("a frame of {size} bytes whose body begins at {body}")]
    TooSmall {
        /// What it says its size is.
        size: u32,
        /// Where it says that its body begins.
        body: u32,
    },
}

impl FrameHeader {
    /// Reads one; `None` if more bytes are needed. The size is checked before anybody waits for it.
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

/// Begins a frame at the end of `into`; its body is written after it, and then [`end`] says its size.
pub(crate) fn begin(into: &mut Vec<u8>, kind: u8, channel: u16) -> usize {
    let start = into.len();
    let [high, low] = channel.to_be_bytes();
    into.extend_from_slice(&[0, 0, 0, 0, 2, kind, high, low]);
    start
}

/// Ends the frame that began at `start`, and says how large it is.
pub(crate) fn end(into: &mut [u8], start: usize) -> u32 {
    let size = u32::try_from(into.len() - start).unwrap_or(u32::MAX);
    into[start..start + 4].copy_from_slice(&size.to_be_bytes());
    size
}
