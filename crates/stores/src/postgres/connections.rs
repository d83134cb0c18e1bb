//! A few connections, opened when they are needed and lent to one call at a time.
//!
//! A connection comes back only if its call went well. What was cut off in the middle of an answer, by an error
//! or because nobody waits for it any more, is closed and never used again: the answer of one call must not be
//! read by another.

use std::sync::{Mutex, PoisonError};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Anything.
    Usual,
    /// What a host must not be late with: renewals and heartbeats. However many others wait, one connection more is theirs.
    Urgent,
}

pub(super) struct Connections {
    options: PgConnectOptions,
    permits: Semaphore,
    /// For what is urgent, where no other is free.
    reserved: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
}

/// A connection that is ours until it is dropped or given back.
pub(super) struct Lent<'a> {
    pub(super) connection: PgConnection,
    /// It has served before: the server may have closed it since.
    pub(super) reused: bool,
    home: &'a Connections,
    _permit: SemaphorePermit<'a>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, most: usize) -> Self {
        Self { options, permits: Semaphore::new(most), reserved: Semaphore::new(1), idle: Mutex::default() }
    }

    pub(super) async fn take(&self, purpose: Purpose) -> Result<Lent<'_>, sqlx::Error> {
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
        Ok(Lent { connection, reused, home: self, _permit: permit })
    }

    /// Closes those that nobody uses: one was found dead, and the others will be, too.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Lent<'_> {
    pub(super) fn give_back(self) {
        self.home.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection);
    }
}
