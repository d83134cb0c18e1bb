//! Formats rows as an aligned table for people, and as JSON for programs; formats numbers, and writes to
//! stdout.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use ephor_core::BoxError;
use ephor_core::time::duration_text;
use serde_json::{Map, Value};

use crate::store_commands::arguments::Output;

/// Used for records whose age the store does not know.
pub(crate) const SINCE_RESTART: &str = "since the store restarted";

/// A cell of a row, for people and for programs.
pub(crate) struct Cell {
    text: String,
    value: Value,
    /// Numbers are right-aligned.
    right: bool,
}

impl Cell {
    pub(crate) fn text(text: impl ToString) -> Self {
        let text = text.to_string();
        Self { value: text.clone().into(), text, right: false }
    }

    pub(crate) fn number(number: u64) -> Self {
        Self { text: thousands(number), value: number.into(), right: true }
    }

    /// Nothing, or unknown.
    pub(crate) fn none() -> Self {
        Self { text: "-".into(), value: Value::Null, right: true }
    }

    /// A duration such as `2.5 s`; in JSON, seconds.
    pub(crate) fn duration(duration: Duration) -> Self {
        Self { text: duration_text(duration), value: duration.as_secs_f64().into(), right: true }
    }

    /// One text for people, another for programs.
    pub(crate) fn both(text: impl ToString, value: impl Into<Value>) -> Self {
        Self { text: text.to_string(), value: value.into(), right: false }
    }

    pub(crate) fn or_none(cell: Option<Self>) -> Self {
        cell.unwrap_or_else(Self::none)
    }
}

pub(crate) struct Table {
    columns: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &'static [&'static str]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    pub(crate) fn print(&self, output: Output) -> Result<(), BoxError> {
        match output {
            Output::Table => say(&self.text()),
            Output::Json => say(&pretty(&self.json())),
        }
    }

    /// Columns are as wide as needed, with two spaces between them.
    pub(crate) fn text(&self) -> String {
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].text.chars().count());
            cells.chain([self.columns[index].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let right = |index: usize| self.rows.iter().any(|row| row[index].right && row[index].text != "-");
        let right: Vec<bool> = (0..self.columns.len()).map(right).collect();
        let line = |cells: Vec<&str>| {
            let padded = cells.iter().enumerate().map(|(index, cell)| {
                let width = widths[index];
                if right[index] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
        };
        let head = self.columns.iter().map(|name| name.to_uppercase()).collect::<Vec<_>>();
        let mut text = line(head.iter().map(String::as_str).collect());
        for row in &self.rows {
            text.push_str(&line(row.iter().map(|cell| cell.text.as_str()).collect()));
        }
        text
    }

    /// One object per row, with the columns as field names.
    pub(crate) fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let fields = self.columns.iter().zip(row);
            Value::Object(fields.map(|(name, cell)| (name.replace(' ', "_"), cell.value.clone())).collect())
        };
        self.rows.iter().map(object).collect()
    }
}

/// Formats JSON with indentation.
pub(crate) fn pretty(value: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Writes to stdout. A closed pipe, as with `head`, is no error.
pub(crate) fn say(text: &str) -> Result<(), BoxError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}").into())
        }
        _ => Ok(()),
    }
}

/// A JSON object of named values.
pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// `1 event`, `2 events`
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {}", plural(number as u64, noun))
}

/// The noun for this number of things.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    if number == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// `1,234,567`
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<String> =
        digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_says_the_same_in_json() {
        let mut table = Table::new(&["part", "owner", "lag"]);
        table.row(vec![Cell::number(0), Cell::text("vm-1"), Cell::number(1_234)]);
        table.row(vec![Cell::number(11), Cell::none(), Cell::none()]);
        assert_eq!(table.text(), "PART  OWNER    LAG\n   0  vm-1   1,234\n  11  -          -\n");
        let json = table.json();
        assert_eq!(json[0]["lag"], 1_234);
        assert_eq!(json[0]["owner"], "vm-1");
        assert_eq!(json[1]["owner"], Value::Null);
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "host")), ["0 hosts", "1 host", "2 hosts"]);
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(thousands(number), text);
        }
    }
}
