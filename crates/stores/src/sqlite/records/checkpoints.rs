//! Reads and writes checkpoints and their fences (the column `seal`).

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::record::CheckpointRecord;
use rusqlite::{OptionalExtension, Row, params};

use super::column::{epoch, optional_number, optional_text, partition, stored, time};
use super::{Records, TransactionResult, noted};
use crate::record_text::{Unreadable, read_position, write_position};

impl Records<'_> {
    /// The epoch that may save. It is readable even if the position is not, so that a seek can replace it.
    pub(in crate::sqlite) fn fence(&self, partition: PartitionId) -> TransactionResult<Epoch> {
        let sql = "SELECT seal FROM checkpoints WHERE group_id = ?1 AND partition = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let fence = statement.query_row(params![self.id(), partition.0], |row| {
            Ok(epoch(row, "seal")
                .map_err(|why| self.damaged(&format!("the fence (column seal) of {partition:?}"), why)))
        });
        fence.optional()?.unwrap_or(Ok(Epoch::NONE))
    }

    pub(in crate::sqlite) fn checkpoint(
        &self,
        partition: PartitionId,
    ) -> TransactionResult<CheckpointRecord> {
        let sql = "SELECT * FROM checkpoints WHERE group_id = ?1 AND partition = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.id(), partition.0])?;
        let record = rows.next()?.map(|row| self.read_checkpoint(row)).transpose()?;
        Ok(record.map_or_else(CheckpointRecord::default, |(_, record)| record))
    }

    /// All checkpoints in order of their partitions.
    pub(super) fn checkpoints(
        &self,
        damaged: &mut Vec<String>,
    ) -> TransactionResult<Vec<(PartitionId, Checkpoint)>> {
        let sql = "SELECT * FROM checkpoints WHERE group_id = ?1 ORDER BY partition";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([self.id()])?;
        let mut checkpoints = Vec::new();
        while let Some(row) = rows.next()? {
            let read = self.read_checkpoint(row).map(Some).or_else(|error| noted(error, damaged))?;
            checkpoints.extend(read.and_then(|(partition, record)| Some((partition, record.checkpoint?))));
        }
        Ok(checkpoints)
    }

    fn read_checkpoint(&self, row: &Row<'_>) -> TransactionResult<(PartitionId, CheckpointRecord)> {
        read(row).map_err(|why| {
            let which = optional_number::<i64>(row, "partition").ok().flatten().unwrap_or(-1);
            self.damaged(&format!("the checkpoint of partition {which}"), why)
        })
    }

    pub(super) fn write_fence(&self, partition: PartitionId, fence: Epoch) -> TransactionResult<()> {
        let sql = "INSERT INTO checkpoints (group_id, partition, seal) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (group_id, partition) DO UPDATE SET seal = excluded.seal";
        let values = params![self.id_to_write()?, partition.0, stored(fence.get())?];
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Writes the position, and does not change the fence.
    pub(in crate::sqlite) fn write_position(
        &self,
        partition: PartitionId,
        checkpoint: &Checkpoint,
    ) -> TransactionResult<()> {
        let sql = "INSERT INTO checkpoints (group_id, partition, seal, position, log, epoch, saved_at) \
                   VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6) \
                   ON CONFLICT (group_id, partition) DO UPDATE SET position = excluded.position, \
                   log = excluded.log, epoch = excluded.epoch, saved_at = excluded.saved_at";
        self.connection.prepare_cached(sql)?.execute(params![
            self.id_to_write()?,
            partition.0,
            write_position(&checkpoint.position),
            checkpoint.log.as_ref().map(LogId::as_str),
            stored(checkpoint.epoch.get())?,
            checkpoint.saved_at.0,
        ])?;
        Ok(())
    }
}

fn read(row: &Row<'_>) -> Result<(PartitionId, CheckpointRecord), Unreadable> {
    let checkpoint = match optional_text(row, "position")? {
        None => None,
        Some(position) => Some(Checkpoint {
            position: read_position(position)?,
            log: optional_text(row, "log")?.map(LogId::new),
            epoch: epoch(row, "epoch")?,
            saved_at: time(row, "saved_at")?,
        }),
    };
    Ok((partition(row)?, CheckpointRecord { fence: epoch(row, "seal")?, checkpoint }))
}
