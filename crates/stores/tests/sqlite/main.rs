//! Tests of the SQLite store.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::print_stdout, reason = "a long run prints its figures")]

mod call_encoding;
#[path = "../../../hub/tests/kill_helpers/child_process.rs"]
mod child_process;
mod clock;
mod conformance;
#[path = "../../../hub/tests/common/copies.rs"]
mod copies;
mod durability;
mod epoch_limit;
mod fixture;
mod golden;
mod kills;
mod later_releases;
mod locks;
mod old_rows;
mod opening;
mod power_failures;
#[path = "../../../hub/tests/kill_helpers/small_disk.rs"]
#[expect(dead_code, reason = "another test has more to do with it")]
mod small_disk;
mod stopped_processes;
mod two_processes;
mod unreadable_rows;
mod wakes;
