//! From a path to a connection that is ready: settings, tables, and the store's clock.

use std::fs::File;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use super::clock::{self, ClockRow, Reading};
use super::direct::Direct;
use super::holder;
use super::machine::Machine;
use super::open_error::OpenError;
use super::place::Place;
use super::schema::{self, Contents, MIGRATIONS};
use super::wal;

/// How long to wait before the next try for a lock: it is held for less than this.
pub(super) const NEXT_TRY: Duration = Duration::from_millis(1);

/// SQLite gives the room of a log that has grown beyond this back to the disk when it begins it anew.
const LOG_BYTES_KEPT: i64 = 16 << 20;

/// What becomes of tables that are not there, or of an earlier release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// They are made, or brought up to date.
    Prepared,
    /// Nothing: such a file is refused.
    AsTheyAre,
}

/// A connection to the file, which is created if it is not there and `more` says so.
pub(super) fn connect(place: &Place, more: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let connection = Connection::open_with_flags(&place.database, flags)?;
    // Waiting is our own business: see `Session::begin`.
    connection.busy_timeout(Duration::ZERO)?;
    // Whoever closes last would lock everybody out to tidy up, and if it were stopped then, for ever.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// SQLite looks into the file for this: it fails while another process creates it.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    // That is `Session::keep_log_short`'s.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "trusted_schema", false)
}

/// Brings a connection and its file into order, waiting for locks until `deadline`. Returns the log: whatever becomes of it on
/// its way to the disk from now on, this handle hears of it. What was there before is on disk after [`settle`].
#[expect(clippy::disallowed_methods, reason = "opening a file is real, and blocks the caller by contract")]
pub(super) fn prepare(
    connection: &Connection,
    place: &Place,
    tables: Tables,
    machine: &dyn Machine,
    reading: &dyn Fn() -> Reading,
    deadline: Instant,
) -> Result<File, OpenError> {
    let log = loop {
        match try_to_prepare(connection, place, tables, machine, reading) {
            Err(OpenError::Busy { .. }) if Instant::now() < deadline => std::thread::sleep(NEXT_TRY),
            Err(OpenError::Busy { path, holder }) => {
                let found = holder::find(&place.database, &place.shared_memory);
                let holder = found.map_or(holder, |holder| holder.to_string());
                return Err(OpenError::Busy { path, holder });
            }
            Err(other) => return Err(other),
            Ok(log) => break log,
        }
    };
    // What is created is found again after a power failure: the names as well as the tables.
    let durable = File::open(place.folder()).and_then(|folder| folder.sync_all());
    durable.map(|()| log).map_err(|error| place.other(error))
}

/// Brings the log to disk, and returns only if it is there.
#[expect(clippy::disallowed_methods, reason = "opening a file is real, and blocks the caller by contract")]
pub(super) fn settle(
    connection: &Connection,
    place: &Place,
    machine: &dyn Machine,
    log: &File,
    deadline: Instant,
) -> Result<(), OpenError> {
    let told = |error| place.other(error);
    machine.sync(log).map_err(told)?;
    let Some(mut direct) = Direct::open(&place.log).map_err(told)? else { return Ok(()) };
    while !direct.agrees(log).map_err(told)? {
        // It may also be that others have written meanwhile: with the write lock it can be told.
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Ok(_nobody_writes) => {
                machine.sync(log).map_err(told)?;
                let kept = direct.agrees(log).map_err(told)?;
                return if kept { Ok(()) } else { Err(OpenError::NotStored { path: place.log.clone() }) };
            }
            Err(error) => match OpenError::of_sqlite(error, &place.database) {
                OpenError::Busy { .. } if Instant::now() < deadline => std::thread::sleep(NEXT_TRY),
                other => return Err(other),
            },
        }
    }
    Ok(())
}

fn try_to_prepare(
    connection: &Connection,
    place: &Place,
    tables: Tables,
    machine: &dyn Machine,
    reading: &dyn Fn() -> Reading,
) -> Result<File, OpenError> {
    let path = &place.database;
    let failed = |error| OpenError::of_sqlite(error, path);
    configure(connection).map_err(failed)?;
    // In one transaction: another process may be at it just now.
    let look = Transaction::new_unchecked(connection, TransactionBehavior::Deferred).map_err(failed)?;
    check_contents(schema::contents(&look).map_err(failed)?, tables, place)?;
    drop(look);
    if connection.is_readonly("main").map_err(failed)? {
        return Err(OpenError::ReadOnly { path: path.clone() });
    }
    let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
    let mode = mode.map_err(failed)?;
    if mode != "wal" {
        let source = format!("SQLite keeps no write-ahead log here, but {mode}").into();
        return Err(OpenError::Other { path: path.clone(), source });
    }
    let transaction =
        Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(failed)?;
    let log = check_log(place, machine, tables == Tables::Prepared)?;
    // Another process may have been faster since the first look.
    let version = check_contents(schema::contents(&transaction).map_err(failed)?, tables, place)?;
    schema::migrate(&transaction, version, MIGRATIONS).map_err(failed)?;
    let row = read_clock(&transaction).map_err(failed)?;
    let row = clock::open(row, &reading())
        .map_err(|source| OpenError::OtherMachine { path: path.clone(), source })?;
    write_clock(&transaction, &row).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    check_health(connection, place)?;
    Ok(log)
}

/// Opens the log, and checks that all of it that SQLite counts can be read, while the caller holds the write lock. It is opened
/// first: what fails from then on is reported by the handle. If it is to be written again, that mends what a sync that
/// failed has left behind.
fn check_log(place: &Place, machine: &dyn Machine, write_again: bool) -> Result<File, OpenError> {
    let log = File::options().read(true).write(true).open(&place.log).map_err(|error| place.other(error))?;
    // A connection that holds a transaction is not told.
    let other =
        connect(place, OpenFlags::empty()).map_err(|error| OpenError::of_sqlite(error, &place.database))?;
    let counted = other.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get::<_, i64>(1));
    let counted = counted.map_err(|error| OpenError::of_sqlite(error, &place.database))?;
    let writer: &dyn Fn(&[u8], u64) -> std::io::Result<()> = match write_again {
        true => &|bytes, offset| machine.write_again(&log, bytes, offset),
        false => &|_, _| Ok(()),
    };
    let found = wal::walk(&log, writer).map_err(|error| place.other(error))?;
    // There are more after a process was killed before it committed.
    match u64::try_from(counted) {
        Ok(counted) if found < counted => Err(OpenError::LogLost { path: place.log.clone(), found, counted }),
        _ => Ok(log),
    }
}

/// Writes the log again through a handle that is open already, with the write lock, for which it waits until `deadline`.
#[expect(clippy::disallowed_methods, reason = "a wait for a lock is real")]
pub(super) fn write_log_again(
    connection: &Connection,
    place: &Place,
    machine: &dyn Machine,
    log: &File,
    deadline: Instant,
) -> Result<(), OpenError> {
    loop {
        match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Ok(_nobody_writes) => {
                let writer = |bytes: &[u8], offset| machine.write_again(log, bytes, offset);
                return wal::walk(log, &writer).map(drop).map_err(|error| place.other(error));
            }
            Err(error) => match OpenError::of_sqlite(error, &place.database) {
                OpenError::Busy { .. } if Instant::now() < deadline => std::thread::sleep(NEXT_TRY),
                other => return Err(other),
            },
        }
    }
}

fn check_contents(contents: Contents, tables: Tables, place: &Place) -> Result<usize, OpenError> {
    let path = place.database.clone();
    let known = MIGRATIONS.len();
    match contents {
        Contents::Nothing if tables == Tables::AsTheyAre => Err(OpenError::Nothing { path }),
        Contents::Nothing => Ok(0),
        Contents::Ours(found) if found < known && tables == Tables::AsTheyAre => {
            Err(OpenError::Older { path, found, known })
        }
        Contents::Ours(version) if version <= known => Ok(version),
        Contents::Ours(found) => Err(OpenError::Newer { path, found, known }),
        Contents::Foreign => Err(OpenError::Foreign { path }),
    }
}

fn check_health(connection: &Connection, place: &Place) -> Result<(), OpenError> {
    let path = &place.database;
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
