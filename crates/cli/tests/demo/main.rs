//! Tests of `ephor demo` as a user runs it: start it, inject faults through its page, end it, and compare
//! its results with the log.
//!
//! | file | checks |
//! |---|---|
//! | `starting.rs` | its start, and the starts that it refuses |
//! | `random_faults.rs` | exact results under random faults |
//! | `repeated_deliveries.rs` | planned moves repeat nothing, and a kill no more than the events since a checkpoint |
//! | `ending.rs` | no process is left when it has ended |
//! | `tls_and_storage_account.rs` | the same over TLS with a key, and with results in a storage account |
//!
//! `running_demo.rs` is a running demo, `processes.rs` lists its processes in the system, `recount.rs` counts the
//! results again, `owner_changes.rs` counts the changes of owners by their cause.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test fails by a panic; real processes take real time"
)]

#[path = "../common/mod.rs"]
mod common;
mod ending;
mod owner_changes;
mod processes;
mod random_faults;
mod recount;
mod repeated_deliveries;
mod running_demo;
mod starting;
mod tls_and_storage_account;
