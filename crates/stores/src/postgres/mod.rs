//! A store in a PostgreSQL database, for hosts on several machines.
//!
//! ```text
//!   PostgresStore ── read ──► connections.rs: a few connections, shared by all hosts of the store
//!        │   decide by ephor_core::record (partition_state.rs, ownership_changes.rs)
//!        └── write, if it is still as it was read ──► one statement, one round trip
//!
//!   changed() ◄── waiting_hosts.rs ◄── listener.rs ◄── NOTIFY, a hint
//! ```
//!
//! A call takes at most two round trips and holds no lock between them, so that a process that is
//! stopped within a call blocks no other. After a lost race the call reads and decides again. No call
//! leaves state in a session, and no statement is prepared: a pooler may run every statement on another
//! connection.
//!
//! Times are those of the database's clock. Each record names the run of the server that wrote it. Times
//! of another run, before a restart or a failover, may be of another clock and are not compared
//! (`clock.rs`).

mod clock;
mod connections;
mod durability;
mod error_mapping;
mod hosts;
mod listener;
mod literal;
mod options;
mod ownership_changes;
mod partition_state;
mod renewals;
mod rows;
mod saves;
mod schema;
mod security;
mod session;
mod store;
mod views;
mod waiting_hosts;

pub use options::{
    DEFAULT_CALL_LIMIT, DEFAULT_CONNECTIONS, DEFAULT_LOCK_WAIT, DEFAULT_SCHEMA, DEFAULT_TRANSACTION_IDLE,
    InvalidSettings, PostgresOptions,
};
pub use store::PostgresStore;

/// The driver, version 0.9, for callers that pass a transaction to [`PostgresStore::save_in`].
#[doc(no_inline)]
pub use sqlx;
