//! Converts events to AMQP messages and back.
//!
//! | part of an event | part of the message |
//! |---|---|
//! | body | one data section |
//! | properties | application-properties |
//! | system properties with the name of a field ([`FIELDS`]) | that field of the properties section |
//! | other system properties | message-annotations, under a symbol |
//! | partition key, sequence number, offset, time | none: the hub keeps them beside the message |
//!
//! Values keep their kind, not their width: an `Int` is written as a long and read from any signed number. A
//! value that AMQP cannot represent is refused ([`Unencodable`]) rather than changed.

mod decode;
mod encode;
mod fields;

pub use decode::{Decoded, decode, decode_leniently};
pub use encode::{Unencodable, encode, size_bound};
pub use ephor_amqp::Malformed;
pub use fields::FIELDS;
