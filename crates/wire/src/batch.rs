//! Many events in one message: the batch format of Event Hubs.
//!
//! ```text
//! header? annotations? properties? …     of the envelope: only the key in it means something
//! data( a complete message ) data( a complete message ) …
//! ```
//!
//! What SDKs copy onto the envelope from the first event is not looked at. Bodies are never decoded.

mod open;
mod pack;

pub use open::{Envelope, InvalidKeyType, partition_key};
pub use pack::{Packed, Packer, Push, Refused};

/// The message format of a batch. Anything else is a single event.
pub const MESSAGE_FORMAT: u32 = 0x8001_3700;

#[cfg(test)]
mod tests;
