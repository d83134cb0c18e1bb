//! Tests of the commands except `demo`, run as a user would. One test binary, to save build time.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod checkpoint_export_and_import;
#[path = "../common/mod.rs"]
mod common;
mod dev;
mod dev_failing_starts;
#[allow(dead_code, reason = "more than these tests need")]
#[path = "../../../stores/tests/shared/raw_blobs.rs"]
mod raw_blobs;
mod secrets;
mod send;
mod store_commands;
mod tail;
