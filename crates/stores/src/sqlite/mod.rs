//! A store in a SQLite file, for hosts on one machine.
//!
//! ```text
//!   SqliteStore ──queue──► one thread, one connection: session.rs          other processes
//!        │                   each call is one transaction (steps.rs,             │
//!        │                   records/), then one fdatasync for all               ▼
//!        │                              └────────────► ephor.db, ephor.db-wal, ephor.db-shm
//!        └─ changed() ◄──bells.rs◄── watcher.rs, every 50 ms ────────────────────┘
//! ```
//!
//! Several processes may share the file. What was answered is on disk; a process that is killed leaves nothing
//! half done, and one that is stopped holds the write lock only if it was stopped within the microseconds of a
//! transaction, or the milliseconds in which it opens the file: then the others are told who it is. After a sync
//! that failed nothing more is acknowledged; whoever opens the file next writes its log again (wal.rs).

mod alone;
mod bells;
mod clock;
mod direct;
mod failure;
mod filesystem;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod holder;
mod machine;
mod modes;
mod open;
mod open_error;
mod place;
mod records;
mod schema;
mod session;
mod steps;
mod store;
mod wal;
mod watcher;
mod worker;

pub use clock::OtherMachine;
pub use machine::{Machine, ThisMachine};
pub use open_error::OpenError;
pub use store::{DEFAULT_BUSY_WAIT, SqliteOptions, SqliteStore};
