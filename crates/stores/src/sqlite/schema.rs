//! Creates the tables and migrates older files.
//!
//! `application_id` marks a file as ours, `user_version` is the version of its tables. A release that
//! only adds a column need not raise the version: older releases keep the values of columns that they
//! do not know.

use rusqlite::Connection;

/// "Ephr" in ASCII.
const APPLICATION_ID: i64 = 0x4570_6872;

/// The migrations in order: from no tables to version 1, from version 1 to version 2, and so on.
pub(super) const MIGRATIONS: &[&str] = &[VERSION_1];

/// The tables of version 1. Their names are stored and stay as they are.
///
/// A host is stored as `name#incarnation`, with the incarnation in hexadecimal digits, because half
/// of all incarnations exceed SQLite's integers. Times are milliseconds of the store's clock.
/// Positions, origins of groups (the column `founding`) and host records are text in the formats of `record_text/`.
const VERSION_1: &str = "
-- One row. The clock: see clock.rs. wakes and changes number all wakes and all lines of the history.
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL,
    machine TEXT,
    base INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    wall INTEGER NOT NULL,
    wakes INTEGER NOT NULL DEFAULT 0,
    changes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE groups (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    hub TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    founding TEXT,
    UNIQUE (namespace, hub, consumer_group)
) STRICT;

CREATE TABLE leases (
    group_id INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    owner TEXT,
    epoch INTEGER NOT NULL,
    duration_ms INTEGER,
    acquired_at INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    previous TEXT,
    previous_until INTEGER NOT NULL,
    heir TEXT,
    PRIMARY KEY (group_id, partition)
) STRICT, WITHOUT ROWID;

-- Only the epoch in seal may save. The rest is empty until there is a position.
CREATE TABLE checkpoints (
    group_id INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    seal INTEGER NOT NULL,
    position TEXT,
    log TEXT,
    epoch INTEGER,
    saved_at INTEGER,
    PRIMARY KEY (group_id, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE hosts (
    group_id INTEGER NOT NULL,
    host TEXT NOT NULL,
    written_at INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (group_id, host)
) STRICT, WITHOUT ROWID;

-- Separate from hosts, because a host rewrites its record with every heartbeat.
CREATE TABLE orders (
    group_id INTEGER NOT NULL,
    host TEXT NOT NULL,
    drain INTEGER NOT NULL,
    PRIMARY KEY (group_id, host)
) STRICT, WITHOUT ROWID;

CREATE TABLE history (
    group_id INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    from_host TEXT,
    to_host TEXT,
    reason TEXT NOT NULL,
    PRIMARY KEY (group_id, partition, number)
) STRICT, WITHOUT ROWID;

-- The number of the last wake of each host.
CREATE TABLE wakes (
    group_id INTEGER NOT NULL,
    host TEXT NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, host)
) STRICT, WITHOUT ROWID;
";

/// The kind of database that a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// An empty file: it is new.
    Nothing,
    /// Ours, with the tables of this version.
    Ours(usize),
    /// A database of another program.
    OtherProgram,
}

pub(super) fn contents(connection: &Connection) -> rusqlite::Result<Contents> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (application, usize::try_from(version)) {
        (APPLICATION_ID, Ok(version)) => Contents::Ours(version),
        (0, Ok(0)) if objects == 0 => Contents::Nothing,
        _ => Contents::OtherProgram,
    })
}

/// Runs all migrations after `version`, inside the caller's transaction.
pub(super) fn migrate(connection: &Connection, version: usize, migrations: &[&str]) -> rusqlite::Result<()> {
    for migration in migrations.iter().skip(version) {
        connection.execute_batch(migration)?;
    }
    if version < migrations.len() {
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", migrations.len() as i64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        Connection::open_in_memory().unwrap()
    }

    #[test]
    fn a_new_file_gets_all_versions_and_an_old_one_those_that_it_misses() {
        let connection = database();
        assert_eq!(contents(&connection).unwrap(), Contents::Nothing);
        migrate(&connection, 0, MIGRATIONS).unwrap();
        assert_eq!(contents(&connection).unwrap(), Contents::Ours(MIGRATIONS.len()));
        connection.execute("INSERT INTO orders (group_id, host, drain) VALUES (1, 'a', 1)", []).unwrap();
        let next = "ALTER TABLE orders ADD COLUMN reason TEXT NOT NULL DEFAULT 'none'";
        let migrations = [VERSION_1, next];
        migrate(&connection, 1, &migrations).unwrap();
        migrate(&connection, 2, &migrations).unwrap();
        assert_eq!(contents(&connection).unwrap(), Contents::Ours(2));
        let row = connection
            .query_row("SELECT drain, reason FROM orders", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(row, (1, "none".to_owned()));
    }

    #[test]
    fn what_another_program_wrote_is_not_ours() {
        for sql in
            ["CREATE TABLE notes (text)", "PRAGMA user_version = 3", "PRAGMA application_id = 252006674"]
        {
            let connection = database();
            connection.execute_batch(sql).unwrap();
            assert_eq!(contents(&connection).unwrap(), Contents::OtherProgram, "{sql}");
        }
    }
}
