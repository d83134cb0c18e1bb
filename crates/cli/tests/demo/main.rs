//! `ephor demo`, run as a user would: started, disturbed through its page, ended, and then recounted.
//!
//! | file | checks |
//! |---|---|
//! | `begins.rs` | its start, and the starts that it refuses |
//! | `chaos.rs` | exact results under random faults |
//! | `planned.rs` | planned moves repeat nothing, and a kill no more than the events since a checkpoint |
//! | `ends.rs` | no process is left when it has ended |
//! | `secured.rs` | the same over TLS with a key, and with results in a storage account |
//!
//! `running.rs` is a running demo, `processes.rs` lists its processes in the system, `recount.rs` counts the
//! results again, `moves.rs` counts the changes of owners by their cause.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test fails by a panic; real processes take real time"
)]

mod begins;
mod chaos;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod moves;
mod planned;
mod processes;
mod recount;
mod running;
mod secured;
