//! Tests that pin the content of a SQLite file: its tables, and the rows that a fixed script writes.

#[path = "../shared/golden.rs"]
mod script;

use std::fmt::Write as _;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::fixture::{Folder, HandMachine, group, wait};

fn value(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => format!("'{}'", script::shortened(std::str::from_utf8(text).unwrap())),
        ValueRef::Blob(bytes) => format!("{bytes:x?}"),
    }
}

fn texts(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// All rows of a table, in the order of their columns.
fn rows(connection: &Connection, table: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query([]).unwrap();
    let mut shown = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let cell = |(place, name)| format!("{name}={}", value(row.get_ref(place).unwrap()));
        shown.push(names.iter().enumerate().map(cell).collect::<Vec<_>>().join(" "));
    }
    shown.sort();
    shown
}

fn dump(connection: &Connection) -> String {
    let mut dump = String::new();
    for name in ["application_id", "user_version", "journal_mode"] {
        connection
            .pragma_query(None, name, |row| {
                writeln!(dump, "PRAGMA {name} = {}", value(row.get_ref(0)?)).unwrap();
                Ok(())
            })
            .unwrap();
    }
    for sql in texts(
        connection,
        "SELECT type || ' ' || name || char(10) || coalesce(sql, '') FROM sqlite_schema ORDER BY 1",
    ) {
        writeln!(dump, "\n{sql}").unwrap();
    }
    for table in texts(connection, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1") {
        writeln!(dump, "\nrows of {table}").unwrap();
        for row in rows(connection, &table) {
            writeln!(dump, "{row}").unwrap();
        }
    }
    dump
}

#[test]
fn what_is_stored_is_as_it_was() {
    let machine = HandMachine::new(Some("machine"), "boot", 1_700_000_000_000, 5_000);
    let folder = Folder::new();
    let store = folder.open_on(&machine);
    wait(script::play(&store, &group(), &|| machine.pass(1_250)));
    script::compare("sqlite.txt", &dump(&folder.sql()));
}
