//! Event Hubs on AMQP: what client and server share.
//!
//! Everything is a function of its arguments: no I/O, no clock. What a peer sends is read in place,
//! within bounds, and refused with a value; secrets show neither in `Debug` nor in errors.
//!
//! | to read about | open |
//! |---|---|
//! | an event as an AMQP message, and back | [`message`] |
//! | what a link is about | [`address`] |
//! | where a receiver begins | [`selector`] |
//! | what the hub says of an event that it delivers | [`annotations`] |
//! | many events in one message | [`batch`] |
//! | requests and responses, of tokens and of descriptions | [`exchange`], [`cbs`], [`management`] |
//! | how a hub says no, and what that means | [`condition`] |
//! | where a hub is, and how to be let in | [`connection_string`] |
//! | keys, tokens and what they permit | [`sas`] |

pub mod address;
pub mod annotations;
pub mod batch;
pub mod cbs;
pub mod condition;
pub mod connection_string;
pub mod exchange;
pub mod management;
pub mod message;
mod quote;
pub mod sas;
pub mod selector;
