//! Runs the store on arbitrary values in arbitrary columns, for a fuzz target. Not for applications.

use std::cell::RefCell;
use std::str::FromStr;
use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostRecord, HostState, HostStatistics};
use ephor_core::ids::{GroupId, HostId, Incarnation, PartitionId};
use ephor_core::lease::{
    ClaimCause, ClaimRequest, LeaseToken, ReleaseCause, ReleaseRequest, TransferRequest,
};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{DesiredState, GroupOrigin, RefusalCause, SaveRequest, SeekRequest, StoreError};
use ephor_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::clock::{self, Reading};
use super::error_mapping;
use super::open::{read_clock, write_clock};
use super::records::{Records, TransactionError, TransactionResult, groups};
use super::schema::MIGRATIONS;
use super::transactions;

const P: PartitionId = PartitionId(3);
const LEASE: Duration = Duration::from_secs(30);
const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A value as a damaged file may hold it, for any column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A number.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// Bytes that are stored as text, and may not be valid UTF-8.
    Text(Vec<u8>),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Puts values into columns, each by its number, and calls everything that reads rows: each call returns a
/// result or an error, none panics, and one bad row does not fail a view.
pub fn rows(values: &[(usize, Cell)]) {
    thread_local! {
        static DATABASE: RefCell<Option<(Connection, Vec<String>)>> = const { RefCell::new(None) };
    }
    DATABASE.with_borrow_mut(|database| {
        let (connection, columns) = database
            .get_or_insert_with(|| prepared().unwrap_or_else(|error| panic!("no database: {error:?}")));
        // The transaction rolls back the changes of this case.
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Deferred);
        let transaction = transaction.unwrap_or_else(|error| panic!("no transaction: {error}"));
        for (column, value) in values {
            put(&transaction, &columns[column % columns.len()], value);
        }
        if let Err(error) = play(&transaction) {
            panic!("{error:?}");
        }
    });
}

/// A database with a row in every table, and the statement that sets each of its columns.
fn prepared() -> TransactionResult<(Connection, Vec<String>)> {
    let connection = Connection::open_in_memory()?;
    // SQLite itself keeps other values out; a damaged file does not.
    let mut loose = MIGRATIONS.concat();
    for rule in ["STRICT, ", "STRICT", " NOT NULL", " CHECK (id = 1)"] {
        loose = loose.replace(rule, "");
    }
    connection.execute_batch(&loose)?;
    let row = clock::open(None, &reading())
        .map_err(|error| TransactionError::Refused(RefusalCause::Other, error.to_string()))?;
    write_clock(&connection, &row)?;
    let group = group();
    let records = Records::of(&connection, &group, NOW)?;
    transactions::init_group(&records, &GroupOrigin { partitions: vec![P], log: None })?;
    records.heartbeat(&host())?;
    records.set_desired_state(&host().id, DesiredState { drain: true })?;
    transactions::claim(&records, &claim(None))?;
    transactions::save(&records, &save())?;
    drop(records);
    let mut columns = Vec::new();
    let tables = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY 1, 2";
    let mut statement = connection.prepare(tables)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (table, column) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
        columns.push(format!("UPDATE {table} SET {column} = "));
    }
    drop(rows);
    drop(statement);
    Ok((connection, columns))
}

/// Sets a column. A violation of a constraint leaves the row as it was.
fn put(connection: &Connection, update: &str, value: &Cell) {
    let (place, value) = match value.clone() {
        Cell::Null => ("?1", Value::Null),
        Cell::Integer(number) => ("?1", Value::Integer(number)),
        Cell::Real(number) => ("?1", Value::Real(number)),
        Cell::Text(bytes) => ("CAST(?1 AS TEXT)", Value::Blob(bytes)),
        Cell::Blob(bytes) => ("?1", Value::Blob(bytes)),
    };
    let _ = connection.execute(&format!("{update}{place}"), [value]);
}

fn play(connection: &Connection) -> TransactionResult<()> {
    let group = group();
    if let Some(Some(row)) = fine(read_clock(connection).map_err(TransactionError::from)) {
        let _ = clock::open(Some(row.clone()), &reading()).map(|row| row.now().to_string());
        let _ = clock::read(row, &reading());
    }
    fine(groups(connection));
    let Some(records) = fine(Records::of(connection, &group, NOW)) else { return Ok(()) };
    let view = records.view()?;
    fine(records.history(None, 10));
    fine(records.history(Some(P), 10));
    fine(records.last_wake(&host().id));
    fine(records.origin());
    fine(transactions::init_group(&records, &GroupOrigin { partitions: vec![P], log: None }));
    fine(records.heartbeat(&host()));
    fine(records.set_desired_state(&host().id, DesiredState { drain: false }));
    let seen = view.lease(P).map(|lease| lease.version.clone());
    let token = view.lease(P).and_then(|lease| lease.token()).unwrap_or_else(token);
    fine(transactions::renew(&records, LEASE, std::slice::from_ref(&token)));
    fine(transactions::save(&records, &SaveRequest { token: token.clone(), ..save() }));
    fine(transactions::claim(&records, &claim(seen)));
    let view = records.view()?;
    let token = view.lease(P).and_then(|lease| lease.token()).unwrap_or(token);
    let transfer =
        TransferRequest { token: token.clone(), to: host().id, duration: LEASE, checkpoint_saved: true };
    fine(transactions::transfer(&records, &transfer));
    let token = LeaseToken { epoch: token.epoch.max(Epoch::NONE), ..token };
    let (cause, checkpoint_saved) = (ReleaseCause::Shutdown, true);
    fine(transactions::release(
        &records,
        &ReleaseRequest { token, cause, successor: None, checkpoint_saved },
    ));
    let (position, by) = (finished(), "ada".to_owned());
    fine(transactions::seek(&records, &SeekRequest { partition: P, position, log: None, by, force: false }));
    fine(records.retire(&host().id));
    records.view().map(drop)
}

/// The result of a call. An error must not be one of the statement itself.
fn fine<T>(result: TransactionResult<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            use rusqlite::Error as E;
            if let TransactionError::Sqlite(
                E::InvalidParameterName(_)
                | E::InvalidColumnName(_)
                | E::InvalidColumnIndex(_)
                | E::InvalidQuery,
            ) = &error
            {
                panic!("{error:?}");
            }
            let mapped = error_mapping::of_transaction(error, std::path::Path::new("ephor.db"));
            assert!(
                !matches!(mapped, StoreError::Throttled(_)) && !mapped.to_string().is_empty(),
                "{mapped:?}"
            );
            None
        }
    }
}

/// A plain word as a name.
fn named<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a name"))
}

fn group() -> GroupId {
    GroupId { namespace: named("ns"), hub: named("homes"), group: named("alarms") }
}

fn host() -> HostRecord {
    HostRecord {
        id: HostId { name: named("a"), incarnation: Incarnation(1) },
        beat: 1,
        state: HostState::Active,
        lease_duration: LEASE,
        max_partitions: None,
        wants: Vec::new(),
        answers: Vec::new(),
        statistics: HostStatistics::default(),
        software: String::new(),
        hub: None,
    }
}

fn token() -> LeaseToken {
    LeaseToken { partition: P, owner: host().id, epoch: Epoch::from_stored(1) }
}

fn claim(seen: Option<ephor_core::lease::LeaseVersion>) -> ClaimRequest {
    let (host, above, cause) = (host().id, Epoch::NONE, ClaimCause::Expired);
    ClaimRequest { partition: P, host, duration: LEASE, seen, above, cause }
}

fn finished() -> Position {
    Position::Finished { sequence: SequenceNumber(7), offset: None, enqueued_at: None }
}

fn save() -> SaveRequest {
    SaveRequest::new(&token(), &finished(), None)
}

fn reading() -> Reading {
    Reading { boot: "boot".into(), machine: None, since_boot: 1_000, wall: NOW.0 }
}
