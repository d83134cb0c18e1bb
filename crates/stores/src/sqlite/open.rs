//! Prepares a database connection: SQLite's settings, the write-ahead log, the tables, and the store's
//! clock.

use std::fs::File;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use super::clock::{self, ClockRow, Reading};
use super::database_paths::DatabasePaths;
use super::disk_comparison::DiskComparison;
use super::lock_holder;
use super::machine::Machine;
use super::open_error::OpenError;
use super::schema::{self, Contents, MIGRATIONS};
use super::wal;

/// The pause before the next attempt to take a lock. Locks are held for less than this.
pub(super) const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// SQLite truncates a log that is longer than this when it restarts it.
const MAX_LOG_BYTES: i64 = 16 << 20;

/// How to treat tables that are missing or of an earlier release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TablePolicy {
    /// Create or migrate them.
    CreateOrMigrate,
    /// Refuse the file.
    RequireCurrent,
}

/// Connects to the file. With `SQLITE_OPEN_CREATE` in `more` a missing file is created.
pub(super) fn connect(paths: &DatabasePaths, more: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let connection = Connection::open_with_flags(&paths.database, flags)?;
    // `Session::begin` waits for locks.
    connection.busy_timeout(Duration::ZERO)?;
    // The last connection would otherwise lock all others out to copy the log when it closes; if its
    // process were stopped then, they would wait for ever.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Sets SQLite's options. This reads the file, and fails while another process creates it.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", MAX_LOG_BYTES)?;
    // `Session::keep_log_short` does that.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "trusted_schema", false)
}

/// Prepares a connection and its file, waiting for locks until `deadline`. Returns a handle of the log,
/// which reports every later error of the disk. Earlier writes to the log are on disk after [`bring_log_to_disk`].
#[expect(clippy::disallowed_methods, reason = "opening a file is real, and blocks the caller by contract")]
pub(super) fn prepare(
    connection: &Connection,
    paths: &DatabasePaths,
    tables: TablePolicy,
    machine: &dyn Machine,
    reading: &dyn Fn() -> Reading,
    deadline: Instant,
) -> Result<File, OpenError> {
    let log = loop {
        match try_to_prepare(connection, paths, tables, machine, reading) {
            Err(OpenError::Busy { .. }) if Instant::now() < deadline => std::thread::sleep(LOCK_RETRY_PAUSE),
            Err(OpenError::Busy { path, holder }) => {
                let found = lock_holder::find(&paths.database, &paths.shared_memory);
                let holder = found.map_or(holder, |holder| holder.to_string());
                return Err(OpenError::Busy { path, holder });
            }
            Err(other) => return Err(other),
            Ok(log) => break log,
        }
    };
    // A power failure must lose neither the tables nor the names of the files.
    let durable = File::open(paths.folder()).and_then(|folder| folder.sync_all());
    durable.map(|()| log).map_err(|error| paths.other(error))
}

/// Syncs the log, and compares it with the disk. Fails if they differ.
#[expect(clippy::disallowed_methods, reason = "opening a file is real, and blocks the caller by contract")]
pub(super) fn bring_log_to_disk(
    connection: &Connection,
    paths: &DatabasePaths,
    machine: &dyn Machine,
    log: &File,
    deadline: Instant,
) -> Result<(), OpenError> {
    let io_error = |error| paths.other(error);
    machine.sync(log).map_err(io_error)?;
    let Some(mut direct) = DiskComparison::open(&paths.log).map_err(io_error)? else { return Ok(()) };
    while !direct.matches_disk(log).map_err(io_error)? {
        // Other processes may have written meanwhile: compare again under the write lock.
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Ok(_nobody_writes) => {
                machine.sync(log).map_err(io_error)?;
                let kept = direct.matches_disk(log).map_err(io_error)?;
                return if kept {
                    Ok(())
                } else {
                    Err(OpenError::NeedsExclusiveRepair { path: paths.log.clone() })
                };
            }
            Err(error) => match OpenError::of_sqlite(error, &paths.database) {
                OpenError::Busy { .. } if Instant::now() < deadline => std::thread::sleep(LOCK_RETRY_PAUSE),
                other => return Err(other),
            },
        }
    }
    Ok(())
}

fn try_to_prepare(
    connection: &Connection,
    paths: &DatabasePaths,
    tables: TablePolicy,
    machine: &dyn Machine,
    reading: &dyn Fn() -> Reading,
) -> Result<File, OpenError> {
    let path = &paths.database;
    let failed = |error| OpenError::of_sqlite(error, path);
    configure(connection).map_err(failed)?;
    // In one transaction, because another process may be creating the tables.
    let look = Transaction::new_unchecked(connection, TransactionBehavior::Deferred).map_err(failed)?;
    check_contents(schema::contents(&look).map_err(failed)?, tables, paths)?;
    drop(look);
    if connection.is_readonly("main").map_err(failed)? {
        return Err(OpenError::ReadOnly { path: path.clone() });
    }
    let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
    let mode = mode.map_err(failed)?;
    if mode != "wal" {
        let source = format!("SQLite offers no write-ahead log here: journal_mode is {mode}").into();
        return Err(OpenError::Other { path: path.clone(), source });
    }
    let transaction =
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(failed)?;
    let log = check_log(paths, machine, tables == TablePolicy::CreateOrMigrate)?;
    // Another process may have created or migrated the tables since the first check.
    let version = check_contents(schema::contents(&transaction).map_err(failed)?, tables, paths)?;
    schema::migrate(&transaction, version, MIGRATIONS).map_err(failed)?;
    let row = read_clock(&transaction).map_err(failed)?;
    let row = clock::open(row, &reading())
        .map_err(|source| OpenError::OtherMachine { path: path.clone(), source })?;
    write_clock(&transaction, &row).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    check_health(connection, paths)?;
    Ok(log)
}

/// Opens the log, and checks that every frame that SQLite counts can be read. The caller holds the write
/// lock. The log is opened first, because its handle reports every later error of the disk. With
/// `write_again` its frames are written again, in case an earlier sync failed.
fn check_log(paths: &DatabasePaths, machine: &dyn Machine, write_again: bool) -> Result<File, OpenError> {
    let log = File::options().read(true).write(true).open(&paths.log).map_err(|error| paths.other(error))?;
    // A connection inside a transaction gets no count.
    let other =
        connect(paths, OpenFlags::empty()).map_err(|error| OpenError::of_sqlite(error, &paths.database))?;
    let counted = other.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get::<_, i64>(1));
    let counted = counted.map_err(|error| OpenError::of_sqlite(error, &paths.database))?;
    let writer: &dyn Fn(&[u8], u64) -> std::io::Result<()> = match write_again {
        true => &|bytes, offset| machine.write_again(&log, bytes, offset),
        false => &|_, _| Ok(()),
    };
    let found = wal::walk(&log, writer).map_err(|error| paths.other(error))?;
    // A process that was killed before its commit leaves more frames.
    match u64::try_from(counted) {
        Ok(counted) if found < counted => Err(OpenError::LogLost { path: paths.log.clone(), found, counted }),
        _ => Ok(log),
    }
}

/// Writes the log again through an open handle, under the write lock. Waits for that lock until `deadline`.
#[expect(clippy::disallowed_methods, reason = "a wait for a lock is real")]
pub(super) fn write_log_again(
    connection: &Connection,
    paths: &DatabasePaths,
    machine: &dyn Machine,
    log: &File,
    deadline: Instant,
) -> Result<(), OpenError> {
    loop {
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Ok(_nobody_writes) => {
                let writer = |bytes: &[u8], offset| machine.write_again(log, bytes, offset);
                return wal::walk(log, &writer).map(drop).map_err(|error| paths.other(error));
            }
            Err(error) => match OpenError::of_sqlite(error, &paths.database) {
                OpenError::Busy { .. } if Instant::now() < deadline => std::thread::sleep(LOCK_RETRY_PAUSE),
                other => return Err(other),
            },
        }
    }
}

fn check_contents(
    contents: Contents,
    tables: TablePolicy,
    paths: &DatabasePaths,
) -> Result<usize, OpenError> {
    let path = paths.database.clone();
    let known = MIGRATIONS.len();
    match contents {
        Contents::Nothing if tables == TablePolicy::RequireCurrent => Err(OpenError::Nothing { path }),
        Contents::Nothing => Ok(0),
        Contents::Ours(found) if found < known && tables == TablePolicy::RequireCurrent => {
            Err(OpenError::Older { path, found, known })
        }
        Contents::Ours(version) if version <= known => Ok(version),
        Contents::Ours(found) => Err(OpenError::Newer { path, found, known }),
        Contents::OtherProgram => Err(OpenError::OtherProgram { path }),
    }
}

fn check_health(connection: &Connection, paths: &DatabasePaths) -> Result<(), OpenError> {
    let path = &paths.database;
    let health = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match health.map_err(|error| OpenError::of_sqlite(error, path))?.as_str() {
        "ok" => Ok(()),
        what => Err(OpenError::Corrupt { path: path.clone(), what: what.to_owned() }),
    }
}

pub(super) fn read_clock(connection: &Connection) -> rusqlite::Result<Option<ClockRow>> {
    let mut statement = connection.prepare_cached("SELECT boot, machine, base, seen, wall FROM state")?;
    let row = statement.query_row([], |row| {
        Ok(ClockRow {
            boot: row.get("boot")?,
            machine: row.get("machine")?,
            base: row.get("base")?,
            seen: row.get("seen")?,
            wall: row.get("wall")?,
        })
    });
    row.optional()
}

pub(super) fn write_clock(connection: &Connection, row: &ClockRow) -> rusqlite::Result<()> {
    let sql = "INSERT INTO state (id, boot, machine, base, seen, wall) VALUES (1, ?1, ?2, ?3, ?4, ?5) \
               ON CONFLICT (id) DO UPDATE SET boot = excluded.boot, machine = excluded.machine, \
               base = excluded.base, seen = excluded.seen, wall = excluded.wall";
    let values = params![row.boot, row.machine, row.base, row.seen, row.wall];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}
