//! Tests of the hub, one file per subject. One program, so that it is built once.
//!
//! Tests that start processes belong to `durability`: a process that is being started holds copies of all open files,
//! and those of a full disk must be closed at once.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod clock_jumps;
mod clocked_hub;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/copies.rs"]
mod copies;
mod disk_reserve;
mod emulator_config;
mod epochs;
mod full_disk;
mod golden;
mod health;
mod hubs_and_groups;
mod jump_on_disk;
mod off_most_of_the_day;
mod older_rules;
#[path = "../older_rules_messages/mod.rs"]
mod older_rules_messages;
mod reading;
mod sending;
#[path = "../kill_parts/small_disk.rs"]
mod small_disk;
mod source;
mod stalled_disk;
mod unvalidated;
#[path = "../unvalidated_messages/mod.rs"]
mod unvalidated_messages;
