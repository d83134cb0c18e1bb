//! A store in a PostgreSQL database, for hosts on several machines.
//!
//! ```text
//!   PostgresStore ── read ──► connections.rs: a few connections, shared by all hosts of the process
//!        │   decide by ephor_core::record (standing.rs, changes.rs)
//!        └── write, if it is still as it was read ──► one statement, one round trip
//!
//!   changed() ◄── bells.rs ◄── listener.rs ◄── NOTIFY, a hint
//! ```
//!
//! A call is at most two round trips and holds no lock between them, so that a process that is stopped in the
//! middle of a call stands in nobody's way. A lost race is read and decided again. Nothing is left behind in a
//! session, and no statement is prepared: a pooler may give every statement another connection.
//!
//! Times are those of the database's clock. Each record says which run of the server wrote it: the times of
//! another run, before a restart or a failover, may be of another clock, and are not compared with this one's
//! (`clock.rs`).

mod bells;
mod changes;
mod clock;
mod connections;
mod durability;
mod failure;
mod hosts;
mod listener;
mod literal;
mod options;
mod renewals;
mod rows;
mod saves;
mod schema;
mod security;
mod session;
mod standing;
mod store;
mod views;

pub use options::{
    ConnectError, DEFAULT_CALL_LIMIT, DEFAULT_CONNECTIONS, DEFAULT_LOCK_WAIT, DEFAULT_SCHEMA,
    DEFAULT_TRANSACTION_IDLE, PostgresOptions,
};
pub use store::PostgresStore;

/// The driver, for whoever hands [`PostgresStore::save_in`] a transaction of its own.
pub use sqlx;
