//! AMQP 1.0, for both sides of a connection.
//!
//! Nothing here but [`driver`] does I/O. Whatever comes from a peer is read in place: every length is checked before
//! it is used, nothing is allocated because a count claims so, and nothing recurses.
//!
//! | to read about | open |
//! |---|---|
//! | the bytes that say what follows | [`code`] |
//! | writing values | [`encode`] |
//! | reading values | [`decode`], [`value`] |
//! | whether bytes are one whole value, inside and out | [`check`] |
//! | values that are kept as they are encoded | [`encoded`] |
//! | the sections of a message | [`message`] |
//! | whether all sections of a message can be decoded | [`validate`] |
//! | what peers say to each other | [`performative`], [`frame`] |
//! | a connection with its sessions and links, as a state machine | [`connection`] |
//! | what a peer may use up | [`limits`] |
//! | what many connections may have together | [`shared_limit`] |
//! | a connection on a socket | [`driver`] |

pub mod check;
pub mod code;
pub mod connection;
pub mod decode;
pub mod driver;
pub mod encode;
pub mod encoded;
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
