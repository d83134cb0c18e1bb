//! A small connection pool. It opens connections on demand and gives each to one call at a time. Renewals and
//! heartbeats have a reserved connection, and so have views and changes of ownership.
//!
//! A connection returns to the pool only after its call has succeeded. After an error, or if the call
//! was dropped, the connection is closed: no call may read the answer of another.

use std::sync::{Mutex, PoisonError};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Any call.
    Usual,
    /// Renewals and heartbeats, which must be on time. One connection is reserved for them.
    Urgent,
    /// Views and changes of ownership, by which hosts answer each other. They may wait for a row that a
    /// user's transaction holds, so they have a reserved connection of their own.
    Ownership,
}

pub(super) struct Connections {
    options: PgConnectOptions,
    permits: Semaphore,
    /// For urgent calls while no other connection is free.
    for_urgent: Semaphore,
    /// For views and changes of ownership while no other connection is free.
    for_ownership: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
}

/// A connection that a call owns until it is dropped or returned.
pub(super) struct PooledConnection<'a> {
    pub(super) connection: PgConnection,
    /// It was idle in the pool: the server may have closed it.
    pub(super) reused: bool,
    pool: &'a Connections,
    _permit: SemaphorePermit<'a>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, max: usize) -> Self {
        let (permits, for_urgent, for_ownership) =
            (Semaphore::new(max), Semaphore::new(1), Semaphore::new(1));
        Self { options, permits, for_urgent, for_ownership, idle: Mutex::default() }
    }

    pub(super) async fn take(&self, purpose: Purpose) -> Result<PooledConnection<'_>, sqlx::Error> {
        let reserved = match purpose {
            Purpose::Usual => None,
            Purpose::Urgent => Some(&self.for_urgent),
            Purpose::Ownership => Some(&self.for_ownership),
        };
        let permit = match (reserved, self.permits.try_acquire()) {
            (_, Ok(permit)) => Ok(permit),
            (Some(reserved), Err(_)) => reserved.acquire().await,
            (None, Err(_)) => self.permits.acquire().await,
        };
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (connection, reused) = match idle {
            Some(connection) => (connection, true),
            None => (self.options.connect().await?, false),
        };
        Ok(PooledConnection { connection, reused, pool: self, _permit: permit })
    }

    /// Closes all idle connections: one was dead, so the others probably are, too.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl PooledConnection<'_> {
    pub(super) fn return_to_pool(self) {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection);
    }
}
