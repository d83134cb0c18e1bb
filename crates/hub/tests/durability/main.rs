//! Tests that acknowledged events survive crashes, kills, restarts and disk faults, that only retention
//! deletes them, that one process opens a folder, and that all `Files` behave alike. One test binary, to
//! save build time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by a panic, and a long run prints its figures"
)]

mod bit_rot;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/copies.rs"]
mod copies;
mod crash_model;
mod crashes;
mod failed_sync;
mod faulty_file_system;
mod files_conformance;
mod freed_segments;
#[path = "../kill_helpers/mod.rs"]
mod kill_helpers;
mod kills;
mod restart;
mod retention;
mod second_process;
