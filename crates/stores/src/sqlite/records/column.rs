//! Converts columns to values and back. An unreadable value becomes an error text, so that one bad row does
//! not hide the others.

use std::str::FromStr;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::store::RefusalCause;
use ephor_core::time::Timestamp;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::{TransactionError, TransactionResult};
use crate::record_text::Unreadable;

/// A number as SQLite stores it: at most 2^63 - 1.
pub(super) fn stored(number: u64) -> TransactionResult<i64> {
    i64::try_from(number).map_err(|_| {
        let message = format!("{number} exceeds the largest number that SQLite stores");
        TransactionError::Refused(RefusalCause::Other, message)
    })
}

pub(super) fn optional_text<'a>(row: &'a Row<'_>, name: &str) -> Result<Option<&'a str>, Unreadable> {
    match row.get_ref(name) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Text(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(format!("{name} is not text")),
        },
        Ok(_) => Err(format!("{name} is not text")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

pub(super) fn text<'a>(row: &'a Row<'_>, name: &str) -> Result<&'a str, Unreadable> {
    optional_text(row, name)?.ok_or_else(|| format!("{name} is missing"))
}

pub(super) fn optional_number<T: TryFrom<i64>>(row: &Row<'_>, name: &str) -> Result<Option<T>, Unreadable> {
    match row.get_ref(name) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Integer(number)) => match T::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{name} is {number}")),
        },
        Ok(_) => Err(format!("{name} is not a number")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

pub(super) fn number<T: TryFrom<i64>>(row: &Row<'_>, name: &str) -> Result<T, Unreadable> {
    optional_number(row, name)?.ok_or_else(|| format!("{name} is missing"))
}

pub(super) fn partition(row: &Row<'_>) -> Result<PartitionId, Unreadable> {
    number(row, "partition").map(PartitionId)
}

pub(super) fn epoch(row: &Row<'_>, name: &str) -> Result<Epoch, Unreadable> {
    number(row, name).map(Epoch::from_stored)
}

pub(super) fn time(row: &Row<'_>, name: &str) -> Result<Timestamp, Unreadable> {
    number(row, name).map(Timestamp)
}

pub(super) fn optional_host(row: &Row<'_>, name: &str) -> Result<Option<HostId>, Unreadable> {
    let parse = |text| HostId::from_str(text).map_err(|error| format!("{name}: {error}"));
    optional_text(row, name)?.map(parse).transpose()
}
