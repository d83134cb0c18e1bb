//! A store in a SQLite file, for hosts on one machine.
//!
//! ```text
//!   SqliteStore ──queue──► one thread, one connection: session.rs          other processes
//!        │                   each call is one transaction (transactions.rs,      │
//!        │                   records/), then one fdatasync for all               ▼
//!        │                              └────────────► ephor.db, ephor.db-wal, ephor.db-shm
//!        └─ changed() ◄─waiting_hosts.rs◄── watcher.rs, every 50 ms ────────────────────┘
//! ```
//!
//! Several processes may share the file. The store acknowledges a write after it is on disk. A
//! killed process leaves no partial write. A stopped process holds the write lock only if it was
//! stopped within the microseconds of a transaction, or within the milliseconds in which it opens
//! the file; the error of the other processes then names it. After a failed sync the store
//! acknowledges nothing more; the next process that opens the file writes its log again (wal.rs).

mod clock;
mod database_paths;
mod disk_comparison;
mod disk_repair;
mod error_mapping;
mod file_modes;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod lock_holder;
mod machine;
mod open;
mod open_error;
mod os;
mod records;
mod schema;
mod session;
mod store;
mod transactions;
mod waiting_hosts;
mod wal;
mod watcher;
mod worker;

pub use clock::OtherMachine;
pub use machine::{Machine, ThisMachine};
pub use open_error::OpenError;
pub use store::{DEFAULT_BUSY_WAIT, SqliteOptions, SqliteStore};

/// The driver, version 0.41, for programs that use SQLite themselves: only one version of it can be
/// linked into a program.
#[doc(no_inline)]
pub use rusqlite;
