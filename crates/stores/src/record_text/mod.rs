//! Encodes host records, origins, positions and reasons of changes as text, and decodes them, in the same
//! formats for every store. The formats are stored, so they must not change.
//!
//! A reader ignores unknown fields and fills in missing ones, so that two releases can share a store. An
//! unknown value (a new state of a host, a new reason) reads as the nearest safe one, if there is one, and
//! as damage otherwise.

mod change;
mod host;
mod origin;
mod position;

pub(crate) use change::{read_reason, write_reason};
pub(crate) use host::{read_host, write_host};
pub(crate) use origin::{read_origin, write_origin};
pub(crate) use position::{read_position, write_position};

/// Why a record is unreadable, in words.
pub(crate) type Unreadable = String;

fn read<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn write(record: &impl serde::Serialize) -> String {
    // Plain structures with text keys cannot fail.
    serde_json::to_string(record).unwrap_or_default()
}
