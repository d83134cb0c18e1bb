//! Reads and writes groups: their names, their ids, and their origins (the column `founding`).

use ephor_core::ids::GroupId;
use ephor_core::store::GroupOrigin;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::column::{optional_text, text};
use super::{Records, TransactionResult};
use crate::record_text::{Unreadable, read_origin, write_origin};

pub(super) fn find(connection: &Connection, group: &GroupId) -> TransactionResult<Option<i64>> {
    let sql = "SELECT id FROM groups WHERE namespace = ?1 AND hub = ?2 AND consumer_group = ?3";
    let names = params![group.namespace.as_str(), group.hub.as_str(), group.group.as_str()];
    Ok(connection.prepare_cached(sql)?.query_row(names, |row| row.get(0)).optional()?)
}

pub(super) fn insert(connection: &Connection, group: &GroupId) -> TransactionResult<i64> {
    let sql = "INSERT INTO groups (namespace, hub, consumer_group) VALUES (?1, ?2, ?3) RETURNING id";
    let names = params![group.namespace.as_str(), group.hub.as_str(), group.group.as_str()];
    Ok(connection.prepare_cached(sql)?.query_row(names, |row| row.get(0))?)
}

/// All groups that have records, in order. A group with unreadable names is left out.
pub(in crate::sqlite) fn all(connection: &Connection) -> TransactionResult<Vec<GroupId>> {
    let sql = "SELECT namespace, hub, consumer_group FROM groups g WHERE founding IS NOT NULL \
               OR EXISTS (SELECT 1 FROM leases WHERE group_id = g.id) \
               OR EXISTS (SELECT 1 FROM checkpoints WHERE group_id = g.id) \
               OR EXISTS (SELECT 1 FROM hosts WHERE group_id = g.id) \
               OR EXISTS (SELECT 1 FROM history WHERE group_id = g.id)";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut groups = Vec::new();
    while let Some(row) = rows.next()? {
        match names(row) {
            Ok(group) => groups.push(group),
            Err(why) => tracing::warn!(why, "a group in the store has unreadable names"),
        }
    }
    groups.sort();
    Ok(groups)
}

fn names(row: &Row<'_>) -> Result<GroupId, Unreadable> {
    let refuse = |error: ephor_core::ids::InvalidName| error.to_string();
    Ok(GroupId {
        namespace: text(row, "namespace")?.parse().map_err(refuse)?,
        hub: text(row, "hub")?.parse().map_err(refuse)?,
        group: text(row, "consumer_group")?.parse().map_err(refuse)?,
    })
}

impl Records<'_> {
    pub(in crate::sqlite) fn origin(&self) -> TransactionResult<Option<GroupOrigin>> {
        let mut statement = self.connection.prepare_cached("SELECT founding FROM groups WHERE id = ?1")?;
        let mut rows = statement.query([self.id()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let origin = optional_text(row, "founding").and_then(|text| text.map(read_origin).transpose());
        origin.map_err(|why| self.damaged("the origin record", why))
    }

    pub(in crate::sqlite) fn write_origin(&self, origin: &GroupOrigin) -> TransactionResult<()> {
        let sql = "UPDATE groups SET founding = ?2 WHERE id = ?1";
        let id = self.id_to_write()?;
        self.connection.prepare_cached(sql)?.execute(params![id, write_origin(origin)])?;
        Ok(())
    }
}
