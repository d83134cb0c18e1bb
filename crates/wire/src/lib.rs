//! Event Hubs on AMQP: what client and server share.
//!
//! | to read about | open |
//! |---|---|
//! | an event as an AMQP message, and back | [`message`] |

pub mod message;
