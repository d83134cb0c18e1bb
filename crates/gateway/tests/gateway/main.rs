//! Tests of the gateway over real sockets, with our own AMQP engine as the client.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod access;
mod answers;
mod certificates;
mod client;
#[path = "../../../hub/tests/common/faulty_files.rs"]
mod faulty_files;
#[path = "../../../hub/tests/common/gated.rs"]
mod gated;
mod gone;
mod heartbeats;
mod limits;
mod numbered;
mod old_log;
mod older_rules;
#[path = "../../../hub/tests/older_rules_messages/mod.rs"]
mod older_rules_messages;
mod quirks;
mod raw;
mod receiving;
mod requests;
mod sending;
mod server;
mod totals;
mod unauthenticated;
#[path = "../../../hub/tests/unvalidated_messages/mod.rs"]
mod unvalidated_messages;
