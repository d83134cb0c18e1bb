//! Records as text, the same in every store that keeps text.
//!
//! Whoever reads ignores fields that it does not know and fills in those that it misses, so that a release
//! and the next run side by side. A kind that it does not know (a new state of a host, a new reason) reads
//! as the nearest that is safe, where there is one, and is damage where there is none.

mod change;
mod founding;
mod host;
mod position;

pub(crate) use change::{read_reason, write_reason};
pub(crate) use founding::{read_founding, write_founding};
pub(crate) use host::{read_host, write_host};
pub(crate) use position::{read_position, write_position};

/// What cannot be read, in words.
pub(crate) type Unreadable = String;

fn read<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn write(record: &impl serde::Serialize) -> String {
    // Plain structures with text keys: nothing in them can fail.
    serde_json::to_string(record).unwrap_or_default()
}
