//! The SQLite store.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::print_stdout, reason = "a long run prints its figures")]

mod clock;
mod conformance;
#[path = "../../../hub/tests/common/copies.rs"]
mod copies;
mod disk;
mod golden;
mod kills;
mod locks;
#[path = "../../../hub/tests/kill_parts/child_process.rs"]
mod myself;
mod opening;
mod power;
mod remote;
mod rows;
#[path = "../../../hub/tests/kill_parts/small_disk.rs"]
#[expect(dead_code, reason = "another test has more to do with it")]
mod small_disk;
mod stops;
mod wakes;
mod wire;
mod world;
