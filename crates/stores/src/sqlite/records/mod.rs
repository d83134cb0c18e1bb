//! Reads and writes the rows of one group within one transaction. It contains no ownership rules.

mod checkpoints;
mod column;
mod groups;
mod history;
mod hosts;
mod leases;
mod wakes;

use std::cell::{Cell, RefCell};

use ephor_core::ids::{GroupId, HostId};
use ephor_core::record::{Change, NoEpochLeft};
use ephor_core::store::{RefusalCause, View};
use ephor_core::time::Timestamp;
use rusqlite::Connection;

pub(super) use groups::all as groups;
pub(super) use wakes::last_wake;

use crate::record_text::Unreadable;

/// Why a transaction was not carried out.
#[derive(Debug)]
pub(super) enum TransactionError {
    Sqlite(rusqlite::Error),
    Damaged(String),
    Refused(RefusalCause, String),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<NoEpochLeft> for TransactionError {
    fn from(error: NoEpochLeft) -> Self {
        Self::Refused(RefusalCause::NoEpochLeft, error.to_string())
    }
}

pub(super) type TransactionResult<T> = Result<T, TransactionError>;

/// A host that is to be woken when the transaction is committed.
pub(super) struct Wake {
    pub(super) host: HostId,
    pub(super) number: i64,
}

/// The records of one group, at one moment of the store's clock.
pub(super) struct Records<'a> {
    connection: &'a Connection,
    group: &'a GroupId,
    /// None as long as the group has no row.
    id: Cell<Option<i64>>,
    pub(super) now: Timestamp,
    woken: RefCell<Vec<Wake>>,
}

impl<'a> Records<'a> {
    pub(super) fn of(
        connection: &'a Connection,
        group: &'a GroupId,
        now: Timestamp,
    ) -> TransactionResult<Self> {
        let id = Cell::new(groups::find(connection, group)?);
        Ok(Self { connection, group, id, now, woken: RefCell::default() })
    }

    /// The hosts that the transaction has woken.
    pub(super) fn into_woken(self) -> Vec<Wake> {
        self.woken.into_inner()
    }

    /// The group's id for reading. It matches no row if the group has none.
    fn id(&self) -> i64 {
        self.id.get().unwrap_or(0)
    }

    /// The group's id for writing. Creates the group's row; reading does not.
    fn id_to_write(&self) -> TransactionResult<i64> {
        if let Some(id) = self.id.get() {
            return Ok(id);
        }
        let id = groups::insert(self.connection, self.group)?;
        self.id.set(Some(id));
        Ok(id)
    }

    pub(super) fn view(&self) -> TransactionResult<View> {
        let mut damaged = Vec::new();
        let leases = self.leases(&mut damaged)?.iter().map(|lease| lease.seen_at(self.now)).collect();
        Ok(View {
            at: self.now,
            hosts: self.hosts(&mut damaged)?,
            leases,
            checkpoints: self.checkpoints(&mut damaged)?,
            origin: self.origin().or_else(|error| noted(error, &mut damaged))?,
            damaged,
        })
    }

    /// Writes the lease, the fence and the line of the history.
    pub(super) fn apply(&self, change: &Change) -> TransactionResult<()> {
        self.write_lease(&change.lease)?;
        self.write_fence(change.lease.partition, change.fence)?;
        self.remember(&change.history)
    }

    fn damaged(&self, what: &str, why: Unreadable) -> TransactionError {
        TransactionError::Damaged(format!("{what} of {}: {why}", self.group))
    }
}

/// Adds a damaged record to the list, so that the others are still read.
fn noted<T>(error: TransactionError, damaged: &mut Vec<String>) -> TransactionResult<Option<T>> {
    match error {
        TransactionError::Damaged(what) => {
            damaged.push(what);
            Ok(None)
        }
        other => Err(other),
    }
}
