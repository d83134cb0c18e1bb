//! AMQP 1.0: how values and messages are encoded.
//!
//! Nothing here does I/O. Whatever comes from a peer is read in place: every length is checked before
//! it is used, nothing is allocated because a count claims so, and nothing recurses.
//!
//! | to read about | open |
//! |---|---|
//! | the bytes that say what follows | [`code`] |
//! | writing values | [`encode`] |
//! | reading values | [`decode`], [`value`] |
//! | whether bytes are one whole value, inside and out | [`check`] |
//! | the sections of a message | [`message`] |

pub mod check;
pub mod code;
pub mod decode;
pub mod encode;
pub mod message;
pub mod value;

pub use decode::{Malformed, Reader};
pub use message::Sections;
pub use value::Value;
