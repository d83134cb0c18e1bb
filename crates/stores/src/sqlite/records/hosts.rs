//! Reads and writes host records and the desired states of hosts, and deletes those of hosts that are long
//! dead.

use ephor_core::host_record::{HandoverRequest, HostRecord};
use ephor_core::ids::HostId;
use ephor_core::store::{DesiredState, FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER, HostEntry};
use rusqlite::{OptionalExtension, Row, params};

use super::column::{optional_text, text, time};
use super::{Records, TransactionResult, noted};
use crate::record_text::{Unreadable, read_host, write_host};

impl Records<'_> {
    /// All hosts in order of their ids.
    pub(super) fn hosts(&self, damaged: &mut Vec<String>) -> TransactionResult<Vec<HostEntry>> {
        let sql = "SELECT host, written_at, record FROM hosts WHERE group_id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([self.id()])?;
        let mut hosts = Vec::new();
        while let Some(row) = rows.next()? {
            let host = self.read_entry(row).map(Some).or_else(|error| noted(error, damaged))?;
            hosts.extend(host);
        }
        hosts.sort_by(|one, other| one.record.id.cmp(&other.record.id));
        Ok(hosts)
    }

    fn read_entry(&self, row: &Row<'_>) -> TransactionResult<HostEntry> {
        let entry = || {
            let record = record(row)?;
            Ok(HostEntry { record, age: self.now.since(time(row, "written_at")?), age_known: true })
        };
        entry().map_err(|why: Unreadable| {
            let which = optional_text(row, "host").ok().flatten().unwrap_or("?").to_owned();
            self.damaged(&format!("the record of host {which}"), why)
        })
    }

    pub(in crate::sqlite) fn heartbeat(&self, host: &HostRecord) -> TransactionResult<DesiredState> {
        let asked_before = self.wants_of(&host.id)?;
        let sql = "INSERT INTO hosts (group_id, host, written_at, record) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (group_id, host) \
                   DO UPDATE SET written_at = excluded.written_at, record = excluded.record";
        let values = params![self.id_to_write()?, host.id.to_string(), self.now.0, write_host(host)];
        self.connection.prepare_cached(sql)?.execute(values)?;
        for want in host.wants.iter().filter(|want| !asked_before.contains(want)) {
            self.wake(&want.owner)?;
        }
        self.forget()?;
        self.desired_state(&host.id)
    }

    /// The partitions that the host asked for in its stored record; none if that is unreadable.
    fn wants_of(&self, host: &HostId) -> TransactionResult<Vec<HandoverRequest>> {
        let sql = "SELECT host, record FROM hosts WHERE group_id = ?1 AND host = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let before = statement.query_row(params![self.id(), host.to_string()], |row| Ok(record(row)));
        Ok(before.optional()?.and_then(Result::ok).map(|record| record.wants).unwrap_or_default())
    }

    /// Deletes hosts that are long dead, and the desired states (table `orders`) and wakes of hosts without a record.
    fn forget(&self) -> TransactionResult<()> {
        let (id, long_ago) = (self.id(), (self.now - FORGET_HOSTS_AFTER).0);
        let hosts = "DELETE FROM hosts WHERE group_id = ?1 AND written_at <= ?2 AND (written_at <= ?3 \
                     OR host NOT IN (SELECT host FROM orders WHERE group_id = ?1 AND drain))";
        let drained = (self.now - FORGET_DRAINED_HOSTS_AFTER).0;
        self.connection.prepare_cached(hosts)?.execute(params![id, long_ago, drained])?;
        let orders = "DELETE FROM orders WHERE group_id = ?1 \
                      AND host NOT IN (SELECT host FROM hosts WHERE group_id = ?1)";
        self.connection.prepare_cached(orders)?.execute([id])?;
        let wakes = "DELETE FROM wakes WHERE group_id = ?1 AND at <= ?2 \
                     AND host NOT IN (SELECT host FROM hosts WHERE group_id = ?1)";
        self.connection.prepare_cached(wakes)?.execute(params![id, long_ago])?;
        Ok(())
    }

    fn desired_state(&self, host: &HostId) -> TransactionResult<DesiredState> {
        let sql = "SELECT drain FROM orders WHERE group_id = ?1 AND host = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let drain = statement.query_row(params![self.id(), host.to_string()], |row| row.get(0)).optional()?;
        Ok(DesiredState { drain: drain.unwrap_or(false) })
    }

    pub(in crate::sqlite) fn set_desired_state(
        &self,
        host: &HostId,
        desired: DesiredState,
    ) -> TransactionResult<bool> {
        let known = "SELECT 1 FROM hosts WHERE group_id = ?1 AND host = ?2";
        if !self.connection.prepare_cached(known)?.exists(params![self.id(), host.to_string()])? {
            return Ok(false);
        }
        let sql = "INSERT INTO orders (group_id, host, drain) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (group_id, host) DO UPDATE SET drain = excluded.drain";
        self.connection.prepare_cached(sql)?.execute(params![self.id(), host.to_string(), desired.drain])?;
        self.wake(host)?;
        Ok(true)
    }

    pub(in crate::sqlite) fn retire(&self, host: &HostId) -> TransactionResult<()> {
        for sql in [
            "DELETE FROM hosts WHERE group_id = ?1 AND host = ?2",
            "DELETE FROM orders WHERE group_id = ?1 AND host = ?2",
            "DELETE FROM wakes WHERE group_id = ?1 AND host = ?2",
        ] {
            self.connection.prepare_cached(sql)?.execute(params![self.id(), host.to_string()])?;
        }
        Ok(())
    }
}

fn record(row: &Row<'_>) -> Result<HostRecord, Unreadable> {
    let id = text(row, "host")?.parse().map_err(|error: ephor_core::ids::InvalidName| error.to_string())?;
    read_host(id, text(row, "record")?)
}
