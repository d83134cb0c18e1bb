//! Reads and writes the ownership history: the last changes of owner of each partition.

use ephor_core::history::OwnershipChange;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::store::MAX_HISTORY_PER_PARTITION;
use rusqlite::{Row, params};

use super::column::{epoch, optional_host, partition, stored, text, time};
use super::{Records, TransactionResult};
use crate::record_text::{Unreadable, read_reason, write_reason};

impl Records<'_> {
    pub(super) fn remember(&self, change: &OwnershipChange) -> TransactionResult<()> {
        let number = "UPDATE state SET changes = changes + 1 RETURNING changes";
        let number: i64 = self.connection.prepare_cached(number)?.query_row([], |row| row.get(0))?;
        let sql = "INSERT INTO history (group_id, partition, number, at, epoch, from_host, to_host, reason) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let text = |host: &Option<HostId>| host.as_ref().map(ToString::to_string);
        let group = self.id_to_write()?;
        self.connection.prepare_cached(sql)?.execute(params![
            group,
            change.partition.0,
            number,
            change.at.0,
            stored(change.epoch.get())?,
            text(&change.from),
            text(&change.to),
            write_reason(&change.reason),
        ])?;
        let old = "DELETE FROM history WHERE group_id = ?1 AND partition = ?2 AND number <= \
                   (SELECT number FROM history WHERE group_id = ?1 AND partition = ?2 \
                   ORDER BY number DESC LIMIT 1 OFFSET ?3)";
        self.connection.prepare_cached(old)?.execute(params![
            group,
            change.partition.0,
            MAX_HISTORY_PER_PARTITION
        ])?;
        Ok(())
    }

    /// The last changes, newest first. Unreadable rows are left out.
    pub(in crate::sqlite) fn history(
        &self,
        partition: Option<PartitionId>,
        max: usize,
    ) -> TransactionResult<Vec<OwnershipChange>> {
        let sql = "SELECT * FROM history WHERE group_id = ?1 AND (?2 IS NULL OR partition = ?2) \
                   ORDER BY number DESC LIMIT ?3";
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.id(), partition.map(|partition| partition.0), max])?;
        let mut changes = Vec::new();
        while let Some(row) = rows.next()? {
            match read(row) {
                Ok(change) => changes.push(change),
                Err(why) => tracing::warn!(group = %self.group, why, "a row of the history is unreadable"),
            }
        }
        Ok(changes)
    }
}

fn read(row: &Row<'_>) -> Result<OwnershipChange, Unreadable> {
    Ok(OwnershipChange {
        at: time(row, "at")?,
        partition: partition(row)?,
        epoch: epoch(row, "epoch")?,
        from: optional_host(row, "from_host")?,
        to: optional_host(row, "to_host")?,
        reason: read_reason(text(row, "reason")?)?,
    })
}
