//! Runs transactions on one connection, and syncs them to disk. A transaction that writes takes the write
//! lock, reads, decides, writes and releases the lock, without waiting in between; one that only reads takes
//! no lock that a writer waits for.
//!
//! ```text
//!   BEGIN IMMEDIATE ─ read ─ decide ─ write ─ COMMIT        the write lock is held: microseconds
//!                                               └─ fdatasync, once for all calls that were waiting
//!                                                    └─ the callers get their results
//! ```
//!
//! With `synchronous = NORMAL` SQLite does not wait for the disk in COMMIT, except about once in a
//! thousand pages, when it restarts its log. A process that is stopped at a random moment therefore
//! rarely holds the lock, and every acknowledged write is still on disk.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ephor_core::ids::GroupId;
use ephor_core::store::{RefusalCause, StoreError};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::clock::{self, ClockRow, Reading};
use super::database_paths::DatabasePaths;
use super::disk_repair::{connect_without_repair, repair_and_connect};
use super::error_mapping::{self, Kind};
use super::file_modes;
use super::lock_holder;
use super::machine::Machine;
use super::open::{
    LOCK_RETRY_PAUSE, TablePolicy, bring_log_to_disk, prepare, read_clock, write_clock, write_log_again,
};
use super::open_error::OpenError;
use super::os;
use super::records::{Records, TransactionError, TransactionResult};
use super::schema::MIGRATIONS;
use super::waiting_hosts::Wakers;

/// A log of this many pages is copied into the database: SQLite's default.
const MAX_LOG_PAGES: i64 = 1_000;
/// The length of the log is checked once in this many syncs.
const SYNCS_PER_LOG_CHECK: u64 = 16;

pub(super) struct Session {
    connection: Connection,
    paths: DatabasePaths,
    identity: (u64, u64),
    machine: Arc<dyn Machine>,
    boot: String,
    machine_name: Option<String>,
    busy_wait: Duration,
    wakers: Arc<Wakers>,
    /// SQLite's log, for syncs. Closing this handle releases no lock: SQLite locks the database and the
    /// shared memory, never the log.
    log: File,
    /// Whether everything that earlier processes wrote to the log is on disk. It must be before any later
    /// write is acknowledged.
    log_is_on_disk: bool,
    syncs: u64,
    /// Whether there are commits that may not be on disk yet.
    unsynced: bool,
    /// Why this session writes nothing more: the disk may have lost a part of the log.
    broken: Option<String>,
}

impl Session {
    #[expect(clippy::disallowed_methods, reason = "a wait for a lock is real")]
    pub(super) fn open(
        paths: DatabasePaths,
        tables: TablePolicy,
        machine: Arc<dyn Machine>,
        busy_wait: Duration,
        wakers: Arc<Wakers>,
    ) -> Result<Self, OpenError> {
        let boot = machine.boot().map_err(|error| paths.other(error))?;
        let machine_name = machine.name();
        let failed = |error| OpenError::of_sqlite(error, &paths.database);
        file_modes::tighten(&paths);
        if tables == TablePolicy::CreateOrMigrate {
            file_modes::create(&paths.database);
        }
        let more = OpenFlags::SQLITE_OPEN_CREATE;
        let connection = match tables {
            TablePolicy::CreateOrMigrate => repair_and_connect(&paths, more)?,
            TablePolicy::RequireCurrent => connect_without_repair(&paths, more).map_err(failed)?,
        };
        let reading = || Reading::take(&*machine, &boot, machine_name.as_deref());
        let deadline = Instant::now() + busy_wait;
        let log = prepare(&connection, &paths, tables, &*machine, &reading, deadline)?;
        // A tool that only reads acknowledges nothing.
        let log_is_on_disk = tables == TablePolicy::CreateOrMigrate;
        if log_is_on_disk {
            bring_log_to_disk(&connection, &paths, &*machine, &log, deadline)?;
        }
        let identity = paths.identity().map_err(|error| paths.other(error))?;
        let (unsynced, broken) = (false, None);
        Ok(Self {
            connection,
            paths,
            identity,
            machine,
            boot,
            machine_name,
            busy_wait,
            wakers,
            log,
            log_is_on_disk,
            syncs: 0,
            unsynced,
            broken,
        })
    }

    /// Runs a transaction that may write. Until [`Session::sync`] returns, a power failure may undo it.
    pub(super) fn write<T>(
        &mut self,
        group: &GroupId,
        since: Instant,
        act: impl FnOnce(&Records<'_>) -> TransactionResult<T>,
    ) -> Result<T, StoreError> {
        self.check()?;
        let (transaction, clock) = self.begin(TransactionBehavior::Immediate, since)?;
        let done = write_within(transaction, &clock, group, act);
        let path = &self.paths.database;
        let (value, woken) = done.map_err(|error| error_mapping::of_transaction(error, path))?;
        if let Some(woken) = woken {
            self.unsynced = true;
            self.wakers.notify(group, woken);
        }
        Ok(value)
    }

    /// Runs a transaction that only reads. It takes no lock that a writer would wait for.
    pub(super) fn read<T>(
        &mut self,
        since: Instant,
        act: impl FnOnce(&Connection, &ClockRow) -> TransactionResult<T>,
    ) -> Result<T, StoreError> {
        self.check()?;
        let (transaction, clock) = self.begin(TransactionBehavior::Deferred, since)?;
        act(&transaction, &clock).map_err(|error| error_mapping::of_transaction(error, &self.paths.database))
    }

    /// Returns after everything that was committed here is on disk.
    pub(super) fn sync(&mut self) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        if !std::mem::take(&mut self.unsynced) {
            return Ok(());
        }
        let log = self.paths.log.display().to_string();
        let broken = match self.sync_log() {
            Ok(()) => match self.log.metadata() {
                Ok(metadata) if os::name_count(&metadata) == 0 => {
                    format!(
                        "{log} was removed while it was in use: restart this host, and never remove this file by itself"
                    )
                }
                _ => match self.keep_log_short() {
                    Ok(()) => return Ok(()),
                    Err(error) => format!(
                        "the disk did not store {}: {error}; check the disk (dmesg), stop every process that has the file \
                         open, and start again",
                        self.paths.database.display()
                    ),
                },
            },
            // A second sync would succeed without storing what the first one failed to store.
            Err(error) => format!(
                "the disk did not store {log}: {error}; check the disk (dmesg), then restart this host"
            ),
        };
        self.broken = Some(broken.clone());
        Err(broken)
    }

    #[expect(clippy::disallowed_methods, reason = "a wait for a lock is real, on a thread of its own")]
    fn sync_log(&mut self) -> std::io::Result<()> {
        if self.log_is_on_disk {
            return self.machine.sync(&self.log);
        }
        let deadline = Instant::now() + self.busy_wait;
        write_log_again(&self.connection, &self.paths, &*self.machine, &self.log, deadline)
            .and_then(|()| {
                bring_log_to_disk(&self.connection, &self.paths, &*self.machine, &self.log, deadline)
            })
            .map_err(std::io::Error::other)?;
        self.log_is_on_disk = true;
        Ok(())
    }

    /// Copies a long log into the database. SQLite's own checkpoint would hide that the disk failed to
    /// store the database, and would treat the next copy, which does not reach the disk either, as good.
    fn keep_log_short(&mut self) -> rusqlite::Result<()> {
        self.syncs += 1;
        if !self.syncs.is_multiple_of(SYNCS_PER_LOG_CHECK) {
            return Ok(());
        }
        let pages = |how: &str| {
            let sql = format!("PRAGMA wal_checkpoint({how})");
            self.connection.query_row(&sql, [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        };
        let done = pages("NOOP").and_then(|(all, copied)| match all >= MAX_LOG_PAGES && copied < all {
            true => pages("PASSIVE").map(drop),
            false => Ok(()),
        });
        match done {
            Err(error) if error_mapping::is_io(&error) => Err(error),
            // Another process copies it, or the disk is full: the log grows, and a later sync retries.
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        if let Some(why) = &self.broken {
            return Err(StoreError::Unavailable(why.clone().into()));
        }
        if self.paths.identity().ok() != Some(self.identity) {
            let path = self.paths.database.display();
            let message = format!(
                "{path} was removed or replaced while it was open, so that other processes now open another file: \
                 restart this host"
            );
            return Err(StoreError::refused(RefusalCause::Other, message));
        }
        Ok(())
    }

    /// Begins a transaction and reads the clock in it. Waits for a lock until the call is `busy_wait` old;
    /// the time in the queue counts.
    #[expect(clippy::disallowed_methods, reason = "a wait for a lock is real, on a thread of its own")]
    fn begin(
        &self,
        behavior: TransactionBehavior,
        since: Instant,
    ) -> Result<(Transaction<'_>, ClockRow), StoreError> {
        let deadline = since + self.busy_wait;
        loop {
            match self.try_to_begin(behavior) {
                Err(TransactionError::Sqlite(error)) if error_mapping::kind(&error) == Kind::Busy => {
                    if Instant::now() >= deadline {
                        return Err(self.busy());
                    }
                    std::thread::sleep(LOCK_RETRY_PAUSE);
                }
                Err(other) => return Err(error_mapping::of_transaction(other, &self.paths.database)),
                Ok(begun) => return Ok(begun),
            }
        }
    }

    fn try_to_begin(&self, behavior: TransactionBehavior) -> TransactionResult<(Transaction<'_>, ClockRow)> {
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        self.check_version(&transaction)?;
        let row = read_clock(&transaction)?.ok_or_else(|| {
            TransactionError::Damaged("the table state has no row, so the store has no clock".into())
        })?;
        let reading = Reading::take(&*self.machine, &self.boot, self.machine_name.as_deref());
        let row = clock::read(row, &reading)
            .map_err(|error| TransactionError::Refused(RefusalCause::Other, error.to_string()))?;
        Ok((transaction, row))
    }

    /// Refuses tables that a later release has migrated since they were opened.
    fn check_version(&self, transaction: &Transaction<'_>) -> TransactionResult<()> {
        let found: i64 =
            transaction.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
        match usize::try_from(found) {
            Ok(found) if found > MIGRATIONS.len() => {
                let (path, known) = (self.paths.database.clone(), MIGRATIONS.len());
                let message = OpenError::Newer { path, found, known }.to_string();
                Err(TransactionError::Refused(RefusalCause::Incompatible, message))
            }
            _ => Ok(()),
        }
    }

    fn busy(&self) -> StoreError {
        let holder = lock_holder::find(&self.paths.database, &self.paths.shared_memory);
        let holder = holder.map_or("another process holds the write lock".into(), |it| it.to_string());
        let path = self.paths.database.display();
        StoreError::Unavailable(format!("{path} is locked: {holder}").into())
    }
}

/// Returns the result and the hosts to wake; no list if nothing was written.
fn write_within<T>(
    transaction: Transaction<'_>,
    clock: &ClockRow,
    group: &GroupId,
    act: impl FnOnce(&Records<'_>) -> TransactionResult<T>,
) -> TransactionResult<(T, Option<Vec<super::records::Wake>>)> {
    let before = transaction.total_changes();
    let records = Records::of(&transaction, group, clock.now())?;
    let value = act(&records)?;
    let woken = records.into_woken();
    if transaction.total_changes() == before {
        return Ok((value, None));
    }
    write_clock(&transaction, clock)?;
    transaction.commit()?;
    Ok((value, Some(woken)))
}
