//! One connection and its transactions: each step takes the lock, decides, writes and gives it back, without
//! waiting for anything in between.
//!
//!   BEGIN IMMEDIATE ─ read ─ decide ─ write ─ COMMIT        the write lock is held: microseconds
//!                                               └─ fdatasync, once for all steps that were waiting
//!                                                    └─ the callers are answered
//!
//! With `synchronous = NORMAL` SQLite itself does not wait for the disk in COMMIT. (It does once in about a
//! thousand pages, when it begins its log anew.) So a process that is stopped at a random moment hardly ever
//! holds the lock, and what was answered is on disk all the same.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ephor_core::ids::GroupId;
use ephor_core::store::StoreError;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::alone::{connect_in_turn, mend_and_connect};
use super::bells::Bells;
use super::clock::{self, ClockRow, Reading};
use super::failure::{self, Kind};
use super::holder;
use super::machine::Machine;
use super::modes;
use super::open::{NEXT_TRY, Tables, prepare, read_clock, settle, write_clock, write_log_again};
use super::open_error::OpenError;
use super::place::Place;
use super::records::{Records, StepError, StepResult};
use super::schema::MIGRATIONS;

/// From so many pages on the log is copied into the database: SQLite's own figure.
const LONG_LOG: i64 = 1_000;
/// Whether it has grown so long is looked up once in so many syncs.
const SYNCS_BETWEEN_LOOKS: u64 = 16;

pub(super) struct Session {
    connection: Connection,
    place: Place,
    identity: (u64, u64),
    machine: Arc<dyn Machine>,
    boot: String,
    machine_name: Option<String>,
    busy_wait: Duration,
    bells: Arc<Bells>,
    /// SQLite's log, to bring it to disk. Closing this handle takes no lock away: SQLite locks the database
    /// and the shared memory, never the log.
    log: File,
    /// Whether all that was in the log before is on disk: so it must be before anything behind it is acknowledged.
    settled: bool,
    syncs: u64,
    /// Whether something is committed that is not yet known to be on disk.
    unsynced: bool,
    /// Why nothing more is written: what the disk has lost of the log cannot be told any more.
    broken: Option<String>,
}

impl Session {
    #[expect(clippy::disallowed_methods, reason = "a wait for a lock is real")]
    pub(super) fn open(
        place: Place,
        tables: Tables,
        machine: Arc<dyn Machine>,
        busy_wait: Duration,
        bells: Arc<Bells>,
    ) -> Result<Self, OpenError> {
        let boot = machine.boot().map_err(|error| place.other(error))?;
        let machine_name = machine.name();
        let failed = |error| OpenError::of_sqlite(error, &place.database);
        modes::tighten(&place);
        if tables == Tables::Prepared {
            modes::create(&place.database);
        }
        let more = OpenFlags::SQLITE_OPEN_CREATE;
        let connection = match tables {
            Tables::Prepared => mend_and_connect(&place, more)?,
            Tables::AsTheyAre => connect_in_turn(&place, more).map_err(failed)?,
        };
        let reading = || Reading::take(&*machine, &boot, machine_name.as_deref());
        let deadline = Instant::now() + busy_wait;
        let log = prepare(&connection, &place, tables, &*machine, &reading, deadline)?;
        // A tool that only looks has nothing to acknowledge.
        let settled = tables == Tables::Prepared;
        if settled {
            settle(&connection, &place, &*machine, &log, deadline)?;
        }
        let identity = place.identity().map_err(|error| place.other(error))?;
        let (unsynced, broken) = (false, None);
        Ok(Self {
            connection,
            place,
            identity,
            machine,
            boot,
            machine_name,
            busy_wait,
            bells,
            log,
            settled,
            syncs: 0,
            unsynced,
            broken,
        })
    }

    /// A step that may write. It holds until [`Session::sync`] that a power failure undoes it.
    pub(super) fn write<T>(
        &mut self,
        group: &GroupId,
        since: Instant,
        act: impl FnOnce(&Records<'_>) -> StepResult<T>,
    ) -> Result<T, StoreError> {
        self.check()?;
        let (transaction, clock) = self.begin(TransactionBehavior::Immediate, since)?;
        let done = write_within(transaction, &clock, group, act);
        let path = &self.place.database;
        let (value, woken) = done.map_err(|error| failure::of_step(error, path))?;
        if let Some(woken) = woken {
            self.unsynced = true;
            self.bells.ring(group, woken);
        }
        Ok(value)
    }

    /// A step that only reads. It takes no lock that a writer would wait for.
    pub(super) fn read<T>(
        &mut self,
        since: Instant,
        act: impl FnOnce(&Connection, &ClockRow) -> StepResult<T>,
    ) -> Result<T, StoreError> {
        self.check()?;
        let (transaction, clock) = self.begin(TransactionBehavior::Deferred, since)?;
        act(&transaction, &clock).map_err(|error| failure::of_step(error, &self.place.database))
    }

    /// Returns when everything that was committed here is on disk.
    pub(super) fn sync(&mut self) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        if !std::mem::take(&mut self.unsynced) {
            return Ok(());
        }
        let log = self.place.log.display().to_string();
        let broken = match self.bring_to_disk() {
            Ok(()) => match self.log.metadata() {
                Ok(metadata) if metadata.nlink() == 0 => {
                    format!(
                        "{log} was removed while it was in use: never remove it by itself; restart this host"
                    )
                }
                _ => match self.keep_log_short() {
                    Ok(()) => return Ok(()),
                    Err(error) => format!(
                        "the disk did not store {}: {error}; look at the disk (dmesg), then end every process that has the \
                         file open, and start again",
                        self.place.database.display()
                    ),
                },
            },
            // A second try would succeed without having stored what the first one failed to store.
            Err(error) => format!(
                "the disk did not store {log}: {error}; look at the disk (dmesg), then restart this host"
            ),
        };
        self.broken = Some(broken.clone());
        Err(broken)
    }

    #[expect(clippy::disallowed_methods, reason = "a wait for a lock is real, on a thread of its own")]
    fn bring_to_disk(&mut self) -> std::io::Result<()> {
        if self.settled {
            return self.machine.sync(&self.log);
        }
        let deadline = Instant::now() + self.busy_wait;
        write_log_again(&self.connection, &self.place, &*self.machine, &self.log, deadline)
            .and_then(|()| settle(&self.connection, &self.place, &*self.machine, &self.log, deadline))
            .map_err(std::io::Error::other)?;
        self.settled = true;
        Ok(())
    }

    /// Copies a log that has grown long into the database, as SQLite would do by itself: but it would not tell that the disk failed
    /// to store the database, and take the next copy, which does not reach the disk either, for a good one.
    fn keep_log_short(&mut self) -> rusqlite::Result<()> {
        self.syncs += 1;
        if !self.syncs.is_multiple_of(SYNCS_BETWEEN_LOOKS) {
            return Ok(());
        }
        let pages = |how: &str| {
            let sql = format!("PRAGMA wal_checkpoint({how})");
            self.connection.query_row(&sql, [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        };
        let done = pages("NOOP").and_then(|(all, copied)| match all >= LONG_LOG && copied < all {
            true => pages("PASSIVE").map(drop),
            false => Ok(()),
        });
        match done {
            Err(error) if failure::is_io(&error) => Err(error),
            // Somebody else is at it, or there is no room: then the log grows, and it is tried again.
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        if let Some(why) = &self.broken {
            return Err(StoreError::Unavailable(why.clone().into()));
        }
        if self.place.identity().ok() != Some(self.identity) {
            let path = self.place.database.display();
            let message = format!(
                "{path} was removed or replaced while it was open, and whoever opens it now sees another file: \
                 restart this host"
            );
            return Err(StoreError::Refused { message });
        }
        Ok(())
    }

    /// Begins a transaction and reads the clock in it. Waits for a lock, at most until the call is as old as
    /// `busy_wait`: a call that waited in the queue has waited already.
    #[expect(clippy::disallowed_methods, reason = "a wait for a lock is real, on a thread of its own")]
    fn begin(
        &self,
        behavior: TransactionBehavior,
        since: Instant,
    ) -> Result<(Transaction<'_>, ClockRow), StoreError> {
        let deadline = since + self.busy_wait;
        loop {
            match self.try_to_begin(behavior) {
                Err(StepError::Sqlite(error)) if failure::kind(&error) == Kind::Busy => {
                    if Instant::now() >= deadline {
                        return Err(self.busy());
                    }
                    std::thread::sleep(NEXT_TRY);
                }
                Err(other) => return Err(failure::of_step(other, &self.place.database)),
                Ok(begun) => return Ok(begun),
            }
        }
    }

    fn try_to_begin(&self, behavior: TransactionBehavior) -> StepResult<(Transaction<'_>, ClockRow)> {
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        self.check_version(&transaction)?;
        let row = read_clock(&transaction)?
            .ok_or_else(|| StepError::Damaged("the store has lost its clock, in the table state".into()))?;
        let reading = Reading::take(&*self.machine, &self.boot, self.machine_name.as_deref());
        let row = clock::read(row, &reading).map_err(|error| StepError::Refused(error.to_string()))?;
        Ok((transaction, row))
    }

    /// Refuses to go on with tables that a later release has brought up to date since they were opened.
    fn check_version(&self, transaction: &Transaction<'_>) -> StepResult<()> {
        let found: i64 =
            transaction.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
        match usize::try_from(found) {
            Ok(found) if found > MIGRATIONS.len() => {
                let (path, known) = (self.place.database.clone(), MIGRATIONS.len());
                Err(StepError::Refused(OpenError::Newer { path, found, known }.to_string()))
            }
            _ => Ok(()),
        }
    }

    fn busy(&self) -> StoreError {
        let holder = holder::find(&self.place.database, &self.place.shared_memory);
        let holder = holder.map_or("another process holds the write lock".into(), |it| it.to_string());
        let path = self.place.database.display();
        StoreError::Unavailable(format!("{path} is locked: {holder}").into())
    }
}

/// The step's answer, and whom to wake; nobody at all if nothing was written.
fn write_within<T>(
    transaction: Transaction<'_>,
    clock: &ClockRow,
    group: &GroupId,
    act: impl FnOnce(&Records<'_>) -> StepResult<T>,
) -> StepResult<(T, Option<Vec<super::records::Wake>>)> {
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
