//! Tests of the gateway over real sockets, or streams in memory, with Ephor's own AMQP engine or frames
//! written by hand as the client.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod authentication;
#[path = "../../../hub/tests/common/blocking_files.rs"]
mod blocking_files;
mod certificates;
mod client;
#[path = "../../../hub/tests/common/copies.rs"]
mod copies;
mod deleted_hubs_and_full_disks;
#[path = "../../../hub/tests/common/faulty_files.rs"]
mod faulty_files;
mod heartbeats;
mod idempotent_producers;
mod limits;
mod limits_of_all_connections;
mod logs_of_older_versions;
mod logs_without_validation;
mod management;
#[path = "../../../hub/tests/messages_with_older_rules/mod.rs"]
mod messages_with_older_rules;
#[path = "../../../hub/tests/messages_without_validation/mod.rs"]
mod messages_without_validation;
mod quirks;
mod raw_peer;
mod receiving;
mod sending;
mod server;
mod service_compatibility;
mod service_recordings;
mod sizes;
mod tcp_segments;
mod unauthenticated;
mod unread_answers;
