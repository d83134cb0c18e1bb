//! A small connection pool. It opens connections on demand and gives each to one call at a time.
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
}

pub(super) struct Connections {
    options: PgConnectOptions,
    permits: Semaphore,
    /// For urgent calls while no other connection is free.
    reserved: Semaphore,
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
    pub(super) fn new(options: PgConnectOptions, most: usize) -> Self {
        Self { options, permits: Semaphore::new(most), reserved: Semaphore::new(1), idle: Mutex::default() }
    }

    pub(super) async fn take(&self, purpose: Purpose) -> Result<PooledConnection<'_>, sqlx::Error> {
        let permit = match purpose {
            Purpose::Usual => self.permits.acquire().await,
            Purpose::Urgent => match self.permits.try_acquire() {
                Ok(permit) => Ok(permit),
                Err(_) => self.reserved.acquire().await,
            },
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
