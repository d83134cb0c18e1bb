//! Tests of the commands except `demo`, run as a user would. One program, so that it is built once.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod carry;
#[path = "../common/mod.rs"]
mod common;
mod dev;
#[allow(dead_code, reason = "more than these tests need")]
#[path = "../../../stores/tests/shared/raw.rs"]
mod raw;
mod secrets;
mod send;
mod starts;
mod tail;
mod tools;
