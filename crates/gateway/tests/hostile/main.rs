//! Tests of malicious peers, and of many receivers on a slow disk: offenders lose what they misuse (a link,
//! a session or the connection), other clients are not affected, and memory stays bounded.
//!
//! The tests measure the memory of this process, so only one runs at a time.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

#[path = "../../../hub/tests/common/blocking_files.rs"]
mod blocking_files;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../gateway/client.rs"]
mod client;
mod connection_flood;
#[path = "../../../hub/tests/common/copies.rs"]
mod copies;
mod incomplete_deliveries;
mod malformed_frames;
mod malformed_messages;
mod many_receivers;
mod open_file_limit;
mod process_resources;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../gateway/raw_peer.rs"]
mod raw_peer;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../gateway/server.rs"]
mod server;
mod unread_events;
mod unread_output;
