//! Reads and writes leases.

use std::time::Duration;

use ephor_core::ids::{HostId, PartitionId};
use ephor_core::record::LeaseRecord;
use rusqlite::{Row, params};

use super::column::{epoch, number, optional_host, optional_number, partition, stored, time};
use super::{Records, TransactionResult, noted};
use crate::record_text::Unreadable;

impl Records<'_> {
    pub(in crate::sqlite) fn lease(&self, partition: PartitionId) -> TransactionResult<Option<LeaseRecord>> {
        let sql = "SELECT * FROM leases WHERE group_id = ?1 AND partition = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.id(), partition.0])?;
        rows.next()?.map(|row| self.read_lease(row)).transpose()
    }

    /// All leases in order of their partitions.
    pub(super) fn leases(&self, damaged: &mut Vec<String>) -> TransactionResult<Vec<LeaseRecord>> {
        let sql = "SELECT * FROM leases WHERE group_id = ?1 ORDER BY partition";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([self.id()])?;
        let mut leases = Vec::new();
        while let Some(row) = rows.next()? {
            let lease = self.read_lease(row).map(Some).or_else(|error| noted(error, damaged))?;
            leases.extend(lease);
        }
        Ok(leases)
    }

    fn read_lease(&self, row: &Row<'_>) -> TransactionResult<LeaseRecord> {
        read(row).map_err(|why| {
            let which = optional_number::<i64>(row, "partition").ok().flatten().unwrap_or(-1);
            self.damaged(&format!("the lease of partition {which}"), why)
        })
    }

    pub(in crate::sqlite) fn write_lease(&self, lease: &LeaseRecord) -> TransactionResult<()> {
        let sql = "INSERT INTO leases (group_id, partition, owner, epoch, duration_ms, acquired_at, \
                   renewed_at, revision, previous, previous_until, heir) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
                   ON CONFLICT (group_id, partition) DO UPDATE SET owner = excluded.owner, \
                   epoch = excluded.epoch, duration_ms = excluded.duration_ms, \
                   acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at, \
                   revision = excluded.revision, previous = excluded.previous, \
                   previous_until = excluded.previous_until, heir = excluded.heir";
        let text = |host: &Option<HostId>| host.as_ref().map(ToString::to_string);
        let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.connection.prepare_cached(sql)?.execute(params![
            self.id_to_write()?,
            lease.partition.0,
            text(&lease.owner),
            stored(lease.epoch.get())?,
            lease.duration.map(milliseconds),
            lease.acquired_at.0,
            lease.renewed_at.0,
            stored(lease.revision)?,
            text(&lease.previous_owner),
            lease.previous_owner_until.0,
            text(&lease.successor),
        ])?;
        Ok(())
    }
}

fn read(row: &Row<'_>) -> Result<LeaseRecord, Unreadable> {
    Ok(LeaseRecord {
        partition: partition(row)?,
        owner: optional_host(row, "owner")?,
        epoch: epoch(row, "epoch")?,
        duration: optional_number(row, "duration_ms")?.map(Duration::from_millis),
        acquired_at: time(row, "acquired_at")?,
        renewed_at: time(row, "renewed_at")?,
        revision: number(row, "revision")?,
        previous_owner: optional_host(row, "previous")?,
        previous_owner_until: time(row, "previous_until")?,
        successor: optional_host(row, "heir")?,
    })
}
