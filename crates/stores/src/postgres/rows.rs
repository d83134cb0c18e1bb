//! Converts columns to values. An unreadable value becomes an error text, so that one bad row does not hide
//! the others.

use std::str::FromStr;
use std::time::Duration;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::ids::{HostId, LogId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::record::{CheckpointRecord, LeaseRecord};
use ephor_core::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::clock::Reading;
use crate::record_text::{Unreadable, read_position, read_reason};

pub(super) const LEASE_COLUMNS: &str = "partition, owner, epoch, duration_ms, acquired_at, renewed_at, server, \
                                        revision, previous, previous_until, heir";
pub(super) const CHECKPOINT_COLUMNS: &str = "partition, seal, revision, position, log, epoch, saved_at";

pub(super) fn optional_text<'a>(row: &'a PgRow, name: &str) -> Result<Option<&'a str>, Unreadable> {
    row.try_get(name).map_err(|error| format!("{name}: {error}"))
}

pub(super) fn text<'a>(row: &'a PgRow, name: &str) -> Result<&'a str, Unreadable> {
    optional_text(row, name)?.ok_or_else(|| format!("{name} is missing"))
}

pub(super) fn optional_number<T: TryFrom<i64>>(row: &PgRow, name: &str) -> Result<Option<T>, Unreadable> {
    let number: Option<i64> = row.try_get(name).map_err(|error| format!("{name}: {error}"))?;
    let read = |number| T::try_from(number).map_err(|_| format!("{name} is {number}"));
    number.map(read).transpose()
}

pub(super) fn number<T: TryFrom<i64>>(row: &PgRow, name: &str) -> Result<T, Unreadable> {
    optional_number(row, name)?.ok_or_else(|| format!("{name} is missing"))
}

fn epoch(row: &PgRow, name: &str) -> Result<Epoch, Unreadable> {
    number(row, name).map(Epoch::from_stored)
}

fn time(row: &PgRow, name: &str) -> Result<Timestamp, Unreadable> {
    number(row, name).map(Timestamp)
}

pub(super) fn optional_host(row: &PgRow, name: &str) -> Result<Option<HostId>, Unreadable> {
    let parse = |text| HostId::from_str(text).map_err(|error| format!("{name}: {error}"));
    optional_text(row, name)?.map(parse).transpose()
}

/// Reads the columns `now` and `server_now`.
pub(super) fn reading(row: &PgRow) -> Result<Reading, Unreadable> {
    Ok(Reading { now: time(row, "now")?, server: number(row, "server_now")? })
}

/// Reads a lease, and converts its times to this reading's clock.
pub(super) fn lease(row: &PgRow, reading: Reading) -> Result<LeaseRecord, Unreadable> {
    let renewed_at = time(row, "renewed_at")?;
    let shift = reading.shift(number(row, "server")?, renewed_at);
    let moved = |time: Timestamp| Timestamp(time.0.saturating_add(shift));
    Ok(LeaseRecord {
        partition: number(row, "partition").map(PartitionId)?,
        owner: optional_host(row, "owner")?,
        epoch: epoch(row, "epoch")?,
        duration: optional_number(row, "duration_ms")?.map(Duration::from_millis),
        acquired_at: moved(time(row, "acquired_at")?),
        renewed_at: moved(renewed_at),
        revision: number(row, "revision")?,
        previous_owner: optional_host(row, "previous")?,
        previous_owner_until: moved(time(row, "previous_until")?),
        successor: optional_host(row, "heir")?,
    })
}

/// A lease as a view shows it.
pub(super) fn seen_lease(row: &PgRow, reading: Reading) -> Result<Lease, Unreadable> {
    let age_known = age_known(row, reading)?;
    Ok(Lease { age_known, ..lease(row, reading)?.seen_at(reading.now) })
}

/// Whether the times in a row are of this reading's clock.
pub(super) fn age_known(row: &PgRow, reading: Reading) -> Result<bool, Unreadable> {
    Ok(reading.knows(number(row, "server")?))
}

/// The epoch that may save. It is readable even if the position is not, so that a seek can replace it.
pub(super) fn fence(row: &PgRow) -> Result<Epoch, Unreadable> {
    epoch(row, "seal")
}

pub(super) fn checkpoint(row: &PgRow) -> Result<CheckpointRecord, Unreadable> {
    let checkpoint = match optional_text(row, "position")? {
        None => None,
        Some(position) => Some(Checkpoint {
            position: read_position(position)?,
            log: optional_text(row, "log")?.map(LogId::new),
            epoch: epoch(row, "epoch")?,
            saved_at: time(row, "saved_at")?,
        }),
    };
    Ok(CheckpointRecord { fence: fence(row)?, checkpoint })
}

pub(super) fn change(row: &PgRow) -> Result<OwnershipChange, Unreadable> {
    Ok(OwnershipChange {
        at: time(row, "at")?,
        partition: number(row, "partition").map(PartitionId)?,
        epoch: epoch(row, "epoch")?,
        from: optional_host(row, "from_host")?,
        to: optional_host(row, "to_host")?,
        reason: read_reason(text(row, "reason")?)?,
    })
}
