//! The crash model, which the tests of crashes and of bit rot share: a workload, its acknowledgements, and
//! the check that they hold.
//!
//!   script ─► process run: a namespace on watched files, until it ends ─► model: what was acknowledged
//!                 end: a power failure, or a killed process ─► the next process run checks the model
//!
//! | file | owns |
//! |---|---|
//! | `committer_clock.rs` | the clock: it also knows when a committer is idle, and can hold it back |
//! | `watched_files.rs` | the files: they count steps, end with a process, and let readers read before a sync |
//! | `event.rs` | event bodies that identify their event |
//! | `acknowledged.rs` | the acknowledgements, and whether they are kept |
//! | `script.rs` | the operations of a process run; the variants |
//! | `process_run.rs` | one run of a process |
//! | `reading.rs` | reads all events of a hub |
//! | `crash_point.rs` | one crash: its step, and the state after it |
//! | `workers.rs` | runs crashes in parallel |
//! | `folder.rs` | a small data folder to damage, and its checks |
#![allow(dead_code, unreachable_pub, reason = "each test uses its own part")]

pub mod acknowledged;
pub mod committer_clock;
pub mod crash_point;
pub mod event;
pub mod folder;
pub mod process_run;
pub mod reading;
pub mod script;
pub mod watched_files;
pub mod workers;

/// The result of a check; the error says what went wrong.
pub type Checked<T = ()> = Result<T, String>;
