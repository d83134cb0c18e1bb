//! The gateway, over real sockets, with our own engine as the client.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod access;
mod client;
mod gone;
mod limits;
mod old_log;
mod quirks;
mod raw;
mod receiving;
mod requests;
mod sending;
mod server;
mod strangers;
#[path = "../../../hub/tests/unvalidated_messages/mod.rs"]
mod unvalidated_messages;
