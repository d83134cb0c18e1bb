//! The batch format of Event Hubs: many events in one message.
//!
//! ```text
//! header? annotations? properties? …     of the envelope: only its partition key is used
//! data( a complete message ) data( a complete message ) …
//! ```
//!
//! SDKs copy fields of the first event onto the envelope; those are ignored. Bodies are never decoded.

mod pack;
mod unpack;

pub use pack::{Packed, Packer, Push, Refused};
pub use unpack::{Envelope, InvalidKeyType, partition_key};

/// The message format of a batch. Any other format is a single event.
pub const MESSAGE_FORMAT: u32 = 0x8001_3700;

#[cfg(test)]
mod tests;
