//! Tests of the hub, one file per subject. One test binary, to save build time.
//!
//! Tests that start processes belong to `durability`: a process that is being started holds copies of all open files,
//! and those of a full disk must be closed at once.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod clock_jump_durability;
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
mod full_disk_at_start;
mod golden_folders;
mod health;
mod hubs_and_groups;
mod logs_of_older_versions;
mod logs_without_validation;
#[path = "../messages_with_older_rules/mod.rs"]
mod messages_with_older_rules;
#[path = "../messages_without_validation/mod.rs"]
mod messages_without_validation;
mod reading;
mod retention_while_off;
mod sending;
#[path = "../kill_helpers/small_disk.rs"]
mod small_disk;
mod source_conformance;
mod stalled_disk;
