//! Reads the state of a partition, on which an operation bases its decision.

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::record::{CheckpointRecord, LeaseRecord};
use sqlx::postgres::PgRow;

use super::clock::{NOW, Reading, SERVER};
use super::connections::{PooledConnection, Purpose};
use super::error_mapping::{Failure, damaged};
use super::rows::{CHECKPOINT_COLUMNS, LEASE_COLUMNS, checkpoint, fence, lease, number, reading, text};
use super::session::Session;
use super::{literal, rows};
use crate::record_text::Unreadable;

/// A partition's records at one time.
pub(super) struct PartitionState {
    pub(super) reading: Reading,
    pub(super) lease: Option<LeaseRecord>,
    /// Whether the lease's times are of this reading's clock.
    age_known: bool,
    pub(super) fence: Epoch,
    /// An error if the position is unreadable; a seek does not need it.
    pub(super) checkpoint: Result<CheckpointRecord, Unreadable>,
    /// Increases with every write of the checkpoint; none if there is no row.
    pub(super) revision: Option<i64>,
}

/// A statement that returns a row with the time.
pub(super) fn clock_row() -> String {
    format!("SELECT 'clock' AS kind, {NOW} AS now, {SERVER} AS server_now;")
}

pub(super) fn kind(row: &PgRow) -> &str {
    text(row, "kind").unwrap_or_default()
}

/// The time from the row of `clock_row`.
pub(super) fn time_of(rows: &[PgRow]) -> Result<Reading, Failure> {
    let row = rows.iter().find(|row| kind(row) == "clock");
    let read = row.ok_or_else(|| "it is missing".to_owned()).and_then(reading);
    read.map_err(|why| damaged(format!("the database's time: {why}")))
}

impl Session {
    pub(super) async fn read_state(
        &self,
        purpose: Purpose,
        group: &GroupId,
        partition: PartitionId,
    ) -> Result<(PooledConnection<'_>, PartitionState), Failure> {
        let (s, key, p) = (self.schema(), literal::group(group), partition.0);
        let sql = format!(
            "{} SELECT 'lease' AS kind, {LEASE_COLUMNS} FROM {s}.leases WHERE group_key = {key} AND partition = {p}; \
             SELECT 'checkpoint' AS kind, {CHECKPOINT_COLUMNS} FROM {s}.checkpoints \
             WHERE group_key = {key} AND partition = {p}",
            clock_row()
        );
        let (pooled, rows) = self.run_first_for(purpose, &sql).await?;
        let state = read(&rows, group, partition)?;
        Ok((pooled, state))
    }
}

fn read(rows: &[PgRow], group: &GroupId, partition: PartitionId) -> Result<PartitionState, Failure> {
    let reading = time_of(rows)?;
    let unreadable =
        |what: &str, why| damaged(format!("the {what} of partition {partition} of {group}: {why}"));
    let leases = rows.iter().find(|row| kind(row) == "lease");
    let lease = leases.map(|row| lease(row, reading)).transpose().map_err(|why| unreadable("lease", why))?;
    let age_known = leases.map(|row| rows::age_known(row, reading)).transpose();
    let age_known = age_known.map_err(|why| unreadable("lease", why))?.unwrap_or(true);
    let row = rows.iter().find(|row| kind(row) == "checkpoint");
    let fence = row.map_or(Ok(Epoch::NONE), fence).map_err(|why| unreadable("seal", why))?;
    let revision =
        row.map(|row| number(row, "revision")).transpose().map_err(|why| unreadable("seal", why))?;
    let checkpoint = row.map_or_else(|| Ok(CheckpointRecord::default()), rows::checkpoint);
    let checkpoint =
        checkpoint.map_err(|why| format!("the checkpoint of partition {partition} of {group}: {why}"));
    Ok(PartitionState { reading, lease, age_known, fence, checkpoint, revision })
}

impl PartitionState {
    /// The lease as a view would show it.
    pub(super) fn seen_lease(&self) -> Option<Lease> {
        let lease = self.lease.as_ref()?.seen_at(self.reading.now);
        Some(Lease { age_known: self.age_known, ..lease })
    }

    /// The checkpoint; an error if it is damaged.
    pub(super) fn checkpoint(&self) -> Result<&CheckpointRecord, Failure> {
        self.checkpoint.as_ref().map_err(|what| damaged(what.clone()))
    }
}

/// The checkpoint in a row that a statement returned.
pub(super) fn checkpoint_in(
    row: &PgRow,
    group: &GroupId,
    partition: PartitionId,
) -> Result<CheckpointRecord, Failure> {
    checkpoint(row)
        .map_err(|why| damaged(format!("the checkpoint of partition {partition} of {group}: {why}")))
}
