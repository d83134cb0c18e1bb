//! Passes arbitrary input to the decoders of the stores, without a database or a service, for the fuzz
//! targets. Not for applications.

use ephor_core::ids::HostId;

#[cfg(feature = "azblob")]
pub use crate::azblob::fuzzing::blob;
use crate::record_text::{
    read_host, read_origin, read_position, read_reason, write_host, write_origin, write_position,
    write_reason,
};
#[cfg(feature = "sqlite")]
pub use crate::sqlite::fuzzing::{Cell, rows};

/// Reads a text as every kind of record. A record that is read, written and read again is the same.
pub fn texts(text: &str) {
    if let Ok(position) = read_position(text) {
        assert_eq!(read_position(&write_position(&position)), Ok(position));
    }
    if let Ok(origin) = read_origin(text) {
        assert_eq!(read_origin(&write_origin(&origin)), Ok(origin));
    }
    if let Ok(reason) = read_reason(text) {
        assert_eq!(read_reason(&write_reason(&reason)), Ok(reason));
    }
    let Ok(id) = "a#0000000000000001".parse::<HostId>() else { return };
    if let Ok(record) = read_host(id.clone(), text) {
        assert_eq!(read_host(id, &write_host(&record)), Ok(record));
    }
}
