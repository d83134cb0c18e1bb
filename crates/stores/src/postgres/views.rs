//! Reads a view of a group (leases, checkpoints, host records, origin) in one round trip. Also lists all
//! groups, and writes the origin of a group. The history is in `ownership_changes.rs`.

use ephor_core::ids::GroupId;
use ephor_core::store::{GroupOrigin, HostEntry, View};
use ephor_core::time::Timestamp;
use sqlx::postgres::PgRow;

use super::clock::Reading;
use super::connections::Purpose;
use super::error_mapping::{Failure, damaged};
use super::literal;
use super::ownership_changes::group_of;
use super::partition_state::{clock_row, kind, time_of};
use super::rows::{
    CHECKPOINT_COLUMNS, LEASE_COLUMNS, age_known, checkpoint, number, optional_number, optional_text,
    seen_lease, text,
};
use super::session::Session;
use crate::record_text::{Unreadable, read_host, read_origin, write_origin};

impl Session {
    /// All groups that have records, in order. A group with unreadable names is left out.
    pub(super) async fn groups(&self) -> Result<Vec<GroupId>, Failure> {
        let s = self.schema();
        let sql = format!(
            "SELECT group_key FROM {s}.groups WHERE founding IS NOT NULL \
             UNION SELECT group_key FROM {s}.leases UNION SELECT group_key FROM {s}.checkpoints \
             UNION SELECT group_key FROM {s}.hosts UNION SELECT group_key FROM {s}.history"
        );
        let mut groups = Vec::new();
        for row in self.run_only(&sql).await? {
            match group_of(&row) {
                Ok(group) => groups.push(group),
                Err(why) => tracing::warn!(why, "a group in the store has unreadable names"),
            }
        }
        groups.sort();
        Ok(groups)
    }

    pub(super) async fn init_group(
        &self,
        group: &GroupId,
        origin: &GroupOrigin,
    ) -> Result<GroupOrigin, Failure> {
        let (s, key, text) = (self.schema(), literal::group(group), literal::text(&write_origin(origin)));
        let sql = format!(
            "{limit} INSERT INTO {s}.groups AS g (group_key, founding) SELECT {key}, {text} WHERE {known} \
             ON CONFLICT (group_key) DO UPDATE SET founding = coalesce(g.founding, excluded.founding) \
             RETURNING founding",
            limit = self.lock_limit(),
            known = self.tables_are_known(),
        );
        let rows = self.run_only_for(Purpose::Ownership, &sql).await?;
        let read = rows.first().ok_or_else(|| "it is missing".to_owned());
        let read = read.and_then(|row| optional_text(row, "founding")?.map(read_origin).transpose());
        let unreadable = |why| damaged(format!("the origin record of {group}: {why}"));
        read.map_err(unreadable)?.ok_or_else(|| unreadable("it is missing".to_owned()))
    }

    /// Reads leases before checkpoints: see [`View`].
    pub(super) async fn view(&self, purpose: Purpose, group: &GroupId) -> Result<View, Failure> {
        let (s, key) = (self.schema(), literal::group(group));
        let sql = format!(
            "{} SELECT 'lease' AS kind, {LEASE_COLUMNS} FROM {s}.leases WHERE group_key = {key} \
             ORDER BY partition; \
             SELECT 'checkpoint' AS kind, {CHECKPOINT_COLUMNS} FROM {s}.checkpoints WHERE group_key = {key} \
             ORDER BY partition; \
             SELECT 'host' AS kind, host, written_at, server, record FROM {s}.hosts WHERE group_key = {key}; \
             SELECT 'group' AS kind, founding FROM {s}.groups WHERE group_key = {key}",
            clock_row()
        );
        let rows = self.run_only_for(purpose, &sql).await?;
        let reading = time_of(&rows)?;
        let mut view = View { at: reading.now, ..View::default() };
        for row in &rows {
            if let Err(why) = take_in(&mut view, row, reading) {
                view.damaged.push(format!("{} of {group}: {why}", which(row)));
            }
        }
        view.hosts.sort_by(|one, other| one.record.id.cmp(&other.record.id));
        Ok(view)
    }
}

fn take_in(view: &mut View, row: &PgRow, reading: Reading) -> Result<(), Unreadable> {
    match kind(row) {
        "lease" => view.leases.push(seen_lease(row, reading)?),
        "checkpoint" => {
            let partition = number(row, "partition").map(ephor_core::ids::PartitionId)?;
            let checkpoint = checkpoint(row)?.checkpoint;
            view.checkpoints.extend(checkpoint.map(|checkpoint| (partition, checkpoint)));
        }
        "host" => view.hosts.push(host(row, reading)?),
        "group" => view.origin = optional_text(row, "founding")?.map(read_origin).transpose()?,
        _ => {}
    }
    Ok(())
}

fn host(row: &PgRow, reading: Reading) -> Result<HostEntry, Unreadable> {
    let id = text(row, "host")?.parse().map_err(|error: ephor_core::ids::InvalidName| error.to_string())?;
    let written = number(row, "written_at").map(Timestamp)?;
    let shift = reading.shift(number(row, "server")?, written);
    let age = reading.now.since(Timestamp(written.0.saturating_add(shift)));
    let record = read_host(id, text(row, "record")?)?;
    Ok(HostEntry { record, age, age_known: age_known(row, reading)? })
}

/// Names a record in an error message.
fn which(row: &PgRow) -> String {
    let partition = || optional_number::<i64>(row, "partition").ok().flatten().unwrap_or(-1);
    match kind(row) {
        "host" => format!("the record of host {}", text(row, "host").unwrap_or("?")),
        "group" => "the origin record".to_owned(),
        kind => format!("the {kind} of partition {}", partition()),
    }
}
