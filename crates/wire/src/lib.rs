//! The Event Hubs protocol on top of AMQP, shared by client and server.
//!
//! Everything is a function of its arguments: no I/O, no clock. Input from a peer is read in place, within
//! bounds, and refused with an error value; secrets appear neither in `Debug` nor in errors.
//!
//! | to read about | open |
//! |---|---|
//! | an event as an AMQP message, and back | [`message`] |
//! | the addresses of links, tokens and requests | [`address`] |
//! | the start position of a receiver | [`selector`] |
//! | the annotations that the hub adds on delivery | [`annotations`] |
//! | many events in one message | [`batch`] |
//! | requests and responses: putting tokens, describing hubs | [`request_response`], [`cbs`], [`management`] |
//! | error conditions, and what a client does about them | [`condition`] |
//! | the address of a hub, and the credential for it | [`connection_string`] |
//! | keys, tokens and what they permit | [`sas`] |
//! | the names of link properties and capabilities | [`names`] |

pub mod address;
pub mod annotations;
pub mod batch;
pub mod cbs;
pub mod condition;
pub mod connection_string;
pub mod management;
pub mod message;
pub mod names;
mod peer_text;
pub mod request_response;
pub mod sas;
pub mod selector;
