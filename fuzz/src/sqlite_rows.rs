//! Fuzzes rows of a SQLite store, as a damaged file may contain them: they are read, or an error is
//! returned.

use ephor_stores::fuzzing::{Cell, rows};

/// Runs one input: a column, a kind of value and a length, a byte each, then the value; and so on.
pub fn run(data: &[u8]) {
    let mut values = Vec::new();
    let mut rest = data;
    while let [column, kind, length, behind @ ..] = rest {
        let (value, next) = behind.split_at(behind.len().min(usize::from(*length)));
        values.push((usize::from(*column), cell(*kind, value)));
        rest = next;
    }
    rows(&values);
}

/// A value as a file may contain it.
fn cell(kind: u8, value: &[u8]) -> Cell {
    let mut eight = [0; 8];
    let known = value.len().min(8);
    eight[..known].copy_from_slice(&value[..known]);
    match kind % 5 {
        0 => Cell::Null,
        1 => Cell::Integer(i64::from_le_bytes(eight)),
        2 => Cell::Real(f64::from_le_bytes(eight)),
        3 => Cell::Text(value.to_vec()),
        _ => Cell::Blob(value.to_vec()),
    }
}
