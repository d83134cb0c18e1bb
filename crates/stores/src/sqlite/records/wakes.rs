//! Reads and writes wake-ups: one counter numbers the wake-ups of the whole file, and each host has the
//! number of its last one.

use ephor_core::ids::{GroupId, HostId};
use rusqlite::{Connection, OptionalExtension, params};

use super::column::text;
use super::{Records, TransactionResult, Wake};

impl Records<'_> {
    pub(in crate::sqlite) fn wake(&self, host: &HostId) -> TransactionResult<()> {
        let number = "UPDATE state SET wakes = wakes + 1 RETURNING wakes";
        let number: i64 = self.connection.prepare_cached(number)?.query_row([], |row| row.get(0))?;
        let sql = "INSERT INTO wakes (group_id, host, number, at) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (group_id, host) DO UPDATE SET number = excluded.number, at = excluded.at";
        let values = params![self.id_to_write()?, host.to_string(), number, self.now.0];
        self.connection.prepare_cached(sql)?.execute(values)?;
        self.woken.borrow_mut().push(Wake { host: host.clone(), number });
        Ok(())
    }

    /// The number of the last wake of a host; zero if there was none.
    pub(in crate::sqlite) fn last_wake(&self, host: &HostId) -> TransactionResult<i64> {
        Ok(last_wake(self.connection, self.group, host)?)
    }

    /// Wakes every host with a record.
    pub(in crate::sqlite) fn wake_all(&self) -> TransactionResult<()> {
        let sql = "SELECT host FROM hosts WHERE group_id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([self.id()])?;
        let mut hosts: Vec<HostId> = Vec::new();
        while let Some(row) = rows.next()? {
            // The view lists an unreadable name as damaged; no host waits under it.
            hosts.extend(text(row, "host").ok().and_then(|name| name.parse().ok()));
        }
        hosts.iter().try_for_each(|host| self.wake(host))
    }
}

pub(in crate::sqlite) fn last_wake(
    connection: &Connection,
    group: &GroupId,
    host: &HostId,
) -> rusqlite::Result<i64> {
    let sql = "SELECT w.number FROM wakes w JOIN groups g ON g.id = w.group_id \
               WHERE g.namespace = ?1 AND g.hub = ?2 AND g.consumer_group = ?3 AND w.host = ?4";
    let names = params![group.namespace.as_str(), group.hub.as_str(), group.group.as_str(), host.to_string()];
    let number = connection.prepare_cached(sql)?.query_row(names, |row| row.get(0)).optional()?;
    Ok(number.unwrap_or(0))
}
