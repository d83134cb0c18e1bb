//! AMQP 1.0: encoding, framing and a connection state machine, for clients and servers.
//!
//! Only [`driver`] does I/O. Bytes from a peer are decoded in place: every length is checked before it is
//! used, no count that a peer claims leads to an allocation, and nothing recurses.
//!
//! | to read about | open |
//! |---|---|
//! | the format codes of values | [`format_codes`] |
//! | encoding values | [`encode`] |
//! | decoding values | [`decode`], [`value`] |
//! | checking that bytes are one well-formed value, with everything in it | [`check`] |
//! | values that are kept in their encoding | [`encoded`] |
//! | the sections of a message | [`message`] |
//! | checking that all sections of a message can be decoded | [`validate`] |
//! | performatives and frames | [`performative`], [`frame`] |
//! | a connection with its sessions and links, as a state machine | [`connection`] |
//! | the limits of one connection | [`limits`] |
//! | the limits of many connections together | [`shared_limit`] |
//! | a connection on a socket | [`driver`] |

pub mod check;
pub mod connection;
pub mod decode;
pub mod driver;
pub mod encode;
pub mod encoded;
pub mod format_codes;
pub mod frame;
pub mod limits;
pub mod message;
pub mod performative;
pub mod shared_limit;
pub mod validate;
pub mod value;

pub use connection::Connection;
pub use decode::{Malformed, Reader};
pub use encoded::Encoded;
pub use message::Sections;
pub use value::Value;
