//! Tests malicious peers: the offender is closed with a clear error, others are not affected, and memory
//! stays bounded.
//!
//! The tests measure the memory of this process, so only one runs at a time.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../gateway/client.rs"]
mod client;
mod crowd;
mod flood;
mod frames;
#[path = "../../../hub/tests/common/gated.rs"]
mod gated;
mod greedy;
mod incomplete;
mod messages;
mod process;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../gateway/raw.rs"]
mod raw;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../gateway/server.rs"]
mod server;
mod slow_readers;
mod unread;
